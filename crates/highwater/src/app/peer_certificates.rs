//! Who is the client, by its own certificate?

use std::sync::Arc;

use bytes::Bytes;

/// The certificates by which the client has shown who it is, over TLS with client certificates (setting `tls-client-ca`,
/// feature `tls`): its own first, then those of its issuers as far as it has sent them. They were checked when the connection
/// began, or when the session was that it resumes.
///
/// In a handler without `Option`, a request without one is answered 403. Layers get it with
/// [`Request::extension`](super::Request::extension); those that see refusals of the server's own see none.
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
