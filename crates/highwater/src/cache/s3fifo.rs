//! Which answers to keep when there is not enough room: S3-FIFO.
//!
//! (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023.)
//!
//! ```text
//!              unknown            asked for again meanwhile
//!   new ──▶ small (a tenth) ────────────────────────▶ main ──▶ at its end: once more if still hot,
//!    │            └─ not asked for again ─▶ gone       ▲       else gone
//!    │                          its hash ─▶ ghosts     │
//!    └──────── recently a ghost ───────────────────────┘
//! ```
//!
//! Most keys are requested once. They pass through `small` and never touch `main`, so an endless
//! stream of them displaces only each other. Finding is O(1), and so is inserting, amortized: each
//! answer leaves `small` once, and `main` spares at most [`CHANCES_MAX`] of its answers for one
//! that it removes.
//!
//! Invariants: every kept hash stands in exactly one of the two queues, once. The number of answers
//! and their bytes are within the limits between any two calls.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::sync::{Arc, AtomicU8};

/// The largest heat of an answer: how many rounds through `main` it survives without being
/// requested. Three as in the paper; with more, answers that were popular long ago stay too long.
const HEAT_MAX: u8 = 3;

/// How many hot answers of `main` one removal may spare before it removes the next one anyway. A
/// guess; without it, one insertion could walk through all of `main` three times.
const CHANCES_MAX: usize = 16;

/// `small` holds one part in this many of the whole, as in the paper.
const SMALL_PART: usize = 10;

/// The overhead that an answer is charged beyond its key and its bytes: the slot, two queue places,
/// the overhead of the allocations. An estimate.
const OVERHEAD_BYTES: usize = 160;

/// How often an answer was requested lately. Shared with the threads that keep a copy of the
/// answer, so that their hits keep the original warm.
#[derive(Clone)]
pub(super) struct Heat(Arc<AtomicU8>);

impl Heat {
    fn new() -> Self {
        Heat(Arc::new(AtomicU8::new(0)))
    }

    /// Counts a request. For a hot answer this is only a load, so a hit in a thread's own table
    /// writes nothing that other threads read.
    #[inline]
    pub(super) fn warm(&self) {
        let heat = self.0.load(Ordering::Relaxed);
        if heat < HEAT_MAX {
            // Two threads at once may add only one; heat is an estimate.
            self.0.store(heat + 1, Ordering::Relaxed);
        }
    }

    /// Cools by one. `false` if it was cold already.
    fn cool(&self) -> bool {
        let heat = self.0.load(Ordering::Relaxed);
        self.0.store(heat.saturating_sub(1), Ordering::Relaxed);
        heat > 0
    }
}

/// An answer, as the cache returns it.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) version: u64,
    pub(super) bytes: Bytes,
    pub(super) heat: Heat,
}

struct Slot<K> {
    key: K,
    queue: Queue,
    /// The charge for the answer.
    size: usize,
    answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

/// The size of a key: the key itself, or the data that it points to if that is more. The size of a
/// `String` type says nothing about its text; but hashing reads all of the text.
fn key_bytes<Q: Hash + ?Sized>(key: &Q) -> usize {
    let mut pointed_to = Slices(0);
    key.hash(&mut pointed_to);
    size_of_val(key).max(pointed_to.0)
}

/// Counts the bytes of the slices that are hashed. Numbers are part of the key itself.
struct Slices(usize);

impl Hasher for Slices {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn write_u8(&mut self, _: u8) {}
    fn write_u16(&mut self, _: u16) {}
    fn write_u32(&mut self, _: u32) {}
    fn write_u64(&mut self, _: u64) {}
    fn write_u128(&mut self, _: u128) {}
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        0
    }
}

/// A bounded table of answers, found by their key's hash. The hash has 64 bits and is keyed at
/// random, so two keys under one hash hardly occur; if they do, they displace each other.
pub(super) struct S3Fifo<K> {
    slots: HashMap<u64, Slot<K>>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: Ghosts,
    bytes: usize,
    /// The part of `bytes` that is in `small`.
    small_bytes: usize,
    answers_max: usize,
    bytes_max: usize,
}

impl<K> S3Fifo<K> {
    pub(super) fn new(answers_max: usize, bytes_max: usize) -> Self {
        S3Fifo {
            slots: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(answers_max),
            bytes: 0,
            small_bytes: 0,
            answers_max,
            bytes_max,
        }
    }

    /// How many answers there are, and their total charge in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.slots.len(), self.bytes)
    }

    /// The answer for `key`, if it is of `version` or later.
    pub(super) fn find<Q>(&self, hash: u64, key: &Q, version: u64) -> Option<Answer>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slot = self.slots.get(&hash)?;
        if slot.key.borrow() != key || slot.answer.version < version {
            return None;
        }
        slot.answer.heat.warm();
        Some(slot.answer.clone())
    }

    /// Stores an answer, unless there is a newer one for `key`, or it is larger than the whole
    /// limit.
    ///
    /// It replaces an older answer for `key` in the same place: an answer that was hot at one
    /// version is hot at the next.
    pub(super) fn insert<Q>(&mut self, hash: u64, key: &Q, version: u64, bytes: Bytes)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let size = key_bytes(key) + bytes.len() + OVERHEAD_BYTES;
        let present = self.slots.get(&hash);
        let same = present.is_some_and(|slot| slot.key.borrow() == key);
        if same && present.is_some_and(|slot| slot.answer.version >= version) {
            return;
        }
        if size > self.bytes_max {
            return;
        }
        let (queue, heat) = match present {
            Some(slot) if same => (slot.queue, slot.answer.heat.clone()),
            Some(slot) => (slot.queue, Heat::new()),
            None => (self.enqueue(hash), Heat::new()),
        };
        let answer = Answer { version, bytes, heat };
        let slot = Slot { key: key.to_owned(), queue, size, answer };
        self.charge(&slot);
        if let Some(replaced) = self.slots.insert(hash, slot) {
            self.discharge(&replaced);
        }
        while self.slots.len() > self.answers_max || self.bytes > self.bytes_max {
            self.remove_one();
        }
    }

    /// Gives a new hash its place in one of the queues.
    fn enqueue(&mut self, hash: u64) -> Queue {
        if self.ghosts.remove(hash) {
            self.main.push_back(hash);
            Queue::Main
        } else {
            self.small.push_back(hash);
            Queue::Small
        }
    }

    /// Removes the next answer in line, after moving on hot ones before it.
    fn remove_one(&mut self) {
        let mut chances = CHANCES_MAX;
        loop {
            let from_small = self.main.is_empty()
                || self.small.len() > self.answers_max / SMALL_PART
                || self.small_bytes > self.bytes_max / SMALL_PART;
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let Some(hash) = queue.pop_front() else { return };
            let Some(mut slot) = self.slots.remove(&hash) else { return };
            self.discharge(&slot);
            let spared = slot.answer.heat.cool() && (from_small || chances > 0);
            if !spared {
                if from_small {
                    self.ghosts.insert(hash);
                }
                return;
            }
            if !from_small {
                chances -= 1;
            }
            slot.queue = Queue::Main;
            self.main.push_back(hash);
            self.charge(&slot);
            self.slots.insert(hash, slot);
        }
    }

    fn charge(&mut self, slot: &Slot<K>) {
        self.bytes += slot.size;
        if slot.queue == Queue::Small {
            self.small_bytes += slot.size;
        }
    }

    fn discharge(&mut self, slot: &Slot<K>) {
        self.bytes -= slot.size;
        if slot.queue == Queue::Small {
            self.small_bytes -= slot.size;
        }
    }
}

/// The latest hashes of answers that passed through `small` and were not requested again.
struct Ghosts {
    order: VecDeque<u64>,
    present: HashSet<u64>,
    max: usize,
}

impl Ghosts {
    fn new(max: usize) -> Self {
        Ghosts { order: VecDeque::new(), present: HashSet::new(), max }
    }

    fn insert(&mut self, hash: u64) {
        if !self.present.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.present.remove(&oldest);
        }
    }

    /// Whether the hash was there. Its place in the order stays until its turn comes.
    fn remove(&mut self, hash: u64) -> bool {
        self.present.remove(&hash)
    }
}
