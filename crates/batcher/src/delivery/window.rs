//! The window: records read from the journal and not finished yet, in the journal's order.
//!
//! A record is finished when Kafka has acknowledged it, or when it is durably among the dead letters. The position
//! never passes an unfinished record.

use std::collections::{BTreeMap, VecDeque};

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) partition: u32,
    pub(super) time_us: u64,
    pub(super) body_bytes: usize,
}

/// Finished records, from the front on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) dead: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Sent, without an answer.
    Open,
    /// Left to a later session; not sent.
    Deferred,
    /// At this offset of its partition, if that is known.
    Acknowledged(Option<i64>),
    /// Written to the dead letters; durable after the next sync.
    Dead,
}

#[derive(Debug, Default)]
pub(super) struct Window {
    entries: VecDeque<(Entry, State)>,
    /// The number of the first entry. A message carries its entry's number.
    base: usize,
    bytes: usize,
    open: usize,
    /// Dead letters that are not durable yet.
    unsynced: usize,
    /// Records finished in an earlier session after an unfinished one: they are read again, but not sent again.
    ahead: BTreeMap<u64, State>,
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records sent and not answered.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn records(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn oldest_us(&self) -> Option<u64> {
        self.entries.front().map(|(entry, _)| entry.time_us)
    }

    /// The offset of the first unfinished record.
    pub(super) fn first_offset(&self) -> Option<u64> {
        self.entries.front().map(|(entry, _)| entry.offset)
    }

    pub(super) fn entry(&self, number: usize) -> Option<Entry> {
        self.entries.get(number.checked_sub(self.base)?).map(|(entry, _)| *entry)
    }

    fn push(&mut self, entry: Entry, state: State) -> usize {
        self.bytes += entry.body_bytes;
        self.entries.push_back((entry, state));
        self.base + self.entries.len() - 1
    }

    /// Adds a record that was read. Returns its message's number, or `None` if it is finished already.
    pub(super) fn push_read(&mut self, entry: Entry) -> Option<usize> {
        if let Some(state) = self.ahead.remove(&entry.offset) {
            self.push(entry, state);
            return None;
        }
        self.open += 1;
        Some(self.push(entry, State::Open))
    }

    /// Adds a record that was read and is already in the topic, at this offset of its partition.
    pub(super) fn push_arrived(&mut self, entry: Entry, offset: Option<i64>) {
        self.ahead.remove(&entry.offset);
        self.push(entry, State::Acknowledged(offset));
    }

    /// Adds a record that was read and is left to a later session.
    pub(super) fn push_deferred(&mut self, entry: Entry) {
        let state = self.ahead.remove(&entry.offset).unwrap_or(State::Deferred);
        self.push(entry, state);
    }

    fn set(&mut self, number: usize, state: State) {
        let index = number.checked_sub(self.base);
        let Some((_, now)) = index.and_then(|index| self.entries.get_mut(index)) else { return };
        if *now == State::Open {
            *now = state;
            self.open -= 1;
            self.unsynced += usize::from(state == State::Dead);
        }
    }

    pub(super) fn acknowledge(&mut self, number: usize, offset: i64) {
        // -1 means that the broker does not report the offset.
        self.set(number, State::Acknowledged(Some(offset).filter(|offset| *offset >= 0)));
    }

    /// It was written to the dead letters.
    pub(super) fn bury(&mut self, number: usize) {
        self.set(number, State::Dead);
    }

    /// Whether dead letters wait for a sync.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced > 0
    }

    /// All dead letters are durable.
    pub(super) fn synced(&mut self) {
        self.unsynced = 0;
    }

    /// Releases finished records at the front, and passes the partition and offset of those in the topic to `passed`.
    /// Call it only when dead letters are durable.
    pub(super) fn pop_done(&mut self, mut passed: impl FnMut(u32, i64)) -> Done {
        debug_assert!(
            !self.is_unsynced(),
            "the position would pass a dead letter that can be lost"
        );
        let mut done = Done::default();
        while let Some((entry, state)) = self.entries.front()
            && !matches!(state, State::Open | State::Deferred)
        {
            done.records += 1;
            done.bytes += entry.body_bytes as u64;
            done.dead += u64::from(*state == State::Dead);
            if let State::Acknowledged(Some(offset)) = state {
                passed(entry.partition, *offset);
            }
            self.bytes -= entry.body_bytes;
            self.base += 1;
            self.entries.pop_front();
        }
        done
    }

    /// The session has ended: forgets unanswered records, and remembers finished ones after them.
    pub(super) fn reset(&mut self) {
        let is_synced = !self.is_unsynced();
        for (entry, state) in self.entries.drain(..) {
            self.base += 1;
            // A dead letter that may be lost is buried again: its line may then appear twice.
            if matches!(state, State::Acknowledged(_)) || (state == State::Dead && is_synced) {
                self.ahead.insert(entry.offset, state);
            }
        }
        (self.bytes, self.open, self.unsynced) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64) -> Entry {
        Entry { offset, partition: 0, time_us: offset, body_bytes: 10 }
    }

    /// Purpose: the position never passes a record without an answer, in whatever order the answers come.
    #[test]
    fn answers_out_of_order() {
        let mut window = Window::default();
        let numbers: Vec<_> = (0..4).map(|at| window.push_read(entry(at)).expect("new")).collect();
        window.acknowledge(numbers[2], 7);
        window.acknowledge(numbers[1], 7);
        assert_eq!(window.pop_done(|_, _| {}), Done::default());
        assert_eq!((window.first_offset(), window.open()), (Some(0), 2));
        window.acknowledge(numbers[0], 7);
        // Acknowledged twice, counted once.
        window.acknowledge(numbers[0], 7);
        assert_eq!(window.pop_done(|_, _| {}), Done { records: 3, bytes: 30, dead: 0 });
        assert_eq!((window.first_offset(), window.open(), window.bytes()), (Some(3), 1, 10));
        window.bury(numbers[3]);
        assert!(window.is_unsynced());
        window.synced();
        assert_eq!(window.pop_done(|_, _| {}), Done { records: 1, bytes: 10, dead: 1 });
        assert!(window.is_empty());
    }

    /// Purpose: after a session has ended, what was acknowledged behind a gap is neither sent nor counted twice.
    #[test]
    fn acknowledged_ahead() {
        let mut window = Window::default();
        let numbers: Vec<_> = (0..3).map(|at| window.push_read(entry(at)).expect("new")).collect();
        window.acknowledge(numbers[1], 7);
        window.reset();
        assert_eq!((window.open(), window.bytes(), window.first_offset()), (0, 0, None));
        assert!(window.is_empty());
        // An answer from the previous session does not apply to a record of this one.
        window.acknowledge(numbers[0], 7);
        let again = window.push_read(entry(0)).expect("it has no answer");
        assert_eq!(window.push_read(entry(1)), None);
        assert!(window.push_read(entry(2)).is_some());
        window.acknowledge(again, 7);
        assert_eq!(window.pop_done(|_, _| {}), Done { records: 2, bytes: 20, dead: 0 });
        assert_eq!(window.first_offset(), Some(2));
    }

    /// Purpose: what a session leaves to the next one holds the position, and what it buried meanwhile stays buried.
    #[test]
    fn deferred() {
        let mut window = Window::default();
        window.push_deferred(entry(0));
        let number = window.push_read(entry(1)).expect("new");
        assert_eq!(window.open(), 1);
        window.bury(number);
        window.synced();
        assert_eq!(window.pop_done(|_, _| {}), Done::default());
        window.reset();
        let sent = window.push_read(entry(0)).expect("it was not sent");
        assert_eq!(window.push_read(entry(1)), None);
        window.acknowledge(sent, 7);
        assert_eq!(window.pop_done(|_, _| {}), Done { records: 2, bytes: 20, dead: 1 });
    }

    /// Purpose: a dead letter that was never synced does not count after the session.
    #[test]
    fn unsynced_dead_letters_are_forgotten() {
        let mut window = Window::default();
        let number = window.push_read(entry(0)).expect("new");
        window.bury(number);
        window.reset();
        assert!(window.push_read(entry(0)).is_some());
    }
}
