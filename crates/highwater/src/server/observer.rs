//! How is a server observed while it is overloaded?

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_sys::Listener;

use super::config::ServerConfig;
use super::ends::Ends;
use super::error::{NotStarted, ServerError};
use super::pool::Pool;
use super::port;
use super::routes;
use super::threads::{Watch, WorkerThread, Workers};
use super::transport::Kind;
use super::worker::{Eviction, WorkerConfig};
use crate::app::{App, EndpointInfo, WorkerInfo};
use crate::metrics::{Metrics, Readiness};

/// The metrics port: a worker of its own, which no overload of the others can reach.
pub(super) struct Observer {
    pub(super) address: SocketAddr,
    pub(super) workers: Workers,
}

impl Observer {
    /// Serves it on `listener`, about `observed`.
    pub(super) fn start(
        listener: Listener,
        (config, observed): (&ServerConfig, &App),
        metrics: &Metrics,
        readiness: &Readiness,
        watch: &Arc<Watch>,
    ) -> Result<Self, NotStarted> {
        let routes = routes::list(observed.endpoints());
        let app: App =
            port::router(metrics, readiness, routes).build().map_err(ServerError::Build)?;
        let address = listener.local_addr().map_err(ServerError::Io)?;
        let own = Metrics::new();
        own.begin(&endpoint_names(&app), 1);
        let mut workers = Workers::new(Arc::default(), Arc::clone(watch));
        let setup = WorkerThread {
            name: "hw-metrics".into(),
            worker: WorkerInfo::new(0, 1),
            core: None,
            // Independent of the transport of the other workers: this port must work even where
            // that does not.
            kind: Kind::SAFE,
            listeners: vec![listener],
            pool: Pool::new(1, config.patience, 1),
            gives_up_rights: true,
            config: WorkerConfig {
                limits: port::limits(),
                connections_max: port::connections_max(),
                metrics: own.worker(0),
                eviction_policy: Eviction::Oldest,
                per_client: None,
                ..WorkerConfig::new(app, config)
            },
        };
        workers.spawn(setup, Ends::default())?;
        Ok(Observer { address, workers })
    }
}

/// The names of an application's endpoints in metrics, on whichever port it is served.
pub(super) fn endpoint_names(app: &App) -> Vec<&str> {
    app.endpoints().iter().map(EndpointInfo::name).collect()
}
