//! Streamed content, compressed while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use tokio::sync::OwnedSemaphorePermit;

use super::encoder::Encoder;
use crate::app::{BodyPieces, BoxError};

/// Output is sent from this size on, so that a piece is worth its frame.
const OUTPUT_BYTES: usize = 16 * 1024;

/// How much is compressed in one poll, about a millisecond's work; the worker serves others in between.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Content in a coding. Before it waits for more, it puts out all that has come.
pub(super) struct Compressed {
    pieces: BodyPieces,
    /// The part of a piece that was not compressed yet.
    rest: Bytes,
    encoder: Encoder,
    /// Something was written since the last flush.
    is_dirty: bool,
    /// That of its encoder.
    _place: OwnedSemaphorePermit,
}

impl Compressed {
    pub(super) fn new(pieces: BodyPieces, encoder: Encoder, place: OwnedSemaphorePermit) -> Self {
        Compressed { pieces, rest: Bytes::new(), encoder, is_dirty: false, _place: place }
    }

    /// What was put out.
    fn output(&mut self) -> Poll<Option<Result<Bytes, BoxError>>> {
        Poll::Ready(Some(Ok(std::mem::take(self.encoder.output()).into())))
    }

    fn advance(
        &mut self,
        context: &mut Context<'_>,
    ) -> Result<Poll<Option<Result<Bytes, BoxError>>>, BoxError> {
        if matches!(self.encoder, Encoder::Finished) {
            return Ok(Poll::Ready(None));
        }
        let mut compressed = 0;
        loop {
            if self.rest.is_empty() {
                match Pin::new(&mut self.pieces).poll_next(context) {
                    Poll::Ready(Some(piece)) => self.rest = piece?,
                    Poll::Ready(None) => {
                        let last = self.encoder.finish()?;
                        let is_end = last.is_empty();
                        return Ok(Poll::Ready((!is_end).then(|| Ok(last.into()))));
                    }
                    Poll::Pending => {
                        if std::mem::take(&mut self.is_dirty) {
                            self.encoder.flush()?;
                        }
                        return Ok(match self.encoder.output().is_empty() {
                            true => Poll::Pending,
                            false => self.output(),
                        });
                    }
                }
            }
            let size = self.rest.len().min(INPUT_BYTES_MAX - compressed);
            self.encoder.write(&self.rest[..size])?;
            self.rest.advance(size);
            self.is_dirty |= size > 0;
            compressed += size;
            if self.encoder.output().len() >= OUTPUT_BYTES {
                return Ok(self.output());
            }
            if compressed == INPUT_BYTES_MAX {
                context.waker().wake_by_ref();
                return Ok(Poll::Pending);
            }
        }
    }
}

impl Stream for Compressed {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let advanced = self.advance(context);
        advanced.unwrap_or_else(|error| {
            self.encoder = Encoder::Finished;
            Poll::Ready(Some(Err(error)))
        })
    }
}
