//! Compressed messages of WebSockets (RFC 7692), in process: over HTTP/1.1 and over HTTP/2.

use flate2::{Compress, Compression, FlushCompress};
use highwater::testing::{Client, Received, RequestBuilder, WebSocket as Socket};
use highwater::websocket::{Broadcast, Deflate, Message};
use highwater::{Closed, Method, Response, Router, State, WebSocket, WebSocketUpgrade, websocket};
use highwater_core::websocket::{Kind, encode};

const FIELD: &str = "sec-websocket-extensions";
const OFFER: &str = "permessage-deflate; client_max_window_bits";
const KEY: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

async fn chat(mut socket: WebSocket, State(room): State<Broadcast>) -> Result<(), Closed> {
    let _member = room.join(&socket);
    while let Some(message) = socket.recv().await {
        match message.as_text().and_then(|text| text.strip_prefix("to me: ")) {
            Some(text) => socket.send(text).await?,
            None => drop(room.send(message)),
        }
    }
    Ok(())
}

fn decides(upgrade: WebSocketUpgrade) -> Response {
    upgrade.deflate(Deflate::new().level(1).server_window_bits(10)).on_upgrade(echo)
}

fn client() -> Client {
    let keeps = Deflate::new().server_context_takeover().client_context_takeover();
    Client::new(
        Router::new()
            .state(Broadcast::default())
            .get("/plain", websocket(echo))
            .get("/ws", websocket(echo).deflate(Deflate::new().bytes_min(100)))
            .get("/keeps", websocket(echo).deflate(keeps.clone().bytes_min(10)))
            .get("/decides", decides)
            .get("/small", websocket(echo).message_max(5000).deflate(Deflate::new()))
            .get("/chat", websocket(chat).deflate(Deflate::new().bytes_min(10)))
            .get("/chat/keeps", websocket(chat).deflate(keeps.bytes_min(10)))
            .get("/chat/plain", websocket(chat)),
    )
}

fn offering<'c>(request: RequestBuilder<'c>, offer: &str) -> Socket<'c> {
    request.header(FIELD, offer).websocket()
}

fn open<'c>(client: &'c Client, target: &str, offer: &str) -> Socket<'c> {
    offering(client.request(Method::GET, target), offer)
}

/// A text that can be compressed.
fn text(len: usize) -> String {
    "a line of a poem, ".repeat(len / 18 + 1)[..len].to_owned()
}

/// `content` compressed as a message that refers to no other.
fn compressed(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 100);
    let mut compress = Compress::new(Compression::best(), false);
    compress.compress_vec(content, &mut out, FlushCompress::Sync).expect("it is compressed");
    out.truncate(out.len() - 4);
    out
}

/// A frame with this first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::message(Kind::Binary, payload, KEY, &mut bytes);
    bytes[0] = first;
    bytes
}

/// The code that ends the connection, after messages.
#[track_caller]
fn close_code(socket: &mut Socket<'_>) -> Option<u16> {
    loop {
        match socket.recv_any() {
            Some(Received::Close(close)) => return close.map(|close| close.code.0),
            Some(_) => {}
            None => panic!("it ended without a close frame"),
        }
    }
}

#[track_caller]
fn echoes(socket: &mut Socket<'_>, message: impl Into<Message>, is_compressed: bool) {
    let message = message.into();
    socket.send(message.clone());
    assert_eq!(socket.recv(), Some(message));
    assert_eq!(socket.was_compressed(), is_compressed);
}

/// What the handshake answers to an offer.
fn answer(client: &Client, target: &str, offer: Option<&str>) -> (u16, Option<String>) {
    let mut request = client.request(Method::GET, target);
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ] {
        request = request.header(name, value);
    }
    if let Some(offer) = offer {
        request = request.header(FIELD, offer);
    }
    let response = request.send();
    (response.status.as_u16(), response.header(FIELD).map(String::from))
}

/// Purpose: the extension is agreed on if both sides want it, by the terms of both, and a field that is not a list of extensions
/// is refused only where extensions are asked for.
#[test]
fn handshakes() {
    let client = client();
    let neither = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    let small = format!("{neither}; server_max_window_bits=10");
    for (target, offer, expected) in [
        ("/plain", Some(OFFER), None),
        ("/ws", None, None),
        ("/ws", Some("x-webkit-deflate-frame, permessage-bzip2"), None),
        ("/ws", Some("permessage-deflate; server_max_window_bits=8"), None),
        ("/ws", Some(OFFER), Some(neither)),
        (
            "/ws",
            Some("permessage-deflate; mux, permessage-deflate; server_max_window_bits=\"10\""),
            Some(&small[..]),
        ),
        ("/decides", Some("permessage-deflate"), Some(&small[..])),
        ("/keeps", Some(OFFER), Some("permessage-deflate")),
        (
            "/keeps",
            Some("permessage-deflate; server_no_context_takeover"),
            Some("permessage-deflate; server_no_context_takeover"),
        ),
        ("/plain", Some("permessage-deflate;"), None),
    ] {
        let expected = (101, expected.map(String::from));
        assert_eq!(answer(&client, target, offer), expected, "{target} {offer:?}");
    }
    assert_eq!(answer(&client, "/ws", Some("permessage-deflate;")), (400, None));
}

/// Purpose: messages come back as they were, over both versions of HTTP, with a context and without, from the smallest length that
/// is compressed on; a client that offers nothing is sent nothing compressed.
#[test]
fn messages() {
    let client = client();
    let http2 = client.http2();
    for (target, bytes_min) in [("/ws", 100), ("/keeps", 10), ("/decides", 1024)] {
        for offer in
            [OFFER, "permessage-deflate; server_max_window_bits=9; client_max_window_bits=9"]
        {
            let over_http2 = offering(http2.request(Method::GET, target), offer);
            for mut socket in [open(&client, target, offer), over_http2] {
                for len in [0, 1, bytes_min - 1, bytes_min, 2000, 30_000] {
                    let is_compressed =
                        len >= bytes_min.max(30) || target == "/keeps" && len >= bytes_min;
                    echoes(&mut socket, text(len), is_compressed);
                    echoes(&mut socket, vec![0_u8; len], is_compressed);
                }
                socket.close(highwater::websocket::CloseCode(4321), "done");
                assert_eq!(close_code(&mut socket), Some(4321));
            }
        }
        let mut socket = client.websocket(target);
        echoes(&mut socket, text(5000), false);
    }
    echoes(&mut open(&client, "/ws", OFFER), text(1 << 20), true);
    echoes(&mut open(&client, "/plain", OFFER), text(5000), false);
}

/// Purpose: RSV1 stands at the beginning of a message and nowhere else, and nowhere at all where nothing was agreed on;
/// fragments of a compressed message are one, with control frames between them.
#[test]
fn frames() {
    let client = client();
    let content = compressed(b"a fragmented message");
    let (first, second) = content.split_at(7);
    let mut socket = open(&client, "/ws", OFFER);
    for (bits, part) in [(0x41, first), (0x00, &[]), (0x89, b"ping"), (0x80, second)] {
        socket.send_bytes(&frame(bits, part));
    }
    assert_eq!(socket.recv_any(), Some(Received::Pong(b"ping".to_vec())));
    assert_eq!(socket.recv(), Some("a fragmented message".into()));
    // A message without a byte, and one that says that it is empty.
    for empty in [&b""[..], b"\0", &compressed(b"")] {
        socket.send_bytes(&frame(0xc1, empty));
        assert_eq!(socket.recv(), Some("".into()));
    }
    for frames in [
        &[(0x41, first), (0xc0, second)][..],
        &[(0x01, b"a"), (0xc0, b"b")],
        &[(0xc0, b"a")],
        &[(0xc9, b"ping")],
        &[(0xc8, b"")],
        &[(0xa1, b"a")],
        &[(0x91, b"a")],
    ] {
        let mut socket = open(&client, "/ws", OFFER);
        frames.iter().for_each(|(bits, part)| socket.send_bytes(&frame(*bits, part)));
        assert_eq!(close_code(&mut socket), Some(1002), "{frames:02x?}");
    }
    for mut socket in [client.websocket("/ws"), open(&client, "/plain", OFFER)] {
        socket.send_bytes(&frame(0xc1, &content));
        assert_eq!(close_code(&mut socket), Some(1002));
    }
}

/// Purpose: a message is checked after it is decompressed: its size, at the limit and one above, text as UTF-8, and that it can
/// be decompressed. Bytes that cannot be made smaller are no larger than allowed for that.
#[test]
fn limits_and_errors() {
    let client = client();
    for (first, content, expected) in [
        (0xc1, compressed(text(5000).as_bytes()), None),
        (0xc1, compressed(text(5001).as_bytes()), Some(1009)),
        (0xc2, compressed(&vec![0; 1 << 20]), Some(1009)),
        (0xc2, compressed(b"\xff\xfe"), None),
        (0xc1, compressed(b"\xff\xfe"), Some(1007)),
        (0xc1, compressed(&"é".as_bytes()[..1]), Some(1007)),
        (0xc2, b"\x07 is not deflate".to_vec(), Some(1007)),
        (0xc2, compressed(text(500).as_bytes())[..20].to_vec(), Some(1007)),
    ] {
        let mut socket = open(&client, "/small", OFFER);
        socket.send_bytes(&frame(first, &content));
        match expected {
            None => assert!(socket.recv().is_some(), "{first:02x}"),
            Some(_) => assert_eq!(close_code(&mut socket), expected),
        }
    }
    let noise: Vec<u8> =
        (0_u32..5000).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut stored = Vec::new();
    for block in noise.chunks(100) {
        stored.extend([0, 100, 0, 0x9b, 0xff]);
        stored.extend(block);
    }
    stored.push(0);
    let mut socket = open(&client, "/small", OFFER);
    socket.send_bytes(&frame(0xc2, &stored));
    assert_eq!(socket.recv(), Some(noise.into()), "{} bytes for 5000", stored.len());
}

/// Purpose: clients that leave in the middle of compressed messages harm no other one: the state of a thread is not theirs.
#[test]
fn clients_that_leave() {
    let client = client();
    let content = compressed(text(3000).as_bytes());
    for target in ["/ws", "/keeps"] {
        let mut polite = open(&client, target, OFFER);
        for len in 1..content.len() {
            let mut rude = open(&client, target, OFFER);
            rude.send_bytes(&frame(0x41, &content[..len]));
            if len % 10 == 0 {
                echoes(&mut polite, text(2000), true);
            }
            drop(rude);
        }
        echoes(&mut polite, text(2000), true);
    }
}

/// Purpose: a message for many is the same for all: for those without compression, with it, with another window, and with a
/// context, whose own messages are still understood after it.
#[test]
fn broadcasts() {
    let client = client();
    let http2 = client.http2();
    let mut members = [
        client.websocket("/chat"),
        open(&client, "/chat/plain", OFFER),
        open(&client, "/chat", OFFER),
        open(&client, "/chat", "permessage-deflate; server_max_window_bits=9"),
        open(&client, "/chat/keeps", OFFER),
        offering(http2.request(Method::GET, "/chat"), OFFER),
        offering(http2.request(Method::GET, "/chat/keeps"), OFFER),
    ];
    for round in 0..5 {
        for member in &mut members {
            let own = format!("to me: {round} {}", text(300));
            member.send(own.clone());
            assert_eq!(
                member.recv().as_ref().and_then(Message::as_text),
                own.strip_prefix("to me: ")
            );
        }
        // The last one becomes no smaller, and the first is too short to be compressed.
        let noise: Vec<u8> =
            (0_u32..300).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for message in
            ["hi".into(), Message::from(format!("{round} {}", text(20_000))), noise.into()]
        {
            members[round].send(message.clone());
            for (index, member) in members.iter_mut().enumerate() {
                assert_eq!(member.recv(), Some(message.clone()), "member {index}");
                let is_compressed = index > 1 && message.len() > 10_000;
                assert_eq!(member.was_compressed(), is_compressed, "member {index}");
            }
        }
    }
}
