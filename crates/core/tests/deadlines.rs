//! Every deadline of a connection, to the nanosecond: not before, not after, and what follows.
//! Expectations are the sentences in `limits.rs`.

mod common;

use common::{Peer, Seen, ms, streamed, whole};
use core::time::Duration;
use highwater_core::driver::Then;
use highwater_core::http::{Limits, Payload, Reject};
use highwater_core::http1::Expired;
use highwater_core::time::Instant;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const CLOSE: &str = "HTTP/1.1 408 Request Timeout|content-length: 0|connection: close||";

fn post(target: &str, length: usize) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")
}

/// Answers one GET at `now`, so that the connection is idle from then on.
fn idle_since(peer: &mut Peer, now: Instant) {
    assert_eq!(peer.next(now, GET), whole("/", ""));
    peer.respond(now, 200, "");
    peer.output(now);
}

/// Purpose: a client that never sends a byte is closed without an answer.
#[test]
fn silent_connection() {
    assert_eq!(Peer::new().expire(ms(10_000)), Expired::Close);
}

/// Purpose: a head that stalls is answered 408, counted from the accept, and the reply is the last.
#[test]
fn head_stalls() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(9_000), "GET / HT"), Seen::Wait);
    assert_eq!(peer.expire(ms(10_000)), Expired::Reject(Reject::HeaderTimeout));
    peer.respond(ms(10_000), 408, "");
    assert_eq!(peer.output(ms(10_000)), (CLOSE.into(), Then::Shutdown));
}

/// Purpose: one byte per second does not extend the head's deadline: it is a total.
#[test]
fn head_drips() {
    let mut peer = Peer::new();
    for (second, byte) in "GET / HTTP".chars().enumerate() {
        assert_eq!(peer.next(ms(second as u64 * 1_000), &byte.to_string()), Seen::Wait);
    }
    assert_eq!(peer.expire(ms(10_000)), Expired::Reject(Reject::HeaderTimeout));
}

/// Purpose: the head of a later request counts from its first byte, not from the last answer.
#[test]
fn later_head_stalls() {
    let mut peer = Peer::new();
    idle_since(&mut peer, ms(1_000));
    assert_eq!(peer.next(ms(50_000), "G"), Seen::Wait);
    assert_eq!(peer.next(ms(59_000), "E"), Seen::Wait);
    assert_eq!(peer.expire(ms(60_000)), Expired::Reject(Reject::HeaderTimeout));
}

/// Purpose: an empty line behind a body begins no request: the connection is idle, not slow.
#[test]
fn empty_line_is_idleness() {
    let mut peer = Peer::new();
    idle_since(&mut peer, ms(1_000));
    assert_eq!(peer.next(ms(2_000), "\r\n"), Seen::Wait);
    assert_eq!(peer.expire(ms(61_000)), Expired::Close);
    let mut peer = Peer::new();
    idle_since(&mut peer, ms(1_000));
    assert_eq!(peer.next(ms(2_000), "\r\n"), Seen::Wait);
    assert_eq!(peer.next(ms(3_000), GET), whole("/", ""));
}

/// Purpose: an idle connection is closed silently, counted from the end of the last answer.
#[test]
fn idle() {
    let mut peer = Peer::new();
    idle_since(&mut peer, ms(1_000));
    assert_eq!(peer.expire(ms(61_000)), Expired::Close);
}

/// Purpose: a client that reads a long answer slowly is not idle: only the write timeout may cut it
/// off, and idleness begins when the client has received everything.
#[test]
fn slow_reader_is_not_idle() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), GET), whole("/", ""));
    peer.shared(ms(0), vec![b'x'; 100_000]);
    peer.take(ms(0)).expect("the answer");
    for seconds in (0..200).step_by(20) {
        peer.link.on_progress(ms(seconds * 1_000));
        assert_eq!(peer.deadline(), ms(seconds * 1_000 + 30_000));
    }
    peer.sent(ms(200_000));
    assert_eq!(peer.expire(ms(260_000)), Expired::Close);
}

/// Purpose: a peer that takes nothing for the write timeout is reset.
#[test]
fn write_stalls() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), GET), whole("/", ""));
    peer.respond(ms(0), 200, "x");
    peer.take(ms(500)).expect("the answer");
    peer.link.on_progress(ms(1_000));
    assert_eq!(peer.expire(ms(31_000)), Expired::Reset);
}

/// Purpose: a handler may take any time while it owes the answer.
#[test]
fn no_deadline_while_a_reply_is_owed() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), GET), whole("/", ""));
    assert_eq!(peer.deadline(), Instant::MAX);
    assert_eq!(
        peer.connection.on_deadline(&mut peer.link, ms(1_000_000), &peer.limits),
        Expired::Early
    );
}

/// Purpose: a collected body that stalls is answered 408 after the pause allowed.
#[test]
fn body_stalls() {
    let limits = Limits { body_rate_min: 0, ..Limits::default() };
    let mut peer = Peer::with(limits);
    assert_eq!(peer.next(ms(1_000), &post("/", 10)), Seen::Wait);
    assert_eq!(peer.next(ms(20_000), "x"), Seen::Wait);
    assert_eq!(peer.expire(ms(50_000)), Expired::Reject(Reject::BodyTimeout));
    peer.respond(ms(50_000), 408, "");
    assert_eq!(peer.output(ms(50_000)), (CLOSE.into(), Then::Shutdown));
}

/// Purpose: framing is not progress: a body of nothing but extensions stalls.
#[test]
fn chunk_extensions_are_no_progress() {
    let limits = Limits { body_rate_min: 0, ..Limits::default() };
    let mut peer = Peer::with(limits);
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;";
    assert_eq!(peer.next(ms(0), head), Seen::Wait);
    for second in 1..30 {
        assert_eq!(peer.next(ms(second * 1_000), "a"), Seen::Wait);
    }
    assert_eq!(peer.expire(ms(30_000)), Expired::Reject(Reject::BodyTimeout));
}

/// Purpose: a body below the minimum rate is refused when its grace is over, however steadily it
/// drips: 5 s, and a second more for each 240 bytes.
#[test]
fn body_drips() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(2_000), &post("/", 1_000)), Seen::Wait);
    for second in 1..=5u64 {
        assert_eq!(peer.next(ms(2_000 + second * 1_000 - 1), "x"), Seen::Wait);
    }
    let due = ms(7_000) + Duration::from_nanos(5 * 1_000_000_000 / 240);
    assert_eq!(peer.expire(due), Expired::Reject(Reject::BodyTimeout));
    let mut fast = Peer::new();
    assert_eq!(fast.next(ms(0), &post("/", 1_000)), Seen::Wait);
    assert_eq!(fast.next(ms(1), &"x".repeat(480)), Seen::Wait);
    assert_eq!(fast.deadline(), ms(7_000));
}

/// Purpose: the part of a body that came together with its head counts like the rest of it, in
/// either framing: a client that sends what it has at once is not slow if it then pauses.
#[test]
fn what_comes_with_the_head_counts() {
    for (framing, body) in [
        ("Content-Length: 9600", "x".repeat(4_800)),
        ("Transfer-Encoding: chunked", format!("2580\r\n{}", "x".repeat(4_800))),
    ] {
        for target in ["/", "/s"] {
            let mut peer = Peer::new();
            let wire = format!("POST {target} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n{body}");
            if peer.next(ms(0), &wire) != Seen::Wait {
                assert_eq!(peer.next(ms(0), ""), Seen::Body("x".repeat(4_800).into()));
            }
            assert_eq!(peer.deadline(), ms(25_000), "{framing}, {target}: 5 s and 4800/240 s");
        }
    }
}

/// Purpose: the handler of a streamed body is notified of a stall; the answer is still owed, with
/// any status the handler chooses, and is the last.
#[test]
fn streamed_body_stalls() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 10)), streamed("/s"));
    assert_eq!(peer.next(ms(1_000), "x"), Seen::Body(b"x".into()));
    let due = ms(5_000) + Duration::from_nanos(1_000_000_000 / 240);
    assert_eq!(peer.expire(due), Expired::BodyFailed(Reject::BodyTimeout));
    assert_eq!(peer.deadline(), Instant::MAX);
    peer.respond(due, 408, "");
    assert_eq!(peer.output(due), (CLOSE.into(), Then::Shutdown));
}

/// Purpose: once the answer has begun, no status can be sent: the connection is reset.
#[test]
fn streamed_body_stalls_under_a_streamed_reply() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 10)), streamed("/s"));
    assert!(peer.stream(ms(0), None));
    assert_eq!(peer.expire(ms(5_000)), Expired::Reset);
}

/// Purpose: a handler that stops reading stops the clock; it restarts when the handler resumes.
#[test]
fn paused_body_has_no_deadline() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 10)), streamed("/s"));
    peer.connection.pause_body(&mut peer.link, true, ms(1_000));
    assert_eq!(peer.deadline(), Instant::MAX);
    assert_eq!(peer.next(ms(2_000), "abc"), Seen::Wait);
    peer.connection.pause_body(&mut peer.link, false, ms(100_000));
    assert_eq!(peer.next(ms(100_000), ""), Seen::Body(b"abc".into()));
    let due = ms(105_000) + Duration::from_nanos(3 * 1_000_000_000 / 240);
    assert_eq!(peer.expire(due), Expired::BodyFailed(Reject::BodyTimeout));
}

/// Purpose: a peer that waits for its 100 is not slow; the body's time counts from the 100.
#[test]
fn body_awaiting_its_100_has_no_deadline() {
    let mut peer = Peer::new();
    let head = "POST /s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(peer.next(ms(0), head), streamed("/s"));
    assert_eq!(peer.deadline(), Instant::MAX);
    peer.connection.send_continue(&mut peer.link, ms(60_000));
    assert_eq!(peer.output(ms(60_000)).0, "HTTP/1.1 100 Continue||");
    assert_eq!(peer.expire(ms(65_000)), Expired::BodyFailed(Reject::BodyTimeout));
}

/// Purpose: the rest of an unwanted body must keep arriving; if it stalls, the connection is
/// closed, but not before the answer has been taken.
#[test]
fn discarded_body_stalls() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 10)), streamed("/s"));
    peer.respond(ms(1_000), 200, "early");
    peer.take(ms(1_000)).expect("the answer");
    assert_eq!(peer.deadline(), ms(31_000), "the write timeout alone");
    peer.sent(ms(2_000));
    assert_eq!(peer.expire(ms(6_000)), Expired::Close);
}

/// Purpose: a body dropped by a handler that has not answered yet may stall: the answer still comes.
#[test]
fn dropped_body_stalls_before_the_reply() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 10)), streamed("/s"));
    peer.connection.drop_body(&peer.limits, ms(0));
    assert_eq!(peer.expire(ms(5_000)), Expired::Early);
    assert_eq!(peer.deadline(), Instant::MAX);
    peer.respond(ms(9_000), 200, "x");
    let text = "HTTP/1.1 200 OK|content-length: 1|connection: close||x";
    assert_eq!(peer.output(ms(9_000)), (text.into(), Then::Shutdown));
}

/// Purpose: a lingering close ends after its time, counted from the moment the reply was taken.
#[test]
fn lingering_close() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), "BAD\r\n\r\n"), Seen::Reject(Reject::RequestLine));
    peer.respond(ms(0), 400, "");
    let (_, then) = peer.take(ms(0)).expect("the refusal");
    assert_eq!(then, Then::Shutdown);
    assert!(peer.link.is_lingering());
    peer.link.on_progress(ms(20_000));
    assert_eq!(peer.deadline(), ms(50_000), "the write timeout alone");
    peer.sent(ms(25_000));
    assert_eq!(peer.next(ms(26_000), "more of the same"), Seen::Wait);
    assert_eq!(peer.expire(ms(27_000)), Expired::Close);
}

/// Purpose: a lingering close drops a bounded amount, not everything that arrives in its time.
#[test]
fn lingering_close_is_bounded() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), "BAD\r\n\r\n"), Seen::Reject(Reject::RequestLine));
    peer.respond(ms(0), 400, "");
    peer.output(ms(0));
    let max = peer.limits.discard_max as usize;
    assert_eq!(peer.next(ms(1), &"x".repeat(max)), Seen::Wait);
    assert!(!peer.link.has_lingered_enough(&peer.limits));
    assert_eq!(peer.next(ms(1), "x"), Seen::Wait);
    assert!(peer.link.has_lingered_enough(&peer.limits));
    assert_eq!(peer.allocated(), 0);
}

/// Purpose: draining leaves an idle connection a moment, for the request already on its way.
#[test]
fn draining_idle() {
    let mut peer = Peer::new();
    idle_since(&mut peer, ms(1_000));
    peer.connection.drain(ms(5_000));
    assert_eq!(peer.expire(ms(5_250)), Expired::Close);
    let mut late = Peer::new();
    idle_since(&mut late, ms(1_000));
    late.connection.drain(ms(5_000));
    assert_eq!(late.next(ms(5_249), GET), whole("/", ""));
    late.respond(ms(6_000), 200, "");
    let text = "HTTP/1.1 200 OK|content-length: 0|connection: close||";
    assert_eq!(late.output(ms(6_000)), (text.into(), Then::Shutdown));
}

/// Purpose: draining a connection that never spoke gives it the same moment; one whose answer is in
/// flight gets it once that is taken.
#[test]
fn draining_fresh_and_sending() {
    let mut fresh = Peer::new();
    fresh.connection.drain(ms(100));
    assert_eq!(fresh.expire(ms(350)), Expired::Close);
    let mut sending = Peer::new();
    assert_eq!(sending.next(ms(0), GET), whole("/", ""));
    sending.respond(ms(0), 200, "x");
    sending.take(ms(0)).expect("the answer");
    sending.connection.drain(ms(1_000));
    assert_eq!(sending.deadline(), ms(30_000));
    sending.sent(ms(8_000));
    assert_eq!(sending.expire(ms(8_250)), Expired::Close);
}

/// Purpose: draining does not shorten the time of a head that has begun.
#[test]
fn draining_half_a_head() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(1_000), "GET"), Seen::Wait);
    peer.connection.drain(ms(2_000));
    assert_eq!(peer.expire(ms(10_000)), Expired::Reject(Reject::HeaderTimeout));
}

/// Purpose: an upgraded connection has the other protocol's deadlines, and ours for writing.
#[test]
fn upgraded() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), GET), whole("/", ""));
    assert!(peer.payload(ms(0), 101, Payload::Upgrade));
    peer.take(ms(0)).expect("the 101");
    assert_eq!(peer.deadline(), ms(30_000));
    peer.sent(ms(1));
    assert_eq!(peer.deadline(), Instant::MAX);
}

/// Purpose: of an upgraded connection of which one side has ended, something has to move within the bound: what either
/// side sends, and the end of the other side. While the application has no room for what the peer sends, it rests.
#[test]
fn half_closed_upgraded() {
    let upgraded = || {
        let mut peer = Peer::new();
        assert_eq!(peer.next(ms(0), GET), whole("/", ""));
        assert!(peer.payload(ms(0), 101, Payload::Upgrade));
        peer.output(ms(0));
        peer
    };
    let mut peer = upgraded();
    let Peer { connection, link, limits, .. } = &mut peer;
    connection.finish_body(link, limits, ms(1_000)).expect("it has no length");
    assert_eq!(peer.take(ms(1_000)), Some((String::new(), Then::Shutdown)));
    peer.sent(ms(1_000));
    assert_eq!(peer.deadline(), ms(6_000));
    assert_eq!(peer.next(ms(5_999), "a"), Seen::Raw(b"a".to_vec()));
    assert_eq!(peer.deadline(), ms(10_999));
    peer.connection.pause_body(&mut peer.link, true, ms(9_000));
    assert_eq!(peer.deadline(), Instant::MAX, "the peer cannot send");
    peer.connection.pause_body(&mut peer.link, false, ms(100_000));
    assert_eq!(peer.deadline(), ms(105_000));
    peer.link.on_hang_up(ms(104_000));
    assert_eq!(peer.eof(ms(104_000)), Seen::RawEnd);
    peer.connection.pause_body(&mut peer.link, true, ms(104_000));
    assert_eq!(peer.expire(ms(109_000)), Expired::HalfClosed, "the application holds it");

    let mut peer = upgraded();
    peer.link.on_hang_up(ms(1_000));
    assert_eq!(peer.eof(ms(1_000)), Seen::RawEnd);
    assert_eq!(peer.deadline(), ms(6_000));
    peer.connection.push_body(&mut peer.link, b"a").expect("it has no length");
    peer.take(ms(2_000)).expect("a byte");
    peer.sent(ms(3_000));
    assert_eq!(peer.expire(ms(8_000)), Expired::HalfClosed);
}

/// Purpose: behind our FIN, an application that reads no more leaves the peer the time of a lingering close, counted
/// from the FIN.
#[test]
fn half_closed_upgraded_lingers() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), GET), whole("/", ""));
    assert!(peer.payload(ms(0), 101, Payload::Upgrade));
    peer.output(ms(0));
    let Peer { connection, link, limits, .. } = &mut peer;
    connection.finish_body(link, limits, ms(1_000)).expect("it has no length");
    peer.output(ms(1_000));
    assert_eq!(peer.next(ms(2_000), "a"), Seen::Raw(b"a".to_vec()));
    peer.connection.drop_raw(&mut peer.link);
    assert_eq!(peer.expire(ms(3_000)), Expired::Close);
}

/// Purpose: while a request waits for its turn, its content is not read and nothing can time out: the peer has
/// done its part. Its turn restarts the deadlines of its content, and those of a peer that has finished sending.
#[test]
fn a_parked_request_rests() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/s", 3)), streamed("/s"));
    assert_eq!(peer.connection.park(), None);
    assert_eq!(peer.next(ms(1), "ab"), Seen::Wait);
    assert!(!peer.connection.wants_input(&peer.link, &peer.limits));
    peer.link.on_hang_up(ms(2));
    assert_eq!(peer.deadline(), Instant::MAX);
    peer.connection.unpark(&mut peer.link, ms(100_000));
    assert_eq!(peer.next(ms(100_000), ""), Seen::Body(b"ab".to_vec()));
    assert_eq!(peer.deadline(), ms(105_000));
    let bound = ms(100_000) + peer.limits.half_closed_timeout;
    assert_eq!(peer.next(ms(100_000), "c"), Seen::Body(b"c".to_vec()));
    assert_eq!(peer.next(ms(100_000), ""), Seen::BodyEnd);
    assert_eq!(peer.expire(bound), Expired::HalfClosed);
}

/// Purpose: a body that was collected goes with the request that waits, and is not kept twice.
#[test]
fn a_parked_request_takes_its_body() {
    let mut peer = Peer::new();
    assert_eq!(peer.next(ms(0), &post("/", 3)), Seen::Wait);
    assert_eq!(peer.next(ms(1), "abcGET /2"), whole("/", "abc"));
    assert_eq!(peer.connection.park(), Some(b"abc".as_slice().into()));
    assert_eq!(peer.connection.allocated(), 0);
    assert_eq!(peer.next(ms(2), " HTTP/1.1\r\nHost: h\r\n\r\n"), Seen::Wait, "a reply is owed");
    peer.connection.unpark(&mut peer.link, ms(60_000));
    peer.respond(ms(60_000), 200, "");
    assert_eq!(peer.next(ms(60_000), ""), whole("/2", ""));
}
