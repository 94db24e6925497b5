//! From messages to bytes, behind what is to be sent already.
//!
//! `key` is the mask: a client gives one that its peer cannot foresee, a new one for each frame (RFC 6455 §5.3); a
//! server gives `None`.

use alloc::vec::Vec;

use super::mask;
use super::{CONTROL_MAX, CloseCode, Kind, opcode};

/// A frame: a part of a message, or all of it if it `is_first` and `is_last`.
///
/// ```
/// use highwater_core::websocket::{Kind, encode};
///
/// let mut out = Vec::new();
/// encode::frame(Kind::Text, b"Hello", true, true, Some([0x37, 0xfa, 0x21, 0x3d]), &mut out);
/// assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
/// ```
#[inline]
pub fn frame(
    kind: Kind,
    payload: &[u8],
    is_first: bool,
    is_last: bool,
    key: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let opcode = match (is_first, kind) {
        (false, _) => opcode::CONTINUATION,
        (true, Kind::Text) => opcode::TEXT,
        (true, Kind::Binary) => opcode::BINARY,
    };
    any(opcode, is_last, payload, key, out);
}

/// A whole message in one frame. Text must be UTF-8; this is not checked.
#[inline]
pub fn message(kind: Kind, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    frame(kind, payload, true, true, key, out);
}

/// PING.
///
/// # Panics
/// If the payload is longer than [`CONTROL_MAX`].
pub fn ping(payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    control(opcode::PING, payload, key, out);
}

/// PONG: the answer to PING has the payload of that.
///
/// # Panics
/// If the payload is longer than [`CONTROL_MAX`].
pub fn pong(payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    control(opcode::PONG, payload, key, out);
}

/// The last frame of a connection. A reason that is too long for it is cut, between two characters.
///
/// # Panics
/// If the code is not one that [may be sent](CloseCode::may_be_sent).
pub fn close(code: Option<CloseCode>, reason: &str, key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let Some(code) = code else { return control(opcode::CLOSE, &[], key, out) };
    assert!(code.may_be_sent(), "{} is not to be sent", code.0);
    let reason = &reason[..reason.floor_char_boundary(CONTROL_MAX - 2)];
    let mut payload = Vec::with_capacity(2 + reason.len());
    payload.extend_from_slice(&code.0.to_be_bytes());
    payload.extend_from_slice(reason.as_bytes());
    control(opcode::CLOSE, &payload, key, out);
}

/// The bit of a header's first byte that says that its frame begins a compressed message (RSV1, RFC 7692 §6).
pub const COMPRESSED: u8 = 0x40;

/// Bytes of the longest header of a frame without a mask.
pub const HEADER_MAX: usize = 10;

/// The header of a whole message of `len` bytes without a mask: the bytes, and how many of them count. For content that is
/// sent without a copy behind it.
#[inline]
pub fn header(kind: Kind, len: usize) -> ([u8; HEADER_MAX], usize) {
    let mut bytes = [0; HEADER_MAX];
    bytes[0] = match kind {
        Kind::Text => 0x80 | opcode::TEXT,
        Kind::Binary => 0x80 | opcode::BINARY,
    };
    match len {
        0..126 => {
            bytes[1] = len as u8;
            (bytes, 2)
        }
        126..=0xffff => {
            bytes[1] = 126;
            bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            (bytes, 4)
        }
        _ => {
            bytes[1] = 127;
            bytes[2..].copy_from_slice(&(len as u64).to_be_bytes());
            (bytes, 10)
        }
    }
}

fn control(opcode: u8, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    assert!(payload.len() <= CONTROL_MAX, "a control frame has {CONTROL_MAX} bytes at most");
    any(opcode, true, payload, key, out);
}

#[inline]
fn any(opcode: u8, is_last: bool, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    let is_masked = if key.is_some() { 0x80 } else { 0 };
    out.push(if is_last { 0x80 | opcode } else { opcode });
    match payload.len() {
        len @ 0..126 => out.push(is_masked | len as u8),
        len @ 126..=0xffff => {
            out.push(is_masked | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(is_masked | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    match key {
        Some(key) => {
            out.extend_from_slice(&key);
            mask::append(key, 0, payload, out);
        }
        None => out.extend_from_slice(payload),
    }
}
