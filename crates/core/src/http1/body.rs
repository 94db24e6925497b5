//! Decodes a request body's framing: wire bytes in, content out, one slice of the input at a time.
//!
//! ```text
//! Size ─▶ [Extension…] ─▶ SizeLf ─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size      (RFC 9112 §7.1)
//!    └ size 0 ──▶ TrailerStart ─▶ TrailerName ─▶ TrailerValue ─▶ TrailerLf ─▶ TrailerStart
//!                     └────────▶ EndLf ─▶ Done
//! ```

use alloc::vec::Vec;

use crate::http::syntax::{is_token_byte, is_value_byte};
use crate::http::{Limits, Reject, make_room};

/// Most bytes of chunk extensions in one body. They serve no known purpose, and cost a pass.
const EXTENSIONS_MAX: u32 = 16 * 1024;

/// How the body that follows a head is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

/// Decodes one body. The content is never copied or kept; trailer fields are kept on demand.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// Bytes of content left in the body (`Length`) or in the chunk at hand.
    left: u64,
    extensions: u32,
    /// Bytes of the trailer section so far, and fields.
    trailer: u32,
    trailer_count: u32,
    /// The trailer section's lines, if they are to be kept.
    kept: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length,
    /// Within a chunk's size, after this many digits.
    Size(u8),
    ExtensionName {
        empty: bool,
    },
    ExtensionValue {
        empty: bool,
    },
    ExtensionQuoted,
    ExtensionEscape,
    ExtensionQuotedEnd,
    /// In white space before the next `;`, or before the `=` if a name came last.
    ExtensionGap {
        named: bool,
    },
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl Decoder {
    pub(super) fn new(framing: Framing) -> Self {
        let (state, left) = match framing {
            Framing::Length(0) => (State::Done, 0),
            Framing::Length(length) => (State::Length, length),
            Framing::Chunked => (State::Size(0), 0),
        };
        Decoder { state, left, extensions: 0, trailer: 0, trailer_count: 0, kept: None }
    }

    /// The decoder, which keeps the trailer section: see [`Decoder::take_trailers`].
    pub(super) fn keeping_trailers(mut self) -> Self {
        self.kept = Some(Vec::new());
        self
    }

    /// Stops keeping the trailer section.
    pub(super) fn drop_trailers(&mut self) {
        self.kept = None;
    }

    /// The lines of the trailer section, once; each is a valid field. `None` if there are none.
    pub(super) fn take_trailers(&mut self) -> Option<Vec<u8>> {
        self.kept.take().filter(|lines| !lines.is_empty())
    }

    /// Heap memory in bytes.
    pub(super) fn allocated(&self) -> usize {
        self.kept.as_ref().map_or(0, Vec::capacity)
    }

    /// Whether the body is complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of content still to come, where the framing says so.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length => Some(self.left),
            _ => None,
        }
    }

    /// The next `len` bytes of a body of known length came another way.
    pub(super) fn skip(&mut self, len: u64) {
        debug_assert!(self.state == State::Length && len <= self.left, "no more than it lacks");
        self.left -= len;
        if self.left == 0 {
            self.state = State::Done;
        }
    }

    /// Takes framing and content off the front of `input` and returns the next piece of content, or
    /// `None` if the body is complete or all of `input` is used up.
    ///
    /// # Errors
    /// The framing is malformed; the decoder must not be used further.
    pub fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
        limits: &Limits,
    ) -> Result<Option<&'i [u8]>, Reject> {
        loop {
            if matches!(self.state, State::Length | State::Data) {
                if input.is_empty() {
                    return Ok(None);
                }
                return Ok(Some(self.content(input)));
            }
            if self.state == State::Done {
                return Ok(None);
            }
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(None);
            };
            *input = rest;
            self.state = self.step(byte, limits)?;
        }
    }

    /// Appends all content in `input` to `body`, which must not exceed `max` bytes.
    pub(super) fn append(
        &mut self,
        input: &mut &[u8],
        body: &mut Vec<u8>,
        max: u64,
        limits: &Limits,
    ) -> Result<(), Reject> {
        loop {
            let has_length = self.state == State::Length;
            let Some(piece) = self.next(input, limits)? else { return Ok(()) };
            if (body.len() + piece.len()) as u64 > max {
                return Err(Reject::BodyTooLarge);
            }
            let to_come = has_length.then_some(piece.len() as u64 + self.left);
            make_room(body, piece.len(), to_come);
            body.extend_from_slice(piece);
        }
    }

    fn content<'i>(&mut self, input: &mut &'i [u8]) -> &'i [u8] {
        let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        let (content, rest) = input.split_at(take);
        *input = rest;
        self.left -= take as u64;
        if self.left == 0 {
            self.state = if self.state == State::Data { State::DataCr } else { State::Done };
        }
        content
    }

    /// One byte of framing.
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<State, Reject> {
        match self.state {
            State::Size(digits) => self.size(digits, byte),
            State::ExtensionName { .. }
            | State::ExtensionValue { .. }
            | State::ExtensionQuoted
            | State::ExtensionEscape
            | State::ExtensionQuotedEnd
            | State::ExtensionGap { .. } => self.extension(byte),
            State::SizeLf => match (byte, self.left) {
                (b'\n', 0) => Ok(State::TrailerStart),
                (b'\n', _) => Ok(State::Data),
                _ => Err(Reject::LineEnd),
            },
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::Size(0)),
            State::DataCr | State::DataLf => Err(Reject::ChunkSize),
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::EndLf => self.trailer(byte, limits),
            State::Length | State::Data | State::Done => unreachable!("no framing in this state"),
        }
    }

    fn size(&mut self, digits: u8, byte: u8) -> Result<State, Reject> {
        match (byte as char).to_digit(16) {
            // Sixteen digits fill 64 bits. More are refused, even leading zeros.
            Some(_) if digits == 16 => Err(Reject::ChunkSize),
            Some(digit) => {
                let size = if digits == 0 { 0 } else { self.left };
                self.left = size << 4 | u64::from(digit);
                Ok(State::Size(digits + 1))
            }
            None if digits == 0 => Err(Reject::ChunkSize),
            None => match byte {
                b'\r' => Ok(State::SizeLf),
                b'\n' => Err(Reject::LineEnd),
                b';' => Ok(State::ExtensionName { empty: true }),
                b' ' | b'\t' => Ok(State::ExtensionGap { named: false }),
                _ => Err(Reject::ChunkSize),
            },
        }
    }

    /// `chunk-ext`, with the "bad white space" around `;` and `=` that recipients must parse although senders
    /// must not send it (RFC 9110 §5.6.3). There is none before the line end.
    fn extension(&mut self, byte: u8) -> Result<State, Reject> {
        self.extensions += 1;
        if self.extensions > EXTENSIONS_MAX {
            return Err(Reject::ChunkExtension);
        }
        let next = match (self.state, byte) {
            (State::ExtensionName { .. }, b) if is_token_byte(b) => {
                State::ExtensionName { empty: false }
            }
            (State::ExtensionName { empty: false } | State::ExtensionGap { named: true }, b'=') => {
                State::ExtensionValue { empty: true }
            }
            (
                state @ (State::ExtensionName { empty: true }
                | State::ExtensionValue { empty: true }
                | State::ExtensionGap { .. }),
                b' ' | b'\t',
            ) => state,
            (State::ExtensionName { empty: false }, b' ' | b'\t') => {
                State::ExtensionGap { named: true }
            }
            (State::ExtensionValue { empty: false } | State::ExtensionQuotedEnd, b' ' | b'\t') => {
                State::ExtensionGap { named: false }
            }
            (State::ExtensionValue { empty: true }, b'"') => State::ExtensionQuoted,
            (State::ExtensionValue { .. }, b) if is_token_byte(b) => {
                State::ExtensionValue { empty: false }
            }
            (State::ExtensionQuoted, b'"') => State::ExtensionQuotedEnd,
            (State::ExtensionQuoted, b'\\') => State::ExtensionEscape,
            (State::ExtensionQuoted | State::ExtensionEscape, b) if is_value_byte(b) => {
                State::ExtensionQuoted
            }
            (
                State::ExtensionName { empty: false }
                | State::ExtensionValue { empty: false }
                | State::ExtensionQuotedEnd
                | State::ExtensionGap { .. },
                b';',
            ) => State::ExtensionName { empty: true },
            (
                State::ExtensionName { empty: false }
                | State::ExtensionValue { empty: false }
                | State::ExtensionQuotedEnd,
                b'\r',
            ) => State::SizeLf,
            (_, b'\n') => return Err(Reject::LineEnd),
            _ => return Err(Reject::ChunkExtension),
        };
        Ok(next)
    }

    /// Trailer fields are checked like header fields, and kept apart from them or dropped: merging them
    /// into the header section would let a peer smuggle in fields that were already acted upon (RFC 9110
    /// §6.5.1).
    fn trailer(&mut self, byte: u8, limits: &Limits) -> Result<State, Reject> {
        self.trailer += 1;
        // The empty line that ends the section is not part of it.
        let in_end = matches!((self.state, byte), (State::TrailerStart, b'\r') | (State::EndLf, _));
        if self.trailer as usize > limits.header_max && !in_end {
            return Err(Reject::HeaderTooLarge);
        }
        if let Some(lines) = &mut self.kept
            && !in_end
        {
            lines.push(byte);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart, b' ' | b'\t') => Err(Reject::LineFolding),
            (State::TrailerStart, b) if is_token_byte(b) => {
                if self.trailer_count as usize == limits.header_count_max {
                    return Err(Reject::HeaderTooLarge);
                }
                self.trailer_count += 1;
                Ok(State::TrailerName)
            }
            (State::TrailerName, b) if is_token_byte(b) => Ok(State::TrailerName),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, b) if is_value_byte(b) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::TrailerLf | State::EndLf, _) | (_, b'\n') => Err(Reject::LineEnd),
            (State::TrailerValue, _) => Err(Reject::FieldValue),
            _ => Err(Reject::FieldName),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `wire` in pieces of `step` bytes: (content, bytes left over), or the refusal.
    fn decode(wire: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), Reject> {
        let limits = Limits { header_max: 64, header_count_max: 3, ..Limits::default() };
        let mut decoder = Decoder::new(Framing::Chunked);
        let (mut content, mut used) = (Vec::new(), 0);
        for piece in wire.chunks(step) {
            let mut input = piece;
            while let Some(slice) = decoder.next(&mut input, &limits)? {
                content.extend_from_slice(slice);
            }
            used += piece.len() - input.len();
            if decoder.is_done() {
                break;
            }
        }
        Ok((content, wire.len() - used, decoder.is_done()))
    }

    /// Purpose: content, end and refusals do not depend on how the bytes were split.
    #[test]
    fn every_split_decodes_alike() {
        let good: &[(&[u8], &[u8], usize)] = &[
            (b"5\r\nhello\r\n0\r\n\r\nGET", b"hello", 3),
            (b"5;a;b=c;d=\"e;\\\"\"\r\nhello\r\n00\r\nX: y\r\n\r\n", b"hello", 0),
            (b"5 \t; a\t = \"b\" ;c ;d\r\nhello\r\n0\r\n\r\n", b"hello", 0),
            (b"1\r\na\r\nA\r\n0123456789\r\n0;last\r\n\r\n", b"a0123456789", 0),
        ];
        for &(wire, content, left) in good {
            for step in 1..=wire.len() {
                assert_eq!(decode(wire, step), Ok((content.to_vec(), left, true)), "step {step}");
            }
        }
        let bad: &[(&[u8], Reject)] = &[
            (b"\r\n", Reject::ChunkSize),
            (b"g\r\n", Reject::ChunkSize),
            (b"-1\r\n", Reject::ChunkSize),
            (b"0x5\r\n", Reject::ChunkSize),
            (b" 5\r\n", Reject::ChunkSize),
            (b"5 \r\n", Reject::ChunkExtension),
            (b"5\nhello", Reject::LineEnd),
            (b"5\rhello", Reject::LineEnd),
            (b"5;\r\nhello", Reject::ChunkExtension),
            (b"5;a=\r\nhello", Reject::ChunkExtension),
            (b"5;a\0\r\nhello", Reject::ChunkExtension),
            (b"5;a \r\nhello", Reject::ChunkExtension),
            (b"5 a\r\nhello", Reject::ChunkExtension),
            (b"5 =a\r\nhello", Reject::ChunkExtension),
            (b"5;a b\r\nhello", Reject::ChunkExtension),
            (b"5;a=b =c\r\nhello", Reject::ChunkExtension),
            (b"5;a= \r\nhello", Reject::ChunkExtension),
            (b"5\r\nhelloX", Reject::ChunkSize),
            (b"5\r\nhello\r\r", Reject::ChunkSize),
            (b"11111111111111111\r\n", Reject::ChunkSize),
            (b"0\r\nX y: z\r\n\r\n", Reject::FieldName),
            (b"0\r\nX: \0\r\n\r\n", Reject::FieldValue),
            (b"0\r\n X: y\r\n\r\n", Reject::LineFolding),
            (b"0\r\nX: y\n\r\n", Reject::LineEnd),
        ];
        for &(wire, reject) in bad {
            for step in 1..=wire.len() {
                assert_eq!(decode(wire, step), Err(reject), "{} step {step}", wire.escape_ascii());
            }
        }
    }

    /// Purpose: the trailer limits are exact, and the size 2^64 - 1 does not overflow.
    #[test]
    fn limits() {
        let trailer = |n: usize| {
            let mut wire = b"0\r\nX:".to_vec();
            wire.resize(3 + n - 2, b'y');
            wire.extend_from_slice(b"\r\n\r\n");
            decode(&wire, 7).map(|(_, _, done)| done)
        };
        assert_eq!((trailer(64), trailer(65)), (Ok(true), Err(Reject::HeaderTooLarge)));
        let fields = |count: usize| {
            let wire = [&b"0\r\n"[..], &b"X:y\r\n".repeat(count), b"\r\n"].concat();
            decode(&wire, 7).map(|(_, _, done)| done)
        };
        assert_eq!((fields(3), fields(4)), (Ok(true), Err(Reject::HeaderTooLarge)));
        assert_eq!(decode(b"ffffffffffffffff\r\nab", 99), Ok((b"ab".to_vec(), 0, false)));
    }
}
