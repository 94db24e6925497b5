//! Any bytes, split anywhere: the HTTP/1.1 connection must not panic, must end when its input does,
//! and must give the same result however the bytes were split.
//!
//! Input: one byte choosing the limits (odd: tight), one byte seeding the splits, then what a client
//! sends. Seeds: `cargo test -p highwater-tests --test conformance_core -- --ignored
//! write_fuzz_seeds`.
#![no_main]

mod pieces;

use core::time::Duration;

use highwater_core::driver::Then;
use highwater_core::http::{BodyPlan, Limits, Payload};
use highwater_core::http1::{Connection, Expired, Next, Scratch};
use highwater_core::link::Link;
use highwater_core::time::Instant;
use libfuzzer_sys::fuzz_target;
use pieces::Pieces;

const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

/// Splits tried for each input besides none and every.
const SPLITS: u64 = 3;

fuzz_target!(|data: &[u8]| {
    let [tight, seed, wire @ ..] = data else {
        return;
    };
    let limits = if tight % 2 == 1 { tight_limits() } else { Limits::default() };
    let whole = run(&limits, [wire].into_iter());
    assert!(whole.closed, "the end of input ends the connection");
    assert_eq!(run(&limits, wire.chunks(1)), whole, "byte by byte");
    for round in 0..SPLITS {
        let state = (u64::from(*seed) << 8 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        assert_eq!(run(&limits, Pieces { rest: wire, state }), whole, "round {round}");
    }
});

fn tight_limits() -> Limits {
    Limits {
        uri_max: 20,
        header_max: 80,
        header_count_max: 4,
        body_max: 12,
        discard_max: 12,
        output_max: 150,
        requests_max: 5,
        ..Limits::default()
    }
}

/// The requests that the application received and the replies that the peer received, without
/// interim ones.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    handed: Vec<u8>,
    received: String,
    closed: bool,
}

fn run<'w>(limits: &Limits, pieces: impl Iterator<Item = &'w [u8]>) -> Run {
    let mut run = Run::default();
    let (mut link, mut connection) = (Link::new(), Connection::new(Instant::ZERO));
    let mut scratch = Scratch::default();
    let mut now = Instant::ZERO;
    for piece in pieces.map(Some).chain([None]) {
        now += Duration::from_nanos(1);
        assert_eq!(connection.on_deadline(&mut link, now, limits), Expired::Early);
        let mut carry = link.take_carry();
        match piece {
            Some(piece) => carry.extend_from_slice(piece),
            None => link.on_eof(),
        }
        let mut input = carry.as_slice();
        while serve((&mut link, &mut connection), &mut input, &mut scratch, limits, now, &mut run)
            || flush(&mut link, now, &mut run)
        {}
        let rest_len = input.len();
        link.stash_owned(carry, rest_len);
        flush(&mut link, now, &mut run);
    }
    run
}

/// Serves the next thing; returns whether there was one.
fn serve(
    (link, connection): (&mut Link, &mut Connection),
    input: &mut &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
    now: Instant,
    run: &mut Run,
) -> bool {
    let next = connection.next(link, input, scratch, limits, now, |head| match head.path().len() % 3 {
        0 => BodyPlan::Streamed(limits.body_max),
        _ => BodyPlan::Whole(limits.body_max),
    });
    let (status, content) = match next {
        Next::Wait => return false,
        Next::Request(request) => {
            let head = request.head;
            // The deadline that a client states is parsed only when it is asked for.
            let _ = (head.patience(0), head.patience(u64::MAX), head.asks_upgrade());
            let line = format!("\n{} {} {:?}\n", head.method_token(), head.path(), head.headers());
            run.handed.extend_from_slice(line.as_bytes());
            match request.body.whole() {
                // An early answer: a streamed body is discarded behind it.
                _ if head.path().len() == 6 => (200, "early"),
                Some(body) => {
                    run.handed.extend_from_slice(body);
                    (200, "all")
                }
                None => return true,
            }
        }
        Next::Body(piece) => {
            run.handed.extend_from_slice(piece);
            return true;
        }
        Next::Trailers(fields) => {
            run.handed.extend_from_slice(format!("\n{fields:?}\n").as_bytes());
            return true;
        }
        Next::BodyEnd => (200, "all"),
        Next::Reject(reject) | Next::BodyFailed(reject) => (reject.status(), reject.reason()),
        Next::Raw(_) | Next::RawEnd => unreachable!("nothing was upgraded"),
    };
    // Were the 100 withheld, it would matter whether the body had come before the answer.
    connection.send_continue(link, now);
    connection.respond(link, status, DATE, limits, now, |_| {}, Payload::Bytes(content.as_bytes()));
    true
}

/// Has everything sent; returns whether there was something.
fn flush(link: &mut Link, now: Instant, run: &mut Run) -> bool {
    if run.closed {
        return false;
    }
    let Some((output, then)) = link.take_output(now) else {
        return false;
    };
    link.on_sent(now);
    run.received.push_str(&String::from_utf8_lossy(&output.bytes));
    run.received = run.received.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    run.closed = then != Then::Keep;
    true
}
