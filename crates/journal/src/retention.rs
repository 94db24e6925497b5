//! Retention: which segments are removed.
//!
//! Whole segments, the oldest first, for size or for age; never the newest that has records, and, with `keep_unread`,
//! never one with a record that a named consumer has not read. Where there is no consumer yet, nothing has been read.
//! The directory is synced after each removal: names that vanish in another order after a crash would look like a
//! missing segment.
//!
//! Age is the difference between the records' timestamps and the wall clock. A timestamp in the future keeps nothing longer. If
//! the clock is set forward by more than the age, everything but the newest segment with records is removed.
//!
//! The floor is a [`Mark`]: the offset below which retention has removed everything. It is durable before a file is removed,
//! so that a first segment that begins above it shows that another program has removed an older one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::consumer::Consumers;
use crate::log::Log;
use crate::mark::Mark;
use crate::options::Retention;
use crate::segment::Segment;
use crate::storage::Storage;

/// Removes segments.
#[derive(Debug)]
pub(crate) struct Keeper {
    retention: Retention,
    consumers: Arc<Consumers>,
    /// Files not known to be durably removed yet. Nothing else is removed before them.
    going: Vec<Going>,
    floor: Mark,
}

/// A file to be removed.
#[derive(Debug)]
struct Going {
    name: String,
    /// The floor once it is gone. An unfinished file does not move it.
    floor: Option<u64>,
}

impl Keeper {
    pub(crate) fn new(retention: Retention, consumers: Arc<Consumers>, floor: Mark) -> Keeper {
        Keeper { retention, consumers, going: Vec::new(), floor }
    }

    /// Whether a segment can become removable by age.
    pub(crate) fn looks_at_age(&self) -> bool {
        self.retention.age.is_some()
    }

    /// When there is no room, every record below this offset may be removed, even from the newest segment: all
    /// consumers have read it. `None`: none may.
    pub(crate) fn spent_below(&self) -> Option<u64> {
        let Retention { bytes, keep_unread, .. } = self.retention;
        let is_spool = bytes.is_some() && keep_unread && !self.consumers.are_ignored();
        if is_spool { self.consumers.lowest() } else { None }
    }

    /// Removes the unfinished file `name`, which is not part of the journal, now or later.
    pub(crate) fn discard(&mut self, storage: &dyn Storage, name: String) {
        self.going.push(Going { name, floor: None });
        self.sweep(storage);
    }

    /// Removes the oldest segment `name`, which is not part of `log` any more, now or later.
    fn let_go(&mut self, storage: &dyn Storage, log: &Log, name: String) {
        self.going.push(Going { name, floor: Some(log.begins_at()) });
        self.sweep(storage);
    }

    /// Records durably that everything below `offset` may be removed.
    pub(crate) fn raise_floor(&mut self, storage: &dyn Storage, offset: u64) -> io::Result<()> {
        let raised = self.floor.raise(storage, offset);
        // Room comes first: without a floor, nothing is known to be missing.
        if self.floor.is_there() { raised } else { Ok(()) }
    }

    /// Retries earlier failed removals. False if too many have piled up.
    pub(crate) fn sweep(&mut self, storage: &dyn Storage) -> bool {
        while let Some(&Going { ref name, floor }) = self.going.first() {
            let name = name.clone();
            let raised = floor.map_or(Ok(()), |floor| self.raise_floor(storage, floor));
            if raised.and_then(|()| remove(storage, &name)).is_err() {
                return self.going.len() < GOING_MAX;
            }
            self.going.remove(0);
        }
        true
    }

    /// Applies retention at `now_us`, where retention by size leaves at most `bytes_max`. Files that cannot be removed are
    /// retried next time; they are not read any more.
    pub(crate) fn retain(&mut self, storage: &dyn Storage, log: &Log, now_us: u64, bytes_max: u64) {
        self.sweep(storage);
        self.remove(storage, log, now_us, bytes_max);
    }

    /// Removes what every consumer has read, except the newest segment, when there is no room. Returns whether no
    /// removal is pending.
    pub(crate) fn spend(&mut self, storage: &dyn Storage, log: &Log) -> bool {
        let Some(spent_below) = self.spent_below() else { return false };
        while self.going.is_empty()
            && let Some(name) = log.oldest_spent(spent_below)
        {
            self.let_go(storage, log, name);
        }
        self.going.is_empty()
    }

    fn remove(&mut self, storage: &dyn Storage, log: &Log, now_us: u64, bytes_max: u64) {
        let Retention { bytes, age, keep_unread } = self.retention;
        if bytes.is_none() && age.is_none() {
            return;
        }
        let keeps_unread = keep_unread && !self.consumers.are_ignored();
        let unread = keeps_unread.then(|| self.consumers.lowest().unwrap_or(0));
        let oldest_us = age
            .map(|age| now_us.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)));
        let is_due = |segments: &VecDeque<Segment>, all_bytes: u64| {
            let is_too_much = bytes.is_some_and(|max| all_bytes > max.min(bytes_max));
            let is_too_old = oldest_us.is_some_and(|oldest| newest_us(segments, now_us) < oldest);
            let is_read = unread.is_none_or(|unread| segments[0].next_offset <= unread);
            (is_too_much || is_too_old) && is_read
        };
        while self.going.is_empty()
            && let Some(name) = log.oldest(is_due)
        {
            self.let_go(storage, log, name);
        }
    }
}

/// How new the oldest segment is. A stamp from the future is a clock's error, and would keep it and all behind it until then:
/// such a segment is as old as the next one that was begun in the past.
fn newest_us(segments: &VecDeque<Segment>, now_us: u64) -> u64 {
    let stamped = segments[0].newest_us;
    let mut begun = segments.iter().skip(1).map(|later| later.created_us);
    let is_past = |time_us: &u64| *time_us <= now_us;
    if is_past(&stamped) { stamped } else { begun.find(is_past).unwrap_or(stamped) }
}

/// The most files that wait to be removed.
const GOING_MAX: usize = 16;

/// Removes the file `name`, durably. It may be gone already.
fn remove(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => storage.sync_dir(),
    }
}
