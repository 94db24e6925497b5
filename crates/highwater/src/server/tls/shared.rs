//! The certificates that a server uses now. All its workers share them, and they can be replaced while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use highwater_core::protocol::Versions;
use rustls::ServerConfig;

use super::Tls;
use super::configuration::{Configuration, Offer};

/// What is offered (ALPN) where a listener allows both versions, or one of them. A client that asks for none of them fails
/// the handshake; one that does not ask speaks HTTP/1, unless the listener allows HTTP/2 only.
const OFFERS: [Offer; 3] = [&[b"h2", b"http/1.1"], &[b"http/1.1"], &[b"h2"]];

fn offer(versions: Versions) -> usize {
    match versions {
        Versions::Both => 0,
        Versions::Http1 => 1,
        Versions::Http2 => 2,
    }
}

/// What is loaded, and where it was loaded from.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tls: Tls,
    current: RwLock<Arc<Current>>,
    /// How often it was loaded again, and how often that failed.
    pub(super) reloads: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// What was loaded at one time.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) configuration: Configuration,
    /// One for each of [`OFFERS`].
    offering: [Arc<ServerConfig>; OFFERS.len()],
}

impl Current {
    fn load(tls: &Tls, before: Option<&Current>) -> Result<Arc<Self>, String> {
        let configuration = Configuration::load(tls, before.map(|before| &before.configuration))?;
        let offering = OFFERS.map(|offer| configuration.offering(offer));
        Ok(Arc::new(Current { configuration, offering }))
    }
}

impl Shared {
    pub(super) fn new(tls: Tls) -> Result<Self, String> {
        let current = RwLock::new(Current::load(&tls, None)?);
        let (reloads, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Shared { tls, current, reloads, failures })
    }

    /// What new handshakes begin with.
    pub(super) fn current(&self) -> Arc<Current> {
        // Nothing panics while the lock is held.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads everything again. What cannot be served replaces nothing.
    pub(super) fn reload(&self) -> Result<(), String> {
        let loaded = Current::load(&self.tls, Some(&self.current()));
        let count = if loaded.is_ok() { &self.reloads } else { &self.failures };
        let loaded = loaded.map(|loaded| {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        });
        count.fetch_add(1, Relaxed);
        loaded
    }

    /// The configuration for a handshake that begins now.
    pub(super) fn configuration(&self, versions: Versions) -> Arc<ServerConfig> {
        let current = self.current();
        current.configuration.for_one(&current.offering[offer(versions)])
    }
}
