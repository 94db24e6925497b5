//! The simulation under test itself, and seeds that once failed.

use super::*;

fn pass(seed: u64) -> Report {
    match run(seed) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    }
}

/// Purpose: the worker keeps every promise under a few hundred seeds; `make sim` runs 10 000.
#[test]
fn seeds() {
    for seed in 0..300 {
        pass(seed);
    }
}

/// Purpose: a seed replays exactly, or a failure could not be looked at twice.
#[test]
fn deterministic() {
    for seed in [3, 77, 1234] {
        assert_eq!(run(seed), run(seed));
    }
}
