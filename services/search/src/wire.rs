//! The envelope of every answer: `{"data":…,"error":…}`, both keys always present.

use bytes::Bytes;
use highwater::{Error, StatusCode};
use serde_json::json;

/// The type of every answer.
pub const CONTENT_TYPE: &str = "application/json";

/// The answer of `GET /health`.
pub const HEALTHY: &str = r#"{"status":"healthy"}"#;

/// What comes before the events of a successful answer.
pub const EVENTS_HEAD: &[u8] = br#"{"data":{"events":["#;

/// What comes after them.
pub const EVENTS_TAIL: &[u8] = br#"]},"error":null}"#;

/// The errors a client can meet. The names on the wire never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// 400: a query parameter cannot be read. The message names it.
    InvalidParameter,
    /// 400, 408, 413, 414, 417, 431, 501, 505: the request itself is malformed or not supported.
    InvalidRequest,
    /// 404: no such path.
    NotFound,
    /// 405: the path exists, but not for this method; `Allow` lists those it exists for.
    MethodNotAllowed,
    /// 503: the service refuses work so that it can finish what it has.
    Overloaded,
    /// 500: the service is at fault.
    Internal,
}

impl ErrorCode {
    /// The `code` member on the wire.
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::InvalidParameter => "invalid_parameter",
            ErrorCode::InvalidRequest => "invalid_request",
            ErrorCode::NotFound => "not_found",
            ErrorCode::MethodNotAllowed => "method_not_allowed",
            ErrorCode::Overloaded => "overloaded",
            ErrorCode::Internal => "internal",
        }
    }

    /// The code of an error of the service, of its routes, or of the server itself.
    pub fn of(error: &Error) -> ErrorCode {
        match error.status() {
            _ if error.code() == ErrorCode::InvalidParameter.name() => ErrorCode::InvalidParameter,
            StatusCode::NOT_FOUND => ErrorCode::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => ErrorCode::MethodNotAllowed,
            StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Overloaded,
            StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => {
                ErrorCode::InvalidRequest
            }
            status if status.is_client_error() => ErrorCode::InvalidRequest,
            _ => ErrorCode::Internal,
        }
    }

    /// The whole body: `{"data":null,"error":{"code":…,"message":…}}`.
    pub fn body(self, message: &str) -> Bytes {
        let (code, message) = (json!(self.name()), json!(message));
        Bytes::from(format!(r#"{{"data":null,"error":{{"code":{code},"message":{message}}}}}"#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the error envelope is the contract's, and a hostile message cannot break out of it.
    #[test]
    fn error_envelope() {
        let body = ErrorCode::InvalidParameter.body("ends_at is \"x\"\n");
        let expected =
            r#"{"data":null,"error":{"code":"invalid_parameter","message":"ends_at is \"x\"\n"}}"#;
        assert_eq!(body, expected.as_bytes());
    }

    /// Purpose: each status a server can answer with has its published code, and a broken parameter
    /// has another code than other bad requests.
    #[test]
    fn codes() {
        let cases = [
            (400, "invalid_request"),
            (404, "not_found"),
            (405, "method_not_allowed"),
            (408, "invalid_request"),
            (413, "invalid_request"),
            (414, "invalid_request"),
            (417, "invalid_request"),
            (431, "invalid_request"),
            (500, "internal"),
            (501, "invalid_request"),
            (503, "overloaded"),
            (505, "invalid_request"),
        ];
        for (status, expected) in cases {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(ErrorCode::of(&Error::new(status, "any", "")).name(), expected, "{status}");
        }
        let invalid = Error::new(StatusCode::BAD_REQUEST, "invalid_parameter", "");
        assert_eq!(ErrorCode::of(&invalid).name(), "invalid_parameter");
    }
}
