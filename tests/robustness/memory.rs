//! Memory: what cheap bytes of a client may cost the server.

use std::thread;
use std::time::Duration;

use highwater_testkit::{Client, PATIENCE, Process, get, within};
use highwater_tests::server::warm_up;

use crate::{Transport, on_each_transport};

on_each_transport!(
    chunks_of_one_byte,
    uploads_that_are_read_slowly,
    repeated_bodies_that_are_not_read,
    large_pieces_are_not_copied,
    chunks_around_large_pieces,
    bodies_of_all_connections,
);

/// How long the server's memory is watched after the clients have done what they do.
const WATCHED: Duration = Duration::from_millis(1500);

/// Has `count` clients do what `strike` does, and keeps them; answers what each costs the server, in
/// KiB, at the worst.
fn cost(server: &Process, count: usize, mut strike: impl FnMut() -> Client) -> f64 {
    warm_up(server);
    let before = server.resident_kib();
    let clients: Vec<Client> = (0..count).map(|_| strike()).collect();
    let mut peak = 0;
    for _ in 0..15 {
        thread::sleep(WATCHED / 15);
        peak = peak.max(server.resident_kib());
    }
    drop(clients);
    peak.saturating_sub(before) as f64 / count as f64
}

/// Sends as much of `bytes` as the server and both kernels take.
fn send_some(client: &mut Client, bytes: &[u8]) {
    let timeout = Some(Duration::from_millis(50));
    client.stream().set_write_timeout(timeout).expect("a timeout that is not zero");
    // What is not taken in time is not sent.
    let _ = client.send(bytes);
}

/// Purpose: 64 KiB of content in chunks of one byte cost the server what 64 KiB cost, not thirty times
/// that.
fn chunks_of_one_byte(transport: Transport) {
    const COUNT: usize = 200;
    let server = transport.serve(&[]);
    let chunks = b"1\r\nx\r\n".repeat(64 * 1024);
    let each = cost(&server, COUNT, || {
        let mut client = server.connect();
        let head = "POST /slow?ms=60000 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(head.as_bytes()).expect("open");
        send_some(&mut client, &chunks);
        client
    });
    println!("{transport:?}: {COUNT} bodies in chunks of one byte, {each:.0} KiB each");
    assert!(each <= 256.0, "{each:.0} KiB each");
}

/// Purpose: an upload whose handler reads slowly costs the bound on waiting content and about one
/// receive buffer, however much its client sends.
fn uploads_that_are_read_slowly(transport: Transport) {
    const COUNT: usize = 200;
    let server = transport.serve(&[]);
    let content = vec![b'x'; 1 << 20];
    let each = cost(&server, COUNT, || {
        let mut client = server.connect();
        let head = "POST /slow?ms=100 HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n";
        client.send(head.as_bytes()).expect("open");
        send_some(&mut client, &content);
        client
    });
    println!("{transport:?}: {COUNT} uploads that are read slowly, {each:.0} KiB each");
    assert!(each <= 160.0, "{each:.0} KiB each");
}

/// Purpose: a client that sends without reading the answers fills the buffers in both directions
/// once, and no more.
fn repeated_bodies_that_are_not_read(transport: Transport) {
    const COUNT: usize = 50;
    let server = transport.serve(&[]);
    let content = vec![b'x'; 8 << 20];
    let each = cost(&server, COUNT, || {
        let mut client = Client::connect_small(server.address, 32 * 1024);
        let head = "POST /repeat HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n";
        client.send(head.as_bytes()).expect("open");
        send_some(&mut client, &content);
        client
    });
    println!("{transport:?}: {COUNT} repeated bodies that are not read, {each:.0} KiB each");
    assert!(each <= 448.0, "{each:.0} KiB each");
}

/// Purpose: shared pieces are sent without a copy: a client that does not read them does not cost a
/// copy of 4 MiB.
fn large_pieces_are_not_copied(transport: Transport) {
    const COUNT: usize = 20;
    let server = transport.serve(&[]);
    // The first request makes the shared piece.
    assert_eq!(server.get("/blocks?bytes=4194304").body.len(), 4 << 20);
    let each = cost(&server, COUNT, || {
        let mut client = Client::connect_small(server.address, 32 * 1024);
        client.send(get("/blocks?bytes=1000000000")).expect("open");
        client
    });
    println!("{transport:?}: {COUNT} readers of 4 MiB pieces that do not read, {each:.0} KiB each");
    assert!(each <= 512.0, "{each:.0} KiB each");
}

/// Purpose: content around pieces that are not copied is framed like any other content, wherever
/// the last piece ends, and the next answer is found behind it.
fn chunks_around_large_pieces(transport: Transport) {
    let server = transport.serve(&[]);
    let mut client = server.connect();
    for bytes in [1, 70_000, (4 << 20) + 1, 9 << 20] {
        let answer = client.get(&format!("/blocks?bytes={bytes}"));
        assert_eq!((answer.status, answer.body.len()), (200, bytes));
        assert!(answer.body.iter().all(|&byte| byte == b'z'));
        assert_eq!(client.get("/").text(), "OK");
    }
}

/// Purpose: collected bodies cost the server no more than `--body-memory-max` together: further clients get
/// 503 with `Retry-After`, requests without a body are not affected, and all is as before once the others
/// have ended.
fn bodies_of_all_connections(transport: Transport) {
    let server = transport.serve(&["--body-memory-max", "4MiB"]);
    let collected = |length: usize| {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        let mut client = server.connect();
        client.send(head.as_bytes()).expect("open");
        client
    };
    let half: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = collected(1 << 20);
            // The server may have refused the body before it has taken everything.
            send_some(&mut client, &vec![b'x'; 512 * 1024]);
            client
        })
        .collect();
    let (mut refused, mut kept) = (0, Vec::new());
    for mut client in half {
        client.set_patience(Duration::from_millis(100));
        match client.try_answer() {
            Ok(Some(answer)) => {
                assert_eq!(answer.status, 503, "{answer:?}");
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
                refused += 1;
            }
            _ => kept.push(client),
        }
        assert_eq!(server.get("/").status, 200, "a request without a body");
    }
    println!("{transport:?}: {refused} of 40 bodies refused");
    assert!((28..40).contains(&refused), "{refused} refused");
    let counted = server.metric("http_rejections_total{layer=\"request\",reason=\"memory\"}");
    assert_eq!(counted as usize, refused);
    let held = || server.metric("http_body_memory_bytes");
    assert!((1.0..=f64::from(4 << 20)).contains(&held()), "{} held", held());

    let whole = |path: &str| {
        let mut client = server.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
        client.send(head.as_bytes()).expect("open");
        // It may be refused before all of it is taken.
        let _ = client.send(vec![b'x'; 1_000_000]);
        client.answer().status
    };
    assert_eq!(whole("/stream"), 200, "what is streamed needs next to nothing");
    drop(kept);
    assert!(within(PATIENCE, || held() == 0.0), "{} are left", held());
    assert_eq!(whole("/"), 200);
    assert!(within(PATIENCE, || held() == 0.0), "{} are left", held());
}
