//! Entity tags for the answers of handlers, and 304 for clients that already have the content.

use std::time::{SystemTime, UNIX_EPOCH};

use highwater_core::http_date;
use highwater_core::time::UnixSeconds;
use http::{HeaderValue, Method, StatusCode, header};

use crate::app::{Error, IntoResponse, Layer, Request, Response};
use crate::content::entity_tag;
use crate::content::precondition::{Validators, Verdict, judge};

/// The size in bytes above which content is not hashed, so that no other request of the worker waits for more than about a
/// millisecond.
pub const TAGGED_BYTES_MAX: usize = 1 << 20;

/// Gives content an `ETag`, and answers 304 to clients that already have that content (RFC 9110 §13).
///
/// It looks at `GET` and `HEAD` requests whose answer is 200. Content that is whole gets a strong tag, made from its bytes,
/// unless the handler has set one. Then `If-None-Match`, `If-Modified-Since` (with the handler's `Last-Modified`),
/// `If-Match` and `If-Unmodified-Since` are judged in the order of section 13.2.2. A 304 keeps the fields of the 200 except
/// those that describe content. Streamed content, and content of more than 1 MiB ([`TAGGED_BYTES_MAX`]), has no tag unless the
/// handler sets one, such as a version.
///
/// The handler runs in any case; only the transfer to the client is saved. To refuse a `PUT` that is not about the current
/// state, a handler takes [`Preconditions`](crate::Preconditions).
///
/// Add it after `compression`, so that compression is outside of it.
///
/// ```
/// use highwater::layers::etag;
/// use highwater::testing::Client;
/// use highwater::Router;
///
/// let client = Client::new(Router::new().layer(etag()).get("/", || "Hello"));
/// let tag = client.get("/").header("etag").unwrap().to_owned();
/// client.set_header("if-none-match", &tag);
/// assert_eq!(client.get("/").status, 304);
/// ```
pub fn etag() -> Layer {
    Layer::new().on_response(|request: &Request<'_>, response: &mut Response| {
        let is_read = matches!(request.method(), Method::GET | Method::HEAD);
        if is_read && response.status() == StatusCode::OK {
            validate(request, response);
        }
    })
}

fn validate(request: &Request<'_>, response: &mut Response) {
    if response.header("etag").is_none()
        && let Some(content) = response.body().as_bytes()
        && content.len() <= TAGGED_BYTES_MAX
    {
        let tag = entity_tag::of_content(content);
        response.set_header(header::ETAG, HeaderValue::try_from(tag).expect("it is ASCII"));
    }
    answer_conditions(request, response);
}

/// Judges the conditions of a request that reads, by the validators of its answer 200.
pub(super) fn answer_conditions(request: &Request<'_>, response: &mut Response) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = UnixSeconds(now.as_secs());
    let modified = response.header("last-modified");
    let modified = modified.and_then(|date| http_date::parse(date, now));
    let validators = Validators { tag: response.header("etag"), modified };
    match judge(request.headers(), true, validators, now) {
        Verdict::Proceed => {}
        Verdict::NotModified => response.make_not_modified(),
        Verdict::Failed => *response = Error::precondition_failed().into_response(),
    }
}
