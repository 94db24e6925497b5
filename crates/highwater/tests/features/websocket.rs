//! WebSockets, as applications use them: in process, with time under control.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use highwater::testing::{Client, Received, Setup};
use highwater::websocket::{
    Broadcast, CloseCode, End, Message, SlowClient, TrySendError, WebSocketSender,
};
use highwater::{
    Closed, Error, Handler, Path, Response, Router, State, StatusCode, WebSocket, WebSocketUpgrade,
    websocket,
};
use tokio::time::sleep;

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

fn client() -> Client {
    Client::new(Router::new().get("/ws", websocket(echo)))
}

/// The code of the close frame that comes next, after messages and pings.
#[track_caller]
fn close_code(socket: &mut highwater::testing::WebSocket<'_>) -> Option<u16> {
    loop {
        match socket.recv_any() {
            Some(Received::Close(close)) => return close.map(|close| close.code.0),
            Some(_) => {}
            None => panic!("it ended without a close frame"),
        }
    }
}

/// Purpose: text and bytes come back as they were, of every length whose header differs, however the bytes are cut.
#[test]
fn echoes() {
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut setup = Setup::new(Router::new().get("/ws", websocket(echo)));
        if let Some(seed) = seed {
            setup = setup.seed(seed);
        }
        let client = setup.start();
        let mut socket = client.websocket("/ws");
        for len in [0, 1, 5, 125, 126, 127, 65_535, 65_536, 200_000] {
            let text: Message = "é".repeat(len / 2).into();
            let bytes: Message = vec![0xff_u8; len].into();
            socket.send(text.clone());
            socket.send(bytes.clone());
            assert_eq!(socket.recv(), Some(text));
            assert_eq!(socket.recv(), Some(bytes));
        }
        socket.close(CloseCode(4321), "done");
        assert_eq!(close_code(&mut socket), Some(4321));
        assert_eq!(socket.recv_any(), None);
    }
}

/// Purpose: a message limit is met at, and not beyond; so is a frame's; the client is told with 1009.
#[test]
fn limits() {
    let endpoint = websocket(echo).message_max(100).frame_max(60);
    let client = Client::new(Router::new().get("/ws", endpoint));
    for (frames, fits) in [(&[60, 40][..], true), (&[60, 41], false), (&[60], true), (&[61], false)]
    {
        let mut socket = client.websocket("/ws");
        let mut bytes = Vec::new();
        for (at, len) in frames.iter().enumerate() {
            let is_last = at + 1 == frames.len();
            bytes.push(if at == 0 { 0x02 } else { 0 } | if is_last { 0x80 } else { 0 });
            bytes.extend_from_slice(&[0x80 | *len as u8, 0, 0, 0, 0]);
            bytes.resize(bytes.len() + len, b'x');
        }
        socket.send_bytes(&bytes);
        if fits {
            assert_eq!(socket.recv().map(|message| message.len()), Some(frames.iter().sum()));
        } else {
            assert_eq!(close_code(&mut socket), Some(1009), "{frames:?}");
        }
    }
}

/// Purpose: requests that are no handshakes get the status that the documentation says, and the fields that say how.
#[test]
fn refused_handshakes() {
    let client = client();
    let ask = |changed: &str, value: Option<&str>| {
        let mut request = client.request(http("GET"), "/ws");
        for (name, usual) in [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            match value {
                _ if name != changed => request = request.header(name, usual),
                Some(value) => request = request.header(name, value),
                None => {}
            }
        }
        request.send()
    };
    assert_eq!(ask("", None).status, 101);
    for (name, value, status) in [
        ("upgrade", None, 426),
        ("upgrade", Some("h2c"), 426),
        ("connection", Some("keep-alive"), 400),
        ("sec-websocket-version", None, 426),
        ("sec-websocket-version", Some("8"), 426),
        ("sec-websocket-key", None, 400),
        ("sec-websocket-key", Some("c2hvcnQ="), 400),
    ] {
        let response = ask(name, value);
        assert_eq!(response.status, status, "{name}: {value:?}");
        if status == 426 {
            assert_eq!(response.header("upgrade"), Some("websocket"));
            assert_eq!(response.header("connection"), Some("upgrade"));
        }
        let version = response.header("sec-websocket-version");
        assert_eq!(version, (name == "sec-websocket-version").then_some("13"));
    }
}

fn http(name: &str) -> highwater::Method {
    name.parse().expect("it is a method")
}

/// Purpose: pages of other origins may connect only where that was said: a browser would send their visitor's cookies.
#[test]
fn origins() {
    let client = Client::new(
        Router::new()
            .get("/same", websocket(echo))
            .get("/listed", websocket(echo).origins(["https://app.example"]))
            .get("/any", websocket(echo).any_origin()),
    );
    let status = |target: &str, origin: &str| {
        let request = client.request(http("GET"), target).header("host", "example:8080");
        let request = request.header("connection", "upgrade").header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "13");
        let request = request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        request.header("origin", origin).send().status.as_u16()
    };
    for (target, origin, expected) in [
        ("/same", "http://example:8080", 101),
        ("/same", "http://EXAMPLE:8080", 101),
        ("/same", "http://example", 403),
        ("/same", "http://evil.example:8080", 403),
        ("/same", "null", 403),
        ("/listed", "https://app.example", 101),
        ("/listed", "http://app.example", 403),
        ("/listed", "http://example:8080", 101),
        ("/any", "https://evil.example", 101),
    ] {
        assert_eq!(status(target, origin), expected, "{origin} at {target}");
    }
    assert!(client.websocket("/same").protocol().is_none(), "no browser, no origin");
}

/// Purpose: the server's preference decides among the protocols that the client offers; without a common one there is none.
#[test]
fn protocols() {
    let endpoint = websocket(|socket: WebSocket| async move {
        let protocol = socket.protocol().unwrap_or("none").to_owned();
        let _ = socket.sender().send(protocol).await;
    });
    let client = Client::new(Router::new().get("/ws", endpoint.protocols(["v2", "v1"])));
    for (offered, expected) in [("v1, v2", Some("v2")), ("v1", Some("v1")), ("v3", None)] {
        let request = client.request(http("GET"), "/ws").header("sec-websocket-protocol", offered);
        let mut socket = request.websocket();
        assert_eq!(socket.protocol(), expected);
        assert_eq!(socket.recv().unwrap().as_text(), Some(expected.unwrap_or("none")));
    }
}

/// Purpose: a client that breaks a rule is closed with the code of that rule, and its handler ends.
#[test]
fn hostile_clients() {
    let client = client();
    for (name, bytes, code) in [
        ("unmasked", &[0x81, 0x01, b'x'][..], 1002),
        ("a reserved bit", &[0xc1, 0x80, 0, 0, 0, 0], 1002),
        ("a reserved opcode", &[0x83, 0x80, 0, 0, 0, 0], 1002),
        ("a fragmented ping", &[0x09, 0x80, 0, 0, 0, 0], 1002),
        ("a long ping", &[0x89, 0xfe, 0, 126, 0, 0, 0, 0], 1002),
        ("a continuation of nothing", &[0x80, 0x80, 0, 0, 0, 0], 1002),
        ("a length in too long a form", &[0x82, 0xfe, 0, 5, 0, 0, 0, 0], 1002),
        ("text that is not UTF-8", &[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        ("half a character", &[0x81, 0x81, 0, 0, 0, 0, 0xc3], 1007),
        ("a close code that must not be sent", &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xee], 1002),
        ("half a close code", &[0x88, 0x81, 0, 0, 0, 0, 0x03], 1002),
        ("2^63 bytes", &[0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0], 1009),
    ] {
        let mut socket = client.websocket("/ws");
        socket.send_bytes(bytes);
        assert_eq!(close_code(&mut socket), Some(code), "{name}");
        assert_eq!(socket.recv_any(), None, "{name}: nothing follows");
    }
    client.advance(Duration::from_secs(60));
    assert_eq!(client.connections(), 0);
}

/// Purpose: pings are answered while the handler waits for something else, with their payload, and in order.
#[test]
fn pings_are_answered() {
    let endpoint = websocket(|socket: WebSocket| async move {
        sleep(Duration::from_secs(3600)).await;
        drop(socket);
    });
    let client = Client::new(Router::new().get("/ws", endpoint));
    let mut socket = client.websocket("/ws");
    for payload in [&b""[..], b"one", &[7; 125]] {
        socket.ping(payload);
    }
    for payload in [&b""[..], b"one", &[7; 125]] {
        assert_eq!(socket.try_recv_any(), Some(Received::Pong(payload.to_vec())));
    }
}

/// Purpose: a silent client is pinged; one that answers stays for days, one that has lost its network is given up, and its
/// handler learns of that.
#[test]
fn silent_clients() {
    let ends = Arc::new(AtomicU32::new(0));
    let endpoint =
        websocket(|mut socket: WebSocket, State(ends): State<Arc<AtomicU32>>| async move {
            assert_eq!(socket.recv().await, None);
            assert_eq!(socket.end(), Some(End::Unanswered));
            ends.fetch_add(1, SeqCst);
        });
    let alive = self::client();
    let mut socket = alive.websocket("/ws");
    for _ in 0..100 {
        assert_eq!(socket.recv_any(), Some(Received::Ping(Vec::new())));
    }
    let client = Client::new(Router::new().state(ends.clone()).get("/ws", endpoint));
    let mut lost = client.websocket("/ws");
    lost.ignore_pings();
    client.advance(Duration::from_secs(31));
    assert_eq!(lost.try_recv_any(), Some(Received::Ping(Vec::new())));
    client.advance(Duration::from_secs(18));
    assert!(!lost.is_closed());
    client.advance(Duration::from_secs(3));
    assert!(lost.is_reset());
    assert_eq!(ends.load(SeqCst), 1);
}

/// Purpose: a connection on which nobody says anything is closed if the endpoint wants that; messages of either side
/// keep it, and pongs do not.
#[test]
fn idle_connections() {
    let minute = Duration::from_secs(60);
    let client = Client::new(Router::new().get("/ws", websocket(echo).idle_timeout(minute)));
    let mut socket = client.websocket("/ws");
    for _ in 0..5 {
        client.advance(Duration::from_secs(50));
        socket.send("still here");
        assert!(socket.recv().is_some());
    }
    assert_eq!(close_code(&mut socket), Some(1001));
}

/// Purpose: the end of a handler is the end of its connection: 1000 if it returns, 1011 if it fails or panics.
#[test]
fn handlers_end() {
    async fn end(_socket: WebSocket, Path(how): Path<String>) -> Result<(), Error> {
        match how.as_str() {
            "panic" => panic!("intended"),
            "fail" => Err(Error::internal("intended")),
            _ => Ok(()),
        }
    }
    let client = Client::new(Router::new().get("/{how}", websocket(end)));
    for (how, code) in [("/return", 1000), ("/fail", 1011), ("/panic", 1011)] {
        let mut socket = client.websocket(how);
        assert_eq!(close_code(&mut socket), Some(code), "{how}");
        socket.close(CloseCode(code), "");
        assert_eq!(socket.recv_any(), None);
        assert!(!socket.is_reset(), "the closing handshake was kept");
    }
    assert_eq!(client.connections(), 0);
}

/// Purpose: a close frame that nobody answers is waited for, and not for ever.
#[test]
fn unanswered_close_frames() {
    let endpoint = websocket(|mut socket: WebSocket| async move {
        socket.close(CloseCode::POLICY, "enough").await;
        assert_eq!(socket.end(), Some(End::Unanswered));
    });
    let client = Client::new(Router::new().get("/ws", endpoint));
    let mut socket = client.websocket("/ws");
    assert_eq!(close_code(&mut socket), Some(1008));
    client.advance(Duration::from_secs(4));
    assert!(!socket.is_closed());
    client.advance(Duration::from_secs(2));
    assert!(socket.is_reset());
}

/// Purpose: a server that drains says 1001 to every client, waits for theirs, and lets handlers end.
#[test]
fn drains() {
    let client = client();
    let mut sockets: Vec<_> = (0..3).map(|_| client.websocket("/ws")).collect();
    client.drain();
    for socket in &mut sockets {
        assert_eq!(close_code(socket), Some(1001));
        assert!(!socket.is_closed(), "the client has not answered yet");
        socket.close(CloseCode::GOING_AWAY, "");
        assert_eq!(socket.recv_any(), None);
        assert!(!socket.is_reset());
    }
    drop(sockets);
    assert_eq!(client.connections(), 0);
}

/// Purpose: what follows a handler's loop runs even if its client has reset the connection, and what it awaits there is
/// awaited; a handler that never looks at its socket does not stay for ever.
#[test]
fn clients_that_go() {
    let left = Arc::new(AtomicU32::new(0));
    let endpoint =
        websocket(|mut socket: WebSocket, State(left): State<Arc<AtomicU32>>| async move {
            while socket.recv().await.is_some() {}
            sleep(Duration::from_secs(1)).await; // … takes itself off a list in a database
            left.fetch_add(1, SeqCst);
        });
    let client = Client::new(Router::new().state(left.clone()).get("/ws", endpoint));
    drop(client.websocket("/ws"));
    client.advance(Duration::from_millis(500));
    assert_eq!((left.load(SeqCst), client.connections()), (0, 0));
    client.advance(Duration::from_secs(1));
    assert_eq!(left.load(SeqCst), 1);
    let mut polite = client.websocket("/ws");
    polite.finish();
    client.advance(Duration::from_secs(2));
    assert_eq!(left.load(SeqCst), 2, "the end without a close frame is an end, too");

    let forever = Arc::new(());
    let held = forever.clone();
    let endpoint = websocket(move |socket: WebSocket| {
        let held = held.clone();
        async move {
            let _held = (held, socket);
            std::future::pending::<()>().await;
        }
    });
    let client = Client::new(Router::new().get("/ws", endpoint));
    drop(client.websocket("/ws"));
    client.advance(Duration::from_secs(29));
    assert_eq!(Arc::strong_count(&forever), 3);
    client.advance(Duration::from_secs(2));
    assert_eq!(Arc::strong_count(&forever), 2);
}

/// Purpose: a client that does not read makes senders wait at the named limit, and the handler stops reading; when it reads,
/// everything comes in order.
#[test]
fn slow_clients() {
    let sent = Arc::new(AtomicU32::new(0));
    let endpoint =
        websocket(|mut socket: WebSocket, State(sent): State<Arc<AtomicU32>>| async move {
            while socket.send(vec![0_u8; 1000]).await.is_ok() {
                sent.fetch_add(1, SeqCst);
            }
        });
    let endpoint = endpoint.send_buffer_max(10_000);
    let client = Client::new(Router::new().state(sent.clone()).get("/ws", endpoint));
    let mut slow = client.connect_slow(1000);
    slow.send(
        "GET /ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    client.advance(Duration::from_secs(5));
    let first = sent.load(SeqCst);
    assert!((10..200).contains(&first), "{first} KiB are on their way");
    for _ in 0..200 {
        slow.read(1000);
    }
    assert!(sent.load(SeqCst) > first + 100);
    client.advance(Duration::from_secs(40));
    assert!(slow.is_reset(), "it has taken nothing for the write timeout");
}

/// Purpose: a handler that is slow slows its client down: no more is read than its buffer holds, pings wait unread without
/// the client being given up, and nothing is lost.
#[test]
fn slow_handlers() {
    let endpoint = websocket(|mut socket: WebSocket| async move {
        sleep(Duration::from_secs(300)).await;
        let mut count = 0_u64;
        while let Some(message) = socket.recv().await {
            if message.as_text() == Some("end") {
                let _ = socket.send(count.to_string()).await;
            }
            count += 1;
        }
    });
    let endpoint = endpoint.receive_buffer_max(10_000);
    let client = Client::new(Router::new().get("/ws", endpoint));
    let mut socket = client.websocket("/ws");
    for _ in 0..1000 {
        socket.send(vec![0_u8; 1000]);
    }
    socket.send("end");
    client.advance(Duration::from_secs(290));
    assert!(!socket.is_closed());
    assert_eq!(socket.recv().unwrap().as_text(), Some("1000"));
}

/// Purpose: what a client has said before its close frame, or before the end of the connection, is answered, although its
/// handler takes a while; then comes the close frame. A handler that never answers holds that up for five seconds.
#[test]
fn close_frames_wait_for_answers() {
    let endpoint = websocket(|mut socket: WebSocket| async move {
        while let Some(message) = socket.recv().await {
            sleep(Duration::from_secs(if message.len() > 3 { 100 } else { 1 })).await;
            if socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let client = Client::new(Router::new().get("/ws", endpoint));
    for closes in [true, false] {
        let mut socket = client.websocket("/ws");
        socket.send("one");
        socket.send("two");
        if closes {
            socket.close(CloseCode::NORMAL, "");
        }
        socket.finish();
        assert_eq!(socket.recv().unwrap().as_text(), Some("one"));
        assert_eq!(socket.recv().unwrap().as_text(), Some("two"));
        match closes {
            true => assert_eq!(close_code(&mut socket), Some(1000)),
            false => assert_eq!(socket.recv_any(), None),
        }
        assert!(!socket.is_reset());
    }
    let mut socket = client.websocket("/ws");
    socket.send("long");
    socket.close(CloseCode::NORMAL, "");
    client.advance(Duration::from_secs(4));
    assert_eq!(socket.try_recv_any(), None);
    client.advance(Duration::from_secs(2));
    assert_eq!(close_code(&mut socket), Some(1000));
}

/// Purpose: halves go to two tasks of the worker, and what is not `Send` may stay in them.
#[test]
fn halves() {
    let endpoint = websocket(|socket: WebSocket| async move {
        let (sender, mut receiver) = socket.split();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let list = seen.clone();
        let reading = tokio::task::spawn_local(async move {
            while let Some(message) = receiver.recv().await {
                list.borrow_mut().push(message.len());
            }
        });
        for number in 0..3 {
            sleep(Duration::from_secs(1)).await;
            let _ = sender.send(format!("tick {number}: {:?}", seen.borrow())).await;
        }
        sender.close(CloseCode::NORMAL, "");
        let _ = reading.await;
    });
    let client = Client::new(Router::new().get("/ws", endpoint));
    let mut socket = client.websocket("/ws");
    socket.send("one");
    assert_eq!(socket.recv().unwrap().as_text(), Some("tick 0: [3]"));
    socket.send("three");
    assert_eq!(socket.recv().unwrap().as_text(), Some("tick 1: [3, 5]"));
    assert_eq!(socket.recv().unwrap().as_text(), Some("tick 2: [3, 5]"));
    assert_eq!(close_code(&mut socket), Some(1000));
}

/// Purpose: all members of a group get each message once; those that leave get none, and one that does not read is closed
/// or skipped, without holding up the others.
#[test]
fn broadcasts() {
    async fn chat(mut socket: WebSocket, State(room): State<Broadcast>) {
        let _member = room.join(&socket);
        while let Some(message) = socket.recv().await {
            room.send(message);
        }
    }
    for slow_client in [SlowClient::Close, SlowClient::Skip] {
        let room = Broadcast::new(slow_client);
        let endpoint = websocket(chat).send_buffer_max(20_000);
        let client = Client::new(Router::new().state(room.clone()).get("/ws", endpoint));
        let mut members: Vec<_> = (0..10).map(|_| client.websocket("/ws")).collect();
        let mut stuck = client.connect_slow(100);
        stuck.send(
            "GET /ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        assert_eq!(room.len(), 11);
        let large = vec![7_u8; 9000];
        for round in 0..50 {
            members[round % 10].send(large.clone());
            for member in &mut members {
                assert_eq!(member.recv().map(|message| message.len()), Some(9000), "{round}");
            }
        }
        client.advance(Duration::from_secs(10));
        assert_eq!(room.len(), if slow_client == SlowClient::Close { 10 } else { 11 });
        members.pop();
        client.advance(Duration::from_secs(1));
        assert_eq!(room.send("bye"), 9);
        for member in &mut members {
            assert_eq!(member.recv().unwrap().as_text(), Some("bye"));
        }
        drop((members, stuck));
        client.advance(Duration::from_secs(1));
        assert!(room.is_empty());
    }
}

/// Purpose: a route's limit counts sockets until they end, not until their handshakes do; without a place, 503.
#[test]
fn limited_routes() {
    for is_extractor in [false, true] {
        async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
            sleep(Duration::from_millis(1)).await;
            upgrade.on_upgrade(echo)
        }
        let router = match is_extractor {
            false => Router::new().get("/ws", websocket(echo).concurrency_limit(2)),
            true => Router::new().get("/ws", upgrade.concurrency_limit(2)),
        };
        let client = Client::new(router);
        let first = client.websocket("/ws");
        let _second = client.websocket("/ws");
        client.advance(Duration::from_secs(10));
        let request = client.request(http("GET"), "/ws").header("connection", "upgrade");
        let request = request.header("upgrade", "websocket").header("sec-websocket-version", "13");
        let request = request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(request.send().status, StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        let _third = client.websocket("/ws");
    }
}

/// Purpose: a sender may be anywhere and outlive its connection; what it is told then is the truth.
#[test]
fn senders_outlive() {
    #[derive(Clone, Default)]
    struct Kept(Arc<std::sync::Mutex<Option<WebSocketSender>>>);
    async fn keep(mut socket: WebSocket, State(kept): State<Kept>) {
        *kept.0.lock().unwrap() = Some(socket.sender());
        while socket.recv().await.is_some() {}
    }
    let kept = Kept::default();
    let endpoint = websocket(keep).send_buffer_max(1);
    let client = Client::new(Router::new().state(kept.clone()).get("/ws", endpoint));
    let mut socket = client.websocket("/ws");
    let sender = kept.0.lock().unwrap().take().expect("the handler runs");
    let elsewhere = std::thread::spawn(move || {
        assert_eq!(sender.try_send("from another thread"), Ok(()));
        sender
    });
    let sender = elsewhere.join().expect("it sends");
    assert_eq!(sender.try_send("too much"), Err(TrySendError::Full));
    assert_eq!(socket.recv().unwrap().as_text(), Some("from another thread"));
    assert_eq!(sender.try_send("there is room"), Ok(()));
    drop(socket);
    assert_eq!(sender.try_send("nobody"), Err(TrySendError::Closed));
    assert!(sender.is_closed());
}
