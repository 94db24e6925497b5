//! How long did requests take, as far as buckets say?
//!
//! A [`Histogram`] holds cumulative counts by upper bound, as Prometheus' text format has them. The difference of two is
//! what happened in between; quantiles are interpolated within their bucket, as Prometheus' `histogram_quantile` does,
//! except in the first bucket, of which only the upper bound is known.

use std::ops::Add;

/// Counts by upper bound, cumulative; bounds ascend, and the last one is infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram(Vec<Bucket>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    bound: f64,
    count: f64,
}

/// A quantile of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantile {
    pub(crate) seconds: f64,
    pub(crate) known: Known,
}

/// How much of a quantile its bucket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is in the first bucket: no more than this. Interpolating from zero would invent digits.
    AtMost,
    /// It is between two bounds, interpolated.
    Between,
    /// It is in the bucket without an upper bound: no less than this.
    AtLeast,
}

/// The quantiles that are shown; none without a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) p50: Option<Quantile>,
    pub(crate) p90: Option<Quantile>,
    pub(crate) p99: Option<Quantile>,
}

impl Histogram {
    /// Adds the bucket that ends at `bound`. They may come in any order.
    pub(crate) fn push(&mut self, bound: f64, count: f64) {
        let at = self.0.partition_point(|bucket| bucket.bound < bound);
        self.0.insert(at, Bucket { bound, count });
    }

    /// All that was counted.
    pub(crate) fn total(&self) -> f64 {
        self.0.last().map_or(0.0, |bucket| bucket.count)
    }

    /// What was counted since `before`; `None` if it cannot follow on it: a count has gone back, or
    /// the bounds differ.
    pub(crate) fn since(&self, before: &Histogram) -> Option<Histogram> {
        if before.0.is_empty() {
            return Some(self.clone());
        }
        let same = self.0.len() == before.0.len();
        let pairs = self.0.iter().zip(&before.0);
        let follows = |(after, before): (&Bucket, &Bucket)| {
            after.bound == before.bound && after.count >= before.count
        };
        (same && pairs.clone().all(follows)).then(|| {
            let less = |(after, before): (&Bucket, &Bucket)| Bucket {
                bound: after.bound,
                count: after.count - before.count,
            };
            Histogram(pairs.map(less).collect())
        })
    }

    /// The duration that a share `q` of requests did not exceed, 0 < `q` < 1; `None` if there was no
    /// request.
    pub(crate) fn quantile(&self, q: f64) -> Option<Quantile> {
        let rank = q * self.total();
        if self.total().partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return None;
        }
        let at = self.0.iter().position(|bucket| bucket.count >= rank)?;
        let Bucket { bound, count } = self.0[at];
        let Some(before) = at.checked_sub(1).map(|before| self.0[before]) else {
            let seconds = if bound.is_infinite() { 0.0 } else { bound };
            let known = if bound.is_infinite() { Known::AtLeast } else { Known::AtMost };
            return Some(Quantile { seconds, known });
        };
        if bound.is_infinite() {
            return Some(Quantile { seconds: before.bound, known: Known::AtLeast });
        }
        let share = (rank - before.count) / (count - before.count);
        let seconds = before.bound + (bound - before.bound) * share;
        Some(Quantile { seconds, known: Known::Between })
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| self.quantile(q));
        Quantiles { p50, p90, p99 }
    }
}

impl Add<&Histogram> for Histogram {
    type Output = Histogram;

    /// The sum of two with the same bounds; of others, the one with more requests.
    fn add(mut self, other: &Histogram) -> Histogram {
        let bounds = |histogram: &Histogram| -> Vec<u64> {
            histogram.0.iter().map(|bucket| bucket.bound.to_bits()).collect()
        };
        if bounds(&self) == bounds(other) {
            self.0.iter_mut().zip(&other.0).for_each(|(sum, other)| sum.count += other.count);
            self
        } else if other.total() > self.total() {
            other.clone()
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(f64, f64)]) -> Histogram {
        let mut histogram = Histogram::default();
        buckets.iter().for_each(|&(bound, count)| histogram.push(bound, count));
        histogram
    }

    /// Purpose: quantiles are those of the documentation of `histogram_quantile`: linear within the
    /// bucket. In the first only the upper bound is known, in the last only the lower one: a p50 of
    /// 25 µs in a bucket up to 50 µs would be invented.
    #[test]
    fn quantiles_are_interpolated() {
        let buckets = [(f64::INFINITY, 100.0), (0.1, 50.0), (0.2, 90.0)];
        let histogram = histogram(&buckets);
        for (q, seconds, known) in [
            (0.25, 0.1, Known::AtMost),
            (0.5, 0.1, Known::AtMost),
            (0.7, 0.15, Known::Between),
            (0.9, 0.2, Known::Between),
            (0.91, 0.2, Known::AtLeast),
            (0.99, 0.2, Known::AtLeast),
        ] {
            let found = histogram.quantile(q).expect("there were requests");
            assert!((found.seconds - seconds).abs() < 1e-12, "{q}: {found:?}");
            assert_eq!(found.known, known, "{q}");
        }
    }

    /// Purpose: without a request there is no quantile, and no division by zero.
    #[test]
    fn no_request_has_no_quantile() {
        let empty = [(0.1, 0.0), (f64::INFINITY, 0.0)];
        for buckets in [&[][..], &empty, &[(0.1, f64::NAN), (f64::INFINITY, f64::NAN)]] {
            assert_eq!(histogram(buckets).quantiles(), Quantiles::default());
        }
    }

    /// Purpose: a server that was restarted counts from zero, which is not a negative number of
    /// requests; neither is one whose bounds changed.
    #[test]
    fn what_does_not_follow_is_not_subtracted() {
        let before = histogram(&[(0.1, 5.0), (f64::INFINITY, 9.0)]);
        let after = histogram(&[(0.1, 7.0), (f64::INFINITY, 19.0)]);
        let between = histogram(&[(0.1, 2.0), (f64::INFINITY, 10.0)]);
        assert_eq!(after.since(&before), Some(between));
        assert_eq!(before.since(&after), None);
        assert_eq!(histogram(&[(0.2, 7.0), (f64::INFINITY, 19.0)]).since(&before), None);
        assert_eq!(histogram(&[(f64::INFINITY, 19.0)]).since(&before), None);
        assert_eq!(after.since(&Histogram::default()), Some(after));
    }

    /// Purpose: the server's latency is that of all its endpoints.
    #[test]
    fn endpoints_add_up() {
        let one = histogram(&[(0.1, 5.0), (f64::INFINITY, 9.0)]);
        let sum = histogram(&[(0.1, 10.0), (f64::INFINITY, 18.0)]);
        assert_eq!(one.clone() + &one, sum);
        assert_eq!(Histogram::default() + &one, one);
        assert_eq!(one.clone() + &histogram(&[(f64::INFINITY, 1.0)]), one);
    }
}
