//! Reports the application's failures to the operator.
//!
//! Panics that were caught, once each, with the route they came from; answers that cannot be sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::dispatch::{App, Shared, Target};
use super::error::Error;
use super::guard;
use crate::logging::rate_limited;

/// The messages of Tokio's panics without a runtime.
const TOKIO_COMPLAINTS: [&str; 2] =
    ["there is no reactor running", "called from outside of a `task::LocalSet`"];

impl App {
    /// Logs and counts the panics that were caught on this thread since this was last called, as
    /// those of requests for `target`.
    pub(crate) fn report_panics(&self, target: Option<Target>) {
        self.shared.report_panics(target);
    }

    /// How many panics were caught; it goes on counting.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.panics)
    }

    /// Logs the error of an answer that is not sent.
    #[cold]
    pub(crate) fn report_invalid(&self, target: Option<Target>, error: &Error) {
        let problem = error.source().map(ToString::to_string);
        rate_limited!(
            ERROR,
            route = self.shared.route_name(target),
            problem = problem.as_deref().unwrap_or_else(|| error.message()),
            "a handler's answer cannot be sent as it is; its client is told 500",
        );
    }
}

impl Shared {
    /// As [`App::report_panics`].
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
            if TOKIO_COMPLAINTS.iter().any(|complaint| panic.0.contains(complaint)) {
                rate_limited!(
                    ERROR,
                    route = self.route_name(target),
                    instead = "make it an async fn, or add .runtime() to the Router; a blocking handler has none",
                    "a handler needs a Tokio runtime, and there is none around it",
                );
            }
        }
    }

    fn route_name(&self, target: Option<Target>) -> &str {
        target.and_then(|target| self.pattern(target)).unwrap_or("not_found")
    }
}
