//! How often were the failures of each route, and its blocking of workers, logged lately?
//!
//! One count for each route and kind of failure, so that a noisy route does not hide the only failure of a quiet one.
//! The memory is bounded by the number of routes, and so is the rate of the log.

use crate::logging::Site;

/// What is logged about one route, by kind.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) failed: Site,
    pub(super) panicked: Site,
    pub(super) misused: Site,
    pub(super) invalid: Site,
    pub(super) blocked: Site,
}

impl Sites {
    /// For an application with this many endpoints: one for each, and one for everything else.
    pub(super) fn of_endpoints(count: usize) -> Vec<Sites> {
        std::iter::repeat_with(Sites::default).take(count + 1).collect()
    }
}
