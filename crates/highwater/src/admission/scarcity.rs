//! Are places scarce at a route's limit, and since when?
//!
//! Each refusal there is recorded here; workers with slow uploads that hold places read it
//! (`server/worker/upload.rs`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use highwater_core::time::Instant;

/// For how long after a refusal places count as scarce. A client that was refused comes again after a
/// second at the soonest.
const MEMORY: Duration = Duration::from_secs(1);

/// The interval after which the minimum rate of a place doubles.
const STEP: Duration = Duration::from_millis(500);

/// Most doublings.
const STEPS_MAX: u32 = 6;

/// The refusals at one limit, by the clock that all workers share. Two workers that refuse at the same moment
/// may both set the beginning, which makes no difference.
#[derive(Debug)]
pub(super) struct Scarcity {
    since: AtomicU64,
    last: AtomicU64,
}

/// No refusal yet.
const NEVER: u64 = u64::MAX;

impl Default for Scarcity {
    fn default() -> Self {
        Scarcity { since: AtomicU64::new(NEVER), last: AtomicU64::new(NEVER) }
    }
}

impl Scarcity {
    /// A request was refused.
    pub(super) fn note(&self, now: Instant) {
        if self.since(now).is_none() {
            self.since.store(now.as_nanos(), Relaxed);
        }
        self.last.store(now.as_nanos(), Relaxed);
    }

    /// By which factor the minimum rate of an upload rises: 0 if places are not scarce.
    pub(super) fn factor(&self, now: Instant) -> u32 {
        let Some(since) = self.since(now) else { return 0 };
        let steps = (now.saturating_since(since).as_millis() / STEP.as_millis()) as u32;
        1 << (steps + 1).min(STEPS_MAX)
    }

    /// Since when places have been scarce, if they are.
    fn since(&self, now: Instant) -> Option<Instant> {
        let last = self.last.load(Relaxed);
        let is_scarce = last != NEVER && now.saturating_since(Instant::from_nanos(last)) <= MEMORY;
        is_scarce.then(|| Instant::from_nanos(self.since.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the demand rises while others are refused, to a bound, and ends a second after the last
    /// refusal.
    #[test]
    fn the_demand_rises_while_others_are_refused() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let scarcity = Scarcity::default();
        assert_eq!(scarcity.factor(at(1_000_000)), 0);
        for (ms, factor) in [(5000, 2), (5499, 2), (5500, 4), (6400, 8), (7300, 32), (8200, 64)] {
            scarcity.note(at(ms));
            assert_eq!(scarcity.factor(at(ms)), factor, "{ms}");
        }
        assert_eq!((scarcity.factor(at(9200)), scarcity.factor(at(9201))), (64, 0));
        scarcity.note(at(9300));
        assert_eq!(scarcity.factor(at(9300)), 2, "it begins anew");
    }
}
