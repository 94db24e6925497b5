//! WebSocket: messages that are echoed by axum and by tungstenite, and servers that refuse, close or lie.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::routing::get;

use super::{count, file, highwater, load, serve, well};

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let answer = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            _ => Ok(()),
        };
        if answer.is_err() {
            return;
        }
    }
}

/// Pings before each answer.
async fn ping(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let is_content = matches!(message, Message::Text(_) | Message::Binary(_));
        if is_content
            && (socket.send(Message::Ping("are you there?".into())).await.is_err()
                || socket.send(message).await.is_err())
        {
            return;
        }
    }
}

/// Closes after three messages.
async fn enough(mut socket: WebSocket) {
    for _ in 0..3 {
        let Some(Ok(message)) = socket.recv().await else { return };
        let _ = socket.send(message).await;
    }
    let _ =
        socket.send(Message::Close(Some(CloseFrame { code: 1008, reason: "enough".into() }))).await;
    while let Some(Ok(_)) = socket.recv().await {}
}

/// axum, until the process ends.
fn axum() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("a socket can be");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let app = Router::new()
                .route("/echo", get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }))
                .route("/ping", get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(ping) }))
                .route(
                    "/enough",
                    get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(enough) }),
                );
            let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
            axum::serve(listener, app).await
        })
    });
    address
}

/// Purpose: messages are echoed in each loop and shape, over both drivers; what comes back is checked.
#[test]
fn echoes() {
    let address = axum();
    let url = format!("ws://{address}/echo");
    let large = file("ws-large", &vec![b'x'; 200_000]).display().to_string();
    for transport in ["auto", "epoll"] {
        let with = |more: &[&str]| {
            let fixed = [url.as_str(), "--ws", "-c", "4", "--transport", transport];
            well(&[&fixed[..], more].concat())
        };
        let json = with(&["--body", "hello", "--expect-body", "hello"]);
        assert_eq!((&json["ws"], &json["non_2xx"]), (&true.into(), &0.into()), "{json}");
        assert!(json["p50_us"].as_f64() > Some(0.0), "{json}");
        with(&["--body", "number ${seq}", "--expect-contains", "number ", "--pipeline", "8"]);
        with(&["--rate", "200", "--body", "hello"]);
        with(&["--binary", "--body-file", &large]);
        with(&["--close", "--body", "hello"]);
        with(&[]);
        let pinging = format!("http://{address}/ping");
        well(&[&pinging, "--ws", "--body", "x", "-c", "2", "--transport", transport]);
    }
    let (json, stderr, status) =
        load(&[&url, "--ws", "--body", "hello", "--expect-body", "bye", "-c", "2"]);
    assert_eq!(
        (status, count(&json, "bad_responses")),
        (4, count(&json, "sent")),
        "{stderr}{json}"
    );
}

/// Purpose: the same over TLS, by a server that is not axum.
#[test]
fn over_tls() {
    let (address, ca) = super::tls::server_of("localhost", 2100, |stream| {
        let Ok(mut socket) = tungstenite::accept(stream) else { return };
        while let Ok(message) = socket.read() {
            if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
                return;
            }
        }
    });
    let url = format!("wss://localhost:{}/", address.port());
    well(&[&url, "--ws", "--ca", &ca, "--body", "hello", "--expect-body", "hello", "-c", "2"]);
}

/// A server without TLS that answers the handshake with `head`, and the first bytes afterwards with `frames`.
fn raw(head: &'static str, frames: &'static [u8]) -> SocketAddr {
    serve(move |mut stream| {
        let mut request = [0; 4096];
        let Ok(len) = stream.read(&mut request) else { return };
        let text = String::from_utf8_lossy(&request[..len]).into_owned();
        let key = text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let accept = tungstenite::handshake::derive_accept_key(key.unwrap_or_default().as_bytes());
        let head = head.replace("ACCEPT", &accept);
        if stream.write_all(head.as_bytes()).is_ok()
            && stream.read(&mut request).is_ok_and(|len| len > 0)
        {
            let _ = stream.write_all(frames);
            while stream.read(&mut request).is_ok_and(|len| len > 0) {}
        }
    })
}

/// Purpose: each way in which a handshake or a connection fails has its counter, and a message with the reason.
#[test]
fn every_end_has_its_counter() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n";
    const NOT_MINE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\n";
    const BARE: &str =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let address = axum();
    for (url, field, words) in [
        (format!("ws://{address}/gone"), "unupgraded", "answered the handshake with 404"),
        (format!("ws://{}/", raw(NOT_MINE, b"")), "unupgraded", "Sec-WebSocket-Accept is wrong"),
        (format!("ws://{}/", raw(BARE, b"")), "unupgraded", "without Sec-WebSocket-Accept"),
        (
            format!("ws://{}/", raw(SWITCH, b"\x81\x80\x01\x02\x03\x04")),
            "malformed",
            "a server's frame is masked",
        ),
        (
            format!("ws://{}/", raw(SWITCH, b"\x82\x7f\0\0\0\0\x10\0\0\0")),
            "malformed",
            "larger than its limit",
        ),
        (
            format!("ws://{}/", raw(SWITCH, b"\x88\x02\x03\xe9")),
            "closed",
            "closed the connection with 1001",
        ),
    ] {
        for transport in ["auto", "epoll"] {
            let (json, stderr, status) =
                load(&[&url, "--ws", "--body", "x", "-c", "2", "--transport", transport]);
            assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
            assert_eq!(count(&json, field), count(&json, "sent"), "{field} of {stderr}{json}");
            assert!(stderr.contains(words), "{words:?} in {stderr}");
        }
    }
    let (json, stderr, status) =
        load(&[&format!("ws://{address}/enough"), "--ws", "--body", "x", "-c", "1"]);
    assert_eq!(status, 0, "{stderr}{json}");
    assert!(count(&json, "ws_closes") > 0, "{json}");
    assert!(
        json["ws_problem"].as_str().is_some_and(|what| what.contains("1008 \"enough\"")),
        "{json}"
    );
}

/// Purpose: connections that are held are opened beside the users', stay open and answer pings, and are no part of the
/// results; those that the server does not open, or ends, are counted.
#[test]
fn idle_connections_are_held() {
    let address = axum();
    let ask = |path: &str, idle| {
        load(&[&format!("ws://{address}{path}"), "--ws", "--body", "x", "-c", "2", "--idle", idle])
    };
    let (json, stderr, status) = ask("/echo", "100");
    assert_eq!(status, 0, "{stderr}{json}");
    assert_eq!((count(&json, "ws_idle_open"), count(&json, "ws_idle_lost")), (100, 0), "{json}");
    assert!(count(&json, "ok") > 0, "{json}");
    let (json, ..) = ask("/gone", "10");
    assert_eq!((count(&json, "ws_idle_open"), count(&json, "ws_idle_lost")), (0, 10), "{json}");
}

/// Purpose: a fragmented answer is one message.
#[test]
fn fragments_are_one_message() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n";
    let address = raw(SWITCH, b"\x01\x02he\x89\x00\x80\x03llo");
    let arguments = ["--ws", "--close", "-c", "1", "--expect-body", "hello", "--body", "x"];
    well(&[&[format!("ws://{address}/").as_str()][..], &arguments].concat());
}

/// Purpose: flags that contradict each other are refused, with what to write.
#[test]
fn wrong_flags() {
    let url = "ws://127.0.0.1:1/";
    for (arguments, words) in [
        (&[url][..], "write --ws"),
        (&[url, "--ws", "--http2", "--close", "--streams", "2"], "write --streams 1"),
        (&[url, "--ws", "--expect-status", "200"], "cannot be used with"),
        (&["http://127.0.0.1:1/", "--binary"], "--ws"),
        (&["ws://127.0.0.1:1/${seq}", "--ws"], "write them in --body"),
        (&[url, "--ws", "-H", "Upgrade: other"], "is written by --ws itself"),
        (&[url, "--ws", "--insecure"], "--insecure is for TLS"),
    ] {
        let output = highwater(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {words:?} in {stderr}");
    }
}
