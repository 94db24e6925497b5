//! From settings to running workers.
//!
//! ```text
//!  settings ─▶ app, capacity, certificates ─▶ start hooks ─▶ sockets ─▶ Running, without workers
//!                                                                         └─▶ workers ─▶ admission ─▶ metrics port
//! ```
//!
//! Nothing is served before all sockets are bound. Whatever has been started is stopped if a later step fails: each
//! step's value does that when it is dropped.

use std::cell::Cell;
use std::sync::Arc;

use highwater_sys::Listener;

use super::builder::Server;
use super::capacity::Capacity;
use super::config::ServerConfig;
use super::ends::Ends;
use super::error::{NotStarted, ServerError};
use super::hooks::Hooks;
use super::listen::{Listeners, bind_metrics, listen};
use super::observer::{Observer, endpoint_names};
use super::pool::{POOL_QUEUE_MAX, Pool};
use super::routes;
use super::running::Running;
use super::threads::{Watch, WorkerThread, Workers};
use super::tls::{Prepared, Reloader};
use super::worker::{Phase, WorkerConfig};
use crate::admission::{AdmissionSettings, Fair, PreparedAdmission};
use crate::app::{App, WorkerInfo};
use crate::body_memory::BodyMemory;
use crate::logging::{self, FlushAtEnd};
use crate::machine;
use crate::metrics::{Metrics, Readiness};

impl Server {
    /// Starts the workers, unless one of `ends` asks to stop before.
    pub(super) fn start_until(mut self, ends: Ends<'_>) -> Result<Running, NotStarted> {
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
        let capacity = Capacity::of_machine(&config)?;
        let tls = Prepared::new(tls, &config, listener.is_some()).map_err(ServerError::Settings)?;
        let is_asked = Cell::new(false);
        let ask = || is_asked.set(true);
        let has_files = tls.as_ref().is_some_and(Prepared::has_files);
        let ends = Ends { reload: has_files.then_some(&ask), ..ends };
        // A client that connects before they are done is refused, and tries again or elsewhere.
        let hooks = Hooks::start(hooks, ends)?;
        // All of them before anything accepts: if one cannot be bound, nobody has been let in at another.
        let listeners = listen(listener, &config, capacity.workers, tls.is_some())?;
        let observed = config.metrics.map(|wanted| bind_metrics(wanted, &config, &listeners));
        let observed = observed.transpose()?;
        let plan = Plan { app, config, readiness, metrics, capacity };
        plan.describe(&listeners);
        tls.iter().for_each(|tls| tls.show(&plan.metrics));
        let admission = plan.admission(&listeners)?;
        let mut running = plan.without_workers(&listeners, hooks, at_end)?;
        plan.spawn(listeners, tls.as_ref(), &admission, &mut running, ends)?;
        running.watch.set_alarm(running.workers.alarm());
        running.admit(admission, &plan.metrics, plan.config.unready_after)?;
        if let Some(listener) = observed {
            running.observer = Some(plan.observe(listener, &running)?);
        }
        let reloader = tls.map_or(Ok(None), |tls| tls.watch());
        running.reloader = reloader.map_err(ServerError::Worker)?;
        running.reloader.iter().filter(|_| is_asked.get()).for_each(Reloader::ask);
        plan.say_where(&running);
        Ok(running)
    }
}

/// What all parts of a server are made from.
struct Plan {
    app: App,
    config: ServerConfig,
    readiness: Readiness,
    metrics: Metrics,
    capacity: Capacity,
}

impl Plan {
    /// Gives the metrics what is served, where, and how.
    fn describe(&self, listeners: &Listeners) {
        let Plan { app, metrics, capacity, .. } = self;
        metrics.begin(&endpoint_names(app), capacity.workers);
        metrics.listeners(listeners.addresses().iter().map(ToString::to_string).collect());
        show_limits(metrics, app);
        metrics.panics(app.panics());
        metrics.transport(capacity.transport.kind.name(), &capacity.transport.reason);
    }

    /// What decides about connections and requests at `listeners`.
    fn admission(&self, listeners: &Listeners) -> Result<PreparedAdmission, ServerError> {
        let Plan { app, config, capacity, .. } = self;
        let settings = AdmissionSettings {
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
            connections_max: capacity.connections_max,
            workers: capacity.workers,
        };
        PreparedAdmission::new(&settings, &listeners.entries()).map_err(ServerError::Admission)
    }

    /// The server at `listeners` before anything serves. From then on, dropping it stops whatever was added to it.
    fn without_workers(
        &self,
        listeners: &Listeners,
        hooks: Option<Hooks>,
        at_end: FlushAtEnd,
    ) -> Result<Running, ServerError> {
        let Plan { config, metrics, readiness, .. } = self;
        let sampler = metrics.sampler().map_err(ServerError::Worker)?;
        let phase = Arc::new(Phase::default());
        let watch = Watch::new(Arc::clone(&phase), metrics, readiness);
        let watch = watch.map_err(ServerError::Worker)?;
        hooks.iter().for_each(|hooks| hooks.wakes(&watch.waker));
        Ok(Running {
            addresses: listeners.addresses(),
            files: Vec::new(),
            drain_timeout: config.drain_timeout,
            workers: Workers::new(phase, Arc::clone(&watch)),
            watch,
            observer: None,
            reloader: None,
            url: listeners.url(),
            readiness: readiness.clone(),
            pool: pool(config, metrics),
            admission: None,
            hooks,
            counted: (0..self.capacity.workers).map(|index| metrics.worker(index)).collect(),
            has_stopped: false,
            _sampler: sampler,
            _at_end: at_end,
        })
    }

    /// Starts the workers of `running`, each with its sockets.
    fn spawn(
        &self,
        listeners: Listeners,
        tls: Option<&Prepared>,
        admission: &PreparedAdmission,
        running: &mut Running,
        ends: Ends<'_>,
    ) -> Result<(), NotStarted> {
        let Plan { app, config, metrics, capacity, .. } = self;
        let terms = listeners.terms(|versions| {
            tls.expect("a listener with TLS was refused without").sealer(versions)
        });
        // The workers share both.
        let (body_memory, per_client) = (body_memory(config, metrics), config.per_client());
        let (divided, files) = listeners.divide();
        running.files = files;
        for (index, listeners) in divided.into_iter().enumerate() {
            let worker = WorkerThread {
                name: format!("highwater-{index}"),
                worker: WorkerInfo::new(index, capacity.workers),
                core: capacity.core(config.pin, index),
                kind: capacity.transport.kind,
                listeners,
                pool: running.pool.clone(),
                gives_up_rights: admission.has_kernel_gate(),
                config: WorkerConfig {
                    connections_max: capacity.connections_per_worker(),
                    listeners: terms.clone(),
                    metrics: metrics.worker(index),
                    gate: admission.worker(index, metrics),
                    body_memory: body_memory.clone(),
                    per_client: per_client.clone(),
                    ..WorkerConfig::new(app.clone(), config)
                },
            };
            running.workers.spawn(worker, ends)?;
        }
        Ok(())
    }

    /// Starts the metrics port on `listener`.
    fn observe(&self, listener: Listener, running: &Running) -> Result<Observer, NotStarted> {
        let served = (&self.config, &self.app);
        Observer::start(listener, served, &self.metrics, &self.readiness, &running.watch)
    }

    /// Logs where it serves, and how.
    fn say_where(&self, running: &Running) {
        let Capacity { workers, transport, .. } = &self.capacity;
        let metrics = running.metrics_address();
        let (first, others) = running.listed();
        let at = |path: Option<&str>| {
            let (url, path) = running.url.as_deref().zip(path)?;
            Some(format!("{}{path}", url.trim_end_matches('/')))
        };
        let docs = self.app.documentation();
        let (url, docs) = (at(routes::first_page(self.app.endpoints(), docs.is_some())), at(docs));
        tracing::info!(
            address = %first,
            others = others.map(tracing::field::display),
            workers = *workers,
            transport = transport.kind.name(),
            reason = transport.reason,
            metrics = metrics.map(tracing::field::display),
            url = url.as_ref().map(tracing::field::display),
            docs = docs.as_ref().map(tracing::field::display),
            page = metrics.map(|at| tracing::field::display(format!("http://{at}/"))),
            "serving",
        );
    }
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
