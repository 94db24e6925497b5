//! Answers whose type defines their status, so that a document can show it.

use http::StatusCode;

use super::into_response::IntoResponse;
use super::response::Response;

/// 201: a resource was created. Add `Location` if it has an address: `([("location", …)], Created(Json(todo)))`.
///
/// ```
/// use highwater::{Created, Json, Router};
///
/// let app = Router::new().post("/todos", || Created(Json("a todo")));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created<R>(pub R);

/// 202: the request was accepted, and will be done later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted<R>(pub R);

/// 204: the request is done, and the answer has no content.
///
/// ```
/// use highwater::{NoContent, Path, Router};
///
/// let app = Router::new().delete("/todos/{id}", |Path(_): Path<u64>| NoContent);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoContent;

/// The status of errors stays.
impl<R: IntoResponse> IntoResponse for Created<R> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, self.0).into_response()
    }
}

/// The status of errors stays.
impl<R: IntoResponse> IntoResponse for Accepted<R> {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, self.0).into_response()
    }
}

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        Response::new(StatusCode::NO_CONTENT)
    }
}
