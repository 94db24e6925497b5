//! Panics and invalid answers: each ends or corrects one request, and nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::Duration;

use highwater_testkit::{Answer, Client, PATIENCE, Process, get, program, within};

use crate::{Transport, on_each_transport};

on_each_transport!(
    a_panic_ends_one_request,
    what_is_left_behind_may_panic,
    upgrades_may_panic,
    invalid_answers_are_never_sent,
    upgrades_have_to_be_asked_for,
    upgrades_have_no_content,
    a_log_that_is_not_read_stops_nobody,
);

/// The answer to a `GET`, if there is one.
fn ask(client: &mut Client, path: &str) -> Option<Answer> {
    client.send(get(path)).ok()?;
    client.try_answer().ok().flatten()
}

/// The one worker still serves.
fn assert_alive(server: &Process, after: &str) {
    let answer = ask(&mut server.connect(), "/");
    let log = || server.log().lines().rev().take(5).map(String::from).collect::<Vec<_>>();
    assert_eq!(answer.map(|answer| answer.status), Some(200), "after {after}: {:?}", log());
}

/// Purpose: a panic while an answer is made, or in a value that is dropped then, becomes a 500, or
/// does not affect an answer that is already made; the connection and its worker continue. Each is
/// counted, and logged with its route.
fn a_panic_ends_one_request(transport: Transport) {
    let server = transport.serve(&[]);
    let cases = [
        ("payload", 500),
        ("payload-async", 500),
        ("payload-blocking", 500),
        ("argument", 500),
        ("argument-async", 500),
        ("argument-blocking", 500),
        ("future", 500),
        ("hold-limited", 503),
        ("error", 500),
        ("error-async", 500),
        ("error-blocking", 500),
        ("stream", 200),
        ("stream-async", 200),
        ("bytes", 200),
        ("bytes-async", 200),
        ("bytes-large", 200),
        ("spawned", 200),
        ("before/x", 500),
        ("after/x", 500),
        ("errors/x", 409),
        ("middleware/x", 500),
        ("extension/x", 500),
        ("extension-async/x", 500),
    ];
    for (path, status) in cases {
        let mut client = server.connect();
        for _ in 0..2 {
            let answer = ask(&mut client, &format!("/bomb/{path}"));
            let answer = answer.unwrap_or_else(|| panic!("{path}: {}", server.log()));
            assert_eq!((answer.status, answer.header("connection")), (status, None), "{path}");
        }
        assert_alive(&server, path);
    }
    let is_logged = |path: &str| server.log().contains(&format!("route=/bomb/{path}"));
    assert!(within(PATIENCE, || is_logged("payload")), "{}", server.log());
    // All but the one of a task, which is Tokio's to catch.
    let expected = 2.0 * (cases.len() - 1) as f64;
    let counted = server.metric("http_handler_panics_total");
    assert!(counted >= expected, "{counted} of at least {expected}");
}

/// Purpose: content that panics or fails resets its connection. Values that are dropped because a client has
/// disconnected, or because the server ends, may panic as well.
fn what_is_left_behind_may_panic(transport: Transport) {
    let mut server = transport.serve(&["--drain-timeout", "1s"]);
    for path in ["payload-stream", "stream-fails"] {
        let mut client = server.connect();
        client.send(get(&format!("/bomb/{path}"))).expect("open");
        assert!(client.try_answer().is_err(), "{path}: it is cut off");
        assert_alive(&server, path);
    }
    for path in ["hold", "hold-detached", "stream-waits", "stream-piece"] {
        let clients: Vec<Client> = (0..10)
            .map(|_| {
                let mut client = server.connect();
                client.send(get(&format!("/bomb/{path}"))).expect("open");
                client
            })
            .collect();
        assert_alive(&server, path); // Behind this, all of them have begun.
        clients.into_iter().for_each(Client::reset);
        assert!(
            within(PATIENCE, || server.metric("http_connections_active") == 0.0),
            "{path}: {}",
            server.metric("http_connections_active")
        );
        assert_alive(&server, path);
    }
    let mut client = server.connect();
    client.send(get("/bomb/hold")).expect("open");
    assert_alive(&server, "hold");
    server.signal("TERM");
    let status = server.ends_within(PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", server.log());
}

/// Purpose: an upgrade that panics, in its closure or in its future, resets its connection and no
/// other; a future that panics when it is dropped does no harm.
fn upgrades_may_panic(transport: Transport) {
    let server = transport.serve(&[]);
    let ask = |path: &str| {
        let mut client = server.connect();
        let fields = "Host: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n";
        client.send(format!("GET /bomb/{path} HTTP/1.1\r\n{fields}\r\n").as_bytes()).expect("open");
        client
    };
    for path in ["upgrade", "upgraded"] {
        assert!(ask(path).rest().is_err(), "{path}: a reset");
        assert_alive(&server, path);
    }
    let mut client = ask("upgraded-holds");
    assert_eq!(client.answer().status, 101);
    client.reset();
    assert!(within(PATIENCE, || server.metric("http_connections_active") == 0.0));
    assert_alive(&server, "upgraded-holds");
}

/// Purpose: an answer that HTTP does not allow becomes a 500, the next answer of the connection
/// follows at its place, and the log says what to write instead.
fn invalid_answers_are_never_sent(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    let refused = [
        "/say/100",
        "/say/101",
        "/say/103",
        "/say/199",
        "/say-later/100",
        "/say-later/101",
        "/say/204/content",
        "/say/205/content",
        "/say/304/content",
        "/say-chunked",
        "/say-length",
        "/say-lines",
    ];
    for path in refused {
        client.send([get(path), get("/")].concat()).expect("open");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (500, None), "{path}");
        assert_eq!(client.answer().text(), "OK", "behind {path}");
    }
    for (path, status, length) in
        [("/say/204", 204, None), ("/say/205", 205, Some("0")), ("/say/304", 304, None)]
    {
        client.send([get(path), get("/")].concat()).expect("open");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("content-length")), (status, length), "{path}");
        assert_eq!(client.answer().text(), "OK", "behind {path}");
    }
    let teaches = || server.log().contains("return a status from 200 on");
    assert!(within(PATIENCE, teaches), "{}", server.log());
}

/// Purpose: a client that did not ask for another protocol is not switched to it (RFC 9110 §7.8),
/// and the answer names the available one.
fn upgrades_have_to_be_asked_for(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    for fields in [
        "",
        "Upgrade: echo\r\n",
        "Connection: upgrade\r\n",
        "Connection: upgrade\r\nUpgrade: other\r\n",
    ] {
        let request = format!("GET /upgrade HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        client.send(request.as_bytes()).expect("open");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("upgrade")), (426, Some("echo")), "{fields:?}");
        assert_eq!(answer.header("connection"), Some("upgrade"), "{fields:?}");
    }
    assert_eq!(client.get("/").status, 200);
}

/// Purpose: a request with content that its handler does not read is not upgraded, whether its content comes with its head or
/// behind it; the content is never taken for a request, nor for the other protocol.
fn upgrades_have_no_content(transport: Transport) {
    let server = transport.serve(&[]);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
    for (fields, content, status) in [
        ("", String::new(), 101),
        ("Content-Length: 0\r\n", String::new(), 101),
        (&*format!("Content-Length: {}\r\n", hidden.len()), hidden.to_owned(), 400),
        (
            "Transfer-Encoding: chunked\r\n",
            format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
            400,
        ),
    ] {
        let head = format!(
            "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n{fields}\r\n"
        );
        let whole = format!("{head}{content}");
        for (first, second) in [(&*whole, ""), (&*head, &*content)] {
            let mut client = server.connect();
            client.send(first.as_bytes()).expect("open");
            assert_eq!(client.answer().status, status, "{first:?}");
            if status == 400 {
                client.send(second.as_bytes()).expect("open");
                assert_eq!(client.get("/").status, 200, "behind {second:?}");
            }
        }
    }
}

/// Purpose: when standard error is a pipe that nobody reads, a panic does not keep its worker waiting.
fn a_log_that_is_not_read_stops_nobody(transport: Transport) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut command = program(env!("CARGO_BIN_EXE_strained"));
    command.args(["--listen", "127.0.0.1:0", "--metrics", "off", "--workers", "1"]);
    command.args(["--transport", transport.name(), "--shed", "none"]);
    let mut child = command.stderr(writer.try_clone().expect("a descriptor is left")).spawn();
    let mut lines = BufReader::new(&reader).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains(" serving ")).expect("it serves");
    let address = line.split_once("address=").and_then(|(_, rest)| rest.split(' ').next());
    let address = address.and_then(|address| address.parse().ok()).expect("it says where");
    // From here on nobody reads.
    let full = std::thread::spawn(move || while writer.write_all(&[b'\n'; 512]).is_ok() {});
    std::thread::sleep(Duration::from_millis(200));
    let connect = || Client::try_connect(address).expect("it listens");
    let answers: Vec<_> = (0..3).map(|_| ask(&mut connect(), "/panic")).collect();
    let last = ask(&mut connect(), "/");
    if let Ok(child) = &mut child {
        let _ = child.kill();
        let _ = child.wait();
    }
    drop(reader);
    full.join().expect("it does not panic");
    let statuses: Vec<_> = answers.into_iter().map(|answer| answer.map(|a| a.status)).collect();
    assert_eq!(statuses, [Some(500); 3]);
    assert_eq!(last.map(|answer| answer.status), Some(200));
}
