//! The configuration of rustls, made from the loaded material.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use webpki::{EndEntityCert, Error, KeyUsage};

use super::super::config::{ClientAuth, TlsMin};
use super::Tls;
use super::certificate::Certificate;
use super::proof::Proof;
use super::resolver::Resolver;

/// The protocols that a listener offers (ALPN), the preferred one first.
pub(super) type Offer = &'static [&'static [u8]];

/// All that was loaded, for one use of it after another.
#[derive(Debug)]
pub(super) struct Configuration {
    base: ServerConfig,
    /// What it was made of.
    provider: Arc<CryptoProvider>,
    min: TlsMin,
    /// What checks the certificates of clients, if they are to have any.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The authorities of clients that it was made with.
    authorities: Vec<CertificateDer<'static>>,
    /// The names of its certificates, and when each expires.
    pub(super) expiries: Vec<(String, UnixTime)>,
}

impl Configuration {
    /// Loads and checks everything that `tls` names. With `before`, tickets that it has made stay good, unless clients
    /// have to prove something else now.
    ///
    /// # Errors
    /// Which file is wrong, how, and what to do.
    pub(super) fn load(tls: &Tls, before: Option<&Configuration>) -> Result<Self, String> {
        let (provider, now) = (&tls.provider, UnixTime::now());
        let load = |(chain, key): &(_, _)| Certificate::load((chain, key), provider, now);
        let certificates: Vec<Certificate> =
            tls.pairs.iter().map(load).collect::<Result<_, _>>()?;
        let authorities = tls.client_ca.as_ref().map(|pem| pem.certificates()).transpose()?;
        let authorities = authorities.unwrap_or_default();
        let verifier = verifier(tls, &authorities, provider, now)?;
        let resolver = Arc::new(Resolver::new(&certificates));
        let tickets = match before {
            // A session proves what its first handshake proved: to nobody else.
            Some(before) if before.authorities == authorities => Arc::clone(&before.base.ticketer),
            _ => ticketer()?,
        };
        let base = build((provider, tls.min), verifier.clone(), resolver, tickets)
            .map_err(|error| format!("the cryptography cannot be used for TLS: {error}"))?;
        let expiry = |certificate: &Certificate| {
            let name = certificate.names.first().cloned().unwrap_or_default();
            (name, certificate.not_after)
        };
        let expiries = certificates.iter().map(expiry).collect();
        let (provider, min) = (Arc::clone(provider), tls.min);
        Ok(Configuration { base, provider, min, verifier, authorities, expiries })
    }

    /// For a listener that offers `offer`.
    pub(super) fn offering(&self, offer: Offer) -> Arc<ServerConfig> {
        let mut config = self.base.clone();
        config.alpn_protocols = offer.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    /// `common`, which is for all connections of a listener, for one of them. Where clients show certificates, it has its own
    /// [`Proof`].
    pub(super) fn for_one(&self, common: &Arc<ServerConfig>) -> Arc<ServerConfig> {
        let Some(verifier) = &self.verifier else { return Arc::clone(common) };
        let proof = Arc::new(Proof::new(Arc::clone(verifier), Arc::clone(&common.ticketer)));
        let resolver = Arc::clone(&common.cert_resolver);
        let built = build((&self.provider, self.min), Some(proof.clone()), resolver, proof);
        let mut config = built.expect("the common one was built of the same");
        config.alpn_protocols.clone_from(&common.alpn_protocols);
        Arc::new(config)
    }
}

fn build(
    (provider, min): (&Arc<CryptoProvider>, TlsMin),
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    resolver: Arc<dyn ResolvesServerCert>,
    tickets: Arc<dyn ProducesTickets>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_protocol_versions(versions(min))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    // Tickets are kept by the clients, so that workers share nothing but the keys.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = tickets;
    Ok(config)
}

/// The versions from each minimum on.
static FROM_1_2: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_1_3: [&SupportedProtocolVersion; 1] = [&TLS13];

fn versions(min: TlsMin) -> &'static [&'static SupportedProtocolVersion] {
    match min {
        TlsMin::Tls12 => &FROM_1_2,
        TlsMin::Tls13 => &FROM_1_3,
    }
}

/// Keys that change every six hours; a ticket is good for twelve at most.
fn ticketer() -> Result<Arc<dyn ProducesTickets>, String> {
    rustls::crypto::ring::Ticketer::new()
        .map_err(|error| format!("no keys for session tickets can be made: {error}"))
}

/// What checks the certificates of clients, if they are to have any.
fn verifier(
    tls: &Tls,
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
    now: UnixTime,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(pem) = &tls.client_ca else {
        return match tls.client_auth {
            None => Ok(None),
            Some(auth) => Err(format!(
                "Tls::client_auth ({auth}) has no effect without Tls::client_ca: no client is asked for a certificate; name \
                 the authorities of clients there, or leave client_auth out"
            )),
        };
    };
    let mut roots = RootCertStore::empty();
    for (authority, number) in authorities.iter().zip(1..) {
        roots.add(authority.clone()).map_err(|_| {
            format!(
                "certificate {number} in {pem} cannot be an authority: it breaks the rules for certificates (RFC 5280); \
                 leave it out"
            )
        })?;
        if !may_issue(authority, now) {
            return Err(format!(
                "certificate {number} in {pem} is not an authority's: its basic constraints do not say CA:TRUE; name the \
                 certificate that has signed those of the clients"
            ));
        }
    }
    let provider = Arc::clone(provider);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match tls.client_auth.unwrap_or_default() {
        ClientAuth::Required => builder,
        ClientAuth::Optional => builder.allow_unauthenticated(),
    };
    let built = builder.build();
    built.map(Some).map_err(|error| format!("{pem} cannot be used for clients: {error}"))
}

/// Whether a certificate may sign others. The verifier of clients takes any for an authority: with a client's own, the
/// owner of its key could issue certificates for any client.
fn may_issue(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    // Roots in the form of before 1999 have no constraints, and are read as authorities only.
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return true };
    let looked = parsed.verify_for_usage(&[], &[], &[], now, KeyUsage::client_auth(), None, None);
    // Times are looked at first: those of an authority do not count.
    let expected = |error| {
        matches!(
            error,
            Error::CaUsedAsEndEntity | Error::CertExpired { .. } | Error::CertNotValidYet { .. }
        )
    };
    looked.is_err_and(expected)
}
