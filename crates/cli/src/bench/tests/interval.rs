//! Intervals: their bounds and their coverage, from tables, by enumeration, and counted.

use highwater_core::prng::Prng;
use proptest::prelude::*;

use super::super::interval;
use super::super::record::Interval;
use super::super::stats;

/// Purpose: the interval of the median is the exact one of order statistics, which covers what it says. Ranks and
/// coverages are those of the tables for the sign test (Conover, Practical Nonparametric Statistics, table A3): with
/// 7 values the bootstrap's second to sixth covers 87.5 %.
#[test]
fn intervals_are_exact() {
    for (count, low, covers) in [
        (6, 1, 0.968_75),
        (7, 1, 0.984_375),
        (8, 1, 0.992_187_5),
        (9, 2, 0.960_937_5),
        (10, 2, 0.978_515_6),
        (12, 3, 0.961_425_8),
        (15, 4, 0.964_843_7),
        (20, 6, 0.958_610_5),
        (30, 10, 0.957_226_1),
        (100, 40, 0.964_799_8),
    ] {
        let values: Vec<f64> = (1..=count).map(f64::from).collect();
        let expected = Interval { low: f64::from(low), high: f64::from(count + 1 - low) };
        assert_eq!(interval::of_median(&values), Some(expected), "of {count} values");
        let found = interval::coverage(count as usize).expect("six values are enough");
        assert!((found - covers).abs() < 1e-6, "{found} of {count} values");
    }
    assert_eq!((interval::of_median(&[1.0]), interval::coverage(1)), (None, None));
    // Fewer than six: what the least and the greatest cover, however the values are distributed.
    for (count, covers) in [(2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)] {
        let found = interval::coverage(count).expect("two values are enough");
        assert!((found - covers).abs() < 1e-12, "{found} of {count} values");
    }
    assert!(interval::coverage(1000).is_some_and(|covers| (0.95..0.96).contains(&covers)));
}

/// Purpose: intervals contain the true median as often as they say, counted: of log-normal values, as costs are.
#[test]
fn intervals_cover_what_they_say() {
    const RUNS: u32 = 20_000;
    let mut prng = Prng::from_seed(7);
    for count in [6, 7, 8, 10] {
        // Twelve uniform numbers are nearly normal.
        let mut value = || ((0..12).map(|_| prng.unit()).sum::<f64>() - 6.0).exp();
        let held = (0..RUNS).filter(|_| {
            let values: Vec<f64> = (0..count).map(|_| value()).collect();
            let Interval { low, high } = interval::of_median(&values).expect("two values at least");
            low <= 1.0 && 1.0 <= high
        });
        let share = held.count() as f64 / f64::from(RUNS);
        let stated = interval::coverage(count).expect("six values are enough");
        // Five standard deviations of the count.
        let slack = 5.0 * (stated * (1.0 - stated) / f64::from(RUNS)).sqrt();
        assert!((share - stated).abs() < slack, "{count} values: {share}, not {stated}");
    }
}

/// Purpose: two to five values say little, and their interval says so: Student's of the logarithms, worked out
/// by other means.
#[test]
fn few_values_have_wide_intervals() {
    for (values, low, high) in [
        (&[1.0, 1.1][..], 0.572_438, 1.921_605),
        (&[1.02, 1.0, 1.05], 0.962_618, 1.087_441),
        (&[2.0, 2.1, 1.9, 2.05], 1.878_707, 2.152_878),
    ] {
        let found = interval::of_median(values).expect("two values are enough");
        assert!((found.low - low).abs() < 1e-5 && (found.high - high).abs() < 1e-5, "{found:?}");
    }
}

/// How many quotients of so many old and new values the interval leaves out on each side, and what it covers. All quotients
/// differ.
fn left_out(m: i32, n: i32) -> (usize, f64) {
    let old: Vec<f64> = (0..m).map(|at| 1.0 + f64::from(at) * 1e-6).collect();
    let new: Vec<f64> = (0..n).map(|at| 2.0 + f64::from(at) * 1e-3).collect();
    let found = interval::factor(&old, &new).expect("two values at least on each side");
    let below = new
        .iter()
        .flat_map(|new| old.iter().map(move |old| new / old))
        .filter(|quotient| *quotient < found.interval.low);
    (below.count(), found.coverage)
}

/// Purpose: the interval of a factor between two samples leaves out as many quotients as the Mann-Whitney test has as its
/// critical value. Those for two sides and 5 % are in every table of the test (Siegel, Nonparametric Statistics, table K).
#[test]
fn factors_have_the_critical_values_of_mann_and_whitney() {
    for (m, n, critical) in [
        (4, 4, 0),
        (5, 5, 2),
        (6, 6, 5),
        (7, 7, 8),
        (8, 8, 13),
        (9, 9, 17),
        (10, 10, 23),
        (12, 12, 37),
        (20, 20, 127),
        (4, 9, 4),
        (5, 12, 11),
        (6, 20, 27),
        (2, 8, 0),
        (3, 5, 0),
    ] {
        assert_eq!(left_out(m, n).0, critical, "{m} and {n} values");
        assert_eq!(left_out(n, m).0, critical, "{n} and {m} values");
    }
}

/// Purpose: what a factor's interval is said to cover is counted over all orders in which two samples can lie.
#[test]
fn the_coverage_of_a_factor_is_that_of_all_arrangements() {
    for (m, n) in [(2, 2), (3, 3), (3, 4), (4, 4), (5, 4), (6, 6), (7, 5)] {
        let (outside, covers) = left_out(m, n);
        let (mut inside, mut all) = (0, 0);
        // Each set bit is a new value; the old ones below it are its quotients above 1.
        for order in (0_u32..1 << (m + n)).filter(|order| order.count_ones() == n as u32) {
            let (mut old, mut above) = (0, 0);
            for place in 0..m + n {
                match order >> place & 1 {
                    0 => old += 1,
                    _ => above += old,
                }
            }
            let below = (m * n) as usize - above;
            all += 1;
            inside += i32::from(above > outside && below > outside);
        }
        let counted = f64::from(inside) / f64::from(all);
        assert!((counted - covers).abs() < 1e-9, "{m} and {n} values: {counted}, not {covers}");
    }
    let (_, covers) = left_out(40, 300);
    assert!((0.95..0.951).contains(&covers), "{covers}");
}

/// Purpose: the interval of a factor contains the true one as often as it says, counted, and for few values at least so
/// often.
#[test]
fn factors_cover_what_they_say() {
    const RUNS: u32 = 5_000;
    const FACTOR: f64 = 1.25;
    let mut prng = Prng::from_seed(11);
    for (m, n) in [(3, 3), (5, 4), (6, 6), (8, 7)] {
        let mut value = || ((0..12).map(|_| prng.unit()).sum::<f64>() - 6.0).exp();
        let (mut held, mut stated) = (0, 0.0);
        for _ in 0..RUNS {
            let old: Vec<f64> = (0..m).map(|_| value()).collect();
            let new: Vec<f64> = (0..n).map(|_| value() * FACTOR).collect();
            let found = interval::factor(&old, &new).expect("two values at least on each side");
            held += u32::from(found.interval.low <= FACTOR && FACTOR <= found.interval.high);
            stated = found.coverage;
        }
        let share = f64::from(held) / f64::from(RUNS);
        let slack = 5.0 * (stated * (1.0 - stated) / f64::from(RUNS)).sqrt();
        assert!(share > stated - slack, "{m} and {n} values: {share}, not {stated}");
        assert!(
            stated < 0.95 || share < stated + slack,
            "{m} and {n} values: {share}, not {stated}"
        );
    }
}

/// Purpose: with few values a factor's interval reaches at least as far as Student's for two samples, worked out by other
/// means; a factor of fewer than two values is not known.
#[test]
fn few_values_have_a_wide_factor() {
    let found = interval::factor(&[1.0, 1.1], &[1.2, 1.3]).expect("two values are enough");
    assert!((found.interval.low - 0.911109).abs() < 1e-5, "{found:?}");
    assert!((found.interval.high - 1.556545).abs() < 1e-5, "{found:?}");
    assert!((found.coverage - 2.0 / 3.0).abs() < 1e-12, "{found:?}");
    assert_eq!(interval::factor(&[1.0], &[1.0, 1.0]), None);
    assert_eq!(interval::factor(&[1.0, 1.0], &[1.0]), None);
}

proptest! {
    /// Purpose: an interval lies around the median within the values (or beyond for few), in the right order, and
    /// does not depend on the order of rounds; the inverse ratio has the inverse interval, nearly.
    #[test]
    fn intervals_hold_the_median(values in prop::collection::vec(0.5_f64..2.0, 2..30)) {
        let found = interval::of_median(&values).expect("two values at least");
        let median = stats::median(&values).expect("two values at least");
        prop_assert!(found.low <= median && median <= found.high);
        if values.len() >= 6 {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= found.low && found.high <= most);
        }
        prop_assert_eq!(interval::of_median(&values), Some(found));
    }
}
