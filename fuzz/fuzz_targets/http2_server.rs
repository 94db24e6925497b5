//! Any frames, split anywhere, into the server's side of HTTP/2: nothing may panic, what is sent is made of frames that
//! may be sent, memory stays bounded, and the connection ends when its input does and all is answered. Tunnels (RFC 8441) echo
//! what comes in them.
//!
//! Input: one byte choosing the size of the parts, then frames: kind, flags, stream, length, payload. A HEADERS frame
//! whose payload begins with an even byte has the block of a request instead, of an extended CONNECT among them.
#![no_main]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use highwater_core::driver::Then;
use highwater_core::http::{Body, BodyPlan, Limits, Method, Payload};
use highwater_core::http2::server::Scratch;
use highwater_core::http2::{Connection, Decoder, Frame, Header, PREFACE, hpack, kind};
use highwater_core::link::Link;
use highwater_core::protocol::{
    Begun, Expired, Next, Pending as _, Protocol as _, Request, Step, Stream as _, StreamId,
};
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
    let is_tunnel = choice & 8 != 0;
    let method = if is_tunnel { "CONNECT" } else if choice & 2 == 0 { "GET" } else { "POST" };
    let path = if choice & 4 == 0 { "/" } else { "/later" };
    let protocol = is_tunnel.then_some((":protocol", "websocket"));
    encoder.begin(&mut block);
    let line = [(":method", method), (":scheme", "http"), (":authority", "h"), (":path", path)];
    for (name, value) in line.into_iter().chain(protocol) {
        encoder.field(name.as_bytes(), value.as_bytes(), hpack::Indexing::Incremental, &mut block);
    }
    encoder.field(b"x-stream", &[b'0' + stream % 10], hpack::Indexing::Incremental, &mut block);
    block
}

fn run(wire: &[u8], part: usize) {
    let mut limits = Limits::default();
    limits.http2.extended_connect = true;
    let (mut link, mut server) = (Link::new(), Connection::new(Instant::ZERO));
    let (mut scratch, mut decoder) = (Scratch::default(), Decoder::default());
    let (mut now, mut owed) = (Instant::ZERO, Owed::default());
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
            let mut bytes = &output.bytes[..];
            while let Some(frame) = decoder.next(&mut bytes).expect("the server keeps to the rules") {
                assert!(!matches!(frame, Frame::PushPromise { .. } | Frame::Unknown(_)), "{frame:?}");
            }
            if then != Then::Keep {
                return; // A worker asks for nothing more.
            }
        }
        let rest_len = input.len();
        link.stash_owned(carry, rest_len);
        assert!(server.allocated() < ALLOCATED_MAX, "{}", server.allocated());
        if piece.is_none() {
            for (id, is_tunnel) in std::mem::take(&mut owed.answers) {
                answer((&mut link, &mut server), id, is_tunnel, &limits, now);
                owed.tunnels.extend(is_tunnel.then_some(id));
            }
            for id in std::mem::take(&mut owed.tunnels) {
                end((&mut link, &mut server), id, &limits, now);
                owed.ended.insert(id);
            }
        }
    }
    server.flush(&mut link, &limits, now);
    let is_closed = link.take_output(now).is_some_and(|(_, then)| then != Then::Keep);
    // What the client's windows do not allow waits for the deadline of a client that has finished sending.
    assert!(is_closed || server.deadline(&link, &limits) < Instant::MAX, "nothing ends the connection");
}

/// What the application has still to do.
#[derive(Default)]
struct Owed {
    /// Streams with a request, and whether it asks for a tunnel.
    answers: BTreeMap<StreamId, bool>,
    /// Tunnels that are open.
    tunnels: BTreeSet<StreamId>,
    /// Those of which our side has ended: the other may go on.
    ended: BTreeSet<StreamId>,
}

fn answer(
    (link, server): (&mut Link, &mut Connection),
    id: StreamId,
    is_tunnel: bool,
    limits: &Limits,
    now: Instant,
) {
    let mut stream = server.stream(link, id);
    if !stream.is_reply_owed() {
        return;
    }
    if is_tunnel {
        stream.respond(101, DATE, limits, now, |_| {}, Payload::Upgrade);
        stream.allow_body(1000, now);
    } else {
        stream.respond(200, DATE, limits, now, |_| {}, Payload::Bytes(b"an answer"));
    }
}

/// Ends our side of a tunnel, and reads on: what the other still sends must not wait for ever.
fn end((link, server): (&mut Link, &mut Connection), id: StreamId, limits: &Limits, now: Instant) {
    let ended = server.stream(link, id).finish_body(limits, now, |_| {});
    ended.expect("a tunnel has no length");
    server.stream(link, id).allow_body(1000, now);
}

/// Serves the next thing; returns whether there was one.
fn serve(
    (link, server): (&mut Link, &mut Connection),
    input: &mut &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
    now: Instant,
    owed: &mut Owed,
) -> bool {
    let (id, next) = match server.advance(link, input, scratch, limits, now) {
        Step::Head(pending) => {
            let (id, head) = (pending.stream(), pending.head());
            let plan = match id.0 % 4 {
                1 => BodyPlan::Streamed(100_000),
                _ => BodyPlan::Whole(1000),
            };
            match pending.begin(link, input, plan, limits, now) {
                Begun::Request(body) => (id, Next::Request(Request { head, body })),
                Begun::Collecting => return true,
                Begun::Reject(reject) => (id, Next::Reject(reject)),
            }
        }
        Step::Next(id, next) => (id, next),
        Step::Reset(id) => {
            owed.answers.remove(&id);
            owed.tunnels.remove(&id);
            owed.ended.remove(&id);
            return true;
        }
    };
    let (mut is_tunnel, mut is_later) = (false, false);
    match next {
        Next::Wait => return false,
        Next::Request(request) => {
            let (head, body) = (request.head, request.body);
            is_tunnel = head.method() == Method::Connect;
            is_later = matches!(body, Body::Streamed) || head.path() == "/later" || head.authority().is_none();
        }
        Next::Reject(_) => {}
        Next::Body(piece) => {
            let room = piece.len() % 3 * 1000;
            server.stream(link, id).allow_body(room, now);
            return true;
        }
        Next::Trailers(_) | Next::BodyEnd | Next::BodyFailed(_) => return true,
        Next::Raw(piece) => {
            let piece = piece.to_vec();
            let is_open = owed.tunnels.contains(&id);
            assert!(is_open || owed.ended.contains(&id), "content of a tunnel that is not open");
            let mut stream = server.stream(link, id);
            if is_open && stream.room(limits) >= piece.len() {
                stream.push_body(&piece).expect("a tunnel has no length");
            }
            let room = if is_open { piece.len() % 3 * 1000 } else { 1000 };
            stream.allow_body(room, now);
            return true;
        }
        Next::RawEnd => {
            if owed.tunnels.remove(&id) {
                end((link, server), id, limits, now);
            }
            return true;
        }
    }
    if is_later {
        owed.answers.insert(id, is_tunnel);
        return true;
    }
    answer((link, server), id, is_tunnel, limits, now);
    owed.tunnels.extend(is_tunnel.then_some(id));
    true
}
