//! The parts of counters: a number with one writer, and the bounds of the histograms of durations.

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
/// From 5 µs, about what a plain request takes, to 10 s, the longest default deadline of a request's
/// head. Among them are the usual objectives of web services (100 ms, 500 ms, 1 s, 2.5 s, 5 s), and
/// 50 ms and 200 ms, which the overload tests are held to, so that all of these can be read off
/// exactly. Each is at least twice the one before: [`bucket`] relies on it.
pub(crate) const DURATION_BOUNDS: [u64; 20] = [
    5_000,
    10_000,
    25_000,
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
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// By the number of bits of a duration: the only bound that is of as many bits, or else the next
/// larger one. No two bounds have equally many bits, because each is at least twice the one before.
const BOUND_BY_BITS: [(u64, u8); u64::BITS as usize + 1] = {
    let mut table = [(u64::MAX, DURATION_BOUNDS.len() as u8); u64::BITS as usize + 1];
    let mut bits = 0;
    while bits < table.len() {
        let mut index = 0;
        while index < DURATION_BOUNDS.len() {
            let bound = DURATION_BOUNDS[index];
            assert!(index == 0 || bound >= 2 * DURATION_BOUNDS[index - 1], "see DURATION_BOUNDS");
            if (u64::BITS - bound.leading_zeros()) as usize >= bits {
                table[bits] = (bound, index as u8);
                break;
            }
            index += 1;
        }
        bits += 1;
    }
    table
};

/// The bucket that `nanos` falls into: the first whose bound is not below it. One comparison,
/// however many bounds there are.
#[inline]
pub(super) fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let (bound, index) = BOUND_BY_BITS[bits as usize];
    usize::from(index) + usize::from(nanos > bound)
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
