//! WebSockets on the streams of HTTP/2 (RFC 8441), which Highwater echoes, plain and behind TLS; and servers that do not take them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use highwater::{Closed, Router, Running, Server, ServerConfig, WebSocket, websocket};
use highwater_core::http2::{Setting, encode};

use super::tls::server_with;
use super::{count, file, load, serve, well};

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// Ends after three messages.
async fn enough(mut socket: WebSocket) -> Result<(), Closed> {
    for _ in 0..3 {
        let Some(message) = socket.recv().await else { return Ok(()) };
        socket.send(message).await?;
    }
    Ok(())
}

fn start(router: Router) -> Running {
    let config = ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        metrics: None,
        ..ServerConfig::default()
    };
    Server::new(router).config(config).start().expect("it starts")
}

/// A server for all tests, until the process ends.
fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let page = Router::new().get("/page", || "a page");
        let running = start(page.get("/echo", websocket(echo)).get("/enough", websocket(enough)));
        let address = running.address();
        // Dropping it would stop it.
        std::mem::forget(running);
        address
    })
}

/// Purpose: messages are echoed on streams in each loop and shape, over both drivers; several sockets share a connection.
#[test]
fn echoes() {
    let url = format!("ws://{}/echo", server());
    let large = file("tunnel-large", &vec![b'x'; 200_000]).display().to_string();
    for transport in ["auto", "epoll"] {
        let with = |more: &[&str]| {
            let fixed = [url.as_str(), "--ws", "--http2", "-c", "2", "--transport", transport];
            well(&[&fixed[..], more].concat())
        };
        let json = with(&["--body", "hello", "--expect-body", "hello", "--streams", "8"]);
        assert_eq!((&json["ws"], &json["http"]), (&true.into(), &"2".into()), "{json}");
        assert!(json["p50_us"].as_f64() > Some(0.0), "{json}");
        with(&["--body", "number ${seq}", "--expect-contains", "number ", "--pipeline", "8"]);
        with(&["--rate", "200", "--body", "hello", "--streams", "4"]);
        with(&["--binary", "--body-file", &large]);
        with(&["--close", "--body", "hello"]);
    }
    let (json, stderr, status) =
        load(&[&url, "--ws", "--http2", "--body", "hello", "--expect-body", "bye", "-c", "2"]);
    assert_eq!(
        (status, count(&json, "bad_responses")),
        (4, count(&json, "sent")),
        "{stderr}{json}"
    );
}

/// Purpose: sockets that are held share connections with those of the users, and none is lost.
#[test]
fn idle_sockets_are_held() {
    let url = format!("ws://{}/echo", server());
    let (json, stderr, status) = load(&[
        &url,
        "--ws",
        "--http2",
        "--streams",
        "32",
        "-c",
        "1",
        "--body",
        "x",
        "--idle",
        "100",
    ]);
    assert_eq!(status, 0, "{stderr}{json}");
    assert_eq!((count(&json, "ws_idle_open"), count(&json, "ws_idle_lost")), (100, 0), "{json}");
}

/// Passes on what comes on either side, until one of them ends.
fn relay(mut one: impl Read + Write, mut other: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        for forward in [true, false] {
            let read = if forward { one.read(&mut buffer) } else { other.read(&mut buffer) };
            let bytes = match read {
                Ok(0) => return Ok(()),
                Ok(len) => &buffer[..len],
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if forward {
                other.write_all(bytes)?
            } else {
                one.write_all(bytes)?
            }
            one.flush()?;
        }
    }
}

/// Purpose: the same over TLS, where ALPN chooses HTTP/2.
#[test]
fn over_tls() {
    let plain = server();
    let (address, ca) = server_with("localhost", 2100, &[b"h2"], move |stream| {
        let other = TcpStream::connect(plain).expect("it listens");
        for socket in [&stream.sock, &other] {
            let wait = Some(Duration::from_millis(1));
            socket.set_read_timeout(wait).expect("a socket can be");
        }
        // The client ends without close_notify, as most do.
        let _ = relay(stream, other);
    });
    let url = format!("wss://localhost:{}/echo", address.port());
    let fixed = [url.as_str(), "--ws", "--http2", "--ca", &ca, "-c", "2", "--streams", "4"];
    let json = well(&[&fixed[..], &["--body", "hello", "--expect-body", "hello"]].concat());
    assert!(json["tls"].as_str().is_some_and(|tls| tls.starts_with("TLSv1_3")), "{json}");
}

/// Purpose: each way in which a tunnel is not opened, or ends, has its counter, and a message with the reason.
#[test]
fn every_end_has_its_counter() {
    let without = start(Router::new().get("/page", || "a page"));
    let http1 = serve(|mut stream| {
        let mut request = [0; 4096];
        if stream.read(&mut request).is_ok_and(|len| len > 0) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let refuses = serve(|mut stream| {
        let mut out = Vec::new();
        encode::settings(&[Setting::EnableConnectProtocol(true)], &mut out);
        encode::reset(1, highwater_core::http2::ErrorCode::REFUSED_STREAM, &mut out);
        let mut request = [0; 4096];
        // The settings first: without them no tunnel is asked for.
        let (settings, reset) = out.split_at(15);
        if stream.write_all(settings).is_ok() {
            while stream.read(&mut request).is_ok_and(|len| len > 0) {
                if request.windows(9).any(|bytes| bytes[3..9] == [1, 4, 0, 0, 0, 1]) {
                    let _ = stream.write_all(reset);
                }
            }
        }
    });
    for (url, field, words) in [
        (format!("ws://{}/page", server()), "unupgraded", "answered the handshake with 405"),
        (format!("ws://{}/gone", server()), "unupgraded", "answered the handshake with 404"),
        (format!("ws://{}/page", without.address()), "unupgraded", "takes no WebSockets"),
        (format!("ws://{http1}/"), "unupgraded", "answers in HTTP/1.1"),
        (format!("ws://{refuses}/"), "resets", "REFUSED_STREAM"),
    ] {
        for transport in ["auto", "epoll"] {
            let fixed = [url.as_str(), "--ws", "--http2", "--body", "x", "-c", "2"];
            let (json, stderr, status) = load(&[&fixed[..], &["--transport", transport]].concat());
            assert_eq!((status, count(&json, "ok")), (1, 0), "{url}: {stderr}{json}");
            assert_eq!(
                count(&json, field),
                count(&json, "sent"),
                "{url}: {field} of {stderr}{json}"
            );
            assert!(stderr.contains(words), "{words:?} in {stderr}");
        }
    }
    let url = format!("ws://{}/enough", server());
    let (json, stderr, status) = load(&[&url, "--ws", "--http2", "--body", "x", "-c", "1"]);
    assert_eq!(status, 0, "{stderr}{json}");
    assert!(count(&json, "ws_closes") > 0 && count(&json, "ok") > 3, "{json}");
}
