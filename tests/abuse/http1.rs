//! HTTP/1.1: heads and bodies without an end, framing that two parties could read differently, clients that do not read.

use std::time::Duration;

use crate::strike::{Case, Protocol};

const P: Protocol = Protocol::Http1;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n";
const POST: &str = "POST /place HTTP/1.1\r\nHost: h\r\n";
const CHUNKED: &str = "POST /place HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Until it is refused.
const MANY: u32 = 100_000;

pub(crate) fn cases() -> Vec<Case> {
    [heads(), framing(), bodies(), pace()].concat()
}

fn request(fields: &str) -> String {
    format!("{GET}{fields}\r\n\r\n")
}

fn heads() -> Vec<Case> {
    let kib = "a".repeat(1024);
    vec![
        Case::repeated(P, "a method without an end", ("", kib.clone(), 1000), &["400"]),
        Case::repeated(P, "a target without an end", ("GET /", kib.clone(), 1000), &["414"]),
        Case::repeated(
            P,
            "a query of parameters without an end",
            ("GET /?", "a=1&", MANY),
            &["414"],
        ),
        Case::repeated(P, "a field's name without an end", (GET, kib.clone(), 1000), &["431"]),
        Case::repeated(P, "a field without an end", (format!("{GET}X: "), kib, 1000), &["431"]),
        Case::repeated(P, "fields without an end", (GET, "X: 1\r\n", MANY), &["431"]),
        Case::repeated(P, "short fields without an end", (GET, "X:\r\n", MANY), &["431"]),
        Case::repeated(
            P,
            "cookies without an end",
            (format!("{GET}Cookie: "), "a=b; ", MANY),
            &["431"],
        ),
        Case::repeated(P, "empty lines without an end", ("", "\r\n", MANY), &["400"]),
        Case::once(P, "a NUL in a field", request("X: a\0b"), &["400"]),
        Case::once(P, "a NUL in the target", "GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", &["400"]),
        Case::once(P, "a carriage return in a field", request("X: a\rSet-Cookie: b"), &["400"]),
        Case::once(P, "no host", "GET / HTTP/1.1\r\n\r\n", &["400"]),
        Case::once(P, "two hosts", request("Host: other"), &["400"]),
        Case::once(P, "a host with a path", "GET / HTTP/1.1\r\nHost: h/../\r\n\r\n", &["400"]),
        Case::once(P, "a version that is not there", "GET / HTTP/3.7\r\nHost: h\r\n\r\n", &["505"]),
        Case::once(P, "a line of HTTP/0.9", "GET /\r\n", &["400"]),
        Case::once(
            P,
            "a tunnel through the server",
            "CONNECT h:22 HTTP/1.1\r\nHost: h:22\r\n\r\n",
            &["501"],
        ),
        Case::once(
            P,
            "a handshake of TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            &["400"],
        ),
        Case::once(
            P,
            "a header of PROXY",
            format!("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n{GET}\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "bytes at random",
            (0..4096_u32).map(|n| ((n * n) >> 3) as u8).collect::<Vec<u8>>(),
            &["400"],
        ),
    ]
}

/// A request within a request: what one party takes for content, another takes for the next request (RFC 9112 §11.2).
fn framing() -> Vec<Case> {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
    let smuggled = |fields: &str, content: &str| format!("{POST}{fields}\r\n\r\n{content}{hidden}");
    let chunked = "Transfer-Encoding: chunked";
    vec![
        Case::once(
            P,
            "a length and chunks",
            smuggled(&format!("Content-Length: 5\r\n{chunked}"), "0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "two lengths",
            smuggled("Content-Length: 0\r\nContent-Length: 35", ""),
            &["400"],
        ),
        Case::once(P, "a list of lengths", smuggled("Content-Length: 0, 35", ""), &["400"]),
        Case::once(P, "a length with a sign", smuggled("Content-Length: +0", ""), &["400"]),
        Case::once(
            P,
            "a length that wraps around",
            smuggled("Content-Length: 18446744073709551616", ""),
            &["400"],
        ),
        Case::once(P, "a length in hexadecimal", smuggled("Content-Length: 0x10", ""), &["400"]),
        Case::once(
            P,
            "chunks twice",
            smuggled(&format!("{chunked}, chunked"), "0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "a coding behind the chunks",
            smuggled(&format!("{chunked}, identity"), "0\r\n\r\n"),
            &["400", "501"],
        ),
        Case::once(
            P,
            "a coding that is not there",
            smuggled("Transfer-Encoding: xchunked", "0\r\n\r\n"),
            &["400", "501"],
        ),
        Case::once(
            P,
            "a space before the colon",
            smuggled("Transfer-Encoding : chunked", "0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "a folded field",
            smuggled("X: a\r\n Transfer-Encoding: chunked", "0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "lines that end with LF",
            format!("GET / HTTP/1.1\nHost: h\n\n{hidden}"),
            &["400"],
        ),
        Case::once(
            P,
            "a chunk's size with a sign",
            format!("{CHUNKED}+1\r\na\r\n0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "a chunk's size that wraps around",
            format!("{CHUNKED}10000000000000000\r\n"),
            &["400", "413"],
        ),
        Case::once(
            P,
            "a chunk that is longer than its size",
            format!("{CHUNKED}1\r\nabc\r\n0\r\n\r\n"),
            &["400"],
        ),
        Case::once(
            P,
            "a chunk's line that ends with LF",
            format!("{CHUNKED}1\na\r\n0\r\n\r\n"),
            &["400"],
        ),
    ]
}

fn bodies() -> Vec<Case> {
    vec![
        Case::repeated(P, "a chunk's size of zeros without an end", (CHUNKED, "0", MANY), &["400"]),
        Case::repeated(
            P,
            "a chunk's extension without an end",
            (format!("{CHUNKED}1;"), "a", MANY),
            &["400"],
        ),
        Case::repeated(
            P,
            "an extension with each chunk",
            (CHUNKED, format!("1;{}\r\na\r\n", "b".repeat(50)), MANY),
            &["400"],
        ),
        Case::repeated(
            P,
            "trailers without an end",
            (format!("{CHUNKED}0\r\n"), "X: 1\r\n", MANY),
            &["431", "400"],
        ),
        Case::each(
            P,
            "chunks of one byte",
            |n| match n {
                0 => Some(CHUNKED.into()),
                100_000 => Some("0\r\n\r\n".into()),
                n => (n < 100_000).then(|| "1\r\na\r\n".into()),
            },
            &["200"],
        ),
        Case::once(
            P,
            "content of the largest length",
            format!("{POST}Content-Length: 9223372036854775807\r\n\r\n"),
            &["413"],
        ),
        Case::once(
            P,
            "an expectation without content",
            format!("{POST}Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"),
            &["100", "400", "408"],
        ),
        Case::once(
            P,
            "an expectation that is not there",
            format!("{POST}Expect: a-miracle\r\nContent-Length: 0\r\n\r\n"),
            &["417"],
        ),
        Case::once(
            P,
            "half of the content",
            format!("{POST}Content-Length: 10\r\n\r\nhello"),
            &["400", "408", "silence"],
        ),
    ]
}

fn pace() -> Vec<Case> {
    let slowly = Duration::from_millis(60);
    let large = "GET /content?bytes=1000000 HTTP/1.1\r\nHost: h\r\n\r\n";
    vec![
        Case::repeated(
            P,
            "a head of a byte now and then",
            ("GET / HTTP/1.1\r\n", "X", 100),
            &["408"],
        )
        .slowly(slowly),
        Case::repeated(
            P,
            "content of a byte now and then",
            (format!("{POST}Content-Length: 9999\r\n\r\n"), "a", 200),
            &["408"],
        )
        .slowly(slowly),
        Case::repeated(
            P,
            "requests whose answers nobody reads",
            ("", request("X: 1"), MANY),
            &["unread", "pushed back"],
        )
        .unread(),
        Case::repeated(
            P,
            "large answers that nobody reads",
            ("", large, 10_000),
            &["unread", "pushed back"],
        )
        .unread(),
        Case::repeated(
            P,
            "streams that nobody reads",
            ("", "GET /endless HTTP/1.1\r\nHost: h\r\n\r\n", 10_000),
            &["unread", "pushed back"],
        )
        .unread(),
        Case::repeated(
            P,
            "requests behind one that waits",
            ("GET /wait?ms=300 HTTP/1.1\r\nHost: h\r\n\r\n", request("X: 1"), 10_000),
            &["200", "pushed back"],
        ),
        Case::repeated(
            P,
            "requests behind the last one",
            (format!("{GET}Connection: close\r\n\r\n"), request("X: 1"), 1000),
            &["200"],
        ),
        Case::repeated(
            P,
            "expectations one after another",
            ("", format!("{POST}Expect: 100-continue\r\nContent-Length: 1\r\n\r\na"), 2000),
            &["200"],
        ),
    ]
}
