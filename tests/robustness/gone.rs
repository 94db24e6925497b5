//! Clients that disconnect, with or without closing, and servers that stood still in the meantime.

use std::time::{Duration, Instant};

use highwater_testkit::{Client, Process, get, within};

use crate::{Transport, on_each_transport};

on_each_transport!(
    resets_are_noticed_at_once,
    closed_tabs_leave_nothing_behind,
    half_closed_clients_are_bounded,
    event_streams_end_with_their_clients,
    deaf_protocols_end_with_their_clients,
    handlers_learn_that_their_client_has_gone,
    pipelined_behind_streams,
    unwanted_bodies_that_came_with_the_head,
    keep_alive_probes,
    a_stopped_process_disconnects_no_client,
    a_stopped_process_refuses_no_job,
);

/// Far more than it takes on a busy machine, and far less than the minute after which the server would notice anyway.
const AT_ONCE: Duration = Duration::from_secs(20);

/// For what must be noticed before a half-closed connection has been open for long enough.
const HALF_CLOSED_LATE: [&str; 2] = ["--half-closed-timeout", "60s"];

fn post(path: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

fn has_no_clients(server: &Process) -> bool {
    server.metric("http_connections_active") == 0.0
}

fn ask(server: &Process, bytes: &[u8]) -> Client {
    let mut client = server.connect();
    client.send(bytes).expect("open");
    client
}

/// Waits until as many handlers have begun.
fn until_begun(server: &Process, count: usize) {
    let begun = format!("begun {count} ");
    let counts = || server.get("/counts").text().to_owned();
    assert!(within(AT_ONCE, || counts().starts_with(&begun)), "{}", counts());
}

/// Purpose: a client that resets its connection is noticed at once while its handler waits, its
/// upload is paused, or its stream is silent, with 100 KiB pipelined behind its request or none.
fn resets_are_noticed_at_once(transport: Transport) {
    let server = transport.serve(&HALF_CLOSED_LATE);
    let pipelined = [get("/wait?ms=60000"), get("/").repeat(4000)].concat();
    let ways: [(&str, Vec<u8>); 6] = [
        ("waits", get("/wait?ms=60000")),
        ("waits, pipelined behind", pipelined.clone()),
        ("streams", get("/quiet")),
        ("streams, pipelined behind", [get("/quiet"), get("/").repeat(4000)].concat()),
        ("upload is paused", [post("/hold", 1 << 20), vec![b'x'; 400 * 1024]].concat()),
        ("finished before", pipelined),
    ];
    for (round, (name, bytes)) in ways.iter().enumerate() {
        // The server stops reading: what does not fit its buffers is not sent.
        let mut client = server.connect();
        client.stream().set_nonblocking(true).expect("it can be set");
        let _ = client.send(bytes);
        client.stream().set_nonblocking(false).expect("it can be set");
        until_begun(&server, round + 1);
        std::thread::sleep(Duration::from_millis(100));
        if *name == "finished before" {
            client.finish();
            std::thread::sleep(Duration::from_millis(100));
        }
        client.reset();
        let dropped = format!("dropped {}", round + 1);
        let counts = || server.get("/counts").text().to_owned();
        assert!(within(AT_ONCE, || counts().ends_with(&dropped)), "{name}: {}", counts());
        assert!(within(AT_ONCE, || has_no_clients(&server)), "{name}");
    }
}

/// Purpose: after a hundred tabs are closed while their handlers wait, nothing is left when the
/// half-closed timeout has passed: no handler, no connection, no descriptor; and the metrics say
/// why.
fn closed_tabs_leave_nothing_behind(transport: Transport) {
    let server = transport.serve(&["--half-closed-timeout", "1s"]);
    server.get("/");
    assert!(within(AT_ONCE, || has_no_clients(&server)));
    let before = server.descriptors();
    let paths = ["/wait?ms=60000", "/quiet"];
    let tabs: Vec<Client> = (0..100).map(|number| ask(&server, &get(paths[number % 2]))).collect();
    until_begun(&server, 100);
    drop(tabs);
    assert!(within(AT_ONCE, || has_no_clients(&server)));
    let counts = server.get("/counts").text().to_owned();
    assert_eq!(counts, "begun 100 finished 0 dropped 100");
    assert!(within(AT_ONCE, || server.descriptors() <= before), "{}", server.descriptors());
    // The kernel resets connections whose client had not read the beginning of its answer.
    assert_eq!(server.metric("http_timeouts_total{kind=\"half_closed\"}"), 50.0);
}

/// Purpose: a client that has finished sending is still answered, if its answer comes within the
/// half-closed timeout; the time counts from the last progress.
fn half_closed_clients_are_bounded(transport: Transport) {
    let server = transport.serve(&["--half-closed-timeout", "2s"]);
    for path in ["/wait?ms=300", "/block?ms=300"] {
        let mut client = ask(&server, &get(path));
        client.finish();
        assert_eq!(client.answer().status, 200, "{path}");
        assert!(client.is_closed_in_silence());
    }
    // Three requests of 700 ms, more than two seconds: each has its own time.
    let mut client = ask(&server, &get("/wait?ms=700").repeat(3));
    client.finish();
    (0..3).for_each(|_| assert_eq!(client.answer().text(), "waited 700"));
    // A body that is read slowly moves all the time.
    let body = [post("/slow?ms=20", 300_000), vec![b'x'; 300_000]].concat();
    let mut client = ask(&server, &body);
    client.finish();
    assert_eq!(client.answer().text(), "300000");
    for path in ["/wait?ms=60000", "/block?ms=60000"] {
        let mut client = ask(&server, &get(path));
        client.finish();
        let begun = Instant::now();
        assert!(client.try_answer().is_err(), "{path}: a reset");
        let passed = begun.elapsed();
        assert!(passed >= Duration::from_millis(1900) && passed < AT_ONCE, "{path}: {passed:?}");
    }
}

/// Purpose: an event stream ends at once when its client closes: 56 of them, one after the other,
/// leave room for new clients in a server with 120 descriptors.
fn event_streams_end_with_their_clients(transport: Transport) {
    let server = transport.serve_within(Some(120), &HALF_CLOSED_LATE);
    for _ in 0..56 {
        let mut client = ask(&server, &get("/events"));
        assert!(client.read_more().expect("the first event"));
    }
    assert!(within(AT_ONCE, || has_no_clients(&server)));
    assert_eq!(server.get("/counts").text(), "begun 56 finished 0 dropped 56");
    // One that finishes before it is answered hears what there is.
    let mut client = ask(&server, &get("/events"));
    client.finish();
    assert!(client.read_more().expect("an orderly end"));
    assert!(client.rest().expect("an orderly end").starts_with(b"HTTP/1.1 200"));
}

/// Purpose: an upgraded connection whose protocol no longer reads ends at once when its client closes.
fn deaf_protocols_end_with_their_clients(transport: Transport) {
    let server = transport.serve(&HALF_CLOSED_LATE);
    let request =
        b"GET /upgrade-deaf HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: deaf\r\n\r\n";
    for _ in 0..20 {
        let mut client = ask(&server, request);
        assert_eq!(client.answer().status, 101);
    }
    assert!(within(AT_ONCE, || has_no_clients(&server)));
    assert_eq!(server.get("/counts").text(), "begun 20 finished 0 dropped 20");
}

/// Purpose: a handler that asks for it learns at once that its client has finished sending, and can still
/// answer.
fn handlers_learn_that_their_client_has_gone(transport: Transport) {
    let server = transport.serve(&HALF_CLOSED_LATE);
    let mut client = ask(&server, &get("/learns"));
    std::thread::sleep(Duration::from_millis(100));
    client.finish();
    let begun = Instant::now();
    assert_eq!(client.answer().text(), "you have gone");
    assert!(begun.elapsed() < AT_ONCE);
    let mut behind = ask(&server, &[get("/learns"), get("/").repeat(3000)].concat());
    std::thread::sleep(Duration::from_millis(100));
    behind.finish();
    assert_eq!(behind.answer().text(), "you have gone");
}

/// Purpose: requests pipelined behind a streamed answer are answered after the client has finished
/// sending, whichever ends first.
fn pipelined_behind_streams(transport: Transport) {
    let server = transport.serve(&[]);
    for bytes in [0, 10, 100_000] {
        let stream = get(&format!("/pieces?bytes={bytes}"));
        for first in [1, 2, 4] {
            let requests = [stream.repeat(first), get("/").repeat(5 - first)].concat();
            let mut client = ask(&server, &requests);
            client.finish();
            for number in 0..5 {
                let answer = client.answer();
                let wanted = if number < first { bytes } else { 2 };
                assert_eq!((answer.status, answer.body.len()), (200, wanted), "{number}");
            }
            assert!(client.is_closed_in_silence());
        }
    }
}

/// Purpose: an unwanted body that came with its head is not a slow body, however long the handler
/// takes.
fn unwanted_bodies_that_came_with_the_head(transport: Transport) {
    let server = transport.serve(&[]);
    let head =
        b"POST /ignore-slowly?ms=6000 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = ask(&server, &[&head[..], b"5\r\nhello\r\n0\r\n\r\n"].concat());
    assert_eq!(client.answer().text(), "waited 6000");
    assert_eq!(client.get("/").status, 200, "the connection lives on");
    assert_eq!(server.metric("http_timeouts_total{kind=\"body\"}"), 0.0);
}

/// Purpose: a silent client that is alive is not disconnected: its kernel answers the probes, for
/// longer than a dead client would have had.
fn keep_alive_probes(transport: Transport) {
    let server = transport.serve(&["--tcp-keep-alive", "1s"]);
    let mut client = ask(&server, &get("/wait?ms=4000"));
    assert_eq!(client.answer().text(), "waited 4000");
}

/// Purpose: a server that was stopped for longer than its timeouts answers everything that came in
/// the meantime, and disconnects no client: idle connections that sent a request, half heads and
/// half bodies that were completed, readers that kept reading.
fn a_stopped_process_disconnects_no_client(transport: Transport) {
    // The machine may be busy: all 1 200 connections must be there before the first of them is idle for too long.
    let flags = [
        "--idle-timeout",
        "10s",
        "--header-timeout",
        "10s",
        "--body-timeout",
        "10s",
        "--write-timeout",
        "10s",
        "--body-max",
        "1MiB",
    ];
    let server = transport.serve(&flags);
    highwater_sys::limits::raise_descriptors().expect("limits can be raised");
    let idle: Vec<Client> = (0..800)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client
        })
        .collect();
    let heads: Vec<Client> = (0..200).map(|_| ask(&server, b"GET / HTTP/1.1\r\nHo")).collect();
    let half_body = [post("/", 10), b"hello".to_vec()].concat();
    let bodies: Vec<Client> = (0..200).map(|_| ask(&server, &half_body)).collect();
    let readers: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = Client::connect_small(server.address, 64 * 1024);
            client.send(get("/content?bytes=20000000")).expect("open");
            assert!(client.read_more().expect("it begins"));
            client
        })
        .collect();
    server.signal("STOP");
    std::thread::sleep(Duration::from_millis(11_500));
    let complete = |mut client: Client, bytes: &[u8]| {
        client.send(bytes).expect("open");
        client
    };
    let idle: Vec<Client> = idle.into_iter().map(|client| complete(client, &get("/"))).collect();
    let heads: Vec<Client> =
        heads.into_iter().map(|client| complete(client, b"st: h\r\n\r\n")).collect();
    let bodies: Vec<Client> = bodies.into_iter().map(|client| complete(client, b"world")).collect();
    // They must not stand still while the others are read: what is left of their time may be a fraction of a second.
    let readers: Vec<_> = readers
        .into_iter()
        .map(|mut client| std::thread::spawn(move || client.answer().body.len()))
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    server.signal("CONT");
    for mut client in idle.into_iter().chain(heads).chain(bodies) {
        assert_eq!(client.answer().status, 200);
    }
    for reader in readers {
        assert_eq!(reader.join().expect("it is answered"), 20_000_000);
    }
    for kind in ["header", "body", "write"] {
        assert_eq!(
            server.metric(&format!("http_timeouts_total{{kind=\"{kind}\"}}")),
            0.0,
            "{kind}"
        );
    }
}

/// Purpose: jobs that wait for a thread while the process is stopped for longer than they may wait are not refused when it
/// continues: all were once.
fn a_stopped_process_refuses_no_job(transport: Transport) {
    let server = transport.serve(&["--pool-threads", "1", "--patience", "5s"]);
    let mut busy = ask(&server, &get("/block?ms=4000"));
    let is_taken = || server.metric("highwater_pool_threads") == 1.0;
    assert!(within(AT_ONCE, is_taken), "the thread is taken");
    let mut waiting: Vec<Client> = (0..100).map(|_| ask(&server, &get("/block?ms=1"))).collect();
    let all_wait = || server.metric("highwater_pool_jobs_waiting") == 100.0;
    assert!(within(AT_ONCE, all_wait), "they wait for a thread");
    server.signal("STOP");
    std::thread::sleep(Duration::from_secs(6));
    server.signal("CONT");
    assert_eq!(busy.answer().text(), "blocked 4000");
    for client in &mut waiting {
        assert_eq!(client.answer().text(), "blocked 1");
    }
}
