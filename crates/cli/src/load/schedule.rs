//! When is a request meant to be sent? Pure: the time is what the schedule says, never what a clock
//! says.
//!
//! An open loop sends by schedule whether or not earlier requests were answered, and latency runs
//! from the scheduled instant. A server that stalls is charged for everything that should have been
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
    /// Exponential, as of many clients that know nothing of each other.
    Poisson,
}

/// Instants at a given rate, in order.
pub(crate) struct Schedule {
    start: Instant,
    /// Arrivals a second.
    rate: f64,
    /// How far uniform arrivals are shifted, as a share of a gap.
    phase: f64,
    /// `None`: uniform.
    random: Option<Prng>,
    /// How many arrivals have been taken.
    count: u64,
    /// The next arrival, in seconds since `start`.
    next: f64,
}

impl Schedule {
    /// `rate` arrivals a second from `start` on; `phase`, 0 to 1, shifts uniform ones by that share
    /// of a gap, so that several schedules interleave.
    pub(crate) fn new(
        arrivals: Arrivals,
        rate: f64,
        start: Instant,
        phase: f64,
        seed: u64,
    ) -> Schedule {
        let random = (arrivals == Arrivals::Poisson).then(|| Prng::from_seed(seed));
        let mut schedule = Schedule { start, rate, phase, random, count: 0, next: 0.0 };
        schedule.next = schedule.after(0.0);
        schedule
    }

    /// When the next arrival is due.
    pub(crate) fn peek(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.next)
    }

    /// Takes the next arrival.
    pub(crate) fn take(&mut self) -> Instant {
        let due = self.peek();
        self.count += 1;
        self.next = self.after(self.next);
        due
    }

    /// The arrival number `count`, when the one before it was at `last`.
    fn after(&mut self, last: f64) -> f64 {
        match &mut self.random {
            // An exponential gap, by inverse transform.
            Some(random) => last - (1.0 - random.unit()).ln() / self.rate,
            // Multiplied, not added up, so that nothing drifts.
            None => (self.count as f64 + self.phase) / self.rate,
        }
    }
}
