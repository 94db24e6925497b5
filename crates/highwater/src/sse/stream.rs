//! Events as bytes, the comments that keep their connection alive, and their end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{BUFFER_MAX, KEEP_ALIVE};
use crate::app::{BodyStream, BoxError, Content, Draining, Finish, GuardedFuture, WorkerContext};

/// The comment that keeps a silent connection alive.
const COMMENT: bytes::Bytes = bytes::Bytes::from_static(b":\n\n");

/// What a source of events yields.
type Piece = Result<bytes::Bytes, BoxError>;

/// How a stream learns of the drain: at a look, and by being woken.
struct Drain {
    draining: Draining,
    begun: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Drain {
    fn new(draining: Draining) -> Drain {
        let signal = draining.clone();
        Drain { draining, begun: Box::pin(async move { signal.begun().await }) }
    }
}

/// A stream of events as content.
pub(super) struct Bytes {
    source: Pin<Box<dyn Stream<Item = Piece> + Send>>,
    /// After which silence a comment is sent.
    silence: Duration,
    /// When something was sent last. The timer follows when it fires.
    sent_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    drain: Option<Drain>,
    /// How many bytes may still follow once the server drains: as much as may wait for a slow client. A source that always has a
    /// next event would not end otherwise.
    last_bytes: usize,
    has_ended: bool,
}

impl Bytes {
    pub(super) fn new(source: impl Stream<Item = Piece> + Send + 'static) -> Bytes {
        Bytes {
            source: Box::pin(source),
            silence: KEEP_ALIVE,
            sent_at: None,
            timer: None,
            drain: None,
            last_bytes: BUFFER_MAX,
            has_ended: false,
        }
    }

    pub(super) fn set_keep_alive(&mut self, silence: Duration) {
        self.silence = silence;
    }

    fn drain(&mut self) -> Option<&mut Drain> {
        if self.drain.is_none() {
            self.drain = WorkerContext::draining().map(Drain::new);
        }
        self.drain.as_mut()
    }

    fn is_drained(&mut self, context: &mut Context<'_>) -> bool {
        self.drain().is_some_and(|drain| drain.begun.as_mut().poll(context).is_ready())
    }

    /// Whether a piece of so many bytes is the last one, since the server drains.
    fn is_last(&mut self, bytes: usize) -> bool {
        if self.drain().is_some_and(|drain| drain.draining.has_begun()) {
            self.last_bytes = self.last_bytes.saturating_sub(bytes.max(1));
        }
        self.last_bytes == 0
    }

    /// Whether a comment is due.
    fn is_silent(&mut self, context: &mut Context<'_>) -> bool {
        let sent_at = *self.sent_at.get_or_insert_with(Instant::now);
        let Some(due) = sent_at.checked_add(self.silence) else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            timer.as_mut().reset(due);
        }
        false
    }

    fn note_sent(&mut self) {
        self.sent_at = Some(Instant::now());
    }
}

impl Stream for Bytes {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(next) = this.source.as_mut().poll_next(context) {
            this.has_ended = match &next {
                Some(Ok(piece)) => this.is_last(piece.len()),
                _ => true,
            };
            this.note_sent();
            return Poll::Ready(next);
        }
        if this.is_drained(context) {
            this.has_ended = true;
            return Poll::Ready(None);
        }
        if this.is_silent(context) {
            this.note_sent();
            this.timer = None;
            return Poll::Ready(Some(Ok(COMMENT)));
        }
        Poll::Pending
    }
}

impl Content for Bytes {
    fn ends_with(mut self: Pin<&mut Self>, draining: Draining) {
        self.drain = Some(Drain::new(draining));
    }
}

/// A stream whose items are converted.
pub(super) struct Converted<S, C>(pub(super) Pin<Box<S>>, pub(super) C);

impl<S, C> Stream for Converted<S, C>
where
    S: Stream,
    C: Fn(S::Item) -> Piece + Unpin,
{
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        let next = ready!(self.0.as_mut().poll_next(context));
        Poll::Ready(next.map(&self.1))
    }
}

/// What a task of this worker sends. The task ends with it.
pub(super) struct Running {
    stream: BodyStream,
    task: JoinHandle<Option<BoxError>>,
}

impl Running {
    pub(super) fn begin(
        source: impl Future<Output: Finish> + 'static,
        stream: BodyStream,
    ) -> Running {
        let source = GuardedFuture::new(source);
        let task = tokio::task::spawn_local(async move {
            match source.await {
                Ok(end) => end.failure(),
                Err(panic) => Some(panic.into()),
            }
        });
        Running { stream, task }
    }
}

impl Stream for Running {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if let Some(Ok(piece)) = ready!(Pin::new(&mut self.stream).poll_next(context)) {
            return Poll::Ready(Some(Ok(piece)));
        }
        // Nothing is sent any more; the task says why.
        let failure = match ready!(Pin::new(&mut self.task).poll(context)) {
            Ok(failure) => failure,
            Err(error) => Some(error.into()),
        };
        Poll::Ready(failure.map(Err))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
