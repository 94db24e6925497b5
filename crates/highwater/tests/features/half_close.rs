//! Upgraded connections end one side at a time: over TCP, Unix sockets, TLS and streams of HTTP/2, on each transport.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use h2::Reason;
use highwater::http::HeaderValue;
use highwater::metrics::Metrics;
use highwater::server::TransportChoice;
use highwater::{
    Limits, Path, Response, Router, Running, Server, ServerConfig, Upgraded, WebSocketUpgrade,
};
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::secured::{self, Authority, Secured};
use crate::served::{HANG, config};
use crate::transports::on_each_transport;
use crate::tunnel::with_client;

/// More than all buffers between the two sides hold.
const LARGE: usize = 3_000_000;

/// What the application has read until the end, or why it could not.
type Outcome = Result<usize, ErrorKind>;

/// A connection that can end its sending side.
trait Wire: Read + Write {
    fn finish(&mut self) -> io::Result<()>;
}

impl Wire for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Wire for UnixStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// TLS ends by its closing message: the socket below stays open.
struct Tls(Secured);

impl Read for Tls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.0.tls, &mut self.0.stream).read(into)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.0.tls, &mut self.0.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        rustls::Stream::new(&mut self.0.tls, &mut self.0.stream).flush()
    }
}

impl Wire for Tls {
    fn finish(&mut self) -> io::Result<()> {
        self.0.tls.send_close_notify();
        self.flush()
    }
}

/// A server on sockets of three kinds, what its application tells, and what ends with the connections.
struct Served {
    running: Running,
    metrics: Metrics,
    authority: Authority,
    outcome: Receiver<Outcome>,
    folder: TempDir,
}

impl Served {
    fn start(transport: TransportChoice, limits: Limits) -> Self {
        let folder = TempDir::new().expect("there is room");
        let unix = format!("unix:{}", folder.path().join("socket").display());
        let listen = ["127.0.0.1:0", "127.0.0.1:0,tls", &unix];
        let listen = listen.map(|text| text.parse().expect("it is right")).to_vec();
        let (authority, metrics) = (Authority::new("our authority"), Metrics::new());
        let (sender, outcome) = mpsc::channel();
        let running = Server::new(router(sender))
            .tls(authority.issue(&["localhost"]).tls())
            .config(ServerConfig { listen, limits, ..config(transport) })
            .metrics(&metrics)
            .start()
            .expect("it starts");
        Served { running, metrics, authority, outcome, folder }
    }

    /// A connection of each kind, of which the application has `path`.
    fn each(&self, path: &str, work: impl Fn(&str, &mut dyn Wire)) {
        let address = |at: usize| self.running.addresses()[at].tcp().expect("it is TCP");
        let mut tcp = TcpStream::connect(address(0)).expect("it listens");
        tcp.set_read_timeout(Some(HANG)).expect("it is open");
        let mut unix = UnixStream::connect(self.folder.path().join("socket")).expect("it listens");
        unix.set_read_timeout(Some(HANG)).expect("it is open");
        let tls = [&TLS12, &TLS13].map(|version| {
            let client = secured::Client { versions: vec![version], ..self.authority.client() };
            Tls(client.connect(address(1), "localhost").expect("it serves"))
        });
        let [mut old, mut new] = tls;
        let wires: [(&str, &mut dyn Wire); 4] =
            [("TCP", &mut tcp), ("Unix", &mut unix), ("TLS 1.2", &mut old), ("TLS 1.3", &mut new)];
        for (name, wire) in wires {
            upgrade(wire, path);
            work(name, wire);
        }
    }

    fn outcome(&self) -> Outcome {
        self.outcome.recv_timeout(HANG).expect("the application tells something")
    }

    /// The same, where the client runs on this thread.
    async fn outcome_async(&self) -> Outcome {
        loop {
            match self.outcome.try_recv() {
                Ok(outcome) => return outcome,
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    fn value(&self, sample: &str) -> u64 {
        let page = self.metrics.page();
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().expect("a whole number")
    }

    fn eventually_none_is_open(&self) {
        let begun = Instant::now();
        while self.value("http_connections_active") != 0 {
            assert!(begun.elapsed() < HANG, "a connection is still open");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Asks for an upgrade, and reads the head of the answer.
fn upgrade(wire: &mut dyn Wire, path: &str) {
    let fields = "Host: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    wire.write_all(format!("GET {path} HTTP/1.1\r\n{fields}\r\n").as_bytes()).expect("it is open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        wire.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
}

fn router(sender: Sender<Outcome>) -> Router {
    let (first, second, third) = (sender.clone(), sender.clone(), sender.clone());
    Router::new()
        .get("/cut-off", move || answer(third.clone(), is_cut_off))
        .get("/ends-first/{size}", move |Path(size): Path<usize>, _: Option<WebSocketUpgrade>| {
            answer(first.clone(), move |upgraded, sender| ends_first(upgraded, sender, size))
        })
        .get("/ends-second/{size}", move |Path(size): Path<usize>, _: Option<WebSocketUpgrade>| {
            answer(second.clone(), move |upgraded, sender| ends_second(upgraded, sender, size))
        })
        .get("/leaves/{size}", move |Path(size): Path<usize>| {
            answer(sender.clone(), move |upgraded, sender| leaves(upgraded, sender, size))
        })
}

fn answer<Fut: Future<Output = ()> + 'static>(
    sender: Sender<Outcome>,
    talk: impl FnOnce(Upgraded, Sender<Outcome>) -> Fut + Send + 'static,
) -> Response {
    Response::upgrade(HeaderValue::from_static("websocket"), move |upgraded| talk(upgraded, sender))
}

/// Writes all that it has to say, ends its side, and reads on. Then it still has something to do.
async fn ends_first(mut upgraded: Upgraded, sender: Sender<Outcome>, size: usize) {
    upgraded.write_all(&vec![b'a'; size]).await.expect("the peer reads");
    upgraded.shutdown().await.expect("it is open");
    let outcome = read_all(&mut upgraded).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _ = sender.send(outcome);
}

/// Reads until the peer has ended its side, waits, and writes.
async fn ends_second(mut upgraded: Upgraded, sender: Sender<Outcome>, size: usize) {
    let outcome = read_all(&mut upgraded).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    upgraded.write_all(&vec![b'a'; size]).await.expect("the peer reads");
    upgraded.shutdown().await.expect("it is open");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _ = sender.send(outcome);
}

/// Writes all that it has to say, and is done.
async fn leaves(mut upgraded: Upgraded, sender: Sender<Outcome>, size: usize) {
    upgraded.write_all(&vec![b'a'; size]).await.expect("the peer reads");
    upgraded.shutdown().await.expect("it is open");
    let _ = sender.send(Ok(0));
}

/// Reads until the peer is cut off, and says how much came.
async fn is_cut_off(mut upgraded: Upgraded, sender: Sender<Outcome>) {
    let mut all = Vec::new();
    let outcome = upgraded.read_to_end(&mut all).await;
    upgraded.write_all(&vec![b'a'; all.len()]).await.expect("the peer reads");
    upgraded.shutdown().await.expect("it is open");
    let _ = sender.send(outcome.map_err(|error| error.kind()));
}

async fn read_all(upgraded: &mut Upgraded) -> Outcome {
    let mut piece = vec![0; 10_000];
    let mut count = 0;
    loop {
        match upgraded.read(&mut piece).await {
            Ok(0) => return Ok(count),
            Ok(len) => count += len,
            Err(error) => return Err(error.kind()),
        }
    }
}

/// Reads to the end of what the server sends.
fn received(wire: &mut dyn Wire) -> usize {
    let mut all = Vec::new();
    wire.read_to_end(&mut all).expect("an orderly end");
    assert!(all.iter().all(|&byte| byte == b'a'));
    all.len()
}

on_each_transport! {
    /// Purpose: over TLS, an end that the peer does not announce with `close_notify` may be anybody's (RFC 8446 §6.1): the
    /// application reads what came before, and then an error, and may still answer. Once, it read an orderly end.
    fn an_end_that_is_not_announced(transport) {
        let served = Served::start(transport, Limits::default());
        for size in [0, 5, LARGE] {
            for version in [&TLS12, &TLS13] {
                let client = secured::Client { versions: vec![version], ..served.authority.client() };
                let address = served.running.addresses()[1].tcp().expect("it is TCP");
                let mut wire = Tls(client.connect(address, "localhost").expect("it serves"));
                upgrade(&mut wire, "/cut-off");
                wire.write_all(&vec![b'b'; size]).expect("it is open");
                wire.0.stream.shutdown(Shutdown::Write).expect("it is open");
                assert_eq!(received(&mut wire), size, "it may answer");
                assert_eq!(served.outcome(), Err(ErrorKind::UnexpectedEof));
            }
        }
        served.eventually_none_is_open();
        assert_eq!(served.value("http_timeouts_total{kind=\"half_closed\"}"), 0);
    }

    /// Purpose: when the application ends its side, the peer gets all that was written before it, and then the end; what the
    /// peer sends after that reaches the application, up to its end.
    fn the_application_ends_first(transport) {
        let served = Served::start(transport, Limits::default());
        for size in [0, 5, LARGE] {
            served.each(&format!("/ends-first/{size}"), |name, wire| {
                assert_eq!(received(wire), size, "{name}");
                thread::sleep(Duration::from_millis(20));
                for _ in 0..3 {
                    wire.write_all(&vec![b'b'; LARGE / 3]).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                wire.finish().expect("it is open");
                assert_eq!(served.outcome(), Ok(LARGE), "{name}");
            });
        }
        served.eventually_none_is_open();
        assert_eq!(served.value("http_timeouts_total{kind=\"half_closed\"}"), 0);
    }

    /// Purpose: when the peer ends its side, the application reads all that came before, and then the end; what it writes
    /// after that reaches the peer, and then the end.
    fn the_peer_ends_first(transport) {
        let served = Served::start(transport, Limits::default());
        for size in [0, 5, LARGE] {
            served.each(&format!("/ends-second/{size}"), |name, wire| {
                wire.write_all(&vec![b'b'; LARGE]).expect("it is open");
                wire.finish().expect("it is open");
                assert_eq!(received(wire), size, "{name}");
                assert_eq!(served.outcome(), Ok(LARGE), "{name}");
            });
        }
        served.eventually_none_is_open();
        assert_eq!(served.value("http_timeouts_total{kind=\"half_closed\"}"), 0);
    }

    /// Purpose: an application that has said all and is gone leaves nothing unsent, although its peer ends its own side
    /// before it has read everything. Once, what was not encoded by then was lost.
    fn what_was_written_is_sent(transport) {
        let served = Served::start(transport, Limits::default());
        served.each(&format!("/leaves/{LARGE}"), |name, wire| {
            let mut count = 0;
            while served.outcome.try_recv().is_err() {
                wire.read_exact(&mut [0; 1000]).expect("it is open");
                count += 1000;
            }
            wire.finish().expect("it is open");
            thread::sleep(Duration::from_millis(50));
            assert_eq!(count + received(wire), LARGE, "{name}");
        });
        served.eventually_none_is_open();
    }

    /// Purpose: a connection of which one side has ended lasts while something moves, and no longer than the bound after that.
    fn half_closed_is_bounded(transport) {
        // A busy machine may keep this thread or the server's from running for some tenths of a second.
        let half_closed_timeout = Duration::from_secs(1);
        let served = Served::start(transport, Limits { half_closed_timeout, ..Limits::default() });
        served.each("/ends-first/5", |name, wire| {
            assert_eq!(received(wire), 5, "{name}");
            for _ in 0..6 {
                thread::sleep(half_closed_timeout / 5);
                wire.write_all(b"b").unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            wire.finish().expect("it is open");
            assert_eq!(served.outcome(), Ok(6), "{name}");
        });
        served.eventually_none_is_open();
        let ends = "http_timeouts_total{kind=\"half_closed\"}";
        assert_eq!(served.value(ends), 0);
        let begun = Instant::now();
        served.each("/ends-first/5", |name, wire| {
            assert_eq!(received(wire), 5, "{name}");
            let before = served.value(ends);
            while served.value(ends) == before {
                assert!(begun.elapsed() < HANG, "{name}: it lasts");
                thread::sleep(Duration::from_millis(2));
            }
        });
        served.eventually_none_is_open();
        assert!(begun.elapsed() >= half_closed_timeout);
        assert_eq!(served.value(ends), 4);
        assert_eq!(served.outcome.try_recv().ok(), None, "all were dropped");
    }

    /// Purpose: on a stream of HTTP/2, END_STREAM is the end of one side, and the other goes on, in either order.
    fn over_http2(transport) {
        let served = Served::start(transport, Limits::default());
        with_client(served.running.address(), async |client| {
            for size in [0, 5, LARGE] {
                let mut socket = open(&client, &format!("/ends-first/{size}")).await;
                assert_eq!(receive(&mut socket).await, Ok(size));
                tokio::time::sleep(Duration::from_millis(20)).await;
                socket.send(vec![b'b'; LARGE]).await;
                socket.end();
                assert_eq!(served.outcome_async().await, Ok(LARGE));

                let mut socket = open(&client, &format!("/ends-second/{size}")).await;
                socket.send(vec![b'b'; LARGE]).await;
                socket.end();
                assert_eq!(receive(&mut socket).await, Ok(size));
                assert_eq!(served.outcome_async().await, Ok(LARGE));
            }
        });
        served.eventually_none_is_open();
        assert_eq!(served.value("http_timeouts_total{kind=\"half_closed\"}"), 0);
    }

    /// Purpose: a stream of which one side has ended is bounded as a connection is, and reset without its connection.
    fn half_closed_streams_are_bounded(transport) {
        let half_closed_timeout = Duration::from_millis(300);
        let served = Served::start(transport, Limits { half_closed_timeout, ..Limits::default() });
        with_client(served.running.address(), async |client| {
            let mut socket = open(&client, "/ends-first/5").await;
            assert_eq!(receive(&mut socket).await, Ok(5));
            for _ in 0..6 {
                tokio::time::sleep(half_closed_timeout / 3).await;
                socket.send(b"b".to_vec()).await;
            }
            let reset = poll_fn(|context| socket.sender.poll_reset(context)).await;
            assert_eq!(reset.expect("a reset"), Reason::CANCEL);
            let mut socket = open(&client, "/ends-first/5").await;
            assert_eq!(receive(&mut socket).await, Ok(5));
            socket.end();
            assert_eq!(served.outcome_async().await, Ok(0));
        });
        assert_eq!(served.value("http_timeouts_total{kind=\"half_closed\"}"), 1);
    }
}

async fn open(client: &crate::tunnel::Client, path: &str) -> crate::tunnel::Socket {
    client.connect(path, &[]).await.expect("it opens a tunnel")
}

/// Reads to the end of what the server sends on a stream, or until it resets it.
async fn receive(socket: &mut crate::tunnel::Socket) -> Result<usize, Reason> {
    let mut count = 0;
    while let Some(piece) = socket.receiver.data().await {
        let piece = piece.map_err(|error| error.reason().expect("a reset"))?;
        socket.receiver.flow_control().release_capacity(piece.len()).expect("it came");
        count += piece.len();
    }
    Ok(count)
}
