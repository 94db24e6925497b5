//! Evaluates measurements of overload. Pure functions over numbers.
//!
//! The law: refusing costs CPU too. With peak goodput G, load of k times G and a refusal costing the share rho of serving,
//! a core that serves g and refuses the rest is full when g + (k G - g) rho = G, so g / G = (1 - k rho) / (1 - rho). Nothing
//! can do better with that mechanism; doing much worse means that something else is wrong.

use super::super::stats::median;

/// A limiter is as good as the best fixed limit once goodput stays within this of it.
const WITHIN: f64 = 0.05;

/// (seconds, value), in order.
type Series = [[f64; 2]];

/// Goodput as a share of the peak at `k` times the capacity, where refusing costs `rho` of serving. Never below zero.
pub(super) fn share(k: f64, rho: f64) -> f64 {
    match () {
        () if k <= 1.0 => k,
        () if rho >= 1.0 => 0.0,
        () => ((1.0 - k * rho) / (1.0 - rho)).max(0.0),
    }
}

/// CPU time of one event in microseconds, from the shares of a CPU used without such events and with that many per
/// second.
pub(super) fn cost_us(idle: f64, loaded: f64, per_s: f64) -> Option<f64> {
    (per_s > 0.0).then(|| (loaded - idle) * 1e6 / per_s)
}

/// Each value as the mean over the `window` seconds that end there.
pub(super) fn smoothed(series: &Series, window: f64) -> Vec<[f64; 2]> {
    let mean_until = |&[at, _]: &[f64; 2]| {
        let count_until = |end: f64| series.partition_point(|point| point[0] <= end);
        let inside = &series[count_until(at - window)..count_until(at)];
        [at, inside.iter().map(|point| point[1]).sum::<f64>() / inside.len() as f64]
    };
    series.iter().map(mean_until).collect()
}

/// The values from `since` to before `until`.
pub(super) fn within(series: &Series, since: f64, until: f64) -> Vec<f64> {
    let inside = series.iter().filter(|point| (since..until).contains(&point[0]));
    inside.map(|point| point[1]).collect()
}

/// Seconds from `since` to the first point within 5 % of `target`, if the mean from there to `until` is as well. A
/// passing dip does not undo convergence, a wrong level does; [`swing`] says how much it swings.
pub(super) fn converged_after(series: &Series, since: f64, until: f64, target: f64) -> Option<f64> {
    let enough = (1.0 - WITHIN) * target;
    let (mut first, mut total, mut count) = (None, 0.0, 0.0);
    // From the end, so that the mean of what follows is known at each point.
    for [at, value] in series.iter().rev().filter(|point| (since..until).contains(&point[0])) {
        total += value;
        count += 1.0;
        if *value >= enough && total / count >= enough {
            first = Some(at - since);
        }
    }
    first
}

/// Half the distance between the 5th and the 95th percentile over the mean: how far settled values still swing. A stray
/// value is not a swing; a period is.
pub(super) fn swing(mut values: Vec<f64>) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((share * values.len() as f64).ceil() as usize).max(1) - 1];
    (mean > 0.0).then(|| (at(0.95) - at(0.05)) / 2.0 / mean)
}

/// Seconds from `since` to the first point that is not zero.
pub(super) fn raised_after(series: &Series, since: f64, until: f64) -> Option<f64> {
    let raised = series.iter().find(|[at, value]| (since..until).contains(at) && *value != 0.0);
    raised.map(|[at, _]| at - since)
}

/// Seconds from `since` to the point from which on it is zero, if it was not before that.
pub(super) fn cleared_after(series: &Series, since: f64, until: f64) -> Option<f64> {
    let inside: Vec<_> = series.iter().filter(|[at, _]| (since..until).contains(at)).collect();
    let last = inside.iter().rposition(|[_, value]| *value != 0.0)?;
    inside.get(last + 1).map(|[at, _]| at - since)
}

/// How often it went from zero to not zero, beginning at zero.
pub(super) fn rises(values: &[f64]) -> usize {
    let before = std::iter::once(&0.0).chain(values);
    before.zip(values).filter(|(before, after)| **before == 0.0 && **after != 0.0).count()
}

/// Least, middle and greatest.
pub(super) fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some([least, median(values)?, most])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }

    /// Purpose: the law's known values: those of docs/overload.md, and a core that is simulated second by second.
    #[test]
    fn the_law() {
        for (k, rho, expected) in [
            (0.5, 0.1, 0.5),
            (1.0, 0.1, 1.0),
            (10.0, 0.0, 1.0),
            (10.0, 0.1, 0.0),
            (11.0, 0.1, 0.0),
            (2.0, 1.0, 0.0),
        ] {
            near(share(k, rho), expected);
        }
        for (k, rho) in [(2.0, 0.048), (5.0, 0.0124), (10.0, 0.0055)] {
            assert!((share(k, rho) - 0.95).abs() < 0.0008, "{k} {rho}: {}", share(k, rho));
        }
        // One core of a million microseconds: 1000 to serve, 16 to refuse, 5000 come.
        let served =
            (0..=1000).rev().find(|served| served * 1000 + (5000 - served) * 16 <= 1_000_000);
        assert!((share(5.0, 0.016) - f64::from(served.expect("zero fits")) / 1000.0).abs() < 0.002);
    }

    /// Purpose: a tenth of a core for 5000 events per second is 20 µs each; without events there is no cost.
    #[test]
    fn costs() {
        near(cost_us(0.01, 0.11, 5000.0).expect("there were some"), 20.0);
        assert_eq!(cost_us(0.01, 0.11, 0.0), None);
    }

    /// Purpose: a series has converged when it comes near and stays near on average; a stray point before does not
    /// count, and a later dip does not undo it.
    #[test]
    fn convergence() {
        let series = |values: &[f64]| -> Vec<[f64; 2]> {
            values.iter().zip(0..).map(|(value, at)| [f64::from(at), *value]).collect()
        };
        let after = |values: &[f64]| converged_after(&series(values), 0.0, 100.0, 100.0);
        assert_eq!(after(&[0.0, 50.0, 95.0, 100.0]), Some(2.0));
        assert_eq!(after(&[94.9, 94.9]), None);
        assert_eq!(after(&[]), None);
        let dip: Vec<f64> = (0..20).map(|at| if at == 10 { 50.0 } else { 100.0 }).collect();
        assert_eq!(after(&dip), Some(0.0));
        let lucky: Vec<f64> = (0..20).map(|at| if at == 1 { 100.0 } else { 50.0 }).collect();
        assert_eq!(after(&lucky), None);
        assert_eq!(converged_after(&series(&[100.0; 10]), 5.0, 8.0, 100.0), Some(0.0));
    }

    /// Purpose: a period is a swing, a stray value is none, and nothing swings around nothing.
    #[test]
    fn swings() {
        let square = (0..100).map(|at| if at % 2 == 0 { 90.0 } else { 110.0 }).collect();
        near(swing(square).expect("it has a mean"), 0.1);
        let stray = (0..100).map(|at| if at == 3 { 500.0 } else { 100.0 }).collect();
        near(swing(stray).expect("it has a mean"), 0.0);
        assert_eq!((swing(vec![0.0]), swing(Vec::new())), (None, None));
    }

    /// Purpose: signals: when it rose, when it was over, how often.
    #[test]
    fn signals() {
        let series =
            [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [3.0, 1.0], [4.0, 1.0], [5.0, 0.0], [6.0, 0.0]];
        assert_eq!(rises(&within(&series, 0.0, 7.0)), 2);
        assert_eq!(rises(&within(&series, 5.0, 7.0)), 0);
        assert_eq!(raised_after(&series, 0.5, 7.0), Some(0.5));
        assert_eq!(raised_after(&series, 5.0, 7.0), None);
        assert_eq!(cleared_after(&series, 0.0, 7.0), Some(5.0));
        assert_eq!(cleared_after(&series, 0.0, 4.5), None);
        let means = smoothed(&[[1.0, 10.0], [2.0, 20.0], [3.0, 60.0]], 2.0);
        assert_eq!(means, [[1.0, 10.0], [2.0, 15.0], [3.0, 40.0]]);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
    }
}
