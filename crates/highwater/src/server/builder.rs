//! From a router to running workers: binding, starting, stopping.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use highwater_core::http1::Limits;
use highwater_sys::signal::{Signal, Signals};
use highwater_sys::{Listener, cpu, limits};

use super::accept::BACKLOG;
use super::admit::THINK_MAX;
use super::config::{Pin, ServerConfig};
use super::crew::{Crew, Post};
use super::pool::Pool;
use super::port;
use super::run::Phase;
use super::transport::{self, Kind};
use super::worker::WorkerParts;
use crate::admission::gate::WorkerGate;
use crate::admission::{AtWork, Opening, Wanted};
use crate::app::{App, BuildError, EndpointInfo, Router};
use crate::metrics::{Metrics, Readiness, Sampler};
use crate::{log, machine};

/// Most threads for `blocking` handlers, and most jobs that wait for one; beyond it 503.
const POOL_THREADS_MAX: usize = 32;
const POOL_QUEUE_MAX: usize = 1024;

/// How long a port may still be taken when we start. The kernel takes a process with an io_uring
/// apart in the background: one that was killed has been seen to hold its port for some
/// milliseconds after its parent was told of its end, and whoever restarts it is that quick.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait before trying again.
const BIND_PAUSE: Duration = Duration::from_millis(5);

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
}

impl Server {
    /// A server for `router` with default settings: `127.0.0.1:8080`, metrics on port 9090.
    pub fn new(router: Router) -> Self {
        Server {
            router,
            config: ServerConfig::default(),
            readiness: Readiness::default(),
            metrics: Metrics::new(),
        }
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

    /// Where to count: the registry that the application's own metrics are registered with.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP, then drains: stops accepting, answers what is in
    /// flight, and cuts what is left after the drain timeout. SIGQUIT cuts at once.
    ///
    /// A program that starts threads of its own before this must hold the signals back before it
    /// does: see [`Running::until_signal`].
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
        let Server { router, config, readiness, metrics } = self;
        log::set_format(config.log);
        let app = router.build().map_err(ServerError::Build)?;
        let chosen = transport::choose(config.transport).map_err(ServerError::Transport)?;
        let cores = cpu::allowed().unwrap_or_default();
        let workers = config.workers.map_or_else(cpu::suggested_workers, |workers| workers.get());
        let connections_max = connections_max(&config)?;
        metrics.begin(&endpoint_names(&app), workers);
        show_limits(&metrics, &app);
        metrics.transport(chosen.kind.name(), &chosen.reason);
        let sampler = metrics.sampler().map_err(ServerError::Worker)?;
        let listener = bind(config.listen)?;
        let address =
            listener.local_addr().map_err(|error| ServerError::bind(config.listen, error))?;
        let mut listeners = vec![listener];
        for _ in 1..workers {
            let another =
                listeners[0].another().map_err(|error| ServerError::bind(address, error))?;
            listeners.push(another);
        }
        let pool = Pool::new(POOL_THREADS_MAX, POOL_QUEUE_MAX);
        let wanted = wanted(&config, connections_max, workers);
        let opening = Opening::new(&wanted, address, &listeners).map_err(ServerError::Admission)?;
        let phase = Arc::new(Phase::default());
        let mut crew = Crew::new(Arc::clone(&phase));
        for (index, listener) in listeners.into_iter().enumerate() {
            crew.hire(Post {
                name: format!("highwater-{index}"),
                core: pinned_core(config.pin, workers, &cores, index),
                kind: chosen.kind,
                listener,
                pool: pool.clone(),
                gives_up_rights: opening.has_kernel_gate(),
                parts: WorkerParts {
                    app: app.clone(),
                    limits: config.limits.clone(),
                    connections_max: (connections_max / workers as u32).max(1),
                    metrics: metrics.worker(index),
                    gate: opening.worker(index, &metrics),
                    queue_target: config.queue_target,
                    deadline_max: config.deadline_max,
                    think_max: THINK_MAX,
                },
            })?;
        }
        let admission = opening.start(&metrics, crew.alarm()).map_err(ServerError::Worker)?;
        let observer = match config.metrics {
            Some(wanted) => Some(Observer::start(wanted, &config, &metrics, &readiness)?),
            None => None,
        };
        log::info!(
            "serving",
            address = address,
            workers = workers,
            transport = chosen.kind.name(),
            reason = chosen.reason,
            metrics = observer.as_ref().map(|observer| observer.address),
        );
        Ok(Running {
            address,
            drain_timeout: config.drain_timeout,
            crew,
            observer,
            readiness,
            pool,
            admission,
            _sampler: sampler,
        })
    }
}

/// Raises the descriptor limit as far as it goes, and derives the connection limit from it.
fn connections_max(config: &ServerConfig) -> Result<u32, ServerError> {
    let descriptors = limits::raise_descriptors().map_err(ServerError::signals)?.soft;
    Ok(config.connections_max.unwrap_or_else(|| machine::connections_max(descriptors)))
}

fn wanted(config: &ServerConfig, connections_max: u32, workers: usize) -> Wanted {
    Wanted {
        shed: config.shed,
        gate: config.gate,
        gate_refusal: config.gate_refusal,
        connection_limit: config.connection_limit,
        limiter: config.limiter,
        queue_target: config.queue_target,
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
        // Two of one name are no reason not to serve: the first is shown.
        if limit.and(in_flight).is_err() {
            log::warn!("two concurrency limits have one name in metrics", route = name);
        }
    }
}

fn endpoint_names(app: &App) -> Vec<&str> {
    app.endpoints().iter().map(EndpointInfo::name).collect()
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

/// Listens, and waits a moment for a predecessor to let go of the port.
fn bind(address: SocketAddr) -> Result<Listener, ServerError> {
    let until = Instant::now() + BIND_PATIENCE;
    loop {
        match Listener::bind(address, BACKLOG) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(BIND_PAUSE);
            }
            bound => return bound.map_err(|error| ServerError::bind(address, error)),
        }
    }
}

/// The metrics port: a worker of its own, which no overload of the others can reach.
struct Observer {
    address: SocketAddr,
    crew: Crew,
}

impl Observer {
    fn start(
        wanted: SocketAddr,
        config: &ServerConfig,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> Result<Self, ServerError> {
        let app: App = port::router(metrics, readiness).build().map_err(ServerError::Build)?;
        let listener = bind(wanted)?;
        let address = listener.local_addr().map_err(|error| ServerError::bind(wanted, error))?;
        let own = Metrics::new();
        own.begin(&endpoint_names(&app), 1);
        let mut crew = Crew::new(Arc::default());
        crew.hire(Post {
            name: "highwater-metrics".into(),
            core: None,
            // Whatever the others use: this must work wherever they do not.
            kind: Kind::Epoll,
            listener,
            pool: Pool::new(1, 1),
            gives_up_rights: true,
            parts: WorkerParts {
                app,
                limits: Limits::default(),
                connections_max: 64,
                metrics: own.worker(0),
                gate: WorkerGate::open(),
                queue_target: config.queue_target,
                deadline_max: config.deadline_max,
                think_max: THINK_MAX,
            },
        })?;
        Ok(Observer { address, crew })
    }
}

/// A server at work. Dropping it stops it without a drain.
pub struct Running {
    address: SocketAddr,
    drain_timeout: Duration,
    crew: Crew,
    observer: Option<Observer>,
    readiness: Readiness,
    pool: Pool,
    admission: AtWork,
    _sampler: Sampler,
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

    /// Serves until one of `signals` comes, then drains as [`Server::run`] does.
    ///
    /// For programs with threads of their own. A signal goes to any thread that does not hold it
    /// back, and there it kills; so the signals are blocked first of all, and every thread inherits
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
    /// A worker's driver failed.
    pub fn until_signal(mut self, signals: &Signals) -> Result<(), ServerError> {
        self.admission.give_up_rights();
        loop {
            match signals.wait_timeout(Duration::from_millis(500)) {
                Ok(Some(signal)) => {
                    log::info!("stopping", signal = %signal);
                    if signal == Signal::Quit {
                        self.drain_timeout = Duration::ZERO;
                    }
                    break;
                }
                Ok(None) if self.has_failed() => break,
                Ok(None) => {}
                Err(error) => return Err(ServerError::signals(error)),
            }
        }
        let outcome = self.stop();
        log::flush();
        outcome
    }

    fn has_failed(&self) -> bool {
        self.crew.has_failed()
    }

    /// Drains and stops.
    ///
    /// # Errors
    /// A worker's driver failed.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.readiness.drain();
        let outcome = self.crew.stop(self.drain_timeout).map_err(ServerError::Worker);
        self.pool.close();
        if let Some(mut observer) = self.observer.take() {
            // Scrapers keep their connections open; nothing of theirs is worth waiting for.
            let _ = observer.crew.stop(Duration::ZERO);
        }
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain_timeout = Duration::ZERO;
        let _ = self.stop();
    }
}

/// Why a server could not start, or had to stop.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The router is inconsistent.
    Build(BuildError),
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
    /// The transport asked for cannot be had; says which and why.
    Transport(String),
    /// Excess work cannot be turned away as asked; says why, and what to do instead.
    Admission(String),
    /// A worker could not start, or its driver failed.
    Worker(io::Error),
    /// Signals could not be set up.
    Signals(io::Error),
}

impl ServerError {
    fn bind(address: SocketAddr, error: io::Error) -> Self {
        ServerError::Bind(address, error)
    }

    fn signals(error: io::Error) -> Self {
        ServerError::Signals(error)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Build(error) => write!(f, "{error}"),
            // It names the address and the remedy.
            ServerError::Bind(_, error) => write!(f, "{error}"),
            ServerError::Transport(reason) | ServerError::Admission(reason) => f.write_str(reason),
            ServerError::Worker(error) => write!(f, "a worker failed: {error}"),
            ServerError::Signals(error) => write!(f, "cannot set up the process: {error}"),
        }
    }
}

impl std::error::Error for ServerError {}
