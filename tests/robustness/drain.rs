//! Stopping: the effect of a stop signal on connected clients.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, get};

use crate::{Transport, on_each_transport};

on_each_transport!(
    no_answer_is_lost,
    every_client_is_answered,
    hung_handlers_are_cut,
    a_second_signal_ends_the_drain,
    endless_streams_are_cut,
    endless_streams_are_told,
    quit_does_not_wait,
    idle_servers_end,
);

/// No step takes this long unless something hangs. Drain timeouts that must not be waited for are longer.
const HANG: Duration = Duration::from_secs(20);

/// How long a draining server leaves an idle connection open.
const IDLE: Duration = Duration::from_millis(250);

/// Purpose: SIGTERM under load loses no answer: every accepted request is answered in full.
fn no_answer_is_lost(transport: Transport) {
    for signal in ["TERM", "INT"] {
        let mut server = transport.serve(&[]);
        let address = server.address;
        let (answered, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let stopping = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| keep_alive(address, &answered, &lost));
            }
            for _ in 0..4 {
                scope.spawn(|| one_each(address, &answered, &lost, &stopping));
            }
            let begun = Instant::now();
            while answered.load(Relaxed) < 500 && begun.elapsed() < HANG {
                thread::sleep(Duration::from_millis(10));
            }
            let before = answered.load(Relaxed);
            assert!(before > 100, "there is load: {before}");
            stopping.store(true, Relaxed);
            server.signal(signal);
            let begun = Instant::now();
            let status = server.ends_within(HANG).expect("it ends");
            assert_eq!(status.code(), Some(0), "{}", server.log());
            println!("{transport:?}: SIG{signal}: ended after {:?}", begun.elapsed());
        });
        println!("{transport:?}: {} answered, {} lost", answered.load(Relaxed), lost.load(Relaxed));
        assert_eq!(lost.load(Relaxed), 0);
    }
}

/// Asks until the server closes between two requests. A request that was sent, and whose connection
/// then ended without an answer, counts as lost unless the server had said it would close, or the request
/// came so late that the server may take the connection for idle and close it (RFC 9112 §9.5): on a busy
/// machine, this thread may not run for that long.
fn keep_alive(address: std::net::SocketAddr, answered: &AtomicU64, lost: &AtomicU64) {
    let mut client = Client::connect(address);
    let mut quiet_since = Instant::now();
    loop {
        let sent = client.send(get("/"));
        let is_late = quiet_since.elapsed() > IDLE / 2;
        if sent.is_err() {
            lost.fetch_add(u64::from(!is_late), Relaxed);
            return;
        }
        match client.try_answer() {
            Ok(Some(answer)) => {
                assert_eq!((answer.status, answer.text()), (200, "OK"));
                answered.fetch_add(1, Relaxed);
                quiet_since = Instant::now();
                if answer.header("connection") == Some("close") {
                    assert!(client.is_closed_in_silence());
                    return;
                }
            }
            Ok(None) | Err(_) => {
                lost.fetch_add(u64::from(!is_late), Relaxed);
                return;
            }
        }
    }
}

/// Sends requests on ever new connections until they are refused. A connection that is in the
/// listen queue, or still in its handshake, when the kernel closes the listener is reset: the
/// server has not accepted it, and a server cannot tell the kernel to finish first.
fn one_each(
    address: std::net::SocketAddr,
    answered: &AtomicU64,
    lost: &AtomicU64,
    stopping: &AtomicBool,
) {
    loop {
        let mut client = match Client::try_connect(address) {
            Ok(client) => client,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset));
                assert!(stopping.load(Relaxed), "refused while it serves");
                return;
            }
        };
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let outcome = client.send(request).and_then(|()| client.try_answer());
        match outcome {
            Ok(Some(answer)) if answer.status == 200 => answered.fetch_add(1, Relaxed),
            Err(error) if error.kind() == ErrorKind::ConnectionReset && stopping.load(Relaxed) => {
                return;
            }
            _ => lost.fetch_add(1, Relaxed),
        };
        client.reset(); // No TIME_WAIT: there are more connections than ports.
    }
}

/// Purpose: after SIGTERM the listener is closed at once, and idle connections are closed before
/// the server waits for slow handlers of every kind.
fn every_client_is_answered(transport: Transport) {
    /// The slow handlers take six seconds.
    const BEFORE_SLOW: Duration = Duration::from_millis(5500);
    let mut server = transport.serve(&["--drain-timeout", "60s"]);
    let mut idle = server.connect();
    assert_eq!(idle.get("/").status, 200);
    let mut silent = server.connect();
    let mut slow: Vec<Client> = ["/wait?ms=6000", "/block?ms=6000", "/pieces?bytes=20000000"]
        .iter()
        .map(|path| {
            let mut client = Client::connect_small(server.address, 32 * 1024);
            client.send(get(path)).expect("open");
            client
        })
        .collect();
    let mut uploading = server.connect();
    uploading.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello").expect("open");
    // All of them are in when this is answered.
    assert_eq!(server.get("/").status, 200);
    server.signal("TERM");
    let begun = Instant::now();
    let mut refused = None;
    while refused.is_none() {
        match Client::try_connect(server.address) {
            Err(_) => refused = Some(begun.elapsed()),
            Ok(_) => assert!(begun.elapsed() < BEFORE_SLOW, "it still listens"),
        }
    }
    assert!(idle.is_closed_in_silence());
    let idle_closed = begun.elapsed();
    assert!(silent.is_closed_in_silence());
    assert!(begun.elapsed() < BEFORE_SLOW, "closed after {:?}", begun.elapsed());
    uploading.send(b"world").expect("it is still read");
    let answer = uploading.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("helloworld", Some("close")));
    for client in &mut slow {
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() == 20_000_000 || answer.body.ends_with(b"ed 6000"));
        assert!(client.is_closed_in_silence());
    }
    let status = server.ends_within(HANG).expect("it ends when all are served");
    assert_eq!(status.code(), Some(0));
    println!(
        "{transport:?}: refused after {:?}, idle closed after {idle_closed:?}, ended after {:?}",
        refused.unwrap_or_default(),
        begun.elapsed()
    );
}

/// Purpose: connections still open at the drain timeout are cut; the process still ends with 0.
fn hung_handlers_are_cut(transport: Transport) {
    let mut server = transport.serve(&["--drain-timeout", "2s"]);
    let mut hung: Vec<Client> = ["/wait?ms=60000", "/block?ms=60000", "/wait-detached?ms=60000"]
        .iter()
        .map(|path| {
            let mut client = server.connect();
            client.send(get(path)).expect("open");
            client
        })
        .collect();
    let mut never_reads = Client::connect_small(server.address, 32 * 1024);
    never_reads.send(get("/content?bytes=50000000")).expect("open");
    assert_eq!(server.get("/").status, 200);
    server.signal("TERM");
    let begun = Instant::now();
    let status = server.ends_within(HANG).expect("it ends");
    let passed = begun.elapsed().as_secs_f64();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(passed >= 1.9, "ended after {passed} s");
    for client in &mut hung {
        assert!(client.try_answer().is_err(), "a cut is no orderly end");
    }
    println!("{transport:?}: hung handlers cut, ended after {passed:.2} s");
}

/// A client that listens to an answer without an end.
fn listener(server: &highwater_testkit::Process) -> Client {
    let mut client = server.connect();
    client.send(get("/endless")).expect("open");
    assert!(client.read_more().expect("the answer has begun"));
    client
}

/// Purpose: a second signal ends a drain at once; the process still ends with 0.
fn a_second_signal_ends_the_drain(transport: Transport) {
    for second in ["TERM", "INT", "QUIT"] {
        let mut server = transport.serve(&["--drain-timeout", "30s"]);
        let mut stream = listener(&server);
        let mut waiting = server.connect();
        waiting.send(get("/wait?ms=60000")).expect("open");
        assert_eq!(server.get("/").status, 200);
        server.signal("TERM");
        assert!(server.ends_within(Duration::from_millis(500)).is_none(), "it drains");
        assert!(stream.read_more().expect("it goes on while the server drains"));
        let begun = Instant::now();
        server.signal(second);
        let status = server.ends_within(HANG).expect("it ends");
        let passed = begun.elapsed();
        assert_eq!(status.code(), Some(0), "{}", server.log());
        println!("{transport:?}: second signal SIG{second}: ended after {passed:?}");
    }
}

/// Purpose: an endless answer does not keep a server from ending: it is cut at the drain timeout,
/// and the process ends with 0.
fn endless_streams_are_cut(transport: Transport) {
    let mut server = transport.serve(&["--drain-timeout", "1s"]);
    let mut streams: Vec<Client> = (0..10).map(|_| listener(&server)).collect();
    let begun = Instant::now();
    server.signal("TERM");
    let status = server.ends_within(HANG).expect("it ends");
    let passed = begun.elapsed().as_secs_f64();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(passed >= 0.9, "ended after {passed} s");
    for stream in &mut streams {
        assert!(stream.try_answer().is_err(), "what was cut off is not taken for whole");
    }
}

/// Purpose: an endless answer whose handler asks whether the server drains ends cleanly, and so
/// does the server, long before the drain timeout.
fn endless_streams_are_told(transport: Transport) {
    let mut server = transport.serve(&["--drain-timeout", "30s"]);
    let mut streams: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = server.connect();
            client.send(get("/endless-polite")).expect("open");
            while !client.received().ends_with(b"still here\n\r\n") {
                assert!(client.read_more().expect("the answer begins"));
            }
            client
        })
        .collect();
    server.signal("TERM");
    for stream in &mut streams {
        assert_eq!(stream.answer().text(), "still here\n");
    }
    let status = server.ends_within(HANG).expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", server.log());
}

/// Purpose: SIGQUIT waits for a hung handler far shorter than the drain timeout; the process ends with 0.
fn quit_does_not_wait(transport: Transport) {
    let mut server = transport.serve(&["--drain-timeout", "10m"]);
    let mut waiting = server.connect();
    waiting.send(get("/wait?ms=600000")).expect("open");
    assert_eq!(server.get("/").status, 200);
    server.signal("QUIT");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

/// Purpose: a server without clients, or with only idle connections, ends long before the drain timeout: it does not wait for
/// connections that it owes no answer.
fn idle_servers_end(transport: Transport) {
    for count in [0, 10] {
        let mut server = transport.serve(&["--drain-timeout", "10m"]);
        let clients: Vec<Client> = (0..count)
            .map(|_| {
                let mut client = server.connect();
                assert_eq!(client.get("/").status, 200);
                client
            })
            .collect();
        let begun = Instant::now();
        server.signal("TERM");
        let status = server.ends_within(HANG).expect("it ends");
        let passed = begun.elapsed();
        assert_eq!(status.code(), Some(0));
        println!("{transport:?}: {count} idle connections, ended after {passed:?}");
        drop(clients);
    }
}
