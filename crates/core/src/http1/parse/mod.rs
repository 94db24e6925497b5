//! Finds a request head in bytes and decides how its body is framed.
//!
//! No allocation but the reused table of spans and the host that is kept, and the same result however the bytes were split: limits, grammar and facts
//! are checked in the order of the bytes.

use alloc::vec::Vec;

use super::body::Framing;
use super::facts::{Facts, Flags};
use crate::http::host::is_host;
use crate::http::runs::{
    letters_end, path_end, path_run_end, target_end, target_run, text_end, token_end, token_run,
    value_end, value_run,
};
use crate::http::{Fields, Head, Limits, Method, Reject, Span, Upgrade, Version};

/// Longest method token accepted; the longest registered one has 17 bytes.
const METHOD_MAX: usize = 32;

/// What the shortest field line takes: a name of one byte, a colon, a line end.
const FIELD_MIN: usize = 4;

/// A complete head: positions and the facts that framing needs. And what is kept from head to head.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Bytes the head takes, leading empty line and final empty line included.
    pub(super) len: usize,
    method: Method,
    method_at: At,
    target_at: At,
    /// In the target.
    path_at: At,
    pub(super) version: Version,
    pub(super) flags: Flags,
    content_length: u64,
    /// How many fields there are.
    field_count: usize,
    /// Where these are, and room for as many as there may be.
    pub(super) spans: Vec<Span>,
    /// See [`Facts`].
    known_host: Vec<u8>,
}

impl Default for Parsed {
    fn default() -> Self {
        Parsed {
            len: 0,
            method: Method::Other,
            method_at: At::default(),
            target_at: At::default(),
            path_at: At::default(),
            version: Version::Http11,
            flags: Flags::default(),
            content_length: 0,
            field_count: 0,
            spans: Vec::new(),
            known_host: Vec::new(),
        }
    }
}

/// Where a part of a head is. As with [`Span`], half the size makes the bounds cheaper to check.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    start: u32,
    len: u32,
}

impl At {
    #[inline]
    fn new(start: usize, len: usize) -> Self {
        At { start: start as u32, len: len as u32 }
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + self.len as usize]
    }
}

impl Parsed {
    pub(super) fn method(&self) -> Method {
        self.method
    }

    #[inline(always)]
    pub(super) fn framing(&self) -> Framing {
        match self.flags.has(Flags::CHUNKED) {
            true => Framing::Chunked,
            false => Framing::Length(self.content_length),
        }
    }

    /// The view of this head; `bytes` must be those it was parsed from.
    #[inline]
    pub(super) fn head<'a>(&'a self, bytes: &'a [u8]) -> Head<'a> {
        let target = self.target_at.of(bytes);
        Head {
            method: self.method,
            method_token: self.method_at.of(bytes),
            target,
            path_on: &target[self.path_at.start as usize..],
            path_len: self.path_at.len as usize,
            version: self.version,
            names_deadline: self.flags.has(Flags::DEADLINE),
            names_request_id: self.flags.has(Flags::REQUEST_ID),
            upgrade: Upgrade::by_field(self.flags.asks_upgrade(self.version)),
            given_id: None,
            fields: Fields { bytes, spans: &self.spans[..self.field_count] },
        }
    }
}

/// Parses a head at the start of `bytes` into `parsed`, in place: copying a value whose parts were just
/// written is slow. `Ok(false)` means that more bytes are needed; a refusal is returned as soon as the
/// received bytes prove it.
pub(super) fn parse(bytes: &[u8], limits: &Limits, parsed: &mut Parsed) -> Result<bool, Reject> {
    // RFC 9112 §2.2: a server should ignore an empty line before a request line.
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(false),
        _ => 0,
    };
    let behind_line = match usual_request_line(bytes, start, limits, parsed) {
        Some(at) => at,
        None => match request_line(bytes, start, limits, parsed)? {
            Some(at) => at,
            None => return Ok(false),
        },
    };
    // Room for all that there may be, so that none is asked for while they are found.
    let most = limits.header_count_max.min(limits.header_max / FIELD_MIN + 1);
    if parsed.spans.len() != most {
        parsed.spans.resize(most, Span::default());
    }
    let found = fields(bytes, behind_line, limits, &mut parsed.spans);
    let spans = &mut parsed.spans[..found.count];
    let mut facts = Facts::new(parsed.version, &mut parsed.known_host);
    facts.note_all(Fields { bytes, spans })?;
    if !found.is_whole {
        let rest = bytes.get(found.at..).unwrap_or_default();
        let is_full = found.count == limits.header_count_max;
        return why_no_field(rest, found.room, is_full).map_or(Ok(false), Err);
    }
    facts.finish()?;
    (parsed.flags, parsed.content_length) = (facts.flags, facts.content_length);
    if bytes[parsed.target_at.start as usize] != b'/' {
        replace_host(bytes, (parsed.method, parsed.target_at), spans);
    }
    parsed.len = found.at;
    parsed.field_count = found.count;
    Ok(true)
}

/// Where the target is in absolute-form, its authority is the host, and the `Host` that was received must be
/// ignored (RFC 9112 §3.2.2): no caller sees it, so it cannot mislead one.
#[cold]
fn replace_host(bytes: &[u8], (method, target_at): (Method, At), spans: &mut [Span]) {
    let (target, target_start) = (target_at.of(bytes), target_at.start);
    let Some(scheme_end) = (method != Method::Connect).then(|| authority_start(target)).flatten()
    else {
        return;
    };
    let is_host = |span: &&mut Span| span.name_in(bytes).eq_ignore_ascii_case(b"host");
    if let Some(host) = spans.iter_mut().find(is_host) {
        host.value = target_start + scheme_end as u32;
        host.value_len = authority_len(&target[scheme_end..]) as u32;
    }
}

/// Where the authority of an absolute-form target begins.
fn authority_start(target: &[u8]) -> Option<usize> {
    [&b"http://"[..], &b"https://"[..]]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)))
        .map(<[u8]>::len)
}

/// Length of the authority at the start of `rest`.
fn authority_len(rest: &[u8]) -> usize {
    rest.iter().position(|b| matches!(b, b'/' | b'?' | b'\\')).unwrap_or(rest.len())
}

/// The request line if it is whole, and as nearly all are: a path, perhaps with a query, of HTTP/1.1. Returns where the
/// next line begins. Otherwise [`request_line`] decides.
#[inline(always)]
fn usual_request_line(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    parsed: &mut Parsed,
) -> Option<usize> {
    // Most requests are a GET: one comparison recognizes it.
    let (method, method_end) = match bytes.get(start..)?.starts_with(b"GET ") {
        true => (Method::Get, start + 3),
        false => {
            let end = token_end(bytes, start);
            (Method::from_token(bytes.get(start..end)?), end)
        }
    };
    let target = method_end + 1;
    let path_end = path_run_end(bytes, target);
    let end = match bytes.get(path_end)? {
        b'?' => target_end(bytes, path_end),
        _ => path_end,
    };
    let is_usual = bytes.get(method_end..)?.starts_with(b" /")
        && end - target <= limits.uri_max
        && (1..=METHOD_MAX).contains(&(method_end - start))
        && method != Method::Connect
        && bytes.get(end..)?.starts_with(b" HTTP/1.1\r\n");
    parsed.method = method;
    parsed.method_at = At::new(start, method_end - start);
    parsed.target_at = At::new(target, end - target);
    parsed.path_at = At::new(0, path_end - target);
    parsed.version = Version::Http11;
    is_usual.then_some(end + 11)
}

/// The request line, whatever it is. Returns where the next line begins; nothing if more bytes are needed.
#[cold]
fn request_line(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    parsed: &mut Parsed,
) -> Result<Option<usize>, Reject> {
    let rest = &bytes[start..];
    let method_len = token_run(rest);
    if method_len > METHOD_MAX {
        return Err(Reject::Method);
    }
    match rest.get(method_len) {
        None => return Ok(None),
        Some(b' ') if method_len > 0 => {}
        Some(b'\r' | b'\n' | b' ') => return Err(Reject::RequestLine),
        Some(_) => return Err(Reject::Method),
    }
    let target_start = start + method_len + 1;
    let target_room = &bytes[target_start..];
    let target_len = target_run(&target_room[..target_room.len().min(limits.uri_max + 1)]);
    if target_len > limits.uri_max {
        return Err(Reject::UriTooLong);
    }
    match target_room.get(target_len) {
        None => return Ok(None),
        Some(b' ') if target_len > 0 => {}
        Some(b'\r' | b'\n' | b' ') => return Err(Reject::RequestLine),
        Some(_) => return Err(Reject::TargetByte),
    }
    let version_start = target_start + target_len + 1;
    let Some(version) = version(&bytes[version_start..])? else {
        return Ok(None);
    };
    let method = Method::from_token(&rest[..method_len]);
    let target = &target_room[..target_len];
    let (path, path_len) = path_of(method, target)?;
    parsed.method = method;
    parsed.method_at = At::new(start, method_len);
    parsed.target_at = At::new(target_start, target_len);
    parsed.path_at = At::new(path, path_len);
    parsed.version = version;
    Ok(Some(version_start + 10))
}

/// `HTTP/1.x` and its line end.
fn version(bytes: &[u8]) -> Result<Option<Version>, Reject> {
    if let Some(line) = bytes.first_chunk::<10>() {
        match line {
            b"HTTP/1.1\r\n" => return Ok(Some(Version::Http11)),
            b"HTTP/1.0\r\n" => return Ok(Some(Version::Http10)),
            _ => {}
        }
    }
    // The slow path, byte by byte, so that a refusal comes at the same byte however the bytes are split.
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        let good = match at {
            0..=4 => byte == b"HTTP/"[at],
            6 => byte == b'.',
            5 | 7 => byte.is_ascii_digit(),
            8 if byte == b'\n' => return Err(Reject::LineEnd),
            8 => byte == b'\r',
            _ if byte != b'\n' => return Err(Reject::LineEnd),
            _ => true,
        };
        if !good {
            return Err(if at == 8 { Reject::RequestLine } else { Reject::Version });
        }
    }
    match bytes.first_chunk::<10>() {
        None => Ok(None),
        Some(line) if line[5] == b'1' => Ok(Some(Version::Http11)),
        Some(_) => Err(Reject::VersionUnsupported),
    }
}

/// Where the path stands in the target, by the target's form (RFC 9112 §3.2).
fn path_of(method: Method, target: &[u8]) -> Result<(usize, usize), Reject> {
    // A backslash is not a URI character, and some servers read it as a slash: in a path that is an attack.
    // Browsers send it unescaped in a query, where it is harmless.
    let path_from = |from: usize| {
        let rest = &target[from..];
        match path_end(rest) {
            Some(end) if rest[end] == b'\\' => Err(Reject::TargetByte),
            end => Ok((from, end.unwrap_or(rest.len()))),
        }
    };
    if method == Method::Connect {
        return if is_authority_form(target) {
            Ok((target.len(), 0))
        } else {
            Err(Reject::TargetForm)
        };
    }
    if target[0] == b'/' {
        return path_from(0);
    }
    if target == b"*" && method == Method::Options {
        return Ok((0, 1));
    }
    let start = authority_start(target).ok_or(Reject::TargetForm)?;
    let authority_len = authority_len(&target[start..]);
    if !is_host(&target[start..start + authority_len]) {
        return Err(Reject::TargetForm);
    }
    path_from(start + authority_len)
}

/// `uri-host ":" port` with a port that exists: RFC 9110 §9.3.6 requires that an empty or invalid one is
/// refused.
fn is_authority_form(target: &[u8]) -> bool {
    let port = target.iter().rposition(|&b| b == b':').map(|colon| &target[colon + 1..]);
    let port = port.and_then(|digits| core::str::from_utf8(digits).ok());
    is_host(target) && port.and_then(|digits| digits.parse().ok()).is_some_and(|port: u16| port > 0)
}

/// The field lines that were found.
struct Found {
    count: usize,
    /// Where the head ends, if it is whole; else, where a line begins that is not one, or not yet.
    at: usize,
    is_whole: bool,
    /// How many bytes that line may have before its line end.
    room: usize,
}

/// Finds the field lines from `start` on.
#[inline(always)]
fn fields(bytes: &[u8], start: usize, limits: &Limits, spans: &mut [Span]) -> Found {
    // The last line may use what is left of the section's limit, its own line end included.
    let end_max = start.saturating_add(limits.header_max.saturating_sub(2));
    let (mut at, mut count) = (start, 0);
    loop {
        while let Some(span) = spans.get_mut(count)
            && let Some(line) = usual_field(bytes, at)
            && line.end <= end_max
        {
            *span = line.span();
            (at, count) = (line.end + 2, count + 1);
        }
        if bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
            return Found { count, at: at + 2, is_whole: true, room: 0 };
        }
        match (spans.get_mut(count), whole_field(bytes, at)) {
            (Some(span), Some(line)) if line.end <= end_max => {
                *span = line.span();
                (at, count) = (line.end + 2, count + 1);
            }
            _ => return Found { count, at, is_whole: false, room: end_max.saturating_sub(at) },
        }
    }
}

/// A field line that is whole: where its parts are.
pub(super) struct FieldLine {
    name: usize,
    name_end: usize,
    /// Without surrounding white space.
    value: usize,
    value_end: usize,
    /// Where its line end begins.
    pub(super) end: usize,
}

impl FieldLine {
    #[inline]
    pub(super) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.name..self.name_end]
    }

    #[inline]
    pub(super) fn span(&self) -> Span {
        Span {
            name: self.name as u32,
            name_len: (self.name_end - self.name) as u32,
            value: self.value as u32,
            value_len: (self.value_end - self.value) as u32,
        }
    }
}

/// The field line that begins at `name`, if all of it is there and if it is as nearly all are: letters and `-`, a colon, one
/// space, a value. Otherwise [`whole_field`] decides.
#[inline(always)]
fn usual_field(bytes: &[u8], name: usize) -> Option<FieldLine> {
    let name_end = letters_end(bytes, name);
    let value = name_end + 2;
    if name_end <= name || !bytes.get(name_end..)?.starts_with(b": ") {
        return None;
    }
    let end = text_end(bytes, value);
    let is_usual = bytes.get(end..)?.starts_with(b"\r\n")
        && end > value
        && bytes[value] > b' '
        && bytes[end - 1] > b' ';
    is_usual.then_some(FieldLine { name, name_end, value, value_end: end, end })
}

/// The field line that begins at `name`, if all of it is there. If not, [`why_no_field`] says why.
#[cold]
#[inline(never)]
pub(super) fn whole_field(bytes: &[u8], name: usize) -> Option<FieldLine> {
    let name_end = token_end(bytes, name);
    if name_end == name || *bytes.get(name_end)? != b':' {
        return None;
    }
    let mut value = name_end + 1;
    while let Some(b' ' | b'\t') = bytes.get(value) {
        value += 1;
    }
    let end = value_end(bytes, value);
    if !bytes.get(end..)?.starts_with(b"\r\n") {
        return None;
    }
    let mut value_end = end;
    while value_end > value && matches!(bytes[value_end - 1], b' ' | b'\t') {
        value_end -= 1;
    }
    Some(FieldLine { name, name_end, value, value_end, end })
}

/// Why there is no field line of at most `room` bytes before its line end at the start of `rest`: the mistake in it. `None`
/// if more bytes are needed. With `is_full`, no further line is accepted.
#[cold]
fn why_no_field(rest: &[u8], room: usize, is_full: bool) -> Option<Reject> {
    match rest {
        [] | [b'\r'] => return None,
        [b'\r' | b'\n', ..] => return Some(Reject::LineEnd),
        [b' ' | b'\t', ..] => return Some(Reject::LineFolding),
        _ if is_full => return Some(Reject::HeaderTooLarge),
        _ => {}
    }
    let line = &rest[..rest.len().min(room)];
    let name_len = token_run(line);
    if name_len == line.len() {
        // Either the bytes or the room ran out within the name.
        return (rest.len() > room).then_some(Reject::HeaderTooLarge);
    }
    match line[name_len] {
        b':' if name_len > 0 => {}
        b'\n' => return Some(Reject::LineEnd),
        _ => return Some(Reject::FieldName),
    }
    let after_colon = name_len + 1;
    let end = after_colon + value_run(&line[after_colon..]);
    match rest.get(end)? {
        b'\r' => {}
        b'\n' => return Some(Reject::LineEnd),
        _ if end == room => return Some(Reject::HeaderTooLarge),
        _ => return Some(Reject::FieldValue),
    }
    match rest.get(end + 1)? {
        b'\n' => None,
        _ => Some(Reject::LineEnd),
    }
}

#[cfg(test)]
mod tests;
