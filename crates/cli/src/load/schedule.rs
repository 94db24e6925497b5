//! When is a request meant to be sent? Pure: times come from the schedule, never from a clock.
//!
//! An open loop sends by schedule whether or not earlier requests were answered, and latency runs
//! from the scheduled instant. A stalling server is charged for every request that should have been
//! sent meanwhile, which a closed loop (or an open one that measures from the actual send) leaves out:
//! "coordinated omission" (G. Tene).

use std::time::Duration;

use highwater_core::prng::Prng;
use highwater_core::time::Instant;

/// How the gaps between arrivals are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// All equal.
    Uniform,
    /// Exponential, as from many independent clients.
    Poisson,
}

/// Instants at a given rate, in order.
pub(crate) struct Schedule {
    start: Instant,
    /// Arrivals per second.
    rate: f64,
    /// How many come at one instant.
    burst: u64,
    /// How far uniform arrivals are shifted, as a share of a gap.
    phase: f64,
    /// `None`: uniform.
    random: Option<Prng>,
    /// How many arrivals have been taken.
    count: u64,
    /// The next arrival, in seconds since `start`.
    next: f64,
    /// Nothing arrives from then on.
    end: Instant,
}

impl Schedule {
    /// `rate` arrivals per second from `start` on, one by one; `phase`, 0 to 1, shifts uniform ones by that
    /// share of a gap, so that several schedules interleave.
    pub(crate) fn new(
        arrivals: Arrivals,
        rate: f64,
        start: Instant,
        phase: f64,
        seed: u64,
    ) -> Schedule {
        let random = (arrivals == Arrivals::Poisson).then(|| Prng::from_seed(seed));
        let (next, end) = (0.0, Instant::MAX);
        let mut schedule = Schedule { start, rate, burst: 1, phase, random, count: 0, next, end };
        schedule.next = schedule.after(0.0);
        schedule
    }

    /// The same number of arrivals per second, but `burst` (1 or more) at one instant.
    pub(crate) fn in_bursts(self, burst: u32) -> Schedule {
        let mut schedule = Schedule { burst: u64::from(burst), ..self };
        schedule.next = schedule.after(0.0);
        schedule
    }

    /// The same arrivals, but none at `end` or later.
    pub(crate) fn until(self, end: Instant) -> Schedule {
        Schedule { end, ..self }
    }

    /// When the next arrival is due; [`Instant::MAX`] if there is none.
    pub(crate) fn peek(&self) -> Instant {
        let next = self.start + Duration::from_secs_f64(self.next);
        if next < self.end { next } else { Instant::MAX }
    }

    /// Takes the next arrival. Do not call it if there is none.
    pub(crate) fn take(&mut self) -> Instant {
        let due = self.peek();
        self.count += 1;
        if self.count.is_multiple_of(self.burst) {
            self.next = self.after(self.next);
        }
        due
    }

    /// The arrival number `count`, when the one before it was at `last`.
    fn after(&mut self, last: f64) -> f64 {
        let burst = self.burst as f64;
        match &mut self.random {
            // An exponential gap, by inverse transform.
            Some(random) => last - (1.0 - random.unit()).ln() * burst / self.rate,
            // Multiplied, not added up, so that nothing drifts.
            None => (self.count as f64 + self.phase * burst) / self.rate,
        }
    }
}

/// A request, or in a closed loop the batch of one user, that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When it was meant to be sent. Latency runs from here.
    pub(crate) intended: Instant,
    /// When the client could first have sent it.
    pub(crate) seen: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(5_000_000_000);

    fn seconds(schedule: &mut Schedule, count: usize) -> Vec<f64> {
        (0..count).map(|_| (schedule.take() - START).as_secs_f64()).collect()
    }

    /// Purpose: uniform arrivals are where multiplication puts them, after a million of them too.
    #[test]
    fn uniform_arrivals_do_not_drift() {
        let mut schedule = Schedule::new(Arrivals::Uniform, 3.0, START, 0.0, 0);
        assert_eq!(schedule.peek(), START);
        for (index, at) in seconds(&mut schedule, 1_000_000).into_iter().enumerate() {
            assert!((at - index as f64 / 3.0).abs() < 1e-6, "{index}: {at}");
        }
    }

    /// Purpose: the schedules of several threads, together, are one uniform schedule.
    #[test]
    fn phases_interleave() {
        let of_thread = |number: u32| {
            let phase = f64::from(number) / 4.0;
            seconds(&mut Schedule::new(Arrivals::Uniform, 100.0, START, phase, 0), 100)
        };
        let mut all: Vec<f64> = (0..4).flat_map(of_thread).collect();
        all.sort_by(f64::total_cmp);
        for (index, at) in all.into_iter().enumerate() {
            assert!((at - index as f64 / 400.0).abs() < 1e-6, "{index}: {at}");
        }
    }

    /// Purpose: a schedule with an end has the same arrivals before it, and none at or after it.
    #[test]
    fn nothing_arrives_after_the_end() {
        let schedule = || Schedule::new(Arrivals::Uniform, 200.0, START, 0.0, 0).in_bursts(100);
        let mut ends = schedule().until(START + Duration::from_millis(500));
        assert_eq!(seconds(&mut ends, 100), seconds(&mut schedule(), 100));
        assert_eq!(ends.peek(), Instant::MAX);
        assert_eq!(schedule().until(START).peek(), Instant::MAX);
    }

    /// Purpose: bursts keep the rate: as many arrivals in a second, all of a burst at one instant, and the
    /// threads' bursts between each other.
    #[test]
    fn bursts_keep_the_rate() {
        let uniform = |phase| Schedule::new(Arrivals::Uniform, 100.0, START, phase, 0).in_bursts(4);
        let close = |found: Vec<f64>, expected: [f64; 9]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        };
        let first = [0.0, 0.0, 0.0, 0.0, 0.04, 0.04, 0.04, 0.04, 0.08];
        close(seconds(&mut uniform(0.0), 9), first);
        close(seconds(&mut uniform(0.5), 9), first.map(|at| at + 0.02));
        let mut poisson = Schedule::new(Arrivals::Poisson, 1000.0, START, 0.0, 7).in_bursts(5);
        let arrivals = seconds(&mut poisson, 100_000);
        assert!(arrivals.chunks(5).all(|burst| burst.iter().all(|at| *at == burst[0])));
        // Five standard deviations of the mean of 20 000 gaps.
        let mean = arrivals.last().unwrap() / 20_000.0;
        assert!((mean - 5e-3).abs() < 2e-4, "{mean}");
    }

    /// Purpose: Poisson gaps have the mean, and the standard deviation equal to the mean, of an
    /// exponential distribution; and as many are longer than it as its tail says (1/e).
    #[test]
    fn poisson_gaps_are_exponential() {
        const COUNT: usize = 100_000;
        let mut schedule = Schedule::new(Arrivals::Poisson, 1000.0, START, 0.0, 7);
        let arrivals = seconds(&mut schedule, COUNT);
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let longer = gaps.iter().filter(|gap| **gap > 1e-3).count() as f64 / gaps.len() as f64;
        // Five standard deviations of each estimate, roughly.
        assert!((mean - 1e-3).abs() < 2e-5, "{mean}");
        assert!((variance.sqrt() - 1e-3).abs() < 3e-5, "{variance}");
        assert!((longer - (-1.0_f64).exp()).abs() < 8e-3, "{longer}");
    }
}
