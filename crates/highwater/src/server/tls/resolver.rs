//! Which certificate does a client get?
//!
//! The first one for the name that it asks for, exactly or by a wildcard, with a key whose signatures it can verify. Without
//! a name, or with an unknown one, the first of all: a client that does not accept it ends the handshake.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// All certificates, by name.
#[derive(Debug)]
pub(super) struct Resolver {
    /// In the order of the settings.
    keys: Vec<Arc<CertifiedKey>>,
    /// Indices of the keys for a name. That of a wildcard begins with `*.`.
    by_name: HashMap<String, Vec<usize>>,
}

impl Resolver {
    /// # Panics
    /// Without certificates.
    pub(super) fn new(certificates: &[Certificate]) -> Self {
        assert!(!certificates.is_empty(), "somebody has set at least one");
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, certificate) in certificates.iter().enumerate() {
            for name in &certificate.names {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        let keys = certificates.iter().map(|certificate| Arc::clone(&certificate.key)).collect();
        Resolver { keys, by_name }
    }

    /// The indices of the keys to try for `name`, the best first.
    fn candidates(&self, name: Option<&str>) -> impl Iterator<Item = usize> {
        let of = |name: &str| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let name = name.unwrap_or_default();
        let exact = of(name);
        let wildcard = match name.split_once('.') {
            Some((_, parent)) => of(&format!("*.{parent}")),
            None => &[],
        };
        exact.iter().chain(wildcard).copied().chain(0..self.keys.len())
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fits = |&index: &usize| self.keys[index].key.choose_scheme(schemes).is_some();
        // Lower case, as rustls has it.
        let found = self.candidates(hello.server_name()).find(fits);
        Some(Arc::clone(&self.keys[found.unwrap_or(0)]))
    }
}
