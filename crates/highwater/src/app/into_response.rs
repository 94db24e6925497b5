//! The types that a handler can return, and their responses.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body::Body;
use super::error::{BoxError, Error, IntoError};
use super::response::Response;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// The types that a handler may return.
///
/// | type | response |
/// |---|---|
/// | `&'static str`, `String`, `Cow<'static, str>` | 200, `text/plain; charset=utf-8` |
/// | `Bytes`, `Vec<u8>`, `&'static [u8]` | 200, `application/octet-stream` |
/// | [`Html`], `Json`, [`Redirect`], [`Body`], [`Response`] | the response that they describe |
/// | `NdJson`, `Csv` (feature `csv`) | 200, a line for each value, made while they are sent |
/// | `()` | 200 without content |
/// | [`StatusCode`] | that, without content; from 400 on, an [`Error`] with that status |
/// | `Option<R>` | `R`, or the [`Error`] 404 |
/// | `Result<R, E>` | `R` or `E`, which is an [`Error`], implements [`IntoError`], or is a response |
/// | [`Error`] | as [`Router::errors`](super::Router::errors) renders it |
/// | `(StatusCode, R)` | `R` with that status, unless `R` is an error |
/// | `([(name, value); N], R)`, `(HeaderMap, R)` | `R` with these header fields |
/// | `(StatusCode, [(name, value); N], R)`, `(StatusCode, HeaderMap, R)` | both |
///
/// An application's own types implement it by converting to one of these:
///
/// ```
/// use highwater::{IntoResponse, Response, StatusCode};
///
/// struct Created(String);
///
/// impl IntoResponse for Created {
///     fn into_response(self) -> Response {
///         (StatusCode::CREATED, [("location", self.0)]).into_response()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a response",
    label = "this cannot be sent to a peer",
    note = "a handler returns text (`&'static str`, `String`), bytes (`Bytes`, `Vec<u8>`), `Json(value)`, \
            `Html(text)`, a `StatusCode`, `(StatusCode, response)`, `Result<response, Error>` or a `Response`",
    note = "write `Json(value)` for a value that implements `serde::Serialize`, `Result<_, Error>` for \
            what can fail; implement `IntoError` for an error type of your own, or `IntoResponse` for any \
            other type"
)]
pub trait IntoResponse {
    /// Converts it into a response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for Body {
    #[inline]
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK).with_body(self)
    }
}

impl IntoResponse for &'static str {
    #[inline]
    fn into_response(self) -> Response {
        Response::of(TEXT, Body::from(self))
    }
}

impl IntoResponse for String {
    #[inline]
    fn into_response(self) -> Response {
        Response::of(TEXT, Body::from(self))
    }
}

impl IntoResponse for Cow<'static, str> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Cow::Borrowed(text) => text.into_response(),
            Cow::Owned(text) => text.into_response(),
        }
    }
}

impl IntoResponse for &'static [u8] {
    #[inline]
    fn into_response(self) -> Response {
        Response::of(BINARY, Body::from(self))
    }
}

impl IntoResponse for Vec<u8> {
    #[inline]
    fn into_response(self) -> Response {
        Response::of(BINARY, Body::from(self))
    }
}

impl IntoResponse for Bytes {
    #[inline]
    fn into_response(self) -> Response {
        Response::of(BINARY, Body::from(self))
    }
}

/// Text in HTML. Nothing is escaped here.
#[derive(Clone, Copy, Debug)]
pub struct Html<T>(pub T);

impl<T: Into<Body>> IntoResponse for Html<T> {
    fn into_response(self) -> Response {
        Response::of(HTML, self.0.into())
    }
}

impl IntoResponse for () {
    #[inline]
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK)
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        if self.as_u16() >= 400 {
            return Error::of_status(self).into_response();
        }
        Response::new(self)
    }
}

/// 200 with the content; the type is the one its Rust type suggests, none for a [`Body`].
impl<T: Into<Body> + IntoResponse> From<T> for Response {
    fn from(content: T) -> Self {
        content.into_response()
    }
}

impl IntoResponse for Error {
    #[cold]
    fn into_response(self) -> Response {
        Response::of_error(self)
    }
}

/// An application's own error: it has a message for the peer, and [`Router::errors`](super::Router::errors) shapes it
/// like all others.
// Keeps the compiler from suggesting it where a response is missing.
#[diagnostic::do_not_recommend]
impl<E: IntoError> IntoResponse for E {
    #[cold]
    fn into_response(self) -> Response {
        Response::of_error(self.into_error())
    }
}

impl<R: IntoResponse> IntoResponse for Option<R> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Some(response) => response.into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

impl<R: IntoResponse, E: IntoResponse> IntoResponse for Result<R, E> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Ok(response) => response.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

impl<R: IntoResponse> IntoResponse for (StatusCode, R) {
    #[inline]
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        // An error's status is more precise than the one meant for success.
        if !response.is_error() {
            response.set_status(self.0);
        }
        response
    }
}

impl<K, V, const N: usize, R> IntoResponse for ([(K, V); N], R)
where
    K: TryInto<HeaderName, Error: Into<BoxError>>,
    V: TryInto<HeaderValue, Error: Into<BoxError>>,
    R: IntoResponse,
{
    fn into_response(self) -> Response {
        let (headers, response) = self;
        headers.into_iter().fold(response.into_response(), |response, (name, value)| {
            response.with_header(name, value)
        })
    }
}

impl<K, V, const N: usize> IntoResponse for (StatusCode, [(K, V); N])
where
    ([(K, V); N], ()): IntoResponse,
{
    fn into_response(self) -> Response {
        (self.0, (self.1, ())).into_response()
    }
}

impl<K, V, const N: usize, R> IntoResponse for (StatusCode, [(K, V); N], R)
where
    ([(K, V); N], R): IntoResponse,
{
    fn into_response(self) -> Response {
        (self.0, (self.1, self.2)).into_response()
    }
}

impl<R: IntoResponse> IntoResponse for (HeaderMap, R) {
    fn into_response(self) -> Response {
        let (headers, response) = self;
        let mut response = response.into_response();
        for name in headers.keys() {
            response.remove_header(name);
        }
        let mut current = None;
        for (name, value) in headers {
            // A map's iterator names only the first of several values.
            current = name.or(current);
            let name = current.clone().expect("the first field has a name");
            response.append_header(name, value);
        }
        response
    }
}

impl<R: IntoResponse> IntoResponse for (StatusCode, HeaderMap, R) {
    fn into_response(self) -> Response {
        (self.0, (self.1, self.2)).into_response()
    }
}

/// Redirects the peer.
#[derive(Clone, Debug)]
pub struct Redirect {
    status: StatusCode,
    location: String,
}

impl Redirect {
    /// 303: fetch the location with `GET`. The usual answer to a form's `POST`.
    pub fn to(location: impl Into<String>) -> Self {
        Redirect { status: StatusCode::SEE_OTHER, location: location.into() }
    }

    /// 307: repeat the same request there, this time only.
    pub fn temporary(location: impl Into<String>) -> Self {
        Redirect { status: StatusCode::TEMPORARY_REDIRECT, location: location.into() }
    }

    /// 308: repeat the same request there, now and in future.
    pub fn permanent(location: impl Into<String>) -> Self {
        Redirect { status: StatusCode::PERMANENT_REDIRECT, location: location.into() }
    }
}

impl IntoResponse for Redirect {
    /// A location that is not a header value is an error 500.
    fn into_response(self) -> Response {
        Response::new(self.status).with_header(header::LOCATION, self.location)
    }
}
