//! Expectations come from the input: a list of records, and the places that the test damages.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const SALT: u64 = 0x0123_4567_89ab_cdef;

/// Frames with bodies of these lengths, in one segment from offset 10 on; and the position of each,
/// then that of their end.
fn frames(lengths: &[usize]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for (index, length) in lengths.iter().enumerate() {
        places.push(bytes.len());
        push(&mut bytes, 7, 1000 + index as u64, index as u128, &body(index, *length));
    }
    places.push(bytes.len());
    stamp(&mut bytes, SALT, 10, 0);
    (bytes, places)
}

fn body(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (index * 31 + at) as u8).collect()
}

/// The steps of a walk, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnedStep {
    Record(u64, u64, Vec<u8>),
    Hole(u64, u64),
    Tail(u64, u64),
}

/// Walks through `bytes` with windows of `window` bytes, or larger where a frame needs it.
fn walk(bytes: &[u8], window: usize) -> Vec<OwnedStep> {
    let mut walk = Walk::new(SALT, 0, 0);
    let (mut steps, mut size) = (Vec::new(), window);
    loop {
        let from = (walk.at() as usize).min(bytes.len());
        let end = (from + size).min(bytes.len());
        match walk.next(&bytes[from..end], end == bytes.len()) {
            Step::Frame(at, header, body) => {
                steps.push(OwnedStep::Record(at, header.offset, body.to_vec()));
            }
            Step::Hole(from, to) => steps.push(OwnedStep::Hole(from, to)),
            Step::Tail(from, to) => steps.push(OwnedStep::Tail(from, to)),
            Step::More(needed) => {
                let left = bytes.len() - walk.at() as usize;
                assert!(needed > end.saturating_sub(walk.at() as usize), "asks for bytes it has");
                size = needed.max(window).min(left.max(1));
                continue;
            }
            Step::End => return steps,
        }
        size = window;
    }
}

/// The expected steps of a walk through `lengths` if the frame `bad` is damaged.
fn expected(lengths: &[usize], places: &[usize], bad: Option<usize>) -> Vec<OwnedStep> {
    let place = |index: usize| places[index] as u64;
    (0..lengths.len())
        .map(|index| match bad {
            Some(bad) if bad == index && index + 1 == lengths.len() => {
                OwnedStep::Tail(place(index), place(index + 1))
            }
            Some(bad) if bad == index => OwnedStep::Hole(place(index), place(index + 1)),
            _ => OwnedStep::Record(place(index), 10 + index as u64, body(index, lengths[index])),
        })
        .collect()
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![0..20usize, 0..600usize], 1..8)
}

proptest! {
    /// Purpose: every record written is read, whatever the size of the windows.
    #[test]
    fn records_come_back(lengths in lengths(), window in 1..2000usize) {
        let (bytes, places) = frames(&lengths);
        prop_assert_eq!(walk(&bytes, window), expected(&lengths, &places, None));
    }

    /// Purpose: one wrong byte, wherever it is, loses only its own record, and is reported as what
    /// it is: a hole in the middle, a tail at the end.
    #[test]
    fn a_wrong_byte_costs_one_record(
        lengths in lengths(), at: prop::sample::Index, flip in 1..=255u8, window in 1..2000usize,
    ) {
        let (mut bytes, places) = frames(&lengths);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let bad = places.iter().rposition(|place| *place <= at);
        prop_assert_eq!(walk(&bytes, window), expected(&lengths, &places, bad));
    }

    /// Purpose: a file cut off anywhere keeps its complete records, and the rest is a tail.
    #[test]
    fn a_torn_end_costs_what_is_not_whole(lengths in lengths(), at: prop::sample::Index) {
        let (mut bytes, places) = frames(&lengths);
        let at = at.index(bytes.len() + 1);
        bytes.truncate(at);
        let whole = places.iter().filter(|place| **place <= at).count() - 1;
        let mut steps = expected(&lengths[..whole], &places, None);
        if places[whole] < at {
            steps.push(OwnedStep::Tail(places[whole] as u64, at as u64));
        }
        prop_assert_eq!(walk(&bytes, 100), steps);
    }

    /// Purpose: all bytes are reported once, in order and without a gap, and nothing panics.
    #[test]
    fn any_bytes_are_covered_once(
        mut bytes: Vec<u8>, places: Vec<(prop::sample::Index, u8)>, lengths in lengths(),
    ) {
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes.extend(frames(&lengths).0);
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let steps = walk(&bytes, 64);
        let mut end = 0;
        for step in &steps {
            let (from, to) = match step {
                OwnedStep::Record(at, _, body) => (*at, at + frame_bytes(body.len()) as u64),
                OwnedStep::Hole(from, to) | OwnedStep::Tail(from, to) => (*from, *to),
            };
            prop_assert_eq!(from, end);
            prop_assert!(to > from);
            end = to;
        }
        prop_assert_eq!(end, bytes.len() as u64);
        prop_assert_eq!(steps, walk(&bytes, bytes.len().max(1)));
    }

    /// Purpose: a segment's header survives the loss of either copy, and any wrong byte before the
    /// frames is detected.
    #[test]
    fn segment_headers(
        fields: [u64; 4], previous: Option<(u32, u32)>, at in 0..FRAMES_AT, flip in 1..=255u8,
    ) {
        let [sequence, salt, base_offset, created_us] = fields;
        let previous = previous
            .map(|(sequence, end)| Previous { sequence: sequence.into(), end: u64::from(end) * 8 });
        let header = SegmentHeader { sequence, salt, base_offset, created_us, previous };
        let mut block = header.encode();
        prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
        prop_assert_eq!(header.first_damage(&block), None);
        block[at] ^= flip;
        prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
        prop_assert_eq!(header.first_damage(&block), Some(at));
        block[at] ^= flip;
        for copy in [0, COPY_AT] {
            block[copy] ^= 1;
        }
        prop_assert_eq!(SegmentHeader::decode(&block), Err(BadSegmentHeader::Damaged));
    }
}

/// Purpose: bytes that a client sends as a body must never be served as a record, even when damage
/// makes the reader look for the next frame inside them.
#[test]
fn a_frame_inside_a_body_is_no_frame() {
    let (mut forged, _) = frames(&[8]);
    stamp(&mut forged, SALT ^ 1, 11, 0);
    let mut bytes = Vec::new();
    push(&mut bytes, 0, 0, 0, &forged);
    push(&mut bytes, 0, 0, 0, b"honest");
    stamp(&mut bytes, SALT, 10, 0);
    bytes[8] ^= 1;
    let second = frame_bytes(forged.len()) as u64;
    let honest = OwnedStep::Record(second, 11, b"honest".to_vec());
    assert_eq!(walk(&bytes, 1000), [OwnedStep::Hole(0, second), honest]);
}

/// Purpose: leftovers of an earlier, failed write have lower offsets and are not records.
#[test]
fn offsets_only_rise() {
    let (mut bytes, places) = frames(&[8, 8]);
    stamp(&mut bytes[..places[1]], SALT, 20, 0);
    let steps = walk(&bytes, 1000);
    let tail = OwnedStep::Tail(places[1] as u64, places[2] as u64);
    assert_eq!(steps, [OwnedStep::Record(0, 20, body(0, 8)), tail]);
}

/// Purpose: a file of a later version is not reported as damaged.
#[test]
fn another_version_is_named() {
    let header =
        SegmentHeader { sequence: 0, salt: 0, base_offset: 0, created_us: 0, previous: None };
    let mut block = header.encode();
    for at in [0, COPY_AT] {
        block[at + 8..at + 12].copy_from_slice(&2u32.to_le_bytes());
        block[at + 12..at + 16].fill(0);
        let crc = crc32c(&block[at..at + SegmentHeader::BYTES]);
        block[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
    }
    let error = SegmentHeader::decode(&block).expect_err("it is of version 2");
    assert_eq!(error, BadSegmentHeader::Version(2));
    assert_eq!(
        std::format!("{error}"),
        "format version 2; this program knows 1: run the version that wrote it"
    );
}

/// Purpose: a seal decodes to its input, and a walk treats it as a frame.
#[test]
fn a_seal_ends_a_segment() {
    let (mut bytes, places) = frames(&[3, 5]);
    let seal =
        Seal { records: 2, first_offset: 10, last_offset: 11, next_offset: 12, time_us: 1001 };
    let mark = *places.last().expect("it has an end") as u64;
    seal.push(&mut bytes, SALT, mark);
    assert_eq!(bytes.len(), mark as usize + SEAL_BYTES);
    let mut walk = Walk::new(SALT, mark, 12);
    let Step::Frame(at, header, body) = walk.next(&bytes[mark as usize..], true) else {
        panic!("the seal is intact");
    };
    assert_eq!((at, header.kind, header.mark), (mark, Kind::Seal, mark));
    assert_eq!(Seal::decode(&header, body), Some(seal));
    assert_eq!(vec![walk.next(&[], true)], [Step::End]);
}

/// Purpose: a length beyond the format's limit is refused; one at the limit is accepted.
#[test]
fn bodies_have_a_limit() {
    for (bytes, believed) in
        [(BODY_BYTES_MAX - 1, true), (BODY_BYTES_MAX, true), (BODY_BYTES_MAX + 1, false)]
    {
        let header = Header { body_bytes: bytes as u32, ..Header::of(0, 0, 0, b"") };
        assert_eq!(Header::decode(&header.encode(SALT), SALT).is_some(), believed, "{bytes}");
    }
}
