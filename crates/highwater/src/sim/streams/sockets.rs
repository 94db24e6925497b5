//! What a client sends in a tunnel, as WebSocket frames, and what it must receive: the echo of each message, byte for byte.
//!
//! The frames are written here by RFC 6455 §5.2, not by the code that the server has.

use highwater_core::prng::Prng;

use super::app::content;

/// Opcodes: content that is not text, and the end.
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// What the server says when it is drained.
const DRAIN_CLOSE: &[u8] = b"\x88\x12\x03\xe9the server stops";

/// What is to come back.
#[derive(Default)]
pub(super) struct Echoes {
    pub(super) bytes: Vec<u8>,
    /// How long it is behind each frame, and before the first.
    ends: Vec<usize>,
}

impl Echoes {
    /// Whether `received` may have come: a part of the echoes, or all of them if the stream `is_over`; a server that is drained stops
    /// behind any whole frame, and says so.
    pub(super) fn allow(&self, received: &[u8], is_over: bool) -> bool {
        let is_drained = |end: &usize| {
            let (echoes, drain_close) = received.split_at_checked(*end).unwrap_or((received, b""));
            let is_right = match is_over {
                true => drain_close == DRAIN_CLOSE,
                false => DRAIN_CLOSE.starts_with(drain_close),
            };
            echoes == &self.bytes[..*end] && is_right
        };
        match is_over {
            true => received == self.bytes || self.ends.iter().any(is_drained),
            false => self.bytes.starts_with(received) || self.ends.iter().any(is_drained),
        }
    }
}

/// One frame; a client's has the mask `key`.
fn frame(opcode: u8, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let mask = if key.is_some() { 0x80 } else { 0 };
    out.push(0x80 | opcode);
    match payload.len() {
        len @ 0..126 => out.push(mask | len as u8),
        len => {
            out.push(mask | 126);
            out.extend((len as u16).to_be_bytes());
        }
    }
    let key = key.inspect(|key| out.extend(key)).unwrap_or_default();
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
}

/// Some messages and a close frame, and what they are answered with.
pub(super) fn draw(prng: &mut Prng, key: u32) -> (Vec<u8>, Echoes) {
    let (mut sent, mut echoes) = (Vec::new(), Echoes::default());
    let mut both = |opcode, payload: &[u8], mask: u64| {
        echoes.ends.push(echoes.bytes.len());
        frame(opcode, payload, Some((mask as u32).to_be_bytes()), &mut sent);
        frame(opcode, payload, None, &mut echoes.bytes);
    };
    for number in 0..prng.below(5) as u32 {
        let len = [0, 10, 125, 126, 3000][prng.below(5) as usize];
        both(BINARY, &content(key + number, len), prng.next_u64());
    }
    both(CLOSE, &1000_u16.to_be_bytes(), prng.next_u64());
    (sent, echoes)
}
