//! Can this certificate be served with this key?
//!
//! Every certificate that a client would refuse is found here, before a client connects: a chain in the wrong order, a
//! certificate that has expired or is not for servers, a key of another certificate or of an unsuitable kind. Whether
//! clients trust the issuer is unknown here, and not checked.

use std::sync::Arc;
use std::time::Duration;

use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::{EndEntityCert, KeyUsage};

use super::pem::Pem;

/// A certificate that can be served.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The names it is for, in lower case; wildcards as they are.
    pub(super) names: Vec<String>,
    /// When it expires.
    pub(super) not_after: UnixTime,
}

impl Certificate {
    /// Reads a chain and its key, and checks them at the time `now`.
    ///
    /// # Errors
    /// Which file is wrong, how, and what to do.
    pub(super) fn load(
        (chain, key): (&Pem, &Pem),
        provider: &CryptoProvider,
        now: UnixTime,
    ) -> Result<Self, String> {
        let certificates = chain.certificates()?;
        let parsed = parse(chain, &certificates)?;
        check_order(chain, &parsed)?;
        let first = &parsed[0];
        let not_after = check_time(chain, first, now)?;
        let names = first.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let private = provider.key_provider.load_private_key(key.private_key()?);
        let private = private.map_err(|_| {
            format!(
                "{key} is a key of a kind that cannot serve; use ECDSA with P-256 or P-384, Ed25519, or RSA with 2048 \
                 to 8192 bits"
            )
        })?;
        drop(parsed);
        let key_of = CertifiedKey::new(certificates, private);
        match key_of.keys_match() {
            // A key without its public half cannot be compared, and is trusted.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Certificate { key: Arc::new(key_of), names, not_after })
            }
            Err(_) => Err(format!(
                "{key} is the key of another certificate than {chain}; give the key that the certificate was made for"
            )),
        }
    }
}

fn parse<'c>(
    chain: &Pem,
    certificates: &'c [CertificateDer<'static>],
) -> Result<Vec<EndEntityCert<'c>>, String> {
    let numbered = certificates.iter().zip(1..);
    let parse = |(certificate, number): (&'c CertificateDer<'static>, u32)| {
        EndEntityCert::try_from(certificate).map_err(|error| {
            format!("certificate {number} in {chain} cannot be used: {}", words(&error))
        })
    };
    numbered.map(parse).collect()
}

/// Each certificate is to be followed by that of its issuer.
fn check_order(chain: &Pem, parsed: &[EndEntityCert<'_>]) -> Result<(), String> {
    let out_of_order = parsed.windows(2).position(|pair| pair[0].issuer() != pair[1].subject());
    match out_of_order {
        None => Ok(()),
        Some(at) => Err(format!(
            "the chain in {chain} is out of order: certificate {} is not the issuer of certificate {}; put the server's \
             own first, then its issuer's, and so on",
            at + 2,
            at + 1
        )),
    }
}

/// Returns when the certificate expires, if it is valid now, and for servers.
fn check_time(
    chain: &Pem,
    certificate: &EndEntityCert<'_>,
    now: UnixTime,
) -> Result<UnixTime, String> {
    match look(certificate, now) {
        webpki::Error::CertExpired { not_after, .. } => Err(format!(
            "the certificate in {chain} has expired: it was valid until {}; renew it",
            shown(not_after)
        )),
        webpki::Error::CertNotValidYet { not_before, .. } => Err(format!(
            "the certificate in {chain} is not valid before {}; wait, or set the clock",
            shown(not_before)
        )),
        webpki::Error::RequiredEkuNotFoundContext(_) => Err(format!(
            "the certificate in {chain} is not for servers: its extended key usage lacks serverAuth; have it issued again"
        )),
        _ => expiry(certificate).map_err(|error| {
            format!("the certificate in {chain} cannot be used: {}", words(&error))
        }),
    }
}

/// When a certificate expires.
///
/// # Errors
/// It cannot be told.
pub(super) fn expiry(certificate: &EndEntityCert<'_>) -> Result<UnixTime, webpki::Error> {
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::from(u32::MAX) << 8));
    match look(certificate, late) {
        webpki::Error::CertExpired { not_after, .. } => Ok(not_after),
        error => Err(error),
    }
}

/// Without authorities nothing is ever trusted; but times and purpose are looked at first.
fn look(certificate: &EndEntityCert<'_>, time: UnixTime) -> webpki::Error {
    let usage = KeyUsage::server_auth();
    let looked = certificate.verify_for_usage(&[], &[], &[], time, usage, None, None);
    looked.err().unwrap_or(webpki::Error::UnknownIssuer)
}

/// What is wrong with a certificate, and what to do.
fn words(error: &webpki::Error) -> &'static str {
    match error {
        webpki::Error::UnsupportedCertVersion => {
            "it is of version 1 or 2 of X.509, which clients refuse; have it issued again as version 3, with its names as \
             subjectAltName"
        }
        webpki::Error::CaUsedAsEndEntity => {
            "it is that of an authority (CA:TRUE), which clients refuse; have one issued for the server, with CA:FALSE"
        }
        webpki::Error::UnsupportedCriticalExtension => {
            "it has a critical extension that clients do not know; have it issued again without that"
        }
        webpki::Error::SignatureAlgorithmMismatch => {
            "it names two different algorithms for its signature; have it issued again"
        }
        webpki::Error::InvalidCertValidity | webpki::Error::BadDerTime => {
            "the time for which it is valid cannot be read, or ends before it begins; have it issued again"
        }
        webpki::Error::InvalidSerialNumber => {
            "its serial number is too long, or not positive; have it issued again"
        }
        webpki::Error::BadDer | webpki::Error::TrailingData(_) => {
            "it is cut short, or something else than a certificate; copy it again, or have it issued again"
        }
        _ => "it breaks the rules for certificates (RFC 5280); have it issued again",
    }
}

fn shown(time: UnixTime) -> String {
    let date = http_date::format(UnixSeconds(time.as_secs()));
    String::from_utf8_lossy(&date).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of version 1, as `openssl x509 -req` makes it without extensions. It is valid for a hundred years.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIzCBywIUOSzTZLs46s15bD2Mb3RsBGRS/tQwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyODAxMDAyMFoYDzIxMjYxMTA0MDEwMDIw
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQCW9SvFuCpjjd/nQWtN44sJ6VU9p3goXzMQSQWGjqWh+NlZIKp0TT7n3ounpgp
Yo/cE+4iuJrcgSI9bYyxyUTgMAoGCCqGSM49BAMCA0cAMEQCICmwcRoO/CRypYs4
yGZ813lu6jb3GXXae7siS7eqD9/6AiBArqou9jBDTB/w0+innetTTVq+aHVi5mTE
YNUaZ8u+SA==
-----END CERTIFICATE-----
";

    fn refusal(chain: &str) -> String {
        let provider = rustls::crypto::ring::default_provider();
        let (chain, key) = (Pem::text(chain), Pem::text(""));
        let loaded = Certificate::load((&chain, &key), &provider, UnixTime::now());
        loaded.expect_err("it cannot be served")
    }

    /// Purpose: a certificate that cannot be read is refused in words, with a remedy, not by the name of a variant.
    #[test]
    fn unreadable_certificates() {
        assert_eq!(
            refusal(VERSION_1),
            "certificate 1 in a PEM text given in code cannot be used: it is of version 1 or 2 of X.509, which clients \
             refuse; have it issued again as version 3, with its names as subjectAltName"
        );
        assert_eq!(
            refusal("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "certificate 1 in a PEM text given in code cannot be used: it is cut short, or something else than a \
             certificate; copy it again, or have it issued again"
        );
        // Whatever else there is: no name of Rust.
        for error in [webpki::Error::MalformedExtensions, webpki::Error::UnsupportedNameType] {
            assert!(words(&error).contains("; have it issued again"));
        }
    }
}
