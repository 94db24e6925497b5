//! The server's side of one TLS connection.
//!
//! ```text
//!  Hello ──ClientHello──▶ Greeted ──begin──▶ Shaken: handshake, then records
//!    └── plain HTTP, or no TLS ──▶ Over        └── what rustls refuses: its alert is among the own messages
//! ```
//!
//! Certificates are chosen and keys made when the handshake begins, which is when it was admitted. rustls keeps what is
//! incomplete, and opens records in its own buffer.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::{fmt, mem};

use highwater_core::protocol::Versions;
use rustls::server::{Accepted, Acceptor};
use rustls::{Error, HandshakeKind, ProtocolVersion, ServerConnection};

use super::super::worker::{Opened, Seal};
use super::HELLO_MAX;
use super::shared::Shared;
use crate::app::PeerCertificates;
use crate::metrics::{Completed, HandshakeFailure};

/// The first byte of a TLS handshake (RFC 8446, section 5.1: `ContentType.handshake`).
const HANDSHAKE: u8 = 22;

/// A fatal alert in the clear, `record_overflow` (RFC 8446, section 6.2).
pub(super) const TOO_LARGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 22];

/// For a client that speaks HTTP where TLS is expected.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 50\r\nConnection: close\r\n\r\nThis port speaks TLS; use https:// in the address\n";

/// The server's side of one connection.
pub(super) struct TlsSeal {
    state: State,
    shared: Arc<Shared>,
    /// What the listener allows.
    allowed: Versions,
    /// Bytes that came for the hello.
    hello: usize,
    /// What came while the handshake waited.
    kept: Vec<u8>,
    /// Messages of its own that rustls does not hold.
    own: Vec<u8>,
    /// How many opened bytes were handed out last.
    lent: usize,
    /// Why it has failed, until that is reported.
    failure: Option<HandshakeFailure>,
    is_established: bool,
    /// The peer has sent its closing message, which is reported once all before it is.
    has_closed: bool,
    is_over: bool,
}

enum State {
    Hello(Acceptor),
    Greeted(Box<Accepted>),
    Shaken(ServerConnection),
    /// Nothing more is read.
    Over,
}

/// What is to be reported, without its bytes.
enum Found {
    Plain,
    Other(Opened<'static>),
}

const WAIT: Option<Found> = Some(Found::Other(Opened::Wait));

impl TlsSeal {
    pub(super) fn new(shared: Arc<Shared>, allowed: Versions) -> Self {
        TlsSeal {
            state: State::Hello(Acceptor::default()),
            shared,
            allowed,
            hello: 0,
            kept: Vec::new(),
            own: Vec::new(),
            lent: 0,
            failure: None,
            is_established: false,
            has_closed: false,
            is_over: false,
        }
    }

    /// Reads until there is something to report.
    fn next(&mut self, input: &mut &mut [u8]) -> Found {
        loop {
            let found = match self.state {
                State::Hello(_) => self.read_hello(input),
                State::Greeted(_) => WAIT,
                State::Shaken(_) => self.read_records(input),
                State::Over => {
                    *input = &mut [];
                    self.failure.take().map(|why| Found::Other(Opened::Failed(why))).or(WAIT)
                }
            };
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Reads what belongs to the client's hello.
    fn read_hello(&mut self, input: &mut &mut [u8]) -> Option<Found> {
        let State::Hello(acceptor) = &mut self.state else { return None };
        let Some(first) = input.first() else { return WAIT };
        if self.hello == 0 && *first != HANDSHAKE {
            // Methods are in capital letters. A client that sends something else cannot read an answer.
            if first.is_ascii_uppercase() {
                self.own.extend_from_slice(PLAIN_HTTP);
            }
            return self.give_up(HandshakeFailure::Plain);
        }
        // No more, so that how the bytes come does not decide. Reading from memory does not fail.
        let most = input.len().min(HELLO_MAX - self.hello);
        let taken = acceptor.read_tls(&mut &input[..most]).unwrap_or(0);
        self.hello += taken;
        skip(input, taken);
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                self.state = State::Greeted(Box::new(accepted));
                Some(Found::Other(Opened::Hello))
            }
            Ok(None) if taken == 0 || self.hello == HELLO_MAX => {
                self.own.extend_from_slice(&TOO_LARGE);
                self.give_up(HandshakeFailure::Malformed)
            }
            Ok(None) => None,
            Err((error, mut alert)) => {
                // Writing to memory does not fail.
                let _ = alert.write_all(&mut self.own);
                self.give_up(classify(&error))
            }
        }
    }

    fn give_up(&mut self, why: HandshakeFailure) -> Option<Found> {
        self.state = State::Over;
        self.failure = Some(why);
        None
    }

    /// Reports what was read before, else reads on.
    fn read_records(&mut self, input: &mut &mut [u8]) -> Option<Found> {
        let State::Shaken(tls) = &mut self.state else { return None };
        tls.reader().consume(mem::take(&mut self.lent));
        if !self.is_established && !tls.is_handshaking() {
            self.is_established = true;
            return Some(Found::Other(Opened::Established));
        }
        // In the order in which it came.
        if tls.reader().into_first_chunk().is_ok_and(|chunk| !chunk.is_empty()) {
            return Some(Found::Plain);
        }
        if let Some(why) = self.failure.take() {
            self.is_over = true;
            return Some(Found::Other(Opened::Failed(why)));
        }
        if self.has_closed || self.is_over {
            *input = &mut []; // RFC 8446, section 6.1: what follows is ignored.
            let is_new = !mem::replace(&mut self.is_over, true);
            return if is_new { Some(Found::Other(Opened::Closed)) } else { WAIT };
        }
        if input.is_empty() {
            return WAIT;
        }
        let taken = self.read(input);
        skip(input, taken);
        None
    }

    /// Reads a part of `input`, and opens it. Returns how much it has read.
    fn read(&mut self, input: &[u8]) -> usize {
        let State::Shaken(tls) = &mut self.state else { return 0 };
        // All that was opened is taken, so that there is room; but rustls keeps a message of a handshake until it is complete,
        // and fails where that is longer than it keeps.
        let taken = tls.read_tls(&mut &*input).unwrap_or(0);
        if taken == 0 {
            self.give_up(HandshakeFailure::Malformed);
            return 0;
        }
        self.process();
        taken
    }

    /// Opens what was read.
    fn process(&mut self) {
        let State::Shaken(tls) = &mut self.state else { return };
        match tls.process_new_packets() {
            Ok(now) => self.has_closed = now.peer_has_closed(),
            Err(error) => self.failure = Some(classify(&error)),
        }
    }
}

fn skip(input: &mut &mut [u8], count: usize) {
    let all = mem::take(input);
    *input = &mut all[count..];
}

/// Whose fault it is that a connection has failed.
fn classify(error: &Error) -> HandshakeFailure {
    match error {
        Error::AlertReceived(_) => HandshakeFailure::Alert,
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => HandshakeFailure::Incompatible,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            HandshakeFailure::Certificate
        }
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::InvalidMessage(_)
        | Error::PeerMisbehaved(_)
        | Error::DecryptError
        | Error::PeerSentOversizedRecord => HandshakeFailure::Malformed,
        _ => HandshakeFailure::Internal,
    }
}

impl Seal for TlsSeal {
    fn open<'s, 'i: 's>(&'s mut self, input: &mut &'i mut [u8]) -> Opened<'s> {
        let Found::Other(opened) = self.next(input) else {
            let State::Shaken(tls) = &mut self.state else { return Opened::Wait };
            let plain = tls.reader().into_first_chunk().unwrap_or_default();
            self.lent = plain.len();
            return Opened::Plain(plain);
        };
        opened
    }

    fn keep(&mut self, input: &[u8]) {
        self.kept.extend_from_slice(input);
    }

    fn begin(&mut self) {
        let State::Greeted(accepted) = mem::replace(&mut self.state, State::Over) else { return };
        match accepted.into_connection(self.shared.configuration(self.allowed)) {
            Ok(mut tls) => {
                tls.set_buffer_limit(None); // The worker bounds what it seals.
                self.state = State::Shaken(tls);
            }
            Err((error, mut alert)) => {
                let _ = alert.write_all(&mut self.own);
                self.give_up(classify(&error));
            }
        }
        self.process(); // What came with the hello.
        let kept = mem::take(&mut self.kept);
        let mut kept = kept.as_slice();
        while !kept.is_empty() && self.failure.is_none() && !self.has_closed {
            kept = &kept[self.read(kept)..];
        }
    }

    fn versions(&self) -> Versions {
        let State::Shaken(tls) = &self.state else { return self.allowed };
        match tls.alpn_protocol() {
            Some(b"h2") => Versions::Http2,
            Some(_) => Versions::Http1,
            // A client that does not know ALPN does not know HTTP/2 either (RFC 9113, section 3.2).
            None if self.allowed == Versions::Both => Versions::Http1,
            None => self.allowed,
        }
    }

    fn completed(&self) -> Completed {
        let State::Shaken(tls) = &self.state else { return Completed::default() };
        Completed {
            is_tls13: tls.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    fn certificates(&self) -> Option<PeerCertificates> {
        let State::Shaken(tls) = &self.state else { return None };
        let chain = tls.peer_certificates()?;
        Some(PeerCertificates::new(chain.iter().map(|certificate| certificate.as_ref())))
    }

    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) {
        let State::Shaken(tls) = &mut self.state else { return };
        // After a failure nothing is sealed, and nobody could read it.
        let _ = tls.writer().write_all(plain);
        drain(tls, sealed);
    }

    fn take_own(&mut self, sealed: &mut Vec<u8>) {
        sealed.append(&mut self.own);
        if let State::Shaken(tls) = &mut self.state {
            drain(tls, sealed);
        }
    }

    fn close(&mut self, sealed: &mut Vec<u8>) {
        // Before the hello is complete there is no TLS that could be closed.
        let State::Shaken(tls) = &mut self.state else { return };
        tls.send_close_notify();
        drain(tls, sealed);
    }

    #[cfg(feature = "sim")]
    fn allocated(&self) -> usize {
        self.kept.capacity() + self.own.capacity()
    }
}

/// Moves what is to be sent.
fn drain(tls: &mut ServerConnection, sealed: &mut Vec<u8>) {
    while tls.wants_write() {
        // Writing to memory does not fail.
        let _ = tls.write_tls(sealed);
    }
}

impl fmt::Debug for TlsSeal {
    /// Without keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSeal")
            .field("is_established", &self.is_established)
            .finish_non_exhaustive()
    }
}
