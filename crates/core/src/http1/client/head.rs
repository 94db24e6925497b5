//! A response's head: its grammar, the facts that framing needs, and a view of it.
//!
//! A section is parsed line by line, in place. An error is found at the first byte that proves it, so the
//! result does not depend on how the bytes were split. Parsed bytes are not parsed again when more arrive, so
//! the cost of a head does not depend on the number of its pieces.

use core::fmt;

use super::error::Malformed;
use super::{Asked, Limits};
use crate::http::Version;
use crate::http::runs::{token_run, value_run};

/// How a response's content is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// There is none.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks, and a trailer section.
    Chunked,
    /// All bytes until the server closes the connection.
    UntilClose,
    /// The connection is no longer HTTP: a 101, or a 2xx to `CONNECT`.
    Raw,
}

/// A response's head, interim or final: slices of the bytes it came in.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// From the status line to the empty line.
    bytes: &'a [u8],
    fields_at: usize,
    status: u16,
    version: Version,
    content: Content,
    keep_alive: bool,
}

impl<'a> Head<'a> {
    /// The status code, 100 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The reason phrase, which has no meaning (RFC 9112 §4).
    pub fn reason(&self) -> &'a [u8] {
        self.bytes.get(REASON_AT..self.fields_at - 2).unwrap_or_default()
    }

    /// The header fields.
    pub fn fields(&self) -> FieldLines<'a> {
        FieldLines { bytes: &self.bytes[self.fields_at..self.bytes.len() - 2] }
    }

    /// The content that follows the head.
    pub fn content(&self) -> Content {
        self.content
    }

    /// Whether the connection can carry another request after this response.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// All bytes of the head, its empty line included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("fields", &self.fields())
            .field("content", &self.content)
            .field("keep_alive", &self.keep_alive)
            .finish_non_exhaustive()
    }
}

/// The fields of a head or of a trailer section, in the order they came. Their grammar has been checked.
#[derive(Clone, Copy, Default)]
pub struct FieldLines<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> FieldLines<'a> {
    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The fields as (name as sent, value without surrounding white space).
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.bytes.split_inclusive(|&byte| byte == b'\n').map(|line| {
            let name = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let name_text = core::str::from_utf8(&line[..name]).expect("a token is ASCII");
            (name_text, trim(line.get(name + 1..line.len() - 2).unwrap_or_default()))
        })
    }

    /// The first value of the field `wanted`, whose case does not matter.
    pub fn get(&self, wanted: &str) -> Option<&'a [u8]> {
        self.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }
}

impl fmt::Debug for FieldLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter().map(|(name, value)| (name, value.escape_ascii()));
        f.debug_map().entries(fields.map(|(n, v)| (n, alloc::format!("{v}")))).finish()
    }
}

/// Where the digits of the status begin and end, and where the reason phrase begins.
const STATUS_AT: usize = b"HTTP/1.1 ".len();
const STATUS_END: usize = STATUS_AT + 3;
const REASON_AT: usize = STATUS_END + 1;

/// The parser's state within a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsing {
    section: Section,
    /// Where the fields begin; nowhere before the status line is complete.
    fields_at: usize,
    pub(super) status: u16,
    version: Version,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Parsing {
    pub(super) const NEW: Parsing = Parsing {
        section: Section::NEW,
        fields_at: 0,
        status: 0,
        version: Version::Http11,
        content_length: None,
        chunked: false,
        close: false,
        keep_alive: false,
    };

    /// Continues in `bytes`, which begin where the head does. Returns the head's length once it is complete.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, Malformed> {
        if self.fields_at == 0 {
            let room = &bytes[..bytes.len().min(limits.head_max)];
            let seen = &mut self.section.seen;
            let Some((len, status, version)) = status_line(room, seen)? else {
                return limits.incomplete(room);
            };
            self.fields_at = len;
            self.section = Section { at: len, ..Section::NEW };
            (self.status, self.version) = (status, version);
        }
        let mut section = self.section;
        let found = section.advance(bytes, limits, |name, value| self.note(name, value));
        self.section = section;
        found
    }

    /// Fields are distinguished by the length of their names first.
    #[inline]
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => self.note_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let may_be = self.version == Version::Http11 && !self.chunked;
                if !may_be || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed::TransferEncoding);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(trim) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// A length that is repeated, in one field or in several, is still one (RFC 9110 §8.6).
    #[inline]
    fn note_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for number in value.split(|&byte| byte == b',').map(trim) {
            let length = decimal(number).ok_or(Malformed::ContentLength)?;
            if self.content_length.is_some_and(|other| other != length) {
                return Err(Malformed::ContentLengths);
            }
            self.content_length = Some(length);
        }
        Ok(())
    }

    /// The content of the response to `asked`, by the rules of RFC 9112 §6.3 in order.
    #[inline]
    pub(super) fn content(&self, asked: Asked) -> Result<Content, Malformed> {
        match self.status {
            101 if asked == Asked::Upgrade => return Ok(Content::Raw),
            101 => return Err(Malformed::Switch),
            // Such fields have no meaning in an interim response, nor in these two.
            100..200 | 204 | 304 => return Ok(Content::None),
            200..300 if asked == Asked::Connect => return Ok(Content::Raw),
            _ => {}
        }
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(Malformed::TwoFramings),
            _ if asked == Asked::Head => Ok(Content::None),
            (true, None) => Ok(Content::Chunked),
            (false, Some(0)) => Ok(Content::None),
            (false, Some(length)) => Ok(Content::Length(length)),
            (false, None) => Ok(Content::UntilClose),
        }
    }

    /// Whether the connection persists behind `content` (RFC 9112 §9.3).
    #[inline]
    pub(super) fn persists(&self, content: Content) -> bool {
        let delimited = !matches!(content, Content::UntilClose | Content::Raw);
        delimited && !self.close && (self.keep_alive || self.version == Version::Http11)
    }

    /// The view of this head, whose bytes are `bytes`.
    #[inline]
    pub(super) fn head<'a>(&self, bytes: &'a [u8], content: Content) -> Head<'a> {
        Head {
            bytes,
            fields_at: self.fields_at,
            status: self.status,
            version: self.version,
            content,
            keep_alive: self.persists(content),
        }
    }
}

impl Limits {
    /// The section does not end within `room`: its received bytes, up to the limit.
    fn incomplete(&self, room: &[u8]) -> Result<Option<usize>, Malformed> {
        if room.len() < self.head_max { Ok(None) } else { Err(Malformed::SectionTooLarge) }
    }
}

/// `HTTP-version SP status-code [ SP reason-phrase ]`: its length, line end included, and its parts.
///
/// The space behind the status is required; servers that send no reason leave it out nevertheless. The reason
/// is checked up to `seen`.
#[inline]
fn status_line(bytes: &[u8], seen: &mut usize) -> Result<Option<(usize, u16, Version)>, Malformed> {
    let is_usual = bytes.first_chunk() == Some(b"HTTP/1.1 ");
    if !is_usual {
        check_version(&bytes[..bytes.len().min(STATUS_AT)])?;
    }
    let mut status = 0;
    for (place, &byte) in bytes.get(STATUS_AT..).unwrap_or_default().iter().take(3).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        let is_one = if place == 0 { matches!(digit, 1..=5) } else { digit <= 9 };
        if !is_one {
            return Err(Malformed::Status);
        }
        status = status * 10 + u16::from(digit);
    }
    let end = match bytes.get(STATUS_END) {
        None => return Ok(None),
        Some(b' ') => {
            let from = REASON_AT.max(*seen);
            *seen = from + value_run(&bytes[from..]);
            *seen
        }
        Some(b'\r' | b'\n') => STATUS_END,
        Some(_) => return Err(Malformed::Status),
    };
    if !ends_at(bytes, end, Malformed::StatusLine)? {
        return Ok(None);
    }
    let is_10 = !is_usual && bytes[STATUS_AT - 2] == b'0';
    Ok(Some((end + 2, status, if is_10 { Version::Http10 } else { Version::Http11 })))
}

/// Whether `bytes`, which may be cut, are `HTTP/1.x` and a space. Later minor versions count as 1.1 (RFC 9110
/// §2.5).
#[cold]
fn check_version(bytes: &[u8]) -> Result<(), Malformed> {
    for (at, &byte) in bytes.iter().enumerate() {
        match at {
            0..5 if byte == b"HTTP/"[at] => {}
            5 if byte == b'1' => {}
            6 if byte == b'.' => {}
            7 if byte.is_ascii_digit() => {}
            8 if byte == b' ' => {}
            5..8 => return Err(Malformed::Version),
            _ => return Err(Malformed::StatusLine),
        }
    }
    Ok(())
}

/// Whether there is a line end at `at`; false if its bytes have not arrived. Any other byte is the error
/// `otherwise`.
#[inline]
fn ends_at(bytes: &[u8], at: usize, otherwise: Malformed) -> Result<bool, Malformed> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(true),
        (None, _) | (Some(b'\r'), None) => Ok(false),
        (Some(b'\r' | b'\n'), _) => Err(Malformed::LineEnd),
        _ => Err(otherwise),
    }
}

/// The parser's state within a section of fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// Where the next line begins.
    at: usize,
    count: usize,
    /// How much of that line is parsed, and where in it the value begins; nowhere while the name is not
    /// complete.
    seen: usize,
    value_at: usize,
}

impl Section {
    pub(super) const NEW: Section = Section { at: 0, count: 0, seen: 0, value_at: 0 };

    /// Continues in `bytes`, which begin where the section (or its head) does. Calls `note` with each field.
    /// Returns where the section ends once it is complete.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        mut note: impl FnMut(&[u8], &[u8]) -> Result<(), Malformed>,
    ) -> Result<Option<usize>, Malformed> {
        let room = &bytes[..bytes.len().min(limits.head_max)];
        loop {
            let line = &room[self.at..];
            match line.first() {
                None => return limits.incomplete(room),
                Some(b'\r' | b'\n') => {
                    let ends = ends_at(line, 0, Malformed::LineEnd)?;
                    return if ends { Ok(Some(self.at + 2)) } else { limits.incomplete(room) };
                }
                Some(b' ' | b'\t') => return Err(Malformed::LineFolding),
                Some(_) if self.count == limits.fields_max => return Err(Malformed::TooManyFields),
                Some(_) => {}
            }
            if self.value_at == 0 {
                self.seen += token_run(&line[self.seen..]);
                match line.get(self.seen) {
                    None => return limits.incomplete(room),
                    Some(b':') if self.seen > 0 => self.seen += 1,
                    Some(b'\n') => return Err(Malformed::LineEnd),
                    Some(_) => return Err(Malformed::FieldName),
                }
                self.value_at = self.seen;
            }
            self.seen += value_run(&line[self.seen..]);
            let (value_at, end) = (self.value_at, self.seen);
            if !ends_at(line, end, Malformed::FieldValue)? {
                return limits.incomplete(room);
            }
            note(&line[..value_at - 1], trim(&line[value_at..end]))?;
            *self = Section { at: self.at + end + 2, count: self.count + 1, ..Section::NEW };
        }
    }
}

/// Without the white space around it (RFC 9110 §5.6.3).
#[inline]
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A 64-bit number: decimal digits and nothing else.
#[inline]
fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digit = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    is_number.then(|| digits.iter().try_fold(0, digit)).flatten()
}
