//! What are the rates now?
//!
//! Counters only grow; a rate needs two readings. A [`Window`] keeps the readings of the last
//! second, and answers from the newest one that is at least a second old. A thread of the server
//! feeds it at a steady interval; scrapes do not. So the answer does not depend on how often, or
//! how many, scrapers ask.
//!
//! Time is an argument. Invariants: at most [`SAMPLES_MAX`] samples are kept; a ratio lies between
//! 0 and 1.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// The span of the rates.
const WINDOW: Duration = Duration::from_secs(1);

/// How often to sample. The window is this much longer than a second at most.
pub(super) const PERIOD: Duration = Duration::from_millis(250);

/// Readings that follow each other closer than this are skipped, which bounds how many are kept.
const PERIOD_MIN: Duration = Duration::from_millis(100);

/// The readings of one second at the shortest interval, the one before them, and the newest.
const SAMPLES_MAX: usize = 12;

/// Totals at one time.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) requests: u64,
    pub(super) workers: Vec<Busy>,
}

/// How long a worker was busy so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    /// Wall time between an event's arrival and the end of its turn.
    pub(super) turn_nanos: u64,
    /// CPU time of the worker's thread, if the kernel provides it.
    pub(super) cpu_nanos: Option<u64>,
}

impl Busy {
    /// The share of `span` that a worker was busy since `before`.
    ///
    /// Each measure misses something: turns miss the kernel's work for the worker while it polls,
    /// CPU time misses a handler that blocks. Both are lower bounds, so the larger one is the
    /// better answer.
    pub(super) fn ratio_since(self, before: Busy, span: Duration) -> f64 {
        let turn = self.turn_nanos.saturating_sub(before.turn_nanos);
        let cpu = match (self.cpu_nanos, before.cpu_nanos) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => 0,
        };
        let span = span.as_nanos().max(1) as f64;
        (turn.max(cpu) as f64 / span).min(1.0)
    }
}

/// What happened over the last window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests_per_second: f64,
    /// By worker.
    pub(super) busy_ratios: Vec<f64>,
}

/// The readings of the last second.
#[derive(Debug, Default)]
pub(super) struct Window {
    samples: VecDeque<Sample>,
}

impl Window {
    /// Whether a reading at `now` is useful: not right after another one.
    pub(super) fn wants(&self, now: Instant) -> bool {
        self.samples.back().is_none_or(|newest| now - newest.at >= PERIOD_MIN)
    }

    /// Takes in a reading of the totals, and answers the rates up to it: over the last second (and
    /// at most a period more), or since the first reading while there is no older one.
    pub(super) fn push(&mut self, sample: Sample) -> Rates {
        let now = sample.at;
        self.samples.push_back(sample);
        while self.samples.get(1).is_some_and(|next| now - next.at >= WINDOW)
            || self.samples.len() > SAMPLES_MAX
        {
            self.samples.pop_front();
        }
        self.rates()
    }

    fn rates(&self) -> Rates {
        let (Some(old), Some(new)) = (self.samples.front(), self.samples.back()) else {
            return Rates::default();
        };
        let span = new.at - old.at;
        let requests = new.requests.saturating_sub(old.requests);
        let requests_per_second =
            if span.is_zero() { 0.0 } else { requests as f64 / span.as_secs_f64() };
        let busy_ratios = old
            .workers
            .iter()
            .zip(&new.workers)
            .map(|(&before, &now)| now.ratio_since(before, span))
            .collect();
        Rates { requests_per_second, busy_ratios }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(millis: u64, requests: u64) -> Sample {
        let at = Instant::from_nanos(millis * 1_000_000);
        Sample { at, requests, workers: Vec::new() }
    }

    fn busy(millis: u64, turn: u64, cpu: Option<u64>) -> Sample {
        let workers = vec![Busy {
            turn_nanos: turn * 1_000_000,
            cpu_nanos: cpu.map(|millis| millis * 1_000_000),
        }];
        Sample { workers, ..look(millis, 0) }
    }

    /// Purpose: the rate is that of the last second, not of the server's life.
    #[test]
    fn the_rate_forgets_what_is_older_than_a_second() {
        let mut window = Window::default();
        assert_eq!(window.push(look(0, 0)).requests_per_second, 0.0);
        assert_eq!(window.push(look(250, 100)).requests_per_second, 400.0);
        for step in 2..=40 {
            assert_eq!(window.push(look(step * 250, step * 100)).requests_per_second, 400.0);
        }
        let rates: Vec<f64> =
            (41..=45).map(|step| window.push(look(step * 250, 4000)).requests_per_second).collect();
        assert_eq!(rates, [300.0, 200.0, 100.0, 0.0, 0.0]);
    }

    /// Purpose: a late reading (a paused machine) stretches the window, and must not inflate the
    /// rate.
    #[test]
    fn a_late_look_is_divided_by_the_time_that_passed() {
        let mut window = Window::default();
        window.push(look(0, 0));
        assert_eq!(window.push(look(20_000, 1000)).requests_per_second, 50.0);
        assert_eq!(window.push(look(20_250, 1000)).requests_per_second, 1000.0 / 20.25);
        assert_eq!(window.push(look(21_000, 1000)).requests_per_second, 0.0);
    }

    /// Purpose: however often the totals are read, memory is bounded and the window stays a second
    /// long.
    #[test]
    fn frequent_looks_are_bounded() {
        let mut window = Window::default();
        let mut taken = 0;
        for millis in 0..10_000 {
            let sample = look(millis, millis);
            if window.wants(sample.at) {
                taken += 1;
                assert!(
                    (window.push(sample).requests_per_second - 1000.0).abs() < 1.0 || taken == 1
                );
            }
            assert!(window.samples.len() <= SAMPLES_MAX);
        }
        assert_eq!(taken, 100);
        let oldest = window.samples.front().expect("it holds a hundredth of the looks").at;
        assert!(Instant::from_nanos(9_900_000_000) - oldest >= WINDOW);
    }

    /// Purpose: neither kernel work nor a blocking handler may look like idle time, and a long turn
    /// that is reported when it ends may not look like more than a whole worker.
    #[test]
    fn busy_is_the_greater_of_two_lower_bounds() {
        let ratio = |before: Sample, after: Sample| {
            let mut window = Window::default();
            window.push(before);
            window.push(after).busy_ratios[0]
        };
        assert_eq!(ratio(busy(0, 0, Some(0)), busy(1000, 100, Some(900))), 0.9);
        assert_eq!(ratio(busy(0, 0, Some(0)), busy(1000, 800, Some(10))), 0.8);
        assert_eq!(ratio(busy(0, 0, None), busy(1000, 300, None)), 0.3);
        assert_eq!(ratio(busy(0, 0, None), busy(1000, 300, Some(5000))), 0.3);
        assert_eq!(ratio(busy(0, 0, Some(0)), busy(1000, 5000, Some(0))), 1.0);
        assert_eq!(ratio(busy(0, 0, Some(0)), busy(1000, 0, Some(0))), 0.0);
    }
}
