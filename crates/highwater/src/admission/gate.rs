//! How many more connections may be admitted?
//!
//! One number bounds the whole server: how many connections may have work. It is in [`Bound`]: the controller
//! writes it and every worker reads it. Each worker has a [`WorkerGate`], which knows the worker's share of
//! the limit and its load, and publishes the load once per turn.
//!
//! What counts as load depends on the limiter. The default protects the workers' time: a connection *wants
//! time* from being accepted until its request is started, and from the moment its next request waits for its
//! turn. A handler that waits for something else is not load, however many there are. A limit that is set by
//! hand, and limits that follow the request rate, count connections *with work*: until their request is
//! answered. An idle connection is never load.
//!
//! Never here: a lock, work per request, or a system call, except one: when a worker's standing queue forms
//! or ends, the controller is woken.
//!
//! Invariants: shares add up to the limit, or to the number of workers if that is more, since a worker that
//! accepts no connection would leave those of its listener waiting for ever; a worker's load is published at
//! most once per turn, and only when it changed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use super::Shed;
use super::kernel::Occupancy;
use super::sources::AcceptedSources;
use crate::metrics::WorkerMetrics;

/// The limit of a whole server and its alarm, alone in a pair of cache lines: written a few times a second,
/// read by every worker every turn.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bound {
    limit: AtomicU32,
    /// A worker's standing queue has formed, or ended; or the drain has begun.
    raised: AtomicBool,
    is_draining: AtomicBool,
    /// Connections that were refused before a worker saw them, so far.
    refused: AtomicU64,
    /// The thread that the alarm wakes.
    listener: OnceLock<Thread>,
}

impl Bound {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Bound {
            limit: AtomicU32::new(limit.max(1)),
            raised: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            listener: OnceLock::new(),
        })
    }

    /// The most load of the whole server.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Replaces the limit; 0 counts as 1.
    pub(crate) fn set(&self, limit: u32) {
        self.limit.store(limit.max(1), Relaxed);
    }

    /// Publishes how many connections were refused so far before a worker saw them.
    pub(crate) fn set_refused(&self, refused: u64) {
        self.refused.store(refused, Relaxed);
    }

    /// Unparks the calling thread whenever the alarm is raised.
    pub(crate) fn listen(&self) {
        // A second thread would mean two controllers; the first stays.
        let _ = self.listener.set(std::thread::current());
    }

    /// Raises the alarm: the limit is computed again at once.
    #[cold]
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Relaxed)
            && let Some(thread) = self.listener.get()
        {
            thread.unpark();
        }
    }

    /// Whether the workers accept no more connections.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Clears the alarm, which is being handled. Returns whether it was raised.
    pub(crate) fn lower(&self) -> bool {
        self.raised.swap(false, Relaxed)
    }
}

/// What a limiter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Connections that want a worker's time.
    Time,
    /// Connections with work, however it is answered.
    Work,
}

/// The demand on a worker. Without streams the two are equal. One client with a hundred streams must neither take
/// a hundred places before everybody's connections, nor count as one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Of its connections: for those that admit connections, in the kernel or by accepting.
    pub(crate) connections: Wants,
    /// Of its exchanges: for the limit, the queue, and the metrics.
    pub(crate) exchanges: Wants,
}

/// How many connections or exchanges of a worker have each kind of demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The worker's time.
    pub(crate) time: u32,
    /// An answer that is being made.
    pub(crate) answers: u32,
}

/// A worker's side of the gate: owned by the worker's thread, one per worker.
#[derive(Debug)]
pub(crate) struct WorkerGate {
    shed: Shed,
    bound: Arc<Bound>,
    /// The worker's index, and the number of workers.
    index: u32,
    workers: u32,
    /// The worker's metrics; `None` if there are none.
    metrics: Option<Arc<WorkerMetrics>>,
    /// The counter of the kernel's gate; `None` if there is no such gate.
    occupancy: Option<Occupancy>,
    /// Where connections come from; `None` if that is not counted here.
    sources: Option<AcceptedSources>,
    counts: Counts,
    /// The counts at the end of the last turn, and the load among them: of connections, and of exchanges.
    settled: Load,
    load: u32,
    exchanges: u32,
    /// Connections accepted since then.
    arrived: u32,
    /// Refusals before the workers that are already taken into account.
    refused: u64,
}

impl WorkerGate {
    /// A gate without limit and metrics: for tests, the metrics port and the simulator.
    pub(crate) fn open() -> WorkerGate {
        WorkerGate {
            shed: Shed::None,
            bound: Bound::new(u32::MAX),
            index: 0,
            workers: 1,
            metrics: None,
            occupancy: None,
            sources: None,
            counts: Counts::Time,
            settled: Load::default(),
            load: 0,
            exchanges: 0,
            arrived: 0,
            refused: 0,
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

    /// Counts by another measure than [`Counts::Time`].
    pub(crate) fn counting(self, counts: Counts) -> WorkerGate {
        WorkerGate { counts, ..self }
    }

    /// Counts where connections come from, in `sources`.
    pub(crate) fn naming_sources(self, sources: Option<AcceptedSources>) -> WorkerGate {
        WorkerGate { sources, ..self }
    }

    /// Where to count what each connection comes from.
    pub(crate) fn sources(&self) -> Option<&AcceptedSources> {
        self.sources.as_ref()
    }

    /// Whether connections were accepted since the last report.
    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        self.arrived != 0
    }

    /// Reports at the end of a turn how many connections and exchanges have each demand.
    #[inline]
    pub(crate) fn settle(&mut self, now: Load) {
        let arrived = std::mem::take(&mut self.arrived);
        if now == self.settled && arrived == 0 {
            return;
        }
        let counts = |wants: Wants| match self.counts {
            Counts::Time => wants.time,
            Counts::Work => wants.time + wants.answers,
        };
        let (load, exchanges) = (counts(now.connections), counts(now.exchanges));
        if let Some(occupancy) = &self.occupancy {
            // The kernel's gate counted arrivals that the worker did not know of yet.
            let known = i64::from(self.load) + i64::from(arrived);
            let delta = i64::from(load) - known;
            if delta != 0 {
                occupancy.add(delta);
            }
        }
        self.settled = now;
        self.load = load;
        self.exchanges = exchanges;
        if let Some(metrics) = &self.metrics {
            let Wants { time, answers } = now.exchanges;
            metrics.in_flight.set(u64::from(time) + u64::from(answers));
            metrics.set_load(exchanges);
        }
    }

    /// The worker's standing queue has formed, or ended.
    #[cold]
    pub(crate) fn alarm(&self) {
        self.bound.raise();
    }

    /// The worker accepts no more connections: nothing may keep any from the listeners that other processes have there.
    #[cold]
    pub(crate) fn drain(&self) {
        self.bound.is_draining.store(true, Relaxed);
        self.bound.raise();
    }

    /// This worker's part of the refusals before any worker, since the last call.
    pub(crate) fn take_refused(&mut self) -> u32 {
        let refused = self.bound.refused.load(Relaxed);
        // Somebody may have set the counter of a firewall's rule to zero.
        self.refused = self.refused.min(refused);
        let since = (refused - self.refused) / u64::from(self.workers);
        // The remainder of the division is taken into account the next time.
        self.refused += since * u64::from(self.workers);
        u32::try_from(since).unwrap_or(u32::MAX)
    }

    /// The accept gate: how many more connections may be accepted now. `None` if accepting is not the gate.
    #[inline]
    pub(crate) fn room(&self) -> Option<u32> {
        self.share_of_accepting().map(|share| share.saturating_sub(self.held()))
    }

    /// This worker's part of the limit, if accepting is the gate.
    #[inline]
    pub(crate) fn share_of_accepting(&self) -> Option<u32> {
        (self.shed == Shed::Accept).then(|| self.share())
    }

    /// Whether to answer a parsed request with 503 because the load exceeds the limit. The request's own
    /// connection counts.
    #[inline]
    pub(crate) fn over(&self) -> bool {
        self.shed == Shed::App && self.exchanges.saturating_add(self.arrived) > self.share()
    }

    /// Whether the queue may refuse requests.
    #[inline]
    pub(crate) fn sheds(&self) -> bool {
        matches!(self.shed, Shed::Accept | Shed::Kernel)
    }

    /// A connection was accepted.
    #[inline]
    pub(crate) fn accepted(&mut self) {
        self.arrived += 1;
    }

    /// The load of connections, as known in the middle of a turn.
    fn held(&self) -> u32 {
        self.load.saturating_add(self.arrived)
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

    /// A load without streams.
    fn load(wants: Wants) -> Load {
        Load { connections: wants, exchanges: wants }
    }

    fn work(time: u32) -> Load {
        load(Wants { time, answers: 0 })
    }

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
        gate.settle(work(2));
        assert_eq!(gate.room(), Some(1));
        bound.set(1);
        assert_eq!(gate.room(), Some(0));
        gate.settle(work(0));
        assert_eq!(gate.room(), Some(1));
    }

    /// Purpose: only the mode that answers 503 reports "over", and only beyond the limit.
    #[test]
    fn each_mode_bounds_its_own_way() {
        let bound = Bound::new(2);
        for shed in [Shed::None, Shed::App, Shed::Accept, Shed::Kernel] {
            let mut gate = gates(shed, &bound, 1).remove(0);
            gate.settle(work(2));
            assert!(!gate.over(), "{shed:?} at the limit");
            gate.accepted();
            assert_eq!(gate.over(), shed == Shed::App, "{shed:?}");
            assert_eq!(gate.room().is_some(), shed == Shed::Accept, "{shed:?}");
            assert_eq!(gate.sheds(), matches!(shed, Shed::Accept | Shed::Kernel), "{shed:?}");
        }
        let mut open = WorkerGate::open();
        open.settle(work(1_000_000));
        open.accepted();
        assert!(!open.over() && !open.sheds() && open.room().is_none());
    }

    /// Purpose: the alarm wakes the controller once, however often it is raised before it is handled.
    #[test]
    fn the_alarm_is_raised_once() {
        let bound = Bound::new(1000);
        let gate = gates(Shed::Kernel, &bound, 1).remove(0);
        bound.listen();
        gate.alarm();
        // The token is set, so this returns; otherwise the test would never end.
        std::thread::park();
        gate.alarm();
        bound.lower();
        gate.alarm();
        std::thread::park();
    }

    /// Purpose: by default a handler that waits is not load; to a limit that counts work it is.
    #[test]
    fn what_waits_counts_only_where_it_is_asked_for() {
        let bound = Bound::new(2);
        for (counts, room) in [(Counts::Time, 1), (Counts::Work, 0)] {
            let mut gate = gates(Shed::Accept, &bound, 1).remove(0).counting(counts);
            gate.settle(load(Wants { time: 1, answers: 5000 }));
            assert_eq!(gate.room(), Some(room), "{counts:?}");
        }
    }

    /// Purpose: what the kernel refused is divided among the workers, and no refusal is counted twice or
    /// lost for good.
    #[test]
    fn refusals_are_divided() {
        let bound = Bound::new(2);
        let mut gates = gates(Shed::Kernel, &bound, 2);
        bound.set_refused(7);
        let taken: Vec<u32> = gates.iter_mut().map(WorkerGate::take_refused).collect();
        assert_eq!(taken, [3, 3]);
        bound.set_refused(8);
        assert_eq!((gates[0].take_refused(), gates[0].take_refused()), (1, 0));
    }

    /// Purpose: a controller reads the worker's last load, and its maximum since the last reading.
    #[test]
    fn the_gauge_follows() {
        let metrics = Arc::new(WorkerMetrics::new(0));
        let bound = Bound::new(10);
        let mut gate = WorkerGate::new(Shed::Accept, &bound, (0, 1), Arc::clone(&metrics), None);
        for in_flight in [3, 7, 2] {
            gate.settle(work(in_flight));
        }
        assert_eq!((metrics.load.get(), metrics.in_flight.get()), (2, 2));
        assert_eq!(metrics.take_load_max(), 7);
        assert_eq!(metrics.take_load_max(), 2, "the maximum is at least the current load");
        gate.settle(work(0));
        assert_eq!((metrics.load.get(), metrics.take_load_max()), (0, 2));
        assert_eq!(metrics.take_load_max(), 0);
    }
}
