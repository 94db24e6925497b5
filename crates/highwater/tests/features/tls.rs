//! TLS over real sockets: what a client of either version gets, however its bytes come, and how connections end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater::metrics::Metrics;
use highwater::server::{ClientAuth, TransportChoice};
use highwater::{Bytes, PeerCertificates, Pem, Router, Running, Server, ServerConfig, Tls};
use highwater_testkit::read_some;
use rustls::version::{TLS12, TLS13};

use crate::secured::{self, Authority, Bytewise, Secured, connect};
use crate::served::{self, HANG};
use crate::transports::on_each_transport;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn router() -> Router {
    Router::new()
        .get("/", || "Hello, TLS!")
        .get("/big", || vec![b'x'; 1 << 20])
        .post("/length", |body: Bytes| body.len().to_string())
        .get("/whoami", |client: PeerCertificates| format!("{:?}", client.leaf()))
}

fn listening(transport: TransportChoice) -> ServerConfig {
    let listen = vec!["127.0.0.1:0,tls".parse().expect("it is right")];
    ServerConfig { listen, ..served::config(transport) }
}

fn serve(tls: Tls, config: ServerConfig) -> (Running, Metrics) {
    let metrics = Metrics::new();
    let server = Server::new(router()).tls(tls).config(config).metrics(&metrics);
    (server.start().expect("it starts"), metrics)
}

/// A server for `localhost`, and its authority.
fn start(transport: TransportChoice) -> (Authority, Running, Metrics) {
    start_with(listening(transport))
}

fn start_with(config: ServerConfig) -> (Authority, Running, Metrics) {
    let authority = Authority::new("our authority");
    let tls = authority.issue(&["localhost"]).tls();
    let (running, metrics) = serve(tls, config);
    (authority, running, metrics)
}

/// The value of a metric, by its name and labels as on the page.
fn value(metrics: &Metrics, sample: &str) -> u64 {
    let page = metrics.page();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().expect("a whole number")
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Everything that the server sends to a client that says `bytes` and no more.
fn reply_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.write_all(bytes).expect("it is open");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("it ends without a reset");
    reply
}

/// The content of the answer to `GET /` over HTTP/2, with frames and fields as RFC 9113 and RFC 7541 have them.
fn content_over_http2(at: &mut Secured) -> Vec<u8> {
    let mut request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    request.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]); // SETTINGS
    request.extend_from_slice(&[0, 0, 6, 1, 5, 0, 0, 0, 1]); // HEADERS, END_HEADERS and END_STREAM, stream 1
    request.extend_from_slice(&[0x82, 0x87, 0x84, 0x41, 1, b'h']); // GET, https, /, :authority h
    at.send(&request).expect("it is open");
    let (mut received, mut content) = (Vec::new(), Vec::new());
    loop {
        let mut piece = [0; 4096];
        let mut stream = rustls::Stream::new(&mut at.tls, &mut at.stream);
        let len = read_some(&mut stream, &mut piece).expect("it is open");
        assert_ne!(len, 0, "it has closed: {received:?}");
        received.extend_from_slice(&piece[..len]);
        while received.len() >= 9 {
            let len = 9 + usize::from(received[1]) * 256 + usize::from(received[2]);
            if received.len() < len {
                break;
            }
            let (kind, flags, stream) = (received[3], received[4], received[8]);
            if (kind, stream) == (0, 1) {
                content.extend_from_slice(&received[9..len]);
            }
            received.drain(..len);
            if stream == 1 && flags & 1 != 0 {
                return content;
            }
        }
    }
}

on_each_transport! {
    /// Purpose: in both versions, requests on one connection, pipelined ones, large answers and large bodies come through
    /// whole, and the end is announced.
    fn both_versions_serve(transport) {
        let (authority, running, metrics) = start(transport);
        for version in [&TLS12, &TLS13] {
            let client = secured::Client { versions: vec![version], ..authority.client() };
            let mut at = client.connect(running.address(), "localhost").expect("it serves");
            for _ in 0..3 {
                assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
            }
            at.send(GET.repeat(20).as_bytes()).expect("it is open");
            for _ in 0..20 {
                assert_eq!(at.answer().expect("it is open").content, "Hello, TLS!");
            }
            let big = at.ask("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").expect("it is open");
            assert_eq!((big.bytes.len(), big.bytes.iter().all(|&byte| byte == b'x')), (1 << 20, true));
            let head = "POST /length HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
            at.send(head.as_bytes()).expect("it is open");
            at.send(&vec![b'y'; 1_000_000]).expect("it is open");
            assert_eq!(at.answer().expect("it is open").content, "1000000");
            let last = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            assert_eq!(at.ask(last).expect("it is open").content, "Hello, TLS!");
            assert_eq!(at.until_closed().expect("it says that it closes"), b"");
        }
        for version in ["1.2", "1.3"] {
            let sample = format!("http_tls_handshakes_total{{version=\"{version}\",kind=\"full\"}}");
            assert_eq!(value(&metrics, &sample), 1);
        }
    }

    /// Purpose: nothing depends on how the bytes are cut: each comes in a packet of its own.
    fn byte_by_byte(transport) {
        let (authority, running, _metrics) = start(transport);
        for version in [&TLS12, &TLS13] {
            let client = secured::Client { versions: vec![version], ..authority.client() };
            let stream = TcpStream::connect(running.address()).expect("it listens");
            stream.set_nodelay(true).expect("it is open");
            stream.set_read_timeout(Some(HANG)).expect("it is open");
            let mut at = Secured::over(Bytewise(stream), "localhost", client.config()).expect("it serves");
            assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
        }
    }

    /// Purpose: tickets are good at every worker, in both versions, and a resumed session serves.
    fn sessions_are_resumed(transport) {
        let config = ServerConfig { workers: NonZero::new(3), ..listening(transport) };
        let (authority, running, metrics) = start_with(config);
        for version in [&TLS12, &TLS13] {
            let config = secured::Client { versions: vec![version], ..authority.client() }.config();
            let mut first = connect(running.address(), "localhost", config.clone()).expect("it serves");
            assert_eq!(first.ask(GET).expect("it is open").content, "Hello, TLS!");
            assert!(!first.is_resumed());
            for _ in 0..8 {
                let mut next = connect(running.address(), "localhost", config.clone()).expect("it serves");
                assert!(next.is_resumed(), "{version:?}");
                assert_eq!(next.ask(GET).expect("it is open").content, "Hello, TLS!");
            }
        }
        let sample = "http_tls_handshakes_total{version=\"1.3\",kind=\"resumed\"}";
        assert_eq!(value(&metrics, sample), 8);
    }

    /// Purpose: who speaks HTTP on the port of TLS is told so and can read it; who speaks something else gets nothing; and
    /// a hello without an end is bounded. All are counted by reason, and none keeps others from being served.
    fn who_speaks_no_tls(transport) {
        let (authority, running, metrics) = start(transport);
        let reply = reply_to(running.address(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let reply = String::from_utf8(reply).expect("text");
        let (head, content) = reply.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", content.len())), "{reply}");
        assert_eq!(content, "This port speaks TLS; use https:// in the address\n");
        assert_eq!(reply_to(running.address(), b"\0\0garbage"), b"");
        // Records of a hello that never ends, and then one that announces too much at once.
        let mut endless = vec![22, 3, 1, 0, 4, 1, 0, 0xff, 0xff];
        for _ in 0..40 {
            endless.extend_from_slice(&[22, 3, 1, 2, 0]);
            endless.extend_from_slice(&[0; 512]);
        }
        assert_eq!(reply_to(running.address(), &endless), [21, 3, 3, 0, 2, 2, 22]);
        let failed = |reason| value(&metrics, &format!("http_tls_handshake_failures_total{{reason=\"{reason}\"}}"));
        assert_eq!((failed("plain"), failed("malformed")), (2, 1));
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }

    /// Purpose: the protocol is agreed on (ALPN): HTTP/2 if the client knows it, else HTTP/1.1, and the handshake fails with
    /// the alert for that if there is none in common; who does not ask is served.
    fn protocols_are_negotiated(transport) {
        let (authority, running, metrics) = start(transport);
        let offering = |alpn| secured::Client { alpn, ..authority.client() };
        let mut at = offering(&["http/1.1", "h2"]).connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.tls.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(content_over_http2(&mut at), b"Hello, TLS!");
        let mut at = offering(&["spdy/1", "http/1.1"]).connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
        let refused = offering(&["spdy/1"]).connect(running.address(), "localhost").err();
        let refused = refused.expect("there is none in common").to_string();
        assert!(refused.contains("NoApplicationProtocol"), "{refused}");
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.tls.alpn_protocol(), None);
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
        let sample = "http_tls_handshake_failures_total{reason=\"incompatible\"}";
        assert_eq!(value(&metrics, sample), 1);
    }

    /// Purpose: a listener that allows one version of HTTP only agrees to no other.
    fn a_listener_may_be_narrower(transport) {
        let mut config = listening(transport);
        config.listen = ["127.0.0.1:0,tls,http1", "127.0.0.1:0,tls,http2"]
            .map(|text| text.parse().expect("it is right"))
            .to_vec();
        let (authority, running, _metrics) = start_with(config);
        let [one, two] = running.addresses() else { panic!("it has two") };
        let (one, two) = (one.tcp().expect("it is TCP"), two.tcp().expect("it is TCP"));
        let offering = |alpn| secured::Client { alpn, ..authority.client() };
        let mut at = offering(&["h2", "http/1.1"]).connect(one, "localhost").expect("it serves");
        assert_eq!(at.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
        let mut at = offering(&["http/1.1", "h2"]).connect(two, "localhost").expect("it serves");
        assert_eq!(at.tls.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(content_over_http2(&mut at), b"Hello, TLS!");
        assert!(offering(&["h2"]).connect(one, "localhost").is_err());
        assert!(offering(&["http/1.1"]).connect(two, "localhost").is_err());
    }

    /// Purpose: an older version than the least that is allowed fails the handshake, and the newer one serves.
    fn the_oldest_version(transport) {
        let authority = Authority::new("our authority");
        let tls = authority.issue(&["localhost"]).tls().min_version(highwater::server::TlsMin::Tls13);
        let (running, metrics) = serve(tls, listening(transport));
        let old = secured::Client { versions: vec![&TLS12], ..authority.client() };
        let refused = old.connect(running.address(), "localhost").err().expect("it is too old");
        assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
        assert_eq!(value(&metrics, "http_tls_handshake_failures_total{reason=\"incompatible\"}"), 1);
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }

    /// Purpose: clients that have to show a certificate cannot come without one, or with one of another authority; handlers
    /// get it, also in a session that is resumed; where it is optional, a handler that needs one answers 403.
    fn clients_show_certificates(transport) {
        let (ours, theirs) = (Authority::new("our authority"), Authority::new("another"));
        let known = ours.issue(&["client"]);
        let make = |auth| {
            let tls = ours.issue(&["localhost"]).tls();
            serve(tls.client_ca(Pem::text(ours.pem())).client_auth(auth), listening(transport))
        };
        let whoami = "GET /whoami HTTP/1.1\r\nHost: h\r\n\r\n";
        let with = |identity| secured::Client { identity, ..ours.client() };
        let (running, metrics) = make(ClientAuth::Required);
        let config = with(Some(known.clone())).config();
        for is_resumed in [false, true] {
            let mut at = connect(running.address(), "localhost", config.clone()).expect("it is known");
            let seen = at.ask(whoami).expect("it is open");
            assert_eq!((seen.status, seen.content), (200, format!("{:?}", &*known.der())));
            assert_eq!(at.is_resumed(), is_resumed);
        }
        for identity in [None, Some(theirs.issue(&["client"]))] {
            // In TLS 1.3 the client is done before the server has looked.
            let refused = with(identity).connect(running.address(), "localhost").and_then(|mut at| at.ask(whoami));
            assert!(refused.is_err());
        }
        let sample = "http_tls_handshake_failures_total{reason=\"certificate\"}";
        eventually("both were counted", || value(&metrics, sample) == 2);
        let (running, _metrics) = make(ClientAuth::Optional);
        let mut at = with(None).connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").status, 200);
        assert_eq!(at.ask(whoami).expect("it is open").status, 403);
        let mut at = with(Some(known)).connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(whoami).expect("it is open").status, 200);
    }

    /// Purpose: a server that drains announces the end to idle connections.
    fn a_drain_announces_the_end(transport) {
        let (authority, mut running, _metrics) = start(transport);
        let mut idle = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(idle.ask(GET).expect("it is open").content, "Hello, TLS!");
        running.stop().expect("it stops");
        assert_eq!(idle.until_closed().expect("it says that it closes"), b"");
    }

    /// Purpose: an idle connection is closed with the announcement; a client that does not begin or does not finish its
    /// handshake is disconnected when its time is up, and counted.
    fn time_is_up(transport) {
        let mut config = listening(transport);
        config.limits.idle_timeout = Duration::from_millis(100);
        config.limits.header_timeout = Duration::from_millis(100);
        let (authority, running, metrics) = start_with(config);
        let mut idle = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(idle.ask(GET).expect("it is open").content, "Hello, TLS!");
        assert_eq!(idle.until_closed().expect("it says that it closes"), b"");
        assert_eq!(reply_to(running.address(), b""), b"");
        assert_eq!(reply_to(running.address(), &[22, 3, 1, 2, 0, 1, 0, 1]), b"");
        // Bytes that trickle in do not extend the time.
        let mut slow = TcpStream::connect(running.address()).expect("it listens");
        slow.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).expect("it is open");
        let begun = Instant::now();
        while slow.write_all(&[0]).is_ok() {
            assert!(begun.elapsed() < HANG, "it may be slow for ever");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sample = "http_tls_handshake_failures_total{reason=\"timeout\"}";
        eventually("all were counted", || value(&metrics, sample) == 3);
    }

    /// Purpose: a body that is cut off by an end without announcement is not taken for a whole one, and a client that goes
    /// in the middle of its handshake is counted.
    fn truncation(transport) {
        let (authority, running, metrics) = start(transport);
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        let head = "POST /length HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nonly";
        at.send(head.as_bytes()).expect("it is open");
        at.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut sealed = Vec::new();
        at.stream.read_to_end(&mut sealed).expect("it ends");
        assert!(!metrics.page().contains("http_responses_total{status=\"200\"}"));
        let stream = TcpStream::connect(running.address()).expect("it listens");
        (&stream).write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).expect("it is open");
        drop(stream);
        let sample = "http_tls_handshake_failures_total{reason=\"closed\"}";
        eventually("it was counted", || value(&metrics, sample) == 1);
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }

    /// Purpose: many clients at once, far more than there is room for, are all served in the end.
    fn a_crowd(transport) {
        let config = ServerConfig { connections_max: Some(8), ..listening(transport) };
        let (authority, running, _metrics) = start_with(config);
        let (client, address) = (authority.client(), running.address());
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let begun = Instant::now();
                    let served = || client.connect(address, "localhost").and_then(|mut at| at.ask(GET));
                    // An idle connection is closed for another: its client comes again.
                    while !served().is_ok_and(|answer| answer.content == "Hello, TLS!") {
                        assert!(begun.elapsed() < HANG, "it is never served");
                    }
                });
            }
        });
    }

    /// Purpose: a Unix socket speaks TLS, too.
    fn unix_sockets(transport) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.sock");
        let text = format!("unix:{},tls", path.display());
        let config = ServerConfig { listen: vec![text.parse().expect("it is right")], ..listening(transport) };
        let (authority, _running, _metrics) = start_with(config);
        let stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        let mut at = Secured::over(stream, "localhost", authority.client().config()).expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }

    /// Purpose: plain listeners of the same server stay plain.
    fn beside_a_plain_listener(transport) {
        let mut config = listening(transport);
        config.listen.push(([127, 0, 0, 1], 0).into());
        let (authority, running, _metrics) = start_with(config);
        let [tls, plain] = running.addresses() else { panic!("it has two") };
        let (tls, plain) = (tls.tcp().expect("it is TCP"), plain.tcp().expect("it is TCP"));
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert_eq!(served::exchange(plain, request).content, "Hello, TLS!");
        let mut at = authority.client().connect(tls, "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }

    /// Purpose: a socket that code gives speaks TLS if there are certificates.
    fn a_given_socket(transport) {
        let authority = Authority::new("our authority");
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let config = ServerConfig { listen: Vec::new(), ..served::config(transport) };
        let server = Server::new(router()).tls(authority.issue(&["localhost"]).tls());
        let running = server.config(config).listener(socket).start().expect("it starts");
        let mut at = authority.client().connect(running.address(), "localhost").expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "Hello, TLS!");
    }
}

/// Purpose: a client that wants to renegotiate (TLS 1.2) is refused, and OpenSSL's client is otherwise served.
#[test]
fn renegotiation() {
    let (_authority, running, metrics) = start(TransportChoice::Epoll);
    let address = running.address().to_string();
    let spawned = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-tls1_2", "-servername", "localhost"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut client) = spawned else {
        return highwater_skip::skip("openssl", "it is not installed");
    };
    let full = "http_tls_handshakes_total{version=\"1.2\",kind=\"full\"}";
    eventually("it has shaken hands", || value(&metrics, full) == 1);
    client.stdin.take().expect("it is piped").write_all(b"R\n").expect("it reads");
    let output = client.wait_with_output().expect("it ends");
    let output = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.contains("RENEGOTIATING") && output.contains("no renegotiation"), "{output}");
    assert_eq!(value(&metrics, full), 1);
}
