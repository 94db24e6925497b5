//! How long did requests wait for their turn?
//!
//! Counted like all other values of a worker: one writer, no locked instruction. Only the minimum
//! is reset, by its reader.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::tally::{DURATION_BOUNDS, Tally, bucket};

/// How long requests waited between being ready and being started: a histogram, and the minimum
/// since it was last read.
#[derive(Debug)]
pub(crate) struct QueueDelay {
    /// Not cumulative; bounds as [`DURATION_BOUNDS`].
    pub(super) buckets: [Tally; DURATION_BOUNDS.len() + 1],
    /// Their sum.
    pub(crate) nanos: Tally,
    /// The minimum since [`QueueDelay::take_min`]; `u64::MAX` if there was none.
    nanos_min: AtomicU64,
}

impl Default for QueueDelay {
    fn default() -> Self {
        QueueDelay {
            buckets: Default::default(),
            nanos: Tally::default(),
            nanos_min: AtomicU64::new(u64::MAX),
        }
    }
}

impl QueueDelay {
    /// Records that `count` requests waited `nanos` each. Requests that were served at once in one
    /// turn need only one call.
    #[inline]
    pub(crate) fn record(&self, nanos: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.buckets[bucket(nanos)].add(count);
        self.nanos.add(count.saturating_mul(nanos));
        if nanos < self.nanos_min.load(Relaxed) {
            self.nanos_min.store(nanos, Relaxed);
        }
    }

    /// How many were recorded.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(Tally::get).sum()
    }

    /// The minimum since the last call, in nanoseconds. For one caller.
    pub(crate) fn take_min(&self) -> Option<u64> {
        Some(self.nanos_min.swap(u64::MAX, Relaxed)).filter(|&nanos| nanos != u64::MAX)
    }
}
