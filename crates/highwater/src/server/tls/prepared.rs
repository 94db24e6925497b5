//! The certificates of a server that is about to start: loaded, checked, and ready to be used by its listeners.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use highwater_core::protocol::Versions;

use super::super::config::ServerConfig;
use super::super::worker::Sealer;
use super::Tls;
use super::reload::{Fingerprint, Reloader};
use super::sealer::TlsSealer;
use super::shared::Shared;
use crate::metrics::Metrics;

/// Certificates that can be served.
pub(in crate::server) struct Prepared {
    shared: Arc<Shared>,
    /// The files as they were before they were read.
    read: Fingerprint,
}

impl Prepared {
    /// Loads what `given`, else the settings, name. Nothing is loaded if no certificate is named. With
    /// `is_given_socket`, the server serves on a socket that code has given.
    ///
    /// # Errors
    /// Which file or setting is wrong, how, and what to do.
    pub(in crate::server) fn new(
        given: Option<Tls>,
        config: &ServerConfig,
        is_given_socket: bool,
    ) -> Result<Option<Self>, String> {
        config.check_tls(given.is_some(), is_given_socket)?;
        let Some(tls) = given.or_else(|| Tls::of(config)) else { return Ok(None) };
        let read = Fingerprint::of(tls.files());
        let shared = Arc::new(Shared::new(tls)?);
        Ok(Some(Prepared { shared, read }))
    }

    /// What seals the connections of a listener that allows `versions`.
    pub(in crate::server) fn sealer(&self, versions: Versions) -> Arc<dyn Sealer> {
        Arc::new(TlsSealer { shared: Arc::clone(&self.shared), versions })
    }

    /// Shows on the metrics page when each certificate expires, and how often they were read again.
    pub(in crate::server) fn show(&self, metrics: &Metrics) {
        for result in ["ok", "failed"] {
            let shared = Arc::clone(&self.shared);
            let read = move || {
                let count = if result == "ok" { &shared.reloads } else { &shared.failures };
                count.load(Relaxed)
            };
            let help = "How often certificates were read again; those in use stay if that fails.";
            let family = "http_tls_certificate_reloads_total";
            if metrics.counter_fn(family, help, &[("result", result)], read).is_err() {
                tracing::warn!(family, "the application has a metric of this name");
            }
        }
        for (index, (name, _)) in self.shared.current().configuration.expiries.iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let read = move || {
                let current = shared.current();
                current.configuration.expiries[index].1.as_secs() as f64
            };
            let number = (index + 1).to_string();
            let labels = [("certificate", number.as_str()), ("name", name.as_str())];
            let help = "When a certificate expires, in seconds since the epoch.";
            let family = "http_tls_certificate_expiry_timestamp_seconds";
            if metrics.gauge_fn(family, help, &labels, read).is_err() {
                tracing::warn!(family, "the application has a metric of this name");
            }
        }
    }

    /// Whether certificates come from files.
    pub(in crate::server) fn has_files(&self) -> bool {
        !self.read.is_empty()
    }

    /// Reads the files again when they change. `None` if there are none.
    pub(in crate::server) fn watch(&self) -> std::io::Result<Option<Reloader>> {
        match self.read.is_empty() {
            true => Ok(None),
            false => Reloader::start(Arc::clone(&self.shared), self.read.clone()).map(Some),
        }
    }
}
