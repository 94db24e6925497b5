//! Which keys are known, and in which state are they?
//!
//! ```text
//!            begin ──▶ under way ──finish──▶ answered ──▶ forgotten, after the lifetime
//!                       │     │
//!                 release     interrupt ──▶ unknown ────▶ forgotten, after the lifetime
//! ```
//!
//! Time is an argument, in microseconds since 1970. A key whose handler runs is never forgotten, however long that takes. Nothing is
//! forgotten before its time to make room for others: then the same request could be applied twice. So a full table takes no new
//! keys. So that answers do not take the room of keys, whole ones take at most half of the bytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::kept::Kept;

/// What a key takes besides its bytes, about.
const OVERHEAD: usize = 192;

/// A scope, and the client's key within it.
pub(super) type Key = Arc<[u8]>;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) lifetime_us: u64,
    pub(super) keys_max: usize,
    pub(super) bytes_max: usize,
}

/// What a request with a key is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// It is the first: its handler may run.
    New,
    /// The same request is under way.
    UnderWay,
    /// The same request was interrupted, and nobody knows whether it was applied.
    Unknown,
    /// The key belongs to another request.
    Other,
    /// The same request was answered.
    Answered(Arc<Kept>),
    /// There is no room for a new key.
    Full,
}

#[derive(Debug)]
struct Entry {
    fingerprint: u128,
    /// When it is forgotten, and a number that tells it from others of that time.
    due: (u64, u64),
    state: State,
}

#[derive(Debug)]
enum State {
    UnderWay,
    Unknown,
    Answered(Arc<Kept>),
}

/// The keys.
#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    entries: HashMap<Key, Entry>,
    /// Which is forgotten next.
    dues: BTreeSet<((u64, u64), Key)>,
    last_number: u64,
    /// What keys and answers take, and answers alone.
    bytes: usize,
    answer_bytes: usize,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Table {
            limits,
            entries: HashMap::new(),
            dues: BTreeSet::new(),
            last_number: 0,
            bytes: 0,
            answer_bytes: 0,
        }
    }

    /// A request with this key has come. If it is [`Begin::New`], its key is under way from now on.
    pub(super) fn begin(&mut self, key: &Key, fingerprint: u128, now: u64) -> Begin {
        self.forget_old(now);
        match self.entries.get(key) {
            Some(entry) if entry.fingerprint != fingerprint => Begin::Other,
            Some(entry) => match &entry.state {
                State::UnderWay => Begin::UnderWay,
                State::Unknown => Begin::Unknown,
                State::Answered(kept) => Begin::Answered(Arc::clone(kept)),
            },
            None if !self.has_room(key) => Begin::Full,
            None => {
                self.put(key, fingerprint, now, State::UnderWay);
                Begin::New
            }
        }
    }

    /// A request was answered. Returns what is kept of the answer: if there is no room, its status only.
    pub(super) fn finish(
        &mut self,
        key: &Key,
        fingerprint: u128,
        kept: Kept,
        now: u64,
    ) -> Arc<Kept> {
        self.remove(key);
        let room = self.limits.bytes_max.saturating_sub(self.bytes);
        let of_answers = (self.limits.bytes_max / 2).saturating_sub(self.answer_bytes);
        let fits = cost(key).saturating_add(kept.bytes()) <= room && kept.bytes() <= of_answers;
        let kept = Arc::new(if fits { kept } else { Kept::Status(kept.status()) });
        self.put(key, fingerprint, now, State::Answered(Arc::clone(&kept)));
        kept
    }

    /// The handler did not run to its end, or the process that ran it is gone.
    pub(super) fn interrupt(&mut self, key: &Key, fingerprint: u128, now: u64) {
        self.remove(key);
        self.put(key, fingerprint, now, State::Unknown);
    }

    /// Nothing was applied: the key is free.
    pub(super) fn release(&mut self, key: &Key) {
        self.remove(key);
    }

    /// Whether what happened at `time` is forgotten by now.
    #[cfg(feature = "journal")]
    pub(super) fn is_old(&self, time: u64, now: u64) -> bool {
        time.saturating_add(self.limits.lifetime_us) <= now
    }

    /// Forgets what is older than the lifetime, but for keys under way.
    fn forget_old(&mut self, now: u64) {
        while let Some((due, _)) = self.dues.first()
            && due.0 <= now
        {
            let Some((_, key)) = self.dues.pop_first() else { return };
            let is_under_way = |entry: &&mut Entry| matches!(entry.state, State::UnderWay);
            if let Some(entry) = self.entries.get_mut(&key).filter(is_under_way) {
                self.last_number += 1;
                entry.due = (now.saturating_add(self.limits.lifetime_us), self.last_number);
                self.dues.insert((entry.due, key));
            } else {
                self.remove(&key);
            }
        }
    }

    /// How many keys there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn has_room(&self, key: &Key) -> bool {
        self.entries.len() < self.limits.keys_max && self.bytes + cost(key) <= self.limits.bytes_max
    }

    fn put(&mut self, key: &Key, fingerprint: u128, now: u64, state: State) {
        self.last_number += 1;
        let due = (now.saturating_add(self.limits.lifetime_us), self.last_number);
        self.bytes += cost(key) + state.bytes();
        self.answer_bytes += state.bytes();
        self.dues.insert((due, Arc::clone(key)));
        self.entries.insert(Arc::clone(key), Entry { fingerprint, due, state });
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= cost(key) + entry.state.bytes();
        self.answer_bytes -= entry.state.bytes();
        self.dues.remove(&(entry.due, Arc::clone(key)));
    }
}

impl State {
    fn bytes(&self) -> usize {
        match self {
            State::Answered(kept) => kept.bytes(),
            State::UnderWay | State::Unknown => 0,
        }
    }
}

/// What a key takes without its answer.
fn cost(key: &Key) -> usize {
    key.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use http::StatusCode;
    use proptest::prelude::*;

    use super::super::kept::Answer;
    use super::*;

    const LIFETIME: u64 = 100;

    fn table(keys_max: usize, bytes_max: usize) -> Table {
        Table::new(Limits { lifetime_us: LIFETIME, keys_max, bytes_max })
    }

    fn key(name: u8) -> Key {
        Arc::from([name])
    }

    fn answer(bytes: usize) -> Kept {
        let content = Bytes::from(vec![b'x'; bytes]);
        Kept::Whole(Answer { status: StatusCode::OK, fields: Vec::new(), content })
    }

    /// Purpose: at each limit, n − 1, n and n + 1 keys; and what is refused beyond it has a place again later.
    #[test]
    fn full() {
        for (keys_max, bytes_max) in [(3, usize::MAX), (100, 3 * (OVERHEAD + 1))] {
            let mut table = table(keys_max, bytes_max);
            for name in 0..3 {
                assert_eq!(table.begin(&key(name), 1, 0), Begin::New, "{name}");
            }
            assert_eq!(table.begin(&key(3), 1, 0), Begin::Full);
            assert_eq!(table.begin(&key(2), 1, 0), Begin::UnderWay, "those that are there stay");
            table.release(&key(0));
            assert_eq!(table.begin(&key(3), 1, 0), Begin::New);
            table.interrupt(&key(1), 1, 0);
            assert_eq!(table.begin(&key(4), 1, LIFETIME - 1), Begin::Full);
            assert_eq!(table.begin(&key(4), 1, LIFETIME), Begin::New);
        }
    }

    /// Purpose: where the memory for answers ends, a key keeps its place, and its answer is its status.
    #[test]
    fn an_answer_without_room() {
        for (bytes, is_whole) in [(9, true), (10, true), (11, false)] {
            let mut table = table(10, OVERHEAD + 1 + 64 + 10);
            assert_eq!(table.begin(&key(1), 1, 0), Begin::New);
            let kept = table.finish(&key(1), 1, answer(bytes), 0);
            assert_eq!(*kept == answer(bytes), is_whole, "{bytes}");
            assert_eq!(table.begin(&key(1), 1, 0), Begin::Answered(kept));
        }
    }

    /// Purpose: answers take at most half of the bytes, at the bound and beyond it, so that keys have room for as long as there are few
    /// enough; what is forgotten makes room for answers again.
    #[test]
    fn answers_leave_room_for_keys() {
        let size = 1000;
        let whole = answer(size - 64);
        let mut table = table(100, 6 * size);
        for name in 0..10 {
            assert_eq!(table.begin(&key(name), 1, 0), Begin::New, "{name}");
            let kept = table.finish(&key(name), 1, whole.clone(), 0);
            assert_eq!(*kept == whole, name < 3, "{name}");
            assert_eq!(table.begin(&key(name), 1, 0), Begin::Answered(kept));
        }
        assert_eq!(table.begin(&key(10), 1, LIFETIME), Begin::New);
        assert_eq!(*table.finish(&key(10), 1, whole.clone(), LIFETIME), whole);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u8, u128),
        Finish(u8),
        Interrupt(u8),
        Release(u8),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let name = 0u8..4;
        let step = prop_oneof![
            6 => (name.clone(), 1u128..3).prop_map(|(name, print)| Step::Begin(name, print)),
            3 => name.clone().prop_map(Step::Finish),
            1 => name.clone().prop_map(Step::Interrupt),
            1 => name.prop_map(Step::Release),
            2 => (0u64..80).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 1..80)
    }

    /// What a key was told last, and when: a history, in place of a table.
    #[derive(Clone, Debug)]
    struct Past {
        print: u128,
        since: u64,
        decision: Begin,
    }

    proptest! {
        /// Purpose: whatever happens, a request is new only if nothing of its key is under way, unknown or answered within
        /// the lifetime, by a history of all keys.
        #[test]
        fn never_twice(steps in steps(), keys_max in 2usize..5) {
            let mut table = table(keys_max, usize::MAX);
            let mut past: BTreeMap<u8, Past> = BTreeMap::new();
            let mut now = 0;
            for step in steps {
                past.retain(|_, past| past.decision == Begin::UnderWay || now < past.since + LIFETIME);
                match step {
                    Step::Wait(time) => now += time,
                    Step::Begin(name, print) => {
                        let expected = match past.get(&name) {
                            Some(past) if past.print != print => Begin::Other,
                            Some(past) => past.decision.clone(),
                            None if past.len() >= keys_max => Begin::Full,
                            None => Begin::New,
                        };
                        let decision = table.begin(&key(name), print, now);
                        prop_assert_eq!(&decision, &expected);
                        if decision == Begin::New {
                            past.insert(name, Past { print, since: now, decision: Begin::UnderWay });
                        }
                        prop_assert_eq!(table.len(), past.len());
                    }
                    // Only what is under way ends.
                    Step::Finish(name) | Step::Interrupt(name) | Step::Release(name)
                        if past.get(&name).is_none_or(|past| past.decision != Begin::UnderWay) => {}
                    Step::Finish(name) => {
                        let past = past.get_mut(&name).expect("it is under way");
                        let kept = table.finish(&key(name), past.print, answer(3), now);
                        *past = Past { since: now, decision: Begin::Answered(kept), print: past.print };
                    }
                    Step::Interrupt(name) => {
                        let past = past.get_mut(&name).expect("it is under way");
                        table.interrupt(&key(name), past.print, now);
                        *past = Past { since: now, decision: Begin::Unknown, print: past.print };
                    }
                    Step::Release(name) => {
                        table.release(&key(name));
                        past.remove(&name);
                    }
                }
                let counted: usize = table.entries.iter().map(|(key, entry)| cost(key) + entry.state.bytes()).sum();
                prop_assert_eq!(counted, table.bytes);
                let answers: usize = table.entries.values().map(|entry| entry.state.bytes()).sum();
                prop_assert_eq!(answers, table.answer_bytes);
                prop_assert_eq!(table.dues.len(), table.entries.len());
            }
        }
    }
}
