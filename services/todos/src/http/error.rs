//! The shape of every error: `{"error":"…","details":"…"}`.

use highwater::logging::rate_limited;
use highwater::{Error, HeaderValue, Response, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

use super::json;
use crate::queue::Refusal;

/// After how many seconds a client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The code of [`queue_refused`]: its text on the wire differs from that of other 503s.
const QUEUE: &str = "queue_refused";

/// The code of [`not_found`]: a path that is not there is another matter.
const MISSING: &str = "todo_not_found";

/// Every error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub(super) struct Shape<'a> {
    /// What is wrong.
    error: &'a str,
    /// What is wrong in particular, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
}

/// There is no such todo, or it is another user's: the client need not know which.
pub(super) fn not_found() -> Error {
    Error::not_found("").with_code(MISSING)
}

/// The command is not known to be durable.
pub(super) fn queue_refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Full(why) | Refusal::Down(why) => unavailable(why).with_code(QUEUE),
        Refusal::TooLarge(why) => {
            Error::new(StatusCode::PAYLOAD_TOO_LARGE, "command_too_large", why)
        }
    }
}

/// Something is unavailable, or there is no room: the client may retry later.
pub(super) fn unavailable(why: String) -> Error {
    Error::overloaded(why).with_header(header::RETRY_AFTER, RETRY_AFTER)
}

/// Every error in the contract's shape: of the service, the router, and the protocol engine.
pub(super) fn error(error: &Error) -> Response {
    let status = error.status();
    let name = match (status, error.code()) {
        (_, QUEUE) => "Request queued failed",
        (_, MISSING) => "Todo not found",
        (StatusCode::UNAUTHORIZED, _) => "Unauthorized",
        (StatusCode::NOT_FOUND, _) => "Not found",
        (StatusCode::METHOD_NOT_ALLOWED, _) => "Method not allowed",
        (StatusCode::PAYLOAD_TOO_LARGE, _) => "Request too large",
        (StatusCode::SERVICE_UNAVAILABLE, _) => "Service unavailable",
        _ if status.is_client_error() => "Invalid request",
        _ => "Internal server error",
    };
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        rate_limited!(ERROR, error = %error, "a request could not be answered");
    }
    let details = (!status.is_server_error() || status == StatusCode::SERVICE_UNAVAILABLE)
        .then(|| error.message())
        .filter(|message| !message.is_empty());
    let body = serde_json::to_vec(&Shape { error: name, details }).expect("text is JSON");
    json(body).with_status(status)
}
