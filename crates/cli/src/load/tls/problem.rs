//! Why TLS failed, in words that say what to do.

use rustls::{AlertDescription, CertificateError, Error};

/// The server has closed the connection before the handshake was over.
pub(super) const CLOSED: &str =
    "the server closed the connection within the handshake; is this its port for https?";

/// It has chosen another protocol than HTTP/2, or none.
pub(super) const NO_HTTP_2: &str =
    "the server does not speak HTTP/2 over TLS (ALPN h2); leave out --http2, or switch it on there";

/// What failed, and the remedy; `http2` is what this client wants to speak.
pub(super) fn words(error: &Error, http2: bool) -> String {
    match error {
        Error::InvalidCertificate(problem) => certificate(problem),
        Error::InvalidMessage(_) => {
            "what the server sent is not TLS; write http://, or name its port for https".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) if http2 => {
            NO_HTTP_2.to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server does not speak HTTP/1.1 over TLS (no_application_protocol); try --http2"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the server speaks neither TLS 1.2 nor TLS 1.3".to_owned()
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the server has no certificate for the URL's name; write a name that it serves"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a certificate of the client, which load cannot give".to_owned()
        }
        Error::AlertReceived(alert) => {
            format!("the server ended the handshake with the alert {alert:?}")
        }
        Error::PeerIncompatible(_) => {
            format!("the server and this client have no way of encryption in common: {error}")
        }
        other => other.to_string(),
    }
}

fn certificate(problem: &CertificateError) -> String {
    const ANY: &str = "--insecure accepts any";
    match problem {
        // The second: an authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "the server's certificate is from an authority that is not trusted; name it with --ca FILE ({ANY})"
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{problem}; write a name of the certificate in the URL ({ANY})")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired; renew it ({ANY})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the server's certificate is not valid yet; check both clocks ({ANY})")
        }
        other => format!("the server's certificate is not valid: {other}; ({ANY})"),
    }
}
