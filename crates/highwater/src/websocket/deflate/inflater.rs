//! How are a client's messages decompressed (RFC 7692 §7.2.2)?

use std::cell::Cell;

use flate2::{Decompress, FlushDecompress, Status};
use highwater_core::websocket::extensions::{Context, WINDOW_BITS_MIN};
use highwater_core::websocket::{Inflate, InflateError};

/// What the sender of a message has left out (RFC 7692 §7.2.1): the end of an empty block.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

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
    context: Context,
    /// `None` before the first message; between messages, too, unless the context is kept.
    state: Option<Decompress>,
}

impl Inflater {
    pub(crate) fn new(context: Context) -> Inflater {
        Inflater { context, state: None }
    }

    /// Decompresses `piece` behind `out`. Returns whether a last block ended with it.
    fn feed(
        &mut self,
        mut piece: &[u8],
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<bool, InflateError> {
        let Context { is_kept, window_bits } = self.context;
        let state = self.state.get_or_insert_with(|| match is_kept {
            true => Decompress::new_with_window_bits(false, window_bits.max(WINDOW_BITS_MIN)),
            // Its window is the largest, which is right for smaller ones.
            false => FREE.take().unwrap_or_else(|| Decompress::new(false)),
        });
        loop {
            if out.len() == out.capacity() {
                // One more byte than is allowed tells that there are more.
                let capacity = (2 * out.len()).max(RESERVED).min(len_max.saturating_add(1));
                out.reserve_exact(capacity - out.len());
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
        if self.context.is_kept {
            return self.feed(&TAIL, out, len_max).map(drop);
        }
        let is_whole = self.feed(&TAIL_AND_LAST, out, len_max)?;
        FREE.set(self.state.take());
        if is_whole { Ok(()) } else { Err(InflateError::Invalid) }
    }
}
