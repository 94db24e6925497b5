//! How many bytes may the parser get without a result?
//!
//! The parser takes all that its stream has into one buffer, and looks for the end of a part's head there: a head without an
//! end would grow with what the client sends. So it gets a small piece at a time, and no more than [`UNSEEN_MAX`] bytes
//! between two results.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;

use crate::app::body::{BodyStream, BoxError};

/// How many bytes at a time.
const PIECE_MAX: usize = 16 << 10;

/// How many bytes come without an end of a head, or of what is before the first boundary: as `--header-max`, with room for the
/// piece in which it ends.
const UNSEEN_MAX: usize = (16 << 10) + PIECE_MAX;

/// The content of a request, in pieces.
pub(super) struct Feed {
    body: BodyStream,
    rest: Bytes,
    unseen: Arc<AtomicUsize>,
    /// It has given a piece, and the parser should look at it before it asks again.
    gave: bool,
}

/// Learns that the parser got on.
pub(super) struct Watch(Arc<AtomicUsize>);

impl Watch {
    pub(super) fn progress(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Too much came without an end.
#[derive(Debug)]
pub(super) struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the head of a part, or what is before the first one, is too large")
    }
}

impl std::error::Error for Stalled {}

impl Feed {
    pub(super) fn new(body: BodyStream) -> (Self, Watch) {
        let unseen = Arc::new(AtomicUsize::new(0));
        let watch = Watch(Arc::clone(&unseen));
        (Feed { body, rest: Bytes::new(), unseen, gave: false }, watch)
    }
}

impl Stream for Feed {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.gave) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_next(context) {
                Poll::Ready(Some(Ok(bytes))) => self.rest = bytes,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let length = self.rest.len().min(PIECE_MAX);
        let piece = self.rest.split_to(length);
        if self.unseen.fetch_add(length, Ordering::Relaxed) + length > UNSEEN_MAX {
            return Poll::Ready(Some(Err(Stalled.into())));
        }
        self.gave = true;
        Poll::Ready(Some(Ok(piece)))
    }
}
