//! What is kept of an answer, for whom, and under which key.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::app::{Request, Response};
use crate::layers::cache_control;

/// The largest content that is kept, in bytes.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 20;

/// A kept answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Bytes,
}

impl Kept {
    /// What is kept of `response`, if it may be given to others.
    pub(super) fn of(response: &Response) -> Option<Kept> {
        let content = for_everybody(response)?;
        let field = |(name, value): (&str, &[u8])| {
            HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
        };
        let fields = response.headers().filter_map(field).collect();
        Some(Kept { fields, content: Bytes::copy_from_slice(content) })
    }

    pub(super) fn response(&self, age: Duration) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.content.clone());
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        response.set_header(header::AGE, HeaderValue::from(age.as_secs()));
        response
    }
}

/// What a request asks for, if the answer may be the same for everybody.
pub(super) fn key(request: &Request<'_>) -> Option<String> {
    let fields = request.headers();
    let is_own = ["authorization", "cookie", "range"].iter().any(|name| fields.get(name).is_some());
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
