//! How is a server looked at while it is overloaded?

use std::net::SocketAddr;
use std::sync::Arc;

use super::admit::THINK_MAX;
use super::bounds::Bounds;
use super::builder::endpoint_names;
use super::config::ServerConfig;
use super::crew::{Crew, Post, Watch};
use super::error::ServerError;
use super::listen::bind;
use super::pool::Pool;
use super::port;
use super::transport::Kind;
use super::worker::WorkerParts;
use crate::admission::gate::WorkerGate;
use crate::app::App;
use crate::metrics::{Metrics, Readiness};

/// The metrics port: a worker of its own, which no overload of the others can reach.
pub(super) struct Observer {
    pub(super) address: SocketAddr,
    pub(super) crew: Crew,
}

impl Observer {
    pub(super) fn start(
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
