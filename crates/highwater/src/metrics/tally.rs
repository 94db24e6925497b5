//! What counters are made of: a number with one writer, and the bounds of the histograms of durations.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread writes and every thread may read.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    /// Adds without a locked instruction, which is right because nobody else writes.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Replaces the number.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The number, as its writer last left it.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the duration histogram's buckets in nanoseconds; the last bucket has none.
///
/// From 50 µs, about ten times what a plain request takes, to 10 s, the longest default deadline of
/// a request's head. Two of the bounds, 50 ms and 200 ms, are the figures that the overload tests
/// are held to, so that they can be read off exactly. Thirteen, so that an endpoint's counters fill
/// one pair of cache lines.
pub(crate) const DURATION_BOUNDS: [u64; 13] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    200_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// The bucket that `nanos` falls into: the first whose bound is not below it.
#[inline]
pub(super) fn bucket(nanos: u64) -> usize {
    DURATION_BOUNDS.iter().map(|&bound| usize::from(nanos > bound)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a bucket's bound belongs to the bucket, as Prometheus defines `le`.
    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(bucket(0), 0);
        for (index, &bound) in DURATION_BOUNDS.iter().enumerate() {
            assert_eq!(bucket(bound - 1), index);
            assert_eq!(bucket(bound), index);
            assert_eq!(bucket(bound + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), DURATION_BOUNDS.len());
    }
}
