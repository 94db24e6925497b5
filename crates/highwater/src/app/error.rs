//! The error of a request, as a value: who is at fault (the status), a name for programs (the code), a
//! message for the peer, and a source that only the operator sees.
//!
//! An error is not a response yet. It becomes one in a single place, the renderer given to
//! [`Router::errors`](super::Router::errors), so that a service's errors all have one shape: those
//! of its handlers, of extractors, of routing, of panics, and those of the protocol engine.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use highwater_core::http::{Reject, reason};
use http::{HeaderName, HeaderValue, StatusCode};

use super::body::BodyError;
pub use super::body::BoxError;

/// Why a request cannot be answered as asked.
///
/// The message for the peer is written explicitly:
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
/// `?` converts only errors that implement [`IntoError`]: an error without a status does not become a 500
/// unnoticed. [`Error::internal`] makes one on purpose: `.map_err(Error::internal)?`. Its message does not
/// contain the cause, which the operator finds in [`Error::source`].
pub struct Error(Box<Inner>);

struct Inner {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    source: Option<BoxError>,
    /// JSON.
    #[cfg(feature = "json")]
    details: Option<Box<str>>,
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
        Error(Box::new(Inner {
            status,
            code,
            message,
            headers: Vec::new(),
            source: None,
            #[cfg(feature = "json")]
            details: None,
        }))
    }

    /// 400 `bad_request`: the request is malformed.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 401 `unauthorized`: the client is not authenticated. Should carry `WWW-Authenticate` (RFC 9110
    /// §15.5.2); see [`Error::with_header`].
    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403 `forbidden`: the client is not permitted to do this.
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

    /// 503 `timeout`: the handler did not answer within the time that its route or its client allows. (504
    /// would blame an upstream server, RFC 9110 §15.6.5; there may be none.)
    pub(crate) fn timed_out() -> Self {
        let message = "the answer took longer than this route, or its client, allows";
        Error::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
    }

    /// 500 `internal`: the service is at fault. The peer learns only that; `source` is for the operator.
    pub fn internal(source: impl Into<BoxError>) -> Self {
        Error::of_status(StatusCode::INTERNAL_SERVER_ERROR).with_source(source)
    }

    /// The same error under another code.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.0.code = code;
        self
    }

    /// The error with a header field that its response will have, whatever the renderer does.
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

    /// The error with more data for programs, for example which fields are wrong. In the default shape of
    /// errors it is the member `details`. If serialization fails, the error becomes a 500.
    ///
    /// ```
    /// use highwater::Error;
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize)]
    /// struct Wrong { field: &'static str, reason: &'static str }
    ///
    /// let wrong = [Wrong { field: "email", reason: "has no @" }];
    /// let error = Error::unprocessable("the form is not complete").with_details(&wrong);
    /// assert_eq!(error.details(), Some(r#"[{"field":"email","reason":"has no @"}]"#));
    /// ```
    #[cfg(feature = "json")]
    #[must_use]
    pub fn with_details(mut self, details: &(impl serde_core::Serialize + ?Sized)) -> Self {
        match serde_json::to_string(details) {
            Ok(details) => {
                self.0.details = Some(details.into());
                self
            }
            Err(error) => Error::internal(error),
        }
    }

    /// Data for programs besides the code, as JSON.
    #[cfg(feature = "json")]
    pub fn details(&self) -> Option<&str> {
        self.0.details.as_deref()
    }

    /// The status of its response.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Its short name.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// The message for the peer.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The header fields its response will have.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0.headers
    }

    /// Its cause, for the operator only.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// An error whose message is the reason phrase of its status.
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
        Error::new(status, code, phrase(status).unwrap_or("unknown error"))
    }

    /// The same error with another message.
    pub(crate) fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// A refusal by the protocol engine.
    pub(crate) fn of_reject(reject: Reject) -> Self {
        let status = StatusCode::from_u16(reject.status()).expect("refusals have valid statuses");
        Error::new(status, reject.code(), reject.reason())
    }
}

/// The phrase of a status that the status line has; of one that has none there, the phrase of the crate `http`, some of which
/// are of older specifications.
pub(in crate::app) fn phrase(status: StatusCode) -> Option<&'static str> {
    match reason(status.as_u16()) {
        "" => status.canonical_reason(),
        phrase => Some(phrase),
    }
}

/// A type that `?` converts into an [`Error`]: it defines the message for the peer.
///
/// It is all that an application's own error type needs: handlers may return `Result<_, OrderError>` as well.
///
/// ```
/// use highwater::{Error, IntoError};
///
/// enum OrderError {
///     Unknown(u64),
///     Database(std::io::Error),
/// }
///
/// impl IntoError for OrderError {
///     fn into_error(self) -> Error {
///         match self {
///             OrderError::Unknown(id) => Error::not_found(format!("there is no order {id}")),
///             OrderError::Database(cause) => Error::internal(cause),
///         }
///     }
/// }
///
/// fn find(id: u64) -> Result<String, OrderError> {
///     Err(OrderError::Unknown(id))
/// }
///
/// fn get(/* Path(id): Path<u64> */) -> Result<String, OrderError> {
///     find(7)
/// }
///
/// fn show() -> Result<String, Error> {
///     let order = find(7)?;
///     let rate = std::fs::read_to_string("rate").map_err(Error::internal)?;
///     Ok(order + &rate)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`?` cannot convert `{Self}`: it does not say what the client gets",
    // The compiler shows no note where `?` is used, so the remedy is in the label.
    label = "write `.map_err(Error::internal)?` if the service is at fault, or implement `IntoError`",
    note = "write `.map_err(Error::internal)?` if the service is at fault: a 500 whose cause is logged; \
            or `.map_err(|error| Error::bad_request(error.to_string()))?` if the client is",
    note = "implement `IntoError` for an error type of your own; a handler may then return it, too"
)]
pub trait IntoError {
    /// The message for the peer.
    fn into_error(self) -> Error;
}

/// The peer causes a failure of the request's own body, which has its own status.
impl IntoError for BodyError {
    fn into_error(self) -> Error {
        match self.reject() {
            Some(reject) => Error::of_reject(reject).with_message(self.to_string()),
            None => Error::new(StatusCode::BAD_REQUEST, "body_incomplete", self.to_string()),
        }
    }
}

impl<E: IntoError> From<E> for Error {
    fn from(error: E) -> Self {
        error.into_error()
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

    /// Purpose: an internal error shows the peer no cause, and the operator the whole cause.
    #[test]
    fn internal_errors_keep_their_secret() {
        let failed = || -> Result<u8, Error> {
            "db://user:secret@host".parse::<u8>().map_err(Error::internal)
        };
        let error = failed().expect_err("it is no number");
        assert_eq!((error.status().as_u16(), error.code()), (500, "internal"));
        assert_eq!(error.message(), "Internal Server Error");
        assert!(error.source().is_some());
        assert!(error.to_string().contains("invalid digit"));
    }
}
