//! Frees room on a full disk.
//!
//! Retention removes whole segments, and never the newest that has records. On a disk that one segment fills, that
//! would be a deadlock: nothing can be written, so no new segment can begin, so the old one cannot be removed. So if
//! every consumer has read all of the newest segment, its file is emptied in place:
//!
//! ```text
//!   header │ record │ record │ …        cut within the first record's header, and synced
//!   header │ part of a header           its block is still there: the seal over it needs no room; synced
//!   header │ seal                       the next segment has the rest of the disk
//! ```
//!
//! The seal records the next offset, as any seal does; until it is written, the consumers' positions and retention's floor
//! do. A crash in between leaves a tail of a few bytes, which the next opening cuts off.
//!
//! Invariant: a record that a consumer has not read is never removed here.

use std::io;

use highwater_core::frame::{ALIGN, FRAMES_AT, Previous, SEAL_BYTES};

use crate::committer::Committer;
use crate::segment::Segment;
use crate::storage::File;

impl Committer {
    /// Frees room. Returns whether any could be freed.
    pub(crate) fn free_space(&mut self) -> bool {
        let before = self.log.stat().bytes;
        self.retain();
        let is_newest_left = self.retention.spend(&*self.storage, &self.log);
        self.log.stat().bytes < before || (is_newest_left && self.empty_newest())
    }

    /// Empties the newest segment, if every consumer has read all of it.
    fn empty_newest(&mut self) -> bool {
        if self.emptying.is_none() {
            let spent_below = self.retention.spent_below();
            self.emptying = spent_below.and_then(|below| self.log.forget_newest(below));
        }
        let Some(mut segment) = self.emptying.take() else { return false };
        segment.forget_records();
        // For the next header, in case the file does not get its seal.
        self.previous = Some(Previous { sequence: segment.sequence, end: segment.end });
        // Otherwise the records would look lost until the seal is written.
        let raised = self.retention.raise_floor(&*self.storage, self.log.begins_at());
        // Whatever became of that, nothing more is written to it: its records are forgotten.
        let file = match self.active.take() {
            Some(active) => Ok(active.file),
            None => self.storage.open(&segment.name),
        };
        if raised.and(file).and_then(|file| empty(file, &segment)).is_err() {
            // Retried the next time room is needed.
            self.emptying = Some(segment);
            return false;
        }
        segment.end += SEAL_BYTES as u64;
        segment.sealed = true;
        self.previous = Some(Previous { sequence: segment.sequence, end: segment.end });
        self.log.publish(&segment, 0);
        true
    }
}

/// Leaves a seal for `segment`'s current state, and nothing after it.
fn empty(mut file: Box<dyn File>, segment: &Segment) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(SEAL_BYTES);
    segment.seal().push(&mut bytes, segment.salt, FRAMES_AT as u64);
    file.cut((FRAMES_AT + ALIGN) as u64)?;
    file.sync()?;
    file.write_at(FRAMES_AT as u64, &bytes)?;
    file.sync()
}
