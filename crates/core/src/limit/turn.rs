//! One turn of a worker, and what in it may be chance.

use crate::time::Instant;

/// A queue of at most this many requests always fits, whatever they cost. Two browsers that load
/// pages with six connections each are no overload, even if each request takes a core for longer
/// than users like to wait. A guess; `a_page_is_no_overload` notices a wrong value.
pub(super) const CROWD: u32 = 16;

/// Up to this percentage is chance. A queue may be too long if clients that leave just before their turn are this share of
/// those who are started. A queue is standing if, after half a patience of dropping, the
/// dropped requests are still this share of the started ones: just above the capacity, only the
/// excess gives up. And if a standing queue was empty for this share of `WINDOWS` windows although
/// requests were refused, it is too short for the randomness of arrivals and costs: requests may
/// wait for one short target more, up to `FACTOR`. At a fifth above the capacity, with exponential
/// costs, eight places leave the worker idle for 5 % of the time, sixteen for 1 %.
/// `clients_that_give_up_are_seen` and `the_first_seconds` notice a wrong value.
pub(super) const CHANCE_PERCENT: u32 = 1;

/// What happened in one turn of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// When its first event was seen.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Requests that wait when it ends.
    pub waiting: u32,
    /// Requests started in it.
    pub started: u32,
    /// Requests and connections refused because of load since the previous turn, here or at the
    /// gate.
    pub refused: u32,
    /// Requests that were started or dropped in it although their clients had given up.
    pub abandoned: u32,
}

/// Whether `few` of `started` requests are too many to be chance.
pub(super) fn is_still(few: u64, started: u64) -> bool {
    few * 100 >= (started * u64::from(CHANCE_PERCENT)).max(1)
}
