//! Intervals, speeds and pairs.

use highwater_core::prng::Prng;
use proptest::prelude::*;

use super::super::plan::Metric;
use super::super::record::Interval;
use super::super::stats::{self, Pair, Rules, Speed};
use super::{change, row};

const COST: Metric = Metric::ServerCoreSecond;

/// Purpose: the middle of an odd number, the mean of the middle two of an even one.
#[test]
fn medians() {
    assert_eq!(stats::median(&[]), None);
    assert_eq!(stats::median(&[3.0]), Some(3.0));
    assert_eq!(stats::median(&[9.0, 1.0, 5.0]), Some(5.0));
    assert_eq!(stats::median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
}

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
        assert_eq!(stats::interval(&values), Some(expected), "of {count} values");
        let found = stats::coverage(count as usize).expect("six values are enough");
        assert!((found - covers).abs() < 1e-6, "{found} of {count} values");
    }
    assert_eq!((stats::interval(&[1.0]), stats::coverage(5)), (None, None));
    assert!(stats::coverage(1000).is_some_and(|covers| (0.95..0.96).contains(&covers)));
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
            let Interval { low, high } = stats::interval(&values).expect("two values at least");
            low <= 1.0 && 1.0 <= high
        });
        let share = held.count() as f64 / f64::from(RUNS);
        let said = stats::coverage(count).expect("six values are enough");
        // Five standard deviations of the count.
        let slack = 5.0 * (said * (1.0 - said) / f64::from(RUNS)).sqrt();
        assert!((share - said).abs() < slack, "{count} values: {share}, not {said}");
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
        let found = stats::interval(values).expect("two values are enough");
        assert!((found.low - low).abs() < 1e-5 && (found.high - high).abs() < 1e-5, "{found:?}");
    }
}

/// The speeds told apart in round trips, and the speed of a row with each two of them.
fn speeds(probes: &[[f64; 2]]) -> Vec<Option<Speed>> {
    let rows: Vec<_> = probes
        .iter()
        .map(|probes| {
            let mut row = row("a", 0, 1.0);
            change(&mut row).c2c_ns = probes.to_vec();
            row
        })
        .collect();
    let speeds = Rules::of_rows(rows.iter(), COST);
    rows.iter().map(|row| speeds.speed(row)).collect()
}

/// Purpose: the two placements of a shared machine, as they were measured there, are told apart, and a row in which
/// it changed belongs to neither; a machine with one placement has one speed, however its round trips scatter.
#[test]
fn speeds_are_told_apart() {
    use Speed::{Far, Near};
    let moved = [
        [79.0, 128.0],
        [90.0, 95.0],
        [319.0, 450.0],
        [100.0, 330.0],
        [410.0, 88.0],
        [1157.0, 340.0],
    ];
    let expected = [Some(Near), Some(Near), Some(Far), None, None, Some(Far)];
    assert_eq!(speeds(&moved), expected);
    assert_eq!(speeds(&[[50.0, 130.0], [130.0, 60.0], [70.0, 90.0]]), [Some(Near); 3]);
    assert_eq!(speeds(&[[319.0, 450.0], [330.0, 500.0]]), [Some(Near); 2]);
    assert_eq!(speeds(&[[100.0, 100.0]]), [Some(Near)]);
}

/// Purpose: only rows of one speed that nothing disturbed are compared; everything else would compare machines.
#[test]
fn pairs_are_of_one_speed() {
    let alone = Rules::of_rows([].into_iter(), COST);
    let pair = Pair::of(&row("a", 0, 10.0), &row("b", 0, 8.0), alone).expect("both count");
    assert_eq!((pair.ratio, pair.p99), (1.25, Some(1.0)));

    let spoiled: [fn(&mut super::Row); 4] = [
        |row| row.status = "void".to_owned(),
        |row| row.measured = None,
        |row| change(row).foreign_on_server_cpus = 0.13,
        |row| change(row).foreign_on_client_cpus = 0.13,
    ];
    for spoil in spoiled {
        let mut bad = row("b", 0, 8.0);
        spoil(&mut bad);
        assert!(Pair::of(&row("a", 0, 10.0), &bad, alone).is_none(), "{bad:?}");
        assert!(Pair::of(&bad, &row("a", 0, 10.0), alone).is_none(), "{bad:?}");
    }
    // A tick of ten milliseconds at either end is not a disturbance.
    let mut fine = row("b", 0, 8.0);
    change(&mut fine).foreign_on_server_cpus = 0.11;
    assert!(Pair::of(&row("a", 0, 10.0), &fine, alone).is_some());

    let mut far = row("b", 0, 8.0);
    change(&mut far).c2c_ns = vec![400.0, 400.0];
    let both = [row("a", 0, 10.0), far];
    let known = Rules::of_rows(both.iter(), COST);
    assert!(stats::pairs(&both, "x", "a", "b", known).is_empty());
}

/// Purpose: pairs are made within a round and a cell, never across.
#[test]
fn pairs_are_of_one_round() {
    let mut other = row("b", 2, 5.0);
    other.cell = "y".to_owned();
    let rows = [
        row("a", 0, 10.0),
        row("b", 1, 5.0),
        row("a", 2, 12.0),
        other,
        row("a", 3, 9.0),
        row("b", 3, 3.0),
    ];
    let found = stats::pairs(&rows, "x", "a", "b", Rules::of_rows(rows.iter(), COST));
    assert_eq!(found.iter().map(|pair| pair.ratio).collect::<Vec<_>>(), [3.0]);

    let twice = [
        row("a", 0, 10.0),
        row("a", 0, 8.0),
        row("a", 1, 7.0),
        row("a", 3, 10.0),
        row("a", 3, 8.0),
    ];
    let found = stats::pairs_aa(&twice, "x", Rules::of_rows(twice.iter(), COST));
    assert_eq!(found.iter().map(|pair| pair.ratio).collect::<Vec<_>>(), [1.25, 0.8]);
}

proptest! {
    /// Purpose: an interval lies around the median within the values (or beyond for few), in the right order, and
    /// does not depend on the order of rounds; the inverse ratio has the inverse interval, nearly.
    #[test]
    fn intervals_hold_the_median(values in prop::collection::vec(0.5_f64..2.0, 2..30)) {
        let found = stats::interval(&values).expect("two values at least");
        let median = stats::median(&values).expect("two values at least");
        prop_assert!(found.low <= median && median <= found.high);
        if values.len() >= 6 {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= found.low && found.high <= most);
        }
        prop_assert_eq!(stats::interval(&values), Some(found));
    }
}
