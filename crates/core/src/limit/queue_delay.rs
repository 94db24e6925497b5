//! The limit that protects the workers' time, and nothing else.
//!
//! ```text
//!   no queue stands      no limit: whoever comes waits its turn
//!   queues stand         limit = Σ over workers (target ÷ cost) + those that hold a place and ask nothing
//! ```
//!
//! What is limited are connections that want a worker's time: just accepted, or with a request that waits
//! to be started. A handler that waits for something else does not count, so there is no knee to find and
//! nothing to search: how many may wait follows from what a request costs and how long it may wait.
//!
//! A worker whose queue does not stand, beside one whose queue does, may have as many waiting as it can
//! finish within the patience.
//!
//! Never here: whether a queue stands ([`Standing`](super::Standing) says so), a search.
//!
//! Invariants: 1 ≤ limit ≤ the bound given; without a standing queue it is that bound; the same samples give
//! the same limits.

use core::time::Duration;

use super::standing::REQUESTS;
use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// The limit aims at this part of the target, in percent. What waited for the whole of it is refused by the
/// queue, at a higher price than at the gate: a limit that aimed at the same wait would let in many only to
/// refuse them. Measured at 2, 5 and 10 times the capacity; noticed by `the_overload_table`.
const AIM_PERCENT: u32 = 75;

/// If nothing waited for more than this part of the time although somebody was refused, the places are held
/// by connections that ask nothing. Noticed by `silent_clients_hold_no_places`.
const EMPTY_MAX: f32 = 0.05;

/// How long a request may wait while queues stand: the `target` that was set, but for at least four
/// requests of what one costs, up to the `patience`.
pub fn short_target(target: Duration, patience: Duration, cost: Duration) -> Duration {
    target.max(cost.saturating_mul(REQUESTS).min(patience))
}

/// The limit from queueing delay.
#[derive(Clone, Debug)]
pub struct QueueDelay {
    target: Duration,
    patience: Duration,
    limit_max: u32,
    limit: u32,
    /// Connections that hold a place and ask nothing.
    silent: u32,
}

impl QueueDelay {
    /// A limit of at most `limit_max` for clients that wait for `patience`, and that wait no longer than
    /// `target` for their turn while more is asked than can be done.
    pub fn new(target: Duration, patience: Duration, limit_max: u32) -> Self {
        let limit_max = limit_max.clamp(1, LIMIT_MAX);
        QueueDelay { target, patience, limit_max, limit: limit_max, silent: 0 }
    }

    /// How many may wait for a worker that serves one every `cost`, if each may wait for so long.
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
        let asleep = sample.in_flight.saturating_sub(sample.queued);
        let are_silent = sample.empty > EMPTY_MAX && sample.refused > 0;
        self.silent = if are_silent {
            self.silent.max(asleep.saturating_mul(2))
        } else {
            self.silent.min(asleep)
        };
        let target = short_target(self.target, self.patience, sample.cost);
        let short = Self::places(target * AIM_PERCENT / 100, sample.cost);
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
        // As the settings have always called the default: it follows the gradient of delay.
        "gradient"
    }
}
