//! HTTP/2: over TLS and by prior knowledge, streams, windows, and servers that reset, refuse, leave or lie.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_core::http2::hpack::{Encoder, Indexing};
use highwater_core::http2::{Decoder, ErrorCode, Frame, Setting, encode};

use super::nginx::Nginx;
use super::{count, file, highwater, load, serve, well};

/// Purpose: requests are answered over TLS and without, with one stream and many, in both loops, over both drivers; what
/// answers contain is checked as for HTTP/1.1.
#[test]
fn requests() {
    let Some(nginx) = Nginx::start() else { return };
    let (tls, plain) = (format!("https://{}/", nginx.tls), format!("http://{}/", nginx.http2));
    let body = "x".repeat(300_000);
    let body = file("http2-body", body.as_bytes()).display().to_string();
    for transport in ["auto", "epoll"] {
        for (url, trust) in [(&tls, &["--ca", nginx.ca.as_str()][..]), (&plain, &[])] {
            let with = |more: &[&str]| {
                let fixed = [url.as_str(), "--http2", "-c", "2", "--transport", transport];
                well(&[&fixed[..], trust, more].concat())
            };
            let expected =
                ["--expect-body", "Hello, World!", "--expect-header", "Content-Length: 13"];
            with(&expected);
            let json = with(&[&["--streams", "16"][..], &expected].concat());
            assert_eq!((json["http"].as_str(), count(&json, "streams")), (Some("2"), 16), "{json}");
            assert_eq!(count(&json, "server_streams_max"), 128, "nginx's own limit: {json}");
            with(&["--rate", "400", "--burst", "8", "--streams", "4"]);
            with(&["--close"]);
            with(&["--requests-per-connection", "3"]);
            with(&["-X", "HEAD"]);
            // Larger than the first windows, and than what a socket takes at once.
            let upload = format!("{url}upload");
            let fixed = [upload.as_str(), "--http2", "-c", "2", "--transport", transport];
            let post = ["-X", "POST", "--body-file", &body, "--streams", "2"];
            well(&[&fixed[..], trust, &post].concat());
            with(&["-H", "X-Request: ${uuid}", "-H", "Host: localhost"]);
        }
    }
    // More streams than nginx allows wait for their turn.
    let json = well(&[&plain, "--http2", "-c", "1", "--streams", "300"]);
    assert_eq!(count(&json, "streams_refused"), 0, "{json}");
}

/// Purpose: another answer than the expected one is found over HTTP/2, too: its status, a field, its body.
#[test]
fn expectations() {
    let Some(nginx) = Nginx::start() else { return };
    let url = format!("http://{}/", nginx.http2);
    for (arguments, reason) in [
        (&["--expect-status", "201"][..], "status 200, expected 201"),
        (&["--expect-header", "Content-Length: 14"], "Content-Length is \"13\", expected \"14\""),
        (&["--expect-header", "X-None: 1"], "no field X-None"),
        (&["--expect-body", "Hello"], "body differs from byte 5 on"),
        (&["--expect-contains", "Moon"], "no \"Moon\""),
    ] {
        let (json, stderr, status) =
            load(&[&[url.as_str(), "--http2", "-c", "2"], arguments].concat());
        assert_eq!(status, 4, "{stderr}{json}");
        assert!(stderr.contains(reason), "{reason:?} in {stderr}");
        assert_eq!(count(&json, "bad_responses"), count(&json, "sent"), "{json}");
    }
    let busy = format!("{url}busy");
    let (json, _, status) = load(&[&busy, "--http2", "-c", "2"]);
    assert_eq!((status, &json["statuses"]["503"]), (1, &json["non_2xx"]), "{json}");
}

/// Purpose: who speaks no HTTP/2 is found out with a remedy: TLS without ALPN for it, and HTTP/1.1 without TLS.
#[test]
fn no_http2_there() {
    let Some(nginx) = Nginx::start() else { return };
    let tls = format!("https://{}/", nginx.tls_http1);
    let (json, stderr, status) = load(&[&tls, "--ca", &nginx.ca, "--http2", "-c", "2"]);
    assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
    assert!(stderr.contains("does not speak HTTP/2 over TLS (ALPN h2)"), "{stderr}");
    let plain = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.read(&mut [0; 1000]);
    });
    let (json, stderr, status) = load(&[&format!("http://{plain}/"), "--http2", "-c", "2"]);
    assert_eq!((status, count(&json, "malformed")), (1, count(&json, "sent")), "{stderr}{json}");
    assert!(stderr.contains("answers in HTTP/1.1; leave out --http2"), "{stderr}");
}

/// A server without TLS that answers each request by what `answer` writes for its stream: the how many-th of the
/// connection it is, and where to write.
fn server(
    settings: &'static [Setting],
    answer: impl Fn(u32, u64, &mut Encoder, &mut Vec<u8>) + Send + Sync + Clone + 'static,
) -> SocketAddr {
    serve(move |mut stream: TcpStream| {
        let (mut decoder, mut encoder) = (Decoder::default(), Encoder::new());
        let (mut out, mut count) = (Vec::new(), 0);
        encode::settings(settings, &mut out);
        let mut preface = [0; 24];
        if stream.read_exact(&mut preface).is_err() || stream.write_all(&out).is_err() {
            return;
        }
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            let (mut input, mut out) = (&buffer[..len], Vec::new());
            while let Ok(Some(frame)) = decoder.next(&mut input) {
                match frame {
                    Frame::Headers { stream, .. } => {
                        count += 1;
                        answer(stream, count, &mut encoder, &mut out);
                    }
                    Frame::Settings(_) => encode::settings_ack(&mut out),
                    _ => {}
                }
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    })
}

fn ok(stream: u32, encoder: &mut Encoder, out: &mut Vec<u8>) {
    encode::headers(stream, true, 16_384, out, |block| {
        encoder.begin(block);
        encoder.field(b":status", b"200", Indexing::Incremental, block);
    });
}

/// Purpose: each way in which streams and connections end counts as what it is, and the server's reason is shown.
#[test]
fn every_end_has_its_counter() {
    let reset =
        server(&[], |stream, _, _, out| encode::reset(stream, ErrorCode::INTERNAL_ERROR, out));
    let refused =
        server(&[], |stream, _, _, out| encode::reset(stream, ErrorCode::REFUSED_STREAM, out));
    let angry = server(&[], |_, _, _, out| {
        encode::go_away(0, ErrorCode::ENHANCE_YOUR_CALM, b"too many of you", out);
    });
    let too_large = server(&[], |stream, _, encoder, out| {
        encode::headers(stream, false, 16_384, out, |block| {
            encoder.field(b":status", b"200", Indexing::Incremental, block);
        });
        out.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 1]);
    });
    let no_status = server(&[], |stream, _, encoder, out| {
        encode::headers(stream, true, 16_384, out, |block| {
            encoder.field(b"server", b"test", Indexing::Incremental, block);
        });
    });
    let broken_block = server(&[], |stream, _, _, out| {
        encode::headers(stream, true, 16_384, out, |block| block.push(0xff));
    });
    for (address, field, words) in [
        (reset, "stream_resets", "RST_STREAM INTERNAL_ERROR"),
        (refused, "streams_refused", "on streams that the server refused"),
        (angry, "streams_refused", "GOAWAY ENHANCE_YOUR_CALM: \"too many of you\""),
        (too_large, "malformed", "a frame exceeds SETTINGS_MAX_FRAME_SIZE"),
        (no_status, "malformed", "an answer has no :status"),
        (broken_block, "malformed", "a field block ends within a field"),
    ] {
        let url = format!("http://{address}/");
        for streams in ["1", "4"] {
            let (json, stderr, status) = load(&[&url, "--http2", "-c", "2", "--streams", streams]);
            assert_eq!((status, count(&json, "ok")), (1, 0), "{stderr}{json}");
            assert_eq!(count(&json, field), count(&json, "sent"), "{field} of {stderr}{json}");
            assert!(stderr.contains(words), "{words:?} in {stderr}");
        }
    }
}

/// Purpose: a server that says farewell every few requests, as nginx does every thousand, loses none: those it has taken
/// are answered, the others go to a new connection.
#[test]
fn farewells_lose_nothing() {
    let farewell = server(&[Setting::MaxConcurrentStreams(3)], |stream, count, encoder, out| {
        if count == 5 {
            encode::go_away(stream, ErrorCode::NO_ERROR, b"", out);
        }
        if count <= 5 {
            ok(stream, encoder, out);
        }
    });
    let url = format!("http://{farewell}/");
    for streams in ["1", "8"] {
        let json = well(&[&url, "--http2", "-c", "2", "--streams", streams]);
        assert!(count(&json, "farewells") > 0 && count(&json, "goaways") == 0, "{json}");
        assert_eq!(count(&json, "server_streams_max"), 3, "{json}");
    }
}

/// Purpose: what gets no answer in time is given up on its stream alone; the others of its connection go on.
#[test]
fn a_time_out_ends_one_stream() {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    let slow = server(&[], |stream, count, encoder, out| {
        if count == 1 {
            CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        }
        if count % 10 != 3 {
            ok(stream, encoder, out);
        }
    });
    let url = format!("http://{slow}/");
    let (json, stderr, status) =
        load(&[&url, "--http2", "-c", "1", "--streams", "8", "--timeout", "60ms"]);
    assert_eq!(status, 0, "{stderr}{json}");
    assert!(count(&json, "timeouts") > 0 && count(&json, "ok") > 8, "{json}");
    assert_eq!(count(&json, "errors"), 0, "{json}");
    assert_eq!(CONNECTIONS.load(Ordering::Relaxed), 1, "{json}");
}

/// Purpose: flags that contradict each other are refused, with what to write.
#[test]
fn wrong_flags() {
    let url = "http://127.0.0.1:1/";
    for (arguments, words) in [
        (&["--streams", "2"][..], "--http2"),
        (&["--http2", "--pipeline", "2"], "write --streams 2"),
        (&["--http2", "--streams", "0"], "not in 1..=1024"),
        (&["--http2", "--streams", "1025"], "not in 1..=1024"),
        (&["--http2", "--streams", "2", "--close"], "write --streams 1"),
        (&["--http2", "--streams", "2", "--requests-per-connection", "9"], "write --streams 1"),
        (&["--http2", "--streams", "1024", "-c", "98"], "more than 100000"),
        (&["--http2", "-H", "Connection: close"], "connection is not for HTTP/2"),
        (&["--http2", "-X", "CONNECT"], "CONNECT is not for HTTP/2"),
    ] {
        let output = highwater(&[&[url], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {words:?} in {stderr}");
    }
}
