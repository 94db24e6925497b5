//! For how long may a session be resumed in which the client has shown a certificate?
//!
//! rustls resumes a session without another look at the certificate, and makes new tickets for it each time: a client that
//! comes back often enough could go on with its certificate long after it has expired. So the tickets of such a session also
//! hold when the certificate expires. After that they are not accepted, and the client has to show one in a full handshake.
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
    /// When its certificate expires, in seconds since the epoch; `MAX` while it has shown none.
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
        let expires = EndEntityCert::try_from(end_entity).and_then(|parsed| expiry(&parsed));
        // If that cannot be told, no ticket is good.
        self.until.store(expires.map_or(0, |end| end.as_secs()), Relaxed);
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

#[cfg(test)]
mod tests {
    use rustls::server::NoClientAuth;

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

    /// Purpose: a ticket holds so much, and one that would hold more is not made.
    #[test]
    fn tickets_have_a_size() {
        let makes = |len| proof(u64::MAX).encrypt(&vec![0; len]).is_some();
        assert_eq!([TICKET_MAX - 1, TICKET_MAX, TICKET_MAX + 1].map(makes), [true, true, false]);
    }
}
