//! How certain is a median? Exact intervals by order statistics, and the coverage that they have. Pure.
//!
//! Bounds are measured values, or quotients of them, so nothing is assumed about how values are distributed. The interval is
//! the narrowest of these with at least 95 %. Few values have no such bounds. Then the interval reaches from the least to
//! the greatest, and at least as far as Student's of the logarithms; only the coverage of the former is claimed.

use super::record::Interval;

/// Minimum coverage, where the number of values allows it.
const COVERAGE: f64 = 0.95;
/// Student's t for 95 %, by degrees of freedom from 1. Two samples with more have exact bounds.
const T_95: [f64; 7] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365];

/// The interval of the median of positive `values`; its coverage is [`coverage`]. `None` for fewer than two.
pub(crate) fn of_median(values: &[f64]) -> Option<Interval> {
    let (outside, covers) = of_one(values.len())?;
    let sorted = sorted(values.to_vec());
    let exact = Interval { low: sorted[outside], high: sorted[sorted.len() - 1 - outside] };
    Some(if covers < COVERAGE { exact.and(student(values)) } else { exact })
}

/// The probability that the interval of the median of so many values contains the true one: of six or more values exactly
/// this, of fewer at least this. `None` for fewer than two.
pub(crate) fn coverage(count: usize) -> Option<f64> {
    of_one(count).map(|(_, covers)| covers)
}

/// The coverage of the interval of so many values in words: `96.9 %`, or `at least 93.8 %`.
pub(crate) fn in_words(covers: f64) -> String {
    let least = if covers < COVERAGE { "at least " } else { "" };
    format!("{least}{:.1} %", covers * 100.0)
}

/// How many values lie outside of the interval on each side, and what that covers. Each value is below the median with
/// probability one half, so fewer than k of n are with that of a binomial variable.
fn of_one(count: usize) -> Option<(usize, f64)> {
    if count < 2 {
        return None;
    }
    // The probabilities of 0, 1, 2, … of `count`, by logarithms: 2^-1000 has no place in a number.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let tails = (0..count / 2).map(|outside| {
        below += log.exp();
        log += ((count - outside) as f64 / (outside + 1) as f64).ln();
        below
    });
    Some(narrowest(tails))
}

/// `tails` are the probabilities that more than 0, 1, 2, … bounds lie beyond the true value on one side. The greatest
/// number that may be left out on each side, and what is covered then.
fn narrowest(tails: impl Iterator<Item = f64>) -> (usize, f64) {
    let mut coverages = tails.map(|tail| 1.0 - 2.0 * tail).enumerate();
    let first = coverages.next().expect("two values have an extreme on each side");
    coverages.take_while(|(_, covers)| *covers >= COVERAGE).last().unwrap_or(first)
}

/// A factor between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factor {
    pub(crate) median: f64,
    pub(crate) interval: Interval,
    /// Exactly this from 95 % on, else at least this.
    pub(crate) coverage: f64,
}

/// The factor by which `new` values are greater than `old` ones, all positive and not paired: the median of all quotients
/// (Hodges and Lehmann), between two of them (Moses). The coverage is that of the Mann-Whitney test, and holds if the two
/// samples are distributed alike but for the factor. `None` for fewer than two values on a side.
pub(crate) fn factor(old: &[f64], new: &[f64]) -> Option<Factor> {
    if old.len() < 2 || new.len() < 2 {
        return None;
    }
    let quotients = new.iter().flat_map(|new| old.iter().map(move |old| new / old));
    let quotients = sorted(quotients.collect());
    let (outside, covers) = narrowest(below(old.len(), new.len()).into_iter());
    let low = quotients[outside];
    let exact = Interval { low, high: quotients[quotients.len() - 1 - outside] };
    let interval = if covers < COVERAGE { exact.and(student_of_two(old, new)) } else { exact };
    Some(Factor { median: super::stats::median(&quotients)?, interval, coverage: covers })
}

/// The probabilities that at most 0, 1, 2, … of the quotients of `m` and `n` values of one distribution are below 1, up to
/// the middle. The numbers of arrangements with so many are the coefficients of a Gaussian binomial,
/// ∏ (1 − q^(n+i)) ÷ (1 − q^i); here each factor is divided by its value at q = 1, which makes them probabilities.
fn below(m: usize, n: usize) -> Vec<f64> {
    let mut shares = vec![0.0; m * n / 2 + 1];
    shares[0] = 1.0;
    for i in 1..=m {
        for at in i..shares.len() {
            shares[at] += shares[at - i];
        }
        for at in (n + i..shares.len()).rev() {
            shares[at] -= shares[at - n - i];
        }
        shares.iter_mut().for_each(|share| *share *= i as f64 / (n + i) as f64);
    }
    let mut sum = 0.0;
    shares.iter_mut().for_each(|share| {
        sum += *share;
        *share = sum;
    });
    shares
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

impl Interval {
    /// The least interval that has both in it.
    fn and(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The mean of the logarithms, and the sum of their squared distances from it.
fn logs(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|value| (value.ln() - mean).powi(2)).sum())
}

/// Student's interval of a mean of logarithms.
fn around(mean: f64, squares: f64, freedom: usize, per_value: f64) -> Interval {
    let reach = T_95[freedom - 1] * (squares / freedom as f64 * per_value).sqrt();
    Interval { low: (mean - reach).exp(), high: (mean + reach).exp() }
}

/// Of two to five values.
fn student(values: &[f64]) -> Interval {
    let (mean, squares) = logs(values);
    around(mean, squares, values.len() - 1, 1.0 / values.len() as f64)
}

/// Of the factor between two samples of two values and more, with nine in all at most.
fn student_of_two(old: &[f64], new: &[f64]) -> Interval {
    let ((old_mean, old_squares), (new_mean, new_squares)) = (logs(old), logs(new));
    let (m, n) = (old.len(), new.len());
    let per_value = 1.0 / m as f64 + 1.0 / n as f64;
    around(new_mean - old_mean, old_squares + new_squares, m + n - 2, per_value)
}
