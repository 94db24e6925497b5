//! From a router to running workers: binding, starting, stopping.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use highwater_sys::signal::{Signal, Signals};
use highwater_sys::{KeepAlive, Listener, cpu, limits};

use super::accept::BACKLOG;
use super::admit::THINK_MAX;
use super::bounds::Bounds;
use super::config::{Pin, ServerConfig};
use super::crew::{Crew, Post, Watch};
use super::memory::BodyMemory;
use super::pool::{POOL_QUEUE_MAX, POOL_THREADS_MAX, Pool};
use super::port;
use super::run::Phase;
use super::transport::{self, Kind};
use super::worker::WorkerParts;
use crate::admission::gate::WorkerGate;
use crate::admission::{AtWork, Opening, Wanted};
use crate::app::{App, BuildError, EndpointInfo, Router};
use crate::metrics::{Metrics, Readiness, Sampler};
use crate::{log, machine};

/// How long a port may still be taken when we start. The kernel takes a process with an io_uring
/// apart in the background: one that was killed has been seen to hold its port for some
/// milliseconds after its parent was told of its end, and whoever restarts it is that quick.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait before trying again.
const BIND_PAUSE: Duration = Duration::from_millis(5);

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
    /// flight, and cuts what is left after the drain timeout. SIGQUIT cuts at once, and so does a further
    /// SIGTERM, SIGINT or SIGQUIT while it drains.
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
        let log = log::Session::open(config.log);
        if metrics.has_begun() {
            return Err(ServerError::Metrics);
        }
        let app = router.build().map_err(ServerError::Build)?;
        let chosen = transport::choose(config.transport).map_err(ServerError::Transport)?;
        let cores = cpu::allowed().unwrap_or_default();
        let workers = config.workers.map_or_else(cpu::suggested_workers, |workers| workers.get());
        let connections_max = connections_max(&config)?;
        let listeners = listen(&config, workers)?;
        let address =
            listeners[0].local_addr().map_err(|error| ServerError::bind(config.listen, error))?;
        metrics.begin(&endpoint_names(&app), workers);
        metrics.panics(app.panics());
        metrics.transport(chosen.kind.name(), &chosen.reason);
        let sampler = metrics.sampler().map_err(ServerError::Worker)?;
        let wanted = wanted(&config, connections_max, workers);
        let opening = Opening::new(&wanted, address, &listeners).map_err(ServerError::Admission)?;
        let phase = Arc::new(Phase::default());
        let watch = Watch::new(Arc::clone(&phase), &metrics, &readiness);
        let watch = watch.map_err(ServerError::Worker)?;
        // From here on, whatever has been started is stopped if the rest fails.
        let mut running = Running {
            address,
            drain_timeout: config.drain_timeout,
            crew: Crew::new(phase, Arc::clone(&watch)),
            watch,
            observer: None,
            readiness,
            pool: Pool::new(POOL_THREADS_MAX, config.patience, POOL_QUEUE_MAX),
            admission: None,
            _sampler: sampler,
            _log: log,
        };
        let plan = Plan {
            app: &app,
            config: &config,
            metrics: &metrics,
            opening: &opening,
            kind: chosen.kind,
            cores: &cores,
            workers,
            connections_max,
            body_memory: body_memory(&config, &metrics),
        };
        for (index, listener) in listeners.into_iter().enumerate() {
            running.crew.hire(plan.post(index, listener, &running.pool))?;
        }
        running.watch.set_alarm(running.crew.alarm());
        let admission =
            opening.start(&metrics, running.crew.alarm()).map_err(ServerError::Worker)?;
        running.admission = Some(admission);
        if let Some(wanted) = config.metrics {
            let watch = &running.watch;
            let observer = Observer::start(wanted, &config, &metrics, &running.readiness, watch)?;
            running.observer = Some(observer);
        }
        log::info!(
            "serving",
            address = address,
            workers = workers,
            transport = chosen.kind.name(),
            reason = chosen.reason,
            metrics = running.metrics_address(),
        );
        Ok(running)
    }
}

/// What all workers of a server are made of.
struct Plan<'s> {
    app: &'s App,
    config: &'s ServerConfig,
    metrics: &'s Metrics,
    opening: &'s Opening,
    kind: Kind,
    cores: &'s [usize],
    workers: usize,
    connections_max: u32,
    body_memory: BodyMemory,
}

impl Plan<'_> {
    fn post(&self, index: usize, listener: Listener, pool: &Pool) -> Post {
        let Plan { app, config, metrics, opening, workers, .. } = *self;
        Post {
            name: format!("highwater-{index}"),
            core: pinned_core(config.pin, workers, self.cores, index),
            kind: self.kind,
            listener,
            pool: pool.clone(),
            gives_up_rights: opening.has_kernel_gate(),
            parts: WorkerParts {
                app: app.clone(),
                limits: config.limits.clone(),
                connections_max: (self.connections_max / workers as u32).max(1),
                metrics: metrics.worker(index),
                gate: opening.worker(index, metrics),
                patience: config.patience,
                queue_target: config.queue_target,
                deadline_max: config.deadline_max,
                think_max: THINK_MAX,
                bounds: Bounds { body_memory: self.body_memory.clone(), newest_win: false },
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

fn wanted(config: &ServerConfig, connections_max: u32, workers: usize) -> Wanted {
    Wanted {
        shed: config.shed,
        gate: config.gate,
        gate_refusal: config.gate_refusal,
        connection_limit: config.connection_limit,
        limiter: config.limiter,
        patience: config.patience,
        queue_target: config.queue_target,
        connections_max,
        workers,
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

/// One listener for each worker.
fn listen(config: &ServerConfig, workers: usize) -> Result<Vec<Listener>, ServerError> {
    let wanted = config.listen;
    let mut listeners = vec![bind(wanted, config)?];
    for _ in 1..workers {
        let another = listeners[0].another().map_err(|error| ServerError::bind(wanted, error))?;
        listeners.push(another);
    }
    Ok(listeners)
}

/// Listens, and waits a moment for a predecessor to let go of the port.
fn bind(address: SocketAddr, config: &ServerConfig) -> Result<Listener, ServerError> {
    let mut listener = bind_patiently(address)?;
    if let Some(idle) = config.tcp_keep_alive {
        // What a client is allowed before it counts as slow must not count as dead.
        let keep_alive = KeepAlive { idle, unacknowledged_max: config.limits.write_timeout };
        listener.keep_alive(keep_alive).map_err(|error| ServerError::bind(address, error))?;
    }
    Ok(listener)
}

fn bind_patiently(address: SocketAddr) -> Result<Listener, ServerError> {
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
        watch: &Arc<Watch>,
    ) -> Result<Self, ServerError> {
        let app: App = port::router(metrics, readiness).build().map_err(ServerError::Build)?;
        let listener = bind(wanted, config)?;
        let address = listener.local_addr().map_err(|error| ServerError::bind(wanted, error))?;
        let own = Metrics::new();
        own.begin(&endpoint_names(&app), 1);
        let mut crew = Crew::new(Arc::default(), Arc::clone(watch));
        crew.hire(Post {
            name: "highwater-metrics".into(),
            core: None,
            // Whatever the others use: this must work wherever they do not.
            kind: Kind::Epoll,
            listener,
            pool: Pool::new(1, config.patience, 1),
            gives_up_rights: true,
            parts: WorkerParts {
                app,
                limits: port::limits(),
                connections_max: port::connections_max(),
                metrics: own.worker(0),
                gate: WorkerGate::open(),
                patience: config.patience,
                queue_target: config.queue_target,
                deadline_max: config.deadline_max,
                think_max: THINK_MAX,
                bounds: Bounds { newest_win: true, ..Bounds::default() },
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
    watch: Arc<Watch>,
    observer: Option<Observer>,
    readiness: Readiness,
    pool: Pool,
    admission: Option<AtWork>,
    _sampler: Sampler,
    /// Last, since all of the above may have something to say when it ends.
    _log: log::Session,
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
    /// A worker failed: its driver, or a panic escaped. The server stops by itself then.
    pub fn until_signal(mut self, signals: &Signals) -> Result<(), ServerError> {
        if let Some(admission) = &self.admission {
            admission.give_up_rights();
        }
        while !self.watch.has_failed() {
            let waited = signals.wait_or(&self.watch.waker, None);
            if let Some(signal) = waited.map_err(ServerError::signals)? {
                log::info!("stopping", signal = %signal);
                if signal == Signal::Quit {
                    self.drain_timeout = Duration::ZERO;
                }
                break;
            }
        }
        let outcome = self.end(Some(signals));
        log::flush();
        outcome
    }

    /// Drains and stops.
    ///
    /// # Errors
    /// A worker failed: its driver, or a panic escaped.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.end(None)
    }

    /// Drains, cuts what is left at the deadline or when a further signal comes, and stops.
    fn end(&mut self, signals: Option<&Signals>) -> Result<(), ServerError> {
        self.readiness.drain();
        self.crew.drain();
        self.wait(self.drain_timeout, signals)?;
        if !self.crew.has_ended() {
            self.crew.cut();
            self.wait(CUT_GRACE, None)?;
        }
        let outcome = self.crew.join();
        self.pool.close();
        let observed = match self.observer.take() {
            // Scrapers keep their connections open; nothing of theirs is worth waiting for.
            Some(mut observer) => observer.crew.end_now(),
            None => Ok(()),
        };
        outcome.and(observed).map_err(ServerError::Worker)
    }

    /// Waits until all workers have ended, for at most `timeout`; a signal to stop ends it, too.
    fn wait(&self, timeout: Duration, signals: Option<&Signals>) -> Result<(), ServerError> {
        let begun = Instant::now();
        while !self.crew.has_ended() {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let Some(signals) = signals else {
                self.watch.waker.wait(left).map_err(ServerError::Worker)?;
                continue;
            };
            match signals.wait_or(&self.watch.waker, Some(left)).map_err(ServerError::signals)? {
                // A terminal that closes is no reason to hurry.
                None | Some(Signal::HangUp) => {}
                Some(signal) => {
                    log::info!("the drain ends now", signal = %signal);
                    break;
                }
            }
        }
        Ok(())
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
    /// The [`Metrics`] describe another server, or one that could not start; make new ones.
    Metrics,
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
            ServerError::Metrics => f.write_str(
                "these metrics describe another server already; each needs `Metrics::new()` of its own",
            ),
            ServerError::Signals(error) => write!(f, "cannot set up the process: {error}"),
        }
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Inbox;

    /// Purpose: a worker that dies ends the server at once and with an error, although no signal comes, so
    /// that whoever restarts servers restarts it.
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
        let dies = running.crew.start("highwater-dies".into(), |ready| {
            ready.tell(&Inbox::new(Box::new(|| {})));
            thread::sleep(Duration::from_millis(50));
            panic!("on demand")
        });
        dies.expect("it begins");
        let error = running.until_signal(&signals).expect_err("a worker died");
        assert_eq!(error.to_string(), "a worker failed: it panicked: on demand");
    }
}
