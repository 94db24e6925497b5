//! A limit for the connections of each client, over real sockets: who is counted, when, and what becomes of a connection
//! too many.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use highwater::metrics::Metrics;
use highwater::server::TransportChoice;
use highwater::{Router, Running, Server, ServerConfig};
use highwater_testkit::read_some;

use crate::answers::{Answer, Answers};
use crate::served::{self, HANG};
use crate::transports::on_each_transport;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn settings(transport: TransportChoice, listen: &str, trusted: &str) -> ServerConfig {
    ServerConfig {
        listen: vec![listen.parse().expect("it is right")],
        trusted_proxies: trusted.parse().unwrap_or_default(),
        connections_per_client: Some(2),
        workers: NonZero::new(2),
        ..served::config(transport)
    }
}

fn start(config: ServerConfig) -> (Running, Metrics) {
    let metrics = Metrics::new();
    let router = Router::new().get("/", || "Hello");
    let server = Server::new(router).config(config).metrics(&metrics);
    (server.start().expect("it starts"), metrics)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream
}

/// Sends `bytes`, and returns the answer; `None` if the connection is reset or closed instead.
fn ask(stream: &mut (impl Read + Write), bytes: &[u8]) -> Option<Answer> {
    let (mut answers, mut received) = (Answers::default(), Vec::new());
    let ended = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
        )
    };
    match stream.write_all(bytes) {
        Err(error) if ended(&error) => return None,
        sent => sent.expect("it is open"),
    }
    loop {
        if let Some(answer) = answers.next(&mut received) {
            return Some(answer);
        }
        let mut piece = [0; 4096];
        match read_some(stream, &mut piece) {
            Err(error) if ended(&error) => return None,
            read => match read.expect("it does not hang") {
                0 => return None,
                length => received.extend_from_slice(&piece[..length]),
            },
        }
    }
}

fn is_served(stream: &mut (impl Read + Write), bytes: &[u8]) -> bool {
    ask(stream, bytes).is_some_and(|answer| answer.content == "Hello")
}

/// Whether a new connection is served. One that is reset may notice before it has sent anything.
fn comes_in(address: SocketAddr) -> bool {
    match TcpStream::connect_timeout(&address, HANG) {
        Ok(mut stream) => {
            // A socket that was reset meanwhile takes no settings.
            let _ = stream.set_read_timeout(Some(HANG));
            is_served(&mut stream, GET)
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            false
        }
    }
}

fn refused(metrics: &Metrics) -> u64 {
    let page = metrics.page();
    let sample = "http_rejections_total{layer=\"accept\",reason=\"client_connections\"} ";
    let line = page.lines().find_map(|line| line.strip_prefix(sample)).expect("it is there");
    line.parse().expect("a number")
}

on_each_transport! {
    /// Purpose: a client has its number of connections, on whichever workers they are, and no more; one that ends makes
    /// room for another.
    fn a_number_for_each_client(transport) {
        let (mut server, metrics) = start(settings(transport, "127.0.0.1:0", ""));
        let mut open = [connect(server.address()), connect(server.address())];
        assert!(open.iter_mut().all(|stream| is_served(stream, GET)));
        for _ in 0..10 {
            assert!(!comes_in(server.address()));
        }
        assert_eq!(refused(&metrics), 10);
        assert!(open.iter_mut().all(|stream| is_served(stream, GET)), "those that are there go on");
        let [first, mut second] = open;
        drop(first);
        let begun = Instant::now();
        while !comes_in(server.address()) {
            assert!(begun.elapsed() < HANG, "no room is made");
        }
        assert!(is_served(&mut second, GET));
        drop(second);
        server.stop().expect("nothing failed");
    }

    /// Purpose: nobody is counted who brings the connections of others, nor is anybody without the setting.
    fn who_is_not_counted(transport) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let many = |address: SocketAddr| {
            let mut open = [0; 5].map(|_| connect(address));
            open.iter_mut().all(|stream| is_served(stream, GET))
        };
        let (server, metrics) = start(settings(transport, "127.0.0.1:0", "127.0.0.0/8"));
        assert!(many(server.address()), "trusted proxies");
        assert_eq!(refused(&metrics), 0);
        let (_server, _) = start(settings(transport, &format!("unix:{}", path.display()), ""));
        let mut open = [0; 5].map(|_| UnixStream::connect(&path).expect("it listens"));
        assert!(open.iter_mut().all(|stream| is_served(stream, GET)), "a Unix socket");
        let config = settings(transport, "127.0.0.1:0", "");
        let (server, _) = start(ServerConfig { connections_per_client: None, ..config });
        assert!(many(server.address()), "off");
    }

    /// Purpose: behind a header of the PROXY protocol the client that it names is counted, and not the proxy.
    fn clients_behind_a_header(transport) {
        let (server, metrics) = start(settings(transport, "127.0.0.1:0,proxy", "127.0.0.0/8"));
        let mut open = Vec::new();
        let mut come = |client: &str| {
            let header = format!("PROXY TCP4 {client} 192.0.2.1 56324 80\r\n");
            let mut stream = connect(server.address());
            let served = is_served(&mut stream, &[header.as_bytes(), GET].concat());
            open.push(stream);
            served
        };
        let first = ["203.0.113.7", "203.0.113.7", "203.0.113.7", "203.0.113.7"].map(&mut come);
        assert_eq!(first, [true, true, false, false]);
        assert_eq!(["203.0.113.8", "203.0.113.8", "203.0.113.8"].map(&mut come), [true, true, false]);
        assert_eq!(refused(&metrics), 3);
        let mut local = connect(server.address());
        assert!(is_served(&mut local, &[b"PROXY UNKNOWN\r\n", GET].concat()), "the proxy itself");
    }
}
