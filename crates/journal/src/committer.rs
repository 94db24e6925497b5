//! From batches in queues to records on the disk: one write and one sync for all waiting batches.
//!
//! ```text
//!   gather ─▶ stamp ─▶ write ─▶ sync ─▶ publish to readers ─▶ resolve the receipts
//!                        │        │
//!              no room:  │        │ any error: the segment is left as it is, for ever; the
//!              cut back, │        │ group goes into a new segment, whose header records the
//!              `Full`    │        │ old segment's valid length
//!                        ▼        ▼
//!              receipts fail      and if that fails as well: receipts fail, the journal is poisoned
//! ```
//!
//! A failed sync is never repeated on the same file. Linux reports a failed write-back once and marks the pages clean:
//! a second sync would succeed without having written them. So the unsynced group is written again, from memory, into a
//! new file.
//!
//! A full disk does not poison the journal. First, records that every consumer has read are removed, even from the
//! newest segment (`space.rs`); if that is not enough, the receipts say [`ErrorKind::Full`], and the next group tries
//! again. So it does where there is no descriptor for a new segment ([`ErrorKind::Descriptors`]).
//!
//! Invariants: a receipt resolves successfully only after a sync that followed the write, in a file whose name is
//! durable. Offsets are never reused; those of a failed group are skipped. There is no clock and no thread here (the
//! thread is in `journal.rs`); [`Committer::turn`] is one step, which tests can call.

use std::sync::Arc;

use highwater_core::frame::{FRAMES_AT, Previous, SEAL_BYTES, SegmentHeader};

use crate::error::{Error, ErrorKind};
use crate::log::{Health, Log};
use crate::mark::{self, Mark};
use crate::options::Options;
use crate::queue::{Entry, Intake, Shared, poisoned};
use crate::receipt::Committed;
use crate::segment::{Segment, file_name};
use crate::storage::{File, Storage};

/// The committing half of a journal.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) storage: Arc<dyn Storage>,
    options: Options,
    pub(crate) log: Arc<Log>,
    shared: Arc<Shared>,
    intake: Intake,
    pub(crate) retention: crate::retention::Keeper,
    written: Mark,
    /// The first records of a segment are durable, all before this offset, and `written` does not say so yet.
    begun: Option<u64>,
    pub(crate) active: Option<Active>,
    next_offset: u64,
    next_sequence: u64,
    pub(crate) previous: Option<Previous>,
    is_poisoned: bool,
    /// The last group found no room, or no descriptor for a new segment.
    is_full: bool,
    /// The newest segment, if its records are forgotten but its file is not emptied yet.
    pub(crate) emptying: Option<Segment>,
    /// The write buffer, kept to reuse its memory.
    bytes: Vec<u8>,
    group: Vec<Entry>,
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) file: Box<dyn File>,
    segment: Segment,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A group was written or refused.
    Worked,
    /// Nothing was waiting.
    Idle,
}

/// Why a group did not become durable.
enum Failure {
    /// The segment is unchanged.
    Refused(Error),
    /// The segment's end is unknown now.
    Segment(Error),
}

impl Committer {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        options: Options,
        log: Arc<Log>,
        shared: Arc<Shared>,
        (retention, written): (crate::retention::Keeper, Mark),
        found: &crate::look::Found,
    ) -> Committer {
        Committer {
            storage,
            intake: Intake::new(Arc::clone(&shared)),
            options,
            shared,
            retention,
            written,
            begun: None,
            active: None,
            next_offset: log.next_offset(),
            next_sequence: found.next_sequence,
            previous: found.previous,
            log,
            is_poisoned: false,
            is_full: false,
            emptying: None,
            bytes: Vec::new(),
            group: Vec::new(),
        }
    }

    /// Makes waiting batches durable, up to one group.
    pub(crate) fn turn(&mut self) -> Turn {
        let mut group = std::mem::take(&mut self.group);
        self.intake.gather(&mut group, self.options.group_bytes_max);
        let turn = if group.is_empty() { Turn::Idle } else { Turn::Worked };
        if !group.is_empty() {
            let outcome = self.commit(&mut group);
            self.resolve(&mut group, outcome);
            // Behind the receipts, which do not depend on it.
            if let Some(offset) = self.begun.take() {
                self.note_written(offset);
            }
        }
        self.group = group;
        if turn == Turn::Idle {
            self.retain();
            if self.is_full && self.free_space() {
                self.set_serving();
            }
        }
        turn
    }

    /// Applies retention.
    pub(crate) fn retain(&mut self) {
        self.retain_within(u64::MAX);
    }

    /// The same, where retention by size leaves at most so many bytes.
    fn retain_within(&mut self, bytes: u64) {
        self.retention.retain(&*self.storage, &self.log, (self.options.clock)(), bytes);
    }

    /// Whether retention depends on time.
    pub(crate) fn looks_at_age(&self) -> bool {
        self.retention.looks_at_age()
    }

    /// Closes the last segment cleanly. Batches still waiting are not accepted.
    pub(crate) fn finish(mut self) {
        if self.end_segment()
            && let Some(last) = self.log.stat().last_offset
        {
            self.note_written(last + 1);
        }
    }

    /// Notes that the record before `offset` is durable: if it is gone later, that can be reported. No receipt depends on
    /// it, so it may fail; then it is tried again with the next group.
    fn note_written(&mut self, offset: u64) {
        if let Err(error) = self.written.raise(&*self.storage, offset) {
            self.begun = Some(offset);
            self.log.count_unmarked();
            let place = format!("{}/{}", self.storage.place(), mark::WRITTEN);
            (self.options.on_unmarked)(&Error::disk(place, &error));
        }
    }

    /// The offset of the group's first record, once all of it is durable.
    fn commit(&mut self, group: &mut [Entry]) -> Result<u64, Error> {
        if self.is_poisoned {
            return Err(poisoned());
        }
        let first_offset = self.next_offset;
        let records: u64 = group.iter().map(|entry| entry.batch.records()).sum();
        self.next_offset += records;
        if records == 0 {
            return Ok(first_offset);
        }
        let mut attempt = 0;
        loop {
            let error = match self.write(group, first_offset) {
                Ok(()) => {
                    self.publish(group, first_offset);
                    return Ok(first_offset);
                }
                Err(Failure::Refused(error)) => error,
                Err(Failure::Segment(error)) => {
                    self.abandon();
                    if !error.may_pass() {
                        attempt += 1;
                    }
                    error
                }
            };
            if error.kind() == ErrorKind::Full && self.free_space() {
                continue;
            }
            if attempt == 0 || error.may_pass() {
                return Err(self.unhealthy(error));
            }
            if attempt == ATTEMPTS_MAX {
                self.is_poisoned = true;
                self.is_full = false;
                self.shared.poison();
                self.log.set_health(Health::Poisoned(error.clone()));
                return Err(error);
            }
        }
    }

    fn unhealthy(&mut self, error: Error) -> Error {
        if error.may_pass() {
            self.is_full = true;
            self.shared.set_full(true);
            self.log.set_health(Health::Full(error.clone()));
        }
        error
    }

    fn set_serving(&mut self) {
        if std::mem::take(&mut self.is_full) {
            self.shared.set_full(false);
        }
        self.log.set_health(Health::Serving);
    }

    /// Writes the group after the durable part, and syncs.
    fn write(&mut self, group: &mut [Entry], first_offset: u64) -> Result<(), Failure> {
        let group_bytes = group.iter().map(|entry| entry.batch.bytes() as u64).sum();
        self.make_room(group_bytes)?;
        self.segment_for(group_bytes, first_offset)?;
        let active = self.active.as_mut().expect("a segment was made for it");
        let (salt, mark) = (active.segment.salt, active.segment.end);
        let mut offset = first_offset;
        self.bytes.clear();
        for entry in group {
            entry.batch.stamp(salt, offset, mark);
            offset += entry.batch.records();
            self.bytes.extend_from_slice(entry.batch.frames());
        }
        let place = format!("{}/{}", self.storage.place(), active.segment.name);
        if let Err(error) = active.file.write_at(mark, &self.bytes) {
            let error = Error::disk(format!("writing to {place}"), &error);
            // No sync was attempted since the last success, so nothing was lost: the file can be reused if the partly
            // written group can be cut off.
            let may_go_on = error.kind() == ErrorKind::Full && active.file.cut(mark).is_ok();
            return Err(if may_go_on { Failure::Refused(error) } else { Failure::Segment(error) });
        }
        active
            .file
            .sync()
            .map_err(|error| Failure::Segment(Error::disk(format!("syncing {place}"), &error)))?;
        active.segment.end = mark + self.bytes.len() as u64;
        // Do not keep the memory of an unusually large group.
        self.bytes.shrink_to(self.options.group_bytes_max);
        Ok(())
    }

    /// Keeps all segments within `bytes_max`, seals included.
    fn make_room(&mut self, group_bytes: u64) -> Result<(), Failure> {
        let Some(max) = self.options.bytes_max else { return Ok(()) };
        let header = if self.fits(group_bytes) { 0 } else { FRAMES_AT + SEAL_BYTES };
        let needed = group_bytes + (header + SEAL_BYTES) as u64;
        let has_room = |log: &Log| log.stat().bytes.saturating_add(needed) <= max;
        if has_room(&self.log) {
            return Ok(());
        }
        self.retain_within(max.saturating_sub(needed));
        if has_room(&self.log) {
            return Ok(());
        }
        let text = format!("{}: the journal has bytes_max ({max}) bytes", self.storage.place());
        Err(Failure::Refused(Error::new(ErrorKind::Full, text)))
    }

    /// Whether the current segment has room for this many more bytes.
    fn fits(&self, group_bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|Active { segment, .. }| {
            let is_empty = segment.end == FRAMES_AT as u64;
            is_empty || segment.end + group_bytes + SEAL_BYTES as u64 <= self.options.segment_bytes
        })
    }

    /// Ensures that the current segment has room for the group.
    fn segment_for(&mut self, group_bytes: u64, base_offset: u64) -> Result<(), Failure> {
        if self.fits(group_bytes) {
            return Ok(());
        }
        if self.active.is_some() {
            self.end_segment();
            self.retain();
        }
        self.begin_segment(base_offset).map_err(|error| match error.may_pass() {
            true => Failure::Refused(error),
            false => Failure::Segment(error),
        })
    }

    /// Creates a segment: its header and name are durable before it gets a record.
    fn begin_segment(&mut self, base_offset: u64) -> Result<(), Error> {
        if !self.retention.sweep(&*self.storage) {
            let text = format!("{}: files cannot be removed any more", self.storage.place());
            return Err(Error::new(ErrorKind::Disk, text));
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let header = SegmentHeader {
            sequence,
            salt: (self.options.salt)(),
            base_offset,
            created_us: (self.options.clock)(),
            previous: self.previous,
        };
        let name = file_name(sequence, base_offset);
        let place = format!("{}/{name}", self.storage.place());
        let make = || {
            let mut file = self.storage.create(&name)?;
            file.write_at(0, &header.encode())?;
            file.sync()?;
            self.storage.sync_dir()?;
            Ok(file)
        };
        let made = make();
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                self.retention.discard(&*self.storage, name);
                return Err(Error::disk(format!("creating {place}"), &error));
            }
        };
        let segment = Segment::new(name, &header, FRAMES_AT as u64);
        self.previous = Some(Previous { sequence, end: segment.end });
        self.log.begin(segment.clone());
        self.active = Some(Active { file, segment });
        self.emptying = None;
        Ok(())
    }

    /// Ends the segment with a seal, and returns whether it has one. Without, the next opening is only slower.
    fn end_segment(&mut self) -> bool {
        let Some(Active { mut file, mut segment }) = self.active.take() else { return false };
        self.bytes.clear();
        segment.next_offset = segment.next_offset.max(segment.base_offset);
        segment.seal().push(&mut self.bytes, segment.salt, segment.end);
        let sealed = file.write_at(segment.end, &self.bytes).and_then(|()| file.sync());
        if sealed.is_ok() {
            segment.end += SEAL_BYTES as u64;
            segment.sealed = true;
            self.previous = Some(Previous { sequence: segment.sequence, end: segment.end });
            self.log.publish(&segment, 0);
        }
        sealed.is_ok()
    }

    /// Abandons the segment. The next one's header records its valid length.
    fn abandon(&mut self) {
        if let Some(Active { mut file, segment }) = self.active.take() {
            // After a crash before the next segment exists, recovery then finds less to report. Failure does not
            // matter.
            let _ = file.cut(segment.end);
        }
    }

    /// Makes the group visible to readers.
    fn publish(&mut self, group: &[Entry], first_offset: u64) {
        let active = self.active.as_mut().expect("the group was written to it");
        let is_first = active.segment.records == 0;
        let mut at = self.previous.map_or(FRAMES_AT as u64, |previous| previous.end);
        let mut offset = first_offset;
        for batch in group.iter().map(|entry| &entry.batch) {
            for bytes in batch.frame_lengths() {
                active.segment.add(at, offset, batch.newest_us());
                at += bytes as u64;
                offset += 1;
            }
        }
        let Segment { sequence, end, .. } = active.segment;
        debug_assert_eq!(at, end);
        self.previous = Some(Previous { sequence, end });
        self.log.publish(&active.segment, offset);
        if is_first {
            self.begun = Some(offset);
        }
        self.set_serving();
    }

    fn resolve(&self, group: &mut Vec<Entry>, outcome: Result<u64, Error>) {
        let mut offset = *outcome.as_ref().unwrap_or(&0);
        for Entry { batch, answer } in group.drain(..) {
            let records = batch.records();
            answer.resolve(match &outcome {
                Ok(_) => Ok(Committed { first_offset: offset, records }),
                Err(error) => Err(error.clone()),
            });
            offset += records;
        }
    }
}

/// Attempts to write a group: into its segment, then once into a new one.
const ATTEMPTS_MAX: u32 = 2;
