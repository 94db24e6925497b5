//! How are a client's messages decompressed (RFC 7692 §7.2.2)?

use std::cell::Cell;

use flate2::{Decompress, FlushDecompress, Status};
use highwater_core::websocket::{Inflate, InflateError};

use super::TAIL;

/// The same, and an empty last block behind it. It ends the stream only if the message before it is whole.
const TAIL_AND_LAST: [u8; 9] = [0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff];

/// The first bytes that are reserved for a message; it grows by doubling. A guess: small messages are most.
const RESERVED: usize = 1024;

thread_local! {
    /// For connections that keep no context: in use from the first to the last byte of a message. If more messages are under
    /// way on a thread, each has its own, and one of them stays.
    static FREE: Cell<Option<Decompress>> = const { Cell::new(None) };
}

/// Decompresses the messages of one peer.
#[derive(Debug)]
pub(crate) struct Inflater {
    /// Messages refer to those before them.
    is_kept: bool,
    /// `None` before the first message; between messages, too, unless the context is kept.
    state: Option<Decompress>,
}

impl Inflater {
    pub(crate) fn new(is_kept: bool) -> Inflater {
        Inflater { is_kept, state: None }
    }

    /// Decompresses `piece` behind `out`. Returns whether a last block ended with it.
    fn feed(
        &mut self,
        mut piece: &[u8],
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<bool, InflateError> {
        // Its window is the largest, which is right for smaller ones, and costs no more.
        let new = || Decompress::new(false);
        let state = self.state.get_or_insert_with(|| match self.is_kept {
            true => new(),
            false => FREE.take().unwrap_or_else(new),
        });
        loop {
            if out.len() == out.capacity() {
                out.reserve_exact(capacity(out.len(), len_max) - out.len());
            }
            let (in_before, len_before) = (state.total_in(), out.len());
            let status = state.decompress_vec(piece, out, FlushDecompress::None);
            let used = (state.total_in() - in_before) as usize;
            piece = &piece[used..];
            let has_ended = match status {
                Ok(status) => status == Status::StreamEnd,
                Err(_) => return Err(InflateError::Invalid),
            };
            if out.len() > len_max {
                return Err(InflateError::TooBig);
            }
            if has_ended {
                state.reset(false); // A last block may stand anywhere; others may follow.
            }
            match piece.is_empty() {
                true if has_ended || out.len() < out.capacity() => return Ok(has_ended),
                false if !has_ended && used == 0 && out.len() == len_before => {
                    return Err(InflateError::Invalid); // It makes no progress.
                }
                _ => {}
            }
        }
    }
}

/// The room for a message that has more than `len` bytes: half the largest, a quarter, and so on, so that the last step is
/// a doubling, too. The largest has one byte more than is allowed, which tells that there are more.
fn capacity(len: usize, len_max: usize) -> usize {
    let mut capacity = len_max.saturating_add(1);
    while capacity / 2 > len.max(RESERVED - 1) {
        capacity /= 2;
    }
    capacity
}

impl Inflate for Inflater {
    fn inflate(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<(), InflateError> {
        match piece {
            [] => Ok(()),
            _ => self.feed(piece, out, len_max).map(drop),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, len_max: usize) -> Result<(), InflateError> {
        if self.is_kept {
            return self.feed(&TAIL, out, len_max).map(drop);
        }
        if !self.feed(&TAIL_AND_LAST, out, len_max)? {
            return Err(InflateError::Invalid); // Its state is in the middle of a message, and for no other connection.
        }
        FREE.set(self.state.take());
        Ok(())
    }
}
