//! Speeds and pairs.

use super::super::plan::Metric;
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
