//! Does the service answer the same under `axum::serve` and under `highwater::serve`?
#![forbid(unsafe_code)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Answer, HIGHWATER, Server, Under};
use highwater_core::http1::client::Asked;

/// A request, but for `Host` and `Connection`.
fn request(line: &str, fields: &[&str], content: &[u8]) -> Vec<u8> {
    let mut request = format!("{line} HTTP/1.1\r\nhost: example.org\r\nconnection: close\r\n");
    request.push_str("x-request-id: 7\r\n");
    for field in fields {
        request.push_str(&format!("{field}\r\n"));
    }
    if !content.is_empty() && !fields.iter().any(|field| field.starts_with("transfer-encoding")) {
        request.push_str(&format!("content-length: {}\r\n", content.len()));
    }
    request.push_str("\r\n");
    [request.as_bytes(), content].concat()
}

const JSON: &str = "content-type: application/json";
const MULTIPART: &str = "--b\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\nhello\r\n\
    --b\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n12345678\r\n--b--\r\n";

/// The checks, in an order that matters: some change what the next see.
fn checks() -> Vec<Vec<u8>> {
    let large = vec![b'y'; 300_000];
    let too_large = vec![b'z'; 3 << 20];
    vec![
        request("GET /", &[], b""),
        request("HEAD /", &[], b""),
        request("GET /health", &[], b""),
        request("GET /hello/w%C3%B6rld", &[], b""),
        request("GET /hello/a%FFb", &[], b""),
        request("GET /nowhere", &[], b""),
        request("DELETE /hello/a", &[], b""),
        request("PURGE /hello/a", &[], b""),
        request("GET http://example.org/hello/absolute", &[], b""),
        request("GET /todos", &[], b""),
        request("POST /todos", &[JSON], br#"{"title":"learn"}"#),
        request("POST /todos", &[JSON], br#"{"title":"rest","done":true}"#),
        request("POST /todos", &[JSON], br#"{"title":""}"#),
        request("POST /todos", &[JSON], b"{"),
        request("POST /todos", &[JSON], b"{}"),
        request("POST /todos", &["content-type: text/plain"], b"{}"),
        request("POST /todos", &[JSON], &too_large),
        request("GET /todos?limit=1&offset=1", &[], b""),
        request("GET /todos?limit=x", &[], b""),
        request("HEAD /todos", &[], b""),
        request("GET /todos/0", &[], b""),
        request("GET /todos/9", &[], b""),
        request("DELETE /todos/0", &[], b""),
        request(
            "POST /form",
            &["content-type: application/x-www-form-urlencoded"],
            b"title=a+b%26",
        ),
        request("GET /peer", &[], b""),
        request("GET /old", &[], b""),
        request("GET /nothing", &[], b""),
        request("GET /slow", &[], b""),
        request(
            "OPTIONS /todos",
            &["origin: https://a.example", "access-control-request-method: POST"],
            b"",
        ),
        request("GET /todos", &["origin: https://a.example"], b""),
        request("GET /rows/2000", &["accept-encoding: gzip"], b""),
        request("GET /todos", &["accept-encoding: gzip"], b""),
        request("GET /rows/3", &[], b""),
        request("GET /rows/50000", &[], b""),
        request("HEAD /rows/3", &[], b""),
        request("GET /rows/0", &[], b""),
        request("GET /sized", &[], b""),
        request("HEAD /sized", &[], b""),
        request("POST /length", &[], &large),
        request("POST /length", &[], b""),
        request(
            "POST /length",
            &["transfer-encoding: chunked"],
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ),
        request(
            "POST /length",
            &["transfer-encoding: chunked"],
            b"1\r\na\r\n0\r\nx-trailer: b\r\n\r\n",
        ),
        request(
            "POST /signed",
            &["transfer-encoding: chunked"],
            b"3\r\nabc\r\n0\r\nX-Signature: me \r\nx-b:\r\n\r\n",
        ),
        request("POST /signed", &["transfer-encoding: chunked"], b"3\r\nabc\r\n0\r\n\r\n"),
        request("POST /signed", &[], b"abc"),
        request("POST /echo", &[], &large),
        request(
            "POST /echo",
            &["transfer-encoding: chunked", "te: trailers"],
            b"3\r\nabc\r\n0\r\nx-a: b\r\n\r\n",
        ),
        request("POST /echo", &["transfer-encoding: chunked"], b"3\r\nabc\r\n0\r\n\r\n"),
        request(
            "POST /upload",
            &["content-type: multipart/form-data; boundary=b"],
            MULTIPART.as_bytes(),
        ),
        request("POST /upload", &["content-type: multipart/form-data; boundary=b"], b"--b\r\nx"),
        request("POST /length", &["expect: 100-continue"], b"12345"),
        request("GET /trailers", &["te: trailers"], b""),
        request("GET /trailers", &[], b""),
        request("GET /events", &[], b""),
        request("GET /ws", &[], b""),
    ]
}

/// Purpose: one line is changed and nothing else: status, fields, content and trailers of every check are
/// the same under `axum::serve` and under `highwater::serve`, on both drivers.
#[test]
fn answers_are_equal() {
    let reference = Server::start(Under::Axum);
    let servers: Vec<Server> = HIGHWATER.into_iter().map(Server::start).collect();
    let mut differences = String::new();
    for check in checks() {
        let line = String::from_utf8_lossy(&check).lines().next().unwrap_or_default().to_owned();
        let wanted = comparable(&line, &reference.ask(&check));
        for server in &servers {
            let found = comparable(&line, &server.ask(&check));
            if found != wanted {
                differences.push_str(&difference(&line, &wanted, &found));
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// An answer without what may differ: where the request is a `HEAD`, the framing of content that does not
/// come (RFC 9112 §6.1 allows both).
fn comparable(line: &str, bytes: &[u8]) -> Answer {
    let is_head = line.starts_with("HEAD ");
    let mut answer = Answer::parse(bytes, if is_head { Asked::Head } else { Asked::Plain });
    if is_head {
        answer.fields.retain(|field| field != "transfer-encoding: chunked");
    }
    answer
}

fn difference(line: &str, wanted: &Answer, found: &Answer) -> String {
    let of = |answer: &Answer| {
        let content = &answer.content[..answer.content.len().min(200)];
        let Answer { status, fields, trailers, .. } = answer;
        format!(
            "{status} {fields:?} {trailers:?} {} bytes: {}",
            answer.content.len(),
            content.escape_ascii()
        )
    };
    format!("\n{line}\n  axum:      {}\n  highwater: {}\n", of(wanted), of(found))
}

/// Purpose: the connection is kept and pipelined requests are answered in order, bodies between them
/// included.
#[test]
fn pipelined_requests() {
    for under in HIGHWATER {
        let server = Server::start(under);
        let first = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
        let second = b"GET /rows/2 HTTP/1.1\r\nhost: a\r\n\r\n";
        let last = request("GET /", &[], b"");
        let answers = server.ask(&[&first[..], second, &last].concat());
        let answers = String::from_utf8(answers).expect("text");
        let places: Vec<_> = ["abc", "0,row 0", "Hello, World!"]
            .map(|text| answers.find(text).unwrap_or_else(|| panic!("{text}: {answers}")))
            .into();
        assert!(places.is_sorted(), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    }
}

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nhost: a\r\nx-request-id: 7\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-protocol: echo\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Purpose: axum's WebSocket works: the handshake is the same, frames go both ways, large ones in many
/// reads, and the close is answered and ends the connection.
#[test]
fn web_sockets() {
    let mut heads = Vec::new();
    for under in [Under::Axum, HIGHWATER[0], HIGHWATER[1]] {
        let server = Server::start(under);
        let mut stream = server.connect();
        // The first frame comes with the handshake, before it is answered.
        stream.write_all(&[UPGRADE, &frame(1, b"early")].concat()).expect("it reads");
        heads.push((under, Answer::parse(&read_head(&mut stream), Asked::Upgrade)));
        assert_eq!(read_frame(&mut stream), (1, b"you said early".to_vec()), "{under:?}");
        let large: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        stream.write_all(&frame(2, &large)).expect("it reads");
        assert_eq!(read_frame(&mut stream), (2, large), "{under:?}");
        stream.write_all(&frame(9, b"p")).expect("it reads");
        assert_eq!(read_frame(&mut stream), (10, b"p".to_vec()), "{under:?}");
        stream.write_all(&frame(8, &[3, 232])).expect("it reads");
        assert_eq!(read_frame(&mut stream), (8, vec![3, 232]), "{under:?}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end is no reset");
        assert!(rest.is_empty(), "{under:?}: {rest:?}");
    }
    let (_, wanted) = &heads[0];
    for (under, head) in &heads[1..] {
        assert_eq!(head, wanted, "{under:?}");
    }
    assert_eq!(wanted.status, 101);
}

/// Purpose: a WebSocket that is asked for wrongly is refused as axum refuses it, and the connection goes
/// on in HTTP.
#[test]
fn refused_upgrades() {
    let text = String::from_utf8_lossy(UPGRADE);
    let wrong =
        text.replace("version: 13", "version: 12").replace("Upgrade\r\nu", "upgrade, close\r\nu");
    let wanted = Answer::parse(&Server::start(Under::Axum).ask(wrong.as_bytes()), Asked::Upgrade);
    for under in HIGHWATER {
        let found = Answer::parse(&Server::start(under).ask(wrong.as_bytes()), Asked::Upgrade);
        assert_eq!(found, wanted, "{under:?}");
    }
    let elsewhere = text.replace("/ws", "/").replace("Upgrade\r\nu", "upgrade, close\r\nu");
    for under in HIGHWATER {
        let found = Answer::parse(&Server::start(under).ask(elsewhere.as_bytes()), Asked::Upgrade);
        assert_eq!((found.status, found.text()), (200, "Hello, World!"));
    }
}

/// Purpose: a drain ends however long the application's streams are.
#[test]
fn drains_end() {
    for under in HIGHWATER {
        let server = Server::start(under);
        let mut endless = server.connect();
        endless.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        let mut piece = [0; 512];
        assert!(endless.read(&mut piece).expect("it answers") > 0);
        let begin = Instant::now();
        server.stop().expect("a drain is no error");
        assert!(begin.elapsed() < Duration::from_secs(8), "{under:?}: {:?}", begin.elapsed());
    }
}

/// Purpose: a client that disconnects ends its stream and its WebSocket on the server.
#[test]
fn clients_that_go() {
    for under in HIGHWATER {
        let server = Server::start(under);
        for request in [&b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n"[..], UPGRADE] {
            let mut stream = server.connect();
            stream.write_all(request).expect("it reads");
            read_head(&mut stream);
        }
        let begin = Instant::now();
        server.stop().expect("a drain is no error");
        // Without clients there is nothing to wait for; the bound only detects a hang.
        assert!(begin.elapsed() < Duration::from_secs(8), "{under:?}: {:?}", begin.elapsed());
    }
}

fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    head
}

/// A whole message of a client, masked with zeros (RFC 6455 §5.2).
fn frame(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match content.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=65535 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(content);
    frame
}

/// A whole message of a server: what it is, and its content.
fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut start = [0; 2];
    stream.read_exact(&mut start).expect("a frame");
    let mut length = u64::from(start[1]);
    if length == 126 {
        let mut more = [0; 2];
        stream.read_exact(&mut more).expect("a length");
        length = u64::from(u16::from_be_bytes(more));
    } else if length == 127 {
        let mut more = [0; 8];
        stream.read_exact(&mut more).expect("a length");
        length = u64::from_be_bytes(more);
    }
    let mut content = vec![0; usize::try_from(length).expect("it fits")];
    stream.read_exact(&mut content).expect("the content");
    (start[0] & 0x0f, content)
}
