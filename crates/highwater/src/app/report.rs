//! Reports the application's failures to the operator.
//!
//! Panics that were caught, once each, with the route they came from; answers that cannot be sent; and every other
//! answer with a status from 500 on, with its cause, which the client does not see. The client sees the id of the
//! request, by which all of it can be found. Refusals for load are only counted: a log must not grow with the load.
//! Each route has a rate of its own, so that a noisy one does not hide the only failure of a quiet one.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::application::{App, Shared};
use super::endpoint::EndpointInfo;
use super::error::Error;
use super::guard::{self, Panic};
use super::request_id::{FIELD, fresh, usable};
use super::response::Response;
use super::sites::Sites;
use super::target::Target;
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
    /// those of a request for `target`, which was sent with an id if there is one.
    pub(crate) fn report_panics(&self, target: Option<Target>, sent_id: Option<&[u8]>) {
        self.shared.report_panics(target, sent_id);
    }

    /// How many panics were caught so far; it keeps counting.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.panics)
    }

    /// Logs an answer with a status from 500 on, unless the log has its cause already. The answer gets the id that
    /// the log has: `sent_id` if the request was sent with one.
    #[cold]
    pub(crate) fn report_failure(
        &self,
        target: Target,
        method: &str,
        sent_id: Option<&[u8]>,
        response: &mut Response,
    ) {
        if !self.is_failure(target, response.status()) {
            return;
        }
        let panic =
            response.error().and_then(Error::source).and_then(|source| source.downcast_ref());
        if let Some(panic) = panic.map(|panic: &Panic| panic.id(sent_id).to_owned()) {
            response.identify(|| panic);
            return;
        }
        let request_id = response.identify(|| usable(sent_id).map_or_else(fresh, str::to_owned));
        rate_limited!(
            by self.shared.sites(Some(target)).failed;
            ERROR,
            method,
            route = self.shared.route_name(Some(target)),
            status = response.status().as_u16(),
            cause = response.error().map(cause),
            request_id,
            "a request failed",
        );
    }

    /// Logs that calls of an endpoint keep their worker from serving others; the longest took this long.
    #[cold]
    pub(crate) fn report_blocking(&self, endpoint: u16, longest: Duration) {
        let info = self.shared.infos.get(usize::from(endpoint));
        let index = usize::from(endpoint).min(self.shared.endpoints.len());
        rate_limited!(
            by self.shared.sites[index].blocked;
            WARN,
            route = info.map_or("not_found", EndpointInfo::pattern),
            took_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX),
            instead = "wrap it in blocking(…), or make it an async fn that awaits",
            "a handler blocks its worker, and every other connection of it",
        );
    }

    /// Whether an answer of a route with this status is a failure. A health check that answers 503 works as
    /// intended.
    fn is_failure(&self, target: Target, status: StatusCode) -> bool {
        let is_check = status == StatusCode::SERVICE_UNAVAILABLE && self.is_never_shed(target);
        let is_own = target.endpoint().is_some() || target == Target::Unrewritten;
        is_own && !is_check
    }

    /// Logs why an answer is not sent. The one that is sent `instead` gets the id that the log has: always a new one,
    /// since to keep what the client has sent would cost every request.
    #[cold]
    pub(crate) fn report_invalid(
        &self,
        target: Option<Target>,
        problem: &str,
        instead: &mut Response,
    ) {
        let request_id = instead.identify(fresh);
        rate_limited!(
            by self.shared.sites(target).invalid;
            ERROR,
            route = self.shared.route_name(target),
            problem,
            request_id,
            "a handler's response cannot be sent as it is; its client gets 500",
        );
    }
}

impl Shared {
    /// See [`App::report_panics`].
    #[inline]
    pub(super) fn report_panics(&self, target: Option<Target>, sent_id: Option<&[u8]>) {
        if guard::has_notes() {
            self.tell_panics(target, sent_id);
        }
    }

    #[cold]
    fn tell_panics(&self, target: Option<Target>, sent_id: Option<&[u8]>) {
        let sites = self.sites(target);
        let notes = guard::take_notes();
        self.panics.fetch_add(notes.panics.len() as u64 + notes.more, Relaxed);
        for panic in notes.panics {
            rate_limited!(
                by sites.panicked;
                ERROR,
                route = self.route_name(target),
                panic = panic.message.as_str(),
                request_id = panic.id(sent_id),
                "a panic ended a request, and nothing else",
            );
            let known =
                TOKIO_COMPLAINTS.iter().find(|(complaint, _)| panic.message.contains(complaint));
            if let Some((_, instead)) = known {
                rate_limited!(
                    by sites.misused;
                    ERROR,
                    route = self.route_name(target),
                    instead,
                    "a handler uses Tokio in a way that does not work where it runs",
                );
            }
        }
    }

    fn route_name(&self, target: Option<Target>) -> &str {
        target.and_then(|target| self.facts.pattern(target)).unwrap_or("not_found")
    }

    fn sites(&self, target: Option<Target>) -> &Sites {
        let endpoint = target.and_then(Target::endpoint).map_or(self.endpoints.len(), usize::from);
        &self.sites[endpoint]
    }
}

impl Response {
    /// The id of this failed answer: the one it has already, which a layer or the handler has given it; else `id`,
    /// which it has from then on.
    fn identify(&mut self, id: impl FnOnce() -> String) -> String {
        if let Some(own) = self.header(FIELD.as_str()) {
            return own.escape_ascii().to_string();
        }
        let id = id();
        if let Ok(value) = HeaderValue::try_from(id.as_str()) {
            self.append_header(FIELD, value);
        }
        id
    }
}

impl Panic {
    /// The id of the request that it has ended.
    fn id<'s>(&'s self, sent: Option<&'s [u8]>) -> &'s str {
        usable(sent).unwrap_or(&self.request_id)
    }
}

/// The causes of an error, down to the last; its message if it has none.
fn cause(error: &Error) -> String {
    let Some(source) = error.source() else { return String::from(error.message()) };
    let mut text = source.to_string();
    let mut next = StdError::source(source);
    while let Some(cause) = next {
        let detail = cause.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&detail) {
            text.push_str(": ");
            text.push_str(&detail);
        }
        next = cause.source();
    }
    text
}
