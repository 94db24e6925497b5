//! Counts of all records' outcomes so far.
//!
//! Each worker has its own counters, which no other thread writes to; readers add them up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::args::Ack;

/// One worker's counts, in records. Aligned to a cache line and more, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tally {
    /// Taken into the batcher.
    pub appended: AtomicU64,
    /// Confirmed by the sink.
    pub written: AtomicU64,
    /// Answered 503.
    pub refused: AtomicU64,
    /// When the oldest unconfirmed record was appended, in microseconds since 1970; 0: there is none.
    pub oldest_us: AtomicU64,
}

/// Adds to a count that only this thread writes to: without an atomic addition.
pub fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed) + more, Relaxed);
}

/// The counts of all workers.
#[derive(Debug)]
pub struct Counts {
    ack: Ack,
    workers: Mutex<Vec<Arc<Tally>>>,
    /// Undelivered records in the spool when it was opened.
    found: u64,
}

impl Counts {
    /// Empty counts, except for the records `found` undelivered in the spool.
    pub fn new(ack: Ack, found: u64) -> Counts {
        Counts { ack, workers: Mutex::default(), found }
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Arc<Tally>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters for another worker.
    pub fn worker(&self) -> Arc<Tally> {
        let tally = Arc::<Tally>::default();
        self.workers().push(Arc::clone(&tally));
        tally
    }

    fn sum(&self, count: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.workers().iter().map(|tally| count(tally).load(Relaxed)).sum()
    }

    /// Answered 202, or to be.
    pub fn accepted(&self) -> u64 {
        match self.ack {
            Ack::Memory => self.found + self.sum(|tally| &tally.appended),
            // Records not written yet may still be refused.
            Ack::Disk | Ack::Kafka => self.durable(),
        }
    }

    /// Confirmed by the sink.
    pub fn durable(&self) -> u64 {
        self.found + self.sum(|tally| &tally.written)
    }

    /// Answered 503.
    pub fn refused(&self) -> u64 {
        self.sum(|tally| &tally.refused)
    }

    /// When the oldest unconfirmed record was appended.
    pub fn oldest_us(&self) -> Option<u64> {
        let workers = self.workers();
        let all = workers.iter().map(|tally| tally.oldest_us.load(Relaxed));
        all.filter(|oldest| *oldest > 0).min()
    }
}
