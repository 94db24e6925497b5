//! Errors in the shape of RFC 9457.

use http::StatusCode;
use serde_core::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::Value;

use super::error::{Error, phrase};
use super::extract::Json;
use super::into_response::IntoResponse;
use super::response::Response;

/// An error as *problem details* (RFC 9457, `application/problem+json`): for [`Router::errors`](super::Router::errors).
///
/// ```
/// use highwater::testing::Client;
/// use highwater::{Problem, Router};
///
/// let client = Client::new(Router::new().errors(Problem::of).get("/", || "Hello"));
/// let answer = client.get("/gone");
/// assert_eq!(answer.header("content-type"), Some("application/problem+json"));
/// let problem: serde_json::Value = answer.json();
/// assert_eq!((&problem["status"], &problem["title"]), (&404.into(), &"Not Found".into()));
/// assert_eq!(problem["code"], "not_found");
/// ```
///
/// `type` is absent, which means `about:blank`: then `title` is the status's phrase, and the error's own code is the extension
/// `code`. [Details](Error::details) are the extension `errors`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Problem {
    /// The status's phrase.
    pub title: &'static str,
    /// The status.
    pub status: u16,
    /// The error's message.
    pub detail: String,
    /// The error's short name.
    pub code: &'static str,
    /// Data for programs, such as all invalid fields. Left out if there is none.
    pub errors: Option<Value>,
}

impl Problem {
    /// The error as a problem.
    pub fn of(error: &Error) -> Self {
        let status = error.status();
        Problem {
            title: phrase(status).unwrap_or("Unknown Error"),
            status: status.as_u16(),
            detail: error.message().to_owned(),
            code: error.code(),
            errors: error.details().and_then(|details| details.parse().ok()),
        }
    }
}

// By hand, like the few others of this crate: what derives it would have to be compiled before this crate could be.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Problem { title, status, detail, code, errors } = self;
        let mut fields =
            serializer.serialize_struct("Problem", 4 + usize::from(errors.is_some()))?;
        fields.serialize_field("title", title)?;
        fields.serialize_field("status", status)?;
        fields.serialize_field("detail", detail)?;
        fields.serialize_field("code", code)?;
        if let Some(errors) = errors {
            fields.serialize_field("errors", errors)?;
        }
        fields.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let response = Json(self).into_response();
        response.with_status(status).with_content_type("application/problem+json")
    }
}
