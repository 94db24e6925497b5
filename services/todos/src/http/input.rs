//! Parses requests, and reports what is wrong with them.
//!
//! 400: it cannot be read (no JSON, a wrong type, a field that does not exist or is missing, a bad parameter).
//! 422: it can be read, but its values are beyond a todo's limits. Both name the field.

use std::sync::Arc;

use highwater::{Error, FromRequest, Request};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Bounds;
use super::{not_found, only_parameter, parameter};
use crate::auth::user;
use crate::reads::Limit;
use crate::todo::now_us;

/// How many todos a list is to have: `?limit=N`. Absent, empty, 0 or negative: all that it may have.
pub(super) struct Asked(pub(super) Limit);

impl FromRequest for Asked {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Asked, Error> {
        let Some(text) = parameter(request, "limit")?.filter(|text| !text.is_empty()) else {
            return Ok(Asked(Limit::ALL));
        };
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::bad_request("limit: it must be a number, as in limit=10"));
        }
        // What does not fit is beyond any list.
        let number = text.parse().unwrap_or(i64::MAX);
        Ok(Asked(Limit::of(if text.starts_with('-') { 0 } else { number })))
    }
}

/// A request without parameters: this resource has none.
pub(super) struct NoParameters;

impl FromRequest for NoParameters {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<NoParameters, Error> {
        match request.query() {
            None | Some("") => Ok(NoParameters),
            Some(query) => only_parameter(query, None).map(|_| NoParameters),
        }
    }
}

/// The todo in the path. A path that is not a UUID is 404.
pub(super) struct TodoId(pub(super) Uuid);

impl FromRequest for TodoId {
    fn from_request(request: &Request<'_>) -> Result<TodoId, Error> {
        let id = request.param("id")?.unwrap_or_default();
        // Only as we write it: one todo has one path.
        let id = Uuid::try_parse(&id).ok().filter(|_| id.len() == 36);
        id.map(TodoId).ok_or_else(not_found)
    }
}

/// The user of the request; else 401.
pub(super) struct Caller {
    pub(super) user: Arc<str>,
    /// When the request was processed, in microseconds since 1970.
    pub(super) now_us: i64,
}

impl FromRequest for Caller {
    fn from_request(request: &Request<'_>) -> Result<Caller, Error> {
        Ok(Caller { user: user(request)?, now_us: now_us() })
    }
}

/// Whether the answer is to wait until the effect is visible: `?wait=applied`.
pub(super) struct Waits(pub(super) bool);

impl FromRequest for Waits {
    fn from_request(request: &Request<'_>) -> Result<Waits, Error> {
        match parameter(request, "wait")? {
            None | Some("") => Ok(Waits(false)),
            Some("applied") => Ok(Waits(true)),
            Some(_) => Err(Error::bad_request("wait: it must be `applied`")),
        }
    }
}

/// What a new todo is to be.
pub(super) struct NewTodo {
    pub(super) title: String,
    pub(super) description: String,
}

/// What a todo is to become.
pub(super) struct Change {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) completed: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewTodo")]
pub(super) struct NewTodoBody {
    #[schemars(required, length(min = 1))]
    title: Option<String>,
    description: Option<String>,
}

/// At least one of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Change", extend("minProperties" = 1))]
pub(super) struct ChangeBody {
    title: Option<String>,
    description: Option<String>,
    completed: Option<bool>,
}

impl NewTodo {
    /// Reads the body of a creation.
    pub(super) fn parse(body: &[u8], bounds: &Bounds) -> Result<NewTodo, Error> {
        let NewTodoBody { title, description } = parse(body)?;
        let title = title.ok_or_else(|| Error::bad_request("title: it is missing"))?;
        check_title(&title, bounds)?;
        let description = description.unwrap_or_default();
        check_length("description", &description, bounds.description_max)?;
        Ok(NewTodo { title, description })
    }
}

impl Change {
    /// Reads the body of an update.
    pub(super) fn parse(body: &[u8], bounds: &Bounds) -> Result<Change, Error> {
        let ChangeBody { title, description, completed } = parse(body)?;
        if title.is_none() && description.is_none() && completed.is_none() {
            return Err(Error::unprocessable("give at least one of title, description, completed"));
        }
        if let Some(title) = &title {
            check_title(title, bounds)?;
        }
        if let Some(description) = &description {
            check_length("description", description, bounds.description_max)?;
        }
        Ok(Change { title, description, completed })
    }
}

fn check_title(title: &str, bounds: &Bounds) -> Result<(), Error> {
    if title.trim().is_empty() {
        return Err(Error::unprocessable("title: it must not be empty"));
    }
    check_length("title", title, bounds.title_max)
}

fn check_length(field: &str, text: &str, max: usize) -> Result<(), Error> {
    // A text has no more characters than bytes: most need no count.
    if text.len() > max && text.chars().count() > max {
        return Err(Error::unprocessable(format!("{field}: it has at most {max} characters")));
    }
    // Postgres cannot store it.
    if text.contains('\0') {
        return Err(Error::unprocessable(format!(
            "{field}: it must not have the character U+0000"
        )));
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // A list of the fields' values would do for serde.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::bad_request(r#"the body must be a JSON object, as in {"title":"Tea"}"#));
    }
    serde_json::from_slice(body).map_err(|error| explain::<T>(body, &error))
}

/// Says why `body` is not a `T`. It is parsed again, this time tracking the path to the culprit.
#[cold]
fn explain<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> Error {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let message = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        // A path that is not known is written as `?`.
        Err(error) if error.path().to_string().starts_with(char::is_alphabetic) => {
            let (path, inner) = (error.path().to_string(), error.inner().to_string());
            // This names the field itself.
            if inner.starts_with("unknown field") { inner } else { format!("{path}: {inner}") }
        }
        _ => format!("the body is not as it should be: {error}"),
    };
    Error::bad_request(message)
}
