//! A reply's parts: how its fields are written, and what content it has.

use core::fmt;

use bytes::Bytes;

/// Takes the fields of a message, one after the other. Each protocol has its own implementation, which writes
/// its wire format; the application calls it without knowing which one it is.
pub trait FieldWriter {
    /// Adds a field. The caller guarantees the grammar: a token as `name`, and a `value` without CR, LF and
    /// NUL. The fields that frame a message, `Date` and `Connection` are written by the protocol.
    fn push(&mut self, name: &str, value: &[u8]);
}

/// The content of a reply.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Bytes to be copied.
    Bytes(&'a [u8]),
    /// Shared bytes; sent without a copy if large.
    Shared(Bytes),
    /// Content that follows piece by piece, of this length if it is known.
    Stream(Option<u64>),
    /// None: the connection now belongs to another protocol (status 101).
    Upgrade,
}

/// A streamed reply's content does not have the length its head announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthMismatch;

impl fmt::Display for LengthMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the content does not have the length announced")
    }
}

impl core::error::Error for LengthMismatch {}
