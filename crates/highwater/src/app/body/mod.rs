//! The content of responses ([`Body`]), and of requests and responses that come in pieces
//! (`channel.rs`).
//!
//! A body declares its kind so that the worker can send it in the cheapest way: static bytes are
//! borrowed, JSON is serialized into reused buffers, shared bytes are not copied, and a stream is
//! polled for its next piece only when the connection has room for it.

mod channel;
mod pool;
mod upgraded;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;

use crate::body_memory::BodyMemory;
use crate::metrics::Sockets;

use super::draining::Draining;
use super::guard::{Guarded, GuardedFuture, drop_guarded, guarded};
pub use channel::{BodyError, BodySender, BodyStream, Closed};
pub(crate) use channel::{BodyFeed, channel, keep_buffer, sender};
pub(crate) use pool::Pooled;
#[cfg(feature = "tower")]
pub(crate) use upgraded::poll_piece;

/// How many bytes [`Body::channel`] holds before its sender has to wait: as much as a connection
/// encodes ahead (`Limits::output_max`), so that neither is the bottleneck.
const CHANNEL_CAPACITY: usize = 64 * 1024;

/// Any error that can cross threads.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The content of a response.
#[derive(Debug, Default)]
pub struct Body(Repr);

/// A body in the form in which the worker sends it.
#[derive(Default)]
pub(crate) enum Repr {
    #[default]
    Empty,
    /// Static bytes of the program.
    Static(&'static [u8]),
    Owned(Vec<u8>),
    /// In a buffer that returns to its thread's pool when dropped.
    Pooled(Pooled),
    Shared(Bytes),
    /// Pieces, and their total length if that is known.
    Stream(ByteStream, Option<u64>),
    /// No content: the connection is handed over.
    Upgrade(OnUpgrade),
}

/// Streamed content, and what follows it.
pub(crate) trait Content: Stream<Item = Result<Bytes, BoxError>> + Send {
    /// The trailer fields, once the stream has ended. They are sent where the content is chunked.
    fn take_trailers(self: Pin<&mut Self>) -> HeaderMap {
        HeaderMap::new()
    }

    /// Content without an end of its own ends when the server drains.
    fn ends_with(self: Pin<&mut Self>, _draining: Draining) {}

    /// Whether all of it is here, although it is not read yet.
    fn has_end(&self) -> bool {
        false
    }
}

/// Content in pieces, from any source the application has.
pub(crate) struct ByteStream(Guarded<Pin<Box<dyn Content>>>);

/// Streamed content failed: by an error of its own, or a panic. It must not be polled again.
#[derive(Debug)]
pub(crate) struct StreamFailed;

/// The protocol of a connection once the 101 is sent. The future stays on the connection's worker.
pub(crate) struct OnUpgrade(Guarded<Box<DynUpgrade>>);

type DynUpgrade = dyn FnOnce(Upgraded, Accounts) -> Pin<Box<dyn Future<Output = ()>>> + Send;

/// Where WebSockets are counted, and the memory that their messages take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    /// Those of the worker.
    pub(crate) sockets: Arc<Sockets>,
    /// That of the server.
    pub(crate) memory: BodyMemory,
}

impl ByteStream {
    fn new<S, B, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<BoxError>,
    {
        ByteStream::of(Pieces(Box::pin(stream)))
    }

    fn of(content: impl Content + 'static) -> Self {
        ByteStream(Guarded::new(Box::pin(content)))
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Guarded<Bytes>, StreamFailed>>> {
        match guarded(|| self.0.as_mut().poll_next(context)) {
            Ok(Poll::Ready(Some(Err(error)))) => {
                drop_guarded(error);
                Poll::Ready(Some(Err(StreamFailed)))
            }
            Ok(polled) => polled
                .map(|next| next.map(|piece| piece.map(Guarded::new).map_err(|_| StreamFailed))),
            Err(_) => Poll::Ready(Some(Err(StreamFailed))),
        }
    }

    /// The trailer fields, once there is no next piece.
    pub(crate) fn take_trailers(&mut self) -> Result<Guarded<HeaderMap>, StreamFailed> {
        guarded(|| self.0.as_mut().take_trailers()).map(Guarded::new).map_err(|_| StreamFailed)
    }

    /// Whether all of it is here, although it is not sent yet.
    pub(crate) fn has_end(&self) -> bool {
        self.0.has_end()
    }

    /// The content for the application's own code (layers): errors are passed on unchanged, and a
    /// panic ends where that code is polled. Dropping it stays guarded.
    pub(crate) fn content(&mut self) -> Pin<&mut dyn Content> {
        self.0.as_mut()
    }
}

impl OnUpgrade {
    pub(super) fn new<F, Fut>(on_upgrade: F) -> Self
    where
        F: FnOnce(Upgraded, Accounts) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        OnUpgrade(Guarded::new(Box::new(move |upgraded, accounts| {
            Box::pin(on_upgrade(upgraded, accounts))
        })))
    }

    /// The future that uses `upgraded`; `None` if making it panicked.
    pub(crate) fn call(self, upgraded: Upgraded, accounts: Accounts) -> Option<GuardedFuture<()>> {
        let on_upgrade = self.0.into_inner();
        guarded(|| on_upgrade(upgraded, accounts)).ok().map(GuardedFuture::of)
    }
}

/// An upgraded connection, which no longer speaks HTTP: two streams of pieces, or, taken whole, a
/// [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`].
///
/// Each side ends by itself, as those of a socket do:
///
/// - After [`BodySender::finish`] or [`shutdown`](tokio::io::AsyncWriteExt::shutdown), the peer gets all that was written
///   before, and then the end: FIN, behind `close_notify` over TLS; END_STREAM on a stream of HTTP/2. What the peer still
///   sends can be read.
/// - When the peer has ended its side, `incoming` ends behind all that came before, and what is written is sent. Over TLS it
///   fails instead if there was no `close_notify`, and on a stream of HTTP/2 without END_STREAM: anybody on the way could
///   have cut the rest off. [`AsyncRead`](tokio::io::AsyncRead) then fails with `UnexpectedEof`.
///
/// The connection ends when both sides have ended and `incoming` is dropped. If `incoming` is dropped before the peer's
/// end, what the peer still sends is discarded, and the connection ends with the application's own side, or with the
/// peer's.
///
/// While only one side has ended, or `incoming` is still held after both ends, something has to be sent or received within
/// `--half-closed-timeout` (5 s), or the connection, or the stream, is reset. That time does not run while a peer that
/// could send waits for `incoming` to be read.
#[derive(Debug)]
pub struct Upgraded {
    /// The bytes from the peer, beginning with the first one after its request.
    pub incoming: BodyStream,
    /// The bytes to the peer. [`BodySender::finish`] ends the sending side; dropping it resets the
    /// connection.
    pub outgoing: BodySender,
}

impl Body {
    /// No content.
    pub const fn empty() -> Self {
        Body(Repr::Empty)
    }

    /// Content that comes in pieces, of unknown length: sent in chunks or, to a peer that speaks HTTP/1.0, until the
    /// connection closes. Once the head is sent, an error can only be signalled by cutting off the connection.
    pub fn stream<S, B, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<BoxError>,
    {
        Body(Repr::Stream(ByteStream::new(stream), None))
    }

    /// Like [`Body::stream`], for content of `length` bytes in all. If the stream ends earlier or
    /// yields more, the connection is cut off.
    pub fn stream_of_length<S, B, E>(length: u64, stream: S) -> Self
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<BoxError>,
    {
        Body(Repr::Stream(ByteStream::new(stream), Some(length)))
    }

    /// Content pushed piece by piece from elsewhere: a task, or another thread. The sender waits while 64 KiB are buffered.
    /// For the cost of large pieces, see [`BodySender`].
    ///
    /// ```
    /// use highwater::{Body, BodySender, Response};
    ///
    /// async fn count() -> Response {
    ///     let (sender, body) = Body::channel();
    ///     tokio::task::spawn_local(send_numbers(sender));
    ///     Response::from(body)
    /// }
    ///
    /// async fn send_numbers(mut sender: BodySender) {
    ///     for number in 0..1_000_000 {
    ///         if sender.send(format!("{number}\n")).await.is_err() {
    ///             return; // The peer has gone.
    ///         }
    ///     }
    ///     sender.finish();
    /// }
    /// ```
    pub fn channel() -> (BodySender, Body) {
        let (sender, stream) = channel::sender(CHANNEL_CAPACITY);
        (sender, Body::from_content(Channelled(stream), None))
    }

    /// The content in one piece, unless it is a stream or an upgrade.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Empty => Some(&[]),
            Repr::Static(bytes) => Some(bytes),
            Repr::Owned(bytes) => Some(bytes),
            Repr::Pooled(bytes) => Some(bytes),
            Repr::Shared(bytes) => Some(bytes),
            Repr::Stream(..) | Repr::Upgrade(_) => None,
        }
    }

    /// Its length in bytes, if it is known.
    pub fn len(&self) -> Option<u64> {
        match &self.0 {
            Repr::Stream(_, length) => *length,
            Repr::Upgrade(_) => None,
            _ => self.as_bytes().map(|bytes| bytes.len() as u64),
        }
    }

    /// Whether it is known to have no content.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    pub(crate) const fn from_static(bytes: &'static [u8]) -> Self {
        Body(Repr::Static(bytes))
    }

    #[cfg_attr(not(feature = "json"), allow(dead_code, reason = "JSON is what is pooled"))]
    pub(crate) fn from_pooled(bytes: Pooled) -> Self {
        Body(Repr::Pooled(bytes))
    }

    /// Streamed content that may have trailers, and its total length if that is known.
    pub(crate) fn from_content(content: impl Content + 'static, length: Option<u64>) -> Self {
        Body(Repr::Stream(ByteStream::of(content), length))
    }

    pub(crate) fn from_upgrade(on_upgrade: OnUpgrade) -> Self {
        Body(Repr::Upgrade(on_upgrade))
    }

    /// Sets the length of a stream whose length is not known yet.
    pub(super) fn set_length(&mut self, known: u64) {
        if let Repr::Stream(_, length @ None) = &mut self.0 {
            *length = Some(known);
        }
    }

    #[inline]
    pub(super) const fn is_upgrade(&self) -> bool {
        matches!(self.0, Repr::Upgrade(_))
    }

    /// How it is to be sent.
    #[inline]
    pub(crate) fn repr(&self) -> &Repr {
        &self.0
    }

    /// How to send it.
    pub(crate) fn into_repr(self) -> Repr {
        self.0
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Body::from_static(text.as_bytes())
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Body::from_static(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body(Repr::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body(Repr::Owned(bytes))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body(Repr::Shared(bytes))
    }
}

impl fmt::Debug for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repr::Empty => f.write_str("Empty"),
            Repr::Static(bytes) => write!(f, "Static({})", bytes.escape_ascii()),
            Repr::Owned(bytes) => write!(f, "Owned({})", bytes.escape_ascii()),
            Repr::Pooled(bytes) => write!(f, "Pooled({})", bytes.escape_ascii()),
            Repr::Shared(bytes) => write!(f, "Shared({})", bytes.escape_ascii()),
            Repr::Stream(_, Some(length)) => write!(f, "Stream({length})"),
            Repr::Stream(_, None) => f.write_str("Stream"),
            Repr::Upgrade(_) => f.write_str("Upgrade"),
        }
    }
}

/// What a [`BodySender`] sends.
struct Channelled(BodyStream);

impl Stream for Channelled {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|next| next.map(|piece| piece.map_err(Into::into)))
    }
}

impl Content for Channelled {
    fn has_end(&self) -> bool {
        self.0.has_end()
    }
}

/// A stream whose pieces and errors are converted.
struct Pieces<S>(Pin<Box<S>>);

impl<S, B, E> Stream for Pieces<S>
where
    S: Stream<Item = Result<B, E>>,
    B: Into<Bytes>,
    E: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .as_mut()
            .poll_next(context)
            .map(|next| next.map(|piece| piece.map(Into::into).map_err(Into::into)))
    }
}

impl<S, B, E> Content for Pieces<S>
where
    S: Stream<Item = Result<B, E>> + Send,
    B: Into<Bytes>,
    E: Into<BoxError>,
{
}
