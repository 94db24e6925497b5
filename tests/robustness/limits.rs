//! Size limits: each is exact, and a client that exceeds one can read the refusal.

use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Answer, Client, Process, get};

use crate::{Transport, on_each_transport};

on_each_transport!(
    targets,
    header_sections,
    header_counts,
    bodies,
    refusals_can_be_read,
    requests_per_connection,
    connections_wait_for_others,
    empty_lines_make_room,
    idle_connections_make_room,
    idle_connections_make_room_for_several,
);

/// How often the refused must hear why.
const REFUSALS: usize = 100;

/// Sends one request on a connection of its own.
fn ask(server: &Process, request: &[u8]) -> Answer {
    let mut client = server.connect();
    // The server may refuse before it has taken everything.
    let _ = client.send(request);
    client.answer()
}

/// Purpose: a request target of `--uri-max` bytes is served, one more is 414.
fn targets(transport: Transport) {
    let status = |server: &Process, len: usize| {
        let target = format!("/?{}", "q".repeat(len - 2));
        ask(server, format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).status
    };
    for (flags, max) in [(&[][..], 8 * 1024), (&["--uri-max", "100"][..], 100)] {
        let server = transport.serve(flags);
        let statuses = [max - 1, max, max + 1].map(|len| status(&server, len));
        assert_eq!(statuses, [200, 200, 414], "--uri-max {max}");
    }
}

/// Purpose: header fields of `--header-max` bytes in all are served, one more is 431; the request
/// line does not count, however long it is.
fn header_sections(transport: Transport) {
    let status = |server: &Process, len: usize| {
        let target = format!("/?{}", "q".repeat(60));
        let fixed = "Host: h\r\nX: \r\n".len();
        let fields = format!("Host: h\r\nX: {}\r\n", "v".repeat(len - fixed));
        ask(server, format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes()).status
    };
    for (flags, max) in [(&[][..], 16 * 1024), (&["--header-max", "300"][..], 300)] {
        let server = transport.serve(flags);
        let statuses = [max - 1, max, max + 1].map(|len| status(&server, len));
        assert_eq!(statuses, [200, 200, 431], "--header-max {max}");
    }
}

/// Purpose: 100 header fields are served, 101 are 431.
fn header_counts(transport: Transport) {
    let server = transport.serve(&[]);
    let statuses = [99, 100, 101].map(|count| {
        let fields = "X: y\r\n".repeat(count - 1);
        ask(&server, format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes()).status
    });
    assert_eq!(statuses, [200, 200, 431]);
}

fn post(path: &str, framing: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A body of `len` bytes, in chunks of at most 10 000.
fn chunked(len: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let mut left = len;
    while left > 0 {
        let size = left.min(10_000);
        body.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        body.resize(body.len() + size, b'x');
        body.extend_from_slice(b"\r\n");
        left -= size;
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

/// Purpose: a body of `--body-max` bytes is served, one more is 413: announced or in chunks,
/// collected or streamed.
fn bodies(transport: Transport) {
    for (flags, max) in [(&[][..], 1 << 20), (&["--body-max", "5000"][..], 5000)] {
        let server = transport.serve(flags);
        for path in ["/", "/stream"] {
            let lengths = [max - 1, max, max + 1];
            let announced = lengths.map(|len| {
                let framing = format!("Content-Length: {len}");
                ask(&server, &post(path, &framing, &vec![b'x'; len])).status
            });
            assert_eq!(announced, [200, 200, 413], "{path}, announced, --body-max {max}");
            let in_chunks = lengths.map(|len| {
                ask(&server, &post(path, "Transfer-Encoding: chunked", &chunked(len))).status
            });
            assert_eq!(in_chunks, [200, 200, 413], "{path}, in chunks, --body-max {max}");
        }
    }
}

/// Purpose: a client that sends too much before it reads still receives the reason for the refusal;
/// if it sends little more than was taken, there is not even a reset.
fn refusals_can_be_read(transport: Transport) {
    let server = transport.serve(&[]);
    let max = 1 << 20;
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(100_000));
    let long_field = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "v".repeat(100_000));
    let announced = format!("Content-Length: {}", 100 * max);
    let requests: [(&str, u16, Vec<u8>); 5] = [
        ("long target", 414, long_target.into_bytes()),
        ("long field", 431, long_field.into_bytes()),
        ("announced", 413, post("/", &announced, &vec![b'x'; 200_000])),
        ("in chunks", 413, post("/", "Transfer-Encoding: chunked", &chunked(max + 100_000))),
        ("streamed", 413, post("/stream", "Transfer-Encoding: chunked", &chunked(max + 100_000))),
    ];
    for (name, status, request) in requests {
        for round in 0..REFUSALS {
            let mut client = server.connect();
            client.send(&request).unwrap_or_else(|error| panic!("{name}, {round}: {error}"));
            client.finish();
            assert_eq!(client.answer().status, status, "{name}, {round}");
            assert!(client.is_closed_in_silence(), "{name}, {round}: reset");
        }
    }
    // Far beyond what a lingering close reads: the reset may come, but behind the answer.
    let endless = post("/", &announced, &vec![b'x'; 4 * max]);
    for round in 0..REFUSALS {
        assert_eq!(ask(&server, &endless).status, 413, "endless, {round}");
    }
}

/// Purpose: with `--max-requests-per-connection 3`, the third answer says that it is the last, and is.
fn requests_per_connection(transport: Transport) {
    let server = transport.serve(&["--max-requests-per-connection", "3"]);
    let mut client = server.connect();
    let connection_fields: Vec<Option<String>> =
        (0..3).map(|_| client.get("/").header("connection").map(str::to_owned)).collect();
    assert_eq!(connection_fields, [None, None, Some("close".into())]);
    assert!(client.is_closed_in_silence());
}

/// Purpose: beyond `--connections-max` a connection is not refused: it waits, and is served as soon
/// as another ends, again and again.
fn connections_wait_for_others(transport: Transport) {
    let server = transport.serve(&["--connections-max", "4"]);
    // Busy, so that none of them makes room.
    let mut busy: Vec<Client> = (0..4).map(|_| begin(&server)).collect();
    for _ in 0..20 {
        let mut waiting = server.connect();
        waiting.send(highwater_testkit::get("/")).expect("open");
        waiting.set_patience(std::time::Duration::from_millis(50));
        assert!(waiting.read_more().is_err(), "served beyond the limit");
        drop(busy.remove(0));
        waiting.set_patience(highwater_testkit::PATIENCE);
        assert_eq!(waiting.answer().status, 200);
        drop(waiting);
        busy.push(begin(&server));
    }
    let rejections = "http_rejections_total{layer=\"accept\",reason=\"connections_max\"}";
    assert!(server.metric(rejections) >= 1.0);
}

/// A connection within a request.
fn begin(server: &Process) -> Client {
    let mut client = server.connect();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.send(head.as_bytes()).expect("open");
    assert_eq!(client.answer().status, 100, "the server has taken it in");
    client
}

/// Purpose: at `--connections-max`, a client that sends an empty line behind each request makes room like
/// any other. Such connections once stayed for the whole idle timeout.
fn empty_lines_make_room(transport: Transport) {
    let server = transport.serve(&["--connections-max", "4"]);
    let mut idle: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client.send(b"\r\n").expect("open");
            client
        })
        .collect();
    for _ in 0..4 {
        let mut next = server.connect();
        assert_eq!(next.get("/").status, 200);
        idle.push(next);
    }
}

/// Purpose: at `--connections-max`, the connection that has been idle for longest is closed for a
/// new one; busy connections are not.
fn idle_connections_make_room(transport: Transport) {
    let server = transport.serve(&["--connections-max", "4"]);
    let mut busy = begin(&server);
    let mut idle: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            std::thread::sleep(std::time::Duration::from_millis(50));
            client
        })
        .collect();
    for _ in 0..3 {
        let mut next = server.connect();
        assert_eq!(next.get("/").status, 200);
        // The oldest was closed, and no other.
        assert!(idle.remove(0).is_closed_in_silence());
        idle.push(next);
        assert_eq!(idle[0].get("/").status, 200, "the second oldest lives");
        idle.rotate_left(1);
    }
    busy.send(b"hello").expect("open");
    assert_eq!(busy.answer().text(), "hello");
}

/// Purpose: of a full server whose connections are idle, several clients that come at once get their places soon, although only
/// a few connections are closed at a time and nothing else happens.
fn idle_connections_make_room_for_several(transport: Transport) {
    const CONNECTIONS: usize = 64;
    let server = transport.serve(&["--connections-max", "64", "--idle-timeout", "600s"]);
    let _idle: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client
        })
        .collect();
    thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let mut others: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    for client in &mut others {
        client.send(get("/")).expect("open");
    }
    for client in &mut others {
        client.set_patience(Duration::from_secs(5));
        let answer = client.try_answer();
        assert!(matches!(answer, Ok(Some(Answer { status: 200, .. }))), "{answer:?}");
    }
    println!("{transport:?}: five more after {:?}", begun.elapsed());
}
