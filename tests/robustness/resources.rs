//! Cost: what clients may do to the server's descriptors, memory and CPU.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, PATIENCE, Process, get, within};
use highwater_tests::server::warm_up;

use crate::{Transport, on_each_transport};

on_each_transport!(
    resets_leave_nothing_behind,
    out_of_descriptors,
    stops_without_descriptors,
    streams_without_descriptors_are_reset,
    idle_connections_are_small,
    pipelined_requests_are_bounded,
    half_closed_connections_are_answered,
    slow_handlers_push_back,
);

/// Purpose: 2 000 resets, within a request, within an answer and while a handler waits, leave no
/// descriptor, no connection and no memory behind.
fn resets_leave_nothing_behind(transport: Transport) {
    const RESETS: usize = 2_000;
    let server = transport.serve(&[]);
    let is_quiet = || {
        // The connection that asks for metrics is on another port.
        within(PATIENCE, || server.metric("http_connections_active") == 0.0)
    };
    let strike = |count: usize| {
        for round in 0..count {
            let mut client = Client::connect_small(server.address, 32 * 1024);
            let bytes = match round % 5 {
                0 => b"GET / HTTP/1.1\r\nHos".to_vec(),
                1 => b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\nhello".to_vec(),
                2 => get("/content?bytes=10000000"),
                3 => get("/pieces?bytes=10000000"),
                _ => get("/wait?ms=60000"),
            };
            client.send(&bytes).expect("open");
            if matches!(round % 5, 2 | 3) {
                client.read_more().expect("the answer begins");
            }
            client.reset();
            // A server that gets no time now has no more of them at once than one that does: what it once allocated for so many
            // is not what is measured.
            assert!(round % 50 != 49 || is_quiet(), "connections are left");
        }
    };
    warm_up(&server);
    strike(RESETS / 4); // Whatever is allocated once is allocated now.
    let (descriptors, resident) = (server.descriptors(), server.resident_kib());
    strike(RESETS);
    let grown = server.resident_kib().saturating_sub(resident);
    assert!(within(PATIENCE, || server.descriptors() <= descriptors));
    assert!(grown <= 512, "{grown} KiB more");
    assert_eq!(server.get("/").status, 200);
    println!(
        "{transport:?}: {RESETS} resets: {descriptors} descriptors as before, {grown} KiB more"
    );
}

/// Purpose: with 80 descriptors and 200 clients that keep theirs, the server neither spins nor
/// dies, and serves again once they have disconnected.
fn out_of_descriptors(transport: Transport) {
    // More connections than descriptors, so that the kernel refuses and not our own limit.
    let flags = ["--connections-max", "1000", "--log", "text"];
    let server = transport.serve_within(Some(80), &flags);
    // Within a request, so that none of them makes room.
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.send(b"GET / HTTP/1.1\r\nHost").expect("open");
            client
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    let (begun, cpu) = (Instant::now(), server.cpu());
    thread::sleep(Duration::from_secs(3));
    let busy = (server.cpu() - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
    assert!(busy < 0.05, "{:.1} % of a core while starved", busy * 100.0);
    drop(clients);
    let left = Instant::now();
    let answer = server.get("/");
    let back = left.elapsed();
    assert_eq!(answer.status, 200);
    let failures = server.metric("http_rejections_total{layer=\"accept\",reason=\"descriptors\"}");
    assert!(failures >= 1.0, "the operator is told");
    let log = server.log();
    for line in ["the descriptors allow few connections at once", "no descriptor is left"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    println!("{transport:?}: out of descriptors: {:.2} % CPU, back after {back:?}", busy * 100.0);
}

/// Purpose: a server that has no descriptor left hears SIGTERM, and ends as one that has.
fn stops_without_descriptors(transport: Transport) {
    let flags = ["--connections-max", "1000", "--drain-timeout", "1s"];
    let mut server = transport.serve_within(Some(80), &flags);
    let clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    assert!(within(PATIENCE, || server.descriptors() == 80));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    drop(clients);
}

/// Purpose: a worker whose first stream or upgrade comes when no descriptor is left for a runtime resets that exchange,
/// serves on, and has its runtime once there are descriptors.
fn streams_without_descriptors_are_reset(transport: Transport) {
    let flags = ["--scene", "sync", "--connections-max", "1000", "--log", "text"];
    let server = transport.serve_within(Some(80), &flags);
    // Within a request, so that none of them makes room.
    let begin = |head: &str| {
        let mut client = server.connect();
        client.send(format!("GET {head} HTTP/1.1\r\nHost: h\r\n")).expect("open");
        client
    };
    let [mut stream, mut upgrade] = ["/streamed", "/upgrade"].map(begin);
    let mut plain = ["/"; 2].map(begin);
    let clients: Vec<Client> = (0..200).map(|_| begin("/")).collect();
    let is_full = || server.descriptors() >= 79;
    let asks = "Connection: upgrade\r\nUpgrade: echo\r\n\r\n";
    for (client, plain) in [&mut stream, &mut upgrade].into_iter().zip(&mut plain) {
        assert!(within(PATIENCE, is_full), "{} descriptors", server.descriptors());
        client.send(asks).expect("open");
        // The head may have been sent before.
        if let Ok(Some(answer)) = client.try_answer() {
            assert_eq!(answer.status, 101);
            assert!(!client.read_more().unwrap_or(false), "it is reset");
        }
        plain.send("\r\n").expect("open");
        assert_eq!(plain.answer().status, 200);
    }
    drop(clients);
    // Their descriptors are free once the server has noticed.
    let is_served = || {
        let mut client = server.connect();
        client.send("GET /streamed HTTP/1.1\r\nHost: h\r\n\r\n").expect("open");
        matches!(client.try_answer(), Ok(Some(answer)) if answer.text() == "streamed")
    };
    assert!(within(PATIENCE, is_served), "{}", server.log());
    assert!(server.log().contains("cannot have a runtime"), "{}", server.log());
    server.stop();
}

/// Purpose: an idle keep-alive connection costs at most 4 KiB of memory, each of 10 000.
fn idle_connections_are_small(transport: Transport) {
    const COUNT: usize = 10_000;
    /// One transport at a time: this process has a descriptor for each connection as well.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = highwater_sys::limits::raise_descriptors().expect("limits can be raised").soft;
    let count = COUNT.min((ours as usize).saturating_sub(1000));
    let server = transport.serve(&["--idle-timeout", "600s"]);
    warm_up(&server);
    let before = server.resident_kib();
    let clients: Vec<Client> = (0..count)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client
        })
        .collect();
    assert_eq!(server.metric("http_connections_active"), count as f64);
    let each = (server.resident_kib() - before) as f64 / count as f64;
    println!("{transport:?}: {count} idle connections, {each:.2} KiB each");
    assert!(each <= 4.0, "{each:.2} KiB each");
    drop(clients);
    assert!(within(PATIENCE, || server.metric("http_connections_active") == 0.0));
}

/// Purpose: 100 000 pipelined requests are all answered, in order, by a server that buffers next to
/// nothing although the client sends long before it reads.
fn pipelined_requests_are_bounded(transport: Transport) {
    const COUNT: usize = 100_000;
    let server = transport.serve(&[]);
    warm_up(&server);
    let before = server.resident_kib();
    let mut client = server.connect();
    let stream = client.stream().try_clone().expect("a descriptor is left");
    let sender = thread::spawn(move || {
        let mut stream = stream;
        for first in (0..COUNT).step_by(100) {
            let requests: Vec<u8> = (first..first + 100)
                .flat_map(|n| {
                    format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n{n:06}")
                        .into_bytes()
                })
                .collect();
            std::io::Write::write_all(&mut stream, &requests).expect("the server takes it in time");
        }
    });
    // Let it send as much as the server takes before anything is read.
    thread::sleep(Duration::from_millis(500));
    let mut peak = 0;
    for n in 0..COUNT {
        assert_eq!(client.answer().text(), format!("{n:06}"));
        if n % 5000 == 0 {
            peak = peak.max(server.resident_kib());
        }
    }
    sender.join().expect("all is sent");
    let grown = peak.saturating_sub(before);
    println!("{transport:?}: {COUNT} pipelined requests, {grown} KiB more");
    assert!(grown <= 1024, "{grown} KiB more");
}

/// Purpose: a client that finishes sending right behind its request is answered, 1 000 times of 1
/// 000.
fn half_closed_connections_are_answered(transport: Transport) {
    let server = transport.serve(&[]);
    for round in 0..1000 {
        let path = ["/", "/wait?ms=5", "/block?ms=1", "/pieces?bytes=100000"][round % 4];
        let mut client = server.connect();
        client.send(get(path)).expect("open");
        client.finish();
        assert_eq!(client.answer().status, 200, "{path}");
        assert!(client.is_closed_in_silence(), "{path}");
    }
}

/// Purpose: a handler that reads its body slowly slows its client down, and nothing is buffered in
/// between: 100 MB pass through less than a megabyte.
fn slow_handlers_push_back(transport: Transport) {
    const SIZE: usize = 100_000_000;
    let server = transport.serve(&[]);
    let upload = |server: &Process, size: usize, path: &str| {
        let mut client = server.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n");
        client.send(head.as_bytes()).expect("open");
        let piece = [b'x'; 100_000];
        let mut peak = 0;
        for sent in 0..size / piece.len() {
            client.send(piece).expect("it is read");
            if sent % 50 == 0 {
                peak = peak.max(server.resident_kib());
            }
        }
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, &*size.to_string()));
        peak
    };
    warm_up(&server);
    upload(&server, 10_000_000, "/slow?ms=0");
    let before = server.resident_kib();
    let grown = upload(&server, SIZE, "/slow?ms=0").saturating_sub(before);
    println!("{transport:?}: 100 MB through a slow handler, {grown} KiB more");
    assert!(grown <= 1024, "{grown} KiB more");
}
