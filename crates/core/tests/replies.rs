//! Replies: how their content is delimited, in what order bytes leave, and what a reply does to the
//! rest of its request. Expectations are RFC 9112 §6 and §9 and RFC 9110 §6.4, §7.8, §10.1.1.

mod common;

use bytes::Bytes;
use common::{DATE, Peer, Seen, ms, streamed, whole};
use highwater_core::driver::Then;
use highwater_core::http::{FieldWriter, LengthMismatch, Limits, Payload, Reject};
use highwater_core::time::Instant;

const NOW: Instant = Instant::ZERO;
const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_10: &str = "GET / HTTP/1.0\r\n\r\n";
const GET_10_KEEP: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK|";

fn post(target: &str, fields: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn asked(request: &str) -> Peer {
    let mut peer = Peer::new();
    assert!(matches!(peer.next(NOW, request), Seen::Request(..)));
    peer
}

fn finish(peer: &mut Peer) -> Result<(), LengthMismatch> {
    peer.connection.finish_body(&mut peer.link, &peer.limits, NOW)
}

fn finish_with_trailer(peer: &mut Peer) {
    let Peer { connection, link, limits, .. } = peer;
    connection.finish_body_with(link, limits, NOW, |fields| fields.push("x", b"y")).unwrap();
}

/// The reply received; asserts that the connection persists: it answers another request.
fn persists(peer: &mut Peer) -> String {
    let (text, then) = peer.output(NOW);
    assert_eq!(then, Then::Keep, "{text}");
    assert_eq!(peer.next(NOW, "GET /again HTTP/1.1\r\nHost: h\r\n\r\n"), whole("/again", ""));
    text
}

/// Purpose: content of a known length is sent as it is, and the connection persists.
#[test]
fn known_length() {
    let mut peer = asked(GET);
    assert!(peer.stream(NOW, Some(5)));
    peer.connection.push_body(&mut peer.link, b"he").unwrap();
    assert_eq!(peer.output(NOW), (format!("{OK}content-length: 5||he"), Then::Keep));
    peer.connection.push_body(&mut peer.link, b"llo").unwrap();
    finish(&mut peer).unwrap();
    assert_eq!(persists(&mut peer), "llo");
}

/// Purpose: content of no length still needs its end.
#[test]
fn known_length_zero() {
    let mut peer = asked(GET);
    assert!(peer.stream(NOW, Some(0)));
    finish(&mut peer).unwrap();
    assert_eq!(persists(&mut peer), format!("{OK}content-length: 0||"));
}

/// Purpose: content of unknown length is chunked; an empty piece must not end it.
#[test]
fn chunked() {
    let mut peer = asked(GET);
    assert!(peer.stream(NOW, None));
    for piece in [&b"hello"[..], b"", &[b'x'; 26]] {
        peer.connection.push_body(&mut peer.link, piece).unwrap();
    }
    finish(&mut peer).unwrap();
    let chunks = format!("5|hello|1a|{}|0||", "x".repeat(26));
    assert_eq!(persists(&mut peer), format!("{OK}transfer-encoding: chunked||{chunks}"));
}

/// Purpose: trailers stand between the last chunk and the empty line (RFC 9112 §7.1.2); content that is
/// not chunked has no place for them.
#[test]
fn trailers() {
    for (request, length, wire) in [
        (GET, None, "transfer-encoding: chunked||1|a|0|x: y||"),
        (GET, Some(1), "content-length: 1||a"),
        (GET_10, None, "connection: close||a"),
    ] {
        let mut peer = asked(request);
        assert!(peer.stream(NOW, length));
        peer.connection.push_body(&mut peer.link, b"a").unwrap();
        finish_with_trailer(&mut peer);
        assert_eq!(peer.output(NOW).0, format!("{OK}{wire}"));
    }
}

/// Purpose: trailers come behind a large chunk that is sent without a copy.
#[test]
fn trailers_behind_shared_content() {
    let mut peer = asked(GET);
    assert!(peer.stream(NOW, None));
    peer.output(NOW);
    peer.connection.push_shared(&mut peer.link, Bytes::from(vec![b'a'; 100_000])).unwrap();
    finish_with_trailer(&mut peer);
    let wire = format!("{:x}|{}|0|x: y||", 100_000, "a".repeat(100_000));
    assert_eq!(peer.output(NOW).0, wire);
}

/// Purpose: HTTP/1.0 knows no chunks: the close delimits, even where keep-alive was asked for.
#[test]
fn delimited_by_close() {
    for request in [GET_10, GET_10_KEEP] {
        let mut peer = asked(request);
        assert!(peer.stream(NOW, None));
        peer.connection.push_body(&mut peer.link, b"hello").unwrap();
        assert_eq!(peer.output(NOW), (format!("{OK}connection: close||hello"), Then::Keep));
        peer.connection.push_body(&mut peer.link, b"!").unwrap();
        finish(&mut peer).unwrap();
        let (text, then) = peer.output(NOW);
        assert_eq!(text, "!");
        assert_ne!(then, Then::Keep);
    }
}

/// Purpose: a length that is known lets an HTTP/1.0 connection persist.
#[test]
fn http10_keep_alive() {
    let mut peer = asked(GET_10_KEEP);
    assert!(peer.stream(NOW, Some(1)));
    peer.connection.push_body(&mut peer.link, b"x").unwrap();
    finish(&mut peer).unwrap();
    assert_eq!(persists(&mut peer), format!("{OK}content-length: 1|connection: keep-alive||x"));
}

/// Purpose: a reply to `HEAD` says how it would be framed and carries nothing, streamed or not.
#[test]
fn head() {
    let mut peer = asked(HEAD);
    assert!(!peer.stream(NOW, Some(5)));
    assert_eq!(persists(&mut peer), format!("{OK}content-length: 5||"));
    let mut peer = asked(HEAD);
    assert!(!peer.stream(NOW, None));
    assert_eq!(persists(&mut peer), format!("{OK}transfer-encoding: chunked||"));
    let mut peer = asked(HEAD);
    peer.shared(NOW, vec![b'x'; 100_000]);
    assert_eq!(persists(&mut peer), format!("{OK}content-length: 100000||"));
    let mut peer = asked("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(!peer.stream(NOW, None));
    assert_eq!(persists(&mut peer), format!("{OK}connection: keep-alive||"));
}

/// Purpose: 204 and 304 have neither content nor a field that announces some.
#[test]
fn statuses_without_content() {
    for (status, line) in [(204, "HTTP/1.1 204 No Content||"), (304, "HTTP/1.1 304 Not Modified||")]
    {
        let mut peer = asked(GET);
        peer.respond(NOW, status, "dropped");
        assert_eq!(persists(&mut peer), line);
        let mut peer = asked(GET);
        assert!(!peer.payload(NOW, status, Payload::Stream(None)));
        assert_eq!(persists(&mut peer), line);
    }
}

/// Purpose: where a streamed reply turns out to have no content, the streamed request body is
/// dropped as behind any reply, and the next request is found.
#[test]
fn no_content_drops_the_request_body() {
    for method in ["HEAD", "POST"] {
        let mut peer = Peer::new();
        let head = format!("{method} /s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(peer.next(NOW, &head), streamed("/s"));
        let status = if method == "HEAD" { 200 } else { 204 };
        assert!(!peer.payload(NOW, status, Payload::Stream(None)));
        peer.output(NOW);
        assert_eq!(peer.next(NOW, &format!("hello{GET}")), whole("/", ""), "{method}");
    }
}

/// Purpose: more content than announced is refused before it is sent; less is noticed at the end.
#[test]
fn length_mismatch() {
    let mut peer = asked(GET);
    assert!(peer.stream(NOW, Some(3)));
    assert_eq!(peer.connection.push_body(&mut peer.link, b"four"), Err(LengthMismatch));
    assert_eq!(
        peer.connection.push_shared(&mut peer.link, Bytes::from(vec![0; 10_000])),
        Err(LengthMismatch)
    );
    assert_eq!(peer.output(NOW).0, format!("{OK}content-length: 3||"));
    peer.connection.push_body(&mut peer.link, b"tw").unwrap();
    assert_eq!(finish(&mut peer), Err(LengthMismatch));
}

/// Purpose: a large shared body leaves without a copy, behind its head.
#[test]
fn shared_body() {
    let mut peer = asked(GET);
    peer.shared(NOW, vec![b'x'; 100_000]);
    assert!(peer.allocated() < 1_000);
    let (output, _) = peer.link.take_output(NOW).unwrap();
    assert_eq!((output.tail.len(), output.bytes.ends_with(b"\r\n\r\n")), (100_000, true));
    peer.sent(NOW);
    assert_eq!(peer.next(NOW, GET), whole("/", ""));
}

/// Purpose: while a shared body waits to be taken no request is begun whose reply would overtake it.
#[test]
fn shared_body_holds_back_the_next_request() {
    let mut peer = asked(GET);
    peer.shared(NOW, vec![b'x'; 100_000]);
    assert_eq!(peer.next(NOW, GET), Seen::Wait);
    peer.output(NOW);
    assert!(peer.link.has_carry());
    assert_eq!(peer.next(NOW, ""), whole("/", ""));
}

/// Purpose: content pushed behind shared content stays behind it, shared or not, in every framing.
#[test]
fn shared_pieces_keep_their_order() {
    let big = |byte: u8| Bytes::from(vec![byte; 10_000]);
    let text = |byte: &str| byte.repeat(10_000);
    for (request, length) in [(GET, Some(30_003)), (GET, None), (GET_10, None)] {
        let mut peer = asked(request);
        assert!(peer.stream(NOW, length));
        peer.output(NOW);
        peer.connection.push_body(&mut peer.link, b"1").unwrap();
        peer.connection.push_shared(&mut peer.link, big(b'a')).unwrap();
        peer.connection.push_body(&mut peer.link, b"2").unwrap();
        peer.connection.push_shared(&mut peer.link, big(b'b')).unwrap();
        peer.connection.push_shared(&mut peer.link, big(b'c')).unwrap();
        peer.connection.push_body(&mut peer.link, b"3").unwrap();
        finish(&mut peer).unwrap();
        let content = format!("1{}2{}{}3", text("a"), text("b"), text("c"));
        let chunks = ["1", &text("a"), "2", &text("b"), &text("c"), "3"]
            .map(|piece| format!("{:x}|{piece}|", piece.len()));
        let chunked = format!("{}0||", chunks.concat());
        let is_chunked = request == GET && length.is_none();
        assert_eq!(peer.output(NOW).0, if is_chunked { chunked } else { content }, "{length:?}");
    }
}

/// Purpose: an upgrade hands over the bytes that came with the request, then all later ones, both ways, and an
/// application that reads no more ends the connection with its own side.
#[test]
fn upgrade() {
    let mut peer = asked(&format!("{GET}early"));
    let fields =
        |fields: &mut highwater_core::http1::FieldEncoder<'_>| fields.push("upgrade", b"echo");
    assert!(peer.connection.respond(
        &mut peer.link,
        101,
        DATE,
        &peer.limits,
        NOW,
        fields,
        Payload::Upgrade
    ));
    let head = "HTTP/1.1 101 Switching Protocols|upgrade: echo|connection: upgrade||";
    assert_eq!(peer.output(NOW), (head.into(), Then::Keep));
    assert_eq!(peer.next(NOW, ""), Seen::Raw(b"early".into()));
    assert_eq!(peer.next(NOW, GET), Seen::Raw(GET.into()));
    peer.connection.push_body(&mut peer.link, b"a\r\n").unwrap();
    peer.connection.push_shared(&mut peer.link, Bytes::from(vec![b'b'; 9_000])).unwrap();
    peer.connection.push_body(&mut peer.link, b"c").unwrap();
    assert_eq!(peer.output(NOW).0, format!("a|{}c", "b".repeat(9_000)));
    assert_eq!(peer.eof(NOW), Seen::RawEnd);
    assert_eq!(peer.take(NOW), None);
    peer.connection.push_body(&mut peer.link, b"last").unwrap();
    peer.connection.drop_raw(&mut peer.link);
    assert!(!peer.link.is_ending(), "our side has not ended");
    finish(&mut peer).unwrap();
    assert_eq!(peer.output(NOW), ("last".into(), Then::Close));
}

/// Purpose: each side of an upgraded connection ends by itself: behind our FIN, which follows all that was written,
/// input is handed on as before; and the connection ends once both sides have and the application reads no more.
#[test]
fn an_upgrade_ends_one_side_at_a_time() {
    for is_read in [true, false] {
        for is_ours_first in [true, false] {
            let mut peer = asked(GET);
            assert!(peer.payload(NOW, 101, Payload::Upgrade));
            peer.output(NOW);
            peer.connection.push_body(&mut peer.link, b"last").unwrap();
            if !is_ours_first {
                assert_eq!(peer.next(NOW, "more"), Seen::Raw(b"more".into()));
                assert_eq!(peer.eof(NOW), Seen::RawEnd);
            }
            finish(&mut peer).unwrap();
            assert!(!peer.connection.has_left_http(), "nothing is sent any more");
            assert_eq!(peer.output(NOW), ("last".into(), Then::Shutdown));
            assert!(!peer.link.is_ending(), "the application reads on");
            if is_ours_first {
                assert_eq!(peer.next(NOW, "more"), Seen::Raw(b"more".into()));
                if is_read {
                    assert_eq!(peer.eof(NOW), Seen::RawEnd);
                }
            }
            peer.connection.drop_raw(&mut peer.link);
            assert!(peer.link.is_lingering());
            assert_eq!(peer.take(NOW), None, "the FIN was sent");
            assert_eq!(peer.next(NOW, "unwanted"), Seen::Wait);
        }
    }
}

/// Purpose: an upgraded connection that is stopped takes nothing more until it resumes.
#[test]
fn upgrade_pauses() {
    let mut peer = asked(GET);
    assert!(peer.payload(NOW, 101, Payload::Upgrade));
    peer.connection.pause_body(&mut peer.link, true, NOW);
    assert!(!peer.connection.wants_input(&peer.link, &peer.limits));
    assert_eq!(peer.next(NOW, "abc"), Seen::Wait);
    peer.connection.pause_body(&mut peer.link, false, NOW);
    assert_eq!(peer.next(NOW, ""), Seen::Raw(b"abc".into()));
}

/// Purpose: the end of a stopped body is still reported. No later input would make the worker look
/// for it: its handler would wait until the deadline blames the peer.
#[test]
fn the_end_of_a_stopped_body() {
    for (fields, body, end) in [
        ("Content-Length: 5\r\n", "hello", ""),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello", "\r\n0\r\n\r\n"),
    ] {
        let mut peer = Peer::new();
        assert_eq!(peer.next(NOW, &post("/s", fields)), streamed("/s"));
        assert_eq!(peer.next(NOW, body), Seen::Body(b"hello".into()));
        peer.connection.pause_body(&mut peer.link, true, NOW);
        if !end.is_empty() {
            assert_eq!(peer.next(NOW, end), Seen::Wait, "framing of more may follow");
            peer.connection.pause_body(&mut peer.link, false, NOW);
        }
        assert_eq!(peer.next(NOW, ""), Seen::BodyEnd, "{fields}");
        peer.respond(NOW, 200, "");
        // That body was stopped, not the next.
        assert_eq!(peer.next(NOW, &post("/s", fields)), streamed("/s"));
        assert_eq!(peer.next(NOW, body), Seen::Body(b"hello".into()));
    }
}

/// Purpose: ten thousand pipelined requests are all answered in order with bounded memory: when the
/// bound on output is reached nothing more is parsed, and reading is to stop.
#[test]
fn ten_thousand_pipelined() {
    let mut peer = Peer::new();
    let wire: String =
        (0..10_000).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
    let body = "x".repeat(100);
    let mut unsent = wire.as_bytes();
    let (mut answered, mut received) = (0, 0);
    while received < 10_000 {
        // The peer sends while it may, and reads only when it may not.
        while peer.connection.wants_input(&peer.link, &peer.limits) && !unsent.is_empty() {
            let (piece, rest) = unsent.split_at(unsent.len().min(4096));
            unsent = rest;
            let mut seen = peer.next_bytes(NOW, piece);
            while let Seen::Request(target, _) = seen {
                assert_eq!(target, format!("/{answered}"));
                peer.respond(NOW, 200, &body);
                answered += 1;
                seen = peer.next(NOW, "");
            }
            let limits = &peer.limits;
            let bound = 2 * limits.output_max + 3 * (limits.uri_max + limits.header_max + 4096);
            assert!(peer.allocated() < bound, "{}", peer.allocated());
        }
        let (text, _) = peer.output(NOW);
        received += text.matches(OK).count();
        while let Seen::Request(target, _) = peer.next(NOW, "") {
            assert_eq!(target, format!("/{answered}"));
            peer.respond(NOW, 200, &body);
            answered += 1;
        }
    }
    assert_eq!((answered, received), (10_000, 10_000));
    assert_eq!(peer.allocated(), 0);
}

/// Purpose: memory follows the bytes received, not those promised nor those of others before.
#[test]
fn memory_is_for_bytes_received() {
    let mut peer = Peer::new();
    let large = format!("{:x}\r\n{}\r\n0\r\n\r\n", 500_000, "x".repeat(500_000));
    let chunked = post("/", "Transfer-Encoding: chunked\r\n");
    assert!(matches!(peer.next(NOW, &format!("{chunked}{large}")), Seen::Request(..)));
    peer.respond(NOW, 200, "");
    peer.output(NOW);
    assert_eq!(peer.allocated(), 0);
    assert_eq!(peer.next(NOW, &format!("{chunked}7a120\r\nx")), Seen::Wait);
    assert!(peer.allocated() < 1_000, "{}", peer.allocated());
    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, &post("/", "Content-Length: 1000000\r\n")), Seen::Wait);
    assert!(peer.allocated() < 1_000, "{}", peer.allocated());
}

/// Purpose: half a request behind many keeps its own size, not theirs.
#[test]
fn the_carry_does_not_keep_what_others_needed() {
    let mut peer = Peer::new();
    let burst = format!("{}GET", GET.repeat(1_000));
    let mut seen = peer.next(NOW, &burst);
    while seen != Seen::Wait {
        peer.respond(NOW, 200, "");
        peer.output(NOW);
        seen = peer.next(NOW, "");
    }
    assert!(peer.allocated() <= 2_048, "{}", peer.allocated());
}

/// Purpose: a body that is wanted whole gets its 100 as soon as it turns out to be missing.
#[test]
fn continue_for_a_whole_body() {
    let mut peer = Peer::new();
    let head = post("/", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.next(NOW, &head), Seen::Wait);
    assert_eq!(peer.output(NOW).0, "HTTP/1.1 100 Continue||");
    assert_eq!(peer.next(NOW, "hello"), whole("/", "hello"));
    assert_eq!(peer.take(NOW), None, "one 100 only");
}

/// Purpose: a body that is streamed gets its 100 when the handler asks for it, once.
#[test]
fn continue_for_a_streamed_body() {
    let mut peer = Peer::new();
    let head = post("/s", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.next(NOW, &head), streamed("/s"));
    assert_eq!(peer.take(NOW), None);
    peer.connection.send_continue(&mut peer.link, NOW);
    peer.connection.send_continue(&mut peer.link, NOW);
    assert_eq!(peer.output(NOW).0, "HTTP/1.1 100 Continue||");
    assert_eq!(peer.next(NOW, "hello"), Seen::Body(b"hello".into()));
    assert_eq!(peer.next(NOW, ""), Seen::BodyEnd);
    peer.respond(NOW, 200, "");
    assert_eq!(persists(&mut peer), format!("{OK}content-length: 0||"));
}

/// Purpose: a final answer instead of the 100 ends the connection: the body may come or not.
#[test]
fn refused_instead_of_continued() {
    let mut peer = Peer::new();
    let head = post("/s", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.next(NOW, &head), streamed("/s"));
    peer.respond(NOW, 403, "");
    let text = "HTTP/1.1 403 Forbidden|content-length: 0|connection: close||";
    assert_eq!(peer.output(NOW), (text.into(), Then::Shutdown));
    assert_eq!(peer.next(NOW, "hello"), Seen::Wait);
}

/// Purpose: once the reply has begun a 100 would stand in the middle of it: none is sent, and since
/// the body may come or not, the reply is the last.
#[test]
fn no_continue_within_a_reply() {
    let mut peer = Peer::new();
    let head = post("/s", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.next(NOW, &head), streamed("/s"));
    assert!(peer.stream(NOW, Some(1)));
    peer.connection.send_continue(&mut peer.link, NOW);
    peer.connection.push_body(&mut peer.link, b"x").unwrap();
    finish(&mut peer).unwrap();
    let text = format!("{OK}content-length: 1|connection: close||x");
    assert_eq!(peer.output(NOW), (text, Then::Shutdown));
}

/// Purpose: a client that sends content without waiting for the 100 keeps its connection after an
/// early answer.
#[test]
fn content_came_without_a_100() {
    let mut peer = Peer::new();
    let head = post("/s", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.next(NOW, &head), streamed("/s"));
    assert_eq!(peer.next(NOW, "he"), Seen::Body(b"he".into()));
    peer.connection.send_continue(&mut peer.link, NOW);
    peer.respond(NOW, 200, "");
    assert_eq!(peer.output(NOW).0, format!("{OK}content-length: 0||"));
    assert_eq!(peer.next(NOW, &format!("llo{GET}")), whole("/", ""));
}

/// Purpose: an early answer to a streamed body, then the next request behind the rest of the body,
/// for both framings and every place where the rest may be cut.
#[test]
fn early_answer_then_the_next_request() {
    for (fields, rest) in [
        ("Content-Length: 8\r\n", "lo world"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nlo wo\r\n3;x=y\r\nrld\r\n0\r\nA: b\r\n\r\n"),
    ] {
        let wire = format!("{rest}{GET}");
        for cut in 0..wire.len() {
            let mut peer = Peer::new();
            assert_eq!(peer.next(NOW, &post("/s", fields)), streamed("/s"));
            peer.respond(NOW, 200, "early");
            assert_eq!(peer.output(NOW), (format!("{OK}content-length: 5||early"), Then::Keep));
            let mut seen = peer.next(NOW, &wire[..cut]);
            assert_eq!(seen, Seen::Wait, "{fields} cut at {cut}");
            seen = peer.next(NOW, &wire[cut..]);
            assert_eq!(seen, whole("/", ""), "{fields} cut at {cut}");
        }
    }
}

/// Purpose: a rest too long to discard, or malformed, ends the connection behind the answer.
#[test]
fn early_answer_to_a_hopeless_body() {
    let mut peer = Peer::new();
    let limits = Limits { body_max: u64::MAX, ..Limits::default() };
    let length = limits.discard_max + 1;
    peer.limits = limits;
    let head = post("/s", &format!("Content-Length: {length}\r\n"));
    assert_eq!(peer.next(NOW, &head), streamed("/s"));
    peer.respond(NOW, 200, "");
    let closing = format!("{OK}content-length: 0|connection: close||");
    assert_eq!(peer.output(NOW), (closing, Then::Shutdown));

    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, &post("/s", "Transfer-Encoding: chunked\r\n")), streamed("/s"));
    peer.respond(NOW, 200, "");
    assert_eq!(peer.output(NOW), (format!("{OK}content-length: 0||"), Then::Keep));
    assert_eq!(peer.next(NOW, "no size"), Seen::Wait);
    assert_eq!(peer.output(NOW), (String::new(), Then::Shutdown));
}

/// Purpose: a body that fails while its reply is streamed makes that reply the last.
#[test]
fn body_fails_under_a_streamed_reply() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, &post("/s", "Transfer-Encoding: chunked\r\n")), streamed("/s"));
    assert!(peer.stream(NOW, None));
    assert_eq!(peer.next(NOW, "x"), Seen::BodyFailed(Reject::ChunkSize));
    peer.connection.push_body(&mut peer.link, b"sorry").unwrap();
    finish(&mut peer).unwrap();
    let text = format!("{OK}transfer-encoding: chunked||5|sorry|0||");
    assert_eq!(peer.output(NOW), (text, Then::Shutdown));
}

/// Purpose: a streamed reply may end before its request's body does; the rest is dropped.
#[test]
fn streamed_reply_ends_before_the_body() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(NOW, &post("/s", "Content-Length: 5\r\n")), streamed("/s"));
    assert!(peer.stream(NOW, None));
    assert_eq!(peer.next(NOW, "he"), Seen::Body(b"he".into()));
    finish(&mut peer).unwrap();
    peer.output(NOW);
    assert_eq!(peer.next(NOW, &format!("llo{GET}")), whole("/", ""));
}

/// Purpose: a peer that has finished sending is not lingered for: nothing unread can turn up.
#[test]
fn no_lingering_after_eof() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), "BAD\r\n\r\n"), Seen::Reject(Reject::RequestLine));
    peer.respond(NOW, 400, "");
    assert_eq!(peer.eof(NOW), Seen::Wait);
    assert_eq!(peer.output(NOW).1, Then::Close);
}

/// Purpose: input behind the last request turns a plain close into a lingering one: a reset would
/// destroy the reply.
#[test]
fn input_behind_the_last_request_lingers() {
    let close = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let mut peer = asked(close);
    peer.respond(NOW, 200, "");
    assert_eq!(peer.output(NOW).1, Then::Close);
    let mut peer = asked(&format!("{close}{GET}"));
    peer.respond(NOW, 200, "");
    assert_eq!(peer.next(NOW, ""), Seen::Wait);
    assert_eq!(peer.output(NOW).1, Then::Shutdown);
}

/// Purpose: the last request a connection may carry is answered with `Connection: close`.
#[test]
fn requests_max() {
    let mut peer = Peer::with(Limits { requests_max: 2, ..Limits::default() });
    assert_eq!(peer.next(NOW, GET), whole("/", ""));
    peer.respond(NOW, 200, "");
    assert_eq!(peer.output(NOW), (format!("{OK}content-length: 0||"), Then::Keep));
    assert_eq!(peer.next(NOW, GET), whole("/", ""));
    peer.respond(NOW, 200, "");
    let text = format!("{OK}content-length: 0|connection: close||");
    assert_eq!(peer.output(NOW), (text, Then::Shutdown));
}

/// Purpose: the same where the rest is given back without another look at it.
#[test]
fn input_given_back_behind_the_last_request_lingers() {
    use highwater_core::http::BodyPlan;
    use highwater_core::http1::{Connection, Next, Scratch};
    use highwater_core::link::Link;
    let (mut link, mut connection) = (Link::new(), Connection::new(NOW));
    let limits = Limits::default();
    let wire = format!("GET / HTTP/1.0\r\n\r\n{GET}");
    let mut input = wire.as_bytes();
    let mut scratch = Scratch::default();
    let next =
        connection.next(&mut link, &mut input, &mut scratch, &limits, NOW, |_| BodyPlan::Whole(0));
    assert!(matches!(next, Next::Request(_)));
    connection.respond(&mut link, 200, DATE, &limits, NOW, |_| {}, Payload::Bytes(b""));
    link.stash(input);
    assert_eq!(link.take_output(NOW).map(|(_, then)| then), Some(Then::Shutdown));
    assert_eq!(connection.allocated() + link.allocated(), 0);
}

/// Purpose: the state of parsing a long head that came in pieces must not delay a shorter one that comes
/// whole.
#[test]
fn a_shorter_head_behind_a_longer_one() {
    let head = |len: usize| format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(len));
    let mut peer = Peer::new();
    let long = head(5_000);
    assert_eq!(peer.next(NOW, &long[..4_000]), Seen::Wait);
    assert_eq!(peer.next(NOW, &long[4_000..]), whole("/", ""));
    peer.respond(NOW, 200, "");
    peer.output(NOW);
    assert_eq!(peer.next(NOW, &head(2_000)), whole("/", ""));
}

/// Purpose: statuses without content have none whatever is passed, and 205 says so in a field: without a
/// length, its content would seem to continue (RFC 9110 §15.3.6).
#[test]
fn no_content_for_statuses_that_have_none() {
    for (status, framing) in [(204, ""), (205, "content-length: 0|"), (304, "")] {
        for payload in [Payload::Bytes(b"x"), Payload::Shared(vec![b'x'; 9_000].into())] {
            let mut peer = asked(GET);
            assert!(!peer.payload(NOW, status, payload));
            let received = peer.output(NOW).0;
            let (head, content) = received.split_once("||").expect("a head");
            assert!(content.is_empty(), "{status}: {received}");
            assert!(format!("{head}|").ends_with(framing), "{status}: {received}");
            assert_eq!(
                head.contains("content-length"),
                !framing.is_empty(),
                "{status}: {received}"
            );
        }
        let mut peer = asked(GET);
        assert!(!peer.payload(NOW, status, Payload::Stream(None)), "nothing is to follow");
    }
}

/// Purpose: an interim status is never sent as if it were the reply: the next reply would be taken for this
/// one. The caller must choose another status.
#[test]
fn interim_statuses_are_no_replies() {
    for status in [100, 101, 103, 199] {
        let mut peer = asked(GET);
        let replied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            peer.payload(NOW, status, Payload::Bytes(b""))
        }));
        assert!(replied.is_err(), "{status}");
        assert_eq!(peer.take(NOW), None, "nothing of it is sent");
        assert!(peer.connection.is_reply_owed());
    }
}
