//! Why TLS failed, and the remedy.

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
        Error::AlertReceived(AlertDescription::HandshakeFailure) | Error::PeerIncompatible(_) => {
            "the server and this client have no way of encryption in common; allow TLS 1.3, or TLS 1.2 with ECDHE, there"
                .to_owned()
        }
        Error::AlertReceived(alert) => format!(
            "the server ended the handshake with the alert {} (RFC 8446, section 6.2); its log may say why",
            u8::from(*alert)
        ),
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::InvalidEncryptedClientHello(_)
        | Error::DecryptError
        | Error::PeerSentOversizedRecord => {
            "what the server sent breaks the rules of TLS; look for something in between that changes it, or update the \
             server"
                .to_owned()
        }
        Error::NoCertificatesPresented => {
            "the server has sent no certificate; give it one".to_owned()
        }
        Error::FailedToGetRandomBytes => "this machine gives no random bytes".to_owned(),
        Error::General(what) => format!("TLS has failed: {what}"),
        _ => "TLS has failed within this client; please report it, with the address".to_owned(),
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
        CertificateError::NotValidForName => {
            format!(
                "the server's certificate is for another name; write a name of the certificate in the URL ({ANY})"
            )
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the server's certificate is not for {}, but for {}; write a name of the certificate in the URL ({ANY})",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired; renew it ({ANY})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the server's certificate is not valid yet; check both clocks ({ANY})")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!(
                "the server's certificate is not for servers: its extended key usage lacks serverAuth; have it issued again \
                 ({ANY})"
            )
        }
        CertificateError::Revoked => {
            format!("the server's certificate has been revoked; have another one issued ({ANY})")
        }
        CertificateError::UnhandledCriticalExtension => format!(
            "the server's certificate has a critical extension that is not known here; have it issued without that ({ANY})"
        ),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "the server's certificate is signed in a way that is not supported here; have it issued with ECDSA, Ed25519, or \
             RSA and SHA-256 ({ANY})"
        ),
        CertificateError::Other(why) => format!("{} ({ANY})", other(&why.to_string())),
        _ => format!("{BROKEN} ({ANY})"),
    }
}

const BROKEN: &str =
    "the server's certificate breaks the rules for certificates (RFC 5280); have it issued again";

/// What is wrong with a certificate, by the name that webpki has for it. Its types are not a dependency of this crate.
fn other(why: &str) -> &'static str {
    match why {
        "CaUsedAsEndEntity" => {
            "the server's certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes it unless told otherwise; \
             make one with -addext basicConstraints=critical,CA:FALSE"
        }
        "UnsupportedCertVersion" => {
            "the server's certificate is of version 1 or 2 of X.509; have it issued again as version 3, with its names as \
             subjectAltName"
        }
        "EndEntityUsedAsCa" | "PathLenConstraintViolated" | "NameConstraintViolation" => {
            "an authority in the server's chain may not issue its certificate; have it issued by another one"
        }
        _ => BROKEN,
    }
}

/// The names of a certificate. They come in the form `DnsName("example.org")`.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    let all: Vec<String> = presented.iter().map(bare).collect();
    match &all[..] {
        [] => "no name at all".to_owned(),
        all => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError, PeerIncompatible, PeerMisbehaved};

    use super::*;

    /// An error of a certificate that rustls has no word for, as webpki names it.
    fn of_webpki(name: &'static str) -> Error {
        let other = OtherError(Arc::new(std::io::Error::other(name)));
        Error::InvalidCertificate(CertificateError::Other(other))
    }

    /// Purpose: users read what is wrong and what to do, and no names from the inside of a library.
    #[test]
    fn in_words() {
        let not_for = CertificateError::NotValidForNameContext {
            expected: "a.test".try_into().expect("a name"),
            presented: vec!["DnsName(\"b.test\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()],
        };
        assert_eq!(
            words(&not_for.into(), false),
            "the server's certificate is not for a.test, but for b.test, 127.0.0.1; write a name of the certificate in the URL \
             (--insecure accepts any)"
        );
        assert_eq!(
            words(&of_webpki("CaUsedAsEndEntity"), false),
            "the server's certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes it unless told \
             otherwise; make one with -addext basicConstraints=critical,CA:FALSE (--insecure accepts any)"
        );
        for error in [
            of_webpki("UnsupportedCertVersion"),
            of_webpki("PathLenConstraintViolated"),
            of_webpki("MalformedExtensions"),
            CertificateError::BadEncoding.into(),
            CertificateError::Revoked.into(),
            CertificateError::InvalidPurpose.into(),
            CertificateError::UnhandledCriticalExtension.into(),
            CertificateError::NotValidForName.into(),
            CertificateError::ApplicationVerificationFailure.into(),
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::AlertReceived(AlertDescription::InternalError),
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::NoCertificatesPresented,
            Error::DecryptError,
            Error::EncryptError,
        ] {
            let text = words(&error, false);
            assert!(text.contains("; "), "{text:?} has no remedy");
            // A name such as BadEncoding has a capital letter behind a small one.
            let known = text.replace("serverAuth", "").replace("subjectAltName", "");
            let known = known.replace("basicConstraints", "");
            let is_name =
                |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
            assert!(!known.as_bytes().windows(2).any(is_name), "{text}");
        }
    }
}
