//! Where responses end and what is refused, by RFC 9112, however the bytes are cut.

use super::*;
use crate::http::Version;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

/// The result of reading some bytes and then the connection's end.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    /// Status, then content and trailers; content in which a response was cut off is left out.
    responses: Vec<(u16, String)>,
    interims: Vec<u16>,
    ends: Vec<End>,
    raw: String,
    eof: Eof,
}

fn read(limits: Limits, bytes: &[u8], asked: Asked, step: usize) -> Result<Read, Malformed> {
    let mut reader = Reader::new(limits);
    let mut read = Read {
        responses: Vec::new(),
        interims: Vec::new(),
        ends: Vec::new(),
        raw: String::new(),
        eof: Eof::Clean,
    };
    let (mut status, mut content) = (0, String::new());
    for mut piece in bytes.chunks(step) {
        loop {
            match reader.next(&mut piece, asked)? {
                Next::Wait => break,
                Next::Interim(head) => read.interims.push(head.status()),
                Next::Head(head) => (status, content) = (head.status(), String::new()),
                Next::Content(piece) => content.push_str(core::str::from_utf8(piece).unwrap()),
                Next::Raw(piece) => read.raw.push_str(core::str::from_utf8(piece).unwrap()),
                Next::End(end, trailers) => {
                    let fields = trailers.iter().map(|(name, value)| (name, value.escape_ascii()));
                    fields.for_each(|(name, value)| content += &format!("|{name}={value}"));
                    assert_eq!(end.status, status);
                    read.ends.push(end);
                    read.responses.push((status, core::mem::take(&mut content)));
                }
            }
        }
        assert!(piece.is_empty(), "everything is taken");
    }
    read.eof = reader.on_eof();
    if let Eof::End(end) = read.eof {
        read.ends.push(end);
        read.responses.push((status, content));
        assert_eq!(reader.on_eof(), Eof::Clean, "it ends once");
    }
    Ok(read)
}

/// Reads `bytes` in pieces of every size, with the same result.
fn read_alike(bytes: &str, asked: Asked) -> Result<Read, Malformed> {
    let whole = read(Limits::default(), bytes.as_bytes(), asked, usize::MAX);
    for step in 1..bytes.len().max(2) {
        let again = read(Limits::default(), bytes.as_bytes(), asked, step);
        assert_eq!(again, whole, "{bytes:?} in pieces of {step}");
    }
    whole
}

const KEPT: &str = "kept";
const CLOSED: &str = "closed";
/// The response is complete when the connection ends.
const AT_EOF: &str = "at eof";
const TRUNCATED: &str = "truncated";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Reads one response: its status, its content and whether the connection persists.
fn one(bytes: &str, asked: Asked) -> (u16, String, &'static str) {
    let mut read = read_alike(bytes, asked).unwrap_or_else(|why| panic!("{bytes:?}: {why}"));
    let Some((status, content)) = read.responses.pop() else {
        assert_eq!((read.eof, read.ends.len()), (Eof::Truncated, 0), "{bytes:?}");
        return (0, String::new(), TRUNCATED);
    };
    assert!(read.responses.is_empty(), "{bytes:?}");
    let outcome = match (read.eof, read.ends[0].keep_alive) {
        (Eof::End(_), false) => AT_EOF,
        (Eof::Clean, true) => KEPT,
        (Eof::Clean, false) => CLOSED,
        other => panic!("{bytes:?}: {other:?}"),
    };
    (status, content, outcome)
}

/// Purpose: where a response ends, for each rule of RFC 9112 §6.3, and whether the connection persists
/// (§9.3).
#[test]
fn framing() {
    for (bytes, status, content, outcome) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", KEPT),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", KEPT),
        ("HTTP/1.1 200 OK\r\ncontent-length:\t3 \r\n\r\nabc", 200, "abc", KEPT),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", KEPT),
        ("HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n", 204, "", KEPT),
        ("HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", 304, "", KEPT),
        ("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", 200, "a", KEPT),
        ("HTTP/1.1 200 \t\u{e9}\r\nContent-Length: 1\r\n\r\na", 200, "a", KEPT),
        ("HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\na", 200, "a", KEPT),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", 200, "to the end", AT_EOF),
        ("HTTP/1.1 200 OK\r\n\r\n", 200, "", AT_EOF),
        ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nend", 200, "end", AT_EOF),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", 200, "a", CLOSED),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", 200, "a", KEPT),
        ("HTTP/1.1 503 No\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\na", 503, "a", CLOSED),
        (
            "HTTP/1.1 200 k\r\nConnection: close, keep-alive\r\nContent-Length: 0\r\n\r\n",
            200,
            "",
            CLOSED,
        ),
        // The same length twice is one (RFC 9110 §8.6).
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", 200, "ab", KEPT),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 02\r\n\r\nab", 200, "ab", KEPT),
        // Cut off.
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 0, "", TRUNCATED),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 0, "", TRUNCATED),
        ("HTTP/1.1 200 OK\r\nContent-", 0, "", TRUNCATED),
        ("HTTP/1.1 200 OK\r\nA: b\r\n", 0, "", TRUNCATED),
        ("H", 0, "", TRUNCATED),
    ] {
        assert_eq!(one(bytes, Asked::Plain), (status, content.into(), outcome), "{bytes:?}");
    }
}

/// Purpose: chunks, their extensions and the trailer section are decoded (RFC 9112 §7.1).
#[test]
fn chunks() {
    for (framing, content, outcome) in [
        ("0\r\n\r\n", "", KEPT),
        ("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", KEPT),
        ("003;a;b=\"\\\";\" ; c\r\nabc\r\n000\r\n\r\n", "abc", KEPT),
        ("3  \r\nabc\r\n0 \r\n\r\n", "abc", KEPT),
        ("2\r\nab\r\n0\r\nDigest: x y\r\nb:\r\n\r\n", "ab|Digest=x y|b=", KEPT),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", KEPT),
        ("3\r\nab", "", TRUNCATED),
        ("3\r\nabc", "", TRUNCATED),
        ("3\r\nabc\r\n", "", TRUNCATED),
        ("3\r\nabc\r\n0\r\n", "", TRUNCATED),
        ("3\r\nabc\r\n0\r\na: b\r\n", "", TRUNCATED),
        ("ffffffffffffffff\r\nab", "", TRUNCATED),
    ] {
        let status = if outcome == KEPT { 200 } else { 0 };
        let read = one(&format!("{CHUNKED}{framing}"), Asked::Plain);
        assert_eq!(read, (status, content.into(), outcome), "{framing:?}");
    }
}

/// Purpose: the request also decides where a response ends (RFC 9112 §6.3, rules 1 and 2).
#[test]
fn what_was_asked() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let twice = read_alike(&length.repeat(2), Asked::Head).unwrap();
    assert_eq!(twice.responses, vec![(200, String::new()); 2]);
    assert_eq!(one(CHUNKED, Asked::Head), (200, String::new(), KEPT));
    assert_eq!(one("HTTP/1.1 200 OK\r\n\r\n", Asked::Head), (200, String::new(), KEPT));
    let tunnel = read_alike(&format!("{length}SSH-2.0\r\n"), Asked::Connect).unwrap();
    assert_eq!((tunnel.raw.as_str(), tunnel.eof), ("SSH-2.0\r\n", Eof::Clean));
    assert!(tunnel.responses.is_empty());
    let refused = "HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(one(refused, Asked::Connect), (407, "no".into(), KEPT));
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nHTTP/1.1 200 OK\r\n";
    let switched = read_alike(switch, Asked::Upgrade).unwrap();
    assert_eq!((switched.raw.as_str(), switched.eof), ("HTTP/1.1 200 OK\r\n", Eof::Clean));
    for asked in [Asked::Plain, Asked::Head, Asked::Connect] {
        assert_eq!(read_alike(switch, asked), Err(Malformed::Switch));
    }
    assert_eq!(one(refused, Asked::Upgrade), (407, "no".into(), KEPT));
}

/// Purpose: interim responses are distinguished from final ones, and bounded.
#[test]
fn interim_responses() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: x\r\nContent-Length: 7\r\n\r\n";
    let done = "HTTP/1.1 204 No Content\r\n\r\n";
    let both = format!("HTTP/1.1 100 Continue\r\n\r\n{hint}{done}{hint}{done}");
    let read_both = read_alike(&both, Asked::Plain).unwrap();
    assert_eq!(read_both.interims, [100, 103, 103]);
    assert_eq!(read_both.responses, vec![(204, String::new()); 2]);
    assert_eq!(read_alike(hint, Asked::Plain).unwrap().eof, Eof::Clean);
    let limits = Limits { interims_max: 3, ..Limits::default() };
    for (count, fine) in [(2, true), (3, true), (4, false)] {
        let bytes = format!("{}{done}", hint.repeat(count)).repeat(2);
        let read = read(limits, bytes.as_bytes(), Asked::Plain, 7);
        let expected = if fine { Ok(2) } else { Err(Malformed::TooManyInterims) };
        assert_eq!(read.map(|read| read.ends.len()), expected, "{count}");
    }
}

/// Purpose: an invalid response is refused, with the reason, wherever it is split.
#[test]
fn malformed() {
    use Malformed as M;
    for (bytes, why) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", M::StatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", M::StatusLine),
        ("http/1.1 200 OK\r\n\r\n", M::StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", M::Status),
        ("HTTP/1.1\t200 OK\r\n\r\n", M::StatusLine),
        ("HTTP/1.1 200 O\0K\r\n\r\n", M::StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n", M::Version),
        ("HTTP/1 200 OK\r\n\r\n", M::Version),
        ("HTTP/1.x 200 OK\r\n\r\n", M::Version),
        ("HTTP/1.1 099 No\r\n\r\n", M::Status),
        ("HTTP/1.1 600 No\r\n\r\n", M::Status),
        ("HTTP/1.1 20 No\r\n\r\n", M::Status),
        ("HTTP/1.1 2000 No\r\n\r\n", M::Status),
        ("HTTP/1.1 200 OK\nA: b\r\n\r\n", M::LineEnd),
        ("HTTP/1.1 200\nA: b\r\n\r\n", M::LineEnd),
        ("HTTP/1.1 200 OK\rA: b\r\n\r\n", M::LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", M::LineEnd),
        ("HTTP/1.1 200 OK\r\nA\nB: c\r\n\r\n", M::LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\n", M::LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\r\r\n", M::LineEnd),
        ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", M::FieldName),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", M::FieldName),
        ("HTTP/1.1 200 OK\r\nA\r\n\r\n", M::FieldName),
        ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", M::FieldValue),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", M::LineFolding),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", M::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", M::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1,\r\n\r\n", M::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", M::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", M::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", M::ContentLengths),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", M::ContentLengths),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", M::TransferEncoding),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", M::TransferEncoding),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            M::TransferEncoding,
        ),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", M::TransferEncoding),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            M::TwoFramings,
        ),
        ("HTTP/1.1 204 No\r\n\r\nx", M::StatusLine),
    ] {
        assert_eq!(read_alike(bytes, Asked::Plain), Err(why), "{bytes:?}");
        assert!(!why.reason().is_empty());
    }
    for (framing, why) in [
        ("\r\n", M::ChunkSize),
        ("x\r\n", M::ChunkSize),
        ("+1\r\na\r\n", M::ChunkSize),
        ("1x\r\na\r\n", M::ChunkSize),
        ("11111111111111111\r\n", M::ChunkSize),
        ("1\na\r\n", M::LineEnd),
        ("1\ra\r\n", M::LineEnd),
        ("1;a\na\r\n", M::LineEnd),
        ("1;a\0\r\na\r\n", M::ChunkExtension),
        ("1\r\nab\r\n", M::ChunkEnd),
        ("1\r\na\rb", M::ChunkEnd),
        ("0\r\nA b\r\n\r\n", M::FieldName),
        ("0\r\nA: b\n\r\n", M::LineEnd),
        ("0\r\n A: b\r\n\r\n", M::LineFolding),
    ] {
        assert_eq!(
            read_alike(&format!("{CHUNKED}{framing}"), Asked::Plain),
            Err(why),
            "{framing:?}"
        );
    }
}

/// Purpose: each bound holds at n-1, n and n+1, whether the bytes come at once or not.
#[test]
fn bounds() {
    let limits = Limits { head_max: 80, fields_max: 3, ..Limits::default() };
    let outcome = |bytes: &str, step: usize| {
        read(limits, bytes.as_bytes(), Asked::Plain, step).map(|read| read.ends.len())
    };
    let padded = |frame: &str, len: usize| frame.replace('_', &"x".repeat(len + 1 - frame.len()));
    let (done, large) = (Ok(1), Err(Malformed::SectionTooLarge));
    for step in [1, 3, usize::MAX] {
        for (len, expected) in [(79, done), (80, done), (81, large), (200, large)] {
            for frame in [
                "HTTP/1.1 204 _\r\n\r\n",
                "HTTP/1.1 204 No\r\n_: a\r\n\r\n",
                "HTTP/1.1 204 No\r\na: _\r\n\r\n",
            ] {
                assert_eq!(outcome(&padded(frame, len), step), expected, "{frame} of {len}");
            }
            let trailers = format!("{CHUNKED}0\r\n{}", padded("a: _\r\n\r\n", len));
            assert_eq!(outcome(&trailers, step), expected, "trailers of {len}");
        }
        for (count, expected) in [(2, done), (3, done), (4, Err(Malformed::TooManyFields))] {
            let fields = "a: b\r\n".repeat(count);
            assert_eq!(outcome(&format!("HTTP/1.1 204 No\r\n{fields}\r\n"), step), expected);
            assert_eq!(outcome(&format!("{CHUNKED}0\r\n{fields}\r\n"), step), expected);
        }
        let most = response::EXTENSION_MAX as usize;
        for (len, expected) in
            [(most - 1, done), (most, done), (most + 1, Err(Malformed::ChunkExtension))]
        {
            let extension = "x".repeat(len);
            // The bound is per chunk.
            let chunks = format!("1;{extension}\r\na\r\n0;{extension}\r\n\r\n");
            assert_eq!(
                outcome(&format!("{CHUNKED}{chunks}"), step),
                expected,
                "extension of {len}"
            );
        }
    }
}

/// Purpose: a head is returned as it was sent, whether it was split or not.
#[test]
fn heads() {
    let bytes =
        b"HTTP/1.0 404 Not here\r\nA-b:  c d\t\r\nx:\r\nX: \xff\r\nConnection: keep-alive\r\n\
        Content-Length: 12\r\n\r\n";
    for cut in 0..bytes.len() {
        let mut reader = Reader::default();
        let (mut first, mut second) = bytes.split_at(cut);
        assert!(matches!(reader.next(&mut first, Asked::Plain), Ok(Next::Wait)));
        assert_eq!(reader.is_between(), cut == 0);
        let Ok(Next::Head(head)) = reader.next(&mut second, Asked::Plain) else { panic!("{cut}") };
        assert_eq!((head.status(), head.version()), (404, Version::Http10));
        assert_eq!((head.reason(), head.bytes()), (&b"Not here"[..], &bytes[..]));
        assert_eq!((head.content(), head.keep_alive()), (Content::Length(12), true));
        let fields: Vec<_> = head.fields().iter().take(3).collect();
        assert_eq!(fields, [("A-b", &b"c d"[..]), ("x", b""), ("X", b"\xff")]);
        assert_eq!(head.fields().get("CONTENT-LENGTH"), Some(&b"12"[..]));
        assert_eq!((head.fields().get("c"), head.fields().is_empty()), (None, false));
    }
}

/// Purpose: a client that only counts sees the same ends, and a complete response holds no memory.
#[test]
fn skipping() {
    let bytes = format!(
        "HTTP/1.1 100 Continue\r\n\r\n{CHUNKED}2\r\nab\r\n0\r\na: b\r\n\r\n\
         HTTP/1.1 304 \r\n\r\nHTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    );
    let ends = read_alike(&bytes, Asked::Plain).unwrap().ends;
    assert_eq!(ends.len(), 3);
    for cut in 0..bytes.len() {
        let mut reader = Reader::default();
        let mut skipped = Vec::new();
        let (first, second) = bytes.as_bytes().split_at(cut);
        for mut piece in [first, second] {
            while let Some(end) = reader.skip(&mut piece, Asked::Plain).unwrap() {
                skipped.push(end);
                // A section that arrives whole is never copied, and nothing else allocates.
                assert!(cut > 0 || reader.carried() == 0);
            }
            assert!(piece.is_empty());
        }
        assert_eq!((&skipped, reader.is_between()), (&ends, true));
        assert_eq!(reader.carried(), 0, "cut at {cut}");
    }
    let mut reader = Reader::default();
    let mut switch = &b"HTTP/1.1 101 x\r\n\r\nraw"[..];
    let end = End { status: 101, keep_alive: false };
    assert_eq!(reader.skip(&mut switch, Asked::Upgrade), Ok(Some(end)));
    assert_eq!((reader.skip(&mut switch, Asked::Upgrade), switch), (Ok(None), &b""[..]));
    reader.reset();
    assert!(reader.is_between());
}
