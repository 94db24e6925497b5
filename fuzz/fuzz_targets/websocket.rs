//! Any bytes as a peer's frames, for both roles, whole and split: nothing may panic, the split may make no difference,
//! and no message may exceed its limit.
//!
//! Input: one byte choosing the role and the size of the parts, then the bytes.
#![no_main]

use highwater_core::websocket::{Decoder, Event, Kind, Limits, Role};
use libfuzzer_sys::fuzz_target;

const MESSAGE_MAX: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let [choice, bytes @ ..] = data else { return };
    let role = if choice & 1 == 0 { Role::Client } else { Role::Server };
    let whole = read(role, bytes, usize::MAX);
    assert_eq!(whole, read(role, bytes, usize::from(choice >> 1) + 1), "parts make a difference");
});

fn read(role: Role, bytes: &[u8], part: usize) -> Vec<String> {
    let (mut decoder, mut seen) = (Decoder::new(role, Limits { message_max: MESSAGE_MAX, frame_max: MESSAGE_MAX }), Vec::new());
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
                    seen.push(format!("{error:?}"));
                    return seen;
                }
            }
        }
        assert!(decoder.allocated() <= 2 * MESSAGE_MAX + 256);
    }
    seen
}
