//! https: trust, names, resumption, and servers that do not speak TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustls::{ServerConnection, StreamOwned};

use super::nginx::Nginx;
use super::{count, file, highwater, load, serve, well};

/// Purpose: requests over TLS are answered in each loop and shape, over both drivers, and the handshakes are counted:
/// one for each connection, whatever is sent over it.
#[test]
fn requests_over_tls() {
    let Some(nginx) = Nginx::start() else { return };
    let url = format!("https://{}/", nginx.tls);
    let body = "x".repeat(300_000);
    let body = file("body", body.as_bytes()).display().to_string();
    for transport in ["auto", "epoll"] {
        let with = |more: &[&str]| {
            let fixed = [url.as_str(), "--ca", &nginx.ca, "--transport", transport, "-c", "4"];
            well(&[&fixed[..], &["--expect-body", "Hello, World!"], more].concat())
        };
        // Some of the four may be over before the measured span begins.
        let json = with(&[]);
        assert!(count(&json, "handshakes") <= 4, "{json}");
        let cipher = json["tls"].as_str().expect("a cipher");
        assert!(cipher.starts_with("TLSv1_3 TLS13_"), "{cipher}");
        let json = with(&["--pipeline", "4"]);
        assert!(count(&json, "handshakes") <= 4, "{json}");
        let json = with(&["--rate", "200", "--burst", "4"]);
        assert!(count(&json, "handshakes") <= 4, "{json}");
        // Parameters are sealed like fixed requests; a body is larger than what a socket takes at once.
        with(&["--header", "X-Request: ${uuid}"]);
        let url = format!("{url}?${{seq}}");
        let fixed = [url.as_str(), "--ca", &nginx.ca, "--transport", transport, "-c", "4"];
        well(&[&fixed[..], &["-X", "POST", "--body-file", &body]].concat());
    }
}

/// Purpose: with --close each request has a handshake; all but the first connections resume a session, and with
/// --resume off none does.
#[test]
fn sessions_are_resumed_or_not() {
    let Some(nginx) = Nginx::start() else { return };
    let url = format!("https://localhost:{}/", nginx.tls_http1.port());
    for transport in ["auto", "epoll"] {
        let with = |resume: &str| {
            let fixed =
                [url.as_str(), "--ca", &nginx.ca, "--close", "-c", "2", "--transport", transport];
            well(&[&fixed[..], &["--resume", resume]].concat())
        };
        let json = with("on");
        let (all, resumed) = (count(&json, "handshakes"), count(&json, "handshakes_resumed"));
        // Some may have been over before the measured span began.
        assert!(all + 4 >= count(&json, "ok"), "{json}");
        assert!(resumed >= all.saturating_sub(4) && resumed > 0, "{json}");
        assert!(json["handshakes_per_s"].as_f64() > Some(0.0), "{json}");
        let json = with("off");
        assert!(count(&json, "handshakes") > 2, "{json}");
        assert_eq!(count(&json, "handshakes_resumed"), 0, "{json}");
    }
}

/// Purpose: a server that cannot prove who it is gets no request; the message says why, and what to do.
#[test]
fn who_is_not_trusted_gets_no_request() {
    let Some(nginx) = Nginx::start() else { return };
    let url = format!("https://{}/", nginx.tls);
    let refused = |arguments: &[&str], words: &[&str]| {
        let (json, stderr, status) = load(&[arguments, &["-c", "2"]].concat());
        assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
        assert_eq!(count(&json, "tls_failed"), count(&json, "sent"), "{json}");
        for word in words {
            assert!(stderr.contains(word), "{word:?} in {stderr}");
        }
    };
    refused(&[&url], &["not trusted", "--ca FILE", "--insecure"]);
    refused(&[&url, "--transport", "epoll"], &["not trusted"]);
    let other = format!("http://127.0.0.1:{}/", nginx.tls.port());
    // nginx answers a request without TLS itself.
    let (json, ..) = load(&[&other]);
    assert_eq!(json["statuses"]["400"], json["non_2xx"], "{json}");
    // Few handshakes: those of 64 connections take as long as the whole run, on a busy machine.
    well(&[&url, "--insecure", "-c", "4"]);
    let named = format!("https://localhost:{}/", nginx.tls.port());
    well(&[&named, "--ca", &nginx.ca, "-c", "4"]);
}

/// One that answers each connection once.
fn server(name: &str, year: i32) -> (SocketAddr, String) {
    server_of(name, year, |mut stream| {
        let mut request = [0; 4096];
        if stream.read(&mut request).is_ok_and(|len| len > 0) {
            let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    })
}

/// A rustls server with a certificate for `name`, valid until `year`, and the file with that.
pub(super) fn server_of(
    name: &str,
    year: i32,
    on_stream: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + Clone + 'static,
) -> (SocketAddr, String) {
    server_with(name, year, &[], on_stream)
}

/// The same, which speaks one of the protocols `alpn` if there are any.
pub(super) fn server_with(
    name: &str,
    year: i32,
    alpn: &[&[u8]],
    on_stream: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + Clone + 'static,
) -> (SocketAddr, String) {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    server_as(name, params, alpn, on_stream)
}

/// The same, with a certificate that `params` describe.
fn server_as(
    name: &str,
    params: rcgen::CertificateParams,
    alpn: &[&[u8]],
    on_stream: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + Clone + 'static,
) -> (SocketAddr, String) {
    let key = rcgen::KeyPair::generate().expect("there is randomness");
    let certificate = params.self_signed(&key).expect("is complete");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("are supported")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("the key is the certificate's");
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let config = std::sync::Arc::new(config);
    let address = serve(move |stream| {
        let tls = ServerConnection::new(config.clone()).expect("is configured");
        on_stream(StreamOwned::new(tls, stream));
    });
    let ca = file(&format!("{name}-{}.pem", address.port()), certificate.pem().as_bytes());
    (address, ca.display().to_string())
}

/// Purpose: a certificate for another name, and one that has expired, are refused with a remedy; a server that ends its
/// side with close_notify is read to its end.
#[test]
fn certificates() {
    let far = 2100;
    let (address, ca) = server("localhost", far);
    let right = format!("https://localhost:{}/", address.port());
    well(&[&right, "--ca", &ca, "-c", "2"]);
    let (other, other_ca) = server("other.test", far);
    let (late, late_ca) = server("localhost", 2001);
    let wrong = format!("https://localhost:{}/", other.port());
    let expired = format!("https://localhost:{}/", late.port());
    for (url, ca, words) in [
        (&wrong, &other_ca, ["other.test", "write a name of the certificate"]),
        (&expired, &late_ca, ["has expired", "renew it"]),
        (&right, &other_ca, ["not trusted", "--ca FILE"]),
    ] {
        let (json, stderr, status) = load(&[url, "--ca", ca]);
        assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{words:?} in {stderr}");
    }
}

/// Purpose: the certificate that `openssl req -x509` makes, which is that of an authority, is refused in words, with what to
/// make instead.
#[test]
fn certificate_of_an_authority() {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let (address, ca) = server_as("authority", params, &[], |mut tls| {
        let _ = tls.read(&mut [0; 1000]);
    });
    let url = format!("https://localhost:{}/", address.port());
    let (json, stderr, status) = load(&[&url, "--ca", &ca]);
    assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
    let words = "the server's certificate is that of an authority (CA:TRUE), as `openssl req -x509` makes it unless told \
                 otherwise; make one with -addext basicConstraints=critical,CA:FALSE (--insecure accepts any)";
    assert!(stderr.contains(words), "{stderr}");
}

/// Purpose: what is not TLS is said to be that, and neither hangs nor crashes the client.
#[test]
fn not_tls() {
    let plain = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let closing = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
    });
    let alert = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        // no_application_protocol, fatal.
        let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 120]);
    });
    let silent = serve(|mut stream| while stream.read(&mut [0; 1000]).is_ok_and(|len| len > 0) {});
    for (address, words) in [
        (plain, "is not TLS; write http://"),
        (closing, "closed the connection within the handshake"),
        (alert, "does not speak HTTP/1.1 over TLS"),
    ] {
        for transport in ["auto", "epoll"] {
            let url = format!("https://{address}/");
            let (json, stderr, status) = load(&[&url, "--insecure", "--transport", transport]);
            assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
            assert!(stderr.contains(words), "{words:?} in {stderr}");
        }
    }
    let url = format!("https://{silent}/");
    let (json, stderr, status) = load(&[&url, "--insecure", "--timeout", "100ms"]);
    assert_eq!((status, count(&json, "timeouts")), (1, count(&json, "sent")), "{stderr}{json}");
    assert!(count(&json, "unconnected") > 0, "{json}");
}

/// Purpose: flags of TLS that would do nothing, and files that cannot be used, are refused before anything is sent.
#[test]
fn wrong_flags() {
    let empty = file("empty.pem", b"").display().to_string();
    let broken =
        file("broken.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let broken = broken.display().to_string();
    for (arguments, words) in [
        (&["http://127.0.0.1:1/", "--insecure"][..], "--insecure is for TLS"),
        (&["http://127.0.0.1:1/", "--resume", "off"], "--resume off is for TLS"),
        (&["http://127.0.0.1:1/", "--ca", &empty], "--ca is for TLS"),
        (&["https://127.0.0.1:1/", "--ca", &empty], "has no certificate"),
        (&["https://127.0.0.1:1/", "--ca", &broken], "name a file of certificates in PEM"),
        (&["https://127.0.0.1:1/", "--ca", "/gone.pem"], "/gone.pem"),
        (&["https://127.0.0.1:1/", "--ca", &empty, "--insecure"], "cannot be used with"),
        (&["https://a b/"], "is not a name that a certificate can have"),
        (&["https://127.0.0.1:1/", "http://127.0.0.1:1/"], "all https://"),
        (&["https://127.0.0.1:1/", "--resume", "maybe"], "[possible values: on, off]"),
    ] {
        let output = highwater(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {words:?} in {stderr}");
    }
}
