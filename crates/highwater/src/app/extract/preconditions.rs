//! Is the resource in the state that the client expects?

use std::time::{SystemTime, UNIX_EPOCH};

use highwater_core::http::{Fields, OwnedHead};
use highwater_core::time::UnixSeconds;
use http::{Method, StatusCode, header};

use super::FromRequest;
use crate::app::error::Error;
use crate::app::request::Request;
use crate::app::response::Response;
use crate::content::precondition::{Validators, Verdict, judge};

/// The conditions of a request (`If-Match`, `If-None-Match`, RFC 9110 §13.1). With them, two clients that change the same
/// resource do not overwrite each other's changes.
///
/// ```
/// use highwater::testing::Client;
/// use highwater::{Error, Preconditions, Router, StatusCode};
///
/// fn replace(conditions: Preconditions) -> Result<StatusCode, Error> {
///     let current = "\"version 7\""; // As `GET` answers in `ETag`.
///     conditions.check(Some(current))?;
///     Ok(StatusCode::NO_CONTENT)
/// }
///
/// let client = Client::new(Router::new().put("/article", replace));
/// client.set_header("if-match", "\"version 6\"");
/// assert_eq!(client.put("/article", "").status, 412);
/// client.set_header("if-match", "\"version 7\"");
/// assert_eq!(client.put("/article", "").status, 204);
/// ```
#[derive(Clone, Debug)]
pub struct Preconditions {
    is_read: bool,
    /// With those fields, and which codings the client accepts.
    head: Option<OwnedHead>,
}

const FIELDS: [&str; 2] = ["if-match", "if-none-match"];

impl Preconditions {
    /// Whether the client has named a state. Some services answer 428 if it has not.
    pub fn is_conditional(&self) -> bool {
        self.head.is_some()
    }

    /// Compares the conditions with the current state: its entity tag with quotes, or `None` if the resource does not
    /// exist.
    ///
    /// # Errors
    /// 412 `precondition_failed` if the client expects another state.
    pub fn check(&self, tag: Option<&str>) -> Result<(), Error> {
        match self.judge(tag) {
            Verdict::Proceed | Verdict::NotModified => Ok(()),
            Verdict::Failed => Err(Error::precondition_failed()),
        }
    }

    pub(in crate::app) fn judge(&self, tag: Option<&str>) -> Verdict {
        let Some(head) = &self.head else { return Verdict::Proceed };
        let head = head.head();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match tag {
            Some(tag) => {
                let validators = Validators { tag: Some(tag.as_bytes()), modified: None };
                judge(head.headers(), self.is_read, validators, UnixSeconds(now.as_secs()))
            }
            // Nothing matches what is not there, not even `*`.
            None if head.headers().get("if-match").is_some() => Verdict::Failed,
            None => Verdict::Proceed,
        }
    }

    /// Whether the client says which state it has read.
    #[cfg(feature = "json")]
    pub(in crate::app) fn has_if_match(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.head().headers().get("if-match").is_some())
    }
}

/// Never fails.
impl FromRequest for Preconditions {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let is_read = matches!(request.method(), Method::GET | Method::HEAD);
        Ok(Preconditions { is_read, head: conditions(request.headers()) })
    }
}

fn conditions(fields: Fields<'_>) -> Option<OwnedHead> {
    let conditions =
        FIELDS.into_iter().flat_map(|name| fields.get_all(name).map(move |value| (name, value)));
    let mut conditions = conditions.peekable();
    conditions.peek()?;
    let accepted = fields.get_all("accept-encoding").map(|value| ("accept-encoding", value));
    let mut head = OwnedHead::new("GET", "/", Default::default())?;
    head.set_fields(conditions.chain(accepted));
    Some(head)
}

impl Error {
    /// 412 `precondition_failed`: the resource is in another state than the client believes.
    pub fn precondition_failed() -> Self {
        let message = "the resource's current state does not meet the condition of the request";
        Error::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", message)
    }
}

impl Response {
    /// Makes it the 304 that stands for it: the same fields but those that describe content.
    pub(crate) fn make_not_modified(&mut self) {
        self.set_status(StatusCode::NOT_MODIFIED);
        self.take_body();
        for name in [
            header::CONTENT_TYPE,
            header::CONTENT_LENGTH,
            header::CONTENT_ENCODING,
            header::CONTENT_LANGUAGE,
            header::CONTENT_RANGE,
        ] {
            self.remove_header(&name);
        }
    }
}
