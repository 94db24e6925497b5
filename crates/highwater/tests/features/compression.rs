//! Compressed content over real sockets: what is compressed, in which form it arrives, and when.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use highwater::layers::{COMPRESSED_AT_ONCE_MAX, compression, etag};
use highwater::server::TransportChoice;
use highwater::testing::Client;
use highwater::{Body, Bytes, Layer, Method, Preconditions, Response, Router, StatusCode, fixed};

use highwater_testkit::{eventually, read_some};

use crate::answers::Answer;
use crate::served::{HANG, exchange, start};
use crate::transports::on_each_transport;

fn ask(address: SocketAddr, path: &str, fields: &[&str]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    exchange(address, &request)
}

/// What a client makes of an answer, by decoders that are not the ones under test where there are others.
fn decoded(answer: &Answer) -> Vec<u8> {
    let mut whole = Vec::new();
    match answer.field("content-encoding") {
        None => whole.clone_from(&answer.bytes),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&answer.bytes[..]).read_to_end(&mut whole).expect("gzip");
        }
        Some("br") => {
            brotli::Decompressor::new(&answer.bytes[..], 4096).read_to_end(&mut whole).expect("br");
        }
        Some("zstd") => {
            whole = zstd::stream::decode_all(&answer.bytes[..]).expect("zstd");
        }
        Some(other) => panic!("{other} was not accepted"),
    }
    whole
}

/// JSON of about this size, in which little repeats.
fn json(bytes: usize) -> String {
    let mut seed = 7u64;
    let mut text = String::from("[");
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text += &format!("{{\"id\":{},\"price\":{}}},", seed >> 40, seed >> 50);
    }
    text + "0]"
}

fn typed(media_type: &'static str, body: impl Into<Body>) -> Response {
    Response::new(StatusCode::OK).with_body(body).with_content_type(media_type)
}

on_each_transport! {
    /// Purpose: each coding arrives as what the handler answered, smaller, with a length, a `Vary` and a tag of its own.
    fn whole_content(transport) {
        let page = || typed("application/json", json(64 * 1024)).with_header("etag", "\"1\"");
        let counted = move || page().with_header("content-length", json(64 * 1024).len().to_string());
        let app = Router::new().layer(compression()).get("/", page).get("/counted", counted);
        let server = start(app, transport);
        for (accepted, coding) in [
            ("zstd, br, gzip", "zstd"), ("br, gzip", "br"), ("gzip", "gzip"), ("gzip, br;q=0.5", "gzip"),
        ] {
            for path in ["/", "/counted"] {
                let answer = ask(server.address(), path, &[&format!("Accept-Encoding: {accepted}")]);
                assert_eq!(answer.field("content-encoding"), Some(coding));
                assert_eq!(decoded(&answer), json(64 * 1024).as_bytes());
                assert!(answer.bytes.len() < 40_000, "{} by {coding}", answer.bytes.len());
                let length = answer.bytes.len().to_string();
                assert_eq!(answer.field("content-length"), Some(length.as_str()));
                assert_eq!(answer.field("transfer-encoding"), None);
                assert_eq!(answer.field("vary"), Some("accept-encoding"));
                assert_eq!(answer.field("etag"), Some(&*format!("\"1;{coding}\"")));
            }
        }
        for refused in ["", "deflate", "gzip;q=0", "identity"] {
            let plain = ask(server.address(), "/", &[&format!("Accept-Encoding: {refused}")]);
            assert_eq!(plain.field("content-encoding"), None);
            assert_eq!((plain.field("vary"), plain.field("etag")), (Some("accept-encoding"), Some("\"1\"")));
            assert_eq!(plain.content, json(64 * 1024));
        }
    }

    /// Purpose: what is small, compressed already, partial, or not to be changed is sent as it is.
    fn left_as_it_is(transport) {
        let text = |size: usize| "a".repeat(size);
        let app = Router::new()
            .layer(compression().unless(|request, _| request.path() == "/secret"))
            .get("/at", move || text(1024))
            .get("/below", move || text(1023))
            .get("/png", || typed("image/png", vec![b'a'; 5000]))
            .get("/bytes", || vec![b'a'; 5000])
            .get("/svg", || typed("image/svg+xml", vec![b'a'; 5000]))
            .get("/api", || typed("application/vnd.api+json; charset=utf-8", vec![b'a'; 5000]))
            .get("/encoded", move || text(5000).into_response_with("content-encoding", "gzip"))
            .get("/fixed-form", move || text(5000).into_response_with("cache-control", "private, No-Transform"))
            .get("/digest", move || text(5000).into_response_with("content-digest", "sha-256=:x:"))
            .get("/repr-digest", move || text(5000).into_response_with("repr-digest", "sha-256=:x:"))
            .get("/old-digest", move || text(5000).into_response_with("digest", "sha-256=x"))
            .get("/md5", move || text(5000).into_response_with("content-md5", "x"))
            .get("/part", || (StatusCode::PARTIAL_CONTENT, [("content-range", "bytes 0-4999/9999")], "a".repeat(5000)))
            .get("/secret", move || text(5000))
            .get("/random", || typed("text/plain", random(5000)))
            .get("/none", || StatusCode::NO_CONTENT)
            .get("/events", || typed("text/event-stream", vec![b'a'; 5000]))
            .get("/fixed", fixed(typed("text/plain", "a".repeat(5000))));
        let server = start(app, transport);
        let coding = |path: &str, fields: &[&str]| {
            let answer = ask(server.address(), path, &[&["Accept-Encoding: gzip"], fields].concat());
            assert!(answer.status < 300, "{path}: {}", answer.status);
            answer.field("content-encoding") == Some("gzip") && answer.bytes.len() < 200
        };
        for path in ["/at", "/svg", "/api"] {
            assert!(coding(path, &[]), "{path}");
            assert!(!coding(path, &["Cache-Control: no-transform"]), "{path}");
        }
        for path in ["/below", "/png", "/bytes", "/encoded", "/fixed-form", "/digest", "/repr-digest", "/old-digest", "/md5", "/part", "/secret", "/random",
            "/none", "/events", "/fixed"]
        {
            assert!(!coding(path, &[]), "{path}");
        }
    }

    /// Purpose: a 304 has the tag that the client's own content has, as far as the client names it: what is never compressed must
    /// not lose its strong one.
    fn not_modified(transport) {
        let page = || typed("application/json", json(4096)).with_header("etag", "\"1\"");
        let app = Router::new().layer(compression()).layer(etag()).get("/", page);
        let server = start(app, transport);
        for (accepted, known, tag) in [
            ("gzip", "\"1;gzip\"", "\"1;gzip\""), ("br, gzip", "\"1;gzip\"", "\"1;gzip\""), ("gzip", "W/\"1;gzip\"", "\"1;gzip\""),
            ("gzip", "\"0\", \"1\"", "\"1\""), ("gzip", "*", "\"1\""), ("gzip", "W/\"1\"", "\"1\""),
            ("identity", "W/\"1\"", "\"1\""), ("identity", "\"1\"", "\"1\""),
        ] {
            let fields = [format!("Accept-Encoding: {accepted}"), format!("If-None-Match: {known}")];
            let answer = ask(server.address(), "/", &[&fields[0], &fields[1]]);
            assert_eq!((answer.status, answer.field("etag")), (304, Some(tag)), "{accepted} {known}");
            assert_eq!(answer.field("vary"), Some("accept-encoding"));
        }
    }

    /// Purpose: a client that has read compressed content can change it by its tag, and cannot once the state is another; a tag of a
    /// coding that it does not accept brings the content, not a 304.
    fn changes_by_the_tag_of_compressed_content(transport) {
        let page = || typed("application/json", json(4096)).with_header("etag", "\"1\"");
        let change = |conditions: Preconditions| conditions.check(Some("\"1\"")).map(|()| "changed");
        let weak = || typed("application/json", json(4096)).with_header("etag", "W/\"1\"");
        let app = Router::new().layer(compression()).layer(etag()).get("/", page).put("/", change).get("/weak", weak);
        let server = start(app, transport);
        let read = ask(server.address(), "/", &["Accept-Encoding: gzip"]);
        let tag = read.field("etag").expect("the handler has set one").to_owned();
        assert_eq!(tag, "\"1;gzip\"");
        for (tag, status) in [(tag.as_str(), 200), ("\"0;gzip\"", 412), ("W/\"1\"", 412), ("\"1\"", 200)] {
            let request = format!(
                "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\nIf-Match: {tag}\r\n\r\n"
            );
            assert_eq!(exchange(server.address(), &request).status, status, "{tag}");
        }
        let other = ask(server.address(), "/", &["Accept-Encoding: identity", "If-None-Match: \"1;gzip\""]);
        assert_eq!((other.status, other.field("etag")), (200, Some("\"1\"")));
        assert_eq!(ask(server.address(), "/weak", &["Accept-Encoding: gzip"]).field("etag"), Some("W/\"1\""));
    }

    /// Purpose: large content is compressed in pieces, and is the same behind it; HEAD has no content.
    fn in_pieces(transport) {
        let size = 3 * COMPRESSED_AT_ONCE_MAX as usize;
        let large = move || typed("application/json", json(size));
        let server = start(Router::new().layer(compression()).get("/", large), transport);
        for coding in ["gzip", "br", "zstd"] {
            let answer = ask(server.address(), "/", &[&format!("Accept-Encoding: {coding}")]);
            assert_eq!((answer.field("content-encoding"), answer.field("content-length")), (Some(coding), None));
            assert!(decoded(&answer) == json(size).as_bytes(), "{coding}");
        }
    }

    /// Purpose: a piece of a stream arrives before the next one is made, so that nothing is held back in an encoder.
    fn streams_are_flushed(transport) {
        let app = Router::new().layer(compression().media_type("text/event-stream")).get("/", async || {
            let (mut sender, body) = Body::channel();
            tokio::task::spawn_local(async move {
                for n in 0.. {
                    if sender.send(format!("data: {n}\n\n")).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            typed("text/event-stream", body)
        });
        let server = start(app, transport);
        for coding in ["gzip", "br", "zstd"] {
            let mut stream = TcpStream::connect_timeout(&server.address(), HANG).expect("it listens");
            stream.set_read_timeout(Some(HANG)).expect("it is open");
            write!(stream, "GET / HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n").expect("it is open");
            let mut bytes = Vec::new();
            // It never ends: the third event arrives only if each is flushed.
            let events = loop {
                let mut piece = [0; 4096];
                let count = read_some(&mut stream, &mut piece).expect("it is open");
                assert!(count > 0, "it ended");
                bytes.extend_from_slice(&piece[..count]);
                let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let text = begun(coding, &bytes[head + 4..]);
                if text.matches("\n\n").count() >= 3 {
                    break text;
                }
            };
            assert!(events.starts_with("data: 0\n\ndata: 1\n\ndata: 2\n\n"), "{coding}: {events}");
        }
    }

    /// Purpose: with `everywhere`, prepared answers are compressed, too.
    fn everywhere(transport) {
        let everywhere = Layer::from(compression()).everywhere();
        let app = Router::new().layer(everywhere).get("/", fixed(typed("text/plain", "a".repeat(5000))));
        let server = start(app, transport);
        let answer = ask(server.address(), "/", &["Accept-Encoding: gzip"]);
        assert_eq!(decoded(&answer), "a".repeat(5000).as_bytes());
        assert!(answer.bytes.len() < 100);
    }
}

/// Bytes in which nothing repeats.
/// Purpose: as many streams are compressed at the same time as may be, and one more is sent as it is; when one is over, another one
/// is compressed. Whole content needs no place.
#[test]
fn streams_have_places() {
    let endless = async || {
        let (mut sender, body) = Body::channel();
        tokio::task::spawn_local(async move {
            while sender.send("more\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        typed("text/plain", body)
    };
    let large = || typed("text/plain", "a".repeat(2 * COMPRESSED_AT_ONCE_MAX as usize));
    let app = Router::new()
        .layer(compression().streams_max(2))
        .get("/endless", endless)
        .get("/large", large)
        .get("/small", || "a".repeat(5000));
    let server = start(app, TransportChoice::Portable);
    let gzip = ["Accept-Encoding: gzip"];
    let coded = |path: &str| ask(server.address(), path, &gzip).field("content-encoding").is_some();
    let open = || {
        let mut stream = TcpStream::connect_timeout(&server.address(), HANG).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        write!(stream, "GET /endless HTTP/1.0\r\n{}\r\n\r\n", gzip[0]).expect("it is open");
        stream.read_exact(&mut [0; 12]).expect("it has begun");
        stream
    };
    let first = open();
    assert!(coded("/large"), "there is one place left");
    let second = open();
    assert!(!coded("/large") && coded("/small"));
    drop(first);
    eventually("a free place", || coded("/large"));
    drop(second);
}

/// Purpose: HEAD is answered like GET, with neither content nor a length that it does not have.
#[test]
fn heads() {
    let large = || typed("application/json", json(2 * COMPRESSED_AT_ONCE_MAX as usize));
    let small = || typed("application/json", json(4096));
    let app = Router::new().layer(compression()).get("/large", large).get("/small", small);
    let client = Client::new(app);
    for path in ["/large", "/small"] {
        let [get, head] = [Method::GET, Method::HEAD]
            .map(|method| client.request(method, path).header("accept-encoding", "gzip").send());
        assert!(head.body.is_empty() && !get.body.is_empty(), "{path}");
        for name in ["content-encoding", "content-length", "vary", "etag"] {
            assert_eq!(head.header(name), get.header(name), "{path} {name}");
        }
    }
}

fn random(size: u32) -> Bytes {
    (0..size).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// What can be decoded of content that has only begun.
fn begun(coding: &str, bytes: &[u8]) -> String {
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        _ => Box::new(zstd::stream::read::Decoder::new(bytes).expect("memory")),
    };
    let (mut text, mut piece) = (Vec::new(), [0; 512]);
    while let Ok(count @ 1..) = reader.read(&mut piece) {
        text.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(text).expect("these are text")
}

/// Text with one more field.
trait IntoResponseWith {
    fn into_response_with(self, name: &'static str, value: &'static str) -> Response;
}

impl IntoResponseWith for String {
    fn into_response_with(self, name: &'static str, value: &'static str) -> Response {
        Response::from(self).with_header(name, value)
    }
}
