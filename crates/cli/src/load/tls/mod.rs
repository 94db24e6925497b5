//! TLS beneath the requests of `load`: which certificates are trusted, which sessions are resumed, and the results.
//!
//! Everything of rustls is in this folder. Without https, none of it runs.

mod dialer;
mod insecure;
mod problem;

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::args::{Args, Switch};
use super::files;
use super::handshakes::Handshakes;
use super::series::Span;

pub(crate) use dialer::{Sessions, TlsDialer};

/// Bytes of a file of certificates, at most.
const CA_MAX: usize = 16 * 1024 * 1024;
/// Sessions that a thread keeps for later connections.
const SESSIONS_MAX: usize = 4096;
/// The protocols as they are called in the handshake (ALPN).
const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";
/// Where systems keep the certificates that they trust, in one file.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// The settings of all TLS connections.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resume: Switch,
    /// What the server must choose.
    alpn: Option<&'static [u8]>,
}

impl Setup {
    /// # Errors
    /// The file of authorities cannot be used, or `host` is a name for which nobody can have a certificate.
    pub(crate) fn new(args: &Args, host: &str) -> Result<Setup, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            format!(
                "{host:?} is not a name that a certificate can have; write https://HOST[:PORT]/PATH"
            )
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS: {error}"))?;
        let mut config = match args.insecure {
            true => insecure::trusting_anyone(builder, provider),
            false => {
                builder.with_root_certificates(roots(args.ca.as_deref())?).with_no_client_auth()
            }
        };
        let alpn = if args.http2 { HTTP_2 } else { HTTP_1 };
        config.alpn_protocols = vec![alpn.to_vec()];
        // Names only: an address is no server name (RFC 6066, section 3).
        config.enable_sni = host.parse::<IpAddr>().is_err();
        let config = Arc::new(config);
        // What is wrong with the configuration is known before anything is sent.
        ClientConnection::new(config.clone(), name.clone())
            .map_err(|error| format!("TLS: {error}"))?;
        Ok(Setup { config, name, resume: args.resume, alpn: args.http2.then_some(HTTP_2) })
    }

    /// Without https, its flags would do nothing.
    ///
    /// # Errors
    /// One of them is given.
    pub(crate) fn none(args: &Args) -> Result<(), String> {
        let given = [
            ("--ca", args.ca.is_some()),
            ("--insecure", args.insecure),
            ("--resume off", args.resume == Switch::Off),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(format!(
                "{flag} is for TLS, and {} is not; write https://, or leave {flag} out",
                args.urls[0]
            )),
            None => Ok(()),
        }
    }

    /// The settings of one thread, which shares no sessions with others.
    pub(crate) fn for_thread(&self, span: Span) -> impl FnOnce() -> Sessions + Send + use<> {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = match self.resume {
            Switch::On => Resumption::in_memory_sessions(SESSIONS_MAX),
            Switch::Off => Resumption::disabled(),
        };
        let (name, alpn) = (self.name.clone(), self.alpn);
        move || Sessions::new(Arc::new(config), name, alpn, span)
    }
}

/// The certificates to trust.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let given = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
        let mut files = given.into_iter().chain(SYSTEM.map(Into::into));
        if let Some(bytes) = files.find_map(|path| std::fs::read(path).ok()) {
            let found = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
            roots.add_parsable_certificates(found);
        }
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        return Ok(roots);
    };
    let refuse = |what: &str| {
        format!(
            "--ca {}: {what}; name a file of certificates in PEM (-----BEGIN CERTIFICATE-----)",
            path.display()
        )
    };
    let bytes = files::read("--ca", path, CA_MAX)?;
    for found in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = found.map_err(|error| refuse(&error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(&error.to_string()))?;
    }
    if roots.is_empty() { Err(refuse("has no certificate")) } else { Ok(roots) }
}

/// Where a thread's dialer counts, and its driver finds the result.
type Shared = Rc<RefCell<Handshakes>>;

/// The provider's algorithms, for a verifier of signatures.
type Provider = Arc<CryptoProvider>;
