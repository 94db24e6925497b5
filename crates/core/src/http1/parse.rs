//! Finds a request head in bytes and decides how its body is framed.
//!
//! One pass, no allocation but the reused span table, and the same verdict however the bytes were
//! split: limits and grammar are checked in the order in which the bytes stand.

use alloc::vec::Vec;

use super::error::Reject;
use super::facts::Facts;
use super::head::{Head, Headers, Method, Span, Version};
use super::limits::Limits;

/// Longest method token taken; the longest registered one has 17 bytes.
const METHOD_MAX: usize = 32;

/// What a complete head says about itself: positions and the facts that framing needs.
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
    asks_upgrade: bool,
}

/// How the body that follows a head is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
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
            asks_upgrade: self.asks_upgrade,
            headers: Headers { bytes, spans },
        }
    }
}

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const HOST: u8 = 8;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(b, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
        }
        if b > b' ' && b < 0x7f && b != b'#' {
            table[byte] |= TARGET;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if alphanumeric || is_one_of(b, b"-._~%!$&'()*+;=") {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

#[inline]
fn run(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|&b| CLASS[b as usize] & class == 0).unwrap_or(bytes.len())
}

/// Length of the leading run of field-value bytes, eight at a time where they are plain.
#[inline]
fn value_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let mut taken = 0;
    while let Some(chunk) = bytes[taken..].first_chunk::<8>() {
        let word = u64::from_ne_bytes(*chunk);
        // Non-zero if any byte is below 0x20, or is 0x7f ("Bit Twiddling Hacks": hasless, haszero).
        let below = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let del = word ^ (ONES * 0x7f);
        let is_del = del.wrapping_sub(ONES) & !del & HIGHS;
        if below | is_del != 0 {
            break;
        }
        taken += 8;
    }
    taken + run(&bytes[taken..], VALUE)
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

pub(super) fn is_value_byte(byte: u8) -> bool {
    CLASS[byte as usize] & VALUE != 0
}

/// Parses a head at the start of `bytes`. `Ok(None)` means that more bytes are needed; a refusal is
/// returned as soon as the bytes at hand prove it.
pub(super) fn parse(
    bytes: &[u8],
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<Option<Parsed>, Reject> {
    spans.clear();
    // RFC 9112 §2.2: a server should ignore an empty line before a request line.
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        _ => 0,
    };
    let Some(line) = request_line(bytes, start, limits)? else {
        return Ok(None);
    };
    let mut facts = Facts { version: line.version, ..Facts::default() };
    let Some(len) = fields(bytes, line.len, limits, spans, &mut facts)? else {
        return Ok(None);
    };
    facts.finish()?;
    if bytes[line.target_at.0] != b'/' {
        replace_host(bytes, &line, spans);
    }
    Ok(Some(Parsed {
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
        asks_upgrade: facts.asks_upgrade(),
    }))
}

/// Where the target is in absolute-form, its authority is the host, and the `Host` that was received
/// must be ignored (RFC 9112 §3.2.2): nobody sees it, so nobody can be misled by it.
#[cold]
fn replace_host(bytes: &[u8], line: &RequestLine, spans: &mut [Span]) {
    let (target_start, target_len) = line.target_at;
    let target = &bytes[target_start..target_start + target_len];
    let Some(scheme_end) =
        (line.method != Method::Connect).then(|| authority_start(target)).flatten()
    else {
        return;
    };
    let is_host = |span: &&mut Span| {
        let name = &bytes[span.name as usize..][..span.name_len as usize];
        name.eq_ignore_ascii_case(b"host")
    };
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

/// How long the authority is that `rest` begins with.
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
    let method_len = run(rest, TOKEN);
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
    let target_len = run(&target_room[..target_room.len().min(limits.uri_max + 1)], TARGET);
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
    // The slow way, byte by byte, so that a refusal comes at the same byte however they arrive.
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
    // A backslash is no URI character, and some take it for a slash: in a path that is an attack.
    // Browsers send it bare in a query, where it does no harm.
    let path_from = |from: usize| {
        let rest = &target[from..];
        match rest.iter().position(|&b| matches!(b, b'?' | b'\\')) {
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

/// `uri-host ":" port` with a port that exists: RFC 9110 §9.3.6 wants an empty or invalid one refused.
fn is_authority_form(target: &[u8]) -> bool {
    let port = target.iter().rposition(|&b| b == b':').map(|colon| &target[colon + 1..]);
    let port = port.and_then(|digits| core::str::from_utf8(digits).ok());
    is_host(target) && port.and_then(|digits| digits.parse().ok()).is_some_and(|port: u16| port > 0)
}

/// `uri-host [ ":" port ]` (RFC 9110 §7.2), without the comma that RFC 3986 would allow in a name:
/// it is how two merged `Host` fields look.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (name_ok, rest) = match value.strip_prefix(b"[") {
        Some(literal) => {
            let Some(end) = literal.iter().position(|&b| b == b']') else {
                return false;
            };
            let inner = &literal[..end];
            let ok = inner.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
            (ok && !inner.is_empty(), &literal[end + 1..])
        }
        None => {
            let len = run(value, HOST);
            (len > 0, &value[len..])
        }
    };
    let port_ok = match rest {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    name_ok && port_ok
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
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'\r') => {
                return match bytes.get(at + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some(at + 2)),
                    Some(_) => Err(Reject::LineEnd),
                };
            }
            Some(b'\n') => return Err(Reject::LineEnd),
            Some(b' ' | b'\t') => return Err(Reject::LineFolding),
            Some(_) => {}
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

/// One field line at `at`, of at most `room` bytes before its line end.
#[inline]
fn field(bytes: &[u8], at: usize, room: usize) -> Result<Option<(Span, usize)>, Reject> {
    let all = &bytes[at..];
    let line = &all[..all.len().min(room)];
    let name_len = run(line, TOKEN);
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
