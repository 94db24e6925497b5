//! The fragments of a field block, until it is whole.

use alloc::vec::Vec;

use super::error::{Error, ErrorCode};

/// The largest number of CONTINUATION frames of one block, so that a peer cannot send empty ones for ever (CVE-2024-27316).
/// A block with more content than that many frames of the default size exceeds any sensible limit.
pub const CONTINUATIONS_MAX: u32 = 32;

/// Collects a field block that comes in several frames. One that comes in a single frame needs no copy.
#[derive(Clone, Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    frames: u32,
}

impl Block {
    /// Adds the fragment of a frame, up to `size_max` bytes in all.
    ///
    /// # Errors
    /// The block is larger, or in more than [`CONTINUATIONS_MAX`] frames: `ENHANCE_YOUR_CALM`, which ends the
    /// connection, since a block that is not read leaves the table of fields unknown.
    pub fn add(&mut self, fragment: &[u8], size_max: usize) -> Result<(), Error> {
        let calm = |reason| Err(Error::connection(ErrorCode::ENHANCE_YOUR_CALM, reason));
        if self.bytes.len() + fragment.len() > size_max {
            return calm("a field block is larger than its limit");
        }
        if self.frames > CONTINUATIONS_MAX {
            return calm("a field block has too many CONTINUATION frames");
        }
        self.frames += 1;
        self.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// Bytes of memory it has allocated on the heap.
    pub fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// The whole block; its memory is the caller's.
    pub fn take(&mut self) -> Vec<u8> {
        self.frames = 0;
        core::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: both bounds hold at the limit and one above it, and the next block is counted from zero.
    #[test]
    fn bounds() {
        let code = |result: Result<(), Error>| result.map_err(|error| error.code);
        let mut block = Block::default();
        assert_eq!(block.add(&[1; 6], 10), Ok(()));
        assert_eq!(block.add(&[2; 4], 10), Ok(()));
        assert_eq!(code(block.clone().add(&[3], 10)), Err(ErrorCode::ENHANCE_YOUR_CALM));
        assert_eq!(block.take(), [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
        // The first fragment is of HEADERS.
        for _ in 0..=CONTINUATIONS_MAX {
            assert_eq!(block.add(&[], 10), Ok(()));
        }
        assert_eq!(code(block.add(&[], 10)), Err(ErrorCode::ENHANCE_YOUR_CALM));
    }
}
