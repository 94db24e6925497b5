//! Does every worker still have turns? With `WatchdogSec=`, a service manager restarts a service that does not send
//! `WATCHDOG=1` within that time.
//!
//! An idle worker has no turns, so each look wakes all workers, and the next look expects that each has had a turn. A worker
//! that a handler holds up has none, and nothing is sent until it has.

use std::time::{Duration, Instant};

/// Looks within the manager's time: enough for a late one to be followed by another in time.
const LOOKS: u32 = 4;

/// Looks at the workers at intervals.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Duration,
    next: Instant,
    /// The turns of each worker at the last look.
    turns: Vec<u64>,
}

impl Watchdog {
    /// For a manager that waits for `patience`. The first look is due at once.
    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        Watchdog { every: patience / LOOKS, next: now, turns: Vec::new() }
    }

    /// The time until the next look.
    pub(super) fn spare(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// If a look is due: whether every worker has had a turn since the last one, given all `turns` of each worker so far.
    pub(super) fn look(&mut self, now: Instant, turns: impl Iterator<Item = u64>) -> Option<bool> {
        if now < self.next {
            return None;
        }
        self.next = now + self.every;
        let before = std::mem::replace(&mut self.turns, turns.collect());
        let mut pairs = self.turns.iter().zip(&before);
        Some(!before.is_empty() && pairs.all(|(now, before)| now != before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a look succeeds while all workers have turns, and fails while one of them is held up.
    #[test]
    fn one_held_worker_is_enough() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut watchdog = Watchdog::new(Duration::from_secs(2), begun);
        for (millis, turns, expected) in [
            (0, [0, 0], Some(false)),
            (499, [1, 1], None),
            (500, [1, 1], Some(true)),
            (1000, [2, 1], Some(false)),
            (1500, [3, 1], Some(false)),
            (2010, [4, 2], Some(true)),
            (2500, [9, 9], None),
            (2510, [9, 9], Some(true)),
        ] {
            assert_eq!(watchdog.look(at(millis), turns.into_iter()), expected, "at {millis} ms");
        }
        assert_eq!(watchdog.spare(at(2600)), Duration::from_millis(410));
        assert_eq!(watchdog.spare(at(9999)), Duration::ZERO);
    }
}
