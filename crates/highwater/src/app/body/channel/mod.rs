//! A bounded queue of bytes between one writer and one reader: the body of a request on its way from
//! the worker to a handler, or of a response from an application's task to the worker.
//!
//! Invariants: whoever may have to wait is woken exactly when that can end: the writer when room
//! appears, when the reader first asks and when it goes; the reader when bytes, the end or a failure
//! arrive. A body whose writer vanished without ending it has failed, so that what was cut off is
//! never taken for complete. The capacity bounds what is queued when a writer asks first; a piece
//! pushed with room left may exceed it.
//!
//! What is queued costs about as much memory as it counts, however small the pieces are: bytes that come
//! from a connection are copied behind those that nobody has taken yet, and a piece that an application
//! made counts as [`PIECE_COST`] more than it is long.

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

/// Copied bytes are gathered into pieces of so many at most: large enough that what a piece costs besides
/// does not matter, small enough that a piece beyond a bound does not, either.
const GATHERED_MAX: usize = 16 * 1024;

/// What a piece costs besides its bytes: a place in the queue, what is shared about it, and what the
/// allocator adds. A guess on the safe side.
const PIECE_COST: usize = 96;

/// Makes the two ends of a request's body. `writer` is woken when the reader asks for the first time,
/// when room appears, and when the reader has gone.
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
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    /// Behind `pieces`: bytes that were copied, and that others may join.
    gathered: BytesMut,
    /// What all of it counts against the capacity.
    buffered: usize,
    /// What follows the last piece. Boxed, because it is rare.
    trailers: Option<Box<HeaderMap>>,
    end: Option<Result<(), BodyError>>,
    /// The reader has asked at least once.
    wanted: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    fn new(capacity: usize, writer: Option<Waker>) -> Arc<Self> {
        Arc::new(Queue { capacity, state: Mutex::new(State { writer, ..State::default() }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock but wakers; the state is whole whatever they do.
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
        for piece in bytes.chunks(GATHERED_MAX) {
            if state.gathered.len() + piece.len() > GATHERED_MAX {
                state.seal();
            }
            state.buffered += piece.len();
            state.gathered.extend_from_slice(piece);
        }
        wake(&state.reader);
    }

    /// Keeps what follows the last piece; the end comes right behind.
    fn trailers(&self, trailers: HeaderMap) {
        let mut state = self.lock();
        if !state.reader_gone && state.end.is_none() {
            state.trailers = Some(Box::new(trailers));
        }
    }

    /// What follows the last piece, once that has been read.
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
            let was_full = state.buffered >= self.capacity;
            state.buffered -= cost;
            if was_full && state.buffered < self.capacity {
                wake(&state.writer);
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(failure)) => {
                // Told once; after it the stream is over, as streams do.
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
        if state.buffered < self.capacity {
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
        if state.end.is_none() {
            wake(&state.writer);
        }
    }
}

impl State {
    /// Makes a piece of what was gathered, which no further bytes join.
    fn seal(&mut self) {
        if !self.gathered.is_empty() {
            let piece = std::mem::take(&mut self.gathered).freeze();
            self.buffered += PIECE_COST;
            self.pieces.push_back(piece);
        }
    }

    /// The next piece, and what it counted.
    fn take(&mut self) -> Option<(Bytes, usize)> {
        if let Some(piece) = self.pieces.pop_front() {
            let cost = piece.len() + PIECE_COST;
            return Some((piece, cost));
        }
        let piece = std::mem::take(&mut self.gathered).freeze();
        let cost = piece.len();
        (cost > 0).then_some((piece, cost))
    }
}

fn wake(waker: &Option<Waker>) {
    if let Some(waker) = waker {
        // It may be of the application's making, and the worker must survive what that does.
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
    /// Appends a copy of `bytes`. Nothing should be pushed without [`BodyFeed::has_room`].
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.0.push_copy(bytes);
    }

    /// Whether nothing waits for the reader: it keeps up.
    pub(crate) fn is_drained(&self) -> bool {
        self.0.lock().buffered == 0
    }

    /// These fields follow what was pushed; then the body is complete.
    #[cold]
    pub(crate) fn trailers(&self, fields: Fields<'_>) {
        let mut trailers = HeaderMap::with_capacity(fields.len());
        for (name, value) in fields.iter() {
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            // What the `http` crate cannot represent (a name of 64 KiB) is left out, as other fields are.
            if let Some((name, value)) = name.zip(HeaderValue::from_bytes(value).ok()) {
                let _ = trailers.try_append(name, value);
            }
        }
        self.0.trailers(trailers);
    }

    /// The body is complete.
    pub(crate) fn finish(self) {
        self.0.end(Ok(()));
    }

    /// The body will not be completed.
    pub(crate) fn fail(self, failure: BodyError) {
        self.0.end(Err(failure));
    }

    /// Whether the next piece should be pushed, or rather left to TCP's back-pressure.
    pub(crate) fn has_room(&self) -> bool {
        self.0.lock().buffered < self.0.capacity
    }

    /// Whether the reader has asked for any of it: time to say `100 Continue`.
    pub(crate) fn wanted(&self) -> bool {
        self.0.lock().wanted
    }

    /// Whether nobody will read any more of it.
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
/// Bounded by what is queued: a sender waits while that is 64 KiB or more. A single piece may be larger.
/// It is not copied, neither here nor by the connection if it has 64 KiB or more, and no other is asked for
/// before the client has taken it. So a handler that makes pieces of 4 MiB pays for the one in flight and
/// for one that is queued; one that sends pieces it shares with others pays for none.
///
/// What is dropped without [`BodySender::finish`] counts as cut off: the connection is closed so that
/// the peer can tell. A response is never truncated in silence.
#[derive(Debug)]
pub struct BodySender(Arc<Queue>);

impl BodySender {
    /// Waits until there is room, then queues `piece`.
    ///
    /// # Errors
    /// The peer has gone, or nobody will read any more for another reason.
    pub async fn send(&mut self, piece: impl Into<Bytes>) -> Result<(), Closed> {
        poll_fn(|context| self.0.poll_room(context)).await?;
        self.0.push(piece.into());
        Ok(())
    }

    /// Whether [`BodySender::try_send`] would find room; if not, the task is woken when it would.
    ///
    /// # Errors
    /// As [`BodySender::send`].
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        self.0.poll_room(context)
    }

    /// These fields follow what was sent, for a reader that asks for them; then the content is complete.
    #[cfg(feature = "tower")]
    pub(crate) fn trailers(&self, trailers: HeaderMap) {
        self.0.trailers(trailers);
    }

    /// As [`BodySender::finish`], for who does not own it.
    pub(super) fn end(&mut self) {
        self.0.end(Ok(()));
    }

    /// Queues `piece` if there is room; gives it back if not, or if nobody reads any more.
    ///
    /// # Errors
    /// There was no room for `piece`, or [`BodySender::is_closed`].
    pub fn try_send(&mut self, piece: impl Into<Bytes>) -> Result<(), Bytes> {
        let piece = piece.into();
        {
            let state = self.0.lock();
            if state.reader_gone || state.buffered >= self.0.capacity {
                return Err(piece);
            }
        }
        self.0.push(piece);
        Ok(())
    }

    /// Whether nobody will read any more.
    pub fn is_closed(&self) -> bool {
        self.0.lock().reader_gone
    }

    /// Waits until nobody will read any more: the peer has gone.
    pub async fn closed(&mut self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.reader_gone {
                return Poll::Ready(());
            }
            remember(&mut state.writer, context);
            Poll::Pending
        })
        .await;
    }

    /// The content is complete.
    pub fn finish(self) {
        self.0.end(Ok(()));
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.0.end(Err(BodyError::DISCONNECTED));
    }
}

/// Nobody reads any more what was to be sent: most often the peer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads any more")
    }
}

impl StdError for Closed {}

/// The body of a request as it comes: an extractor, and a [`Stream`] of pieces.
///
/// Nothing is read from the connection that is not asked for here, beyond a bounded buffer: a slow
/// handler slows its peer down. How the peer cut its content into pieces says nothing: small ones that
/// wait are joined. A peer that waits for `100 Continue` gets it when the handler first
/// asks. Dropping the stream is fine; what was not read is dropped as well.
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
    /// All of it was there from the beginning; nothing is left once it is taken.
    Whole(Option<Bytes>),
    Queue(Arc<Queue>),
}

impl BodyStream {
    /// A body that is there already.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        BodyStream(Source::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// The next piece, which is not empty; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The trailer fields that followed the content, once [`next`](BodyStream::next) has returned `None`; a
    /// second call returns none. Empty for a body without trailers, and for one that failed.
    ///
    /// They are what the client says after its content: a checksum, a signature. They are bounded as header
    /// fields are (`--header-max`, 100 fields) and never mixed with them. Fields that decide about a request
    /// before its content is read are left out: those for framing, routing, conditions and credentials, and
    /// those that say how the content is to be read, such as `Content-Length`, `Host`, `Authorization`, `Cookie`
    /// and `Content-Type` (RFC 9110 §6.5.1). A body that is taken whole (`Bytes`, `Json`,
    /// [`collect`](BodyStream::collect)) has its trailers checked and dropped.
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

    /// All that is left, if it is at most `max` bytes.
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
            return Err(BodyError::from(Reject::BodyTooLarge));
        }
        Ok(whole.freeze())
    }

    /// Puts the rest of a piece back in front of what is left.
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

/// A body that was not completed. Turned into an [`Error`](crate::app::Error), it has the status the peer
/// deserves: 413 if it was too large, 408 if it stalled, else 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError(Option<Reject>);

impl BodyError {
    /// Whoever was to write it has gone.
    pub(crate) const DISCONNECTED: BodyError = BodyError(None);

    /// How the protocol engine refused it; `None` if the peer has gone.
    pub(crate) fn reject(self) -> Option<Reject> {
        self.0
    }
}

impl From<Reject> for BodyError {
    fn from(reject: Reject) -> Self {
        BodyError(Some(reject))
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(reject) => f.write_str(reject.reason()),
            None => f.write_str("the body ended before it was complete"),
        }
    }
}

impl StdError for BodyError {}

#[cfg(test)]
mod tests;
