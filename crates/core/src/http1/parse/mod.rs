//! Finds a request head in bytes and decides how its body is framed.
//!
//! One pass, no allocation but the reused span table, and the same result however the bytes were split:
//! limits and grammar are checked in the order of the bytes.

use alloc::vec::Vec;

use super::body::Framing;
use super::facts::Facts;
use crate::http::syntax::{is_host, is_token_byte, path_end, target_run, token_run, value_run};
use crate::http::{Fields, Head, Limits, Method, Reject, Span, Upgrade, Version};

/// Longest method token accepted; the longest registered one has 17 bytes.
const METHOD_MAX: usize = 32;

/// A complete head: positions and the facts that framing needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed {
    /// Bytes the head takes, leading empty line and final empty line included.
    pub(super) len: usize,
    method: Method,
    method_at: (usize, usize),
    target_at: (usize, usize),
    path_at: (usize, usize),
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
            method_at: (0, 0),
            target_at: (0, 0),
            path_at: (0, 0),
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

impl Parsed {
    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// The view of this head; `bytes` and `spans` must be those it was parsed from and into.
    #[inline]
    pub(super) fn head<'a>(&self, bytes: &'a [u8], spans: &'a [Span]) -> Head<'a> {
        let at = |(start, len): (usize, usize)| &bytes[start..start + len];
        let (path, path_len) = self.path_at;
        let target_end = self.target_at.0 + self.target_at.1;
        Head {
            method: self.method,
            method_token: at(self.method_at),
            target: at(self.target_at),
            path_on: &bytes[path..target_end],
            path_len,
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
    let Some(line) = request_line(bytes, start, limits)? else {
        return Ok(false);
    };
    let mut facts = Facts { version: line.version, ..Facts::default() };
    let Some(len) = fields(bytes, line.len, limits, spans, &mut facts)? else {
        return Ok(false);
    };
    facts.finish()?;
    if bytes[line.target_at.0] != b'/' {
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
    let (target_start, target_len) = line.target_at;
    let target = &bytes[target_start..target_start + target_len];
    let Some(scheme_end) =
        (line.method != Method::Connect).then(|| authority_start(target)).flatten()
    else {
        return;
    };
    let is_host = |span: &&mut Span| span.name_in(bytes).eq_ignore_ascii_case(b"host");
    if let Some(host) = spans.iter_mut().find(is_host) {
        host.value = (target_start + scheme_end) as u32;
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
    method_at: (usize, usize),
    target_at: (usize, usize),
    path_at: (usize, usize),
    version: Version,
}

fn request_line(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
) -> Result<Option<RequestLine>, Reject> {
    let rest = &bytes[start..];
    // Most requests are a GET: one comparison recognizes it.
    let is_get = rest.starts_with(b"GET ");
    let method_len = if is_get { 3 } else { token_run(rest) };
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
    let method = if is_get { Method::Get } else { Method::from_token(&rest[..method_len]) };
    let target = &target_room[..target_len];
    let (path, path_len) = path_of(method, target)?;
    Ok(Some(RequestLine {
        len: version_start + 10,
        method,
        method_at: (start, method_len),
        target_at: (target_start, target_len),
        path_at: (target_start + path, path_len),
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
fn fields(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    spans: &mut Vec<Span>,
    facts: &mut Facts,
) -> Result<Option<usize>, Reject> {
    let mut at = start;
    loop {
        let Some(&first) = bytes.get(at) else { return Ok(None) };
        if !is_token_byte(first)
            && let Some(end) = no_field(&bytes[at..])
        {
            return end.map(|is_end| is_end.then_some(at + 2));
        }
        if spans.len() == limits.header_count_max {
            return Err(Reject::HeaderTooLarge);
        }
        // The line may use what is left of the section's limit, its own line end included.
        let room = limits.header_max.saturating_sub(at - start).saturating_sub(2);
        match field(bytes, at, room)? {
            None => return Ok(None),
            Some((span, next)) => {
                facts.note(bytes, &span)?;
                spans.push(span);
                at = next;
            }
        }
    }
}

/// What begins with a byte that no name begins with: the end of the head, if all of it has come, or a mistake. `None` if it
/// is a line all the same.
fn no_field(rest: &[u8]) -> Option<Result<bool, Reject>> {
    Some(match rest {
        [b'\r'] => Ok(false),
        [b'\r', b'\n', ..] => Ok(true),
        [b'\r' | b'\n', ..] => Err(Reject::LineEnd),
        [b' ' | b'\t', ..] => Err(Reject::LineFolding),
        _ => return None,
    })
}

/// One field line at `at`, of at most `room` bytes before its line end.
#[inline]
pub(super) fn field(bytes: &[u8], at: usize, room: usize) -> Result<Option<(Span, usize)>, Reject> {
    let all = &bytes[at..];
    let line = &all[..all.len().min(room)];
    let name_len = token_run(line);
    if name_len == line.len() {
        // Either the bytes or the room ran out within the name.
        return if all.len() > room { Err(Reject::HeaderTooLarge) } else { Ok(None) };
    }
    match line[name_len] {
        b':' if name_len > 0 => {}
        b'\n' => return Err(Reject::LineEnd),
        _ => return Err(Reject::FieldName),
    }
    let after_colon = name_len + 1;
    let end = after_colon + value_run(&line[after_colon..]);
    match all.get(end) {
        None => return Ok(None),
        Some(b'\r') => {}
        Some(b'\n') => return Err(Reject::LineEnd),
        Some(_) if end == room => return Err(Reject::HeaderTooLarge),
        Some(_) => return Err(Reject::FieldValue),
    }
    match all.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(Reject::LineEnd),
    }
    let raw = &line[after_colon..end];
    let lead = raw.iter().position(|b| !matches!(b, b' ' | b'\t')).unwrap_or(raw.len());
    let tail = raw[lead..].iter().rev().position(|b| !matches!(b, b' ' | b'\t')).unwrap_or(0);
    let span = Span {
        name: at as u32,
        name_len: name_len as u32,
        value: (at + after_colon + lead) as u32,
        value_len: (raw.len() - lead - tail) as u32,
    };
    Ok(Some((span, at + end + 2)))
}

#[cfg(test)]
mod tests;
