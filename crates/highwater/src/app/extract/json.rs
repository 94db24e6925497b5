//! JSON, in and out.

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;
use serde_json::error::Category;

use super::body::{has_body, whole};
use super::{BodyUse, FromRequest, json_field};
use crate::app::body::{Body, Pooled};
use crate::app::error::Error;
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;

const JSON: &str = "application/json";

/// A value sent as JSON: as an argument the request's body, as a return value the response.
///
/// As an argument it is refused with:
///
/// * 415 unless the `Content-Type` is `application/json` or ends in `+json`;
/// * 400 `invalid_json` if it is not JSON, with line and column;
/// * 422 `invalid_body` if it is JSON but not a `T`; the message names the field.
///
/// ```
/// use highwater::{Json, Router, StatusCode};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// struct NewTodo { title: String }
///
/// #[derive(Serialize)]
/// struct Todo { id: u64, title: String }
///
/// fn create(Json(todo): Json<NewTodo>) -> (StatusCode, Json<Todo>) {
///     (StatusCode::CREATED, Json(Todo { id: 1, title: todo.title }))
/// }
///
/// let app = Router::new().post("/todos", create);
/// # app.build().unwrap();
/// ```
///
/// A response is serialized into a buffer that its thread reuses, so in steady state it allocates
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Json<T> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let body = json_body(request)?;
        serde_json::from_slice(body).map(Json).map_err(|error| explain(body, &error, refuse::<T>))
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

/// The body of a request that says that it is JSON.
fn json_body<'r>(request: &'r Request<'_>) -> Result<&'r [u8], Error> {
    let content_type = request.headers().get("content-type");
    if !content_type.is_some_and(is_json) {
        let message = "the body must be JSON, and its Content-Type application/json";
        return Err(super::wrong_content_type(message));
    }
    whole(request)
}

/// Whether a `Content-Type` says JSON: `application/json`, or the suffix of RFC 6839 §3.1.
fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let suffix = essence.len().checked_sub(b"+json".len()).map(|start| &essence[start..]);
    essence.eq_ignore_ascii_case(JSON.as_bytes())
        || (suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
            && essence.contains(&b'/'))
}

/// Why `text` is no `T`.
fn refuse<T: DeserializeOwned>(text: &[u8]) -> Option<serde_json::Error> {
    serde_json::from_slice::<T>(text).err()
}

/// Explains why `body` is not what a handler takes.
#[cold]
fn explain(
    body: &[u8],
    error: &serde_json::Error,
    refuse: fn(&[u8]) -> Option<serde_json::Error>,
) -> Error {
    if error.classify() != Category::Data {
        let message = match body.is_empty() {
            true => "the body is empty; it must be JSON".to_owned(),
            false => format!("the body is not JSON: {error}"),
        };
        return Error::bad_request(message).with_code("invalid_json");
    }
    let message = match json_field::of(body, error, refuse) {
        field if field.is_empty() => error.to_string(),
        field => format!("field `{field}`: {error}"),
    };
    Error::unprocessable(message).with_code("invalid_body")
}

/// A value that cannot be serialized is an error 500.
impl<T: Serialize> IntoResponse for Json<T> {
    #[inline]
    fn into_response(self) -> Response {
        let mut buffer = Pooled::take();
        match serde_json::to_writer(&mut *buffer, &self.0) {
            Ok(()) => Response::of(JSON, Body::from_pooled(buffer)),
            Err(error) => Error::internal(error).into_response(),
        }
    }
}
