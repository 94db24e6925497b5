//! The responses of requests that are refused under overload. They are encoded when the application is built,
//! since a refusal must be cheap.
//!
//! In the shape of the application's errors, and with a `Retry-After` that varies from one refusal to the
//! next: clients that were refused together must not retry together. Layers that cover everything change it:
//! once, if they do the same each time, else for each refusal.

use std::fmt::Display;

use http::{HeaderValue, header};

use super::error::Error;
use super::into_response::IntoResponse;
use super::prepared::{FixedResponse, Template};
use super::response::Response;
use super::scope::Scope;
use super::stack::Effect;

/// Seconds after which a client may try again (RFC 9110 §10.2.3). The field has whole seconds; longer times
/// would leave a recovered server idle.
const RETRY_AFTER: [&str; 4] = ["1", "2", "3", "4"];

/// The refusals of one scope, one for each [`RETRY_AFTER`].
#[derive(Debug)]
pub(super) struct Refusals {
    encoded: Vec<FixedResponse>,
    /// The response they are made from, if a layer reads the request.
    templates: Option<[Template; RETRY_AFTER.len()]>,
}

impl Refusals {
    /// # Errors
    /// Errors in the refusals after their layers.
    pub(super) fn new(scope: &Scope) -> Result<Self, String> {
        let problem =
            |problem: &dyn Display| format!("refusals (503), behind the layers: {problem}");
        let mut encoded = Vec::with_capacity(RETRY_AFTER.len());
        for seconds in RETRY_AFTER {
            let amended = scope.stack.amend_once(refusal(scope, seconds));
            let mut response = amended.map_err(|panic| problem(&panic))?;
            if let Some(found) = response.problem(false) {
                return Err(problem(&found));
            }
            encoded.push(FixedResponse::new(response));
        }
        let is_constant = scope.stack.effect_on_response() != Effect::OfRequest;
        let templates = || RETRY_AFTER.map(|seconds| Template::of(refusal(scope, seconds)));
        Ok(Refusals { encoded, templates: (!is_constant).then(templates) })
    }

    /// The refusal number `n`, independent of the request.
    pub(super) fn get(&self, n: u32) -> &FixedResponse {
        &self.encoded[n as usize % RETRY_AFTER.len()]
    }

    /// The refusal number `n`, if layers change it for each request. It carries its error.
    pub(super) fn make(&self, n: u32) -> Option<Response> {
        let templates = self.templates.as_ref()?;
        let number = n as usize % RETRY_AFTER.len();
        let mut response = templates[number].make();
        response.set_rendered_error(error(RETRY_AFTER[number]));
        Some(response)
    }
}

fn error(seconds: &'static str) -> Error {
    Error::overloaded("there is more work than can be done; try again later")
        .with_header(header::RETRY_AFTER, HeaderValue::from_static(seconds))
}

/// A refusal before any layer has seen it.
fn refusal(scope: &Scope, seconds: &'static str) -> Response {
    let plain = error(seconds).render();
    // Other errors of the renderer are verified one by one.
    can_be_sent(scope.render(error(seconds).into_response())).unwrap_or(plain)
}

/// A response that cannot be sent is replaced.
fn can_be_sent(mut response: Response) -> Option<Response> {
    let valid = response.problem(false).is_none() && !response.body().is_upgrade();
    valid.then_some(response)
}
