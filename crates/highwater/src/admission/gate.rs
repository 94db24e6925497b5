//! How many more may come in?
//!
//! One number bounds the whole server: how many connections may have work. It stands in [`Bound`],
//! where whoever computes it writes and every worker reads. Each worker has a [`WorkerGate`], which
//! knows the worker's share and what the worker has in flight, and tells the rest of the world once
//! a turn.
//!
//! A connection *has work* from being accepted until it is idle: its first request, or one that was
//! begun, is not answered yet. A connection that is merely kept alive is no load.
//!
//! Never here: a system call, a lock, anything per request.
//!
//! Invariants: shares add up to the limit, or to the number of workers if that is more, since a
//! worker that accepts nobody would leave its listener's connections waiting for ever; what a worker
//! has in flight is published at most once a turn, and only when it changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Shed;
use super::kernel::Occupancy;
use crate::metrics::WorkerMetrics;

/// The limit of a whole server, alone in a pair of cache lines: written a few times a second, read
/// by every worker every turn.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bound(AtomicU32);

impl Bound {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Bound(AtomicU32::new(limit.max(1))))
    }

    /// How many connections may have work, in the whole server.
    pub(crate) fn limit(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Replaces the limit; 0 counts as 1.
    pub(crate) fn set(&self, limit: u32) {
        self.0.store(limit.max(1), Relaxed);
    }
}

/// A worker's side of the gate: owned by the worker's thread, one per worker.
#[derive(Debug)]
pub(crate) struct WorkerGate {
    shed: Shed,
    bound: Arc<Bound>,
    /// Which of how many workers this is.
    index: u32,
    workers: u32,
    /// Where the gauge goes; `None` where nobody watches.
    metrics: Option<Arc<WorkerMetrics>>,
    /// The word that the kernel's gate counts in; `None` if there is no such gate.
    occupancy: Option<Occupancy>,
    /// Connections with work at the end of the last turn.
    in_flight: u32,
    /// Connections accepted since.
    arrived: u32,
}

impl WorkerGate {
    /// A gate that bounds nothing and tells nobody: for tests, the metrics port and the simulator.
    pub(crate) fn open() -> WorkerGate {
        WorkerGate {
            shed: Shed::None,
            bound: Bound::new(u32::MAX),
            index: 0,
            workers: 1,
            metrics: None,
            occupancy: None,
            in_flight: 0,
            arrived: 0,
        }
    }

    /// The gate of worker `index` of `workers`, whose gauge is in `metrics`.
    pub(crate) fn new(
        shed: Shed,
        bound: &Arc<Bound>,
        (index, workers): (u32, u32),
        metrics: Arc<WorkerMetrics>,
        occupancy: Option<Occupancy>,
    ) -> WorkerGate {
        debug_assert!(index < workers, "worker {index} of {workers}");
        let bound = Arc::clone(bound);
        let metrics = Some(metrics);
        WorkerGate { shed, bound, index, workers, metrics, occupancy, ..WorkerGate::open() }
    }

    /// Says at the end of a turn how many connections have work.
    #[inline]
    pub(crate) fn settle(&mut self, in_flight: u32) {
        let arrived = std::mem::take(&mut self.arrived);
        if in_flight == self.in_flight && arrived == 0 {
            return;
        }
        if let Some(occupancy) = &self.occupancy {
            // The gate counted what arrived before we knew of it.
            let known = i64::from(self.in_flight) + i64::from(arrived);
            let delta = i64::from(in_flight) - known;
            if delta != 0 {
                occupancy.add(delta);
            }
        }
        self.in_flight = in_flight;
        if let Some(metrics) = &self.metrics {
            metrics.set_in_flight(in_flight);
        }
    }

    /// The accept gate: how many more connections may be accepted now. `None` where accepting is
    /// not what bounds them.
    #[inline]
    pub(crate) fn room(&self) -> Option<u32> {
        match self.shed {
            Shed::Accept => Some(self.share().saturating_sub(self.held())),
            Shed::None | Shed::App | Shed::Kernel => None,
        }
    }

    /// Whether a request that has been parsed is to be answered with 503 because there are more than
    /// the limit allows. The request's own connection counts.
    #[inline]
    pub(crate) fn over(&self) -> bool {
        self.shed == Shed::App && self.held() > self.share()
    }

    /// Whether the queue of requests may refuse any.
    #[inline]
    pub(crate) fn sheds(&self) -> bool {
        matches!(self.shed, Shed::Accept | Shed::Kernel)
    }

    /// A connection was accepted.
    #[inline]
    pub(crate) fn accepted(&mut self) {
        self.arrived += 1;
    }

    /// Connections with work, as far as is known in the middle of a turn.
    fn held(&self) -> u32 {
        self.in_flight.saturating_add(self.arrived)
    }

    /// This worker's part of the limit: at least one.
    pub(crate) fn share(&self) -> u32 {
        let limit = self.bound.limit();
        let rest = u32::from(self.index < limit % self.workers);
        (limit / self.workers + rest).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(shed: Shed, bound: &Arc<Bound>, workers: u32) -> Vec<WorkerGate> {
        let metrics = || Arc::new(WorkerMetrics::new(0));
        (0..workers)
            .map(|index| WorkerGate::new(shed, bound, (index, workers), metrics(), None))
            .collect()
    }

    /// Purpose: together the workers admit the limit and not one more, unless each needs its one.
    #[test]
    fn shares_add_up() {
        for workers in [1, 2, 3, 7, 64] {
            let bound = Bound::new(1);
            let gates = gates(Shed::Accept, &bound, workers);
            for limit in [0, 1, 2, 6, 7, 8, 63, 64, 65, 1000, 1 << 20] {
                bound.set(limit);
                let rooms: Vec<u32> =
                    gates.iter().map(|gate| gate.room().expect("it bounds")).collect();
                assert_eq!(rooms.iter().sum::<u32>(), limit.max(workers));
                assert!(rooms.iter().all(|&room| room >= 1));
            }
        }
    }

    /// Purpose: room shrinks with each connection accepted in a turn, not only when the turn ends,
    /// and a limit below what is held leaves none, without wrapping.
    #[test]
    fn room_is_what_is_left() {
        let bound = Bound::new(3);
        let mut gate = gates(Shed::Accept, &bound, 1).remove(0);
        assert_eq!(gate.room(), Some(3));
        gate.accepted();
        gate.accepted();
        assert_eq!(gate.room(), Some(1));
        gate.settle(2);
        assert_eq!(gate.room(), Some(1));
        bound.set(1);
        assert_eq!(gate.room(), Some(0));
        gate.settle(0);
        assert_eq!(gate.room(), Some(1));
    }

    /// Purpose: only the mode that answers 503 says "over", and only beyond the limit.
    #[test]
    fn each_mode_bounds_its_own_way() {
        let bound = Bound::new(2);
        for shed in [Shed::None, Shed::App, Shed::Accept, Shed::Kernel] {
            let mut gate = gates(shed, &bound, 1).remove(0);
            gate.settle(2);
            assert!(!gate.over(), "{shed:?} at the limit");
            gate.accepted();
            assert_eq!(gate.over(), shed == Shed::App, "{shed:?}");
            assert_eq!(gate.room().is_some(), shed == Shed::Accept, "{shed:?}");
            assert_eq!(gate.sheds(), matches!(shed, Shed::Accept | Shed::Kernel), "{shed:?}");
        }
        let mut open = WorkerGate::open();
        open.settle(u32::MAX);
        open.accepted();
        assert!(!open.over() && !open.sheds() && open.room().is_none());
    }

    /// Purpose: what a controller reads is what the worker last had, and its most since last asked.
    #[test]
    fn the_gauge_follows() {
        let metrics = Arc::new(WorkerMetrics::new(0));
        let bound = Bound::new(10);
        let mut gate = WorkerGate::new(Shed::Accept, &bound, (0, 1), Arc::clone(&metrics), None);
        for in_flight in [3, 7, 2] {
            gate.settle(in_flight);
        }
        assert_eq!(metrics.in_flight.get(), 2);
        assert_eq!(metrics.take_in_flight_max(), 7);
        assert_eq!(metrics.take_in_flight_max(), 2, "it never was less than what is held now");
        gate.settle(0);
        assert_eq!((metrics.in_flight.get(), metrics.take_in_flight_max()), (0, 2));
        assert_eq!(metrics.take_in_flight_max(), 0);
    }
}
