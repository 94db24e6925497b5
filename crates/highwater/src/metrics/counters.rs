//! What has one worker done so far?
//!
//! Every worker owns one [`WorkerMetrics`] and is its only writer; a scrape reads them all and adds
//! up. So counting costs a load, an add and a store, no locked instruction and no line that another
//! core writes.
//!
//! Never here: rates, ratios and text (`sampler.rs`, `exposition.rs`); anything that allocates or
//! waits after construction.
//!
//! Invariants: one writer per `WorkerMetrics` (a second one would lose counts, nothing worse);
//! counters only grow; no two workers' counters share a pair of cache lines.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use highwater_core::driver::AcceptError;
use highwater_core::http1::Reject;

use super::queue_delay::QueueDelay;
use super::reasons::{Rejection, Timeout};

/// A number that one thread writes and every thread may read.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds without a locked instruction, which is right because nobody else writes.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Replaces the number.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The number, as its writer last left it.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the duration histogram's buckets in nanoseconds; the last bucket has none.
///
/// From 50 µs, about ten times what a plain request takes, to 10 s, the longest default deadline of
/// a request's head. Two of the bounds, 50 ms and 200 ms, are the figures that the overload tests
/// are held to, so that they can be read off exactly. Thirteen, so that an endpoint's counters fill
/// one pair of cache lines.
pub const DURATION_BOUNDS: [u64; 13] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    200_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// The bucket that `nanos` falls into: the first whose bound is not below it.
#[inline]
pub(super) fn bucket(nanos: u64) -> usize {
    DURATION_BOUNDS.iter().map(|&bound| usize::from(nanos > bound)).sum()
}

/// One endpoint's counters: a pair of cache lines, which the processor fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Endpoint {
    pub(super) requests: Tally,
    /// Not cumulative; the exposition adds them up.
    pub(super) buckets: [Tally; DURATION_BOUNDS.len() + 1],
    pub(super) nanos: Tally,
}

const _: () = assert!(size_of::<Endpoint>() == 128);

/// Status codes counted one by one; what a handler makes up beyond them is counted together.
pub(super) const STATUS_MIN: u16 = 100;
pub(super) const STATUS_MAX: u16 = 599;
const STATUS_SLOTS: usize = (STATUS_MAX - STATUS_MIN) as usize + 1;

/// What a worker knows of its queue, as of its last turn.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    /// Requests that wait for their turn.
    pub(crate) waiting: Tally,
    /// 1 while the queue stands, else 0.
    pub(crate) stands: Tally,
    /// What a request costs the worker lately; 0 if that is not known.
    pub(crate) cost_nanos: Tally,
    /// Time so far in which nothing waited.
    pub(crate) empty_nanos: Tally,
}

/// One worker's counters. Written by that worker alone, read by anybody.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerMetrics {
    /// Bytes received, as they came over the wire.
    pub bytes_read: Tally,
    /// Bytes handed to the kernel, as they go over the wire.
    pub bytes_written: Tally,
    /// Connections accepted so far.
    pub connections: Tally,
    /// Connections open now.
    pub connections_active: Tally,
    /// Requests answered within their deadline and with no failure of ours: 2xx to 4xx, refusals
    /// not among them.
    pub good: Tally,
    /// Time from readiness to answer, summed over requests that were not refused, in nanoseconds.
    pub latency_nanos: Tally,
    /// How long requests waited for their turn.
    pub queue_delay: QueueDelay,
    /// Connections with work now: they want the worker's time, or an answer that is being made.
    pub(crate) in_flight: Tally,
    /// Those of them that count as load, whatever that is to the limiter.
    pub(crate) load: Tally,
    /// The most of those at once since [`WorkerMetrics::take_load_max`].
    load_max: AtomicU32,
    /// What the worker knows of its queue.
    pub(crate) queue: QueueState,
    pub(super) turns: Tally,
    pub(super) events: Tally,
    pub(super) busy_nanos: Tally,
    /// Kernel id of the worker's thread; 0 before it is known.
    thread: AtomicU32,
    pub(super) timeouts: [Tally; Timeout::ALL.len()],
    pub(super) rejections: [Tally; Rejection::LABELS.len()],
    statuses: Box<[Tally]>,
    /// One per route, then the one for requests that matched none.
    endpoints: Box<[Endpoint]>,
}

impl WorkerMetrics {
    /// The endpoint of a request that no route matched.
    pub const UNMATCHED: u16 = u16::MAX;

    pub(crate) fn new(routes: usize) -> Self {
        WorkerMetrics {
            bytes_read: Tally::default(),
            bytes_written: Tally::default(),
            connections: Tally::default(),
            connections_active: Tally::default(),
            good: Tally::default(),
            latency_nanos: Tally::default(),
            queue_delay: QueueDelay::default(),
            in_flight: Tally::default(),
            load: Tally::default(),
            load_max: AtomicU32::new(0),
            queue: QueueState::default(),
            turns: Tally::default(),
            events: Tally::default(),
            busy_nanos: Tally::default(),
            thread: AtomicU32::new(0),
            timeouts: Default::default(),
            rejections: Default::default(),
            statuses: (0..=STATUS_SLOTS).map(|_| Tally::default()).collect(),
            endpoints: (0..=routes).map(|_| Endpoint::default()).collect(),
        }
    }

    /// Says which thread this worker runs on: the one that calls. Once, before its first turn.
    ///
    /// It lets the sampler ask the kernel for the thread's CPU time. Most of what a worker does
    /// happens in the kernel while it polls, and does not show in [`WorkerMetrics::turn`].
    pub fn runs_here(&self) {
        if let Some(id) = super::process::thread_id() {
            self.thread.store(id, Relaxed);
        }
    }

    pub(super) fn thread(&self) -> Option<u32> {
        Some(self.thread.load(Relaxed)).filter(|&id| id != 0)
    }

    /// Counts an answer to a request: `endpoint` as in the names given to the registry, anything
    /// beyond them (as [`WorkerMetrics::UNMATCHED`]) for what matched no route or was refused before
    /// it could.
    #[inline]
    pub fn request(&self, endpoint: u16, status: u16) {
        self.endpoint(endpoint).requests.add(1);
        let slot = match status {
            STATUS_MIN..=STATUS_MAX => usize::from(status - STATUS_MIN),
            _ => STATUS_SLOTS,
        };
        self.statuses[slot].add(1);
    }

    /// Records that requests to `endpoints`, one entry per request, each took `nanos` from their
    /// reception to their answer's hand-over to the kernel. Called once per turn: what a turn
    /// answers it hands over together.
    #[inline]
    pub fn durations(&self, endpoints: &[u16], nanos: u64) {
        let bucket = bucket(nanos);
        for run in endpoints.chunk_by(|a, b| a == b) {
            let count = run.len() as u64;
            let endpoint = self.endpoint(run[0]);
            endpoint.buckets[bucket].add(count);
            endpoint.nanos.add(count.saturating_mul(nanos));
        }
    }

    /// Records the duration of one request that was answered in a later turn than it came in.
    #[inline]
    pub fn duration(&self, endpoint: u16, nanos: u64) {
        self.durations(&[endpoint], nanos);
    }

    /// Counts a request refused by the protocol engine. Its answer counts as a request as well.
    #[inline]
    pub fn reject(&self, reject: Reject) {
        self.rejected(Rejection::Request(reject));
    }

    /// Counts a failure that made accepting pause.
    pub fn accept_failed(&self, error: AcceptError) {
        self.rejected(Rejection::from(error));
    }

    /// Counts something refused.
    #[inline]
    pub fn rejected(&self, rejection: Rejection) {
        self.rejections[rejection.index()].add(1);
    }

    /// Says how many connections count as load.
    #[inline]
    pub(crate) fn set_load(&self, count: u32) {
        self.load.set(u64::from(count));
        if count > self.load_max.load(Relaxed) {
            self.load_max.store(count, Relaxed);
        }
    }

    /// The most load at once since this was last asked. For one asker; a peak that falls into the very
    /// moment of asking may be reported twice, or as what there is now.
    pub(crate) fn take_load_max(&self) -> u32 {
        let now = u32::try_from(self.load.get()).unwrap_or(u32::MAX);
        self.load_max.swap(now, Relaxed).max(now)
    }

    /// Work turned away so far because there was more than the workers can do.
    pub(crate) fn refused_for_load(&self) -> u64 {
        let for_load = Rejection::SHED.iter().filter(|rejection| rejection.is_for_load());
        for_load.map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Work turned away so far for there being too much of it.
    pub(crate) fn shed(&self) -> u64 {
        Rejection::SHED.iter().map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Of those refused for load, the ones that had been waiting in the queue.
    pub(crate) fn dropped(&self) -> u64 {
        let queue = [Rejection::QueueDelay, Rejection::RequestPriority];
        queue.iter().map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Requests answered so far that were not turned away.
    pub(crate) fn completed(&self) -> u64 {
        // Nobody was there to be answered.
        let unanswered = self.rejections[Rejection::QueueHungUp.index()].get();
        (self.requests() + unanswered).saturating_sub(self.shed())
    }

    /// Counts a connection that was ended, or a request that was refused, for being slow.
    #[inline]
    pub fn timeout(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add(1);
    }

    /// Counts a turn of the loop: how long it kept the worker from waiting for further events, in
    /// wall time, and how many events it handled.
    #[inline]
    pub fn turn(&self, busy: Duration, events: u32) {
        self.turns.add(1);
        self.events.add(u64::from(events));
        self.busy_nanos.add(nanos(busy));
    }

    #[inline]
    fn endpoint(&self, endpoint: u16) -> &Endpoint {
        let unmatched = self.endpoints.len() - 1;
        &self.endpoints[usize::from(endpoint).min(unmatched)]
    }

    /// Every endpoint; the last counts what matched no route.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Answers by status code, then those with any other code.
    pub(super) fn statuses(&self) -> &[Tally] {
        &self.statuses
    }

    /// Requests so far, over all endpoints.
    pub(crate) fn requests(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.requests.get()).sum()
    }

    /// Durations recorded so far, over all endpoints.
    pub(crate) fn durations_counted(&self) -> u64 {
        let buckets = self.endpoints.iter().flat_map(|endpoint| &endpoint.buckets);
        buckets.map(Tally::get).sum()
    }
}

/// A duration in nanoseconds; 584 years hold any that occurs.
#[inline]
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a bucket's bound belongs to the bucket, as Prometheus defines `le`.
    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(bucket(0), 0);
        for (index, &bound) in DURATION_BOUNDS.iter().enumerate() {
            assert_eq!(bucket(bound - 1), index);
            assert_eq!(bucket(bound), index);
            assert_eq!(bucket(bound + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), DURATION_BOUNDS.len());
    }

    /// Purpose: workers must not slow each other down by writing to the same cache lines.
    #[test]
    fn workers_share_no_line() {
        assert_eq!(align_of::<WorkerMetrics>(), 128);
        assert_eq!(size_of::<WorkerMetrics>() % 128, 0);
        assert_eq!(align_of::<Endpoint>(), 128);
    }

    /// Purpose: the table of labels and the protocol engine must call a refusal the same.
    #[test]
    fn rejections_are_labelled_as_the_engine_names_them() {
        let all = [
            Reject::LineEnd,
            Reject::Host,
            Reject::Truncated,
            Reject::HeaderTimeout,
            Reject::BodyTimeout,
            Reject::BodyTooLarge,
            Reject::UriTooLong,
            Reject::Expectation,
            Reject::HeaderTooLarge,
            Reject::VersionUnsupported,
        ];
        for reject in all {
            assert_eq!(Rejection::Request(reject).layer(), "request");
            assert_eq!(Rejection::Request(reject).reason(), reject.code());
        }
        assert_eq!(Rejection::AcceptDescriptors.layer(), "accept");
        assert_eq!(Rejection::AcceptConnectionsMax.reason(), "connections_max");
        let shed = Rejection::SHED.map(|rejection| (rejection.layer(), rejection.reason()));
        let expected = [
            ("queue", "delay"),
            ("queue", "deadline"),
            ("queue", "hung_up"),
            ("request", "limit"),
            ("request", "priority"),
            ("request", "app"),
        ];
        assert_eq!(shed, expected);
    }

    /// Purpose: a request without a route, or with a status no RFC knows, is counted and not lost.
    #[test]
    fn strays_have_a_place() {
        let worker = WorkerMetrics::new(2);
        worker.request(1, 200);
        worker.request(2, 404);
        worker.request(WorkerMetrics::UNMATCHED, 99);
        worker.request(0, 600);
        worker.request(0, 599);
        let requests: Vec<u64> = worker.endpoints().iter().map(|e| e.requests.get()).collect();
        assert_eq!(requests, [2, 1, 2]);
        assert_eq!(worker.requests(), 5);
        assert_eq!(worker.statuses()[100].get(), 1);
        assert_eq!(worker.statuses()[304].get(), 1);
        assert_eq!(worker.statuses()[499].get(), 1);
        assert_eq!(worker.statuses()[500].get(), 2);
    }

    /// Purpose: a turn's requests are counted one by one, whatever the order of their endpoints.
    #[test]
    fn durations_of_a_turn_are_counted_per_request() {
        let worker = WorkerMetrics::new(2);
        worker.durations(&[0, 0, 1, 0, WorkerMetrics::UNMATCHED], 60_000);
        worker.durations(&[], 60_000);
        worker.duration(1, 20_000_000_000);
        let [first, second, unmatched] = worker.endpoints() else {
            panic!("two routes and a rest")
        };
        assert_eq!((first.buckets[1].get(), first.nanos.get()), (3, 180_000));
        assert_eq!((second.buckets[1].get(), second.buckets[13].get()), (1, 1));
        assert_eq!(second.nanos.get(), 20_000_060_000);
        assert_eq!(unmatched.buckets[1].get(), 1);
    }

    /// Purpose: what is turned away is not counted as served, and a client that hung up was never
    /// answered, so it must not be subtracted from the answers.
    #[test]
    fn completed_is_what_was_not_turned_away() {
        let worker = WorkerMetrics::new(1);
        for _ in 0..5 {
            worker.request(0, 200);
        }
        worker.request(0, 503);
        worker.rejected(Rejection::QueueDelay);
        worker.rejected(Rejection::QueueHungUp);
        assert_eq!((worker.completed(), worker.shed()), (5, 2));
    }

    /// Purpose: the least delay is that since the last question, whatever there was before.
    #[test]
    fn the_least_delay_is_forgotten_once_told() {
        let delay = QueueDelay::default();
        assert_eq!(delay.take_min(), None);
        delay.record(70_000, 3);
        delay.record(20_000, 1);
        delay.record(10_000, 0);
        assert_eq!((delay.take_min(), delay.take_min()), (Some(20_000), None));
        assert_eq!((delay.count(), delay.nanos.get()), (4, 230_000));
        delay.record(90_000, 1);
        assert_eq!(delay.take_min(), Some(90_000));
    }
}
