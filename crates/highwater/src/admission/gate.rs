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
//! Never here: a lock, anything per request, a system call but one: when far more than lately is
//! suddenly under way, whoever computes the limit is woken, once, and not again before it has armed the
//! alarm anew.
//!
//! Invariants: shares add up to the limit, or to the number of workers if that is more, since a
//! worker that accepts nobody would leave its listener's connections waiting for ever; what a worker
//! has in flight is published at most once a turn, and only when it changed.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use super::Shed;
use super::kernel::Occupancy;
use crate::metrics::WorkerMetrics;

/// The limit of a whole server, and when to look at it again, alone in a pair of cache lines: written
/// a few times a second, read by every worker every turn.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bound {
    limit: AtomicU32,
    /// With more than this in flight in one worker the alarm is raised.
    alarm: AtomicU32,
    /// Who hears it.
    hearer: OnceLock<Thread>,
}

/// The alarm was raised, or never armed.
const RAISED: u32 = u32::MAX;

impl Bound {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        let (limit, alarm) = (AtomicU32::new(limit.max(1)), AtomicU32::new(RAISED));
        Arc::new(Bound { limit, alarm, hearer: OnceLock::new() })
    }

    /// How many connections may have work, in the whole server.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Replaces the limit; 0 counts as 1.
    pub(crate) fn set(&self, limit: u32) {
        self.limit.store(limit.max(1), Relaxed);
    }

    /// Has the calling thread unparked when the alarm is raised.
    pub(crate) fn hear(&self) {
        // A second hearer would mean two controllers; the first stays.
        let _ = self.hearer.set(std::thread::current());
    }

    /// Has the alarm raised, once, with more than `in_flight` in flight in one worker.
    pub(crate) fn arm(&self, in_flight: u32) {
        self.alarm.store(in_flight.min(RAISED - 1), Relaxed);
    }

    /// Whether the alarm was raised since it was armed.
    pub(crate) fn is_raised(&self) -> bool {
        self.alarm.load(Relaxed) == RAISED
    }

    /// A worker has so many in flight now.
    #[inline]
    fn watch(&self, in_flight: u32) {
        if in_flight > self.alarm.load(Relaxed) {
            self.raise();
        }
    }

    #[cold]
    fn raise(&self) {
        if self.alarm.swap(RAISED, Relaxed) != RAISED
            && let Some(thread) = self.hearer.get()
        {
            thread.unpark();
        }
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
        self.bound.watch(in_flight);
    }

    /// The accept gate: how many more connections may be accepted now. `None` where accepting is
    /// not what bounds them.
    #[inline]
    pub(crate) fn room(&self) -> Option<u32> {
        self.share_of_accepting().map(|share| share.saturating_sub(self.held()))
    }

    /// This worker's part of the limit, where accepting is what bounds it.
    #[inline]
    pub(crate) fn share_of_accepting(&self) -> Option<u32> {
        (self.shed == Shed::Accept).then(|| self.share())
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

    /// Purpose: more in flight than was told raises the alarm, as much does not, and what raised it
    /// does so once.
    #[test]
    fn the_alarm_is_raised_once() {
        let bound = Bound::new(1000);
        let mut gate = gates(Shed::Kernel, &bound, 1).remove(0);
        assert!(bound.is_raised(), "never armed");
        bound.hear();
        bound.arm(8);
        gate.settle(8);
        assert!(!bound.is_raised());
        gate.settle(9);
        assert!(bound.is_raised());
        // The token is there, so this returns; were it not, the test would never end.
        std::thread::park();
        gate.settle(10);
        assert!(bound.is_raised());
        bound.arm(u32::MAX);
        gate.settle(u32::MAX - 1);
        assert!(!bound.is_raised(), "a level that nothing is above");
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
