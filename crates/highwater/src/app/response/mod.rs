//! The response of a handler.
//!
//! A [`Response`] is small and made without allocating for the usual case: a status, a content type that is
//! part of the program, and content that is borrowed from it or sits in a pooled buffer. Further header
//! fields go into a list. No response can break the framing of a connection: names and values are checked
//! types, fields that the server writes are dropped, and fields that could contradict the framing are
//! verified before they are sent ([`Response::verify`]).

mod verify;

use std::fmt;
use std::future::Future;

use highwater_core::http::FieldWriter;
use http::{HeaderName, HeaderValue, StatusCode, header};

pub(crate) use self::verify::Asked;
use super::body::{Accounts, Body, OnUpgrade, Repr, Upgraded};
use super::error::{BoxError, Error};

/// A response: status, header fields, content.
///
/// The server writes the fields that frame a response; if a handler sets them, they must be correct:
///
/// | a handler sets | what happens |
/// |---|---|
/// | `Connection`, `Keep-Alive`, `Proxy-Connection`, `Date` | ignored |
/// | `Content-Length` | must be the length of the content; a stream of unknown length gets it |
/// | `Transfer-Encoding` | refused; content is sent in chunks where its length is unknown |
/// | `Upgrade` | sent with `Connection: upgrade`, as 426 needs it |
/// | a status below 200 | refused; 101 is for [`Response::upgrade`] alone |
/// | content with the status 204, 205 or 304 | refused |
///
/// A refused response is never sent: the client gets 500, and a log line says what to write instead. For
/// `fixed(…)` this is found when the application is built.
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
    /// Whether `error` is rendered.
    rendered: bool,
    /// Whether its framing must be verified.
    framed: bool,
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
            framed: false,
            content_type: None,
            headers: Vec::new(),
            body: Body::empty(),
            error: None,
        }
    }

    /// Hands the connection over to another protocol after the status 101 was sent (RFC 9110 §7.8).
    /// `on_upgrade` runs on the connection's worker, and is dropped when the connection is gone: what has to be done after
    /// that is spawned. How a connection ends, one side at a time: [`Upgraded`].
    ///
    /// A peer that did not ask for `protocol` is answered 426, which names it; one whose request has
    /// content that the handler did not read, 400.
    pub fn upgrade<F, Fut>(protocol: HeaderValue, on_upgrade: F) -> Self
    where
        F: FnOnce(Upgraded) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Response::upgrade_counted(protocol, |upgraded, _| on_upgrade(upgraded))
    }

    /// The same for WebSockets, which their worker counts.
    pub(crate) fn upgrade_counted<F, Fut>(protocol: HeaderValue, on_upgrade: F) -> Self
    where
        F: FnOnce(Upgraded, Accounts) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.headers.push((header::UPGRADE, protocol));
        response.set_body(Body::from_upgrade(OnUpgrade::new(on_upgrade)));
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

    /// The response with another content type, which is a constant.
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

    /// The response with a header field, which replaces fields of that name.
    ///
    /// If `name` is not a field name, or `value` not a field value, the response becomes an error 500.
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
            (Err(error), _) => Response::of_error(Error::internal(error)),
            (_, Err(error)) => Response::of_error(Error::internal(error)),
        }
    }

    /// The response with other content.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.set_body(body);
        self
    }

    /// Sets a header field, which replaces fields of that name.
    pub fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove_header(&name);
        self.append_header(name, value);
    }

    /// Adds a header field, beside others of that name. `Content-Type` is replaced, because there can be only one.
    pub fn append_header(&mut self, name: HeaderName, value: HeaderValue) {
        if is_servers_own(&name) {
            return;
        }
        self.framed |= is_framing(&name);
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

    /// Whether there is a header field of that name.
    #[inline]
    pub(crate) fn has_header(&self, name: &HeaderName) -> bool {
        self.headers.iter().any(|(existing, _)| existing == name)
            || *name == header::CONTENT_TYPE && self.content_type.is_some()
    }

    /// The value of the first header field called `name`, whose case does not matter.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .find(|(existing, _)| existing.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The header fields, with names in lower case, without the fields that the server writes.
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
        self.framed |= self.body.is_upgrade();
    }

    /// The error that this response carries, for logging: [`Error::source`] is the cause, which the peer does
    /// not see.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    pub(crate) fn set_static_content_type(&mut self, content_type: &'static str) {
        self.headers.retain(|(name, _)| *name != header::CONTENT_TYPE);
        self.content_type = Some(content_type);
    }

    /// A response with content whose media type is static.
    #[inline]
    pub(crate) fn of(content_type: &'static str, body: Body) -> Self {
        // All fields, because what is not taken of another response would be dropped.
        Response {
            status: StatusCode::OK,
            rendered: false,
            framed: body.is_upgrade(),
            content_type: Some(content_type),
            headers: Vec::new(),
            body,
            error: None,
        }
    }

    /// A response that still has to be given its shape.
    pub(crate) fn of_error(error: Error) -> Self {
        let status = error.status();
        Response { error: Some(error), ..Response::new(status) }
    }

    /// Takes the error out, once it is rendered.
    #[cfg(feature = "tower")]
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Marks this as the rendered response of `error`.
    pub(crate) fn set_rendered_error(&mut self, error: Error) {
        self.error = Some(error);
        self.rendered = true;
    }

    /// Whether this carries an error, rendered or not.
    pub(crate) fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// Whether it carries an error, or a status that says the server failed.
    #[inline]
    pub(crate) fn is_failure(&self) -> bool {
        self.error.is_some() || self.status.as_u16() >= 500
    }

    /// Renders the error of this response, if it has one that is not rendered.
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
            // The renderer itself failed; its error has the default shape.
            response = error.render();
        }
        // Most renderers set only the content, and intend the error's status.
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

    /// Whether dropping it does nothing.
    #[inline]
    pub(crate) fn owns_nothing(&self) -> bool {
        // Each field is named, so that a new one is thought of here.
        let Response { status: _, rendered: _, framed: _, content_type: _, headers, body, error } =
            self;
        headers.capacity() == 0
            && error.is_none()
            && matches!(body.repr(), Repr::Empty | Repr::Static(_))
    }

    /// Whether it must be verified before it is sent, with [`Response::verify`]. Most need not.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.framed || self.status != StatusCode::OK
    }

    /// Writes the header fields but for those the connection writes itself.
    #[inline]
    pub(crate) fn write_fields(&self, fields: &mut impl FieldWriter) {
        if let Some(content_type) = self.content_type {
            fields.push("content-type", content_type.as_bytes());
        }
        for (name, value) in &self.headers {
            fields.push(name.as_str(), value.as_bytes());
        }
    }
}

/// Whether the connection writes a field, because only it knows the value.
fn is_servers_own(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::DATE
        || *name == "keep-alive"
        || *name == "proxy-connection"
}

/// Whether a field must agree with how the connection frames the response.
fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
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
