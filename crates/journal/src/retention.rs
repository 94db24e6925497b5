//! What need not be kept any more?
//!
//! Whole segments, the oldest first, for size or for age; never the newest that has records, and never one with a record
//! that a named consumer has not read, if that was asked for. The directory is synced after each: names
//! that vanish in another order after a crash would look like a segment that is missing.

use std::io;
use std::sync::Arc;

use crate::consumer::Consumers;
use crate::log::Log;
use crate::options::Retention;
use crate::segment::Segment;
use crate::storage::Storage;

/// Removes segments.
#[derive(Debug)]
pub(crate) struct Keeper {
    retention: Retention,
    consumers: Arc<Consumers>,
    /// What is not known to be durably gone yet. Nothing else goes before it.
    going: Vec<String>,
}

impl Keeper {
    pub(crate) fn new(retention: Retention, consumers: Arc<Consumers>) -> Keeper {
        Keeper { retention, consumers, going: Vec::new() }
    }

    /// Whether time alone can make a segment go.
    pub(crate) fn looks_at_age(&self) -> bool {
        self.retention.age.is_some()
    }

    /// Removes the file `name`, which was begun and is no part of the journal, now or later.
    pub(crate) fn discard(&mut self, storage: &dyn Storage, name: String) {
        self.going.push(name);
        self.sweep(storage);
    }

    /// Tries to remove what could not be removed before. False if that is too much by now.
    pub(crate) fn sweep(&mut self, storage: &dyn Storage) -> bool {
        while let Some(name) = self.going.first() {
            if remove(storage, name).is_err() {
                return self.going.len() < GOING_MAX;
            }
            self.going.remove(0);
        }
        true
    }

    /// Removes what need not be kept at `now_us`. What the disk will not remove is tried again the next
    /// time; it is not read any more.
    pub(crate) fn retain(&mut self, storage: &dyn Storage, log: &Log, now_us: u64) {
        self.sweep(storage);
        let Retention { bytes, age, keep_unread } = self.retention;
        if bytes.is_none() && age.is_none() {
            return;
        }
        let unread = if keep_unread { self.consumers.lowest() } else { None };
        let oldest_us = age
            .map(|age| now_us.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)));
        let is_due = |segment: &Segment, all_bytes: u64| {
            let is_too_much = bytes.is_some_and(|max| all_bytes > max);
            let is_too_old = oldest_us.is_some_and(|oldest| segment.newest_us < oldest);
            let is_read = unread.is_none_or(|unread| segment.next_offset <= unread);
            (is_too_much || is_too_old) && is_read
        };
        while self.going.is_empty()
            && let Some(name) = log.oldest(is_due)
        {
            self.going.push(name);
            self.sweep(storage);
        }
    }
}

/// So many files wait to be removed, at most.
const GOING_MAX: usize = 16;

/// Removes the file `name`, durably. It may be gone already.
fn remove(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => storage.sync_dir(),
    }
}
