//! Who is the client, by its own certificate?

use std::sync::Arc;

use bytes::Bytes;

/// The certificates with which the client has authenticated itself, over TLS with client certificates (setting
/// `tls-client-ca`, feature `tls`): its own first, then those of its issuers as far as it has sent them. They were checked
/// when the connection began or, for a resumed session, when the session began.
///
/// If a handler takes them without `Option`, a request without a certificate is answered 403. Layers get them with
/// [`Request::extension`](super::Request::extension), except for refusals by the server itself.
///
/// ```
/// use highwater::{PeerCertificates, Router};
///
/// fn fingerprint(client: PeerCertificates) -> String {
///     format!("{} bytes of DER", client.leaf().len()) // For a crate that reads X.509, such as x509-parser.
/// }
///
/// let router = Router::new().get("/whoami", fingerprint);
/// # router.build().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificates(Arc<[Bytes]>);

impl PeerCertificates {
    /// # Panics
    /// Without certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn new<'c>(chain: impl Iterator<Item = &'c [u8]>) -> Self {
        let chain: Arc<[Bytes]> = chain.map(Bytes::copy_from_slice).collect();
        assert!(!chain.is_empty(), "who has shown a certificate has at least one");
        PeerCertificates(chain)
    }

    /// The client's own certificate, in DER.
    pub fn leaf(&self) -> &[u8] {
        &self.0[0]
    }

    /// All of them, in DER, the client's own first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|certificate| &**certificate)
    }
}
