//! A log-linear histogram: the distribution of values, in a fixed amount of memory.
//!
//! Every octave is cut into 64 buckets of one width (the layout of HdrHistogram), so a bucket is
//! never wider than 1/64 of the values in it: a reported value is at most 1.6 % above the recorded
//! one, and values up to 127 are exact. Count, sum, minimum and maximum are always exact.
//!
//! It has no unit and no clock; latencies are best recorded in nanoseconds, which reaches
//! 18 minutes. Recording is a few instructions and never allocates; histograms of several workers
//! are merged without loss.
//!
//! Invariant: `count` is the sum of the buckets.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// The largest value with a bucket of its own: 2⁴⁰ − 1. Larger values are counted as this one,
/// except in the sum and the maximum, which stay exact.
pub const VALUE_MAX: u64 = (1 << 40) - 1;

/// How many buckets there are; at 8 bytes each a histogram holds 17.5 KiB.
pub const BUCKETS: usize = bucket_of(VALUE_MAX) + 1;

/// An octave has 2⁶ buckets: an error below 2 % needs six bits.
const PRECISION_BITS: u32 = 6;

/// A distribution of `u64` values.
#[derive(Clone)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// A histogram without values.
    pub fn new() -> Self {
        let zeros = vec![0; BUCKETS].into_boxed_slice();
        let buckets = zeros.try_into().expect("the slice was made with BUCKETS elements");
        Histogram { buckets, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Records `value` once.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records `value` `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.buckets[bucket_of(value)] += n;
        self.count += n;
        self.sum += u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds everything that `other` has recorded, as if it had been recorded here.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values were recorded.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values, exact.
    #[inline]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The smallest value, exact; `None` if there is none.
    #[inline]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, exact; `None` if there is none.
    #[inline]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The smallest reported value that at least the share `q` of all values does not exceed:
    /// 0.5 is the median, 1.0 the maximum. `None` if there are no values.
    ///
    /// If `v` is the value of that rank (nearest-rank definition), the result is between `v` and
    /// `v + v / 64`, and never beyond the maximum. A `q` outside 0 to 1 counts as the nearer end,
    /// and NaN as 0.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let max = self.max()?;
        let rank = rank_of(q, self.count);
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            // If the last bucket holds values beyond the range, even its top is not its largest
            // value. Only the maximum is known about them.
            if seen >= rank {
                return Some(if bucket == BUCKETS - 1 { max } else { bucket_top(bucket).min(max) });
            }
        }
        Some(max)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

/// The bucket that counts `value`.
///
/// Values up to 63 have one each. From there on, the leading seven bits of a value say its bucket
/// in the octave, and their distance from the right end says the octave.
#[inline]
const fn bucket_of(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    // Setting a low bit makes small values land in the first, exact octave without a branch.
    let magnitude = 63 - (value | 1 << PRECISION_BITS).leading_zeros();
    let octave = magnitude - PRECISION_BITS;
    ((octave as usize) << PRECISION_BITS) + (value >> octave) as usize
}

/// The largest value that `bucket` counts.
#[inline]
const fn bucket_top(bucket: usize) -> u64 {
    // The first two octaves share the width 1, hence the octave is one less than the quotient.
    let octave = (bucket >> PRECISION_BITS).saturating_sub(1);
    let leading = (bucket - (octave << PRECISION_BITS)) as u64;
    ((leading + 1) << octave) - 1
}

/// The rank, counted from 1, of the value that a share of `q` does not exceed.
fn rank_of(q: f64, count: u64) -> u64 {
    // `0.07 * 100.0` is a little more than 7. Stepping `q` down first keeps such a product from
    // being rounded up to the next rank, and can never lose a whole one.
    let exact = q.clamp(0.0, 1.0).next_down() * count as f64;
    let floor = exact as u64;
    let rank = floor + u64::from((floor as f64) < exact);
    rank.clamp(1, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn histogram_of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    /// Purpose: buckets tile the range without gap or overlap, and none is wider than promised.
    #[test]
    fn buckets_tile_the_range() {
        let mut bottom = 0;
        for bucket in 0..BUCKETS {
            let top = bucket_top(bucket);
            assert_eq!((bucket_of(bottom), bucket_of(top)), (bucket, bucket));
            assert!((top - bottom) * 64 <= bottom, "{bottom}..={top} is too wide");
            bottom = top + 1;
        }
        assert_eq!(bottom, VALUE_MAX + 1);
        assert_eq!(BUCKETS, 35 * 64);
    }

    /// Purpose: a histogram without values claims none.
    #[test]
    fn empty() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.count(), histogram.sum()), (0, 0));
        assert_eq!((histogram.min(), histogram.max(), histogram.quantile(0.5)), (None, None, None));
        histogram.record_n(5, 0);
        assert_eq!(histogram.min(), None);
    }

    /// Purpose: the nearest-rank definition at its corners, where values are exact.
    #[test]
    fn nearest_rank() {
        let hundred = histogram_of(&(1..=100).collect::<Vec<_>>());
        for percent in 1..=100_u32 {
            assert_eq!(hundred.quantile(f64::from(percent) / 100.0), Some(u64::from(percent)));
        }
        assert_eq!(hundred.quantile(0.071), Some(8));
        assert_eq!(hundred.quantile(-1.0), Some(1));
        assert_eq!(hundred.quantile(f64::NAN), Some(1));
        assert_eq!(hundred.quantile(7.0), Some(100));
        assert_eq!(histogram_of(&[1, 2]).quantile(0.5), Some(1));
    }

    /// Purpose: values at and beyond the end of the range keep an exact sum and maximum.
    #[test]
    fn the_end_of_the_range() {
        let histogram = histogram_of(&[VALUE_MAX - 1, VALUE_MAX, VALUE_MAX + 1, u64::MAX]);
        assert_eq!(histogram.max(), Some(u64::MAX));
        assert_eq!(histogram.sum(), 3 * u128::from(VALUE_MAX) + u128::from(u64::MAX));
        assert_eq!(histogram.quantile(1.0), Some(u64::MAX));
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        // Uniform in the number of bits, so that every octave is met.
        let value = (0..=40_u32, any::<u64>()).prop_map(|(bits, raw)| (raw >> 24) >> (40 - bits));
        prop::collection::vec(value, 1..300)
    }

    proptest! {
        /// Purpose: against a sorted list, quantiles err upwards by 1/64 at most.
        #[test]
        fn quantiles_agree_with_a_sorted_list(mut values in values(), q in 0.0..=1.0_f64) {
            let histogram = histogram_of(&values);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let reported = histogram.quantile(q).expect("there are values");
            prop_assert!(reported >= exact && reported - exact <= exact / 64, "{reported} for {exact}");
            prop_assert_eq!(histogram.min(), values.first().copied());
            prop_assert_eq!(histogram.max(), values.last().copied());
            prop_assert_eq!(histogram.sum(), values.iter().map(|&v| u128::from(v)).sum::<u128>());
        }

        /// Purpose: merging is the same as having recorded everything in one place.
        #[test]
        fn merging_loses_nothing(left in values(), right in values()) {
            let mut merged = histogram_of(&left);
            merged.merge(&histogram_of(&right));
            let whole = histogram_of(&[left, right].concat());
            prop_assert_eq!(&merged.buckets, &whole.buckets);
            prop_assert_eq!(
                (merged.count, merged.sum, merged.min, merged.max),
                (whole.count, whole.sum, whole.min, whole.max),
            );
        }
    }
}
