//! A WebSocket, from the client's side.

use std::borrow::Cow;
use std::fmt;

use highwater_core::http1::client::{Asked, Next, Reader};
#[cfg(feature = "websocket-deflate")]
use highwater_core::websocket::extensions::read_deflate_answer;
use highwater_core::websocket::{CloseCode, Decoder, Event, Limits, Role, accept, encode};

use super::http2::Stream;
use super::server::Waited;
use super::{Client, Connection};
#[cfg(feature = "websocket-deflate")]
use crate::websocket::deflate::{Deflater, Inflater};
use crate::websocket::{CloseFrame, Message};

/// The fields that ask for a WebSocket. The key is that of the RFC's example: a proof that the server speaks WebSocket, not
/// a secret.
pub(super) const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The one of them that there is over HTTP/2.
pub(super) const VERSION: (&str, &str) = HANDSHAKE[2];

/// The fields of the answer that say what was agreed on.
const ANSWERED: [&str; 2] = ["sec-websocket-protocol", "sec-websocket-extensions"];

/// How hard messages are compressed: as a browser does.
#[cfg(feature = "websocket-deflate")]
const LEVEL: u32 = 6;

/// A client masks what it sends, with a key that no intermediary can foresee; here there is no intermediary.
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A client's side of a WebSocket. Dropping it resets the connection, or the stream over HTTP/2.
///
/// Pings are answered when the test reads ([`recv`](WebSocket::recv), [`recv_any`](WebSocket::recv_any), [`try_recv_any`](WebSocket::try_recv_any)).
/// If the test does not read while more than half a minute passes, the server gives the client up, like any silent client.
pub struct WebSocket<'c> {
    wire: Wire<'c>,
    decoder: Decoder,
    /// How many of the received bytes are decoded.
    read: usize,
    protocol: Option<String>,
    answers_pings: bool,
    #[cfg(feature = "websocket-deflate")]
    deflater: Option<Deflater>,
    #[cfg(feature = "websocket-deflate")]
    was_compressed: bool,
}

/// What the server has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// A ping with this payload. It is answered, unless the client [ignores](WebSocket::ignore_pings) it.
    Ping(Vec<u8>),
    /// A pong with this payload.
    Pong(Vec<u8>),
    /// The close frame, after which nothing comes; `None` without a code.
    Close(Option<CloseFrame>),
}

/// What frames are sent on.
#[derive(Debug)]
enum Wire<'c> {
    Connection(Connection<'c>),
    Stream(Stream<'c>),
}

/// Calls what both have.
macro_rules! wire {
    ($wire:expr, $name:ident $arguments:tt) => {
        match $wire {
            Wire::Connection(connection) => connection.$name $arguments,
            Wire::Stream(stream) => stream.$name $arguments,
        }
    };
}

impl<'c> WebSocket<'c> {
    #[track_caller]
    pub(super) fn open(client: &'c Client, request: &[u8]) -> Self {
        let mut connection = client.connect();
        connection.send(request);
        let (mut reader, mut read, mut waited) = (Reader::default(), 0, Waited::default());
        let (protocol, extensions) = loop {
            let mut input = &connection.received()[read..];
            let before = input.len();
            match reader.next(&mut input, Asked::Upgrade) {
                Ok(Next::Head(head)) => {
                    assert_eq!(head.status(), 101, "the answer to a WebSocket's handshake");
                    let fields = head.fields();
                    let accepted = accept(HANDSHAKE[3].1.as_bytes()).expect("it is a key");
                    let said = fields.get("sec-websocket-accept");
                    assert_eq!(said, Some(&accepted[..]), "Sec-WebSocket-Accept");
                    let said = |name| fields.get(name).map(String::from_utf8_lossy);
                    let [protocol, extensions] =
                        ANSWERED.map(|name| said(name).map(Cow::into_owned));
                    read += before - input.len();
                    break (protocol, extensions);
                }
                Ok(_) => {}
                Err(error) => panic!("the answer is not HTTP: {}", error.reason()),
            }
            read += before - input.len();
            assert!(!connection.is_over(), "closed without an answer to a WebSocket's handshake");
            connection.wait(&mut waited, "answer to a WebSocket's handshake");
        };
        WebSocket::new(Wire::Connection(connection), read, protocol, extensions.as_deref())
    }

    /// On a stream of HTTP/2, whose request has been sent.
    #[track_caller]
    pub(super) fn over(stream: Stream<'c>) -> Self {
        let mut waited = Waited::default();
        while stream.status() == 0 {
            if let Some(why) = stream.failure() {
                panic!("no answer to a WebSocket's handshake: {why}");
            }
            stream.wait(&mut waited, "answer to a WebSocket's handshake");
        }
        assert_eq!(stream.status(), 200, "the answer to a WebSocket's handshake");
        let [protocol, extensions] = ANSWERED.map(|name| stream.field(name));
        WebSocket::new(Wire::Stream(stream), 0, protocol, extensions.as_deref())
    }

    #[track_caller]
    fn new(
        wire: Wire<'c>,
        read: usize,
        protocol: Option<String>,
        extensions: Option<&str>,
    ) -> Self {
        let limits = Limits { message_max: usize::MAX, frame_max: usize::MAX };
        let decoder = Decoder::new(Role::Client, limits);
        #[cfg(feature = "websocket-deflate")]
        let (decoder, deflater) = match read_deflate_answer(extensions.map(str::as_bytes)) {
            Ok(Some(agreed)) => {
                let inflater = Box::new(Inflater::new(agreed.server.is_kept));
                let deflater = Deflater::new(LEVEL, 1, agreed.client);
                (decoder.with_inflate(inflater), Some(deflater))
            }
            Ok(None) => (decoder, None),
            Err(error) => panic!("the answer to a WebSocket's handshake: {error}: {extensions:?}"),
        };
        #[cfg(not(feature = "websocket-deflate"))]
        assert_eq!(extensions, None, "the answer accepts an extension");
        WebSocket {
            wire,
            decoder,
            read,
            protocol,
            answers_pings: true,
            #[cfg(feature = "websocket-deflate")]
            deflater,
            #[cfg(feature = "websocket-deflate")]
            was_compressed: false,
        }
    }

    /// Sends a message. It is compressed if that was agreed on, and makes it smaller.
    pub fn send(&mut self, message: impl Into<Message>) {
        let message = message.into();
        #[cfg(feature = "websocket-deflate")]
        if let Some(content) = self.compressed(&message) {
            return self.send_frame(|out| {
                encode::message(message.kind(), &content, Some(KEY), out);
                out[0] |= encode::COMPRESSED;
            });
        }
        self.send_frame(|out| encode::message(message.kind(), message.as_bytes(), Some(KEY), out));
    }

    #[cfg(feature = "websocket-deflate")]
    fn compressed(&self, message: &Message) -> Option<Vec<u8>> {
        let deflater = self.deflater.as_ref().filter(|it| it.compresses(message.len()))?;
        deflater.compress(message.as_bytes()).0
    }

    /// Sends a ping.
    ///
    /// # Panics
    /// If the payload is longer than 125 bytes.
    pub fn ping(&mut self, payload: &[u8]) {
        self.send_frame(|out| encode::ping(payload, Some(KEY), out));
    }

    /// Sends a close frame.
    ///
    /// # Panics
    /// If the code must not be sent.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.send_frame(|out| encode::close(Some(code), reason, Some(KEY), out));
    }

    /// Sends bytes as they are, frames or not.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        wire!(&mut self.wire, send(bytes));
    }

    /// Ends sending without a close frame; what the server sends is still read.
    pub fn finish(&mut self) {
        wire!(&mut self.wire, finish());
    }

    /// Leaves pings unanswered from now on, like a client that has lost its network.
    pub fn ignore_pings(&mut self) {
        self.answers_pings = false;
    }

    fn send_frame(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        wire!(&mut self.wire, send(&bytes));
    }

    /// The next message; time passes until it comes. `None` once the server has sent its close frame, or has ended the
    /// connection. Pings and pongs are skipped.
    ///
    /// # Panics
    /// If nothing is to be expected, or the server breaks a rule of the protocol.
    #[track_caller]
    pub fn recv(&mut self) -> Option<Message> {
        loop {
            match self.recv_any() {
                Some(Received::Message(message)) => return Some(message),
                Some(Received::Ping(_) | Received::Pong(_)) => {}
                Some(Received::Close(_)) | None => return None,
            }
        }
    }

    /// The next message or control frame; time passes until it comes. `None` once it has ended the connection.
    ///
    /// # Panics
    /// If nothing is to be expected, or the server breaks a rule of the protocol.
    #[track_caller]
    pub fn recv_any(&mut self) -> Option<Received> {
        let mut waited = Waited::default();
        loop {
            if let Some(frame) = self.try_recv_any() {
                return Some(frame);
            }
            if self.is_closed() {
                return None;
            }
            wire!(&mut self.wire, wait(&mut waited, "frame on a WebSocket"));
        }
    }

    /// The next message or control frame, if it has arrived already.
    ///
    /// # Panics
    /// If the server breaks a rule of the protocol.
    #[track_caller]
    pub fn try_recv_any(&mut self) -> Option<Received> {
        let received = wire!(&mut self.wire, received());
        let mut input = &received[self.read..];
        let next = match self.decoder.next(&mut input) {
            Ok(Some(Event::Message(kind, bytes))) => {
                let bytes = bytes::Bytes::copy_from_slice(bytes);
                #[cfg(feature = "websocket-deflate")]
                {
                    self.was_compressed = self.decoder.was_compressed();
                }
                Some(Received::Message(Message::received(kind, bytes)))
            }
            Ok(Some(Event::Ping(payload))) => Some(Received::Ping(payload.to_vec())),
            Ok(Some(Event::Pong(payload))) => Some(Received::Pong(payload.to_vec())),
            Ok(Some(Event::Close(close))) => Some(Received::Close(
                close.map(|close| CloseFrame { code: close.code, reason: close.reason.to_owned() }),
            )),
            Ok(None) => None,
            Err(error) => panic!("the server breaks a rule of WebSocket: {error}"),
        };
        self.read = received.len() - input.len();
        match &next {
            Some(Received::Ping(payload)) if self.answers_pings => {
                self.send_frame(|out| encode::pong(payload, Some(KEY), out));
            }
            _ => {}
        }
        next
    }

    /// The protocol that the server has chosen.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Whether the message that was received last came compressed.
    #[cfg(feature = "websocket-deflate")]
    #[cfg_attr(docsrs, doc(cfg(feature = "websocket-deflate")))]
    pub fn was_compressed(&self) -> bool {
        self.was_compressed
    }

    /// Whether the server has ended the connection, or the stream.
    #[track_caller]
    pub fn is_closed(&self) -> bool {
        wire!(&self.wire, is_over())
    }

    /// Whether the server has reset the connection, or the stream.
    #[track_caller]
    pub fn is_reset(&self) -> bool {
        wire!(&self.wire, is_reset())
    }
}

impl fmt::Debug for WebSocket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("wire", &self.wire).finish_non_exhaustive()
    }
}
