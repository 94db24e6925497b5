//! The envelope of every answer: `{"data":…,"error":…}`, both keys always present.

use bytes::Bytes;
use serde_json::json;

/// What comes before the events of a successful answer.
pub const EVENTS_HEAD: &[u8] = br#"{"data":{"events":["#;

/// What comes after them.
pub const EVENTS_TAIL: &[u8] = br#"]},"error":null}"#;

/// The errors a client can meet. The names on the wire never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A query parameter cannot be read.
    InvalidParameter,
    /// No such path.
    NotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// The service refuses work so that it can finish what it has.
    Overloaded,
    /// The service is at fault.
    Internal,
}

impl ErrorCode {
    /// The `code` member on the wire.
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::InvalidParameter => "invalid_parameter",
            ErrorCode::NotFound => "not_found",
            ErrorCode::MethodNotAllowed => "method_not_allowed",
            ErrorCode::Overloaded => "overloaded",
            ErrorCode::Internal => "internal",
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            ErrorCode::InvalidParameter => 400,
            ErrorCode::NotFound => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::Internal => 500,
            ErrorCode::Overloaded => 503,
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

    /// Purpose: each code keeps its published name and status.
    #[test]
    fn names_and_statuses() {
        use ErrorCode::*;
        let all = [InvalidParameter, NotFound, MethodNotAllowed, Overloaded, Internal];
        let expected = [
            ("invalid_parameter", 400),
            ("not_found", 404),
            ("method_not_allowed", 405),
            ("overloaded", 503),
            ("internal", 500),
        ];
        assert_eq!(all.map(|code| (code.name(), code.status())), expected);
    }
}
