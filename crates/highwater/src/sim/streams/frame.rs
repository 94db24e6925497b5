//! The frames of the protocol with streams, as the server reads and writes them.
//!
//! ```text
//!  stream (4 bytes) │ kind (1) │ length (2) │ payload
//! ```
//!
//! Numbers are big-endian. A head is text: its first line is a method and a target, or a status; each further one
//! is a field.

use highwater_core::http::{FieldWriter, OwnedFields, OwnedHead};

/// Bytes before the payload.
pub(super) const HEADER: usize = 7;

/// The longest payload.
pub(super) const PAYLOAD_MAX: usize = 8 * 1024;

pub(super) const OPEN: u8 = 1;
/// Opens a stream whose request has no content.
pub(super) const OPEN_LAST: u8 = 2;
pub(super) const HEAD: u8 = 3;
pub(super) const DATA: u8 = 4;
/// The last content, which may be empty.
pub(super) const LAST: u8 = 5;
pub(super) const RESET: u8 = 6;
/// Grants this many bytes more, on a stream or on the connection (0).
pub(super) const WINDOW: u8 = 7;
/// No stream above this one is served.
pub(super) const AWAY: u8 = 8;

/// One frame.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) stream: u32,
    pub(super) kind: u8,
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    /// The number in the payload.
    pub(super) fn number(&self) -> Option<u32> {
        self.payload.try_into().ok().map(u32::from_be_bytes)
    }
}

/// Takes a frame off the front of `input`; `None` while it is incomplete.
///
/// # Errors
/// It is too long.
pub(super) fn take<'i>(input: &mut &'i [u8]) -> Result<Option<Frame<'i>>, ()> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [a, b, c, d, kind, high, low] = *header;
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > PAYLOAD_MAX {
        return Err(());
    }
    let Some((payload, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    *input = rest;
    Ok(Some(Frame { stream: u32::from_be_bytes([a, b, c, d]), kind, payload }))
}

/// Appends a frame.
pub(super) fn put(out: &mut Vec<u8>, stream: u32, kind: u8, payload: &[u8]) {
    let len = u16::try_from(payload.len()).expect("payloads are short");
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Writes the fields of a head.
pub(crate) struct Lines<'a>(pub(super) &'a mut Vec<u8>);

impl FieldWriter for Lines<'_> {
    fn push(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), b": ", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }
}

/// Reads a request's head; `None` if it is not one.
pub(super) fn head(payload: &[u8]) -> Option<OwnedHead> {
    let mut lines = std::str::from_utf8(payload).ok()?.lines();
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut fields = OwnedFields::default();
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        fields.push(name, value.as_bytes());
    }
    OwnedHead::new(method, target, fields)
}
