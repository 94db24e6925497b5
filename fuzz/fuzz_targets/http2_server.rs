//! Any frames, split anywhere, into the server's side of HTTP/2: nothing may panic, what is sent is made of frames that
//! may be sent, memory stays bounded, and the connection ends when its input does and all is answered.
//!
//! Input: one byte choosing the size of the parts, then frames: kind, flags, stream, length, payload. A HEADERS frame
//! whose payload begins with an even byte has the block of a request instead.
#![no_main]

use core::time::Duration;
use std::collections::BTreeSet;

use highwater_core::driver::Then;
use highwater_core::http::{Body, BodyPlan, Limits, Payload};
use highwater_core::http2::server::Scratch;
use highwater_core::http2::{Connection, Decoder, Frame, Header, PREFACE, hpack, kind};
use highwater_core::link::Link;
use highwater_core::protocol::{Expired, Next, Pending as _, Protocol as _, Step, Stream as _, StreamId};
use highwater_core::time::Instant;
use libfuzzer_sys::fuzz_target;

const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

/// What a connection may hold: a field block, and content within both windows.
const ALLOCATED_MAX: usize = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let [size, bytes @ ..] = data else { return };
    let wire = wire(bytes);
    run(&wire, usize::MAX);
    run(&wire, usize::from(*size) + 1);
});

/// The bytes of a client.
fn wire(mut bytes: &[u8]) -> Vec<u8> {
    let mut wire = PREFACE.to_vec();
    wire.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let mut encoder = hpack::Encoder::new();
    while let [kind, flags, stream, len, rest @ ..] = bytes {
        let (payload, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = behind;
        let mut payload = payload.to_vec();
        let kind = kind % 17;
        if kind == kind::HEADERS && payload.first().is_some_and(|first| first % 2 == 0) {
            payload = request(&mut encoder, payload[0], *stream);
        }
        let (len, stream) = (payload.len() as u32, u32::from(*stream));
        wire.extend_from_slice(&Header { len, kind, flags: *flags, stream }.encode());
        wire.extend_from_slice(&payload);
    }
    wire
}

fn request(encoder: &mut hpack::Encoder, choice: u8, stream: u8) -> Vec<u8> {
    let mut block = Vec::new();
    let method = if choice & 2 == 0 { "GET" } else { "POST" };
    let path = if choice & 4 == 0 { "/" } else { "/later" };
    encoder.begin(&mut block);
    for (name, value) in [(":method", method), (":scheme", "http"), (":authority", "h"), (":path", path)] {
        encoder.field(name.as_bytes(), value.as_bytes(), hpack::Indexing::Incremental, &mut block);
    }
    encoder.field(b"x-stream", &[b'0' + stream % 10], hpack::Indexing::Incremental, &mut block);
    block
}

fn run(wire: &[u8], part: usize) {
    let limits = Limits::default();
    let (mut link, mut server) = (Link::new(), Connection::new(Instant::ZERO));
    let (mut scratch, mut heard) = (Scratch::default(), Decoder::default());
    let (mut now, mut owed) = (Instant::ZERO, BTreeSet::new());
    let mut is_closed = false;
    for piece in wire.chunks(part).map(Some).chain([None, None]) {
        now += Duration::from_millis(1);
        let expired = server.on_deadline(&mut link, now, &limits).1;
        assert!(matches!(expired, Expired::Early), "{expired:?}");
        let mut carry = link.take_carry();
        match piece {
            Some(piece) => carry.extend_from_slice(piece),
            None => link.on_eof(),
        }
        let mut input = carry.as_slice();
        loop {
            while serve((&mut link, &mut server), &mut input, &mut scratch, &limits, now, &mut owed) {}
            server.flush(&mut link, &limits, now);
            let Some((output, then)) = link.take_output(now) else { break };
            link.on_sent(now);
            assert!(!is_closed, "nothing follows the end");
            is_closed = then != Then::Keep;
            let mut bytes = &output.bytes[..];
            while let Some(frame) = heard.next(&mut bytes).expect("the server keeps to the rules") {
                assert!(!matches!(frame, Frame::PushPromise { .. } | Frame::Unknown(_)), "{frame:?}");
            }
        }
        let rest_len = input.len();
        link.stash_owned(carry, rest_len);
        assert!(server.allocated() < ALLOCATED_MAX, "{}", server.allocated());
        if piece.is_none() {
            for id in std::mem::take(&mut owed) {
                answer((&mut link, &mut server), id, &limits, now);
            }
        }
    }
    server.flush(&mut link, &limits, now);
    is_closed |= link.take_output(now).is_some_and(|(_, then)| then != Then::Keep);
    // What the client's windows do not allow waits for the deadline of a client that has finished sending.
    assert!(is_closed || server.deadline(&link, &limits) < Instant::MAX, "nothing ends the connection");
}

fn answer((link, server): (&mut Link, &mut Connection), id: StreamId, limits: &Limits, now: Instant) {
    let mut stream = server.stream(link, id);
    if stream.is_reply_owed() {
        stream.respond(200, DATE, limits, now, |_| {}, Payload::Bytes(b"an answer"));
    }
}

/// Serves the next thing; returns whether there was one.
fn serve(
    (link, server): (&mut Link, &mut Connection),
    input: &mut &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
    now: Instant,
    owed: &mut BTreeSet<StreamId>,
) -> bool {
    let (id, is_head, next) = match server.advance(link, input, scratch, limits, now) {
        Step::Head(pending) => {
            let id = pending.stream();
            let plan = match id.0 % 4 {
                1 => BodyPlan::Streamed(100_000),
                _ => BodyPlan::Whole(1000),
            };
            (id, true, pending.begin(link, input, plan, limits, now))
        }
        Step::Next(id, next) => (id, false, next),
        Step::Reset(id) => return owed.remove(&id) || true,
    };
    let is_later = match next {
        Next::Wait => return is_head,
        Next::Request(request) => {
            let (head, body) = (request.head, request.body);
            matches!(body, Body::Streamed) || head.path() == "/later" || head.authority().is_none()
        }
        Next::Reject(_) => false,
        Next::Body(piece) => {
            let room = piece.len() % 3 * 1000;
            server.stream(link, id).allow_body(room, now);
            return true;
        }
        Next::Trailers(_) | Next::BodyEnd | Next::BodyFailed(_) => return true,
        Next::Raw(_) | Next::RawEnd => unreachable!("no connection is upgraded"),
    };
    owed.insert(id);
    if !is_later {
        owed.remove(&id);
        answer((link, server), id, limits, now);
    }
    true
}
