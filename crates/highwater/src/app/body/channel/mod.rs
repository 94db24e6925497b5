//! A bounded queue of bytes between one writer and one reader: the body of a request on its way from
//! the worker to a handler, or of a response from an application's task to the worker.
//!
//! Invariants: each side is woken exactly when its wait can end: the writer when room appears, when the reader
//! first asks and when the reader is dropped; the reader when bytes, the end or a failure arrive. A body whose
//! writer is dropped before it ends the body has failed, so truncated content is never taken for complete. The
//! capacity is checked before a push: a piece pushed while there is room may exceed it.
//!
//! Queued bytes count for about the memory they occupy, however small the pieces are: bytes from a connection
//! are appended to those not yet read, and a piece made by the application counts [`PIECE_COST`] more than its
//! length.

mod raw;

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use highwater_core::http::{Fields, Reject};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::app::guard::guarded;

pub(crate) use raw::keep as keep_buffer;

/// The size up to which copied bytes are gathered into one piece: large enough that the overhead per piece does
/// not matter, small enough that exceeding a bound by one piece does not matter either.
const GATHERED_MAX: usize = 16 * 1024;

/// The cost of a piece besides its bytes: its place in the queue, its shared state, and the allocator's
/// overhead. A guess on the safe side.
const PIECE_COST: usize = 96;

/// Makes the two ends of a request's body. `writer` is woken when the reader asks for the first time, when room
/// appears, and when the reader is dropped.
pub(crate) fn channel(capacity: usize, writer: Waker) -> (BodyFeed, BodyStream) {
    let queue = Queue::new(capacity, Some(writer));
    (BodyFeed(queue.clone()), BodyStream(Source::Queue(queue)))
}

/// Makes the two ends of a response's body.
pub(crate) fn sender(capacity: usize) -> (BodySender, BodyStream) {
    let queue = Queue::new(capacity, None);
    (BodySender(queue.clone()), BodyStream(Source::Queue(queue)))
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// From how many buffered bytes on the writer waits.
    capacity: usize,
    pieces: VecDeque<Bytes>,
    /// Copied bytes that follow `pieces`; further bytes may be appended.
    gathered: BytesMut,
    /// The total that counts against the capacity.
    buffered: usize,
    /// The trailer fields after the last piece. Boxed because they are rare.
    trailers: Option<Box<HeaderMap>>,
    end: Option<Result<(), BodyError>>,
    /// The reader has asked at least once.
    wanted: bool,
    reader_gone: bool,
    /// The writer waits until it is, also behind the end.
    awaits_reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    fn new(capacity: usize, writer: Option<Waker>) -> Arc<Self> {
        Arc::new(Queue { state: Mutex::new(State { capacity, writer, ..State::default() }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Only wakers run foreign code under the lock; the state is consistent whatever they do.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, piece: Bytes) {
        let mut state = self.lock();
        if piece.is_empty() || state.reader_gone || state.end.is_some() {
            return;
        }
        state.seal();
        state.buffered += piece.len() + PIECE_COST;
        state.pieces.push_back(piece);
        wake(&state.reader);
    }

    /// Queues a copy of `bytes`.
    fn push_copy(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if bytes.is_empty() || state.reader_gone || state.end.is_some() {
            return;
        }
        state.gather(bytes);
        wake(&state.reader);
    }

    /// Stores the trailer fields; the caller ends the body next.
    fn trailers(&self, trailers: HeaderMap) {
        let mut state = self.lock();
        if !state.reader_gone && state.end.is_none() {
            state.trailers = Some(Box::new(trailers));
        }
    }

    /// The trailer fields, once the last piece has been read.
    fn take_trailers(&self) -> HeaderMap {
        let mut state = self.lock();
        let is_over = state.pieces.is_empty() && state.gathered.is_empty();
        let trailers = if is_over { state.trailers.take() } else { None };
        trailers.map_or_else(HeaderMap::new, |trailers| *trailers)
    }

    fn end(&self, end: Result<(), BodyError>) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.end = Some(end);
            wake(&state.reader);
        }
    }

    fn poll_read(&self, context: &Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            wake(&state.writer);
        }
        if let Some((piece, cost)) = state.take() {
            let was_full = state.is_full();
            state.buffered -= cost;
            if was_full && !state.is_full() {
                wake(&state.writer);
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(failure)) => {
                // Reported once; after that the stream has ended, as streams do.
                state.end = Some(Ok(()));
                Poll::Ready(Some(Err(failure)))
            }
            None => {
                remember(&mut state.reader, context);
                Poll::Pending
            }
        }
    }

    fn unread(&self, rest: Bytes) {
        let mut state = self.lock();
        state.buffered += rest.len() + PIECE_COST;
        state.pieces.push_front(rest);
    }

    fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        let mut state = self.lock();
        if state.reader_gone || state.end.is_some() {
            return Poll::Ready(Err(Closed));
        }
        if !state.is_full() {
            return Poll::Ready(Ok(()));
        }
        remember(&mut state.writer, context);
        Poll::Pending
    }

    fn abandon(&self) {
        let mut state = self.lock();
        state.reader_gone = true;
        state.pieces = VecDeque::new();
        state.gathered = BytesMut::new();
        state.trailers = None;
        state.buffered = 0;
        if state.end.is_none() || state.awaits_reader_gone {
            wake(&state.writer);
        }
    }
}

impl State {
    #[inline]
    fn is_full(&self) -> bool {
        self.buffered >= self.capacity
    }

    /// Appends a copy of `bytes`.
    fn gather(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(GATHERED_MAX) {
            if self.gathered.len() + piece.len() > GATHERED_MAX {
                self.seal();
            }
            self.make_room(piece.len());
            self.buffered += piece.len();
            self.gathered.extend_from_slice(piece);
        }
    }

    /// Takes a buffer to gather `len` bytes in, if there is none.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if self.gathered.capacity() == 0 {
            self.take_buffer(len);
        }
    }

    #[inline(never)]
    fn take_buffer(&mut self, len: usize) {
        self.gathered = raw::spare(len.min(GATHERED_MAX));
    }

    /// Turns the gathered bytes into a piece, which no further bytes join.
    fn seal(&mut self) {
        if !self.gathered.is_empty() {
            let piece = std::mem::take(&mut self.gathered).freeze();
            self.buffered += PIECE_COST;
            self.pieces.push_back(piece);
        }
    }

    /// The next piece, and how much it counted.
    fn take(&mut self) -> Option<(Bytes, usize)> {
        if let Some(piece) = self.pieces.pop_front() {
            let cost = piece.len() + PIECE_COST;
            return Some((piece, cost));
        }
        let cost = self.gathered.len();
        (cost > 0).then(|| (raw::frozen(&mut self.gathered), cost))
    }
}

fn wake(waker: &Option<Waker>) {
    if let Some(waker) = waker {
        // The waker may be the application's, and the worker must survive whatever it does.
        let _ = guarded(|| waker.wake_by_ref());
    }
}

fn remember(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

/// The worker's end of a request's body. Dropping it before the end fails the body.
#[derive(Debug)]
pub(crate) struct BodyFeed(Arc<Queue>);

impl BodyFeed {
    /// Appends a copy of `bytes`. Nothing should be pushed without [`BodyFeed::room`].
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.0.push_copy(bytes);
    }

    /// Whether nothing is queued: the reader keeps up.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.lock().buffered == 0
    }

    /// Completes the body with these trailer fields.
    #[cold]
    pub(crate) fn trailers(&self, fields: Fields<'_>) {
        let mut trailers = HeaderMap::with_capacity(fields.len());
        for (name, value) in fields.iter() {
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            // Fields that the `http` crate cannot represent (a name of 64 KiB) are left out, as in a head.
            if let Some((name, value)) = name.zip(HeaderValue::from_bytes(value).ok()) {
                let _ = trailers.try_append(name, value);
            }
        }
        self.0.trailers(trailers);
    }

    /// Completes the body.
    pub(crate) fn finish(self) {
        self.0.end(Ok(()));
    }

    /// Ends what comes on an upgraded connection. It is woken once more, when the reader is dropped.
    pub(crate) fn end(&self, end: Result<(), BodyError>) {
        self.0.lock().awaits_reader_gone = true;
        self.0.end(end);
    }

    /// Whether it is completed.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().end.is_some()
    }

    /// Fails the body: it will not be completed.
    pub(crate) fn fail(self, failure: BodyError) {
        self.0.end(Err(failure));
    }

    /// How many bytes more to push now. With none, the rest is left to TCP's back-pressure, or to the window of
    /// its stream.
    pub(crate) fn room(&self) -> usize {
        let state = self.0.lock();
        state.capacity.saturating_sub(state.buffered)
    }

    /// Whether the reader has asked for any of it: time to send `100 Continue`.
    pub(crate) fn wanted(&self) -> bool {
        self.0.lock().wanted
    }

    /// Whether the reader is gone: nothing more will be read.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.lock().reader_gone
    }
}

impl Drop for BodyFeed {
    fn drop(&mut self) {
        self.0.end(Err(BodyError::DISCONNECTED));
    }
}

/// Sends the content of a response piece by piece; see [`Body::channel`](super::Body::channel).
///
/// The queue is bounded: a sender waits while it holds 64 KiB or more. A single piece may be larger. Pieces are
/// not copied here, and the connection does not copy those of 64 KiB or more: it asks for the next one only when
/// the client has taken such a piece. So a handler that makes pieces of 4 MiB uses memory for one in flight and
/// one in the queue; pieces that it shares with others cost nothing more.
///
/// If a sender is dropped without [`BodySender::finish`], the content counts as cut off: the connection is closed so that
/// the peer notices. A response is never truncated silently.
#[derive(Debug)]
pub struct BodySender(Arc<Queue>);

impl BodySender {
    /// Waits until there is room, then queues `piece`.
    ///
    /// # Errors
    /// The peer has disconnected, or the reader is gone for another reason.
    pub async fn send(&mut self, piece: impl Into<Bytes>) -> Result<(), Closed> {
        poll_fn(|context| self.0.poll_room(context)).await?;
        self.0.push(piece.into());
        Ok(())
    }

    /// Whether [`BodySender::try_send`] would find room; if not, the task is woken when it would.
    ///
    /// # Errors
    /// See [`BodySender::send`].
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        self.0.poll_room(context)
    }

    /// Completes the content with these trailer fields, for a reader that asks for them.
    #[cfg(feature = "tower")]
    pub(crate) fn trailers(&self, trailers: HeaderMap) {
        self.0.trailers(trailers);
    }

    /// Fails the content: it will not be completed.
    #[cfg(feature = "tower")]
    pub(crate) fn fail(self, failure: BodyError) {
        self.0.end(Err(failure));
    }

    /// Same as [`BodySender::finish`], by reference.
    pub(super) fn end(&mut self) {
        self.0.end(Ok(()));
    }

    /// Queues `piece` if there is room; returns it if there is none, or if the reader is gone.
    ///
    /// # Errors
    /// There was no room for `piece`, or [`BodySender::is_closed`].
    pub fn try_send(&mut self, piece: impl Into<Bytes>) -> Result<(), Bytes> {
        let piece = piece.into();
        {
            let state = self.0.lock();
            if state.reader_gone || state.is_full() {
                return Err(piece);
            }
        }
        self.0.push(piece);
        Ok(())
    }

    /// Whether the reader is gone: nothing more will be read.
    pub fn is_closed(&self) -> bool {
        self.0.lock().reader_gone
    }

    /// Waits until the reader is gone, most often because the peer has disconnected.
    pub async fn closed(&mut self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.reader_gone {
                return Poll::Ready(());
            }
            state.awaits_reader_gone = true;
            remember(&mut state.writer, context);
            Poll::Pending
        })
        .await;
    }

    /// Completes the content.
    pub fn finish(self) {
        self.0.end(Ok(()));
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.0.end(Err(BodyError::DISCONNECTED));
    }
}

/// The reader is gone, most often because the peer has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads any more")
    }
}

impl StdError for Closed {}

/// The body of a request as it arrives: an extractor, and a [`Stream`] of pieces.
///
/// Beyond a bounded buffer, the connection is read only as the handler asks for pieces: a slow handler slows its peer down.
/// The boundaries between pieces have no meaning: small waiting pieces are joined. A peer that waits for `100 Continue`
/// gets it when the handler first asks. The stream may be dropped at any time, and its unread content is dropped with it.
///
/// ```
/// use highwater::{BodyStream, Error};
///
/// async fn length(mut body: BodyStream) -> Result<String, Error> {
///     let mut length = 0;
///     while let Some(piece) = body.next().await {
///         length += piece?.len();
///     }
///     Ok(length.to_string())
/// }
/// ```
///
/// Behind the content there may be trailer fields: [`BodyStream::take_trailers`].
#[derive(Debug)]
pub struct BodyStream(Source);

#[derive(Debug)]
enum Source {
    /// Complete from the beginning; empty once it is taken.
    Whole(Option<Bytes>),
    Queue(Arc<Queue>),
}

impl BodyStream {
    /// No content.
    pub(crate) fn empty() -> Self {
        BodyStream(Source::Whole(None))
    }

    /// A body that is already complete.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        BodyStream(Source::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// How long it is, if it is complete from the beginning.
    #[cfg(feature = "tower")]
    pub(crate) fn known_length(&self) -> Option<u64> {
        match &self.0 {
            Source::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Source::Queue(_) => None,
        }
    }

    /// The next piece, which is not empty; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The trailer fields that followed the content, once [`next`](BodyStream::next) has returned `None`; a
    /// second call returns none. Empty for a body without trailers, and for one that failed.
    ///
    /// Trailers carry values that the client knows only after its content, such as a checksum or a signature. They are
    /// bounded like header fields (`--header-max`, 100 fields) and never mixed with them. Fields that matter before the
    /// content is read are left out: fields for framing, routing, conditions and credentials, and fields that describe the
    /// content, such as `Content-Length`, `Host`, `Authorization`, `Cookie` and `Content-Type` (RFC 9110 §6.5.1). A body
    /// that is taken whole (`Bytes`, `Json`, [`collect`](BodyStream::collect)) has its trailers checked and dropped.
    ///
    /// ```
    /// use highwater::{BodyStream, Error};
    ///
    /// async fn checked(mut body: BodyStream) -> Result<&'static str, Error> {
    ///     let mut sum = 0_u64;
    ///     while let Some(piece) = body.next().await {
    ///         sum += piece?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    ///     }
    ///     match body.take_trailers().get("x-sum") {
    ///         Some(said) if said.as_bytes() == sum.to_string().as_bytes() => Ok("it is right"),
    ///         _ => Err(Error::bad_request("the sum is wrong, or there is none")),
    ///     }
    /// }
    /// ```
    pub fn take_trailers(&mut self) -> HeaderMap {
        match &self.0 {
            Source::Whole(_) => HeaderMap::new(),
            Source::Queue(queue) => queue.take_trailers(),
        }
    }

    /// The rest of the body, if it has at most `max` bytes.
    ///
    /// # Errors
    /// [`BodyError`] if the body fails, or is longer.
    pub async fn collect(mut self, max: usize) -> Result<Bytes, BodyError> {
        let Some(first) = self.next().await.transpose()? else {
            return Ok(Bytes::new());
        };
        let mut whole = BytesMut::from(first);
        while let Some(piece) = self.next().await.transpose()? {
            whole.extend_from_slice(&piece);
            if whole.len() > max {
                break;
            }
        }
        if whole.len() > max {
            return Err(BodyError::too_large(max as u64));
        }
        Ok(whole.freeze())
    }

    /// Whether its writer has ended it: what is queued is all that is left.
    pub(super) fn has_end(&self) -> bool {
        match &self.0 {
            Source::Whole(_) => true,
            Source::Queue(queue) => queue.lock().end == Some(Ok(())),
        }
    }

    /// Puts the rest of a piece back in front of the remaining ones.
    pub(super) fn unread(&mut self, rest: Bytes) {
        match &mut self.0 {
            Source::Whole(bytes) => *bytes = Some(rest),
            Source::Queue(queue) => queue.unread(rest),
        }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match &mut self.0 {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Source::Queue(queue) => queue.poll_read(context),
        }
    }
}

impl Stream for BodyStream {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        if let Source::Queue(queue) = &self.0 {
            queue.abandon();
        }
    }
}

/// A body that was not completed. Converted into an [`Error`](crate::app::Error), it has the status for its
/// cause: 413 if it was too large, 408 if it stalled, 503 if there was no memory for what waited to be read, else 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError {
    reject: Option<Reject>,
    /// The bytes that it may have, if it has more.
    limit: Option<u64>,
}

impl BodyError {
    /// The writer was dropped.
    pub(crate) const DISCONNECTED: BodyError = BodyError { reject: None, limit: None };

    /// It has more than `limit` bytes.
    pub(crate) fn too_large(limit: u64) -> Self {
        BodyError { reject: Some(Reject::BodyTooLarge), limit: Some(limit) }
    }

    /// How the protocol engine refused it; `None` if the peer has gone.
    pub(crate) fn reject(self) -> Option<Reject> {
        self.reject
    }
}

impl From<Reject> for BodyError {
    fn from(reject: Reject) -> Self {
        BodyError { reject: Some(reject), limit: None }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reject) = self.reject else {
            return f.write_str("the body ended before it was complete");
        };
        match self.limit {
            Some(limit) => write!(f, "{}; at most {limit} bytes", reject.reason()),
            None => f.write_str(reject.reason()),
        }
    }
}

impl StdError for BodyError {}

#[cfg(test)]
mod tests;
