//! Which deadlines have passed? A hierarchical timing wheel for the deadlines of one worker (G.
//! Varghese and T. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987, scheme 7).
//!
//! It stores tokens by deadline and hands back those whose deadline has passed. It reads no clock
//! and does not know what a token means (for example a connection's slot and generation).
//!
//! **Promises.** [`Wheel::expire`] never hands out a token before its deadline, and never misses
//! one whose deadline is [`TICK`] or more in the past. Inserting takes constant time and, once the
//! wheel has held as many entries as it ever will at one time, no allocation.
//!
//! **There is no cancelling: the worker cancels lazily.** It keeps each connection's true deadline
//! in the connection. A token may come back although the deadline has moved on since, as it does
//! with every request: then the worker inserts the token again for the true deadline. If the
//! connection is gone, the generation in the token says so. So the common case, a deadline that
//! moves further away, costs nothing. In return the worker must keep at most a few entries for each
//! token: that bounds the memory, at 24 bytes an entry. A deadline that moves *closer* needs a
//! second entry.
//!
//! **How it works.** Level 0 has a slot for each of the next 64 ticks, level 1 for each of the next
//! 64 × 64, and so on. Seven levels hold every possible instant. An entry waits in the slot of the
//! highest digit (in base 64) in which its tick differs from `elapsed`. It moves to a lower level
//! when that slot's time comes: at most six times.
//!
//! ```text
//!              digit 6 … digit 2      digit 1           digit 0
//!  elapsed  =     0    …    0            5                 17
//!  entry at       0    …    0            5                 20   → level 0, slot 20: is due then
//!  entry at       0    …    0            9                  3   → level 1, slot 9: moves down then
//! ```
//!
//! Invariants: an entry in slot `s` of level `n` agrees with `elapsed` in all digits above `n`, and
//! `s` is larger than `elapsed`'s digit `n`. Hence everything on a level is due before anything on
//! the next, and within a level slots are due in order.

use alloc::vec::Vec;
use core::time::Duration;

use crate::time::Instant;

/// The resolution, and how late a token may come: 2²³ ns, about 8.4 ms.
///
/// The deadlines of a connection are seconds. A coarse tick lets many of them share one wake-up: an
/// idle worker wakes at most 119 times per second, whatever it holds.
pub const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);

const TICK_BITS: u32 = 23;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// A tick number has up to 64 − 23 bits, and one more if it was rounded up: seven digits.
const LEVELS: usize = 7;
const _: () = assert!(LEVELS as u32 * SLOT_BITS > u64::BITS - TICK_BITS);

/// Tokens by deadline.
#[derive(Debug)]
pub struct Wheel {
    levels: [Level; LEVELS],
    /// Entries whose deadline had already come when they were inserted.
    overdue: List,
    /// All entries; those not in any list are chained from `free`.
    entries: Vec<Entry>,
    free: List,
    len: usize,
    /// The last tick that has been expired.
    elapsed: u64,
    /// The first tick of the slot whose time comes first; `MAX` if there is no entry. A worker asks for it in each turn.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    slots: [List; SLOTS],
    /// Bit `s` is set if slot `s` is not empty.
    occupied: u64,
}

/// A singly linked list through [`Wheel::entries`], by the index of its first.
type List = Option<Index>;

#[derive(Clone, Copy, Debug)]
struct Index(u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    tick: u64,
    token: u64,
    next: List,
}

impl Wheel {
    /// A wheel without entries that begins at `now`.
    pub fn new(now: Instant) -> Self {
        Wheel {
            levels: [Level { slots: [None; SLOTS], occupied: 0 }; LEVELS],
            overdue: None,
            entries: Vec::new(),
            free: None,
            len: 0,
            elapsed: now.as_nanos() >> TICK_BITS,
            next: u64::MAX,
        }
    }

    /// How many entries are stored.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is stored.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores `token`. The first [`Wheel::expire`] a tick or more after `deadline` hands it out,
    /// once; an earlier one may, but none before `deadline`. A deadline in the past is due at once.
    ///
    /// [`Instant::MAX`] means never: nothing is stored.
    pub fn insert(&mut self, deadline: Instant, token: u64) {
        if deadline == Instant::MAX {
            return;
        }
        let tick = deadline.as_nanos().div_ceil(TICK.as_nanos() as u64);
        let entry = self.allocate(tick, token);
        self.place(entry, tick);
        self.len += 1;
    }

    /// Removes and hands out every token that is due at `now`. Those of one call come in no
    /// particular order. If `now` is earlier than before, only what was overdue anyway comes.
    pub fn expire(&mut self, now: Instant, on_due: &mut impl FnMut(u64)) {
        let target = now.as_nanos() >> TICK_BITS;
        let overdue = self.overdue.take();
        self.drain(overdue, target.max(self.elapsed), on_due);
        while let Some((level, slot, start)) = self.soonest() {
            if start > target {
                break;
            }
            self.elapsed = start;
            self.levels[level].occupied &= !(1 << slot);
            let list = self.levels[level].slots[slot].take();
            self.drain(list, target, on_due);
        }
        // Nothing is left that starts at or before `target`, so every remaining entry agrees with
        // it in the digits above its level, as it did with the old `elapsed`.
        self.elapsed = self.elapsed.max(target);
        self.next = match self.overdue {
            Some(_) => self.elapsed,
            None => self.soonest().map_or(u64::MAX, |(_, _, start)| start),
        };
    }

    /// Whether [`Wheel::expire`] may have something to do at `now`: if not, that call changes nothing. Most turns of a
    /// worker lie within one [`TICK`].
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.overdue.is_some() || now.as_nanos() >> TICK_BITS > self.elapsed
    }

    /// When to call [`Wheel::expire`] next; `None` if the wheel is empty.
    ///
    /// It is never later than the earliest deadline plus one [`TICK`]. It may be earlier than the
    /// deadline (when an entry moves to a lower level), but an `expire` at that instant always makes
    /// progress, so waiting for it again and again ends after at most seven waits for one entry.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        (self.next != u64::MAX).then(|| instant_of(self.next))
    }

    /// The occupied slot whose time comes first: its level, its index, its first tick.
    fn soonest(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros();
        let shift = level as u32 * SLOT_BITS;
        let above = self.elapsed >> (shift + SLOT_BITS) << SLOT_BITS;
        Some((level, slot as usize, (above | u64::from(slot)) << shift))
    }

    /// Hands out the tokens that are due at `target`, and puts the others into the list where they now belong.
    fn drain(&mut self, mut list: List, target: u64, on_due: &mut impl FnMut(u64)) {
        while let Some(index) = list {
            let entry = self.entries[index.0 as usize];
            list = entry.next;
            if entry.tick > target {
                self.place(index, entry.tick);
                continue;
            }
            self.entries[index.0 as usize].next = self.free.replace(index);
            self.len -= 1;
            on_due(entry.token);
        }
    }

    /// Puts an entry into the list where it belongs as seen from `elapsed`.
    fn place(&mut self, index: Index, tick: u64) {
        let (list, start) = if tick <= self.elapsed {
            (&mut self.overdue, self.elapsed)
        } else {
            let level = (tick ^ self.elapsed).ilog2() / SLOT_BITS;
            let shift = level * SLOT_BITS;
            let start = tick >> shift;
            let slot = start as usize % SLOTS;
            let level = &mut self.levels[level as usize];
            level.occupied |= 1 << slot;
            (&mut level.slots[slot], start << shift)
        };
        self.next = self.next.min(start);
        self.entries[index.0 as usize].next = list.replace(index);
    }

    fn allocate(&mut self, tick: u64, token: u64) -> Index {
        let entry = Entry { tick, token, next: None };
        if let Some(index) = self.free {
            self.free = self.entries[index.0 as usize].next;
            self.entries[index.0 as usize] = entry;
            return index;
        }
        let index = u32::try_from(self.entries.len())
            .expect("a worker has at most 2³² connections, and few entries for each");
        self.entries.push(entry);
        Index(index)
    }
}

fn instant_of(tick: u64) -> Instant {
    // Only a deadline less than a tick before the end of time rounds up to more than 64 bits.
    Instant::from_nanos(tick.saturating_mul(1 << TICK_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn expired(wheel: &mut Wheel, now: Instant) -> Vec<u64> {
        let mut tokens = Vec::new();
        wheel.expire(now, &mut |token| tokens.push(token));
        tokens.sort_unstable();
        tokens
    }

    /// Purpose: a nanosecond before the deadline nothing fires; a tick after it, everything does.
    #[test]
    fn never_early_and_at_most_a_tick_late() {
        let deadline = at(10 * SECOND + 1);
        let mut wheel = Wheel::new(at(0));
        wheel.insert(deadline, 1);
        assert_eq!(expired(&mut wheel, at(10 * SECOND)), []);
        assert_eq!(expired(&mut wheel, deadline + TICK), [1]);
        assert!(wheel.is_empty());
        assert_eq!(wheel.next(), None);
    }

    /// Purpose: a token overdue when inserted fires on the next call, even within the same tick and
    /// even if the clock has gone back.
    #[test]
    fn the_past_is_due_at_once() {
        let mut wheel = Wheel::new(at(SECOND));
        wheel.insert(at(5), 1);
        assert!(wheel.next().is_some_and(|next| next <= at(SECOND)));
        assert_eq!(expired(&mut wheel, at(SECOND)), [1]);
        wheel.insert(at(SECOND / 2), 2);
        wheel.insert(at(2 * SECOND), 3);
        assert_eq!(expired(&mut wheel, at(SECOND / 4)), [2]);
        assert_eq!(expired(&mut wheel, at(3 * SECOND)), [3]);
    }

    /// Purpose: "never" takes no memory, and the last instants before it are held without overflow.
    #[test]
    fn the_end_of_time() {
        let mut wheel = Wheel::new(at(0));
        wheel.insert(Instant::MAX, 1);
        assert!(wheel.is_empty());
        wheel.insert(at(u64::MAX - 1), 2);
        assert_eq!(wheel.len(), 1);
        assert_eq!(expired(&mut wheel, at(u64::MAX / 2)), []);
        assert!(wheel.next().is_some());
        assert_eq!(expired(&mut wheel, at(u64::MAX - TICK.as_nanos() as u64)), []);
        assert_eq!(wheel.next(), Some(Instant::MAX));
    }

    /// Purpose: a worker that sleeps until `next` wakes a bounded number of times for one deadline.
    #[test]
    fn waiting_for_next_does_not_spin() {
        for deadline in [1, 8_388_608, SECOND, 10 * SECOND, 3600 * SECOND, u64::MAX / 3] {
            let start = at(123_456_789);
            let mut wheel = Wheel::new(start);
            wheel.insert(start + Duration::from_nanos(deadline), 9);
            let mut wakes = 0;
            let mut now = start;
            while let Some(next) = wheel.next() {
                assert!(next > now, "asks to be woken at {next:?}, which is not after {now:?}");
                now = next;
                wakes += 1;
                expired(&mut wheel, now);
            }
            assert!(wakes <= LEVELS, "{wakes} wake-ups for a deadline in {deadline} ns");
            assert!(now <= start + Duration::from_nanos(deadline) + TICK);
        }
    }

    /// Purpose: entries are reused, so steady use needs no more memory than the peak.
    #[test]
    fn steady_use_does_not_grow() {
        let mut wheel = Wheel::new(at(0));
        let mut now = at(0);
        for token in 0..100 {
            wheel.insert(now + Duration::from_secs(token), token);
        }
        let capacity = wheel.entries.capacity();
        for _ in 0..1000 {
            now += Duration::from_millis(700);
            for token in expired(&mut wheel, now) {
                wheel.insert(now + Duration::from_secs(100), token);
            }
            assert_eq!((wheel.len(), wheel.entries.len()), (100, 100));
        }
        assert_eq!(wheel.entries.capacity(), capacity);
    }

    /// The wheel's specification, without a wheel: a map from deadline to tokens.
    #[derive(Default)]
    struct Model {
        pending: BTreeMap<Instant, Vec<u64>>,
    }

    impl Model {
        fn take(&mut self, deadline: Instant, token: u64) -> bool {
            let Some(tokens) = self.pending.get_mut(&deadline) else {
                return false;
            };
            let Some(place) = tokens.iter().position(|&t| t == token) else {
                return false;
            };
            tokens.swap_remove(place);
            if tokens.is_empty() {
                self.pending.remove(&deadline);
            }
            true
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { delay: u64 },
        InsertPast { ago: u64 },
        Advance { by: u64 },
        SleepUntilNext,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let delay = prop_oneof![
            0..20_000_000_u64,
            0..60 * SECOND,
            0..100 * 3600 * SECOND,
            (0..60_u32).prop_map(|bits| 1 << bits),
        ];
        let step = prop_oneof![
            5 => delay.clone().prop_map(|delay| Step::Insert { delay }),
            1 => (0..SECOND).prop_map(|ago| Step::InsertPast { ago }),
            3 => (0..30_000_000_u64).prop_map(|by| Step::Advance { by }),
            1 => delay.prop_map(|by| Step::Advance { by }),
            3 => Just(Step::SleepUntilNext),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Purpose: against the map, whatever the clock does (jumps of hours and more included):
        /// never early, at most a tick late, each token once, and `next` in time for the first.
        #[test]
        fn agrees_with_an_ordered_map(begin in 0..1_u64 << 50, steps in steps()) {
            let mut now = at(begin);
            let mut wheel = Wheel::new(now);
            let mut model = Model::default();
            let mut deadlines = vec![];
            for step in steps {
                let inserted = match step {
                    Step::Insert { delay } => Some(now + Duration::from_nanos(delay)),
                    Step::InsertPast { ago } => Some(at(now.as_nanos().saturating_sub(ago))),
                    Step::Advance { by } => { now += Duration::from_nanos(by); None }
                    Step::SleepUntilNext => { now = wheel.next().map_or(now, |next| next.max(now)); None }
                };
                if let Some(deadline) = inserted {
                    let token = deadlines.len() as u64;
                    deadlines.push(deadline);
                    wheel.insert(deadline, token);
                    model.pending.entry(deadline).or_default().push(token);
                } else {
                    for token in expired(&mut wheel, now) {
                        let deadline = deadlines[token as usize];
                        prop_assert!(deadline <= now, "{token} came before its deadline");
                        prop_assert!(model.take(deadline, token), "{token} came twice");
                    }
                }
                let first = model.pending.keys().next().copied();
                if let (Some(first), None) = (first, inserted) {
                    prop_assert!(first + TICK > now, "a deadline of {first:?} was missed at {now:?}");
                }
                prop_assert_eq!(wheel.len(), model.pending.values().map(Vec::len).sum::<usize>());
                prop_assert_eq!(wheel.next().is_some(), first.is_some());
                if let (Some(next), Some(first)) = (wheel.next(), first) {
                    prop_assert!(next > now || first <= now, "wakes at {now:?} for nothing");
                    prop_assert!(next < first + TICK || next <= now, "{next:?} is too late for {first:?}");
                }
            }
        }
    }
}
