//! The PROXY protocol over real sockets: whose a connection is behind a header, in front of HTTP/1.1, HTTP/2 and TLS; and who is
//! not believed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use highwater::metrics::Metrics;
use highwater::proxies::TrustedProxies;
use highwater::server::TransportChoice;
use highwater::{Error, FromRequest, PeerAddr, Request, Router, Running, Server, ServerConfig};
use highwater_testkit::read_some;

use crate::answers::{Answer, Answers};
use crate::secured::{Authority, Secured};
use crate::served::{self, HANG};
use crate::transports::on_each_transport;

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n";
const GET: &str = "GET /peer HTTP/1.1\r\nHost: h\r\n\r\n";

/// A header of version 2, with a field behind its addresses that means nothing to us.
fn v2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let field = [0xee, 0, 2, b'h', b'i'];
    let length = (addresses.len() + field.len()) as u16;
    let start = b"\r\n\r\n\0\r\nQUIT\n";
    [&start[..], &[command, family], &length.to_be_bytes(), addresses, &field].concat()
}

/// One from `[2001:db8::7]:80`.
fn v2_from_ipv6() -> Vec<u8> {
    let source = "2001:db8::7".parse::<Ipv6Addr>().expect("an address").octets();
    v2(0x21, 0x21, &[&source[..], &source, &80_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat())
}

/// Whom a request counts for, where proxies of 127.0.0.0/8 are trusted.
struct Client(Option<IpAddr>);

impl FromRequest for Client {
    const PEER: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let proxies: TrustedProxies = "127.0.0.0/8".parse().expect("a network");
        Ok(Client(request.client(&proxies)))
    }
}

fn router() -> Router {
    Router::new()
        .get("/peer", |PeerAddr(peer): PeerAddr| peer.to_string())
        .get("/client", |Client(client): Client| format!("{client:?}"))
}

fn settings(transport: TransportChoice, listen: &str, trusted: &str) -> ServerConfig {
    ServerConfig {
        listen: vec![listen.parse().expect("it is right")],
        trusted_proxies: trusted.parse().expect("a list"),
        ..served::config(transport)
    }
}

fn start(config: ServerConfig) -> (Running, Metrics) {
    let metrics = Metrics::new();
    let server = Server::new(router()).config(config).metrics(&metrics);
    (server.start().expect("it starts"), metrics)
}

/// A server that trusts this machine.
fn trusting(transport: TransportChoice, options: &str) -> (Running, Metrics) {
    start(settings(transport, &format!("127.0.0.1:0,proxy{options}"), "127.0.0.0/8"))
}

fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).expect("it listens, and is open")
}

fn try_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, HANG)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The next answer.
fn answer(stream: &mut impl Read) -> Answer {
    let (mut answers, mut received) = (Answers::default(), Vec::new());
    loop {
        if let Some(answer) = answers.next(&mut received) {
            return answer;
        }
        let mut piece = [0; 4096];
        let length = read_some(stream, &mut piece).expect("it is open");
        assert_ne!(length, 0, "it has closed");
        received.extend_from_slice(&piece[..length]);
    }
}

/// How many connections were refused for `reason`.
fn refused(metrics: &Metrics, reason: &str) -> u64 {
    let page = metrics.page();
    let sample = format!("http_rejections_total{{layer=\"accept\",reason=\"{reason}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(sample.as_str()));
    line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().expect("a number")
}

/// How a connection ends on which all of `bytes` are sent, from its first moment on: what came, or the error.
fn end(address: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = try_connect(address)?;
    stream.write_all(bytes)?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

fn is_reset(ended: &io::Result<Vec<u8>>) -> bool {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    ended.as_ref().is_err_and(|error| kinds.contains(&error.kind()))
}

on_each_transport! {
    /// Purpose: every request behind a header is its client's, of whatever version and family, on the whole connection; where
    /// the proxy names nobody it is the proxy's own.
    fn clients_are_named(transport) {
        let (server, _metrics) = trusting(transport, "");
        for (header, peer) in [
            (V1.to_vec(), Some("203.0.113.7:56324")),
            (b"PROXY TCP6 2001:db8::7 ::1 80 443\r\n".to_vec(), Some("[2001:db8::7]:80")),
            (v2(0x21, 0x11, &[203, 0, 113, 7, 192, 0, 2, 1, 0, 80, 1, 187]), Some("203.0.113.7:80")),
            (v2_from_ipv6(), Some("[2001:db8::7]:80")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (v2(0x20, 0, &[]), None),
        ] {
            let mut stream = connect(server.address());
            let own = stream.local_addr().expect("it is open").to_string();
            stream.write_all(&[&header[..], GET.as_bytes()].concat()).expect("it is open");
            for _ in 0..3 {
                assert_eq!(answer(&mut stream).content, peer.unwrap_or(&own));
                stream.write_all(GET.as_bytes()).expect("it is open");
            }
        }
    }

    /// Purpose: nothing depends on how the bytes are cut.
    fn cut_anywhere(transport) {
        let (server, _metrics) = trusting(transport, "");
        for header in [V1.to_vec(), v2_from_ipv6()] {
            let all = [&header[..], GET.as_bytes()].concat();
            for cut in 1..all.len() {
                let mut stream = connect(server.address());
                let (first, rest) = all.split_at(cut);
                stream.write_all(first).expect("it is open");
                std::thread::sleep(Duration::from_micros(200)); // Most come in two pieces then.
                stream.write_all(rest).expect("it is open");
                let content = answer(&mut stream).content;
                assert!(content.contains(":56324") || content.contains("]:80"), "{cut}: {content}");
            }
            let mut stream = connect(server.address());
            all.chunks(1).for_each(|byte| stream.write_all(byte).expect("it is open"));
            assert_eq!(answer(&mut stream).status, 200);
        }
    }

    /// Purpose: a client behind a proxy that is believed is not itself believed to be a proxy.
    fn clients_cannot_name_others(transport) {
        let (server, _metrics) = trusting(transport, "");
        let request = "GET /client HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n";
        for (header, client) in [
            (V1, "Some(203.0.113.7)"),
            // The proxy speaks for itself, and may.
            (b"PROXY UNKNOWN\r\n", "Some(198.51.100.1)"),
        ] {
            let mut stream = connect(server.address());
            stream.write_all(&[header, request.as_bytes()].concat()).expect("it is open");
            assert_eq!(answer(&mut stream).content, client);
        }
    }

    /// Purpose: the header comes before TLS, whose handshake is with the client behind the proxy.
    fn before_tls(transport) {
        let authority = Authority::new("our authority");
        let config = settings(transport, "127.0.0.1:0,proxy,tls", "127.0.0.1");
        let tls = authority.issue(&["localhost"]).tls();
        let server = Server::new(router()).tls(tls).config(config).start().expect("it starts");
        for pause in [Duration::ZERO, Duration::from_millis(20)] {
            let mut stream = connect(server.address());
            stream.write_all(&V1[..20]).expect("it is open");
            std::thread::sleep(pause);
            stream.write_all(&V1[20..]).expect("it is open");
            std::thread::sleep(pause);
            let mut at = Secured::over(stream, "localhost", authority.client().config()).expect("TLS");
            for _ in 0..2 {
                assert_eq!(at.ask(GET).expect("it is open").content, "203.0.113.7:56324");
            }
        }
        let without = Secured::over(connect(server.address()), "localhost", authority.client().config());
        assert!(without.is_err(), "a handshake is no header");
    }

    /// Purpose: the header comes before the preface of HTTP/2 as well, and counts for all streams.
    fn before_http2(transport) {
        for options in ["", ",http2"] {
            let (server, _metrics) = trusting(transport, options);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("it is built").block_on(async {
                let mut stream = connect(server.address());
                stream.write_all(&v2_from_ipv6()).expect("it is open");
                stream.set_nonblocking(true).expect("it is open");
                let stream = tokio::net::TcpStream::from_std(stream).expect("in a runtime");
                let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
                let driving = tokio::spawn(async move { drop(connection.await) });
                for _ in 0..2 {
                    let mut client = client.clone().ready().await.expect("it is open");
                    let request = http::Request::get("http://h/peer").body(()).expect("valid");
                    let (answer, _) = client.send_request(request, true).expect("it is open");
                    let mut body = answer.await.expect("it answers").into_body();
                    let content = body.data().await.expect("content").expect("it is complete");
                    assert_eq!(content, "[2001:db8::7]:80");
                }
                driving.abort();
            });
        }
    }

    /// Purpose: nobody but a trusted proxy may say who it is: others are refused and counted, whatever they send.
    fn untrusted_peers_are_refused(transport) {
        let config = settings(transport, "127.0.0.1:0,proxy", "192.0.2.1,unix");
        let (server, metrics) = start(config);
        for (count, bytes) in [V1, GET.as_bytes(), b""].into_iter().enumerate() {
            let ended = end(server.address(), bytes);
            assert!(is_reset(&ended), "{ended:?}");
            assert_eq!(refused(&metrics, "untrusted_proxy"), count as u64 + 1);
        }
        assert_eq!(refused(&metrics, "proxy_header"), 0);
    }

    /// Purpose: what does not begin with a header is refused and counted, before it is taken for a request.
    fn malformed_headers_are_refused(transport) {
        let (server, metrics) = trusting(transport, "");
        let too_long = [b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat();
        let cases = [GET.as_bytes(), b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", &too_long];
        for (count, bytes) in cases.into_iter().enumerate() {
            let ended = end(server.address(), bytes);
            assert!(is_reset(&ended), "{ended:?}");
            assert_eq!(refused(&metrics, "proxy_header"), count as u64 + 1);
        }
        assert_eq!(refused(&metrics, "untrusted_proxy"), 0);
    }

    /// Purpose: a header that does not come in full holds a connection no longer than a request's head may.
    fn slow_headers_have_a_deadline(transport) {
        let mut config = settings(transport, "127.0.0.1:0,proxy", "127.0.0.1");
        config.limits.header_timeout = Duration::from_millis(200);
        let (server, metrics) = start(config);
        for bytes in [&V1[..V1.len() - 1], b""] {
            assert_eq!(end(server.address(), bytes).expect("it is closed, not reset"), b"");
        }
        let page = metrics.page();
        assert!(page.contains("http_timeouts_total{kind=\"header\"} 2"), "{page}");
    }

    /// Purpose: a proxy on a Unix socket names its clients, too.
    fn unix_sockets(transport) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("proxied.sock");
        let listen = format!("unix:{},proxy", path.display());
        let (_server, _metrics) = start(settings(transport, &listen, "unix"));
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        stream.write_all(&[V1, GET.as_bytes()].concat()).expect("it is open");
        assert_eq!(answer(&mut stream).content, "203.0.113.7:56324");
    }
}

/// Purpose: a listener for proxies does not start where no proxy is trusted, and says what to write.
#[test]
fn somebody_must_be_trusted() {
    let listen = "127.0.0.1:0,proxy".parse().expect("it is right");
    let config = ServerConfig { listen: vec![listen], ..served::config(TransportChoice::Epoll) };
    let refusal = Server::new(router()).config(config).start().expect_err("nobody is trusted");
    let text = refusal.to_string();
    assert!(text.contains("127.0.0.1:0,proxy") && text.contains("--trusted-proxies"), "{text}");
}
