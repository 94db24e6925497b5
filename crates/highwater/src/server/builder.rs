//! From a router to running workers: settings, binding, starting.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use highwater_sys::signal::Signals;
use highwater_sys::{Address, Listener, cpu, limits};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::config::{Pin, ServerConfig};
use super::ends::Ends;
use super::environment;
use super::error::{NotStarted, ServerError};
use super::hooks::Hooks;
use super::listen::{bind_metrics, listen};
use super::listener::Listen;
use super::observer::{Observer, endpoint_names};
use super::pool::{POOL_QUEUE_MAX, Pool};
use super::routes;
use super::running::Running;
use super::threads::{Watch, WorkerThread, Workers};
use super::tls::{Prepared, Reloader, Tls};
use super::transport::{self, Chosen, Kind};
use super::worker::{BodyMemory, ListenerTerms, Phase, WorkerConfig};
use crate::admission::per_client::PerClient;
use crate::admission::{AdmissionSettings, Fair, PreparedAdmission};
use crate::app::{App, Router, WorkerInfo};
use crate::logging::{self, FlushAtEnd};
use crate::machine;
use crate::metrics::{Metrics, Readiness};

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
///
/// **Settings** come from the environment: `HIGHWATER_LISTEN=0.0.0.0:80`, `HIGHWATER_WORKERS=4` and so on, one
/// variable per field of [`ServerConfig`], and from the TOML file that `HIGHWATER_CONFIG` names. The environment wins
/// over the defaults, and code wins over the environment: [`Server::listen`] sets the address whatever
/// `HIGHWATER_LISTEN` says, and [`Server::config`] sets everything, so that no variable is read. (Without the feature
/// `cli`, which is on by default, no variable is read either.)
///
/// **Where it runs.** [`Server::run`] blocks the thread that calls it; [`Server::serve`] is for `async fn main`.
/// Either way handlers run on threads of the server's own, its workers. Each worker that has `async` handlers has a
/// Tokio runtime of its own, with one thread, and tasks that those handlers spawn run there. Connection pools that
/// were opened before, on the caller's runtime, work in handlers as long as that runtime lives: the caller's `main`
/// holds it while it awaits [`Server::serve`]. A pool per worker is made with
/// [`Router::per_worker`](crate::Router::per_worker), and never leaves its core.
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    router: Router,
    /// `None` for the environment's.
    config: Option<ServerConfig>,
    /// Where to listen, as it was written.
    listen: Vec<String>,
    readiness: Readiness,
    metrics: Metrics,
    listener: Option<std::net::TcpListener>,
    /// `None` for the certificates that the settings name.
    tls: Option<Tls>,
}

impl Server {
    /// A server for `router`, with settings from the environment, else the defaults: it listens on
    /// `127.0.0.1:8080`, with metrics and health checks on `127.0.0.1:9090`.
    pub fn new(router: Router) -> Self {
        Server {
            router,
            config: None,
            listen: Vec::new(),
            readiness: Readiness::default(),
            metrics: Metrics::new(),
            listener: None,
            tls: None,
        }
    }

    /// Listens on `address`: `"0.0.0.0:8080"`, `"[::1]:8080"`, a [`SocketAddr`](std::net::SocketAddr),
    /// `"unix:/run/app.sock"`, or one of these with options, as [`Listen`] describes. Port 0 lets the kernel choose
    /// one. Any other text is an error when the server starts.
    ///
    /// Each call adds an address. The addresses in the settings are then not used.
    pub fn listen(mut self, address: impl ToString) -> Self {
        self.listen.push(address.to_string());
        self
    }

    /// Serves on a TCP socket that is already bound and listening, for example in a test, and nowhere else: neither
    /// configured addresses nor sockets that the process inherited are used.
    ///
    /// The other workers bind the same address, with the same backlog. If they may not (it belongs to another
    /// user, its port is privileged), all workers accept from this one socket.
    ///
    /// When the server drains, connections whose handshake with another worker's socket is under way are reset. For
    /// restarts that lose none, have a service manager pass the socket: see *Deploying* in the documentation.
    pub fn listener(mut self, listener: std::net::TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Sets the certificates of listeners with the option `tls`, and of a socket given with [`Server::listener`]. The
    /// settings about TLS are then not used.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets all settings. No environment variable is then read.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// The checks behind `/readyz` on the metrics port.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// The registry to count in, which also holds the application's own metrics.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP, then drains: stops accepting, answers the requests in flight, and cuts the
    /// rest after the drain timeout. SIGQUIT drains for two seconds at most. A further SIGTERM, SIGINT or SIGQUIT while it
    /// drains cuts at once. A signal that comes while the server starts ends the start: the stop hooks of everything opened
    /// so far run, and it returns. If certificates for TLS come from files, SIGHUP reloads them instead.
    ///
    /// It blocks the calling thread, and can be called from anywhere: threads may run already, signals may be blocked,
    /// or have handlers (which are called as well, and are the only ones again once the server has ended). In an
    /// `async fn`, write [`serve`](Server::serve)`().await`.
    ///
    /// # Errors
    /// A setting is wrong, the router is inconsistent, an address cannot be bound, or a driver failed; or this
    /// was called on the only thread of a Tokio runtime, which it would block.
    pub fn run(self) -> Result<(), ServerError> {
        if blocks_a_runtime() {
            return Err(ServerError::Runtime);
        }
        // First, so that a signal that comes while the server starts is caught.
        let signals = Signals::catch().map_err(ServerError::signals)?;
        self.serve_until(Ends { signals: Some(&signals), ..Ends::default() })
    }

    /// Serves until one of `ends` asks to stop, which ends a start as well.
    pub(super) fn serve_until(self, ends: Ends<'_>) -> Result<(), ServerError> {
        match self.start_until(ends) {
            Ok(running) => running.until(ends),
            Err(not_started) => not_started.outcome(),
        }
    }

    /// Starts the workers and returns. For tests, and for programs with their own main loop.
    ///
    /// # Errors
    /// See [`Server::run`].
    pub fn start(self) -> Result<Running, ServerError> {
        self.start_until(Ends::default()).map_err(|not_started| match not_started {
            NotStarted::Stopped => unreachable!("nothing asks it to stop"),
            NotStarted::Failed(error) => error,
        })
    }

    /// The same, unless one of `ends` asks to stop before: what has been started by then is stopped.
    fn start_until(mut self, ends: Ends<'_>) -> Result<Running, NotStarted> {
        let config = self.settings()?;
        let Server { mut router, readiness, metrics, listener, tls, .. } = self;
        logging::install(config.log);
        let at_end = FlushAtEnd;
        if metrics.has_begun() {
            return Err(ServerError::Metrics.into());
        }
        let hooks = router.take_hooks();
        let app = router.build().map_err(ServerError::Build)?;
        app.served_within(&config.limits);
        let chosen = transport::choose(config.transport).map_err(ServerError::Transport)?;
        let cores = cpu::allowed().unwrap_or_default();
        let workers = workers(&config)?;
        limits::keep_freed_memory();
        let connections_max = connections_max(&config, workers)?;
        let tls = Prepared::new(tls, &config, listener.is_some()).map_err(ServerError::Settings)?;
        let (is_asked, has_files) =
            (Cell::new(false), tls.as_ref().is_some_and(Prepared::has_files));
        let ask = || is_asked.set(true);
        let ends = Ends { reload: has_files.then_some(&ask), ..ends };
        // Whoever comes before they are done is refused, and tries again or elsewhere.
        let hooks = Hooks::start(hooks, ends)?;
        // All of them before anything accepts: if one cannot be bound, nobody has been let in at another.
        let listeners = listen(listener, &config, workers, tls.is_some())?;
        let observed = config.metrics.map(|wanted| bind_metrics(wanted, &config, &listeners));
        let observed = observed.transpose()?;
        let addresses = listeners.addresses();
        describe(&metrics, &app, workers, &addresses, &chosen);
        tls.iter().for_each(|tls| tls.show(&metrics));
        let sampler = metrics.sampler().map_err(ServerError::Worker)?;
        let settings = admission_settings(&config, &app, connections_max, workers);
        let prepared = PreparedAdmission::new(&settings, &listeners.entries())
            .map_err(ServerError::Admission)?;
        let phase = Arc::new(Phase::default());
        let watch = Watch::new(Arc::clone(&phase), &metrics, &readiness);
        let watch = watch.map_err(ServerError::Worker)?;
        hooks.iter().for_each(|hooks| hooks.wakes(&watch.waker));
        // From here on, whatever has been started is stopped if the rest fails.
        let mut running = Running {
            addresses,
            files: Vec::new(),
            drain_timeout: config.drain_timeout,
            workers: Workers::new(phase, Arc::clone(&watch)),
            watch,
            observer: None,
            reloader: None,
            url: listeners.url(),
            readiness,
            pool: pool(&config, &metrics),
            admission: None,
            hooks,
            counted: (0..workers).map(|index| metrics.worker(index)).collect(),
            has_stopped: false,
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
            per_client: config.per_client(),
            terms: listeners.terms(|listen| {
                tls.as_ref().expect("a listener with TLS was refused without").sealer(listen)
            }),
        };
        let (divided, files) = listeners.divide();
        running.files = files;
        for (index, own) in divided.into_iter().enumerate() {
            running.workers.spawn(plan.worker(index, own, &running.pool), ends)?;
        }
        running.watch.set_alarm(running.workers.alarm());
        running.admit(prepared, &metrics, config.unready_after)?;
        if let Some(listener) = observed {
            let Running { watch, readiness, .. } = &running;
            let observer = Observer::start(listener, (&config, &app), &metrics, readiness, watch)?;
            running.observer = Some(observer);
        }
        let reloader = tls.map_or(Ok(None), |tls| tls.watch());
        running.reloader = reloader.map_err(ServerError::Worker)?;
        running.reloader.iter().filter(|_| is_asked.get()).for_each(Reloader::ask);
        say_where(&running, &app, workers, &chosen);
        Ok(running)
    }

    /// The settings: those of the code, else those of the environment.
    fn settings(&mut self) -> Result<ServerConfig, ServerError> {
        let is_listen_used = self.listen.is_empty() && self.listener.is_none();
        let environment = || environment::settings(is_listen_used);
        let mut config = self.config.take().map_or_else(environment, Ok)?;
        if !self.listen.is_empty() {
            let parse = |text: String| {
                text.parse::<Listen>().map_err(|remedy| {
                    ServerError::Settings(format!("cannot listen on {text:?}: {remedy}"))
                })
            };
            config.listen = self.listen.drain(..).map(parse).collect::<Result<_, _>>()?;
        }
        if self.listener.is_none() {
            config.check_listeners().map_err(ServerError::Settings)?;
        }
        Ok(config)
    }
}

/// Whether the caller runs on the only thread of a Tokio runtime, as its main future. (A task with an id may be one of
/// `spawn_blocking`, which blocks nobody.)
fn blocks_a_runtime() -> bool {
    let is_single = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    Handle::try_current().is_ok_and(is_single) && tokio::task::try_id().is_none()
}

/// Tells the metrics what is served, where, and how.
fn describe(metrics: &Metrics, app: &App, workers: usize, addresses: &[Address], chosen: &Chosen) {
    metrics.begin(&endpoint_names(app), workers);
    metrics.listeners(addresses.iter().map(ToString::to_string).collect());
    show_limits(metrics, app);
    metrics.panics(app.panics());
    metrics.transport(chosen.kind.name(), &chosen.reason);
}

fn say_where(running: &Running, app: &App, workers: usize, chosen: &Chosen) {
    let metrics = running.metrics_address();
    let (first, others) = running.listed();
    let at = |path: Option<&str>| {
        let (url, path) = running.url.as_deref().zip(path)?;
        Some(format!("{}{path}", url.trim_end_matches('/')))
    };
    let docs = app.documentation();
    let (url, docs) = (at(routes::first_page(app.endpoints(), docs.is_some())), at(docs));
    tracing::info!(
        address = %first,
        others = others.map(tracing::field::display),
        workers,
        transport = chosen.kind.name(),
        reason = chosen.reason,
        metrics = metrics.map(tracing::field::display),
        url = url.as_ref().map(tracing::field::display),
        docs = docs.as_ref().map(tracing::field::display),
        page = metrics.map(|at| tracing::field::display(format!("http://{at}/"))),
        "serving",
    );
}

/// The parts that all workers of a server are made from.
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
    per_client: Option<PerClient>,
    /// How each listener is treated.
    terms: Vec<ListenerTerms>,
}

impl Plan<'_> {
    fn worker(&self, index: usize, listeners: Vec<Listener>, pool: &Pool) -> WorkerThread {
        let Plan { app, config, metrics, prepared, workers, .. } = *self;
        WorkerThread {
            name: format!("highwater-{index}"),
            worker: WorkerInfo::new(index, workers),
            core: pinned_core(config.pin, workers, self.cores, index),
            kind: self.kind,
            listeners,
            pool: pool.clone(),
            gives_up_rights: prepared.has_kernel_gate(),
            config: WorkerConfig {
                // At least 1: `workers` has seen to that, but for fewer descriptors than workers.
                connections_max: (self.connections_max / workers as u32).max(1),
                listeners: self.terms.clone(),
                metrics: metrics.worker(index),
                gate: prepared.worker(index, metrics),
                body_memory: self.body_memory.clone(),
                per_client: self.per_client.clone(),
                ..WorkerConfig::new(app.clone(), config)
            },
        }
    }
}

/// How many workers there are: each has its share of the connections, so there are no more workers than those.
fn workers(config: &ServerConfig) -> Result<usize, ServerError> {
    let most = config.connections_max.map_or(usize::MAX, |connections| connections as usize);
    match config.workers.map(NonZeroUsize::get) {
        None => Ok(cpu::suggested_workers().min(most)),
        Some(workers) if workers <= most => Ok(workers),
        Some(workers) => Err(ServerError::Settings(format!(
            "connections-max {most} is less than workers {workers}, and each worker has a share of the connections; allow \
             {workers} or more, or use {most} workers or fewer"
        ))),
    }
}

/// Fewer connections than this are worth a warning: one page of a browser takes six.
const CONNECTIONS_FEW: u32 = 512;

/// Raises the descriptor limit as far as it goes, and derives the connection limit from it.
fn connections_max(config: &ServerConfig, workers: usize) -> Result<u32, ServerError> {
    let descriptors = limits::raise_descriptors().map_err(ServerError::signals)?.soft;
    let possible = machine::connections_max(descriptors, workers);
    let wanted = config.connections_max.unwrap_or(CONNECTIONS_FEW);
    if possible < wanted {
        tracing::warn!(
            descriptors,
            connections = possible,
            wanted = config.connections_max,
            instead = machine::RAISE_DESCRIPTORS,
            "the descriptors allow few connections at once",
        );
    }
    Ok(config.connections_max.unwrap_or(possible))
}

/// The threads for blocking handlers, and the metrics that describe them.
fn pool(config: &ServerConfig, metrics: &Metrics) -> Pool {
    let pool = Pool::new(config.pool_threads.get(), config.patience, POOL_QUEUE_MAX);
    let watched = pool.clone();
    metrics.pool(move || watched.state());
    pool
}

/// The memory for bodies of requests, and the metric that shows how much of it is held.
fn body_memory(config: &ServerConfig, metrics: &Metrics) -> BodyMemory {
    let max = config.body_memory_max.unwrap_or_else(machine::body_memory);
    let memory = BodyMemory::new(max);
    metrics.body_memory(memory.held());
    memory
}

fn admission_settings(
    config: &ServerConfig,
    app: &App,
    connections_max: u32,
    workers: usize,
) -> AdmissionSettings {
    AdmissionSettings {
        shed: config.shed,
        gate: config.gate,
        gate_refusal: config.gate_refusal,
        refuse: config.refuse,
        shares_addresses: config.fair != Fair::Off && !app.names_clients(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: each worker can have a connection: a number of workers beyond `connections-max` is refused with the remedy, and
    /// a number that nobody has chosen is smaller then.
    #[test]
    fn workers_share_the_connections() {
        let with = |connections_max, chosen| {
            let workers = NonZeroUsize::new(chosen);
            workers_of(&ServerConfig { connections_max, workers, ..ServerConfig::default() })
        };
        fn workers_of(config: &ServerConfig) -> Result<usize, String> {
            workers(config).map_err(|error| error.to_string())
        }
        assert_eq!(with(Some(1), 0), Ok(1));
        assert_eq!(with(None, 7), Ok(7));
        assert_eq!(with(Some(4), 4), Ok(4));
        let error = with(Some(3), 4).expect_err("one has none");
        let told = "connections-max 3 is less than workers 4";
        assert!(error.contains(told) && error.contains("use 3 workers or fewer"), "{error}");
    }
}
