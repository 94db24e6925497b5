//! A reply's parts: how its fields are written, and what content it has.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

/// Takes the fields of a message, one after the other. Each protocol has its own implementation, which writes
/// its wire format; the application calls it without knowing which one it is.
pub trait FieldWriter {
    /// Adds a field. The caller guarantees the grammar: a token as `name`, and a `value` without CR, LF and
    /// NUL. The fields that frame a message, `Date` and `Connection` are written by the protocol.
    fn push(&mut self, name: &str, value: &[u8]);

    /// Adds fields that were prepared.
    #[inline]
    fn push_prepared(&mut self, fields: &PreparedFields) {
        for (name, value) in fields.iter() {
            self.push(name, value);
        }
    }
}

/// Fields that many answers share, prepared for all protocols: as they are, and as lines, which HTTP/1 writes
/// with one copy. The rules of [`FieldWriter::push`] apply.
#[derive(Clone, Debug, Default)]
pub struct PreparedFields {
    fields: Box<[Prepared]>,
    lines: Box<[u8]>,
}

/// A field's name and value.
type Prepared = (Box<str>, Box<[u8]>);

impl PreparedFields {
    /// Prepares `fields`.
    pub fn new<'f>(fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Self {
        let (mut owned, mut lines) = (Vec::new(), Vec::new());
        for (name, value) in fields {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
            owned.push((name.into(), value.into()));
        }
        PreparedFields { fields: owned.into_boxed_slice(), lines: lines.into_boxed_slice() }
    }

    /// The fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
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
    /// None: the connection now belongs to another protocol (status 101). In HTTP/2 it is the stream that does, and
    /// the status that is sent is 200 (RFC 8441 §5).
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

/// The decimal digits of `number`.
#[inline]
pub(crate) fn digits(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}
