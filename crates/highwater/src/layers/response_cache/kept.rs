//! The kept parts of an answer, their key, and the requests that may get them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::app::{Request, Response};
use crate::layers::{cache_control, etag};

/// The largest content that is kept, in bytes.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 20;

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) lifetime: Duration,
    /// How much older while somebody renews it.
    pub(super) stale: Duration,
}

impl Times {
    /// How old it may be at all.
    pub(super) fn whole(self) -> Duration {
        self.lifetime.saturating_add(self.stale)
    }

    /// What both allow.
    pub(super) fn min(self, other: Times) -> Times {
        Times { lifetime: self.lifetime.min(other.lifetime), stale: self.stale.min(other.stale) }
    }
}

/// A kept answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// At most those of the layer.
    pub(super) times: Times,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Bytes,
}

impl Kept {
    /// What is kept of `response`, if it may be given to others: at most for `times`.
    pub(super) fn of(response: &Response, times: Times) -> Option<Kept> {
        let content = for_everybody(response)?;
        let times = times.min(own_times(response));
        if times.lifetime.is_zero() {
            return None;
        }
        let fields = fields(response).collect();
        Some(Kept { times, fields, content: Bytes::copy_from_slice(content) })
    }

    /// What its fields and its content take.
    pub(super) fn bytes(&self) -> usize {
        let field = |(name, value): &(HeaderName, HeaderValue)| name.as_str().len() + value.len();
        self.content.len() + self.fields.iter().map(field).sum::<usize>()
    }

    /// Whether `not_modified`, a 304, says that this answer is still the right one; if so, its fields and times become those of the
    /// 304 (RFC 9111 §4.3.4).
    pub(super) fn renew(&mut self, not_modified: &Response, times: Times) -> bool {
        let tag = self.fields.iter().find(|(name, _)| *name == header::ETAG);
        let is_same =
            tag.is_some_and(|(_, tag)| not_modified.header("etag") == Some(tag.as_bytes()));
        let times = times.min(own_times(not_modified));
        if !is_same || !is_for_everybody(not_modified) || times.lifetime.is_zero() {
            return false;
        }
        // What describes the content stays: a 304 has none.
        let new = fields(not_modified).filter(|(name, _)| !name.as_str().starts_with("content-"));
        let new: Vec<_> = new.collect();
        self.fields.retain(|(name, _)| new.iter().all(|(other, _)| other != name));
        self.fields.extend(new);
        self.times = times;
        true
    }

    /// The answer to `request`: 304 if its client has it already.
    pub(super) fn answer(&self, request: &Request<'_>, age: Duration) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.content.clone());
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        let before = self.fields.iter().find(|(name, _)| *name == header::AGE);
        let age = age.saturating_add(age_of(before.map(|(_, value)| value.as_bytes())));
        response.set_header(header::AGE, HeaderValue::from(age.as_secs()));
        etag::answer_conditions(request, &mut response);
        response
    }
}

/// Fields of requests whose answer is for their client, or is a part, or is about the state at this moment: `If-Match` and
/// `If-Unmodified-Since` are not for caches (RFC 9111 §4.3.2).
const OWN: &[&str] = &["authorization", "cookie", "range", "if-match", "if-unmodified-since"];

/// What a request asks for, if the answer may be the same for everybody.
pub(super) fn key(request: &Request<'_>) -> Option<String> {
    let fields = request.headers();
    let is_own = OWN.iter().any(|name| fields.get(name).is_some());
    let is_secret = cache_control::has(fields.get_all("cache-control"), &["no-store"]);
    let is_read = matches!(request.method(), Method::GET | Method::HEAD);
    // Content is a part of the request; streamed content has not arrived yet.
    let is_bare = request.body().is_some_and(<[u8]>::is_empty);
    let key = || key_of_target(request, request.has_certificates());
    (is_read && is_bare && !is_own && !is_secret).then(key)
}

/// Whether the client wants an answer that is made for it; that may be kept for others (RFC 9111 §5.2.1.4).
pub(super) fn wants_fresh(request: &Request<'_>) -> bool {
    cache_control::has(request.headers().get_all("cache-control"), &["no-cache"])
}

/// The keys of the answers that a request makes outdated if it succeeds, since its method may change things (RFC 9111 §4.4).
pub(super) fn changed_keys(request: &Request<'_>) -> Option<[String; 2]> {
    let is_change = !request.method().is_safe();
    is_change.then(|| [false, true].map(|certified| key_of_target(request, certified)))
}

/// Whether the answer to such a request says that things have changed.
pub(super) fn has_changed(response: &Response) -> bool {
    response.status().is_success() || response.status().is_redirection()
}

/// `certified`: the client has shown a certificate. What a service answers without one may be right for such clients only.
fn key_of_target(request: &Request<'_>, certified: bool) -> String {
    let (host, target) = (request.header("host").unwrap_or_default(), request.target());
    let whose = if certified { "\ncertificate" } else { "" };
    match request.original_target() {
        sent if sent == target => format!("{host}\n{target}{whose}"),
        // What was sent may be a part of the answer, in its links.
        sent => format!("{host}\n{target}\n{sent}{whose}"),
    }
}

/// How long an answer says that it is fresh (RFC 9111 §4.2.1), and whether it may be older (section 4.2.4).
fn own_times(response: &Response) -> Times {
    let control = || {
        let fields = response.headers().filter(|(name, _)| *name == "cache-control");
        fields.map(|(_, value)| value)
    };
    let of = |directive| cache_control::seconds(control(), directive).map(Duration::from_secs);
    let expires = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let date = http_date::parse(response.header("expires")?, UnixSeconds(now));
        // What is not a date is in the past (section 5.3).
        Some(Duration::from_secs(date.map_or(0, |date| date.0.saturating_sub(now))))
    };
    let age = age_of(response.header("age"));
    let lifetime = of("s-maxage").or_else(|| of("max-age"));
    let lifetime = lifetime.map(|lifetime| lifetime.saturating_sub(age)).or_else(expires);
    let strict = &["must-revalidate", "proxy-revalidate", "s-maxage"];
    let stale = if cache_control::has(control(), strict) { Duration::ZERO } else { Duration::MAX };
    Times { lifetime: lifetime.unwrap_or(Duration::MAX), stale }
}

/// How old an answer was when its handler got it, from another cache (RFC 9111 §5.1).
fn age_of(field: Option<&[u8]>) -> Duration {
    let text = field.and_then(|value| std::str::from_utf8(value).ok());
    Duration::from_secs(text.and_then(|text| text.trim().parse().ok()).unwrap_or_default())
}

/// The content of an answer that may be given to others.
fn for_everybody(response: &Response) -> Option<&[u8]> {
    let content =
        response.body().as_bytes().filter(|content| content.len() <= CONTENT_BYTES_MAX)?;
    (response.status() == StatusCode::OK && is_for_everybody(response)).then_some(content)
}

/// Whether its fields allow that an answer is given to others.
fn is_for_everybody(response: &Response) -> bool {
    let control = response.headers().filter(|(name, _)| name.eq_ignore_ascii_case("cache-control"));
    let control = control.map(|(_, value)| value);
    response.header("set-cookie").is_none()
        && response.header("vary").is_none()
        && !cache_control::has(control, &["private", "no-store", "no-cache"])
}

/// Fields that layers within the cache have set for the client of one request.
const OF_ONE_REQUEST: &[&str] = &["ratelimit", "x-request-id"];

fn fields(response: &Response) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let kept = response.headers().filter(|(name, _)| !OF_ONE_REQUEST.contains(name));
    kept.filter_map(|(name, value)| {
        HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
    })
}
