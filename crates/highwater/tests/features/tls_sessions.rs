//! What a session of TLS proves, and for how long: who comes back with a ticket is who came first, or nobody. And what a client
//! may do once its handshake is complete.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use highwater::server::TransportChoice;
use highwater::{PeerCertificates, Pem, Router, Running, Server, ServerConfig, Tls};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, NamedGroup};

use crate::secured::{self, Authority, Issued, connect};
use crate::served::{self, HANG};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const WHOAMI: &str = "GET /whoami HTTP/1.1\r\nHost: h\r\n\r\n";

fn serve(tls: Tls) -> Running {
    let router = Router::new()
        .get("/", || "Hello, TLS!")
        .get("/whoami", |client: PeerCertificates| format!("{:?}", client.leaf()));
    let listen = vec!["127.0.0.1:0,tls".parse().expect("it is right")];
    let config = ServerConfig { listen, ..served::config(TransportChoice::Epoll) };
    Server::new(router).tls(tls).config(config).start().expect("it starts")
}

/// Who the server says that the client is, and whether it came back.
fn whoami(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<(String, bool)> {
    let mut at = connect(address, "localhost", Arc::clone(config))?;
    Ok((at.ask(WHOAMI)?.content, at.is_resumed()))
}

/// Both versions, each with a client's configuration, which keeps tickets.
fn clients(authority: &Authority, identity: &Issued) -> [Arc<ClientConfig>; 2] {
    [&TLS12, &TLS13].map(|version| {
        let identity = Some(identity.clone());
        secured::Client { identity, versions: vec![version], ..authority.client() }.config()
    })
}

/// Purpose: a session is not resumed once the certificate has expired that the client has shown in it, however often it was
/// resumed before: the client has to show another. Each resumption brings a new ticket, so without that check, a client
/// which came back twice a day outlived its certificate for ever.
#[test]
fn a_session_ends_with_the_clients_certificate() {
    let authority = Authority::new("our authority");
    let tls = authority.issue(&["localhost"]).tls().client_ca(Pem::text(authority.pem()));
    let running = serve(tls);
    let lasts = |seconds| {
        authority.issue_with(&["client"], |params| {
            let now =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
            params.not_after =
                rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(seconds);
        })
    };
    for version in [0, 1] {
        // On a slow machine it may have expired before its second use.
        let (issued, config) = [3, 10, 60]
            .into_iter()
            .find_map(|seconds| {
                let issued = lasts(seconds);
                let config = Arc::clone(&clients(&authority, &issued)[version]);
                let shown = whoami(running.address(), &config).ok()?;
                assert_eq!(shown, (format!("{:?}", &*issued.der()), false));
                let shown = whoami(running.address(), &config).ok()?;
                assert_eq!(shown, (format!("{:?}", &*issued.der()), true), "it was good at first");
                Some((issued, config))
            })
            .expect("one is valid for long enough");
        let begun = Instant::now();
        while let Ok(shown) = whoami(running.address(), &config) {
            assert_eq!(shown, (format!("{:?}", &*issued.der()), true));
            assert!(begun.elapsed() < HANG + Duration::from_secs(60), "it never ends");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Purpose: a ticket is for one name: with it, a client that asks for another one shakes hands anew, and is asked again for
/// its certificate.
#[test]
fn a_ticket_is_for_one_name() {
    let authority = Authority::new("our authority");
    let (ours, known) = (authority.issue(&["localhost", "other"]), authority.issue(&["client"]));
    let running = serve(ours.tls().client_ca(Pem::text(authority.pem())));
    for config in clients(&authority, &known) {
        let mut config = (*config).clone();
        config.resumption = Resumption::store(Arc::new(OneName(ClientSessionMemoryCache::new(8))));
        let config = Arc::new(config);
        for (name, is_resumed) in
            [("localhost", false), ("localhost", true), ("other", false), ("other", true)]
        {
            let mut at = connect(running.address(), name, Arc::clone(&config)).expect("it serves");
            assert_eq!(at.ask(WHOAMI).expect("it is open").status, 200);
            assert_eq!(at.is_resumed(), is_resumed, "{name}");
        }
    }
}

/// Purpose: a client that shows many certificates can come back as often as it likes. A ticket holds all of them; if one were made
/// that is longer than a hello may be, the client would be refused with it.
#[test]
fn a_long_chain_may_come_back() {
    let authority = Authority::new("our authority");
    let running =
        serve(authority.issue(&["localhost"]).tls().client_ca(Pem::text(authority.pem())));
    let known = authority.issue(&["client"]);
    let others = (0..50).map(|_| authority.issue(&["another"]).der());
    let chain: Vec<_> = std::iter::once(known.der()).chain(others).collect();
    assert!(chain.iter().map(|certificate| certificate.len()).sum::<usize>() > 16 * 1024);
    for version in [&TLS12, &TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[version]).expect("ring has ciphers for it");
        let key = PrivateKeyDer::from_pem_slice(known.key.as_bytes()).expect("it is PEM");
        let config = builder
            .with_root_certificates(authority.client().roots)
            .with_client_auth_cert(chain.clone(), key);
        let config = Arc::new(config.expect("the key fits"));
        for _ in 0..4 {
            let shown = whoami(running.address(), &config).expect("it is known");
            assert_eq!(shown, (format!("{:?}", &*known.der()), false));
        }
    }
}

/// What a client keeps of its sessions, by no name: it offers a ticket of one server to any.
#[derive(Debug)]
struct OneName(ClientSessionMemoryCache);

fn one() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(one(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&one())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(one(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&one())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(one(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one())
    }
}

/// Purpose: once the authorities for clients have changed, a client of the old ones does not come back, ticket or not; not
/// even after the old ones have returned does its ticket spare it the proof.
#[test]
fn a_session_ends_with_the_authority() {
    let (old, new) = (Authority::new("the old one"), Authority::new("the new one"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("clients.pem");
    let trust = |authority: &Authority| {
        let (text, path) = (authority.pem(), folder.path().join("next"));
        std::fs::write(&path, text).and_then(|()| std::fs::rename(path, &file)).expect("a file");
    };
    trust(&old);
    let running = serve(old.issue(&["localhost"]).tls().client_ca(file.clone()));
    let [known, stranger] = [&old, &new].map(|authority| authority.issue(&["client"]));
    let came = clients(&old, &known);
    for config in &came {
        assert!(!whoami(running.address(), config).expect("it is known").1);
        assert!(whoami(running.address(), config).expect("it is known").1);
    }
    let until = |identity: &Issued, is_known: bool| {
        let begun = Instant::now();
        // Without tickets.
        while whoami(running.address(), &clients(&old, identity)[1]).is_ok() != is_known {
            assert!(begun.elapsed() < HANG, "it is not read");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    trust(&new);
    until(&stranger, true);
    for config in &came {
        assert!(whoami(running.address(), config).is_err());
    }
    let came = clients(&old, &stranger);
    for config in &came {
        assert!(!whoami(running.address(), config).expect("it is known").1);
    }
    trust(&old);
    until(&known, true);
    for config in &came {
        assert!(whoami(running.address(), config).is_err());
    }
}

/// Purpose: a client that wants new keys again and again (TLS 1.3) is cut off, and keeps nobody else from being served. One that
/// wants them now and then is served.
#[test]
fn keys_are_not_changed_for_ever() {
    let authority = Authority::new("our authority");
    let running = serve(authority.issue(&["localhost"]).tls());
    let client = secured::Client { versions: vec![&TLS13], ..authority.client() };
    let mut at = client.connect(running.address(), "localhost").expect("it serves");
    for _ in 0..10 {
        at.tls.refresh_traffic_keys().expect("it is TLS 1.3");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }
    let cut = (0..1000).find_map(|_| {
        at.tls.refresh_traffic_keys().expect("it is TLS 1.3");
        at.send(b"").err()
    });
    assert!(cut.is_some() || at.ask(GET).is_err(), "it goes on for ever");
    let mut at = client.connect(running.address(), "localhost").expect("it serves");
    assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
}
