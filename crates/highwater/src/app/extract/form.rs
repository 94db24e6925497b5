//! What HTML forms send: pairs, in the query or in the body.

use serde::de::DeserializeOwned;

use super::body::{has_body, whole};
use super::{BodyUse, FromRequest};
use crate::app::error::Error;
use crate::app::request::Request;

const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// The query, deserialized. A missing query is an empty one; a field that may be absent is an
/// `Option`, one that may be repeated a `Vec`.
///
/// What does not fit is answered 400 `invalid_query`, naming the parameter.
///
/// ```
/// use highwater::{Query, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page { limit: Option<u32>, #[serde(default)] tag: Vec<String> }
///
/// let app = Router::new().get("/todos", |Query(page): Query<Page>| page.tag.join(","));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let query = request.query().unwrap_or_default().as_bytes();
        serde_html_form::from_bytes(query).map(Query).map_err(|error| {
            let message = format!("query {}", explain::<T>(query, &error));
            Error::bad_request(message).with_code("invalid_query")
        })
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.query().is_some_and(|query| !query.is_empty())
    }
}

/// The body, as HTML forms encode it (`application/x-www-form-urlencoded`), deserialized.
///
/// Answered 415 if the `Content-Type` is another, and 422 `invalid_body` if what is in it does not
/// fit, naming the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Form<T> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let content_type = request.headers().get("content-type").unwrap_or_default();
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        if !essence.trim_ascii().eq_ignore_ascii_case(FORM) {
            let message =
                "the body must be a form, and its Content-Type application/x-www-form-urlencoded";
            return Err(super::wrong_content_type(message));
        }
        let body = whole(request)?;
        serde_html_form::from_bytes(body).map(Form).map_err(|error| {
            let message = format!("form {}", explain::<T>(body, &error));
            Error::unprocessable(message).with_code("invalid_body")
        })
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

/// Says why `pairs` make no `T`. They are read again, for only then is the field's name kept.
#[cold]
fn explain<T: DeserializeOwned>(pairs: &[u8], error: &serde_html_form::de::Error) -> String {
    let deserializer = serde_html_form::Deserializer::from_bytes(pairs);
    match serde_path_to_error::deserialize::<_, T>(deserializer) {
        Err(error) if error.path().iter().next().is_some() => {
            format!("parameter `{}`: {}", error.path(), error.inner())
        }
        _ => format!("does not fit: {error}"),
    }
}
