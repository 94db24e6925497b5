//! Reports the application's failures to the operator.
//!
//! Panics that were caught, once each, with the route they came from; answers that cannot be sent; and every other
//! answer with a status from 500 on, with its cause, which the client does not see. Refusals for load are only counted:
//! a log must not grow with the load.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::StatusCode;

use super::dispatch::{App, Shared, Target};
use super::error::Error;
use super::guard::{self, Panic};
use super::response::Response;
use crate::logging::rate_limited;

/// Panics of Tokio that show a handler in the wrong place, and what to write instead.
const TOKIO_COMPLAINTS: [(&str, &str); 3] = [
    ("there is no reactor running", NEEDS_RUNTIME),
    ("called from outside of a `task::LocalSet`", NEEDS_RUNTIME),
    (
        "can call blocking only when running on the multi-threaded runtime",
        "use tokio::task::spawn_blocking(…).await instead of block_in_place: each worker's runtime has one thread",
    ),
];

const NEEDS_RUNTIME: &str = "make the handler an async fn, or add .runtime() to the Router; a blocking handler has no Tokio runtime";

impl App {
    /// Logs and counts the panics that were caught on this thread since this was last called, as
    /// those of requests for `target`.
    pub(crate) fn report_panics(&self, target: Option<Target>) {
        self.shared.report_panics(target);
    }

    /// How many panics were caught so far; it keeps counting.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.panics)
    }

    /// Logs an answer with a status from 500 on, unless the log has its cause already.
    #[cold]
    pub(crate) fn report_failure(
        &self,
        target: Target,
        method: &str,
        request_id: Option<&[u8]>,
        response: &Response,
    ) {
        let is_panic = |error: &Error| error.source().is_some_and(|source| source.is::<Panic>());
        let error = response.error();
        if error.is_some_and(is_panic) || !self.is_failure(target, response.status()) {
            return;
        }
        let request_id = request_id.map(|id| id.escape_ascii().to_string());
        rate_limited!(
            ERROR,
            method,
            route = self.shared.route_name(Some(target)),
            status = response.status().as_u16(),
            cause = error.map(cause),
            request_id,
            "a request failed",
        );
    }

    /// Whether an answer of a route with this status is a failure. A health check that answers 503 works as
    /// intended.
    fn is_failure(&self, target: Target, status: StatusCode) -> bool {
        let is_check = status == StatusCode::SERVICE_UNAVAILABLE && self.is_never_shed(target);
        target.endpoint().is_some() && !is_check
    }

    /// Logs the error of an answer that is not sent.
    #[cold]
    pub(crate) fn report_invalid(&self, target: Option<Target>, error: &Error) {
        let problem = error.source().map(ToString::to_string);
        rate_limited!(
            ERROR,
            route = self.shared.route_name(target),
            problem = problem.as_deref().unwrap_or_else(|| error.message()),
            "a handler's response cannot be sent as it is; its client gets 500",
        );
    }
}

impl Shared {
    /// See [`App::report_panics`].
    #[inline]
    pub(super) fn report_panics(&self, target: Option<Target>) {
        if guard::has_notes() {
            self.tell_panics(target);
        }
    }

    #[cold]
    fn tell_panics(&self, target: Option<Target>) {
        let notes = guard::take_notes();
        self.panics.fetch_add(notes.panics.len() as u64 + notes.more, Relaxed);
        for panic in notes.panics {
            rate_limited!(
                ERROR,
                route = self.route_name(target),
                panic = panic.0.as_str(),
                "a panic ended a request, and nothing else",
            );
            let known = TOKIO_COMPLAINTS.iter().find(|(complaint, _)| panic.0.contains(complaint));
            if let Some((_, instead)) = known {
                rate_limited!(
                    ERROR,
                    route = self.route_name(target),
                    instead,
                    "a handler uses Tokio in a way that does not work where it runs",
                );
            }
        }
    }

    fn route_name(&self, target: Option<Target>) -> &str {
        target.and_then(|target| self.pattern(target)).unwrap_or("not_found")
    }
}

/// The causes of an error, down to the last; its message if it has none.
fn cause(error: &Error) -> String {
    let Some(source) = error.source() else { return String::from(error.message()) };
    let mut text = source.to_string();
    let mut next = StdError::source(source);
    while let Some(cause) = next {
        let said = cause.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
