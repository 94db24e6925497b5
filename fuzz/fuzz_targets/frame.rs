//! Any bytes as a journal's segment: nothing may panic, a walk must end and report every byte once, and its
//! result must not depend on the size of the windows.
//!
//! Input: one byte choosing the windows' size, then commands, one per byte, each with the bytes it needs: 0
//! appends raw bytes, 1 a record, 2 flips a byte, 3 cuts the end off. So the mutations of a fuzzer, which
//! cannot guess a checksum, are still next to intact frames.
#![no_main]

use highwater_core::frame::{self, SegmentHeader, Step, Walk};
use libfuzzer_sys::fuzz_target;

const SALT: u64 = 42;

fuzz_target!(|data: &[u8]| {
    let _ = SegmentHeader::decode(data);
    let [window, commands @ ..] = data else {
        return;
    };
    let bytes = build(commands);
    let steps = walk(&bytes, usize::from(*window) + 1);
    let mut end = 0;
    for (from, to, _) in &steps {
        assert_eq!(*from, end, "a gap, or bytes that are reported twice");
        assert!(to > from);
        end = *to;
    }
    assert_eq!(end, bytes.len() as u64);
    assert_eq!(steps, walk(&bytes, bytes.len().max(1)), "windows make a difference");
});

fn build(mut commands: &[u8]) -> Vec<u8> {
    let (mut bytes, mut offset) = (Vec::new(), 0);
    while let [command, argument, rest @ ..] = commands {
        let (length, at) = (usize::from(*argument).min(rest.len()), bytes.len());
        commands = rest;
        match command % 4 {
            0 | 1 => {
                let (body, rest) = rest.split_at(length);
                commands = rest;
                if command % 4 == 0 {
                    bytes.extend_from_slice(body);
                } else {
                    frame::push(&mut bytes, 0, 0, 0, body);
                    frame::stamp(&mut bytes[at..], SALT, offset, 0);
                    offset += 1;
                }
            }
            2 if at > 0 => bytes[at - 1 - usize::from(*argument) % at] ^= 1 << (argument % 8),
            _ => bytes.truncate(at.saturating_sub(length)),
        }
    }
    bytes
}

/// From where to where, and the offset if it is a record.
fn walk(bytes: &[u8], window: usize) -> Vec<(u64, u64, Option<u64>)> {
    let mut walk = Walk::new(SALT, 0, 0);
    let (mut steps, mut size) = (Vec::new(), window);
    loop {
        let from = walk.at() as usize;
        let end = (from + size).min(bytes.len());
        match walk.next(&bytes[from..end], end == bytes.len()) {
            Step::Frame(at, header, _) => steps.push((at, walk.at(), Some(header.offset))),
            Step::Hole(from, to) | Step::Tail(from, to) => steps.push((from, to, None)),
            Step::More(needed) => {
                size = needed.max(window);
                continue;
            }
            Step::End => return steps,
        }
        size = window;
    }
}
