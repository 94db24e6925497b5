//! A dialer over another: its connections are TLS.
//!
//! ```text
//!  Connected ─▶ handshake ─▶ Connected      what the layer below reports, and what this one does
//!  Received  ─▶ opened    ─▶ Received
//!  send, write ─▶ sealed, and sent by the next poll, when the kernel has taken what was sent before
//! ```
//!
//! It keeps the contract of [`Dial`] upwards and downwards: no command is given within a poll, and none while a write is
//! in transit. Closing sends no `close_notify`, like most clients under load.

use std::io::{self, BufRead as _};
use std::sync::Arc;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Instant;
use highwater_sys::clock::monotonic;
use highwater_sys::dial::{Arrival, Dial, Event, Failure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error, HandshakeKind};

use super::super::series::Span;
use super::{Shared, problem};

/// One connection.
struct Session {
    tls: ClientConnection,
    /// When the connection below was established.
    begun: Instant,
    /// The layer above knows of it.
    is_established: bool,
    /// The layer above knows that the server has finished sending.
    is_over: bool,
    /// It is in `unsent`.
    is_queued: bool,
}

/// All connections of a thread.
pub(crate) struct Sessions {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// What the server must choose.
    alpn: Option<&'static [u8]>,
    /// Handshakes that end within it are counted.
    span: Span,
    list: Vec<Option<Session>>,
    /// Those with sealed bytes.
    unsent: Vec<u32>,
    /// Those to be closed, since TLS has failed.
    failed: Vec<u32>,
    handshakes: Shared,
}

impl Sessions {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        alpn: Option<&'static [u8]>,
        span: Span,
    ) -> Sessions {
        let (list, unsent, failed) = (Vec::new(), Vec::new(), Vec::new());
        Sessions { config, name, alpn, span, list, unsent, failed, handshakes: Shared::default() }
    }

    /// Where the handshakes are counted.
    pub(crate) fn handshakes(&self) -> Shared {
        self.handshakes.clone()
    }

    fn at(&mut self, index: u32) -> Option<&mut Session> {
        self.list.get_mut(index as usize)?.as_mut()
    }

    fn on_event(&mut self, event: Event<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        match event {
            Event::Connected(id) => self.begin(id.0),
            Event::Received(id, bytes, arrival) => self.receive(id, bytes, arrival, on_event),
            Event::Eof(id) => match self.at(id.0) {
                Some(session) if !session.is_established => {
                    self.fail(id.0, problem::CLOSED.to_owned());
                }
                Some(session) => {
                    let was_over = std::mem::replace(&mut session.is_over, true);
                    if !was_over {
                        on_event(Event::Eof(id));
                    }
                }
                None => {}
            },
            Event::Failed(id, failure) => {
                if let Some(session) = self.list.get_mut(id.index()) {
                    *session = None;
                }
                on_event(Event::Failed(id, failure));
            }
        }
    }

    fn begin(&mut self, index: u32) {
        let made = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut tls = made.expect("the setup has made one like it");
        // The layer above bounds what it writes.
        tls.set_buffer_limit(None);
        let session = Session {
            tls,
            begun: monotonic(),
            is_established: false,
            is_over: false,
            is_queued: true,
        };
        if self.list.len() <= index as usize {
            self.list.resize_with(index as usize + 1, || None);
        }
        self.list[index as usize] = Some(session);
        self.unsent.push(index);
    }

    fn receive(
        &mut self,
        id: ConnId,
        mut bytes: &[u8],
        arrival: Arrival,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        while !bytes.is_empty() {
            let alpn = self.alpn;
            let Some(session) = self.at(id.0) else { return };
            // Reading from memory does not fail, but rustls refuses bytes after the end, or takes none of them.
            if session.tls.read_tls(&mut bytes).unwrap_or(0) == 0 {
                return;
            }
            let state = match session.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return self.fail(id.0, problem::words(&error, alpn.is_some())),
            };
            if !session.is_established && !session.tls.is_handshaking() {
                if alpn.is_some() && session.tls.alpn_protocol() != alpn {
                    return self.fail(id.0, problem::NO_HTTP_2.to_owned());
                }
                session.is_established = true;
                self.established(id.0);
                on_event(Event::Connected(id));
            }
            let Some(session) = self.at(id.0) else { return };
            let mut reader = session.tls.reader();
            while let Ok(opened) = reader.fill_buf()
                && !opened.is_empty()
            {
                let len = opened.len();
                on_event(Event::Received(id, opened, arrival));
                reader.consume(len);
            }
            if state.peer_has_closed() && session.is_established && !session.is_over {
                session.is_over = true;
                on_event(Event::Eof(id));
            }
            self.queue(id.0);
        }
    }

    /// Counts a handshake that is over.
    fn established(&mut self, index: u32) {
        let Some(Some(session)) = self.list.get(index as usize) else { return };
        let (now, tls) = (monotonic(), &session.tls);
        let mut handshakes = self.handshakes.borrow_mut();
        if handshakes.cipher.is_none() {
            let suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
            let suite = suite.and_then(|suite| suite.as_str()).unwrap_or_default();
            let version = tls.protocol_version().and_then(|version| version.as_str());
            handshakes.cipher = Some(format!("{} {suite}", version.unwrap_or_default()));
        }
        if self.span.measures(now) {
            match tls.handshake_kind() {
                Some(HandshakeKind::Resumed) => handshakes.resumed += 1,
                _ => handshakes.full += 1,
            }
            handshakes.took.record((now - session.begun).as_nanos() as u64);
        }
    }

    /// Notes that sealed bytes are to be sent.
    fn queue(&mut self, index: u32) {
        let Some(Some(session)) = self.list.get_mut(index as usize) else { return };
        if session.tls.wants_write() && !std::mem::replace(&mut session.is_queued, true) {
            self.unsent.push(index);
        }
    }

    fn fail(&mut self, index: u32, what: String) {
        self.handshakes.borrow_mut().problem.get_or_insert(what);
        self.failed.push(index);
    }

    /// Seals what `fill` writes.
    fn seal(&mut self, index: u32, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) {
        let Some(session) = self.at(index) else { return };
        if fill(&mut session.tls.writer()).is_err() {
            let what = Error::General("the server has closed the connection".to_owned());
            return self.fail(index, problem::words(&what, false));
        }
        self.queue(index);
    }
}

/// A dialer over `D` whose connections are TLS.
pub(crate) struct TlsDialer<D> {
    inner: D,
    sessions: Sessions,
    messages: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl<D: Dial> TlsDialer<D> {
    /// `inner` needs no messages: what is sent is encrypted again each time.
    pub(crate) fn new(inner: D, sessions: Sessions, messages: Vec<Vec<u8>>) -> TlsDialer<D> {
        TlsDialer { inner, sessions, messages, scratch: Vec::new() }
    }

    /// Sends sealed bytes on the connections on which nothing is in transit.
    fn flush(&mut self) {
        let TlsDialer { inner, sessions, .. } = self;
        let mut unsent = std::mem::take(&mut sessions.unsent);
        unsent.retain(|index| {
            let Some(session) = sessions.at(*index) else { return false };
            if !session.tls.wants_write() {
                session.is_queued = false;
                return false;
            }
            if inner.is_writing(ConnId(*index)) {
                return true;
            }
            session.is_queued = false;
            inner.write(ConnId(*index), |buffer| write(&mut session.tls, buffer));
            false
        });
        sessions.unsent = unsent;
    }
}

fn write(tls: &mut ClientConnection, buffer: &mut Vec<u8>) {
    while tls.wants_write() {
        tls.write_tls(buffer).expect("memory takes everything");
    }
}

impl<D: Dial> Dial for TlsDialer<D> {
    fn connect(&mut self) -> io::Result<ConnId> {
        self.inner.connect()
    }

    fn send(&mut self, id: ConnId, message: usize, len: usize) {
        let TlsDialer { sessions, messages, .. } = self;
        sessions.seal(id.0, |writer| writer.write_all(&messages[message][..len]));
    }

    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        fill(&mut self.scratch);
        let TlsDialer { sessions, scratch, .. } = self;
        sessions.seal(id.0, |writer| writer.write_all(scratch));
    }

    fn is_writing(&mut self, _: ConnId) -> bool {
        // It keeps what waits: another write may always follow.
        false
    }

    fn close(&mut self, id: ConnId) {
        if let Some(session) = self.sessions.list.get_mut(id.index()) {
            *session = None;
        }
        self.inner.close(id);
    }

    fn closing(&self) -> usize {
        self.inner.closing()
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        self.flush();
        let TlsDialer { inner, sessions, .. } = self;
        // What failed before is reported at once.
        let wait = if sessions.failed.is_empty() { wait } else { Wait::No };
        inner.poll(wait, &mut |event| sessions.on_event(event, on_event))?;
        for index in std::mem::take(&mut sessions.failed) {
            let Some(mut session) = sessions.list[index as usize].take() else { continue };
            let id = ConnId(index);
            if session.tls.wants_write() && !inner.is_writing(id) {
                // The alert that says why.
                inner.write(id, |buffer| write(&mut session.tls, buffer));
            }
            inner.close(id);
            on_event(Event::Failed(id, Failure::Handshake));
        }
        Ok(())
    }
}
