//! JSON, in and out.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::body::{has_body, whole};
use super::{BodyUse, FromRequest};
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
        serde_json::from_slice(body).map(Json).map_err(|error| explain::<T>(body, &error))
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

/// Explains why `body` is not a `T`. The body is parsed again, this time tracking the path to the
/// offending field.
#[cold]
fn explain<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> Error {
    if error.classify() != Category::Data {
        return not_json(error);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    not_it(error, serde_path_to_error::deserialize::<_, T>(&mut deserializer).err())
}

#[cold]
fn not_json(error: &serde_json::Error) -> Error {
    Error::bad_request(format!("the body is not JSON: {error}")).with_code("invalid_json")
}

#[cold]
fn not_it(
    error: &serde_json::Error,
    tracked: Option<serde_path_to_error::Error<serde_json::Error>>,
) -> Error {
    let message = match tracked {
        Some(error) if error.path().iter().next().is_some() => {
            format!("field `{}`: {}", error.path(), error.inner())
        }
        _ => error.to_string(),
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
