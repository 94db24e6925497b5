//! From an `http::Response` to a response as the worker sends it, and back for layers.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response};
use http_body::Body as HttpBody;

use super::body;
use super::request::{Asked, TrailersFor};
use crate::app::{Body, BodyRepr, BoxError, Content, Error, IntoResponse, OnUpgrade, Response};

/// Content up to this size that is ready at once is sent like any other bytes, without a stream.
const WHOLE_MAX: u64 = 64 * 1024;

impl<B> IntoResponse for http::Response<B>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn into_response(self) -> Response {
        let trailers = TrailersFor::Nobody;
        let asked = Asked { is_head: false, trailers, wants_upgrade: false };
        to_native(self, asked)
    }
}

/// For native handlers. Trailers are not sent: it is not known here whether the client takes them.
impl<B> From<http::Response<B>> for Response
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn from(response: http::Response<B>) -> Self {
        response.into_response()
    }
}

/// The response as the worker sends it.
pub(super) fn to_native<B>(response: http::Response<B>, asked: Asked) -> Response
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    let kept = parts.extensions.remove::<Kept>().and_then(|kept| kept.take());
    let is_upgrade = kept.as_ref().is_some_and(|kept| kept.upgrade.is_some());
    if parts.status.is_informational() && !is_upgrade {
        let cause = format!("a service answered {} to a request without an upgrade", parts.status);
        return Error::internal(cause).into_response();
    }
    drop_chunked(&mut parts.headers);
    let length = announced(&parts.headers);
    let content = match parts.status {
        // Content that a service has set is not sent, as under hyper.
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED => {
            Body::empty()
        }
        _ => match content(body, length, &parts, asked) {
            Ok(content) => content,
            Err(error) => return error.into_response(),
        },
    };
    let mut native = Response::new(parts.status).with_body(content);
    append_fields(&mut native, parts.headers);
    if let Some(Returned { error, upgrade }) = kept {
        if let Some(error) = error {
            native.set_rendered_error(error);
        }
        if let Some(upgrade) = upgrade {
            native.set_body(Body::from_upgrade(upgrade));
        }
    }
    native
}

/// Adds fields as they are.
pub(super) fn append_fields(response: &mut Response, fields: HeaderMap) {
    let mut last: Option<HeaderName> = None;
    for (name, value) in fields {
        last = name.or(last);
        if let Some(name) = &last {
            response.append_header(name.clone(), value);
        }
    }
}

/// Drops the `chunked` that a service leaves when it forwards another server's response. Other codings
/// stay, and make the response an error: the content would have to be decoded.
fn drop_chunked(fields: &mut HeaderMap) {
    let mut codings = fields.get_all(header::TRANSFER_ENCODING).into_iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        fields.remove(header::TRANSFER_ENCODING);
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// The content, in the cheapest form that it allows.
fn content<B>(
    body: B,
    announced: Option<u64>,
    parts: &response::Parts,
    asked: Asked,
) -> Result<Body, Error>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    let is_over = body.is_end_stream();
    if is_over && !asked.is_head {
        return Ok(Body::empty());
    }
    let exact = body.size_hint().exact();
    let length = match asked.is_head {
        // For a HEAD, a router has removed the content; only a field still has its length.
        true => announced.or(exact.filter(|_| !is_over)),
        // A field that says something else is found before the response is sent.
        false => exact.or(announced),
    };
    let allowed = Allowed::of(asked, &parts.headers);
    let mut frames = Frames {
        body: Box::pin(body),
        first: None,
        is_over: false,
        trailers: HeaderMap::new(),
        allowed,
    };
    let is_small = length.is_some_and(|length| length <= WHOLE_MAX) && exact == length;
    if is_small && !asked.is_head {
        // In most cases all of it is ready. A later poll registers a waker.
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut frames).poll_next(&mut context) {
            Poll::Ready(Some(Ok(bytes))) => {
                if Some(bytes.len() as u64) == length && !frames.may_have_trailers() {
                    return Ok(Body::from(bytes));
                }
                frames.first = Some(bytes);
            }
            Poll::Ready(Some(Err(error))) => return Err(Error::internal(error)),
            Poll::Ready(None) if frames.trailers.is_empty() => return Ok(Body::empty()),
            Poll::Ready(None) => frames.is_over = true,
            Poll::Pending => {}
        }
    }
    Ok(Body::from_content(frames, length))
}

/// Which trailers are sent, but for those that must stand in front of the content (RFC 9110 §6.5.1).
enum Allowed {
    Named(Vec<HeaderName>),
    All,
}

impl Allowed {
    fn of(asked: Asked, headers: &HeaderMap) -> Self {
        match asked.trailers {
            TrailersFor::Nobody => Allowed::Named(Vec::new()),
            TrailersFor::AnnouncedOnly => Allowed::Named(announced_trailers(headers)),
            TrailersFor::Anybody => Allowed::All,
        }
    }

    fn any(&self) -> bool {
        !matches!(self, Allowed::Named(names) if names.is_empty())
    }

    fn has(&self, name: &HeaderName) -> bool {
        match self {
            Allowed::Named(names) => names.contains(name),
            Allowed::All => may_follow(name),
        }
    }
}

/// The trailer fields that a response announces (RFC 9110 §6.6.2), and that may follow content.
fn announced_trailers(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::TRAILER).into_iter();
    let texts = values.filter_map(|value: &HeaderValue| value.to_str().ok());
    let names = texts.flat_map(|text| text.split(','));
    names.filter_map(|name| name.trim().parse().ok()).filter(may_follow).collect()
}

fn may_follow(name: &HeaderName) -> bool {
    const NOT: [HeaderName; 12] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::HOST,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
    ];
    !NOT.contains(name)
}

/// A body's frames as a stream of bytes and its trailers.
struct Frames<B> {
    body: Pin<Box<B>>,
    /// What was read before the stream was asked.
    first: Option<Bytes>,
    /// Its end was read before the stream was asked.
    is_over: bool,
    trailers: HeaderMap,
    allowed: Allowed,
}

impl<B: HttpBody> Frames<B> {
    /// Whether there may be trailers to send behind what was read.
    fn may_have_trailers(&self) -> bool {
        self.allowed.any() && !self.body.is_end_stream()
    }
}

impl<B> Stream for Frames<B>
where
    B: HttpBody,
    B::Error: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        loop {
            let frame = match ready!(self.body.as_mut().poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(mut data) if data.has_remaining() => {
                    let bytes = data.copy_to_bytes(data.remaining());
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Ok(_) => {}
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.trailers = trailers;
                    }
                }
            }
        }
    }
}

impl<B> Content for Frames<B>
where
    B: HttpBody + Send,
    B::Error: Into<BoxError>,
{
    fn take_trailers(mut self: Pin<&mut Self>) -> HeaderMap {
        let mut trailers = std::mem::take(&mut self.trailers);
        let names: Vec<HeaderName> =
            trailers.keys().filter(|name| !self.allowed.has(name)).cloned().collect();
        for name in names {
            trailers.remove(name);
        }
        trailers
    }
}

/// The parts that `http::Response` cannot hold; layers return them in the response's extensions.
#[derive(Clone)]
struct Kept(Arc<Mutex<Option<Returned>>>);

struct Returned {
    error: Option<Error>,
    upgrade: Option<OnUpgrade>,
}

impl Kept {
    fn take(&self) -> Option<Returned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A native response for layers.
pub(super) fn to_http(mut native: Response) -> http::Response<body::Body> {
    let error = native.take_error();
    let (content, upgrade) = match native.take_body().into_repr() {
        BodyRepr::Upgrade(upgrade) => (body::Body::empty(), Some(upgrade)),
        content => (body::Body::of_response(content), None),
    };
    let mut response = http::Response::new(content);
    *response.status_mut() = native.status();
    for (name, value) in native.headers() {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            response.headers_mut().append(name, value);
        }
    }
    if error.is_some() || upgrade.is_some() {
        let kept = Kept(Arc::new(Mutex::new(Some(Returned { error, upgrade }))));
        response.extensions_mut().insert(kept);
    }
    response
}
