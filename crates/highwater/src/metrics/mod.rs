//! What is the server doing, and how fast?
//!
//! Workers count (`counters.rs`, `queue_delay.rs`, by the names of `reasons.rs`), a sampler turns
//! counts into rates (`sampler.rs`), the application adds its own metrics (`registry.rs`), and a
//! scrape of the metrics port writes all of them (`families.rs`, `scaling.rs`, `process.rs`, in the
//! format of `exposition.rs`). `port.rs` serves that, together with the verdict of `readiness.rs`
//! and a page for browsers that draws it (`page/`).
//!
//! ```text
//!  worker 0 ─▶ WorkerMetrics ─┐
//!  worker 1 ─▶ WorkerMetrics ─┼─ summed by ─▶ GET /metrics ◀── registry ◀── Metrics::counter, …
//!      …                      └─ read 4 × a second by the sampler ─▶ rates ──────┘
//! ```
//!
//! Invariants: a scrape waits for no worker, and no worker for a scrape; the hot path takes no lock
//! and executes no locked instruction; every family on the page has real data.

mod classes;
mod counters;
pub mod exposition;
mod families;
mod handshakes;
pub(crate) mod page;
mod process;
mod queue_delay;
mod readiness;
mod reasons;
mod registry;
mod sampler;
mod scaling;
mod sockets;
mod streams;
mod tally;
mod totals;
mod transport;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fmt, io, time};

use highwater_core::time::Instant;
use highwater_sys::capability::{self, Capability};

use self::sampler::{Busy, Rates, Sample, Window};
use self::transport::Transport;

pub(crate) use self::classes::Answer;
pub(crate) use self::counters::{LISTENERS_MAX, WorkerMetrics};
pub(crate) use self::handshakes::{Completed, HandshakeFailure};
pub use self::readiness::Readiness;
pub(crate) use self::reasons::{Rejection, Timeout};
pub use self::registry::{Counter, MetricError};
pub(crate) use self::scaling::Scaling;
pub use self::scaling::Signals;
pub(crate) use self::sockets::{SocketEnd, Sockets};
pub(crate) use self::tally::DURATION_BOUNDS;
pub(crate) use self::totals::{Arrivals, Totals};

/// All metrics of one server and its application. Cheap to clone.
///
/// Make one, register the application's metrics, and give it to the server:
///
/// ```
/// use highwater::metrics::Metrics;
///
/// let metrics = Metrics::new();
/// let hits = metrics.counter("http_cache_hits", "Requests answered from the cache.")?;
/// hits.increment();
/// # Ok::<(), highwater::metrics::MetricError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The origin of this registry's clock.
    origin: time::Instant,
    registry: registry::Registry,
    server: OnceLock<Server>,
    transport: OnceLock<Transport>,
    gate: OnceLock<Gate>,
    admission: OnceLock<Admission>,
    worker_failures: AtomicU64,
    panics: OnceLock<Arc<AtomicU64>>,
    body_memory: OnceLock<Arc<AtomicU64>>,
    pool: OnceLock<PoolReader>,
    process_start: process::Start,
    sampled: Mutex<Sampled>,
}

/// The data of a server that has begun.
#[derive(Debug)]
struct Server {
    since: Instant,
    workers: Box<[Arc<WorkerMetrics>]>,
    /// Names of endpoints, each with the indices of its endpoints.
    endpoints: Vec<(String, Vec<usize>)>,
    /// The addresses of its listeners.
    listeners: OnceLock<Vec<String>>,
}

/// The mechanism that refuses excess work.
#[derive(Debug)]
struct Gate {
    mechanism: String,
    reason: String,
    limiter: String,
}

/// How the pool for blocking handlers is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolState {
    pub(crate) threads: usize,
    /// Jobs that wait for a thread.
    pub(crate) waiting: usize,
}

/// Called with every scrape.
struct PoolReader(Box<dyn Fn() -> PoolState + Send + Sync>);

impl fmt::Debug for PoolReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(f)
    }
}

/// Called with every scrape.
struct Admission(Box<dyn Fn() -> Scaling + Send + Sync>);

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(f)
    }
}

#[derive(Debug, Default)]
struct Sampled {
    window: Window,
    rates: Rates,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// The name under which requests without a matching route are counted.
const UNMATCHED: &str = "not_found";

impl Metrics {
    /// A registry that no server uses yet.
    pub fn new() -> Self {
        Metrics(Arc::new(Inner {
            origin: time::Instant::now(),
            registry: registry::Registry::default(),
            server: OnceLock::new(),
            transport: OnceLock::new(),
            gate: OnceLock::new(),
            admission: OnceLock::new(),
            worker_failures: AtomicU64::new(0),
            panics: OnceLock::new(),
            body_memory: OnceLock::new(),
            pool: OnceLock::new(),
            process_start: process::Start::default(),
            sampled: Mutex::default(),
        }))
    }

    /// Registers a counter for the application to add to. A name that does not end in `_total` is
    /// written as `untyped`, as the format's convention demands.
    ///
    /// # Errors
    /// [`MetricError`] says which rule `name` breaks, and what to write instead.
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, MetricError> {
        self.0.registry.counter(name, help, &[])
    }

    /// Registers a counter with labels, as `&[("kind", "page")]`. One name may be registered many
    /// times, each with other label values.
    ///
    /// # Errors
    /// As [`Metrics::counter`].
    pub fn counter_with(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
    ) -> Result<Counter, MetricError> {
        self.0.registry.counter(name, help, labels)
    }

    /// Registers a counter that the application keeps itself: `read` is called with every scrape, on
    /// the thread that serves it, and must not wait.
    ///
    /// # Errors
    /// As [`Metrics::counter`].
    pub fn counter_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        self.0.registry.counter_fn(name, help, labels, Arc::new(read))
    }

    /// Registers a number that goes up and down: `read` is called with every scrape, on the thread
    /// that serves it, and must not wait.
    ///
    /// # Errors
    /// As [`Metrics::counter`].
    pub fn gauge_fn(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        self.0.registry.gauge_fn(name, help, labels, Arc::new(read))
    }

    /// Begins counting for a server: `endpoints[i]` names what workers count as endpoint `i`. Those
    /// of the same name are added up.
    ///
    /// # Panics
    /// If a server has begun already: one registry describes one server.
    pub(crate) fn begin(&self, endpoints: &[&str], workers: usize) {
        let worker = || Arc::new(WorkerMetrics::new(endpoints.len()));
        let server = Server {
            since: self.now(),
            workers: (0..workers).map(|_| worker()).collect(),
            endpoints: by_name(endpoints),
            listeners: OnceLock::new(),
        };
        assert!(self.0.server.set(server).is_ok(), "each server needs Metrics of its own");
        self.sample(self.now());
    }

    /// Whether a server uses it, or tried to.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.server.get().is_some()
    }

    /// The counters of worker `index`, for that worker to write.
    ///
    /// # Panics
    /// If no server has begun, or it has fewer workers.
    pub(crate) fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        let server = self.0.server.get().expect("Metrics::begin comes before the workers");
        Arc::clone(&server.workers[index])
    }

    /// Stores where the server listens. Only the first call counts.
    pub(crate) fn listeners(&self, addresses: Vec<String>) {
        if let Some(server) = self.0.server.get() {
            let _ = server.listeners.set(addresses);
        }
    }

    /// Stores how bytes are moved, and why. Only the first call counts.
    pub(crate) fn transport(&self, name: &str, reason: &str) {
        let transport = Transport { name: name.to_owned(), reason: reason.to_owned() };
        let _ = self.0.transport.set(transport);
    }

    /// Counts a worker that died.
    pub(crate) fn worker_failed(&self) {
        self.0.worker_failures.fetch_add(1, Relaxed);
    }

    /// Stores the mechanism that refuses excess work, why it was chosen, and the limiter's name.
    /// Only the first call counts.
    pub(crate) fn gate(&self, mechanism: &str, reason: &str, limiter: &str) {
        let _ = self.0.gate.set(Gate {
            mechanism: mechanism.to_owned(),
            reason: reason.to_owned(),
            limiter: limiter.to_owned(),
        });
    }

    /// Registers the source of the admission figures: `read` is called with every scrape and must
    /// not wait. Only the first call counts.
    pub(crate) fn admission(&self, read: impl Fn() -> Scaling + Send + Sync + 'static) {
        let _ = self.0.admission.set(Admission(Box::new(read)));
    }

    /// Registers the counter of handler panics. Only the first call counts.
    pub(crate) fn panics(&self, count: Arc<AtomicU64>) {
        let _ = self.0.panics.set(count);
    }

    /// Registers the counter of the memory that request bodies take. Only the first call counts.
    pub(crate) fn body_memory(&self, held: Arc<AtomicU64>) {
        let _ = self.0.body_memory.set(held);
    }

    /// Registers how the pool for blocking handlers is read. Only the first call counts.
    pub(crate) fn pool(&self, read: impl Fn() -> PoolState + Send + Sync + 'static) {
        let _ = self.0.pool.set(PoolReader(Box::new(read)));
    }

    /// The answer to `GET /scaling`: a flat JSON object of numbers; `None` before a server admits
    /// work.
    pub(crate) fn scaling(&self) -> Option<String> {
        let (server, admission) = (self.0.server.get()?, self.0.admission.get()?);
        let scaling = (admission.0)();
        let total = families::total_rejections(server, &scaling);
        Some(scaling.json(total, self.0.rates().requests_per_second))
    }

    /// Starts the thread that computes the rates. It runs until the [`Sampler`] is dropped.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn sampler(&self) -> io::Result<Sampler> {
        let stop = Arc::new(AtomicBool::new(false));
        let (metrics, stopped) = (self.clone(), Arc::clone(&stop));
        let run = move || {
            // It needs no privileges. If the system does not allow it to give them up, the workers
            // report that.
            let _ = capability::give_up(&Capability::ALL);
            while !stopped.load(Relaxed) {
                metrics.sample(metrics.now());
                thread::park_timeout(sampler::PERIOD);
            }
        };
        let thread = crate::thread::start("hw-sampler", Box::new(run))?;
        Ok(Sampler { stop, thread: Some(thread) })
    }

    /// The page for a scrape, in the Prometheus text format 0.0.4. Rates and ratios on it change
    /// only while a server runs.
    pub fn page(&self) -> String {
        families::write(&self.0, self.now())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.0.origin.elapsed()
    }

    fn sample(&self, now: Instant) {
        let Some(server) = self.0.server.get() else { return };
        let mut sampled = self.0.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        if sampled.window.wants(now) {
            sampled.rates = sampled.window.push(server.look(now));
        }
    }
}

impl Inner {
    fn rates(&self) -> Rates {
        self.sampled.lock().unwrap_or_else(PoisonError::into_inner).rates.clone()
    }
}

impl Server {
    fn look(&self, now: Instant) -> Sample {
        let busy = |worker: &Arc<WorkerMetrics>| Busy {
            turn_nanos: worker.busy_nanos.get(),
            cpu_nanos: worker.thread().and_then(process::thread_cpu_nanos),
        };
        Sample {
            at: now,
            requests: self.workers.iter().map(|worker| worker.requests()).sum(),
            workers: self.workers.iter().map(busy).collect(),
        }
    }
}

/// Endpoints by name, in the order of their first appearance; the last entry counts requests
/// without a route.
fn by_name(endpoints: &[&str]) -> Vec<(String, Vec<usize>)> {
    let mut named: Vec<(String, Vec<usize>)> = Vec::with_capacity(endpoints.len() + 1);
    let mut places = HashMap::with_capacity(endpoints.len() + 1);
    for (index, &name) in endpoints.iter().chain([&UNMATCHED]).enumerate() {
        let place = *places.entry(name).or_insert(named.len());
        match named.get_mut(place) {
            Some((_, indices)) => indices.push(index),
            None => named.push((name.to_owned(), vec![index])),
        }
    }
    named
}

/// Whether the server itself has metrics called `name`, or reserves the name.
fn is_own_name(name: &str) -> bool {
    let reserved = [
        "highwater_",
        "process_",
        "http_scaling_",
        "http_request_duration_seconds",
        "http_queue_delay_seconds",
    ];
    let is_reserved = reserved.iter().any(|prefix| name.starts_with(prefix));
    // Highwater's own services are applications, too.
    let is_of_a_service = SERVICES.iter().any(|prefix| name.starts_with(prefix));
    families::NAMES.contains(&name) || is_reserved && !is_of_a_service
}

/// What the metrics of Highwater's own services begin with.
const SERVICES: [&str; 2] = ["highwater_ingest_", "highwater_todos_"];

/// The thread that reads the counters four times a second. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
