//! How do the bytes of an upgraded connection pass without an allocation for each piece?
//!
//! Buffers are reused: the queue takes a spare one of its thread when bytes come, and the reader gives it back. A buffer
//! whose bytes are still held elsewhere is not written to; once they are dropped, it is used again. So an idle connection
//! has none.

use std::cell::RefCell;
use std::mem::take;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use super::{
    BodyError, BodySender, BodyStream, GATHERED_MAX, PIECE_COST, Queue, Source, State, remember,
    wake,
};

/// How many spare buffers a thread keeps, each of at most about twice `GATHERED_MAX` bytes. Fewer: allocations while many
/// connections are read in one turn; more: memory. A guess.
const SPARE_MAX: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// How many spare buffers are looked at for one with room. More: time where many buffers are still read; fewer: allocations.
/// A guess.
const LOOK_MAX: usize = 4;

/// An empty buffer: a spare one with room for `len` bytes, if one of the last has it. The bytes of those that were given
/// back last may still be held; such a buffer waits for another turn.
pub(super) fn spare(len: usize) -> BytesMut {
    SPARE.with_borrow_mut(|spare| {
        let mut last = (0..spare.len()).rev().take(LOOK_MAX);
        let with_room = last.find(|&at| spare[at].try_reclaim(len));
        match with_room {
            Some(at) => spare.swap_remove(at),
            None if spare.len() < SPARE_MAX => BytesMut::with_capacity(len),
            None => spare.pop().unwrap_or_default(),
        }
    })
}

/// Keeps a buffer whose bytes were read.
pub(crate) fn keep(mut buffer: BytesMut) {
    buffer.clear();
    // A thread that is ending no longer has a list; then the buffer is freed.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    });
}

/// The bytes of `gathered`, whose buffer is kept.
pub(super) fn frozen(gathered: &mut BytesMut) -> Bytes {
    let bytes = gathered.split().freeze();
    keep(take(gathered));
    bytes
}

impl BodyStream {
    /// Appends all that has come to `input`, without a copy if that is empty. `None` at the end.
    pub(crate) fn poll_into(
        &mut self,
        input: &mut BytesMut,
        context: &Context<'_>,
    ) -> Poll<Option<Result<(), BodyError>>> {
        match &mut self.0 {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| {
                input.extend_from_slice(&bytes);
                Ok(())
            })),
            Source::Queue(queue) => queue.poll_into(input, context),
        }
    }
}

impl Queue {
    fn poll_into(
        &self,
        input: &mut BytesMut,
        context: &Context<'_>,
    ) -> Poll<Option<Result<(), BodyError>>> {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            wake(&state.writer);
        }
        if state.buffered == 0 {
            return match state.end {
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(failure)) => {
                    state.end = Some(Ok(()));
                    Poll::Ready(Some(Err(failure)))
                }
                None => {
                    remember(&mut state.reader, context);
                    Poll::Pending
                }
            };
        }
        let was_full = state.is_full();
        while let Some(piece) = state.pieces.pop_front() {
            state.buffered -= piece.len() + PIECE_COST;
            input.extend_from_slice(&piece);
        }
        let gathered = take(&mut state.gathered);
        state.buffered -= gathered.len();
        if input.is_empty() {
            *input = gathered; // It was given back before, so nothing is lost.
        } else {
            input.extend_from_slice(&gathered);
            keep(gathered);
        }
        if was_full {
            wake(&state.writer);
        }
        Poll::Ready(Some(Ok(())))
    }
}

impl State {
    fn push_copies(&mut self, parts: [&[u8]; 2], is_asked: bool) {
        if self.reader_gone || self.end.is_some() {
            return;
        }
        let len = parts[0].len() + parts[1].len();
        self.make_room(len);
        // Most are small, and there is room for them behind the ones before.
        if len <= GATHERED_MAX.saturating_sub(self.gathered.len()) {
            self.gathered.reserve(len);
            self.gathered.extend_from_slice(parts[0]);
            self.gathered.extend_from_slice(parts[1]);
            self.buffered += len;
        } else {
            parts.into_iter().for_each(|part| self.gather(part));
        }
        if !is_asked {
            wake(&self.reader);
        }
    }
}

impl BodySender {
    /// Changes from how many buffered bytes on a sender waits.
    pub(crate) fn set_capacity(&mut self, bytes: usize) {
        self.0.lock().capacity = bytes;
    }

    /// Whether a sender has to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().is_full()
    }

    /// Queues copies of `parts`, one behind the other, whether there is room or not. The reader is not woken if it
    /// `is_asked` soon anyway.
    pub(crate) fn push_copies(&self, parts: [&[u8]; 2], is_asked: bool) {
        self.0.lock().push_copies(parts, is_asked);
    }

    /// The same if there is room. Returns whether there was.
    pub(crate) fn try_push_copies(&self, parts: [&[u8]; 2], is_asked: bool) -> bool {
        let mut state = self.0.lock();
        let has_room = !state.is_full();
        if has_room {
            state.push_copies(parts, is_asked);
        }
        has_room
    }

    /// Queues `piece` without a copy, whether there is room or not.
    pub(crate) fn push_shared(&self, piece: Bytes) {
        self.0.push(piece);
    }

    /// Completes the content, by reference.
    pub(crate) fn end_now(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::{channel, sender};
    use super::*;

    fn read(stream: &mut BodyStream, input: &mut BytesMut) -> Poll<Option<Result<(), BodyError>>> {
        stream.poll_into(input, &Context::from_waker(Waker::noop()))
    }

    /// Purpose: all that has come is read at once and in order, however much it is; the end and a failure follow it.
    #[test]
    fn all_is_read_in_order() {
        for fails in [false, true] {
            let (feed, mut stream) = channel(64, Waker::noop().clone());
            let mut input = BytesMut::new();
            assert!(read(&mut stream, &mut input).is_pending());
            let long = vec![b'x'; 40_000];
            feed.push(b"begin ");
            feed.push(&long);
            assert!(matches!(read(&mut stream, &mut input), Poll::Ready(Some(Ok(())))));
            feed.push(b" end");
            assert_eq!(feed.room(), 60);
            if !fails {
                feed.finish();
            } else {
                drop(feed);
            }
            assert!(matches!(read(&mut stream, &mut input), Poll::Ready(Some(Ok(())))));
            assert_eq!(input, [b"begin ", &long[..], b" end"].concat()[..]);
            let last = read(&mut stream, &mut input);
            assert_eq!(matches!(last, Poll::Ready(Some(Err(_)))), fails, "{last:?}");
            assert!(matches!(read(&mut stream, &mut input), Poll::Ready(None)));
        }
    }

    /// Purpose: once warm, small pieces pass in both directions without an allocation.
    #[test]
    fn buffers_go_around() {
        let (feed, mut stream) = channel(1024, Waker::noop().clone());
        let (outgoing, mut content) = sender(1024);
        let mut input = BytesMut::new();
        let mut pass = || {
            feed.push(b"hello");
            assert!(read(&mut stream, &mut input).is_ready());
            let message = input.split_to(5).freeze();
            keep(take(&mut input));
            outgoing.push_copies([b"\x81\x05", &message], true);
            drop(message);
            let context = Context::from_waker(Waker::noop());
            let Poll::Ready(Some(Ok(piece))) = content.poll(&context) else { panic!("a piece") };
            assert_eq!(piece, &b"\x81\x05hello"[..]);
        };
        (0..4).for_each(|_| pass());
        let allocated = allocation_counter::measure(|| (0..100).for_each(|_| pass()));
        assert_eq!(allocated.count_total, 0);
    }
}
