//! TLS in a program that was built without it: settings that want it are refused, and nothing else is here.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use highwater_core::protocol::Versions;

use super::config::ServerConfig;
use super::worker::Sealer;
use crate::metrics::Metrics;

/// There is none to give.
pub(super) type Tls = Infallible;

/// There is none, either.
pub(super) enum Prepared {}

/// Never made.
pub(super) enum Reloader {}

impl Prepared {
    /// # Errors
    /// A setting asks for TLS.
    pub(super) fn new(
        _: Option<Tls>,
        config: &ServerConfig,
        _is_given_socket: bool,
    ) -> Result<Option<Self>, String> {
        let wants = config.wants_tls();
        wants.map_or(Ok(None), |setting| {
            Err(format!(
                "{setting}: this program was built without TLS; build it with the feature `tls` of highwater, or let a \
                 proxy speak TLS"
            ))
        })
    }

    pub(super) fn sealer(&self, _: Versions) -> Arc<dyn Sealer> {
        match *self {}
    }

    pub(super) fn show(&self, _: &Metrics) {}

    pub(super) fn has_files(&self) -> bool {
        match *self {}
    }

    pub(super) fn watch(&self) -> io::Result<Option<Reloader>> {
        match *self {}
    }
}

impl Reloader {
    pub(super) fn ask(&self) {
        match *self {}
    }
}
