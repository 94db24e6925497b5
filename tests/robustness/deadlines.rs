//! Slow clients: every deadline, with default settings. Real time is the subject here.
//!
//! All cases run at once, because nothing can shorten a wait of a minute.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, Process, get, within};
use highwater_tests::server::warm_up;
use socket2::SockRef;

use crate::Transport;

/// How far before its deadline an end may be seen: a worker looks at the time once in each turn, and the server's time begins
/// before the client's.
const EARLY_S: f64 = 1.0;

/// How far behind its deadline an end may be seen, on a machine that is busy: less than lies between two deadlines.
const LATE_S: f64 = 4.0;

/// Longer than any deadline there is.
const PATIENCE: Duration = Duration::from_secs(75);

/// Clients that never read, and what one may cost the server at most.
const NON_READERS: usize = 8;
const NON_READER_KIB_MAX: u64 = 256;

/// Is slow in one way, and says what came of it.
type Check = fn(&Process) -> String;

/// Purpose: by default no client can hold a connection by being slow: each way ends at its
/// deadline, with an answer if a request had begun. Clients that are slow but make progress are not
/// disconnected.
#[test]
fn by_default() {
    let servers: Vec<(Transport, Process)> =
        Transport::available().into_iter().map(|it| (it, it.serve(&[]))).collect();
    let checks: [(&str, Check); 11] = [
        ("head stalls", head_stalls),
        ("head at 1 B/s", head_drips),
        ("second head stalls", second_head_stalls),
        ("silence", silence),
        ("body at 1 B/s", body_drips),
        ("body stalls", body_stalls),
        ("chunked body stalls", chunked_body_stalls),
        ("streamed body stalls", streamed_body_stalls),
        ("idle", idle),
        ("slow reader", slow_reader),
        ("slow but steady body", steady_body),
    ];
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (transport, server) in &servers {
            for (name, check) in checks {
                let thread = scope.spawn(move || check(server));
                running.push((transport, name, thread));
            }
        }
        for (transport, name, thread) in running {
            let outcome = thread.join().unwrap_or_else(|_| panic!("{transport:?}, {name}: failed"));
            println!("{transport:?}, {name}: {outcome}");
        }
    });
}

/// Purpose: a client that never reads is reset when the write timeout has passed since it last
/// read, and its answer is not buffered, whether it is shared or generated while it is sent.
#[test]
fn never_reads() {
    thread::scope(|scope| {
        for transport in Transport::available() {
            for path in ["/content?bytes=50000000", "/pieces?bytes=50000000"] {
                scope.spawn(move || never_reads_over(transport, path));
            }
        }
    });
}

/// Purpose: no deadline waits for a longer one that was set before it: an idle connection ends at
/// its own timeout although the answer before it had more time, and a refused client that stays
/// connected is lingered for no longer than two seconds.
#[test]
fn shorter_than_the_write_timeout() {
    thread::scope(|scope| {
        for transport in Transport::available() {
            scope.spawn(move || {
                let server = transport.serve(&["--idle-timeout", "3s"]);
                let (mut idle, _) = connect(&server);
                assert_eq!(idle.get("/").status, 200);
                let begun = Instant::now();
                assert!(idle.is_closed_in_silence());
                let passed = check(begun, 3.0);
                println!("{transport:?}, idle with --idle-timeout 3s: {passed}");
                let (mut refused, _) = connect(&server);
                refused.send(b"GET / HTTP/9.9\r\n\r\n").expect("open");
                assert_eq!(refused.answer().status, 505);
                let begun = Instant::now();
                assert!(refused.is_closed_in_silence(), "it has said its last");
                let is_gone = || server.metric("http_connections_active") == 0.0;
                assert!(!is_gone(), "what is still on its way is read");
                assert!(within(PATIENCE, is_gone));
                let passed = check(begun, 2.0);
                println!("{transport:?}, lingering: {passed}");
            });
        }
    });
}

fn connect(server: &Process) -> (Client, Instant) {
    let client = server.connect();
    client.set_patience(PATIENCE);
    (client, Instant::now())
}

/// Checks that `seconds` have passed since `begun`.
fn check(begun: Instant, seconds: f64) -> String {
    let passed = begun.elapsed().as_secs_f64();
    let expected = seconds - EARLY_S..=seconds + LATE_S;
    assert!(expected.contains(&passed), "after {passed:.2} s instead of {seconds}");
    format!("{passed:.2} s")
}

fn hears_408(client: &mut Client, begun: Instant, seconds: f64) -> String {
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:?}");
    let outcome = check(begun, seconds);
    assert!(client.is_closed_in_silence());
    outcome
}

fn head_stalls(server: &Process) -> String {
    let (mut client, begun) = connect(server);
    client.send(b"GET / HTTP/1.1\r\nHost").expect("open");
    hears_408(&mut client, begun, 10.0)
}

fn head_drips(server: &Process) -> String {
    let (mut client, begun) = connect(server);
    client.set_patience(Duration::from_secs(1));
    for byte in get("/a-path-that-takes-longer") {
        client.send([byte]).expect("open");
        if client.read_more().is_ok() {
            break;
        }
    }
    hears_408(&mut client, begun, 10.0)
}

fn second_head_stalls(server: &Process) -> String {
    let (mut client, _) = connect(server);
    assert_eq!(client.get("/").status, 200);
    thread::sleep(Duration::from_secs(3));
    let begun = Instant::now();
    client.send(b"GET /").expect("open");
    hears_408(&mut client, begun, 10.0)
}

fn silence(server: &Process) -> String {
    let (mut client, begun) = connect(server);
    assert!(client.is_closed_in_silence(), "no request was sent, so no answer is expected");
    check(begun, 10.0)
}

fn body_drips(server: &Process) -> String {
    let (mut client, begun) = connect(server);
    client.set_patience(Duration::from_secs(1));
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n").expect("open");
    while begun.elapsed() < PATIENCE {
        client.send(b"x").expect("open");
        if client.read_more().is_ok() {
            break;
        }
    }
    hears_408(&mut client, begun, 5.0)
}

/// A body that came fast enough so far, but then no more of it.
fn stalls(server: &Process, head: &str, body: &[u8]) -> String {
    let (mut client, _) = connect(server);
    client.send(head.as_bytes()).expect("open");
    client.send(body).expect("open");
    let begun = Instant::now();
    hears_408(&mut client, begun, 30.0)
}

fn body_stalls(server: &Process) -> String {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    stalls(server, head, &[b'x'; 20_000])
}

fn chunked_body_stalls(server: &Process) -> String {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n";
    stalls(server, head, &[b'x'; 0x4000])
}

fn streamed_body_stalls(server: &Process) -> String {
    let head = "POST /stream HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    stalls(server, head, &[b'x'; 20_000])
}

fn idle(server: &Process) -> String {
    let (mut client, _) = connect(server);
    assert_eq!(client.get("/").status, 200);
    let begun = Instant::now();
    assert!(client.is_closed_in_silence());
    check(begun, 60.0)
}

/// 50 MB at 500 KB/s for longer than the write timeout: slow, but the kernel takes some all the time.
fn slow_reader(server: &Process) -> String {
    let mut client = Client::connect_small(server.address, 32 * 1024);
    client.send(get("/content?bytes=50000000")).expect("open");
    let begun = Instant::now();
    let mut received = 0;
    while begun.elapsed() < Duration::from_secs(40) {
        thread::sleep(Duration::from_millis(20));
        assert!(client.read_more().expect("it is served"), "cut off after {received} bytes");
        received = client.received().len();
    }
    format!("alive after {received} bytes")
}

/// 300 bytes per second are enough, for longer than the body timeout.
fn steady_body(server: &Process) -> String {
    let (mut client, _) = connect(server);
    let length = 35 * 300;
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    client.send(head.as_bytes()).expect("open");
    let begun = Instant::now();
    for second in 1..=35 {
        // Not a second more each: what a busy machine adds would add up.
        thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
        client.send([b'x'; 300]).expect("it is read");
    }
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, length));
    "answered".into()
}

fn never_reads_over(transport: Transport, path: &str) {
    let server = transport.serve(&["--write-timeout", "10s"]);
    warm_up(&server);
    // The first request makes the shared content.
    assert_eq!(server.get(path).body.len(), 50_000_000);
    let before = server.resident_kib();
    let mut clients = Vec::new();
    for _ in 0..NON_READERS {
        let client = Client::connect_small(server.address, 32 * 1024);
        client.stream().write_all(&get(path)).expect("open");
        clients.push(client);
    }
    let begun = Instant::now();
    thread::sleep(Duration::from_secs(5));
    let each = server.resident_kib().saturating_sub(before) / NON_READERS as u64;
    assert!(each <= NON_READER_KIB_MAX, "{transport:?} {path}: {each} KiB for each");
    for client in &clients {
        // An error pending on the socket: the reset, without reading anything.
        while SockRef::from(client.stream()).take_error().expect("an option").is_none() {
            assert!(begun.elapsed() < PATIENCE, "{transport:?} {path}: never reset");
            thread::sleep(Duration::from_millis(20));
        }
    }
    let passed = check(begun, 10.0);
    println!("{transport:?} {path}: {each} KiB each, reset after {passed}");
}
