//! Finds a request head in bytes and decides how its body is framed.
//!
//! One pass, no allocation but the reused span table, and the same result however the bytes were split:
//! limits and grammar are checked in the order of the bytes.

use alloc::vec::Vec;

use super::body::Framing;
use super::facts::Facts;
use crate::http::syntax::{is_host, path_end, path_run, target_run, token_run, value_run};
use crate::http::{Fields, Head, Limits, Method, Reject, Span, Upgrade, Version};

/// Longest method token accepted; the longest registered one has 17 bytes.
const METHOD_MAX: usize = 32;

/// A complete head: positions and the facts that framing needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed {
    /// Bytes the head takes, leading empty line and final empty line included.
    pub(super) len: usize,
    method: Method,
    method_at: At,
    target_at: At,
    /// In the target.
    path_at: At,
    pub(super) version: Version,
    pub(super) framing: Framing,
    /// The peer wants the connection closed after the answer.
    pub(super) close: bool,
    pub(super) expect_continue: bool,
    names_deadline: bool,
    names_request_id: bool,
    asks_upgrade: bool,
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
            framing: Framing::Length(0),
            close: false,
            expect_continue: false,
            names_deadline: false,
            names_request_id: false,
            asks_upgrade: false,
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

    /// The view of this head; `bytes` and `spans` must be those it was parsed from and into.
    #[inline]
    pub(super) fn head<'a>(&self, bytes: &'a [u8], spans: &'a [Span]) -> Head<'a> {
        let target = self.target_at.of(bytes);
        Head {
            method: self.method,
            method_token: self.method_at.of(bytes),
            target,
            path_on: &target[self.path_at.start as usize..],
            path_len: self.path_at.len as usize,
            version: self.version,
            names_deadline: self.names_deadline,
            names_request_id: self.names_request_id,
            upgrade: Upgrade::by_field(self.asks_upgrade),
            given_id: None,
            fields: Fields { bytes, spans },
        }
    }
}

/// Parses a head at the start of `bytes` into `parsed`, in place: copying a value whose parts were just
/// written is slow. `Ok(false)` means that more bytes are needed; a refusal is returned as soon as the
/// received bytes prove it.
pub(super) fn parse(
    bytes: &[u8],
    limits: &Limits,
    spans: &mut Vec<Span>,
    parsed: &mut Parsed,
) -> Result<bool, Reject> {
    spans.clear();
    // RFC 9112 §2.2: a server should ignore an empty line before a request line.
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(false),
        _ => 0,
    };
    let line = match usual_request_line(bytes, start, limits) {
        Some(line) => line,
        None => match request_line(bytes, start, limits)? {
            Some(line) => line,
            None => return Ok(false),
        },
    };
    let mut facts = Facts { version: line.version, ..Facts::default() };
    let Some(len) = fields(bytes, line.len, limits, spans, &mut facts)? else {
        return Ok(false);
    };
    facts.finish()?;
    if bytes[line.target_at.start as usize] != b'/' {
        replace_host(bytes, &line, spans);
    }
    *parsed = Parsed {
        len,
        method: line.method,
        method_at: line.method_at,
        target_at: line.target_at,
        path_at: line.path_at,
        version: line.version,
        framing: if facts.chunked {
            Framing::Chunked
        } else {
            Framing::Length(facts.content_length.unwrap_or(0))
        },
        close: facts.close || (line.version == Version::Http10 && !facts.keep_alive),
        expect_continue: facts.expect_continue && line.version == Version::Http11,
        names_deadline: facts.names_deadline,
        names_request_id: facts.names_request_id,
        asks_upgrade: facts.asks_upgrade(),
    };
    Ok(true)
}

/// Where the target is in absolute-form, its authority is the host, and the `Host` that was received must be
/// ignored (RFC 9112 §3.2.2): no caller sees it, so it cannot mislead one.
#[cold]
fn replace_host(bytes: &[u8], line: &RequestLine, spans: &mut [Span]) {
    let (target, target_start) = (line.target_at.of(bytes), line.target_at.start);
    let Some(scheme_end) =
        (line.method != Method::Connect).then(|| authority_start(target)).flatten()
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

struct RequestLine {
    /// Bytes up to and including its line end.
    len: usize,
    method: Method,
    method_at: At,
    target_at: At,
    path_at: At,
    version: Version,
}

/// The request line if it is whole, and as nearly all are: a path, perhaps with a query, of HTTP/1.1. Otherwise
/// [`request_line`] decides.
#[inline(always)]
fn usual_request_line(bytes: &[u8], start: usize, limits: &Limits) -> Option<RequestLine> {
    let rest = bytes.get(start..)?;
    // Most requests are a GET: one comparison recognizes it.
    let (method, method_len) = match rest.starts_with(b"GET ") {
        true => (Method::Get, 3),
        false => {
            let len = token_run(rest);
            (Method::from_token(rest.get(..len)?), len)
        }
    };
    let [b' ', target_on @ ..] = rest.get(method_len..)? else { return None };
    let path_len = path_run(target_on);
    let after_path = target_on.get(path_len..)?;
    let query_len = if after_path.first() == Some(&b'?') { target_run(after_path) } else { 0 };
    let target_len = path_len + query_len;
    let is_usual = target_on.first() == Some(&b'/')
        && target_len <= limits.uri_max
        && (1..=METHOD_MAX).contains(&method_len)
        && method != Method::Connect
        && after_path.get(query_len..)?.starts_with(b" HTTP/1.1\r\n");
    let target_start = start + method_len + 1;
    is_usual.then_some(RequestLine {
        len: target_start + target_len + 11,
        method,
        method_at: At::new(start, method_len),
        target_at: At::new(target_start, target_len),
        path_at: At::new(0, path_len),
        version: Version::Http11,
    })
}

#[cold]
fn request_line(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
) -> Result<Option<RequestLine>, Reject> {
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
    Ok(Some(RequestLine {
        len: version_start + 10,
        method,
        method_at: At::new(start, method_len),
        target_at: At::new(target_start, target_len),
        path_at: At::new(path, path_len),
        version,
    }))
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

/// Parses field lines from `start` on; returns where the head ends.
#[inline(always)]
fn fields(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    spans: &mut Vec<Span>,
    facts: &mut Facts,
) -> Result<Option<usize>, Reject> {
    // The last line may use what is left of the section's limit, its own line end included.
    let end_max = start.saturating_add(limits.header_max.saturating_sub(2));
    let mut rest = bytes.get(start..).unwrap_or_default();
    loop {
        let at = bytes.len() - rest.len();
        if let [b'\r', b'\n', ..] = rest {
            return Ok(Some(at + 2));
        }
        match whole_field(rest) {
            Some(line) if at + line.len <= end_max && spans.len() < limits.header_count_max => {
                facts.note(line.name, line.value)?;
                spans.push(line.span(at));
                rest = line.behind;
            }
            _ => {
                let is_full = spans.len() == limits.header_count_max;
                return why_no_field(rest, end_max.saturating_sub(at), is_full)
                    .map_or(Ok(None), Err);
            }
        }
    }
}

/// A field line that is whole.
pub(super) struct FieldLine<'a> {
    pub(super) name: &'a [u8],
    /// Without surrounding white space.
    value: &'a [u8],
    /// Bytes before the value, and before the line end.
    value_start: usize,
    len: usize,
    /// What follows its line end.
    pub(super) behind: &'a [u8],
}

impl FieldLine<'_> {
    /// The position of the field, whose line begins at `at`.
    #[inline]
    pub(super) fn span(&self, at: usize) -> Span {
        Span {
            name: at as u32,
            name_len: self.name.len() as u32,
            value: (at + self.value_start) as u32,
            value_len: self.value.len() as u32,
        }
    }
}

/// The field line at the start of `rest`, if all of it is there. If not, [`why_no_field`] says why.
#[inline(always)]
pub(super) fn whole_field(rest: &[u8]) -> Option<FieldLine<'_>> {
    let (name, colon_on) = rest.split_at_checked(token_run(rest))?;
    let [b':', value_on @ ..] = colon_on else { return None };
    let mut value_on = value_on;
    while let [b' ' | b'\t', behind @ ..] = value_on {
        value_on = behind;
    }
    let (mut value, end_on) = value_on.split_at_checked(value_run(value_on))?;
    let [b'\r', b'\n', behind @ ..] = end_on else { return None };
    while let [before @ .., b' ' | b'\t'] = value {
        value = before;
    }
    let (value_start, len) = (rest.len() - value_on.len(), rest.len() - end_on.len());
    (!name.is_empty()).then_some(FieldLine { name, value, value_start, len, behind })
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
