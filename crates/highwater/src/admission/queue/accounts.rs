//! What has each client of a queue been given so far, while that stands or is out of order?
//!
//! Its account, in the worker's time (`core::limit::Shares`). A request is charged for the time from its start until the
//! worker goes on with the next one.
//!
//! Never here: which requests wait. The lanes of each class ask for places, and say what was served.

use highwater_core::limit::Shares;
use highwater_core::time::Instant;

/// A request is charged for at least this part of the usual cost: what its handler does later, in a future, is not seen.
/// A guess.
const LEAST_SHARE: u64 = 4;

/// The accounts of a worker's clients.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) shares: Shares,
    /// The recent cost of a request, in nanoseconds.
    pub(super) cost: u64,
    /// Requests of clients without an account, so far.
    pub(super) overflow: u64,
    running: Option<(Running, Instant)>,
}

/// A request that was started: its class and its lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) class: usize,
    pub(super) lane: u64,
}

impl Accounts {
    /// A request is started at `now`.
    pub(super) fn begin(&mut self, running: Running, now: Instant) {
        self.running = Some((running, now));
    }

    /// The last request that was started has been worked on until `now`. Returns which it was, and the time that its
    /// client is charged for, in nanoseconds.
    pub(super) fn lap(&mut self, now: Instant) -> Option<(Running, u64)> {
        let (running, since) = self.running.take()?;
        let took = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
        Some((running, took.max(self.cost / LEAST_SHARE)))
    }

    /// The same, where it is not known how long it was worked on: it is charged for the usual cost.
    pub(super) fn lap_unknown(&mut self) -> Option<(Running, u64)> {
        self.running.take().map(|(running, _)| (running, self.cost))
    }

    /// Accounts are needed no more: the queue does not stand, and nothing has a place in it.
    pub(super) fn close(&mut self) {
        *self = Accounts { overflow: self.overflow, ..Accounts::default() };
    }
}
