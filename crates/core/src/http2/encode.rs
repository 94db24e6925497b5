//! From frames to bytes, appended to the output.

use alloc::vec::Vec;

use super::error::ErrorCode;
use super::frame::{HEADER_LEN, Header, flag, kind};
use super::settings::Setting;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[inline]
fn header(kind: u8, flags: u8, stream: u32, len: usize, out: &mut Vec<u8>) {
    debug_assert!(len < 1 << 24, "a frame has less than 16 MiB");
    let header = Header { len: len as u32, kind, flags, stream };
    out.extend_from_slice(&header.encode());
}

/// DATA. `content` is at most the peer's limit for frames, and within its windows.
#[inline]
pub fn data(stream: u32, content: &[u8], is_last: bool, out: &mut Vec<u8>) {
    header(kind::DATA, if is_last { flag::END_STREAM } else { 0 }, stream, content.len(), out);
    out.extend_from_slice(content);
}

/// HEADERS, with as many CONTINUATION frames as a limit of `size_max` bytes takes. `fill` writes the field block behind
/// what it finds, so that it is not copied unless it needs more than one frame.
///
/// ```
/// use highwater_core::http2::{encode, hpack};
///
/// let (mut encoder, mut out) = (hpack::Encoder::new(), Vec::new());
/// encode::headers(1, true, 16 * 1024, &mut out, |block| {
///     encoder.begin(block);
///     encoder.field(b":status", b"204", hpack::Indexing::Incremental, block);
/// });
/// assert_eq!(out, [0, 0, 1, 1, 0x5, 0, 0, 0, 1, 0x89]);
/// ```
#[inline]
pub fn headers(
    stream: u32,
    is_last: bool,
    size_max: u32,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    fill(out);
    let (len, size_max) = (out.len() - start - HEADER_LEN, size_max as usize);
    let is_whole = len <= size_max;
    let end_stream = if is_last { flag::END_STREAM } else { 0 };
    let flags = end_stream | if is_whole { flag::END_HEADERS } else { 0 };
    let first = Header { len: len.min(size_max) as u32, kind: kind::HEADERS, flags, stream };
    out[start..start + HEADER_LEN].copy_from_slice(&first.encode());
    if !is_whole {
        let rest = out.split_off(start + HEADER_LEN + size_max);
        let last = (rest.len() - 1) / size_max;
        for (index, fragment) in rest.chunks(size_max).enumerate() {
            let flags = if index == last { flag::END_HEADERS } else { 0 };
            header(kind::CONTINUATION, flags, stream, fragment.len(), out);
            out.extend_from_slice(fragment);
        }
    }
}

/// RST_STREAM.
pub fn reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    header(kind::RST_STREAM, 0, stream, 4, out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// SETTINGS.
pub fn settings(settings: &[Setting], out: &mut Vec<u8>) {
    header(kind::SETTINGS, 0, 0, 6 * settings.len(), out);
    for (id, value) in settings.iter().map(|setting| setting.encode()) {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// The acknowledgement of SETTINGS.
pub fn settings_ack(out: &mut Vec<u8>) {
    header(kind::SETTINGS, flag::ACK, 0, 0, out);
}

/// PING.
pub fn ping(bytes: [u8; 8], out: &mut Vec<u8>) {
    header(kind::PING, 0, 0, 8, out);
    out.extend_from_slice(&bytes);
}

/// The answer to PING.
pub fn ping_ack(bytes: [u8; 8], out: &mut Vec<u8>) {
    header(kind::PING, flag::ACK, 0, 8, out);
    out.extend_from_slice(&bytes);
}

/// GOAWAY. `debug` is for the peer's log: a few words.
pub fn go_away(last: u32, code: ErrorCode, debug: &[u8], out: &mut Vec<u8>) {
    header(kind::GOAWAY, 0, 0, 8 + debug.len(), out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug);
}

/// WINDOW_UPDATE. `increment` is from 1 to 2³¹−1; stream 0 is the connection.
pub fn window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    header(kind::WINDOW_UPDATE, 0, stream, 4, out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// PUSH_PROMISE with a whole field block.
pub fn push_promise(stream: u32, promised: u32, block: &[u8], out: &mut Vec<u8>) {
    header(kind::PUSH_PROMISE, flag::END_HEADERS, stream, 4 + block.len(), out);
    out.extend_from_slice(&promised.to_be_bytes());
    out.extend_from_slice(block);
}
