//! The cache's counters. Each thread is the only writer of its own; [`Registry::totals`] adds them
//! up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The cache's activity so far, and its present size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests answered from the cache, or by a build of another thread.
    pub hits: u64,
    /// Answers that were built: how often `build` was called.
    pub misses: u64,
    /// How many answers are kept, not counting the threads' own copies.
    pub answers: usize,
    /// The total charge of the answers: their bytes, their keys' bytes, and the overhead of storing
    /// them.
    pub bytes: usize,
}

/// One thread's counts. On cache lines of their own: 128 bytes, since lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn count_hit(&self) {
        increment(&self.hits);
    }

    pub(super) fn count_miss(&self) {
        increment(&self.misses);
    }
}

/// Not a read-modify-write: the thread that owns a counter is the only one that writes it.
#[inline]
fn increment(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The counts of every thread that uses a cache, or has used it.
#[derive(Debug, Default)]
pub(super) struct Registry {
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    running: Vec<Arc<Counters>>,
    /// Hits and misses of threads that have ended.
    ended: (u64, u64),
}

impl Registry {
    /// Counters for a thread that begins to use the cache.
    pub(super) fn enlist(&self) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.locked(|threads| threads.running.push(Arc::clone(&counters)));
        counters
    }

    /// Called when the thread of these counters ends; its counts stay.
    pub(super) fn retire(&self, counters: &Arc<Counters>) {
        self.locked(|threads| {
            threads.running.retain(|running| !Arc::ptr_eq(running, counters));
            add(&mut threads.ended, counters);
        });
    }

    /// Hits and misses of all threads.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.locked(|threads| {
            let mut totals = threads.ended;
            threads.running.iter().for_each(|counters| add(&mut totals, counters));
            totals
        })
    }

    fn locked<T>(&self, with: impl FnOnce(&mut Threads) -> T) -> T {
        with(&mut self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn add(totals: &mut (u64, u64), counters: &Counters) {
    totals.0 += counters.hits.load(Ordering::Relaxed);
    totals.1 += counters.misses.load(Ordering::Relaxed);
}
