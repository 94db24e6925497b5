//! From the fields of a block to a request's head, or to trailers, as RFC 9113 §8 allows them.
//!
//! Names and values are copied behind each other, as a [`Head`] wants them, while they are decoded. `:authority` becomes
//! the field `host`, and the parts of a cookie become one (§8.2.3), as for every other version of HTTP.

use alloc::vec::Vec;

use super::super::hpack::Field;
use super::fields::is_of_connection;
use super::priority::Priority;
use crate::http::host::is_host;
use crate::http::runs::{is_lower_token, path_end, target_run, token_run, value_run};
use crate::http::{
    Fields, Head, Limits, Method, OwnedFields, REQUEST_DEADLINE, REQUEST_ID, REQUEST_TIMEOUT,
    Reject, Span, Upgrade, Version, is_left_out,
};

/// Longest method token accepted, as for HTTP/1.
const METHOD_MAX: usize = 32;

/// Room that is kept for the next head.
const KEPT_MAX: usize = 64 * 1024;

/// Working memory that the connections of one worker share, each during one call.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    facts: Facts,
    /// Where the parts of a cookie stand that are still to be joined.
    crumbs: Vec<(u32, u32)>,
    /// The trailers that are being handed out.
    pub(super) trailers: OwnedFields,
}

/// Where a part of the head stands in the bytes.
type Part = Option<(u32, u32)>;

/// What is known from the fields so far.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    method: Part,
    scheme: Part,
    path: Part,
    authority: Part,
    protocol: Part,
    has_host: bool,
    /// The span of the cookie.
    cookie: Option<usize>,
    is_regular: bool,
    is_trailers: bool,
    count_max: usize,
    /// `:protocol` is defined here (RFC 8441 §4).
    allows_protocol: bool,
    content_length: Option<u64>,
    expects_continue: bool,
    names_deadline: bool,
    names_request_id: bool,
    priority: Option<Priority>,
    /// What was wrong first: the message is malformed.
    wrong: Option<&'static str>,
    /// The first reason not to serve it.
    refused: Option<Reject>,
}

/// A head that was decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) method: Method,
    /// An extended CONNECT (RFC 8441 §4).
    pub(super) is_tunnel: bool,
    pub(super) content_length: Option<u64>,
    pub(super) expects_continue: bool,
    pub(super) priority: Option<Priority>,
    /// It is well-formed, and not served for this.
    pub(super) refused: Option<Reject>,
}

impl Scratch {
    /// Fields of a head are next, or with `is_trailers` those of a trailer section.
    pub(super) fn begin(&mut self, limits: &Limits, is_trailers: bool) {
        self.spans.clear();
        self.crumbs.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
        let count_max = limits.header_count_max;
        let allows_protocol = limits.http2.extended_connect;
        self.facts = Facts { is_trailers, count_max, allows_protocol, ..Facts::default() };
    }

    /// The next field.
    #[inline]
    pub(super) fn take(&mut self, field: Field<'_>) {
        let checked = match field.name.first() {
            Some(b':') => self.pseudo(field),
            _ => self.regular(field),
        };
        if let Err(wrong) = checked {
            self.facts.wrong.get_or_insert(wrong);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        (at, bytes.len() as u32)
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        if self.spans.len() >= self.facts.count_max {
            self.facts.refused = Some(Reject::HeaderTooLarge);
            return;
        }
        let ((name, name_len), (value, value_len)) = (self.append(name), self.append(value));
        self.spans.push(Span { name, name_len, value, value_len });
    }

    /// RFC 9113 §8.3: each once, before all other fields, and not in trailers.
    fn pseudo(&mut self, field: Field<'_>) -> Result<(), &'static str> {
        if self.facts.is_regular || self.facts.is_trailers {
            return Err("a pseudo-field stands behind other fields, or in trailers");
        }
        let value = field.value;
        if value_run(value) < value.len() {
            return Err("a pseudo-field has a control character in it");
        }
        let at = self.append(value);
        let facts = &mut self.facts;
        let place = match field.name {
            b":method" => &mut facts.method,
            b":scheme" => &mut facts.scheme,
            b":path" => &mut facts.path,
            b":authority" => &mut facts.authority,
            b":protocol" if facts.allows_protocol => &mut facts.protocol,
            _ => return Err("a request has a pseudo-field that is not defined"),
        };
        match place.replace(at) {
            None => Ok(()),
            Some(_) => Err("a request has a pseudo-field twice"),
        }
    }

    /// RFC 9113 §8.2: names in lower case, values without surrounding white space, and nothing about the connection.
    #[inline]
    fn regular(&mut self, field: Field<'_>) -> Result<(), &'static str> {
        let Field { name, value, .. } = field;
        if !self.facts.is_regular {
            self.facts.is_regular = true;
            self.authority();
        }
        if !is_lower_token(name) {
            return Err("the name of a field is not a token in lower case");
        }
        let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if value_run(value) < value.len() || is_space(value.first()) || is_space(value.last()) {
            return Err("the value of a field has a control character, or white space around it");
        }
        if self.facts.is_trailers {
            if is_of_connection(name) {
                return Err("a field is about the connection");
            }
            if !is_left_out(name) {
                self.add(name, value);
            }
            return Ok(());
        }
        if self.special(name, value)? {
            self.add(name, value);
        }
        Ok(())
    }

    /// Notes what a field means to us. Returns whether it is passed on as it is.
    #[inline]
    fn special(&mut self, name: &[u8], value: &[u8]) -> Result<bool, &'static str> {
        let facts = &mut self.facts;
        match name.len() {
            2 if name == b"te" && value != b"trailers" => {
                return Err("te is something else than trailers");
            }
            4 if name == b"host" => return self.host(value),
            6 if name == b"cookie" => return Ok(self.cookie(value)),
            6 if name == b"expect" => match value.eq_ignore_ascii_case(b"100-continue") {
                true => facts.expects_continue = true,
                false => facts.refused = facts.refused.or(Some(Reject::Expectation)),
            },
            7 | 10 | 16 | 17 if is_of_connection(name) => {
                return Err("a field is about the connection");
            }
            8 if name == b"priority" => facts.priority = Some(Priority::parse(value)),
            14 if name == b"content-length" => {
                let length = number(value).ok_or("content-length is not one number")?;
                if facts.content_length.replace(length).is_some() {
                    return Err("content-length stands twice");
                }
            }
            12 => facts.names_request_id |= name == REQUEST_ID,
            15 => facts.names_deadline |= name == REQUEST_TIMEOUT,
            18 => facts.names_deadline |= name == REQUEST_DEADLINE,
            _ => {}
        }
        Ok(true)
    }

    /// `:authority` is passed on as the field `host`, before all others.
    fn authority(&mut self) {
        if let Some((value, value_len)) = self.facts.authority
            && !self.facts.is_trailers
        {
            let (name, name_len) = self.append(b"host");
            self.spans.push(Span { name, name_len, value, value_len });
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<bool, &'static str> {
        if core::mem::replace(&mut self.facts.has_host, true) {
            return Err("host stands twice");
        }
        match self.facts.authority {
            // Two names for one thing must not mean two things (RFC 9113 §8.3.1).
            Some(at) if !part(&self.bytes, at).eq_ignore_ascii_case(value) => {
                Err("host is not what :authority says")
            }
            Some(_) => Ok(false),
            None => {
                if !is_host(value) {
                    self.facts.refused = self.facts.refused.or(Some(Reject::Host));
                }
                Ok(true)
            }
        }
    }

    /// Joins the parts of a cookie. Returns whether this is the first.
    fn cookie(&mut self, value: &[u8]) -> bool {
        let Some(index) = self.facts.cookie else {
            self.facts.cookie = Some(self.spans.len());
            return true;
        };
        let Some(span) = self.spans.get(index).copied() else { return false };
        let end = (span.value + span.value_len) as usize;
        if end < self.bytes.len() || !self.crumbs.is_empty() {
            let part = self.append(value);
            self.crumbs.push(part);
        } else {
            self.bytes.extend_from_slice(b"; ");
            self.bytes.extend_from_slice(value);
            self.spans[index].value_len += 2 + value.len() as u32;
        }
        false
    }

    /// Joins the parts of a cookie between which other fields stood; all at once, so that no byte is copied twice.
    #[cold]
    fn join_cookie(&mut self) {
        let Some(first) = self.facts.cookie.and_then(|index| self.spans.get_mut(index)) else {
            return;
        };
        let at = self.bytes.len();
        let of = |(from, len): (u32, u32)| from as usize..(from + len) as usize;
        self.bytes.extend_from_within(of((first.value, first.value_len)));
        for part in self.crumbs.drain(..) {
            self.bytes.extend_from_slice(b"; ");
            self.bytes.extend_from_within(of(part));
        }
        (first.value, first.value_len) = (at as u32, (self.bytes.len() - at) as u32);
    }

    /// All fields have come; with `is_too_large`, they exceeded their limit.
    ///
    /// # Errors
    /// The message is malformed; why.
    pub(super) fn finish(
        &mut self,
        limits: &Limits,
        is_too_large: bool,
    ) -> Result<Decoded, &'static str> {
        if !self.facts.is_regular {
            self.authority();
        }
        if !self.crumbs.is_empty() {
            self.join_cookie();
        }
        let Facts { content_length, expects_continue, priority, .. } = self.facts;
        if let Some(wrong) = self.facts.wrong {
            return Err(wrong);
        }
        let mut refused = self.facts.refused;
        let (mut method, mut is_tunnel) = (Method::Other, false);
        if is_too_large {
            refused = Some(Reject::HeaderTooLarge); // What is missing may be behind the limit.
            let token = self.facts.method.map(|at| part(&self.bytes, at));
            method = token.map_or(method, Method::from_token); // The answer to HEAD has no content.
        } else if !self.facts.is_trailers {
            let checked = self.line(limits)?;
            method = checked.0;
            refused = refused.or(checked.1);
            is_tunnel = self.facts.protocol.is_some();
        }
        Ok(Decoded { method, is_tunnel, content_length, expects_continue, priority, refused })
    }

    /// Checks the pseudo-fields of a request (RFC 9113 §8.3.1, §8.5).
    fn line(&self, limits: &Limits) -> Result<(Method, Option<Reject>), &'static str> {
        let Facts { method, scheme, path, authority, protocol, has_host, .. } = self.facts;
        let token = part(&self.bytes, method.ok_or("a request has no :method")?);
        if token.is_empty() || token.len() > METHOD_MAX || token_run(token) < token.len() {
            return Err(":method is not a token of at most 32 bytes");
        }
        let method = Method::from_token(token);
        let authority = authority.map(|at| part(&self.bytes, at));
        let is_valid_host = authority.map_or(has_host, is_host);
        let mut unknown = None;
        if let Some(protocol) = protocol {
            unknown = self.protocol(method, part(&self.bytes, protocol))?;
        } else if method == Method::Connect {
            return match (scheme, path, authority) {
                (None, None, Some(authority)) => {
                    Ok((method, (!is_authority_form(authority)).then_some(Reject::TargetForm)))
                }
                _ => Err("a CONNECT has other pseudo-fields than :method and :authority"),
            };
        }
        let scheme = part(&self.bytes, scheme.ok_or("a request has no :scheme")?);
        let path = part(&self.bytes, path.ok_or("a request has no :path")?);
        let is_scheme =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_scheme) {
            return Err(":scheme is not a scheme");
        }
        let is_asterisk = path == b"*" && method == Method::Options;
        if path.first() != Some(&b'/') && !is_asterisk {
            return Err(":path does not begin with a slash");
        }
        let has_backslash = || path_end(path).is_some_and(|end| path[end] == b'\\');
        let refused = match () {
            () if unknown.is_some() => unknown,
            () if path.len() > limits.uri_max => Some(Reject::UriTooLong),
            () if target_run(path) < path.len() || has_backslash() => Some(Reject::TargetByte),
            () if !is_valid_host => Some(Reject::Host),
            () => None,
        };
        Ok((method, refused))
    }

    /// Checks what is particular to an extended CONNECT to `protocol` (RFC 8441 §4). Other than that it is a request like
    /// any other: `:scheme` and `:path` are required, and `:authority` is the host.
    fn protocol(&self, method: Method, protocol: &[u8]) -> Result<Option<Reject>, &'static str> {
        if method != Method::Connect {
            return Err(":protocol stands in a request that is no CONNECT");
        }
        // A name of the registry, perhaps with a version (RFC 9110 §7.8).
        let mut parts = protocol.splitn(2, |byte| *byte == b'/');
        if !parts.all(|part| !part.is_empty() && token_run(part) == part.len()) {
            return Err(":protocol is not the name of a protocol");
        }
        if self.facts.content_length.is_some() {
            // What follows is the other protocol, and has no length (RFC 9110 §9.3.6).
            return Err("an extended CONNECT has a content-length");
        }
        Ok((!protocol.eq_ignore_ascii_case(b"websocket")).then_some(Reject::Protocol))
    }

    /// Whether the head that was decoded is an extended CONNECT.
    pub(super) fn is_tunnel(&self) -> bool {
        self.facts.protocol.is_some()
    }

    /// The head that was decoded and is not refused.
    #[inline]
    pub(super) fn head(&self) -> Head<'_> {
        let Facts { method, path, authority, protocol, .. } = self.facts;
        let Facts { names_deadline, names_request_id, .. } = self.facts;
        let bytes = &self.bytes[..];
        let at = |place: Part| part(bytes, place.unwrap_or_default());
        let token = at(method);
        let method = Method::from_token(token);
        let names_server = method == Method::Connect && protocol.is_none();
        let target = if names_server { at(authority) } else { at(path) };
        let (path_on, path_len) = match names_server {
            true => (&target[target.len()..], 0),
            false => (target, path_end(target).unwrap_or(target.len())),
        };
        Head {
            method,
            method_token: token,
            target,
            path_on,
            path_len,
            version: Version::Http2,
            names_deadline,
            names_request_id,
            upgrade: if protocol.is_some() { Upgrade::Connect } else { Upgrade::None },
            given_id: None,
            fields: Fields { bytes, spans: &self.spans },
        }
    }

    /// The trailers that were decoded; `None` if none is passed on.
    pub(super) fn trailers(&self) -> Option<OwnedFields> {
        let fields = Fields { bytes: &self.bytes, spans: &self.spans };
        (!fields.is_empty()).then(|| OwnedFields::copy(fields))
    }
}

fn part(bytes: &[u8], (at, len): (u32, u32)) -> &[u8] {
    &bytes[at as usize..][..len as usize]
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    });
    digits.filter(|_| !value.is_empty())
}

/// `uri-host ":" port` with a port that exists (RFC 9110 §9.3.6).
fn is_authority_form(target: &[u8]) -> bool {
    let port = target.iter().rposition(|&b| b == b':').map(|colon| &target[colon + 1..]);
    let port = port.and_then(|digits| core::str::from_utf8(digits).ok());
    is_host(target) && port.and_then(|digits| digits.parse().ok()).is_some_and(|port: u16| port > 0)
}
