//! What a request is answered that is not served for there being too much work: encoded when the
//! application is built, since the less there is to spare the cheaper it has to be.
//!
//! In the shape of the application's errors, and with a `Retry-After` that varies from one refusal to
//! the next: clients that were refused together must not come back together. No hook sees it.

use http::{HeaderValue, header};

use super::dispatch::Scope;
use super::error::Error;
use super::fixed::FixedResponse;
use super::response::IntoResponse;

/// Seconds after which a client may try again (RFC 9110 §10.2.3). Whole seconds are all it can say;
/// longer ones would leave a server idle that has recovered.
const RETRY_AFTER: [&str; 4] = ["1", "2", "3", "4"];

/// The refusals of one scope, one for each [`RETRY_AFTER`].
#[derive(Debug)]
pub(super) struct Refusals([FixedResponse; RETRY_AFTER.len()]);

impl Refusals {
    pub(super) fn new(scope: &Scope) -> Self {
        Refusals(RETRY_AFTER.map(|seconds| {
            let error = Error::overloaded("there is more work than can be done; try again later")
                .with_header(header::RETRY_AFTER, HeaderValue::from_static(seconds));
            let plain = error.render();
            let mut response = scope.render(error.into_response());
            // What cannot be sent must not be: the renderer's other errors are looked at one by one.
            let valid = response.problem(false).is_none() && !response.body().is_upgrade();
            FixedResponse::new(if valid { response } else { plain })
        }))
    }

    /// The refusal number `n`.
    pub(super) fn get(&self, n: u32) -> &FixedResponse {
        &self.0[n as usize % RETRY_AFTER.len()]
    }
}
