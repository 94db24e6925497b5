//! From a router to running workers: binding, starting, stopping.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_sys::signal::{Signal, Signals};
use highwater_sys::{Listener, Waker, cpu, limits};

use super::config::{Pin, ServerConfig};
use super::error::ServerError;
use super::listen::listen;
use super::observer::{Observer, endpoint_names};
use super::pool::{POOL_QUEUE_MAX, POOL_THREADS_MAX, Pool};
#[cfg(feature = "tower")]
use super::stop::{Stop, Stopper};
use super::threads::{Watch, WorkerThread, Workers};
use super::transport::{self, Kind};
use super::worker::{BodyMemory, Phase, WorkerConfig};
use crate::admission::{AdmissionSettings, PreparedAdmission, RunningAdmission};
use crate::app::{App, Router, WorkerInfo};
use crate::logging::{self, FlushAtEnd};
use crate::machine;
use crate::metrics::{Metrics, Readiness, Sampler};

/// After the drain deadline, how long cut connections may take to be reported closed.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// An HTTP server that is about to start.
///
/// ```no_run
/// use highwater::{Router, Server};
///
/// fn hello() -> &'static str {
///     "Hello, World!"
/// }
///
/// # fn main() -> Result<(), highwater::ServerError> {
/// Server::new(Router::new().get("/", hello)).run()
/// # }
/// ```
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    router: Router,
    config: ServerConfig,
    readiness: Readiness,
    metrics: Metrics,
    listener: Option<std::net::TcpListener>,
}

impl Server {
    /// A server for `router` with default settings: `127.0.0.1:8080`, metrics on port 9090.
    pub fn new(router: Router) -> Self {
        Server {
            router,
            config: ServerConfig::default(),
            readiness: Readiness::default(),
            metrics: Metrics::new(),
            listener: None,
        }
    }

    /// Serves on a socket that is already bound and listening, for example from a service manager or a test.
    /// The configured address is ignored.
    ///
    /// The other workers bind the same address, with the same backlog. If they may not (it belongs to another
    /// user, its port is privileged), all workers accept from this one socket.
    pub fn listener(mut self, listener: std::net::TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Replaces all settings.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = config.into();
        self
    }

    /// What `/readyz` on the metrics port asks.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// The registry to count in, which also holds the application's own metrics.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP, then drains: stops accepting, answers what is in
    /// flight, and cuts what is left after the drain timeout. SIGQUIT cuts at once, and so does a further
    /// SIGTERM, SIGINT or SIGQUIT while it drains.
    ///
    /// A program that starts threads of its own before this must block the signals first: see
    /// [`Running::until_signal`].
    ///
    /// # Errors
    /// The router is inconsistent, an address cannot be bound, or a driver failed.
    pub fn run(self) -> Result<(), ServerError> {
        // Before any thread starts, so that all of them inherit the mask.
        let signals = Signals::block().map_err(ServerError::signals)?;
        self.start()?.until_signal(&signals)
    }

    /// Starts the workers and returns. For tests, and for programs with their own main loop.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn start(self) -> Result<Running, ServerError> {
        let Server { router, config, readiness, metrics, listener } = self;
        logging::install(config.log);
        let at_end = FlushAtEnd;
        if metrics.has_begun() {
            return Err(ServerError::Metrics);
        }
        let app = router.build().map_err(ServerError::Build)?;
        let chosen = transport::choose(config.transport).map_err(ServerError::Transport)?;
        let cores = cpu::allowed().unwrap_or_default();
        let workers = config.workers.map_or_else(cpu::suggested_workers, |workers| workers.get());
        let connections_max = connections_max(&config)?;
        let listeners = listen(listener, &config, workers)?;
        let address =
            listeners[0].local_addr().map_err(|error| ServerError::bind(config.listen, error))?;
        metrics.begin(&endpoint_names(&app), workers);
        show_limits(&metrics, &app);
        metrics.panics(app.panics());
        metrics.transport(chosen.kind.name(), &chosen.reason);
        let sampler = metrics.sampler().map_err(ServerError::Worker)?;
        let settings = admission_settings(&config, connections_max, workers);
        let prepared = PreparedAdmission::new(&settings, address, &listeners)
            .map_err(ServerError::Admission)?;
        let phase = Arc::new(Phase::default());
        let watch = Watch::new(Arc::clone(&phase), &metrics, &readiness);
        let watch = watch.map_err(ServerError::Worker)?;
        // From here on, whatever has been started is stopped if the rest fails.
        let mut running = Running {
            address,
            drain_timeout: config.drain_timeout,
            workers: Workers::new(phase, Arc::clone(&watch)),
            watch,
            observer: None,
            readiness,
            pool: Pool::new(POOL_THREADS_MAX, config.patience, POOL_QUEUE_MAX),
            admission: None,
            _sampler: sampler,
            _at_end: at_end,
        };
        let plan = Plan {
            app: &app,
            config: &config,
            metrics: &metrics,
            prepared: &prepared,
            kind: chosen.kind,
            cores: &cores,
            workers,
            connections_max,
            body_memory: body_memory(&config, &metrics),
        };
        for (index, listener) in listeners.into_iter().enumerate() {
            running.workers.spawn(plan.worker(index, listener, &running.pool))?;
        }
        running.watch.set_alarm(running.workers.alarm());
        let admission =
            prepared.start(&metrics, running.workers.alarm()).map_err(ServerError::Worker)?;
        if let Some(after) = config.unready_after {
            let is_strained = admission.is_strained();
            running.readiness.check("load", move || match is_strained() {
                true => Err(format!("more was asked than can be done, for {after:?}")),
                false => Ok(()),
            });
        }
        running.admission = Some(admission);
        if let Some(wanted) = config.metrics {
            let watch = &running.watch;
            let observer = Observer::start(wanted, &config, &metrics, &running.readiness, watch)?;
            running.observer = Some(observer);
        }
        tracing::info!(
            address = %address,
            workers,
            transport = chosen.kind.name(),
            reason = chosen.reason,
            metrics = running.metrics_address().map(tracing::field::display),
            "serving",
        );
        Ok(running)
    }
}

/// What all workers of a server are made of.
struct Plan<'s> {
    app: &'s App,
    config: &'s ServerConfig,
    metrics: &'s Metrics,
    prepared: &'s PreparedAdmission,
    kind: Kind,
    cores: &'s [usize],
    workers: usize,
    connections_max: u32,
    body_memory: BodyMemory,
}

impl Plan<'_> {
    fn worker(&self, index: usize, listener: Listener, pool: &Pool) -> WorkerThread {
        let Plan { app, config, metrics, prepared, workers, .. } = *self;
        WorkerThread {
            name: format!("highwater-{index}"),
            worker: WorkerInfo::new(index, workers),
            core: pinned_core(config.pin, workers, self.cores, index),
            kind: self.kind,
            listener,
            pool: pool.clone(),
            gives_up_rights: prepared.has_kernel_gate(),
            config: WorkerConfig {
                connections_max: (self.connections_max / workers as u32).max(1),
                metrics: metrics.worker(index),
                gate: prepared.worker(index, metrics),
                body_memory: self.body_memory.clone(),
                ..WorkerConfig::new(app.clone(), config)
            },
        }
    }
}

/// Raises the descriptor limit as far as it goes, and derives the connection limit from it.
fn connections_max(config: &ServerConfig) -> Result<u32, ServerError> {
    let descriptors = limits::raise_descriptors().map_err(ServerError::signals)?.soft;
    Ok(config.connections_max.unwrap_or_else(|| machine::connections_max(descriptors)))
}

/// The memory for bodies of requests, and the metric that tells how much of it is held.
fn body_memory(config: &ServerConfig, metrics: &Metrics) -> BodyMemory {
    let max = config.body_memory_max.unwrap_or_else(machine::body_memory);
    let memory = BodyMemory::new(max);
    metrics.body_memory(memory.held());
    memory
}

fn admission_settings(
    config: &ServerConfig,
    connections_max: u32,
    workers: usize,
) -> AdmissionSettings {
    AdmissionSettings {
        shed: config.shed,
        gate: config.gate,
        gate_refusal: config.gate_refusal,
        refuse: config.refuse,
        connection_limit: config.connection_limit,
        limiter: config.limiter,
        patience: config.patience,
        queue_target: config.queue_target,
        unready_after: config.unready_after,
        connections_max,
        workers,
    }
}

/// Puts the concurrency limits that are found while the server runs on the metrics page.
fn show_limits(metrics: &Metrics, app: &App) {
    for (name, limit, in_flight) in app.found_limits() {
        let labels = &[("route", name)];
        let help = "Requests of a route, or a group of routes, that may be answered at once.";
        let limit =
            metrics.gauge_fn("http_concurrency_limit", help, labels, move || limit().into());
        let help = "Requests of a route, or a group of routes, that are being answered.";
        let count = move || in_flight().into();
        let in_flight = metrics.gauge_fn("http_concurrency_in_flight", help, labels, count);
        // Two limits with one name do not keep the server from starting: the first is shown.
        if limit.and(in_flight).is_err() {
            tracing::warn!(route = name, "two concurrency limits have one name in metrics");
        }
    }
}

fn pinned_core(pin: Pin, workers: usize, cores: &[usize], index: usize) -> Option<usize> {
    let wanted = match pin {
        Pin::On => true,
        Pin::Off => false,
        // Fewer workers than cores: the scheduler knows better which of them are free.
        Pin::Auto => workers == cores.len() && workers > 1,
    };
    if wanted && !cores.is_empty() { Some(cores[index % cores.len()]) } else { None }
}

/// A server at work. Dropping it stops it without a drain.
pub struct Running {
    address: SocketAddr,
    drain_timeout: Duration,
    workers: Workers,
    watch: Arc<Watch>,
    observer: Option<Observer>,
    readiness: Readiness,
    pool: Pool,
    admission: Option<RunningAdmission>,
    _sampler: Sampler,
    /// Last, since all fields above may log when they are dropped.
    _at_end: FlushAtEnd,
}

impl Running {
    /// The address it listens on; the port is the real one if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the metrics port, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.observer.as_ref().map(|observer| observer.address)
    }

    /// Whether a worker died: a panic escaped, or its driver failed. The server then drains by itself;
    /// [`Running::stop`] says why.
    pub fn has_failed(&self) -> bool {
        self.watch.has_failed()
    }

    /// Serves until one of `signals` comes, then drains as [`Server::run`] does.
    ///
    /// For programs with threads of their own. The kernel delivers a signal to any thread that does not block
    /// it, and there it ends the process. So block the signals first; every thread started later inherits
    /// that:
    ///
    /// ```no_run
    /// use highwater::server::Signals;
    /// use highwater::{Router, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let signals = Signals::block()?;
    /// let worker = std::thread::spawn(|| { /* something beside the server */ });
    /// Server::new(Router::new().get("/", || "Hello, World!")).start()?.until_signal(&signals)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A worker failed: its driver, or a panic escaped. The server stops by itself then.
    pub fn until_signal(mut self, signals: &Signals) -> Result<(), ServerError> {
        if let Some(admission) = &self.admission {
            admission.give_up_rights();
        }
        while !self.watch.has_failed() {
            let waited = signals.wait_or(&self.watch.waker, None);
            if let Some(signal) = waited.map_err(ServerError::signals)? {
                tracing::info!(signal = %signal, "stopping");
                if signal == Signal::Quit {
                    self.drain_timeout = Duration::ZERO;
                }
                break;
            }
        }
        self.end(|waker, left| is_hurried(signals, waker, left))
    }

    /// Serves until `stopper` is asked to stop; a request to cut ends the drain.
    #[cfg(feature = "tower")]
    pub(crate) fn until_requested(mut self, stopper: &Stopper) -> Result<(), ServerError> {
        if let Some(admission) = &self.admission {
            admission.give_up_rights();
        }
        stopper.wakes(&self.watch.waker);
        while !self.watch.has_failed() {
            match stopper.requested() {
                None => self.watch.waker.wait(Duration::MAX).map_err(ServerError::Worker)?,
                Some(Stop::Drain) => break,
                Some(Stop::Cut) => {
                    self.drain_timeout = Duration::ZERO;
                    break;
                }
            }
        }
        self.end(|waker, left| {
            quietly(waker, left)?;
            Ok(stopper.requested() == Some(Stop::Cut))
        })
    }

    /// Drains and stops.
    ///
    /// # Errors
    /// A worker failed: its driver, or a panic escaped.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.end(quietly)
    }

    /// Drains, cuts the remaining connections at the deadline or when `wait` returns true, and stops. `wait`
    /// waits for the waker, for at most the time it is given.
    fn end(
        &mut self,
        wait: impl Fn(&Waker, Duration) -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        self.readiness.drain();
        self.workers.drain();
        self.until_ended(self.drain_timeout, wait)?;
        if !self.workers.has_ended() {
            self.workers.cut();
            self.until_ended(CUT_GRACE, quietly)?;
        }
        let outcome = self.workers.join();
        self.pool.close();
        let observed = match self.observer.take() {
            // Scrapers keep their connections open; the drain does not wait for them.
            Some(mut observer) => observer.workers.end_now(),
            None => Ok(()),
        };
        outcome.and(observed).map_err(ServerError::Worker)
    }

    /// Waits until all workers have ended, for at most `timeout`, or until `wait` returns true.
    fn until_ended(
        &self,
        timeout: Duration,
        wait: impl Fn(&Waker, Duration) -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let begun = Instant::now();
        while !self.workers.has_ended() {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() || wait(&self.watch.waker, left)? {
                break;
            }
        }
        Ok(())
    }
}

/// Waits for the waker alone; nothing cuts the drain short.
fn quietly(waker: &Waker, left: Duration) -> Result<bool, ServerError> {
    waker.wait(left).map_err(ServerError::Worker)?;
    Ok(false)
}

/// Waits for the waker; returns whether a signal asks to end the drain.
fn is_hurried(signals: &Signals, waker: &Waker, left: Duration) -> Result<bool, ServerError> {
    match signals.wait_or(waker, Some(left)).map_err(ServerError::signals)? {
        // A terminal that closes (SIGHUP) does not cut the drain short.
        None | Some(Signal::HangUp) => Ok(false),
        Some(signal) => {
            tracing::info!(signal = %signal, "the drain ends now");
            Ok(true)
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain_timeout = Duration::ZERO;
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::server::Inbox;

    /// Purpose: a worker that dies ends the server at once and with an error, although no signal comes, so
    /// that a supervisor restarts it.
    #[test]
    fn a_dead_worker_ends_the_server() {
        let signals = Signals::block().expect("signals can be blocked");
        let config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            metrics: None,
            shed: Some(crate::server::Shed::None),
            ..ServerConfig::default()
        };
        let server = Server::new(Router::new().get("/", || "OK")).config(config);
        let mut running = server.start().expect("it starts");
        let dies = running.workers.start("highwater-dies".into(), |ready| {
            ready.tell(&Inbox::new(Box::new(|| {})));
            thread::sleep(Duration::from_millis(50));
            panic!("on demand")
        });
        dies.expect("it begins");
        let error = running.until_signal(&signals).expect_err("a worker died");
        assert_eq!(error.to_string(), "a worker failed: it panicked: on demand");
    }
}
