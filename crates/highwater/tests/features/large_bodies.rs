//! Large bodies that are collected for their handlers, over real sockets: they arrive whole however they are cut, nothing
//! behind them is lost, and every bound on them holds. And large answers to clients that read slowly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use highwater::metrics::Metrics;
use highwater::server::TransportChoice;
use highwater::{Handler as _, Router, Running, Server, ServerConfig};
use highwater_testkit::{read_some, until_readable};
use socket2::{Domain, Socket, Type};

use crate::answers::{Answer, Answers};
use crate::served::{HANG, config};
use crate::transports::on_each_transport;

fn router() -> Router {
    let handler = |body: Bytes| summary(&body);
    let large = || Bytes::from(content(LARGE));
    Router::new().get("/", || "next").post("/", handler.body_max(8 << 20)).get("/large", large)
}

/// More than the kernel's buffers of both sides hold.
const LARGE: usize = 16 << 20;

/// How long a slow client may read nothing, and what it reads in a quarter of it. The kernel takes more for a client that has
/// read 400 to 600 KB, as measured; without a bound on what it holds, only for one that has read 1.3 MB.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
const SLOW_PIECE: usize = 240_000;

/// Reads for three times the timeout at a rate at which the kernel's send buffer would not be a third empty in time, then
/// the rest: all of the answer comes.
fn reads_slowly(client: &mut Client) {
    client.send(b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let mut received = 0;
    let mut piece = vec![0; SLOW_PIECE];
    for _ in 0..12 {
        let read = client.stream.read_exact(&mut piece);
        read.unwrap_or_else(|error| panic!("behind {received} bytes: {error}"));
        received += piece.len();
        thread::sleep(WRITE_TIMEOUT / 4);
    }
    let mut rest = Vec::new();
    received += client.stream.read_to_end(&mut rest).expect("it reads");
    assert!(received > LARGE && rest.ends_with(&content(LARGE)[LARGE - 1000..]), "{received}");
}

/// Tells contents apart, also those with the same bytes in another order.
fn sum(content: &[u8]) -> u64 {
    content.iter().fold(0, |sum: u64, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5)
    })
}

/// `len` bytes in which every offset can be told from its neighbours.
fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn head(len: usize) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n").into_bytes()
}

fn summary(content: &[u8]) -> String {
    format!("{} {:x}", content.len(), sum(content))
}

const NEXT: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// One connection.
struct Client {
    stream: TcpStream,
    answers: Answers,
    bytes: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect_timeout(&address, HANG).expect("it listens"))
    }

    /// A client whose kernel says early that it has room: if a receive buffer may grow to megabytes, that takes the
    /// reading of one.
    fn connect_small(address: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
        socket.set_recv_buffer_size(200_000).expect("a small buffer is granted");
        socket.connect(&address.into()).expect("it listens");
        Client::of(socket.into())
    }

    fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("it is open");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        stream.set_write_timeout(Some(HANG)).expect("it is open");
        Client { stream, answers: Answers::default(), bytes: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is open");
    }

    fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.answers.next(&mut self.bytes) {
                return answer;
            }
            let mut piece = [0; 4096];
            let len = read_some(&mut self.stream, &mut piece).expect("it is answered");
            assert!(len > 0, "it was closed without an answer");
            self.bytes.extend_from_slice(&piece[..len]);
        }
    }

    /// Closes with a reset: an answer is not read.
    fn reset(self) {
        until_readable(&self.stream).expect("it is answered");
    }
}

/// A server, and what it counts.
struct Served {
    running: Running,
    metrics: Metrics,
}

impl Served {
    fn start(config: ServerConfig) -> Served {
        let metrics = Metrics::new();
        let server = Server::new(router()).config(config).metrics(&metrics);
        Served { running: server.start().expect("it starts"), metrics }
    }

    fn connect(&self) -> Client {
        Client::connect(self.running.address())
    }

    /// Bytes of memory held for bodies.
    fn held(&self) -> u64 {
        let page = self.metrics.page();
        let mut lines = page.lines();
        let held = lines.find_map(|line| line.strip_prefix("http_body_memory_bytes "));
        held.expect("it is listed").parse().expect("a number")
    }

    /// Waits until `enough` says so of the bytes held for bodies.
    fn until_held(&self, enough: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        while !enough(self.held()) {
            assert!(begun.elapsed() < HANG, "{} bytes are held", self.held());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

on_each_transport! {
    /// Purpose: bodies of every length around the sizes of buffers arrive whole, on connections that have large bodies
    /// and small requests by turns; and the request right behind each is answered.
    fn every_length_with_a_request_behind(transport) {
        let served = Served::start(config(transport));
        let mut client = served.connect();
        let around = |size: usize| [size - 1, size, size + 1];
        let lengths = [1, 100_000, 3_000_007].into_iter().chain(around(4096)).chain(around(32 << 10));
        for len in lengths.chain(around(64 << 10)).chain([1 << 20, 5]) {
            for behind in [NEXT.len(), 3] {
                let body = content(len);
                let mut bytes = [&head(len)[..], &body, NEXT].concat();
                let rest = bytes.split_off(bytes.len() - NEXT.len() + behind);
                client.send(&bytes);
                let answer = client.answer();
                assert_eq!((answer.status, answer.content), (200, summary(&body)), "{len} bytes");
                client.send(&rest);
                assert_eq!(client.answer().content, "next", "behind {len} bytes");
            }
        }
    }

    /// Purpose: a client that reads slowly, but does read, gets all of its answer: what the kernel holds for it does not hide
    /// that it reads. One that does not read is cut.
    fn read_slowly(transport) {
        let mut config = config(transport);
        config.limits.write_timeout = WRITE_TIMEOUT;
        let served = Served::start(config);
        let mut idle = served.connect();
        idle.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
        reads_slowly(&mut Client::connect_small(served.running.address()));
        let mut received = Vec::new();
        let error = idle.stream.read_to_end(&mut received).expect_err("it is cut");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", received.len());
    }

    /// Purpose: wherever the network cuts a body, it arrives whole; also where the head is cut off, or waits for a 100.
    fn cut_anywhere(transport) {
        let served = Served::start(config(transport));
        let body = content(300_001);
        let cuts: [&[usize]; 4] = [&[1], &[4095, 4097, 1], &[33_000, 7], &[70_001, 3, 9000]];
        let mut client = served.connect();
        for (round, sizes) in cuts.into_iter().cycle().take(8).enumerate() {
            // On the connection of the round before, or on a new one.
            if round % 3 == 2 {
                client = served.connect();
            }
            let bytes = [&head(body.len())[..], &body, NEXT].concat();
            let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
            let mut pieces = 0;
            while !rest.is_empty() {
                // One byte at a time to begin with only.
                let size = sizes.next().copied().unwrap_or(1) + if pieces > 400 { 5000 } else { 0 };
                let (piece, behind) = rest.split_at(size.min(rest.len()));
                client.send(piece);
                rest = behind;
                pieces += 1;
                if pieces % 16 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            assert_eq!(client.answer().content, summary(&body), "round {round}");
            assert_eq!(client.answer().content, "next", "round {round}");
        }
    }

    /// Purpose: a client that stalls within a body is refused in time; one that goes on is not, however long it takes.
    fn a_stall_is_refused(transport) {
        let mut config = config(transport);
        config.limits.body_timeout = Duration::from_millis(700);
        let served = Served::start(config);
        let body = content(200_000);
        let mut slow = served.connect();
        slow.send(&head(body.len()));
        let begun = Instant::now();
        for piece in body.chunks(body.len() / 12 + 1) {
            slow.send(piece);
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(slow.answer().content, summary(&body));
        assert!(begun.elapsed() > Duration::from_millis(1000), "that was no slow client");

        for sent in [0, 1, 50_000, 199_999] {
            let mut client = served.connect();
            client.send(&head(body.len()));
            client.send(&body[..sent]);
            let begun = Instant::now();
            assert_eq!(client.answer().status, 408, "after {sent} bytes");
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
        served.until_held(|bytes| bytes == 0);
    }

    /// Purpose: clients that leave in the middle of bodies leave no memory behind, and nobody else notices.
    fn clients_that_leave(transport) {
        let served = Served::start(config(transport));
        let body = content(1 << 20);
        let sizes = [1, 4096, 30_000, 500_000, 1_000_000].into_iter().cycle();
        for (round, sent) in sizes.take(30).enumerate() {
            let mut client = served.connect();
            if round % 3 == 0 {
                client.send(NEXT);
            }
            client.send(&head(body.len()));
            client.send(&body[..sent]);
            match round % 3 {
                0 => client.reset(),
                1 => drop(client),
                _ => {
                    client.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
                    assert_eq!(client.answer().status, 400, "after {sent} bytes");
                }
            }
        }
        let mut client = served.connect();
        let body = content(3 << 20);
        client.send(&head(body.len()));
        client.send(&body);
        assert_eq!(client.answer().content, summary(&body));
        served.until_held(|bytes| bytes == 0);
    }

    /// Purpose: bodies take up no more memory than they may together: one beyond that is refused, and its client gets the
    /// answer although it goes on sending.
    fn memory_is_bounded(transport) {
        let config = ServerConfig { body_memory_max: Some(2 << 20), ..config(transport) };
        let served = Served::start(config);
        let body = content(1 << 20);
        let mut first = served.connect();
        first.send(&head(body.len()));
        first.send(&body[..1_000_000]);
        served.until_held(|bytes| bytes >= 1_000_000);
        assert!(served.held() <= 1 << 20, "{} bytes for one of 1 MiB", served.held());
        let mut second = served.connect();
        second.send(&head(body.len() * 2));
        // Not more than is dropped behind a refusal, or a reset would overtake the answer.
        second.stream.set_read_timeout(Some(Duration::from_millis(1))).expect("it is open");
        let rest = content(3 << 19);
        let mut pieces = rest.chunks(16 << 10);
        while second.stream.peek(&mut [0]).is_err() {
            second.send(pieces.next().expect("it is refused before it exceeds the memory"));
        }
        second.stream.set_read_timeout(Some(HANG)).expect("it is open");
        assert_eq!(second.answer().status, 503);
        first.send(&body[1_000_000..]);
        assert_eq!(first.answer().content, summary(&body));
        drop(second);
        served.until_held(|bytes| bytes == 0);
    }

    /// Purpose: a server that stops in the middle of a body takes the rest of it, and answers.
    fn a_stop_in_the_middle(transport) {
        let mut served = Served::start(config(transport));
        let body = content(900_000);
        let mut client = served.connect();
        client.send(&head(body.len()));
        client.send(&body[..400_000]);
        served.until_held(|bytes| bytes >= 400_000);
        let stopping = thread::spawn(move || served.running.stop());
        thread::sleep(Duration::from_millis(50));
        client.send(&body[400_000..]);
        let answer = client.answer();
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!((answer.status, answer.content), (200, summary(&body)));
        stopping.join().expect("no panic").expect("it drains");
    }
}
