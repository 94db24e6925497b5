//! The limit that protects the workers' time, and nothing else.
//!
//! ```text
//!   no standing queue    no limit: every request waits its turn
//!   standing queues      limit = Σ over workers (target ÷ cost) + silent connections with a place
//! ```
//!
//! It limits the connections that want a worker's time: those just accepted, and those whose
//! request waits to be started. A handler that waits for something else does not count. So there is
//! no knee to find and no search: the cost of a request and the time it may wait say how many may
//! wait.
//!
//! Beside workers with a standing queue, a worker without one may have as many requests waiting as
//! it can finish within the patience.
//!
//! It never decides whether a queue is standing ([`Standing`](super::Standing) does).
//!
//! Invariants: 1 ≤ limit ≤ the bound given; without a standing queue the limit is that bound; the
//! same samples give the same limits.

use core::time::Duration;

use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// The limit aims at this part of the target, in percent. The queue refuses requests that waited
/// for the whole target, and that costs more than a refusal at the gate. A limit that aimed at the
/// whole target would admit many requests only to refuse them later. Measured at 2, 5 and 10 times
/// the capacity; `the_overload_table` notices a wrong value.
const AIM_PERCENT: u32 = 75;

/// If the queue was empty for more than this share of the time although connections were refused,
/// silent connections hold the places. A guess; `silent_clients_hold_no_places` notices a wrong
/// value.
const EMPTY_MAX: f32 = 0.05;

/// The limit from queueing delay.
#[derive(Clone, Debug)]
pub struct QueueDelay {
    patience: Duration,
    limit_max: u32,
    limit: u32,
    /// Connections that hold a place but send nothing.
    silent: u32,
}

impl QueueDelay {
    /// A limit of at most `limit_max`, for clients that wait for `patience`. While demand exceeds
    /// capacity, a request waits no longer than the sample's target for its turn.
    pub fn new(patience: Duration, limit_max: u32) -> Self {
        let limit_max = limit_max.clamp(1, LIMIT_MAX);
        QueueDelay { patience, limit_max, limit: limit_max, silent: 0 }
    }

    /// How many requests may wait for a worker that serves one every `cost`, if each may wait for
    /// `wait`.
    fn places(wait: Duration, cost: Duration) -> u32 {
        let places = wait.as_nanos() / cost.as_nanos().max(1);
        u32::try_from(places).unwrap_or(u32::MAX).saturating_add(1)
    }
}

impl Limit for QueueDelay {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        if sample.standing == 0 || sample.cost.is_zero() {
            self.silent = 0;
            self.limit = self.limit_max;
            return self.limit;
        }
        // Before there was a limit, the queue was empty for another reason: the overload had not begun.
        let is_limited = self.limit < self.limit_max;
        let are_silent = is_limited && sample.empty > EMPTY_MAX && sample.refused > 0;
        self.silent = if are_silent {
            self.silent.max(sample.asleep.saturating_mul(2))
        } else {
            self.silent.min(sample.asleep)
        };
        let short = Self::places(sample.target / 100 * AIM_PERCENT, sample.cost);
        let long = Self::places(self.patience, sample.cost);
        let others = sample.workers.saturating_sub(sample.standing);
        let places =
            sample.standing.saturating_mul(short).saturating_add(others.saturating_mul(long));
        self.limit = places.saturating_add(self.silent).clamp(1, self.limit_max);
        self.limit
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn name(&self) -> &'static str {
        // The name that the settings have always used: it follows the gradient of delay.
        "gradient"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a queue that was empty until an overload began is not empty because silent connections hold the places;
    /// one that is empty while connections are refused is.
    #[test]
    fn the_time_before_an_overload_is_no_silence() {
        let mut limit = QueueDelay::new(Duration::from_secs(1), 1000);
        let sample = Sample {
            workers: 1,
            standing: 1,
            cost: Duration::from_millis(1),
            target: Duration::from_millis(10),
            empty: 0.5,
            refused: 500,
            queued: 400,
            asleep: 100,
            ..Sample::default()
        };
        assert_eq!(limit.on_sample(Instant::ZERO, &sample), 8);
        assert_eq!(limit.on_sample(Instant::ZERO, &sample), 208, "a limit was in force");
        assert_eq!(limit.on_sample(Instant::ZERO, &Sample { asleep: 3, empty: 0.0, ..sample }), 11);
    }
}
