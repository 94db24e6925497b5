//! A reply's parts: how its fields are written, and what content it has.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use super::fields::{Fields, OwnedFields};

/// Takes the fields of a message, one after the other. Each protocol has its own implementation, which writes
/// its wire format; the application calls it without knowing which one it is.
pub trait FieldWriter {
    /// Adds a field. The caller guarantees the grammar: a token as `name`, and a `value` without CR, LF and
    /// NUL. The fields that frame a message, `Date` and `Connection` are written by the protocol.
    fn push(&mut self, name: &str, value: &[u8]);

    /// Adds fields that were prepared.
    #[inline]
    fn push_prepared(&mut self, fields: &PreparedFields) {
        for (name, value) in fields.fields().iter() {
            self.push(name, value);
        }
    }
}

/// Fields that many answers share, prepared for all protocols: as they are, and as lines, which HTTP/1 writes
/// with one copy. The rules of [`FieldWriter::push`] apply.
#[derive(Clone, Debug, Default)]
pub struct PreparedFields {
    fields: OwnedFields,
    lines: Box<[u8]>,
}

impl PreparedFields {
    /// Prepares `fields`.
    pub fn new(fields: OwnedFields) -> Self {
        let mut lines = Vec::new();
        for (name, value) in fields.fields().iter() {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        PreparedFields { fields, lines: lines.into_boxed_slice() }
    }

    /// The fields.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// Their lines, each with its line end.
    #[inline]
    pub(crate) fn lines(&self) -> &[u8] {
        &self.lines
    }
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
