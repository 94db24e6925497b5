//! For how long may a session be resumed in which the client has shown a certificate?
//!
//! rustls resumes a session without another look at the certificates, and makes new tickets for it each time: a client that
//! comes back often enough could go on with its certificate long after it has expired. So the tickets of such a session also
//! hold when the first of the client's certificates expires: its own, or that of an authority in between which it has sent.
//! After that they are not accepted, and the client has to show certificates in a full handshake.
//!
//! In rustls, what checks certificates and what makes tickets do not know which connection they work for. So each connection
//! has one [`Proof`], which is both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::EndEntityCert;

use super::HELLO_MAX;
use super::certificate::expiry;

/// The most that a ticket holds, in bytes; a longer one is not made. It holds all certificates that the client has sent, and a
/// client that came back with a ticket longer than its hello may be would be refused.
const TICKET_MAX: usize = HELLO_MAX / 2;

/// What the client of one connection has shown.
#[derive(Debug)]
pub(super) struct Proof {
    verifier: Arc<dyn ClientCertVerifier>,
    tickets: Arc<dyn ProducesTickets>,
    /// When the first of its certificates expires, in seconds since the epoch; `MAX` while it has shown none.
    until: AtomicU64,
}

impl Proof {
    pub(super) fn new(
        verifier: Arc<dyn ClientCertVerifier>,
        tickets: Arc<dyn ProducesTickets>,
    ) -> Self {
        Proof { verifier, tickets, until: AtomicU64::new(u64::MAX) }
    }
}

impl ProducesTickets for Proof {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let until = self.until.load(Relaxed).to_be_bytes();
        let is_short = plain.len() <= TICKET_MAX;
        is_short.then(|| self.tickets.encrypt(&[&until, plain].concat())).flatten()
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let plain = self.tickets.decrypt(cipher)?;
        let (until, plain) = plain.split_first_chunk()?;
        let until = u64::from_be_bytes(*until);
        if UnixTime::now().as_secs() > until {
            return None;
        }
        // The tickets of the resumed session are good for no longer.
        self.until.store(until, Relaxed);
        Some(plain.to_vec())
    }
}

impl ClientCertVerifier for Proof {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        self.until.store(first_expiry(end_entity, intermediates, now), Relaxed);
        Ok(verified)
    }

    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }
}

/// When the first of a client's certificates expires, in seconds since the epoch.
///
/// Which intermediates the verification has used is not known. It has used none that had expired by `now` or that cannot be read, so
/// these do not count: clients that send an old one would never get a ticket that is good.
fn first_expiry(own: &CertificateDer<'_>, others: &[CertificateDer<'_>], now: UnixTime) -> u64 {
    let expires = |certificate| {
        let end = EndEntityCert::try_from(certificate).and_then(|parsed| expiry(&parsed));
        end.ok().map(|end| end.as_secs())
    };
    let own = expires(own).unwrap_or(0); // If that cannot be told, no ticket is good.
    let used = others.iter().filter_map(expires).filter(|end| *end >= now.as_secs());
    used.fold(own, u64::min)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::RootCertStore;
    use rustls::crypto::ring::default_provider;
    use rustls::server::{NoClientAuth, WebPkiClientVerifier};

    use super::*;

    /// Tickets that are what they hold.
    #[derive(Debug)]
    struct Open;

    impl ProducesTickets for Open {
        fn enabled(&self) -> bool {
            true
        }

        fn lifetime(&self) -> u32 {
            1
        }

        fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.to_vec())
        }

        fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
            Some(cipher.to_vec())
        }
    }

    fn proof(until: u64) -> Proof {
        let proof = Proof::new(Arc::new(NoClientAuth), Arc::new(Open));
        proof.until.store(until, Relaxed);
        proof
    }

    /// Purpose: a ticket is good until the certificate expires, and so are the tickets of the session that it resumes.
    #[test]
    fn tickets_expire_with_the_certificate() {
        let now = UnixTime::now().as_secs();
        for (until, is_good) in [(u64::MAX, true), (now + 3600, true), (now - 1, false), (0, false)]
        {
            let ticket = proof(until).encrypt(b"a session").expect("it is short");
            let back = proof(u64::MAX);
            let session = is_good.then(|| b"a session".to_vec());
            assert_eq!(back.decrypt(&ticket), session, "{until}");
            if is_good {
                assert_eq!(back.encrypt(b"a session").as_ref(), Some(&ticket));
            }
        }
        assert_eq!(proof(u64::MAX).decrypt(b"no time"), None);
    }

    /// A certificate of this name, which expires so long from now.
    fn params(name: &str, expires_in: i64, is_authority: bool) -> CertificateParams {
        let now = UnixTime::now().as_secs().checked_add_signed(expires_in).expect("after 1970");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    }

    fn key() -> KeyPair {
        KeyPair::generate().expect("there is randomness")
    }

    /// Purpose: tickets expire with the first certificate of the client's chain, also if that is an intermediate authority's.
    /// One that had expired before was not used, and does not count: some clients send such certificates as well.
    #[test]
    fn tickets_expire_with_the_chain() {
        let root = CertifiedIssuer::self_signed(params("root", 9000, true), key()).expect("right");
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("it is an authority");
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().expect("there is an authority");
        let now = UnixTime::now();
        for (own, middle, until) in [(2000, 1000, 1000), (1000, 2000, 1000)] {
            let between = CertifiedIssuer::signed_by(params("between", middle, true), key(), &root);
            let between = between.expect("the parameters are right");
            let past = params("past", -10, true).self_signed(&key()).expect("right");
            let leaf = params("client", own, false).signed_by(&key(), &between).expect("right");
            let proof = Proof::new(Arc::clone(&verifier), Arc::new(Open));
            let others =
                [past.der().clone(), between.der().clone(), CertificateDer::from(&b"?"[..])];
            proof.verify_client_cert(leaf.der(), &others, now).expect("it is trusted");
            let left = proof.until.load(Relaxed) - now.as_secs();
            // The clock may have moved on to the next second while they were made.
            assert!((until..until + 60).contains(&left), "{own}, {middle}: {left}");
        }
    }

    /// Purpose: a ticket holds so much, and one that would hold more is not made.
    #[test]
    fn tickets_have_a_size() {
        let makes = |len| proof(u64::MAX).encrypt(&vec![0; len]).is_some();
        assert_eq!([TICKET_MAX - 1, TICKET_MAX, TICKET_MAX + 1].map(makes), [true, true, false]);
    }
}
