//! Writes status lines, fields and chunk framing into an output buffer.

use alloc::vec::Vec;

use crate::http::{FieldWriter, PreparedFields, digits, reason};

/// The header fields of a response being written. Only [`super::Connection`] makes one.
#[derive(Debug)]
pub struct FieldEncoder<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl FieldEncoder<'_> {
    /// The same fields, for another writer.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> FieldEncoder<'_> {
        FieldEncoder { out: self.out }
    }
}

impl FieldWriter for FieldEncoder<'_> {
    #[inline(always)]
    fn push(&mut self, name: &str, value: &[u8]) {
        // One reservation for the four parts; each append would check for itself otherwise.
        self.out.reserve(name.len() + value.len() + 4);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn push_prepared(&mut self, fields: &PreparedFields) {
        self.out.extend_from_slice(fields.lines());
    }
}

/// The status line and the `Date` field.
#[inline(always)]
pub(super) fn status_and_date(out: &mut Vec<u8>, status: u16, date: &[u8; 29]) {
    out.reserve(160);
    if status != 200 {
        return other_status_and_date(out, status, date);
    }
    // Append the line, then change it in place. If it were changed first, the copy would read it before the change
    // has left the CPU's store buffer, and would have to wait.
    let begin = out.len();
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ndate: ddd, dd mmm yyyy hh:mm:ss GMT\r\n");
    out[begin + 23..begin + 52].copy_from_slice(date);
}

#[inline(never)]
fn other_status_and_date(out: &mut Vec<u8>, status: u16, date: &[u8; 29]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    match status {
        100..1000 => out.extend_from_slice(&three_digits(status)),
        _ => decimal(out, u64::from(status)),
    }
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\ndate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
}

/// A number from 100 to 999 in decimal.
#[inline]
fn three_digits(number: u16) -> [u8; 3] {
    [100, 10, 1].map(|place| b'0' + (number / place % 10) as u8)
}

/// `content-length: N` and its line end.
#[inline(always)]
pub(super) fn content_length(out: &mut Vec<u8>, length: u64) {
    let digit = |place: u64| b'0' + (length / place % 10) as u8;
    match length {
        // Most answers are short: write the line in one piece, then change it in place.
        0..10 => {
            out.extend_from_slice(b"content-length: 0\r\n");
            let at = out.len() - 3;
            out[at] = digit(1);
        }
        10..100 => {
            out.extend_from_slice(b"content-length: 00\r\n");
            let at = out.len() - 4;
            out[at..at + 2].copy_from_slice(&[digit(10), digit(1)]);
        }
        100..1000 => {
            out.extend_from_slice(b"content-length: 000\r\n");
            let at = out.len() - 5;
            out[at..at + 3].copy_from_slice(&[digit(100), digit(10), digit(1)]);
        }
        _ => long_content_length(out, length),
    }
}

#[inline(never)]
fn long_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends `number` in decimal.
#[inline]
pub(super) fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(digits(number, &mut [0; 20]));
}

/// A chunk's size line.
pub(super) fn chunk_size(out: &mut Vec<u8>, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        out.push(DIGITS[size >> (nibble * 4) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::OwnedFields;
    use alloc::format;

    /// Purpose: prepared fields are written like all others.
    #[test]
    fn prepared_lines() {
        let mut fields = OwnedFields::default();
        let (mut prepared, mut pushed) = (Vec::new(), Vec::new());
        for (name, value) in [("x-one", &b"1"[..]), ("x-empty", b"")] {
            fields.push(name, value);
            FieldEncoder { out: &mut pushed }.push(name, value);
        }
        let fields = PreparedFields::new(fields.fields().iter());
        FieldEncoder { out: &mut prepared }.push_prepared(&fields);
        assert_eq!(prepared, b"x-one: 1\r\nx-empty: \r\n");
        assert_eq!(prepared, pushed);
    }

    /// Purpose: a status line with its date, and the length of content, are the same however they are written.
    #[test]
    fn lines_in_one_piece() {
        const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";
        for (status, reason) in [(200, "OK"), (201, "Created"), (299, "")] {
            let mut out = Vec::new();
            status_and_date(&mut out, status, DATE);
            let line =
                format!("HTTP/1.1 {status} {reason}\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
            assert_eq!(out, line.into_bytes());
        }
        for length in (0..1100).chain([99_999, u64::MAX]) {
            let mut out = Vec::new();
            content_length(&mut out, length);
            assert_eq!(out, format!("content-length: {length}\r\n").into_bytes());
        }
    }

    /// Purpose: numbers are written as `format!` writes them, at every edge.
    #[test]
    fn numbers() {
        for number in [0, 9, 10, 99, 100, 65_535, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            assert_eq!(out, format!("{number}").into_bytes());
            let mut out = Vec::new();
            chunk_size(&mut out, number as usize);
            assert_eq!(out, format!("{:x}\r\n", number as usize).into_bytes());
        }
    }
}
