//! The durable part of the journal, shared by readers and the committing thread.
//!
//! Only the committing thread changes it: it adds after a sync, and removes before it deletes a file. Readers look here
//! only at the end of the part they know.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::damage::{Damage, DamageKind, Report};
use crate::error::Error;
use crate::segment::Segment;

/// The most tasks that wait for new records; a further one is woken immediately, to poll again.
const WATCHERS_MAX: usize = 1024;

/// Whether the journal takes records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// It accepts records.
    Serving,
    /// There was no room for the last records, or no descriptor for a new file; it tries again with the next.
    Full(Error),
    /// It accepts none until it is reopened.
    Poisoned(Error),
}

/// The current contents of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// How many records there are.
    pub records: u64,
    /// The bytes that the segments occupy.
    pub bytes: u64,
    /// How many segments there are.
    pub segments: usize,
    /// The offset of the first record.
    pub first_offset: Option<u64>,
    /// The offset of the last record.
    pub last_offset: Option<u64>,
    /// Every existing record with a lower offset is durable.
    pub next_offset: u64,
    /// How often `written.pos` could not be written since the journal was opened.
    pub unmarked: u64,
}

#[derive(Debug)]
pub(crate) struct Log {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Debug)]
struct State {
    segments: VecDeque<Segment>,
    /// Whole files that are gone or cannot be read.
    lost: Vec<Damage>,
    /// Below this offset there are no records any more.
    removed_below: u64,
    /// Retention has removed records up to this offset. From here to `removed_below` there never were any: those offsets had been
    /// given to groups that failed.
    removed_to: u64,
    next_offset: u64,
    unmarked: u64,
    health: Health,
    watchers: Vec<Waker>,
}

/// Where a reader continues.
#[derive(Debug)]
pub(crate) enum Goal {
    /// In this segment, from this position on, where no offset is lower than this.
    Segment(Box<Segment>, u64, u64),
    /// After this loss, to be reported first.
    Skip(Damage),
    /// Nowhere yet. No later record has an offset below this one.
    End(u64),
}

/// What follows behind the known part of a segment.
#[derive(Debug)]
pub(crate) enum Beyond {
    /// More of it, up to this position.
    More(u64),
    /// This; and whether no segment is newer.
    Goal(Goal, bool),
}

impl State {
    fn take_oldest(&mut self) -> Option<String> {
        let oldest = self.segments.pop_front()?;
        self.removed_below = self.segments.front()?.base_offset.max(self.removed_below);
        self.forget_to(oldest.next_offset, self.removed_below);
        Some(oldest.name)
    }

    /// Records up to the offset `to` are gone, and losses below the offset `below` with them.
    fn forget_to(&mut self, to: u64, below: u64) {
        self.removed_to = self.removed_to.max(to);
        self.lost.retain(|damage| {
            let stays = damage.next_offset > below;
            if !stays {
                self.removed_to = self.removed_to.max(damage.next_offset);
            }
            stays
        });
    }

    /// Where to continue from the record `offset`, having read the segment `after` to its end.
    fn find(&self, offset: u64, after: Option<u64>) -> Goal {
        let is_next = |segment: &&Segment| match after {
            Some(after) => segment.sequence > after,
            None => segment.next_offset > offset,
        };
        let newest = self.segments.back();
        let segment = self.segments.iter().find(is_next);
        let segment = segment.or(newest.filter(|newest| after.is_none_or(|a| newest.sequence > a)));
        let horizon = segment.map_or(self.next_offset, |segment| segment.base_offset);
        let lost = |lost: &&Damage| lost.next_offset > offset && lost.first_offset <= horizon;
        if let Some(lost) = self.lost.iter().find(lost) {
            return Goal::Skip(lost.clone());
        }
        if offset < self.removed_to {
            return Goal::Skip(removed(offset, self.removed_to));
        }
        match segment {
            Some(segment) => {
                let (at, lowest) = segment.find(offset);
                Goal::Segment(Box::new(segment.clone()), at, lowest)
            }
            None => Goal::End(self.next_offset),
        }
    }
}

impl Log {
    pub(crate) fn new(segments: Vec<Segment>, report: &Report) -> Arc<Log> {
        let whole = |damage: &&Damage| {
            use DamageKind::{File, Missing, Newest, NoSegments};
            matches!(damage.kind, File | Missing | Newest | NoSegments)
        };
        let lost: Vec<Damage> = report.damage.iter().filter(whole).cloned().collect();
        let bases = segments.iter().map(|segment| segment.base_offset);
        let first = bases.chain(lost.iter().map(|damage| damage.first_offset)).min();
        let removed_below = first.unwrap_or(report.next_offset);
        let state = State {
            removed_below,
            removed_to: removed_below,
            lost,
            segments: segments.into(),
            next_offset: report.next_offset,
            unmarked: 0,
            health: Health::Serving,
            watchers: Vec::new(),
        };
        Arc::new(Log { state: Mutex::new(state), more: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.lock().next_offset
    }

    /// Below this offset, no records exist and none are lost.
    pub(crate) fn begins_at(&self) -> u64 {
        self.lock().removed_below
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.lock().health = health;
    }

    /// `written.pos` could not be written.
    pub(crate) fn count_unmarked(&self) {
        self.lock().unmarked += 1;
    }

    pub(crate) fn stat(&self) -> Stat {
        let state = self.lock();
        let State { next_offset, unmarked, .. } = *state;
        let mut stat = Stat { next_offset, unmarked, ..Stat::default() };
        for segment in &state.segments {
            stat.records += segment.records;
            stat.bytes += segment.end;
            stat.segments += 1;
            stat.first_offset = stat.first_offset.or(segment.first_offset);
            stat.last_offset = segment.last_offset.or(stat.last_offset);
        }
        stat
    }

    /// Adds a new segment, durable and still without records.
    pub(crate) fn begin(&self, segment: Segment) {
        self.lock().segments.push_back(segment);
    }

    /// The newest segment has changed: wakes all waiting readers.
    pub(crate) fn publish(&self, segment: &Segment, next_offset: u64) {
        let mut state = self.lock();
        state.next_offset = state.next_offset.max(next_offset);
        if let Some(newest) = state.segments.back_mut().filter(|s| s.sequence == segment.sequence) {
            newest.clone_from(segment);
        }
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        self.more.notify_all();
        watchers.into_iter().for_each(Waker::wake);
    }

    /// Removes the oldest segment, if `is_due` says so, given all of them, the oldest first, and their bytes.
    pub(crate) fn oldest(
        &self,
        is_due: impl Fn(&VecDeque<Segment>, u64) -> bool,
    ) -> Option<String> {
        let mut state = self.lock();
        let bytes = state.segments.iter().map(|segment| segment.end).sum();
        // The newest records stay: they determine the next offset. An empty segment does so too, but only by its
        // header.
        let others_have_records = state.segments.iter().skip(1).any(|other| other.records > 0);
        if !others_have_records || !is_due(&state.segments, bytes) {
            return None;
        }
        state.take_oldest()
    }

    /// Removes the oldest segment, if all its records are below `spent_below` and there is a later one, which may be
    /// empty: its header and the consumers' positions determine the next offset.
    pub(crate) fn oldest_spent(&self, spent_below: u64) -> Option<String> {
        let mut state = self.lock();
        let is_spent = state.segments.len() > 1 && state.segments[0].next_offset <= spent_below;
        if is_spent { state.take_oldest() } else { None }
    }

    /// Forgets the records of the newest segment, if it has any and all are below `read_below`. Returns the segment as
    /// it was.
    pub(crate) fn forget_newest(&self, read_below: u64) -> Option<Segment> {
        let mut state = self.lock();
        // Older records go first, so that gaps are only at the beginning.
        if state.segments.iter().rev().skip(1).any(|older| older.records > 0) {
            return None;
        }
        let newest = state.segments.back_mut()?;
        if newest.records == 0 || newest.next_offset > read_below {
            return None;
        }
        let before = newest.clone();
        newest.forget_records();
        let below = before.next_offset;
        state.removed_below = state.removed_below.max(below);
        state.forget_to(below, below);
        Some(before)
    }

    /// Where to continue from the record `offset`, having read the segment `after` to its end.
    pub(crate) fn find(&self, offset: u64, after: Option<u64>) -> Goal {
        self.lock().find(offset, after)
    }

    /// The next offset, if a reader that has read the segment `sequence` up to `read_to` and wants the record `offset` has
    /// read everything. Checked in one step: otherwise a record written meanwhile would be skipped.
    pub(crate) fn end_for(&self, offset: u64, sequence: u64, read_to: u64) -> Option<u64> {
        let state = self.lock();
        let this = state.segments.iter().rev().find(|segment| segment.sequence == sequence);
        match state.find(offset, Some(sequence)) {
            Goal::End(next) if this.is_none_or(|this| this.end <= read_to) => Some(next),
            _ => None,
        }
    }

    /// What follows for a reader that has read the segment `sequence` up to `read_to` and wants the record `offset`. Found
    /// out in one step, for the same reason.
    pub(crate) fn beyond(&self, offset: u64, sequence: u64, read_to: u64) -> Beyond {
        let state = self.lock();
        let this = state.segments.iter().rev().find(|segment| segment.sequence == sequence);
        if let Some(this) = this.filter(|this| this.end > read_to) {
            return Beyond::More(this.end);
        }
        let is_newest = state.segments.back().is_none_or(|newest| newest.sequence <= sequence);
        Beyond::Goal(state.find(offset, Some(sequence)), is_newest)
    }

    /// Whether the segment `sequence` can be read.
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.lock().segments.iter().rev().any(|segment| segment.sequence == sequence)
    }

    /// Ready when a record with `offset` or a later one may be there.
    pub(crate) fn poll_more(&self, offset: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.next_offset > offset {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.watchers.iter().any(|other| other.will_wake(waker)) {
            if state.watchers.len() >= WATCHERS_MAX {
                waker.wake_by_ref();
            } else {
                state.watchers.push(waker.clone());
            }
        }
        Poll::Pending
    }

    /// Blocks until a record with `offset` or a later one may be there. False if `timeout` has passed.
    pub(crate) fn wait_more(&self, offset: u64, timeout: Duration) -> bool {
        let waits = |state: &mut State| state.next_offset <= offset;
        let state = self.lock();
        let (state, _) = self
            .more
            .wait_timeout_while(state, timeout, waits)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.next_offset > offset
    }
}

fn removed(first_offset: u64, next_offset: u64) -> Damage {
    let (at, bytes, file) = (0, 0, format!("segments before offset {next_offset}"));
    Damage { kind: DamageKind::Removed, file, at, bytes, first_offset, next_offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_core::frame::SegmentHeader;

    /// Purpose: a reader at the end of what it knows is sent on, with the offset where the journal goes on, only while nothing
    /// was added behind that: what comes meanwhile is read, and is no part of a damage before it.
    #[test]
    fn what_was_added_is_read_first() {
        let header =
            SegmentHeader { sequence: 3, salt: 0, base_offset: 5, created_us: 0, previous: None };
        let mut segment = Segment::new("a".into(), &header, 100);
        let report = Report { next_offset: 5, ..Report::default() };
        let log = Log::new(vec![segment.clone()], &report);
        assert!(matches!(log.beyond(5, 3, 100), Beyond::Goal(Goal::End(5), true)));
        segment.add(100, 7, 0);
        segment.end = 200;
        log.publish(&segment, 8);
        assert!(matches!(log.beyond(5, 3, 100), Beyond::More(200)));
        assert!(matches!(log.beyond(8, 3, 200), Beyond::Goal(Goal::End(8), true)));
        let header = SegmentHeader { sequence: 4, base_offset: 8, ..header };
        log.begin(Segment::new("b".into(), &header, 50));
        assert!(matches!(log.beyond(8, 3, 200), Beyond::Goal(Goal::Segment(..), false)));
    }
}
