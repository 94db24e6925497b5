//! Any bytes as a peer's frames, for both roles, with compressed messages and without, whole and split: nothing may panic, the
//! split may make no difference, and no message may exceed its limit.
//!
//! Input: one byte choosing the role, whether compressed messages were agreed on, and the size of the parts; then the bytes.
#![no_main]

use highwater_core::websocket::{Decoder, Event, Inflate, InflateError, Kind, Limits, Role};
use libfuzzer_sys::fuzz_target;

const MESSAGE_MAX: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let [choice, bytes @ ..] = data else { return };
    let role = if choice & 1 == 0 { Role::Client } else { Role::Server };
    let is_agreed = choice & 2 == 0;
    let whole = read(role, is_agreed, bytes, usize::MAX);
    let parts = read(role, is_agreed, bytes, usize::from(choice >> 2) + 1);
    assert_eq!(whole, parts, "parts make a difference");
});

/// Stands for deflate: a byte is repeated by its upper half, and zero is not valid.
#[derive(Debug)]
struct Repeats;

impl Inflate for Repeats {
    fn inflate(&mut self, piece: &[u8], out: &mut Vec<u8>, len_max: usize) -> Result<(), InflateError> {
        for byte in piece {
            let len = out.len() + usize::from(byte >> 4);
            match () {
                () if *byte == 0 => return Err(InflateError::Invalid),
                () if len > len_max => return Err(InflateError::TooBig),
                () => out.resize(len, *byte),
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>, len_max: usize) -> Result<(), InflateError> {
        self.inflate(b"!", out, len_max)
    }
}

fn read(role: Role, is_agreed: bool, bytes: &[u8], part: usize) -> Vec<String> {
    let limits = Limits { message_max: MESSAGE_MAX, frame_max: MESSAGE_MAX };
    let (mut decoder, mut seen) = (Decoder::new(role, limits), Vec::new());
    if is_agreed {
        decoder = decoder.with_inflate(Box::new(Repeats));
    }
    for mut input in bytes.chunks(part) {
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if let Event::Message(kind, bytes) = event {
                        assert!(bytes.len() <= MESSAGE_MAX);
                        assert!(kind == Kind::Binary || core::str::from_utf8(bytes).is_ok());
                    }
                    seen.push(format!("{event:?}"));
                }
                Err(error) => {
                    // A message that is not compressed in a valid way may be found not to be text before, or too large.
                    seen.push(if is_agreed { String::from("an error") } else { format!("{error:?}") });
                    return seen;
                }
            }
        }
        assert!(decoder.allocated() <= 2 * MESSAGE_MAX + 256);
    }
    seen
}
