//! What a handler answers with.
//!
//! A [`Response`] is small and made without allocating for the usual case: a status, a content type
//! that is part of the program, and content that is borrowed from it or sits in a pooled buffer.
//! Further header fields go into a list. Nothing that could break the framing of a connection can get
//! in: names and values are checked types, and the fields that belong to the server are dropped.

use std::fmt;
use std::future::Future;

use highwater_core::http1::Fields;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::body::{Body, Upgraded};
use super::error::{BoxError, Error};
pub use super::into_response::{Html, IntoResponse, Redirect};

/// A response: status, header fields, content.
///
/// `Content-Length`, `Transfer-Encoding`, `Connection` and `Date` are the server's to write; set
/// here, they are ignored.
///
/// ```
/// use highwater::{Response, StatusCode};
///
/// fn teapot() -> Response {
///     Response::from("short and stout")
///         .with_status(StatusCode::IM_A_TEAPOT)
///         .with_header("x-handle", "yes")
/// }
/// ```
pub struct Response {
    status: StatusCode,
    /// Whether `error` has been given its shape.
    rendered: bool,
    /// The content type, unless `headers` has one.
    content_type: Option<&'static str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
    error: Option<Error>,
}

impl Response {
    /// A response without content.
    pub const fn new(status: StatusCode) -> Self {
        Response {
            status,
            rendered: false,
            content_type: None,
            headers: Vec::new(),
            body: Body::empty(),
            error: None,
        }
    }

    /// Hands the connection over to another protocol once the peer has been told so (status 101,
    /// RFC 9110 §7.8). `on_upgrade` runs on the connection's worker.
    ///
    /// It is for the handler to check that the peer asked for `protocol`.
    pub fn upgrade<F, Fut>(protocol: HeaderValue, on_upgrade: F) -> Self
    where
        F: FnOnce(Upgraded) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.headers.push((header::UPGRADE, protocol));
        response.body =
            Body::from_upgrade(Box::new(move |upgraded| Box::pin(on_upgrade(upgraded))));
        response
    }

    /// The status.
    #[inline]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Changes the status.
    #[inline]
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// The response with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The response with another content type, which is part of the program.
    ///
    /// # Panics
    /// If `content_type` has a byte that no header field may have.
    #[must_use]
    pub fn with_content_type(mut self, content_type: &'static str) -> Self {
        assert!(
            content_type.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')),
            "the content type {content_type:?} is not a header value"
        );
        self.set_static_content_type(content_type);
        self
    }

    /// The response with a header field in place of those of that name.
    ///
    /// If `name` is no field name, or `value` no field value, the response becomes an error 500.
    #[must_use]
    pub fn with_header<K, V>(mut self, name: K, value: V) -> Self
    where
        K: TryInto<HeaderName, Error: Into<BoxError>>,
        V: TryInto<HeaderValue, Error: Into<BoxError>>,
    {
        match (name.try_into(), value.try_into()) {
            (Ok(name), Ok(value)) => {
                self.set_header(name, value);
                self
            }
            (Err(error), _) => Error::internal(error).into_response(),
            (_, Err(error)) => Error::internal(error).into_response(),
        }
    }

    /// The response with other content.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Puts a header field in place of those of that name.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_header(&name);
        self.append_header(name, value);
    }

    /// Adds a header field, beside others of that name. `Content-Type` is replaced, for there can be
    /// only one.
    pub fn append_header(&mut self, name: HeaderName, value: HeaderValue) {
        if is_servers_own(&name) {
            return;
        }
        if name == header::CONTENT_TYPE {
            self.remove_header(&name);
        }
        self.headers.push((name, value));
    }

    /// Removes the header fields of that name.
    pub fn remove_header(&mut self, name: &HeaderName) {
        if *name == header::CONTENT_TYPE {
            self.content_type = None;
        }
        self.headers.retain(|(existing, _)| existing != name);
    }

    /// The value of the first header field called `name`, whose case does not matter.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .find(|(existing, _)| existing.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The header fields, names in lower case. Those that the server writes are not among them.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let content_type =
            self.content_type.map(|value| (header::CONTENT_TYPE.as_str(), value.as_bytes()));
        let others = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        content_type.into_iter().chain(others)
    }

    /// The content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Takes the content out and leaves none.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Changes the content. The content type stays as it is.
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.body = body.into();
    }

    /// The error this response tells of, for whoever logs it: [`Error::source`] has what the peer was
    /// not told.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    pub(crate) fn set_static_content_type(&mut self, content_type: &'static str) {
        self.headers.retain(|(name, _)| *name != header::CONTENT_TYPE);
        self.content_type = Some(content_type);
    }

    /// A response of content whose type is part of the program.
    #[inline]
    pub(crate) fn of(content_type: &'static str, body: Body) -> Self {
        Response { content_type: Some(content_type), body, ..Response::new(StatusCode::OK) }
    }

    /// A response that still has to be given its shape.
    pub(crate) fn of_error(error: Error) -> Self {
        let status = error.status();
        Response { error: Some(error), ..Response::new(status) }
    }

    /// Takes out the error this tells of, once it has its shape.
    #[cfg(feature = "tower")]
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Says that this tells of `error`, and has its shape already.
    #[cfg(feature = "tower")]
    pub(crate) fn set_rendered_error(&mut self, error: Error) {
        self.error = Some(error);
        self.rendered = true;
    }

    /// Whether this tells of an error, rendered or not.
    pub(crate) fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// Gives the error in here its shape, if there is one without.
    #[inline]
    pub(crate) fn render(self, renderer: impl FnOnce(&Error) -> Response) -> Response {
        if self.error.is_none() || self.rendered {
            return self;
        }
        self.render_error(renderer)
    }

    #[cold]
    fn render_error(mut self, renderer: impl FnOnce(&Error) -> Response) -> Response {
        let error = self.error.take().expect("render() has looked");
        let mut response = renderer(&error);
        if response.error.is_some() {
            // The renderer has itself failed; its error has no other place to go.
            response = error.render();
        }
        // Most renderers only think of the content, and mean the error's status.
        if response.status == StatusCode::OK {
            response.status = self.status;
        }
        for (name, value) in error.headers() {
            if !response.headers.iter().any(|(existing, _)| existing == name) {
                response.append_header(name.clone(), value.clone());
            }
        }
        for (name, value) in self.headers {
            response.append_header(name, value);
        }
        response.error = Some(error);
        response.rendered = true;
        response
    }

    /// Writes the header fields but for those the connection writes itself.
    #[inline]
    pub(crate) fn write_fields(&self, fields: &mut Fields<'_>) {
        if let Some(content_type) = self.content_type {
            fields.push("content-type", content_type.as_bytes());
        }
        for (name, value) in &self.headers {
            fields.push(name.as_str(), value.as_bytes());
        }
    }
}

/// Whether a field is written by the connection, which alone knows what belongs there.
fn is_servers_own(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONNECTION
        || *name == header::DATE
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = self.headers().map(|(name, value)| (name, value.escape_ascii().to_string()));
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &headers.collect::<Vec<_>>())
            .field("body", &self.body)
            .field("error", &self.error)
            .finish()
    }
}

/// 200 with the content; the type is the one its Rust type suggests, none for a [`Body`].
impl<T: Into<Body> + IntoResponse> From<T> for Response {
    fn from(content: T) -> Self {
        content.into_response()
    }
}
