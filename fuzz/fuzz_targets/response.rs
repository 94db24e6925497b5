//! Any bytes, split anywhere: the reader of responses must not panic, must use up its input, must give the
//! same result however the bytes were split, and must count what it reads.
//!
//! Input: one byte choosing the limits (odd: tight) and what was asked, one byte seeding the splits, then
//! what a server sends.
#![no_main]

mod pieces;

use highwater_core::http1::client::{Asked, Content, End, Eof, Limits, Malformed, Next, Reader};
use libfuzzer_sys::fuzz_target;
use pieces::Pieces;

/// Splits tried for each input besides none and every.
const SPLITS: u64 = 3;

const ASKED: [Asked; 4] = [Asked::Plain, Asked::Head, Asked::Connect, Asked::Upgrade];

fuzz_target!(|data: &[u8]| {
    let [choice, seed, wire @ ..] = data else {
        return;
    };
    let tight = Limits { head_max: 60, fields_max: 3, interims_max: 1 };
    let limits = if choice % 2 == 1 { tight } else { Limits::default() };
    let asked = ASKED[usize::from(choice / 2 % 4)];
    let whole = run(limits, asked, [wire].into_iter());
    assert_eq!(run(limits, asked, wire.chunks(1)), whole, "byte by byte");
    for round in 0..SPLITS {
        let state = (u64::from(*seed) << 8 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        assert_eq!(run(limits, asked, Pieces { rest: wire, state }), whole, "round {round}");
    }
    let counted = count(limits, asked, Pieces { rest: wire, state: u64::from(*seed) | 1 });
    assert_eq!(counted, (whole.ends, whole.malformed), "counted");
});

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    heads: Vec<String>,
    content: Vec<u8>,
    ends: Vec<End>,
    malformed: Option<Malformed>,
    truncated: bool,
}

fn run<'w>(limits: Limits, asked: Asked, pieces: impl Iterator<Item = &'w [u8]>) -> Run {
    let mut run = Run::default();
    let mut reader = Reader::new(limits);
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece, asked) {
                Ok(Next::Wait) => break,
                Ok(Next::Interim(head)) => run.heads.push(format!("{head:?}")),
                Ok(Next::Head(head)) => {
                    assert!(head.bytes().len() <= limits.head_max);
                    assert!(head.fields().iter().count() <= limits.fields_max);
                    run.heads.push(format!("{head:?} {:?}", head.reason()));
                    if head.content() == Content::Raw {
                        run.ends.push(End { status: head.status(), keep_alive: false });
                    }
                }
                Ok(Next::Content(piece) | Next::Raw(piece)) => {
                    assert!(!piece.is_empty());
                    run.content.extend_from_slice(piece);
                }
                Ok(Next::End(end, trailers)) => {
                    run.heads.push(format!("{trailers:?}"));
                    run.ends.push(end);
                }
                Err(malformed) => {
                    run.malformed = Some(malformed);
                    return run;
                }
            }
        }
        assert!(piece.is_empty(), "all input is used up");
    }
    match reader.on_eof() {
        Eof::Clean => {}
        Eof::End(end) => run.ends.push(end),
        Eof::Truncated => run.truncated = true,
    }
    run
}

fn count<'w>(
    limits: Limits,
    asked: Asked,
    pieces: impl Iterator<Item = &'w [u8]>,
) -> (Vec<End>, Option<Malformed>) {
    let (mut reader, mut ends) = (Reader::new(limits), Vec::new());
    for mut piece in pieces {
        loop {
            match reader.skip(&mut piece, asked) {
                Ok(None) => break,
                Ok(Some(end)) => ends.push(end),
                Err(malformed) => return (ends, Some(malformed)),
            }
        }
    }
    if let Eof::End(end) = reader.on_eof() {
        ends.push(end);
    }
    (ends, None)
}
