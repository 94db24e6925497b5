//! What has one worker done so far?
//!
//! Every worker owns one [`WorkerMetrics`] and is its only writer; a scrape reads all of them and
//! adds up. So a count costs a load, an add and a store, without a locked instruction or a cache
//! line that another core writes.
//!
//! It never computes rates, ratios or text (`sampler.rs` and `exposition.rs` do), and never
//! allocates or waits after construction.
//!
//! Invariants: one writer per `WorkerMetrics` (a second one would lose counts, nothing worse);
//! counters only grow; the counters of two workers never share a pair of cache lines.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use std::sync::{Arc, OnceLock};

use highwater_core::driver::AcceptError;
use highwater_core::http::Reject;

use super::classes::{Answer, Classes};
use super::handshakes::Handshakes;
use super::queue_delay::QueueDelay;
use super::reasons::{Rejection, Row, Timeout};
use super::sockets::Sockets;
use super::streams::StreamCounts;
use super::tally::{DURATION_BOUNDS, Tally, bucket};

/// One endpoint's counters. The duration that every request changes and the buckets below 50 ms are in the first pair of
/// cache lines, which the processor fetches together; slower requests need the second.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Endpoint {
    pub(super) nanos: Tally,
    /// Not cumulative; the exposition adds them up.
    pub(super) buckets: [Tally; DURATION_BOUNDS.len() + 1],
    /// All together are its requests.
    pub(super) answers: Classes,
}

const _: () = assert!(size_of::<Endpoint>() == 768);

/// Most listeners with a counter of their own: as many as a server may have.
pub(crate) const LISTENERS_MAX: usize = 16;

/// Status codes with a counter of their own; handlers may use others, which are counted together.
pub(super) const STATUS_MIN: u16 = 100;
pub(super) const STATUS_MAX: u16 = 599;
const STATUS_SLOTS: usize = (STATUS_MAX - STATUS_MIN) as usize + 1;

/// The state of a worker's queue at its last turn.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    /// Requests that wait for their turn.
    pub(crate) waiting: Tally,
    /// 1 while the queue stands, else 0; and the same while it is so long that it may have to stand soon, or stands.
    pub(crate) stands: Tally,
    pub(crate) is_long: Tally,
    /// The recent cost of a request; 0 if it is not known.
    pub(crate) cost_nanos: Tally,
    /// How long a request may wait while the queue stands.
    pub(crate) target_nanos: Tally,
    /// Total time with an empty queue.
    pub(crate) empty_nanos: Tally,
    /// Requests that came while the queue stood; of those, the ones that a proxy passed on.
    pub(crate) judged: Tally,
    pub(crate) passed_on: Tally,
    /// Clients with an account of their own; requests of clients without one, so far.
    pub(crate) accounts: Tally,
    pub(crate) overflow: Tally,
}

/// One worker's counters. Only that worker writes them; any thread may read.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerMetrics {
    /// Bytes received, as they came over the network.
    pub bytes_read: Tally,
    /// Bytes handed to the kernel, as they go over the network.
    pub bytes_written: Tally,
    /// Connections accepted so far; at each listener; and, of all, those to which no gate applies.
    pub connections: Tally,
    pub connections_at: [Tally; LISTENERS_MAX],
    pub connections_ungated: Tally,
    /// Connections open now.
    pub connections_active: Tally,
    /// Requests answered within their deadline and without a failure of the server: 2xx to 4xx,
    /// without refusals.
    pub good: Tally,
    /// Time from readiness to answer, summed over requests that were not refused, in nanoseconds.
    pub latency_nanos: Tally,
    /// How long requests waited for their turn.
    pub queue_delay: QueueDelay,
    /// Connections with work now: they want the worker's time, or an answer that is being made.
    pub(crate) in_flight: Tally,
    /// Those of them that count as load for the limiter.
    pub(crate) load: Tally,
    /// The largest load since [`WorkerMetrics::take_load_max`].
    load_max: AtomicU32,
    /// The state of the worker's queue.
    pub(crate) queue: QueueState,
    /// The handshakes of sealed connections.
    pub(crate) handshakes: Handshakes,
    /// The streams of HTTP/2 connections.
    pub(crate) streams: StreamCounts,
    /// Its WebSockets.
    pub(crate) sockets: Arc<Sockets>,
    pub(super) turns: Tally,
    pub(super) events: Tally,
    pub(super) busy_nanos: Tally,
    /// Kernel id of the worker's thread; 0 before it is known.
    thread: AtomicU32,
    /// The transport that the worker itself uses, once it is known.
    transport: OnceLock<&'static str>,
    pub(super) timeouts: [Tally; Timeout::ALL.len()],
    pub(super) rejections: [Tally; Row::ALL.len()],
    statuses: Box<[Tally]>,
    /// One per route, then the one for requests that matched none.
    endpoints: Box<[Endpoint]>,
}

impl WorkerMetrics {
    pub(crate) fn new(routes: usize) -> Self {
        WorkerMetrics {
            bytes_read: Tally::default(),
            bytes_written: Tally::default(),
            connections: Tally::default(),
            connections_at: Default::default(),
            connections_ungated: Tally::default(),
            connections_active: Tally::default(),
            good: Tally::default(),
            latency_nanos: Tally::default(),
            queue_delay: QueueDelay::default(),
            in_flight: Tally::default(),
            load: Tally::default(),
            load_max: AtomicU32::new(0),
            queue: QueueState::default(),
            handshakes: Handshakes::default(),
            streams: StreamCounts::default(),
            sockets: Arc::default(),
            turns: Tally::default(),
            events: Tally::default(),
            busy_nanos: Tally::default(),
            thread: AtomicU32::new(0),
            transport: OnceLock::new(),
            timeouts: Default::default(),
            rejections: Default::default(),
            statuses: (0..=STATUS_SLOTS).map(|_| Tally::default()).collect(),
            endpoints: (0..=routes).map(|_| Endpoint::default()).collect(),
        }
    }

    /// Stores the calling thread as the one that this worker runs on. Call it once, before its
    /// first turn.
    ///
    /// It lets the sampler ask the kernel for the thread's CPU time. Most of what a worker does
    /// happens in the kernel while it polls, and does not show in [`WorkerMetrics::turn`].
    pub(crate) fn runs_here(&self) {
        if let Some(id) = super::process::thread_id() {
            self.thread.store(id, Relaxed);
        }
    }

    /// Stores the transport that this worker serves over. Only the first call counts.
    pub(crate) fn serves_over(&self, transport: &'static str) {
        let _ = self.transport.set(transport);
    }

    pub(super) fn transport(&self) -> Option<&'static str> {
        self.transport.get().copied()
    }

    pub(super) fn thread(&self) -> Option<u32> {
        Some(self.thread.load(Relaxed)).filter(|&id| id != 0)
    }

    /// Counts an answer to a request. `endpoint` is an index of the names given to the registry;
    /// any other value (as `u16::MAX`) is for a request that matched no route or
    /// was refused before routing.
    #[inline]
    pub(crate) fn request(&self, endpoint: u16, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.endpoint(endpoint).answers.of(answer).add(1);
        self.status(answer.status()).add(1);
    }

    /// Counts requests that came and were answered in one turn, each with its endpoint and answer; each took
    /// `nanos` from its reception until its answer was handed to the kernel. Called once per turn, because all
    /// answers of a turn are handed over together.
    #[inline]
    pub(crate) fn answered(&self, requests: &[(u16, Answer)], nanos: u64) {
        let bucket = bucket(nanos);
        for run in requests.chunk_by(|a, b| a == b) {
            let (count, (endpoint, answer)) = (run.len() as u64, run[0]);
            self.status(answer.status()).add(count);
            let endpoint = self.endpoint(endpoint);
            endpoint.answers.of(answer).add(count);
            endpoint.buckets[bucket].add(count);
            endpoint.nanos.add(count.saturating_mul(nanos));
        }
    }

    fn status(&self, status: u16) -> &Tally {
        let slot = match status {
            STATUS_MIN..=STATUS_MAX => usize::from(status - STATUS_MIN),
            _ => STATUS_SLOTS,
        };
        &self.statuses[slot]
    }

    /// Records the duration of one request that was answered in a later turn than it came in.
    #[inline]
    pub(crate) fn duration(&self, endpoint: u16, nanos: u64) {
        let endpoint = self.endpoint(endpoint);
        endpoint.buckets[bucket(nanos)].add(1);
        endpoint.nanos.add(nanos);
    }

    /// Counts a request refused by the protocol engine. Its answer counts as a request as well.
    #[inline]
    pub(crate) fn reject(&self, reject: Reject) {
        self.rejected(Rejection::Request(reject));
    }

    /// Counts a failure that made accepting pause.
    pub(crate) fn accept_failed(&self, error: AcceptError) {
        self.rejected(Rejection::from(error));
    }

    /// Counts a refusal.
    #[inline]
    pub(crate) fn rejected(&self, rejection: Rejection) {
        self.rejections[rejection.index()].add(1);
    }

    /// Sets how many connections count as load.
    #[inline]
    pub(crate) fn set_load(&self, count: u32) {
        self.load.set(u64::from(count));
        if count > self.load_max.load(Relaxed) {
            self.load_max.store(count, Relaxed);
        }
    }

    /// The largest load since the last call. For one caller; a peak at the very moment of the call
    /// may be reported twice, or as the present load.
    pub(crate) fn take_load_max(&self) -> u32 {
        let now = u32::try_from(self.load.get()).unwrap_or(u32::MAX);
        self.load_max.swap(now, Relaxed).max(now)
    }

    /// Work refused so far because there was more than the workers can do.
    pub(crate) fn refused_for_load(&self) -> u64 {
        let for_load = Rejection::SHED.iter().filter(|rejection| rejection.is_for_load());
        for_load.map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Work refused so far by load shedding.
    pub(crate) fn shed(&self) -> u64 {
        Rejection::SHED.iter().map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Of the refusals because of load, those of requests that had waited in the queue.
    pub(crate) fn dropped(&self) -> u64 {
        let queue = [Rejection::QueueDelay, Rejection::RequestPriority];
        queue.iter().map(|rejection| self.rejections[rejection.index()].get()).sum()
    }

    /// Requests answered so far, without refusals.
    pub(crate) fn completed(&self) -> u64 {
        // Their clients had gone, so they got no answer.
        let unanswered = self.rejections[Rejection::QueueHungUp.index()].get();
        (self.requests() + unanswered).saturating_sub(self.shed())
    }

    /// Counts a connection that was ended, or a request that was refused, because it was slow.
    #[inline]
    pub(crate) fn timeout(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add(1);
    }

    /// Counts a turn of the loop: how long it kept the worker from waiting for further events, in
    /// wall time, and how many events it handled.
    #[inline]
    pub(crate) fn turn(&self, busy: Duration, events: u32) {
        self.turns.add(1);
        self.events.add(u64::from(events));
        self.busy_nanos.add(nanos(busy));
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.get()
    }

    #[inline]
    fn endpoint(&self, endpoint: u16) -> &Endpoint {
        let unmatched = self.endpoints.len() - 1;
        &self.endpoints[usize::from(endpoint).min(unmatched)]
    }

    /// All endpoints; the last one counts requests without a route.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Answers by status code, then those with any other code.
    pub(super) fn statuses(&self) -> &[Tally] {
        &self.statuses
    }

    /// Requests so far, over all endpoints.
    pub(crate) fn requests(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.answers.total()).sum()
    }

    /// Timeouts of one kind so far.
    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn timeouts(&self, kind: Timeout) -> u64 {
        self.timeouts[kind as usize].get()
    }

    /// Refusals so far with these labels.
    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn rejections(&self, layer: &str, reason: &str) -> u64 {
        let rows = Row::ALL.into_iter().filter(|row| row.labels() == (layer, reason));
        rows.map(|row| self.rejections[row as usize].get()).sum()
    }

    /// Durations recorded so far, over all endpoints.
    #[cfg(feature = "sim")]
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

    /// Purpose: workers must not slow each other down by writing to the same cache lines.
    #[test]
    fn workers_share_no_line() {
        assert_eq!(align_of::<WorkerMetrics>(), 128);
        assert_eq!(size_of::<WorkerMetrics>() % 128, 0);
        assert_eq!(align_of::<Endpoint>(), 128);
    }

    /// Purpose: the table of labels and the protocol engine must use the same name for a refusal.
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
            assert_eq!(Rejection::Request(reject).row().labels(), ("request", reject.code()));
        }
        let accept = Rejection::AcceptConnectionsMax.row().labels();
        assert_eq!(accept, ("accept", "connections_max"));
        let shed = Rejection::SHED.map(|rejection| rejection.row().labels());
        let expected = [
            ("queue", "delay"),
            ("queue", "full"),
            ("queue", "share"),
            ("queue", "deadline"),
            ("queue", "hung_up"),
            ("request", "limit"),
            ("request", "priority"),
            ("request", "app"),
        ];
        assert_eq!(shed, expected);
    }

    /// Purpose: a request without a route, or with a status that no RFC defines, is counted and not
    /// lost.
    #[test]
    fn strays_have_a_place() {
        let worker = WorkerMetrics::new(2);
        worker.request(1, 200);
        worker.request(2, 404);
        worker.request(u16::MAX, 99);
        worker.request(0, 600);
        worker.request(0, 599);
        let requests: Vec<u64> = worker.endpoints().iter().map(|e| e.answers.total()).collect();
        assert_eq!(requests, [2, 1, 2]);
        assert_eq!(worker.requests(), 5);
        assert_eq!(worker.statuses()[100].get(), 1);
        assert_eq!(worker.statuses()[304].get(), 1);
        assert_eq!(worker.statuses()[499].get(), 1);
        assert_eq!(worker.statuses()[500].get(), 2);
    }

    /// Purpose: a turn's requests are counted one by one, whatever the order of their endpoints.
    #[test]
    fn requests_of_a_turn_are_counted_one_by_one() {
        let worker = WorkerMetrics::new(2);
        let unmatched = u16::MAX;
        let answers = [(0, 200), (0, 200), (1, 200), (0, 204), (unmatched, 404)];
        worker
            .answered(&answers.map(|(endpoint, status)| (endpoint, Answer::from(status))), 60_000);
        worker.answered(&[], 60_000);
        let statuses = [200, 204, 404].map(|status| worker.status(status).get());
        assert_eq!((worker.requests(), statuses), (5, [3, 1, 1]));
        worker.duration(1, 20_000_000_000);
        let [first, second, unmatched] = worker.endpoints() else {
            panic!("two routes and a rest")
        };
        let to_100_us = 4;
        assert_eq!((first.buckets[to_100_us].get(), first.nanos.get()), (3, 180_000));
        let beyond = DURATION_BOUNDS.len();
        let counts = (second.buckets[to_100_us].get(), second.buckets[beyond].get());
        assert_eq!(counts, (1, 1));
        assert_eq!(second.nanos.get(), 20_000_060_000);
        assert_eq!(unmatched.buckets[to_100_us].get(), 1);
    }

    /// Purpose: refusals are not counted as served, and a client that hung up was never answered,
    /// so it must not be subtracted from the answers.
    #[test]
    fn completed_excludes_refusals() {
        let worker = WorkerMetrics::new(1);
        for _ in 0..5 {
            worker.request(0, 200);
        }
        worker.request(0, 503);
        worker.rejected(Rejection::QueueDelay);
        worker.rejected(Rejection::QueueHungUp);
        assert_eq!((worker.completed(), worker.shed()), (5, 2));
    }

    /// Purpose: the smallest delay is that since the last question, whatever there was before.
    #[test]
    fn the_least_delay_is_forgotten_once_reported() {
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
