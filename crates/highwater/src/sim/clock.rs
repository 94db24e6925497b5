//! A clock that moves only on command.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use highwater_core::time::{Clock, Instant, UnixSeconds};

/// The time of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct SimClock(Rc<Cell<Instant>>);

impl SimClock {
    /// A clock that stands still at `now`.
    pub(crate) fn starting_at(now: Instant) -> Self {
        SimClock(Rc::new(Cell::new(now)))
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn unix_time(&self) -> UnixSeconds {
        UnixSeconds(self.unix_millis() / 1000)
    }

    fn unix_millis(&self) -> u64 {
        // 2026-01-01T00:00:00Z, and on.
        1_767_225_600_000 + self.0.get().as_nanos() / 1_000_000
    }
}
