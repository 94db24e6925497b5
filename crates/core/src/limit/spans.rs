//! Spans of time in which a queue is watched, and what happened in them.
//!
//! Never here: a decision about the queue.

use core::time::Duration;

use crate::time::Instant;

/// Given-up requests are dropped once they were this percentage of the requests started, in several
/// windows in a row (`LEAVING` in `standing.rs`). Half: a few impatient clients among patient ones are not an
/// overload. `a_few_impatient_clients_are_no_overload` notices a wrong value.
const ABANDONED_PERCENT: u64 = 50;

/// A span of time, how many requests waited at its beginning, and how many were started since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) began: Instant,
    pub(super) waiting: u32,
    pub(super) started: u64,
    pub(super) abandoned: u64,
    /// Of the abandoned ones, those that were not started.
    pub(super) dropped: u64,
}

/// The dropping of given-up requests: since when, and whether only because the queue grows; and, in the second half of a
/// patience, how many were dropped and how many started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropping {
    pub(super) began: Instant,
    pub(super) is_growth: bool,
    pub(super) dropped: u64,
    pub(super) started: u64,
}

/// A span of time, how long the queue was empty in it, and how many requests were refused in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Relief {
    pub(super) began: Instant,
    pub(super) empty: Duration,
    pub(super) refused: u64,
}

impl Dropping {
    pub(super) fn from(began: Instant, is_growth: bool) -> Dropping {
        Dropping { began, is_growth, dropped: 0, started: 0 }
    }
}

impl Window {
    /// Whether most of the requests started in it had been given up by their clients.
    pub(super) fn was_given_up(&self) -> bool {
        self.abandoned > 0 && self.abandoned * 100 >= self.started * ABANDONED_PERCENT
    }

    /// How many requests arrived since it began, if `waiting` requests wait now.
    pub(super) fn came(&self, waiting: u32) -> u64 {
        let gone = self.started + self.dropped;
        (gone + u64::from(waiting)).saturating_sub(u64::from(self.waiting))
    }
}

impl Relief {
    /// Whether the queue was empty for this percentage of `span`.
    pub(super) fn was_empty_for(&self, percent: u32, span: Duration) -> bool {
        self.empty * 100 >= span * percent
    }

    /// Whether the refused requests could have been served in the time with an empty queue.
    pub(super) fn suffices(&self, cost: Duration) -> bool {
        let refused = u32::try_from(self.refused).unwrap_or(u32::MAX);
        !self.empty.is_zero() && cost.saturating_mul(refused) <= self.empty
    }
}
