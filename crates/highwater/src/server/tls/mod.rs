//! How does a listener speak TLS?
//!
//! ```text
//!  settings, code ─▶ Tls ─load, check─▶ Material ─▶ a configuration per kind of listener ─▶ Sealer ─▶ Seal, per connection
//!                     ▲     certificate, pem          configuration, resolver          shared, sealer     seal
//!                     └── read again: SIGHUP, files that changed (reload)
//! ```
//!
//! The cryptography and the protocol are those of rustls, and its types stay in this folder. A seal uses its buffered
//! interface, which was measured to be the faster one. What is decided here: one set of keys for tickets that all workers
//! share, no 0-RTT (a request that is replayed would be served twice), no kTLS (a record is sealed where the answer is
//! encoded, in the same turn).
//!
//! Invariants: a connection keeps the certificates that its handshake began with; a session is not resumed when the client's
//! certificate has expired (proof), or the authorities have changed; material that cannot be served is refused
//! at the start, and never replaces the material in use; a peer that breaks the rules is counted, not logged.

mod certificate;
mod configuration;
mod pem;
mod prepared;
mod proof;
mod reload;
mod resolver;
mod seal;
mod sealer;
#[cfg(feature = "self-signed")]
mod self_signed;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use self::pem::Pem;
pub(super) use self::prepared::Prepared;
pub(super) use self::reload::Reloader;
use super::config::{ClientAuth, ServerConfig, TlsMin};

/// The most bytes within which a client's hello must be complete, the headers of its records included. One with every
/// extension that browsers know, and a ticket that holds a chain of certificates, has about 8 KiB. Beyond it, the alert
/// `record_overflow` ends the handshake.
const HELLO_MAX: usize = 16 * 1024;

/// The certificates of a server, and its requirements for clients: for [`Server::tls`](super::Server::tls), where the
/// settings `tls-cert`, `tls-key` and so on are not enough.
///
/// ```no_run
/// use highwater::{Router, Server, Tls};
///
/// # fn main() -> Result<(), highwater::ServerError> {
/// let tls = Tls::pem("/etc/ssl/example.org.pem", "/etc/ssl/example.org.key");
/// let router = Router::new().get("/", || "Hello, World!");
/// Server::new(router).listen("0.0.0.0:443,tls").tls(tls).run()
/// # }
/// ```
///
/// Files are read when the server starts, and again when they change and at SIGHUP. A server does not start with a
/// certificate that cannot be served: the error names the file and the problem.
#[derive(Clone)]
#[must_use = "give it to a server"]
pub struct Tls {
    /// Certificates, each with its key; the first is the default.
    pairs: Vec<(Pem, Pem)>,
    client_ca: Option<Pem>,
    client_auth: Option<ClientAuth>,
    min: TlsMin,
    provider: Arc<CryptoProvider>,
}

impl Tls {
    /// The certificate chain and the private key in two files in PEM, or in [text](Pem::text): the server's certificate
    /// first, then that of its issuer, and so on.
    pub fn pem(certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        Tls {
            pairs: vec![(certificate.into(), key.into())],
            client_ca: None,
            client_auth: None,
            min: TlsMin::Tls12,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        }
    }

    /// Another certificate with its key. A client that names a server gets the first certificate for that name
    /// (`*.example.org` included) that it can verify; a client that names no server, or an unknown one, gets the
    /// certificate of [`Tls::pem`].
    pub fn sni(mut self, certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.pairs.push((certificate.into(), key.into()));
        self
    }

    /// Clients must have a certificate that one of these authorities has issued. Handlers get it as
    /// [`PeerCertificates`](crate::PeerCertificates).
    pub fn client_ca(mut self, authorities: impl Into<Pem>) -> Self {
        self.client_ca = Some(authorities.into());
        self
    }

    /// Whether a client may connect without a certificate. Only with [`Tls::client_ca`]; without it, this is an error.
    pub fn client_auth(mut self, auth: ClientAuth) -> Self {
        self.client_auth = Some(auth);
        self
    }

    /// The oldest version of TLS that is spoken; 1.2 unless set.
    pub fn min_version(mut self, min: TlsMin) -> Self {
        self.min = min;
        self
    }

    /// The cryptography provider of rustls 0.23; ring unless set. This is the only type of rustls in the interface, and a
    /// new version of rustls will change it.
    pub fn provider(mut self, provider: CryptoProvider) -> Self {
        self.provider = Arc::new(provider);
        self
    }

    /// A new certificate for `localhost`, `127.0.0.1` and `::1`, which no client trusts: for development. Each start makes
    /// another one.
    ///
    /// # Panics
    /// If the system gives no randomness.
    #[cfg(feature = "self-signed")]
    pub fn self_signed() -> Self {
        let (certificate, key) = self_signed::make();
        Tls::pem(Pem::text(certificate), Pem::text(key))
    }

    /// What the settings say; `None` if they name no certificate.
    fn of(config: &ServerConfig) -> Option<Self> {
        let mut pairs = config.tls_cert.iter().zip(&config.tls_key);
        let file = |path: &PathBuf| Pem::from(path.clone());
        let (certificate, key) = pairs.next()?;
        let mut tls = Tls::pem(file(certificate), file(key)).min_version(config.tls_min);
        tls.client_ca = config.tls_client_ca.as_ref().map(file);
        tls.client_auth = config.tls_client_auth;
        Some(pairs.fold(tls, |tls, (certificate, key)| tls.sni(file(certificate), file(key))))
    }

    /// The files that it is read from.
    fn files(&self) -> Vec<PathBuf> {
        let pairs = self.pairs.iter().flat_map(|(certificate, key)| [certificate, key]);
        pairs.chain(&self.client_ca).filter_map(Pem::path).map(PathBuf::from).collect()
    }
}

impl fmt::Debug for Tls {
    /// Without keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tls { client_auth, min, .. } = self;
        f.debug_struct("Tls")
            .field("files", &self.files())
            .field("client_auth", client_auth)
            .field("min", min)
            .finish_non_exhaustive()
    }
}
