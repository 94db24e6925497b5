//! Handlers that fail, wait, stream or are abandoned.

use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, PATIENCE, get, within};
use highwater_tests::server::warm_up;

use crate::{Transport, on_each_transport};

on_each_transport!(
    panics_are_answers,
    abandoned_futures_are_dropped,
    timeouts_are_answers,
    late_results_are_dropped,
    bursts_of_blocking_requests_are_served,
    a_standing_pool_refuses,
    abandoned_jobs_are_not_begun,
    detached_handlers_outlive_deadlines,
    streams,
    broken_streams_are_cut,
    upgrades,
    http_1_0,
    expectations,
    metrics_add_up,
);

/// Far more than anything here takes on a busy machine, and far less than the minute of a handler that waits.
const SOON: Duration = Duration::from_secs(20);

/// Purpose: 1 000 panics, in handlers of each kind, become 500s on connections that stay open, in a
/// process that continues and does not grow. Nor does its log: it says what panics, and not how often.
fn panics_are_answers(transport: Transport) {
    let server = transport.serve(&[]);
    warm_up(&server);
    let mut client = server.connect();
    let panic = |client: &mut Client, round: usize| {
        let path = ["/panic", "/panic-async", "/panic-blocking"][round % 3];
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text()), (500, "Internal Server Error"), "{path}");
        assert_eq!(answer.header("connection"), None, "{path}");
    };
    (0..100).for_each(|round| panic(&mut client, round));
    let before = server.resident_kib();
    (0..1000).for_each(|round| panic(&mut client, round));
    assert_eq!(client.get("/").status, 200);
    let grown = server.resident_kib().saturating_sub(before);
    println!("{transport:?}: 1000 panics, {grown} KiB more");
    assert!(grown <= 512, "{grown} KiB more");
    assert_eq!(server.metric("http_responses_total{status=\"500\"}"), 1100.0);
    let lines = |of: &str| {
        let log = server.log();
        log.lines().filter(|line| line.contains(" a thread panicked ") && line.contains(of)).count()
    };
    for cause in ["at once", "in a future", "on the pool"] {
        assert!(within(PATIENCE, || lines(cause) > 0), "{cause}");
    }
    // Five in ten seconds for each of three places: that many take six minutes.
    assert!(lines("") < 550, "{} lines about 1100 panics", lines(""));
}

/// Purpose: the future of a handler whose client has disconnected is dropped at once, unless it is detached:
/// then it runs to its end.
fn abandoned_futures_are_dropped(transport: Transport) {
    let server = transport.serve(&[]);
    let counts = || server.get("/counts").text().to_owned();
    // A client that hangs up before its request has begun is not served at all.
    let abandon = |path: &str, begun: &str| {
        let clients: Vec<Client> = (0..100)
            .map(|_| {
                let mut client = server.connect();
                client.send(get(path)).expect("open");
                client
            })
            .collect();
        let have_begun = || counts().starts_with(begun);
        assert!(within(SOON, have_begun), "{}", counts());
        clients.into_iter().for_each(Client::reset);
    };
    abandon("/wait?ms=60000", "begun 100 ");
    let is_dropped = || counts() == "begun 100 finished 0 dropped 100";
    assert!(within(SOON, is_dropped), "{}", counts());
    abandon("/wait-detached?ms=2000", "begun 200 ");
    let is_finished = || counts() == "begun 200 finished 100 dropped 100";
    assert!(within(SOON, is_finished), "{}", counts());
    assert!(within(SOON, || server.metric("http_connections_active") == 0.0));
}

/// Purpose: a handler that exceeds its route's timeout becomes a 503 on a connection that stays
/// open; a future is dropped.
fn timeouts_are_answers(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    for path in ["/wait-limited?ms=60000", "/block-limited?ms=60000"] {
        let begun = Instant::now();
        let answer = client.get(path);
        assert_eq!((answer.status, answer.header("connection")), (503, None), "{path}");
        let passed = begun.elapsed();
        let expected = Duration::from_millis(290)..SOON;
        assert!(expected.contains(&passed), "{path}: after {passed:?}");
    }
    assert_eq!(client.get("/wait-limited?ms=10").text(), "waited 10");
    assert_eq!(client.get("/counts").text(), "begun 2 finished 1 dropped 1");
}

/// Purpose: the result of a pool job whose request was already answered never becomes the answer to
/// a later request of the same connection.
fn late_results_are_dropped(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    assert_eq!(client.get("/block-limited?ms=600").status, 503);
    // Waits while the job returns.
    assert_eq!(client.get("/wait?ms=800").text(), "waited 800");
    assert_eq!(client.get("/block-limited?ms=600").status, 503);
    assert_eq!(client.get("/block?ms=800").text(), "blocked 800");
}

/// Purpose: a burst of blocking requests is served, however large it is.
fn bursts_of_blocking_requests_are_served(transport: Transport) {
    let server = transport.serve(&["--patience", "20s"]);
    highwater_sys::limits::raise_descriptors().expect("limits can be raised");
    // One connection each, since each owes one answer at a time.
    let mut clients: Vec<Client> = (0..1500)
        .map(|_| {
            let mut client = server.connect();
            client.send(get("/block?ms=20")).expect("open");
            client
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.answer().text(), "blocked 20");
    }
    let threads = server.metric("highwater_pool_threads");
    assert!((1.0..=512.0).contains(&threads), "{threads}");
    assert_eq!(server.metric("highwater_pool_jobs_waiting"), 0.0);
}

/// Purpose: blocking requests that have waited for a thread for longer than the patience are refused,
/// although no thread has become free; other requests are served as usual, and so are blocking ones when
/// threads are free again.
fn a_standing_pool_refuses(transport: Transport) {
    let server = transport.serve(&["--pool-threads", "8"]);
    let ask = |ms: u32| {
        let mut client = server.connect();
        client.send(get(&format!("/block?ms={ms}"))).expect("open");
        client
    };
    let mut busy: Vec<Client> = (0..8).map(|_| ask(6000)).collect();
    let is_busy = || server.metric("highwater_pool_threads") == 8.0;
    assert!(within(PATIENCE, is_busy), "all threads are taken");
    let mut waiting: Vec<Client> = (0..100).map(|_| ask(0)).collect();
    assert_eq!(server.get("/").status, 200);
    for client in &mut waiting {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (503, None));
        assert_eq!(client.get("/").status, 200, "it goes on");
    }
    for client in &mut busy {
        assert_eq!(client.answer().text(), "blocked 6000");
    }
    assert_eq!(waiting[0].get("/block?ms=1").text(), "blocked 1");
}

/// Purpose: a job that waits for a thread while its client disconnects, or while its request is
/// answered otherwise, is not begun: the pool works for clients that wait. A detached job is still
/// begun.
fn abandoned_jobs_are_not_begun(transport: Transport) {
    let server = transport.serve(&["--pool-threads", "32", "--patience", "20s"]);
    let ask = |path: &str| {
        let mut client = server.connect();
        client.send(get(path)).expect("open");
        client
    };
    let mut busy: Vec<Client> = (0..32).map(|_| ask("/block?ms=4000")).collect();
    // Connections are not read in the order in which they were made.
    let are_taken = || server.metric("highwater_pool_threads") == 32.0;
    assert!(within(PATIENCE, are_taken), "all threads are taken");
    let gone: Vec<Client> = (0..10).map(|_| ask("/block-counted?ms=0")).collect();
    let mut late: Vec<Client> = (0..10).map(|_| ask("/block-counted-limited?ms=0")).collect();
    let detached: Vec<Client> = (0..10).map(|_| ask("/block-counted-detached?ms=0")).collect();
    let all_wait = || server.metric("highwater_pool_jobs_waiting") == 30.0;
    assert!(within(PATIENCE, all_wait), "they wait for a thread");
    gone.into_iter().chain(detached).for_each(Client::reset);
    for client in &mut late {
        assert_eq!(client.answer().status, 503);
    }
    for client in &mut busy {
        assert_eq!(client.answer().text(), "blocked 4000");
    }
    // In order: when this is answered, all before it have been taken up.
    assert_eq!(server.get("/block?ms=100").text(), "blocked 100");
    let counts = server.get("/counts").text().to_owned();
    assert_eq!(counts, "begun 10 finished 10 dropped 0");
}

/// Purpose: a client whose own deadline has passed is answered 503, and a handler that was declared
/// to run to its end still does.
fn detached_handlers_outlive_deadlines(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    let ask = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: h\r\nRequest-Timeout: 0.2\r\n\r\n").into_bytes()
    };
    for _ in 0..3 {
        // On one connection: each leaves its handler behind, and none is taken for another.
        client.send(ask("/wait-detached?ms=3000")).expect("open");
        assert_eq!(client.answer().status, 503);
    }
    assert_eq!(client.get("/counts").text(), "begun 3 finished 0 dropped 0");
    let counts = || server.get("/counts").text().to_owned();
    let is_finished = || counts() == "begun 3 finished 3 dropped 0";
    assert!(within(SOON, is_finished), "{}", counts());
    client.send(ask("/wait?ms=1500")).expect("open");
    assert_eq!(client.answer().status, 503);
    assert_eq!(counts(), "begun 4 finished 3 dropped 1");
}

/// Purpose: streamed answers arrive whole, in chunks or up to the close, on connections that live
/// on where they can; pipelined requests behind them wait their turn.
fn streams(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    for size in [0, 1, 9_999, 10_000, 1_000_000, 20_000_000] {
        let pair = [get(&format!("/pieces?bytes={size}")), get("/")].concat();
        client.send(&pair).expect("open");
        let answer = client.answer();
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.body.len(), size);
        assert!(answer.body.iter().all(|&byte| byte == b'y'));
        assert_eq!(client.answer().text(), "OK");
    }
    let mut old = server.connect();
    old.send(b"GET /pieces?bytes=1000000 HTTP/1.0\r\n\r\n").expect("open");
    let answer = old.answer();
    assert_eq!(
        (answer.header("connection"), answer.header("transfer-encoding")),
        (Some("close"), None)
    );
    assert_eq!(answer.body.len(), 1_000_000);
}

/// Purpose: an answer that its handler breaks off is cut off, so that no client takes it for
/// complete.
fn broken_streams_are_cut(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    client.send(get("/broken")).expect("open");
    assert!(client.try_answer().is_err());
    assert_eq!(server.get("/").status, 200);
}

/// Purpose: a 101 hands the connection over, with what was already sent behind the request; each
/// side can finish on its own.
fn upgrades(transport: Transport) {
    let server = transport.serve(&[]);
    for _ in 0..50 {
        let mut client = server.connect();
        let request =
            b"GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        client.send([request, &b"early"[..]].concat()).expect("open");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("upgrade")), (101, Some("echo")), "{answer:?}");
        let connection = answer.headers.iter().filter(|(name, _)| name == "connection");
        assert!(connection.map(|(_, value)| value).eq(["upgrade"]), "{answer:?}");
        client.send(b"\0late").expect("open");
        let large = vec![b'z'; 300_000];
        let mut writer = client.stream().try_clone().expect("a descriptor is left");
        let sending = thread::spawn({
            let large = large.clone();
            move || std::io::Write::write_all(&mut writer, &large)
        });
        while client.received().len() < 10 + large.len() {
            assert!(client.read_more().expect("it echoes"));
        }
        sending.join().expect("no panic").expect("open");
        client.finish();
        assert_eq!(client.rest().expect("an orderly end"), [b"early\0late", &large[..]].concat());
    }
    assert!(within(SOON, || server.metric("http_connections_active") == 0.0));
}

/// Purpose: HTTP/1.0 closes after each answer, unless it asks to be kept alive.
fn http_1_0(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.0\r\n\r\n").expect("open");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("OK", Some("close")));
    assert!(client.is_closed_in_silence());
    let mut client = server.connect();
    for path in ["/", "/wait?ms=5", "/block?ms=5"] {
        let request = format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        client.send(request.as_bytes()).expect("open");
        assert_eq!(client.answer().header("connection"), Some("keep-alive"), "{path}");
    }
}

/// Purpose: 100 Continue is sent when the body is wanted and not otherwise: not for refused
/// requests, nor to HTTP/1.0, nor for a body that is not read.
fn expectations(transport: Transport) {
    let server = transport.serve(&[]);
    let ask = |path: &str, version: &str, length: usize| {
        let mut client = server.connect();
        let head = format!(
            "POST {path} HTTP/{version}\r\nHost: h\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        client.send(head.as_bytes()).expect("open");
        client
    };
    for path in ["/", "/slow?ms=1"] {
        let mut client = ask(path, "1.1", 5);
        assert_eq!(client.answer().status, 100, "{path}");
        client.send(b"hello").expect("open");
        assert_eq!(client.answer().status, 200, "{path}");
        assert_eq!(client.get("/").status, 200, "{path}");
    }
    assert_eq!(ask("/", "1.1", 2_000_000).answer().status, 413);
    assert_eq!(ask("/nowhere", "1.1", 5).answer().status, 404);
    assert_eq!(ask("/ignore", "1.1", 5).answer().status, 200);
    let mut client = ask("/", "1.0", 5);
    client.send(b"hello").expect("open");
    assert_eq!(client.answer().status, 200);
}

/// Purpose: after all sorts of requests the metrics page adds up, and Prometheus's own tool accepts
/// it.
fn metrics_add_up(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    let paths = ["/", "/nowhere", "/panic", "/wait?ms=1", "/block?ms=1", "/pieces?bytes=100000"];
    for round in 0..60 {
        client.get(paths[round % paths.len()]);
    }
    let mut refused = server.connect();
    refused.send(b"GET / HTTP/1.1\r\n\r\n").expect("open");
    assert_eq!(refused.answer().status, 400);
    drop((client, refused));
    assert!(within(SOON, || server.metric("http_connections_active") == 0.0));
    let page = server.metrics_page();
    let sum = |prefix: &str| -> f64 {
        let lines = page.lines().filter(|line| line.starts_with(prefix));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    assert_eq!(sum("http_requests_total "), 61.0);
    assert_eq!(sum("http_requests_by_endpoint{"), 61.0);
    assert_eq!(sum("http_responses_total{"), 61.0);
    assert_eq!(sum("http_request_duration_seconds_count{"), 61.0);
    assert_eq!(sum("http_responses_total{status=\"500\"}"), 10.0);
    assert_eq!(sum("http_responses_total{status=\"404\"}"), 10.0);
    assert_eq!(sum("http_connections_total "), 2.0);
    assert_eq!(sum("http_rejections_total{layer=\"request\",reason=\"malformed_request\"}"), 1.0);
    assert!(sum("http_bytes_written_total ") > 1_000_000.0);
    promtool(&page);
}

/// Has `promtool check metrics` look at `page`, where it is installed.
fn promtool(page: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return println!("promtool is not installed: the format is not checked");
    };
    child.stdin.take().expect("it was asked for").write_all(page.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
