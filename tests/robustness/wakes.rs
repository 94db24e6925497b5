//! Wake-ups: a worker notices another thread's wake-up at once, whatever the worker did before and
//! wherever it waits.
//!
//! A worker waits in its driver or inside Tokio. Each test here makes it change from one to the
//! other in some way, and then leaves it idle: only the wake-up itself can make it look.

use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, Process, get, within};

use crate::{Transport, on_each_transport};

on_each_transport!(
    after_a_client_hung_up,
    after_a_route_timed_out,
    after_a_deadline_passed,
    after_a_stream_was_reset,
    after_an_upgraded_connection_was_reset,
    tasks_spawned_elsewhere_run,
    timers_awaited_elsewhere_fire,
);

/// Far more than a wake-up takes, also on a busy machine, far less than the next thing that would make the worker look:
/// the timeout of an idle connection.
const SOON: Duration = Duration::from_secs(8);

/// The pool's results and SIGTERM are heard soon.
fn hears(mut server: Process, transport: Transport) {
    let begun = Instant::now();
    assert_eq!(server.get("/block?ms=100").text(), "blocked 100");
    let result = begun.elapsed();
    assert!(result < SOON, "the pool's result was heard after {result:?}");
    let begun = Instant::now();
    server.signal("TERM");
    let status = server.ends_within(Duration::from_secs(15)).expect("it ends");
    let end = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(end < SOON, "SIGTERM was heard after {end:?}");
    println!("{transport:?}: the pool's result after {result:?}, SIGTERM after {end:?}");
}

/// As many times, since the first wake-up may be lost and the second heard.
const ROUNDS: usize = 3;

/// A server on which `first` happens, and the client of that goes by a reset.
fn hears_after(transport: Transport, request: &[u8], first: impl Fn(&mut Client)) {
    for round in 0..ROUNDS {
        let server = transport.serve(&[]);
        for _ in 0..round {
            assert_eq!(server.get("/block?ms=1").status, 200);
        }
        let mut client = server.connect();
        client.send(request).expect("open");
        first(&mut client);
        client.reset();
        let is_idle = || server.metric("http_connections_active") == 0.0;
        assert!(within(SOON, is_idle), "the reset was noticed");
        hears(server, transport);
    }
}

/// Purpose: after a client hung up on an async handler, the worker still notices wake-ups.
fn after_a_client_hung_up(transport: Transport) {
    hears_after(transport, &get("/wait?ms=60000"), |_| thread::sleep(Duration::from_millis(200)));
}

/// Purpose: the same after an async handler that exceeded its timeout.
fn after_a_route_timed_out(transport: Transport) {
    hears_after(transport, &get("/wait-limited?ms=60000"), |client| {
        assert_eq!(client.answer().status, 503);
    });
}

/// Purpose: the same after one that exceeded its client's deadline.
fn after_a_deadline_passed(transport: Transport) {
    let request = b"GET /wait?ms=60000 HTTP/1.1\r\nHost: h\r\nRequest-Timeout: 0.2\r\n\r\n";
    hears_after(transport, request, |client| assert_eq!(client.answer().status, 503));
}

/// Purpose: the same after a stream whose client hung up.
fn after_a_stream_was_reset(transport: Transport) {
    hears_after(transport, &get("/endless"), |client| {
        assert!(client.read_more().expect("the answer begins"));
    });
}

/// Purpose: the same after a connection that was handed over to another protocol.
fn after_an_upgraded_connection_was_reset(transport: Transport) {
    let request =
        b"GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    hears_after(transport, request, |client| {
        assert_eq!(client.answer().status, 101);
        client.send(b"echoed").expect("open");
        assert!(client.read_more().expect("it echoes"));
    });
}

/// What another thread asks of an idle worker's runtime is done before the worker has another reason to look, which it gets
/// after two seconds: the question how long it took.
fn runs_soon(transport: Transport, path: &str) {
    for before in ["/", "/wait?ms=1", "/block?ms=1"] {
        let server = transport.serve(&[]);
        assert_eq!(server.get(before).status, 200);
        assert_eq!(server.get(path).status, 200);
        thread::sleep(Duration::from_millis(2500));
        let after = server.get("/ran-after").text().to_owned();
        let after: u64 = after.parse().expect("a number");
        assert!(after < 2000, "after {before}: it ran after {after} ms");
        println!("{transport:?}: after {before}: it ran after {after} ms");
    }
}

/// Purpose: a task that another thread spawns on a worker's runtime runs, although no handler is in
/// progress and no byte arrives.
fn tasks_spawned_elsewhere_run(transport: Transport) {
    runs_soon(transport, "/spawn-elsewhere?ms=500");
}

/// Purpose: a timer that another thread awaits on a worker's runtime fires.
fn timers_awaited_elsewhere_fire(transport: Transport) {
    runs_soon(transport, "/sleep-elsewhere?ms=500");
}
