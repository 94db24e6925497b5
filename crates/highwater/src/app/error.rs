//! What went wrong with a request, as a value: who is at fault (the status), what it is called (the
//! code), what the peer is told (the message), and what only the operator sees (the source).
//!
//! An error is not a response yet. It becomes one in a single place, the renderer given to
//! [`Router::errors`](super::Router::errors), so that a service's errors all have one shape: those
//! of its handlers, of extractors, of routing, of panics, and those of the protocol engine.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use highwater_core::http1::Reject;
use http::{HeaderName, HeaderValue, StatusCode};

use super::body::BodyError;
use super::response::{IntoResponse, Response};
use crate::log;

/// Any error that can cross threads.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A request that cannot be answered as asked.
///
/// Anything that implements [`std::error::Error`] turns into one with `?`: status 500, and a message
/// that says nothing about the cause, which stays with the error as [`Error::source`] for the
/// operator. What the peer is meant to read is said explicitly:
///
/// ```
/// use highwater::{Error, Path};
///
/// fn motto(Path(language): Path<String>) -> Result<&'static str, Error> {
///     match language.as_str() {
///         "la" => Ok("fluctuat nec mergitur"),
///         _ => Err(Error::not_found("there is no motto in that language")),
///     }
/// }
/// ```
///
/// Like `anyhow::Error`, it does not implement [`std::error::Error`] itself; that is what lets `?`
/// convert every other error.
pub struct Error(Box<Inner>);

struct Inner {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    source: Option<BoxError>,
}

impl Error {
    /// An error with a status, a short name that programs can compare, and a message for people. The
    /// message is sent to the peer.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let message = message.into();
        Error(Box::new(Inner { status, code, message, headers: Vec::new(), source: None }))
    }

    /// 400 `bad_request`: the request makes no sense as it is.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 401 `unauthorized`: it is not known who asks. Should carry `WWW-Authenticate`
    /// (RFC 9110 §15.5.2); see [`Error::with_header`].
    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403 `forbidden`: it is known who asks, and they may not.
    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404 `not_found`.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 409 `conflict`: the request contradicts the state of the resource.
    pub fn conflict(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// 422 `unprocessable`: well-formed, but its content cannot be accepted.
    pub fn unprocessable(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message)
    }

    /// 503 `overloaded`: not now. Should carry `Retry-After`.
    pub fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
    }

    /// 503 `timeout`: the handler did not answer within the time that its route or its client allows.
    /// (504 would blame a server behind us, RFC 9110 §15.6.5; there need not be one.)
    pub(crate) fn timed_out() -> Self {
        let message = "the answer took longer than this route, or its client, allows";
        Error::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
    }

    /// 500 `internal`: our fault. The peer learns no more than that; `source` is for the operator.
    pub fn internal(source: impl Into<BoxError>) -> Self {
        Error::of_status(StatusCode::INTERNAL_SERVER_ERROR).with_source(source)
    }

    /// The same error under another code.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.0.code = code;
        self
    }

    /// The error with a header field that its response will have whatever the renderer does.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The error with its cause, which is never sent to the peer.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The status of its response.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Its short name.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// What the peer is told.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The header fields its response will have.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0.headers
    }

    /// What caused it; for the operator's eyes.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// An error that says what its status says.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            400 => "bad_request",
            401 => "unauthorized",
            403 => "forbidden",
            404 => "not_found",
            405 => "method_not_allowed",
            406 => "not_acceptable",
            408 => "request_timeout",
            409 => "conflict",
            410 => "gone",
            412 => "precondition_failed",
            413 => "body_too_large",
            415 => "unsupported_media_type",
            422 => "unprocessable",
            428 => "precondition_required",
            429 => "too_many_requests",
            500 => "internal",
            501 => "not_implemented",
            502 => "bad_gateway",
            503 => "overloaded",
            504 => "gateway_timeout",
            _ if status.is_client_error() => "request_error",
            _ => "server_error",
        };
        Error::new(status, code, status.canonical_reason().unwrap_or("unknown error"))
    }

    /// A refusal by the protocol engine.
    pub(crate) fn of_reject(reject: Reject) -> Self {
        let status = StatusCode::from_u16(reject.status()).expect("refusals have valid statuses");
        Error::new(status, reject.code(), reject.reason())
    }

    /// The shape errors have unless the application gives them another:
    /// `{"error":{"code":…,"message":…}}`.
    pub(crate) fn render(&self) -> Response {
        let mut body = String::with_capacity(40 + self.0.code.len() + self.0.message.len());
        body.push_str("{\"error\":{\"code\":\"");
        escape_json(self.0.code, &mut body);
        body.push_str("\",\"message\":\"");
        escape_json(&self.0.message, &mut body);
        body.push_str("\"}}");
        let mut response = body.into_response().with_content_type("application/json");
        response.set_status(self.0.status);
        response
    }
}

/// Appends `text` as the inside of a JSON string (RFC 8259 §7).
fn escape_json(text: &str, out: &mut String) {
    use std::fmt::Write;
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\0'..='\x1f' => {
                write!(out, "\\u{:04x}", character as u32).expect("a String takes everything");
            }
            _ => out.push(character),
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    /// Status 500, with `error` as the source; but a failure of the request's own body is the peer's
    /// doing and keeps its status.
    fn from(error: E) -> Self {
        match (&error as &dyn Any).downcast_ref::<BodyError>() {
            Some(failure) => failure.to_error(),
            None => Error::internal(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.status.as_u16(), self.0.code, self.0.message)?;
        let mut source = self.0.source.as_deref().map(|source| source as &dyn StdError);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("status", &self.0.status)
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("headers", &self.0.headers)
            .field("source", &self.0.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: whatever a message holds, the default rendering is valid JSON that says it
    /// (RFC 8259 §7).
    #[test]
    fn default_rendering_is_json() {
        let error = Error::bad_request("a \"quoted\" \\ back\nslash \u{1} é");
        let response = error.render();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(response.header("content-type"), Some(&b"application/json"[..]));
        assert_eq!(
            response.body().as_bytes(),
            Some(
                r#"{"error":{"code":"bad_request","message":"a \"quoted\" \\ back\nslash \u0001 é"}}"#
                    .as_bytes()
            )
        );
    }

    /// Purpose: what `?` converts tells the peer nothing and the operator everything.
    #[test]
    fn converted_errors_keep_their_secret() {
        let failed = || -> Result<u8, Error> { Ok("db://user:secret@host".parse::<u8>()?) };
        let error = failed().expect_err("it is no number");
        assert_eq!((error.status().as_u16(), error.code()), (500, "internal"));
        assert_eq!(error.message(), "Internal Server Error");
        assert!(error.source().is_some());
        assert!(error.to_string().contains("invalid digit"));
    }
}
