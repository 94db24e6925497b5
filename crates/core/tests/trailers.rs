//! What happens to the fields after a request's content (RFC 9110 §6.5, RFC 9112 §7.1.2)?

mod common;

use common::{Peer, Seen, streamed, whole};
use highwater_core::http::{Limits, Reject};
use highwater_core::time::Instant;

const NOW: Instant = Instant::ZERO;
const HEAD: &str = "POST /s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Content, trailers and end of a streamed request whose wire bytes come in the given pieces.
fn stream(pieces: &[&str], limits: Limits) -> (Vec<u8>, Option<String>, Seen) {
    let mut peer = Peer::with(limits);
    let (mut content, mut trailers) = (Vec::new(), None);
    for piece in pieces {
        let mut seen = peer.next(NOW, piece);
        loop {
            match seen {
                Seen::Wait => break,
                Seen::Request(..) => {}
                Seen::Body(piece) => content.extend(piece),
                Seen::Trailers(fields) => assert_eq!(trailers.replace(fields), None),
                end => return (content, trailers, end),
            }
            seen = peer.next(NOW, "");
        }
    }
    (content, trailers, Seen::Wait)
}

fn at_once(section: &str) -> (Vec<u8>, Option<String>, Seen) {
    stream(&[&format!("{HEAD}2\r\nab\r\n0\r\n{section}")], Limits::default())
}

/// Purpose: trailers are handed out after the content and before the end, the same wherever the bytes are
/// cut; the next request is found after them.
#[test]
fn every_cut_gives_the_same() {
    let section = "X-Sum: 1234 \r\nX-Empty:\r\nContent-Length: 9\r\nx-sum:\t5\r\n\r\n";
    let wire = format!("{HEAD}2\r\nab\r\n0\r\n{section}GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let expected = Some("X-Sum: 1234\nX-Empty: \nx-sum: 5\n".to_owned());
    for at in 1..wire.len() {
        let (first, second) = wire.split_at(at);
        let found = stream(&[first, second], Limits::default());
        assert_eq!(found, (b"ab".to_vec(), expected.clone(), Seen::BodyEnd), "cut at {at}");
    }
    let bytes: Vec<&str> = (0..wire.len()).map(|at| &wire[at..=at]).collect();
    assert_eq!(stream(&bytes, Limits::default()), (b"ab".to_vec(), expected, Seen::BodyEnd));
    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, &wire), streamed("/s"));
    assert_eq!(peer.next(NOW, ""), Seen::Body(b"ab".to_vec()));
    assert!(matches!(peer.next(NOW, ""), Seen::Trailers(_)));
    assert_eq!(peer.next(NOW, ""), Seen::BodyEnd);
    peer.respond(NOW, 200, "");
    assert_eq!(peer.next(NOW, ""), whole("/", ""));
}

/// Purpose: fields that decide about a message before its content is read cannot be trailers: framing,
/// routing, credentials, conditions. They are left out, whatever their case; a section of nothing else counts
/// as none.
#[test]
fn fields_that_cannot_be_trailers() {
    for name in [
        "Content-Length",
        "transfer-encoding",
        "HOST",
        "Authorization",
        "Cookie",
        "If-Match",
        "Content-Type",
        "Connection",
        "X-Request-Deadline",
    ] {
        let end = (b"ab".to_vec(), None, Seen::BodyEnd);
        assert_eq!(at_once(&format!("{name}: chunked\r\n\r\n")), end, "{name}");
        let mixed = at_once(&format!("a: b\r\n{name}: 5\r\nc: d\r\n\r\n"));
        assert_eq!(mixed, (b"ab".to_vec(), Some("a: b\nc: d\n".into()), Seen::BodyEnd), "{name}");
    }
    assert_eq!(at_once("\r\n"), (b"ab".to_vec(), None, Seen::BodyEnd), "there are none");
}

/// Purpose: trailers have exactly the limits of header fields, and are refused for the same errors; nothing
/// of such a section is handed out.
#[test]
fn bounds_and_refusals() {
    let fails = |section: &str, reject| {
        assert_eq!(
            at_once(section),
            (b"ab".to_vec(), None, Seen::BodyFailed(reject)),
            "{section:?}"
        );
    };
    fails("a: b\r\nc d: e\r\n\r\n", Reject::FieldName);
    fails("a: b\r\n: e\r\n\r\n", Reject::FieldName);
    fails("a: b\0\r\n\r\n", Reject::FieldValue);
    fails("a: b\r\n c\r\n\r\n", Reject::LineFolding);
    fails("a: b\n\r\n", Reject::LineEnd);
    fails("a: b\r\n\rx", Reject::LineEnd);
    let end = |count: usize, size: usize| {
        let section = format!("{}b:{}\r\n\r\n", "a:\r\n".repeat(count - 1), "c".repeat(size));
        let limits = Limits { header_count_max: 5, header_max: 64, ..Limits::default() };
        let (_, trailers, end) = stream(&[&format!("{HEAD}0\r\n{section}")], limits);
        assert_eq!(trailers.is_some(), end == Seen::BodyEnd);
        end
    };
    let too_large = Seen::BodyFailed(Reject::HeaderTooLarge);
    assert_eq!(
        (end(4, 1), end(5, 1), end(6, 1)),
        (Seen::BodyEnd, Seen::BodyEnd, too_large.clone())
    );
    assert_eq!((end(1, 59), end(1, 60), end(1, 61)), (Seen::BodyEnd, Seen::BodyEnd, too_large));
}

/// Purpose: a collected body drops its trailers, checked by the same rules; so does a body that was answered
/// before it was read.
#[test]
fn dropped_with_bodies_that_nobody_streams() {
    let wire = |section: &str| {
        let head = HEAD.replace("/s", "/whole");
        format!("{head}2\r\nab\r\n0\r\n{section}\r\n")
    };
    assert_eq!(Peer::new().next(NOW, &wire("a: b\r\n")), whole("/whole", "ab"));
    assert_eq!(Peer::new().next(NOW, &wire("a b\r\n")), Seen::Reject(Reject::FieldName));
    let many = "a: b\r\n".repeat(101);
    assert_eq!(Peer::new().next(NOW, &wire(&many)), Seen::Reject(Reject::HeaderTooLarge));
    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, HEAD), streamed("/s"));
    peer.respond(NOW, 200, "");
    let rest = "2\r\nab\r\n0\r\na: b\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(peer.next(NOW, rest), whole("/", ""));
}
