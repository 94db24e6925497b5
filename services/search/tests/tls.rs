//! The poller against a provider that speaks TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::poller::{Outcome, Settings, Source};
use highwater_search::provider::generate;
use highwater_search::store::Embedded;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};

/// Serves a feed of seven events over TLS. Returns the URL and the
/// certificate of the authority that vouches for it, in PEM.
fn tls_provider() -> (String, Vec<u8>) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).expect("signed").pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("signed");

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .expect("a matching key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut socket = stream.expect("accepted");
            let mut connection =
                ServerConnection::new(Arc::clone(&config)).expect("valid settings");
            let mut tls = Stream::new(&mut connection, &mut socket);
            // A client that refuses our certificate hangs up here.
            if tls.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                let feed = generate(7, 1);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", feed.len());
                let _ = tls.write_all((head + &feed).as_bytes());
                let _ = tls.flush();
            }
        }
    });
    (format!("https://localhost:{port}/"), pem.into_bytes())
}

/// Purpose: https works with the authorities that were named, and refuses those that were not.
#[test]
fn https() {
    let (url, authority) = tls_provider();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Embedded::open(directory.path()).expect("a new store");
    let catalog = Catalog::open(Box::new(store), EVENTS_MAX).expect("nothing to load");

    let public = Settings::new(&url);
    let outcome = Source::new(&public).expect("valid settings").poll(&catalog, 1);
    assert!(matches!(outcome, Outcome::Failed { reason: "tls", .. }), "{outcome:?}");
    assert!(catalog.snapshot().is_empty());

    let named = Settings { authorities: Some(authority), ..public.clone() };
    let outcome = Source::new(&named).expect("valid settings").poll(&catalog, 1);
    assert!(matches!(outcome, Outcome::Fetched { .. }), "{outcome:?}");
    assert_eq!(catalog.snapshot().len(), 7);

    for nonsense in [&b""[..], b"not a certificate"] {
        let settings = Settings { authorities: Some(nonsense.to_vec()), ..public.clone() };
        let refusal = Source::new(&settings).err().expect("refused").to_string();
        assert!(refusal.contains("PEM"), "{refusal}");
    }
}
