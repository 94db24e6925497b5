//! What is kept of an answer, for whom, and under which key.

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
        let field = |(name, value): (&str, &[u8])| {
            HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
        };
        let fields = response.headers().filter_map(field).collect();
        Some(Kept { times, fields, content: Bytes::copy_from_slice(content) })
    }

    /// The answer to `request`: 304 if its client has it already.
    pub(super) fn answer(&self, request: &Request<'_>, age: Duration) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.content.clone());
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
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
    let is_fresh = cache_control::has(fields.get_all("cache-control"), &["no-cache", "no-store"]);
    if is_own || is_fresh || !matches!(request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let (host, target) = (request.header("host").unwrap_or_default(), request.target());
    Some(match request.original_target() {
        sent if sent == target => format!("{host}\n{target}"),
        // What was sent may be a part of the answer, in its links.
        sent => format!("{host}\n{target}\n{sent}"),
    })
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
    let lifetime = of("s-maxage").or_else(|| of("max-age")).or_else(expires);
    let strict = &["must-revalidate", "proxy-revalidate", "s-maxage"];
    let stale = if cache_control::has(control(), strict) { Duration::ZERO } else { Duration::MAX };
    Times { lifetime: lifetime.unwrap_or(Duration::MAX), stale }
}

/// The content of an answer that may be given to others.
fn for_everybody(response: &Response) -> Option<&[u8]> {
    let content =
        response.body().as_bytes().filter(|content| content.len() <= CONTENT_BYTES_MAX)?;
    let control = response.headers().filter(|(name, _)| name.eq_ignore_ascii_case("cache-control"));
    let is_own = response.header("set-cookie").is_some()
        || response.header("vary").is_some()
        || cache_control::has(
            control.map(|(_, value)| value),
            &["private", "no-store", "no-cache"],
        );
    (response.status() == StatusCode::OK && !is_own).then_some(content)
}
