//! From a request's head to an outcome: the edge between the application and a worker.
//!
//! ```text
//!  head ─▶ find ─▶ Target ─▶ plan (how to read the body) ─▶ call ─▶ Outcome
//!
//!  call:   any layer? ─yes─▶ covered.rs
//!            │no
//!          extract, handler ─┬─ fixed    ─▶ Fixed
//!                            ├─ a value  ─▶ render ─▶ Ready
//!                            ├─ a future ─▶ Later(… render)
//!                            └─ blocking ─▶ Offload(… render)
//! ```
//!
//! Invariants: every panic in here becomes an error 500, caught by the worker for synchronous code, and by
//! the future or the job otherwise. Every error is rendered exactly once, by the innermost renderer that
//! covers it. A route without layers whose handler is a plain function allocates only what extraction and the
//! response do.

use std::net::SocketAddr;
#[cfg(feature = "tower")]
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use highwater_core::http::{BodyPlan, Head, Limits};

use super::application::{App, Shared};
use super::disconnected::Disconnected;
use super::draining::Draining;
use super::endpoint::EndpointInfo;
use super::extract::BodyUse;
use super::handler::Kind;
use super::outcome::Outcome;
use super::request::{Application, Request};
use super::request_content::RequestBody;
use super::response::Response;
use super::routed::Routed;
use super::target::Target;

impl App {
    pub(super) fn new(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        App { seen: Arc::clone(&shared) as Arc<dyn Application>, shared }
    }

    /// The endpoints, in the order they were registered.
    pub fn endpoints(&self) -> &[EndpointInfo] {
        &self.shared.infos
    }

    /// The path of the page that describes the application, if there is one.
    pub(crate) fn documentation(&self) -> Option<&str> {
        self.shared.documentation.as_deref()
    }

    /// How to read the request's body for the target.
    #[inline]
    pub(crate) fn plan(&self, target: Target, limits: &Limits) -> BodyPlan {
        let Target::Endpoint(index) = target else {
            return BodyPlan::Unwanted;
        };
        let endpoint = &self.shared.endpoints[usize::from(index)];
        let max = endpoint.body_max.unwrap_or(limits.body_max);
        match endpoint.body {
            BodyUse::None => BodyPlan::Unwanted,
            BodyUse::Whole => BodyPlan::Whole(max),
            BodyUse::Streamed => BodyPlan::Streamed(max),
        }
    }

    /// How many bytes a body for the target may have.
    pub(crate) fn body_max(&self, target: Target, limits: &Limits) -> u64 {
        self.plan(target, limits).max()
    }

    /// Whether the target reads the content of its requests.
    pub(crate) fn reads_content(&self, target: Target) -> bool {
        matches!(target, Target::Endpoint(index)
            if self.shared.endpoints[usize::from(index)].body != BodyUse::None)
    }

    /// Whether the target reads a streamed body; if not, it can be called with `RequestBody::Whole(&[])`.
    #[inline]
    pub(crate) fn reads_stream(&self, target: Target) -> bool {
        matches!(target, Target::Endpoint(index)
            if self.shared.endpoints[usize::from(index)].body == BodyUse::Streamed)
    }

    /// A request as the worker has it: what [`App::find`] has found for its head, its content, and its connection's
    /// signal that the client has disconnected. `peer` is `None` unless the driver was asked for it
    /// ([`App::needs_peer`]).
    #[inline]
    pub(crate) fn request<'a>(
        &'a self,
        target: Target,
        head: &'a Head<'a>,
        routed: &'a Routed,
        body: RequestBody<'a>,
        peer: Option<SocketAddr>,
        disconnected: &'a OnceLock<Disconnected>,
    ) -> Request<'a> {
        let app = (&self.seen, &self.shared.facts, target);
        Request::lent(app, (head, routed), body, peer, disconnected)
    }

    /// Answers a request, or returns how it will be answered; [`App::render`] makes errors the application's
    /// own. Panics if an extractor or a plain handler without layers panics: the caller catches it, and answers
    /// with [`App::panicked`]. (Catching it here would move each response once more, which is measurable; so
    /// would looking at it here.)
    #[inline]
    pub(crate) fn call(&self, request: &Request<'_>) -> Outcome<'_> {
        if let Target::Endpoint(index) = request.route() {
            let endpoint = &self.shared.endpoints[usize::from(index)];
            if !endpoint.is_covered {
                return endpoint.handler.dispatch(request);
            }
        }
        let scope = self.shared.scope(request.route());
        match scope.stack.is_empty() {
            true => self.shared.answer(request),
            false => self.shared.call_covered(scope, request),
        }
    }

    /// Gives an error that [`App::call`] has returned the shape of the application's errors (what layers cover
    /// has it already), and logs a failure.
    #[inline]
    pub(crate) fn render(&self, target: Target, head: &Head<'_>, outcome: &mut Outcome<'_>) {
        if let Outcome::Ready(response) = outcome
            && response.is_failure()
        {
            self.render_failure(target, head, response);
        }
    }

    #[cold]
    fn render_failure(&self, target: Target, head: &Head<'_>, response: &mut Response) {
        let scope = self.shared.scope(target);
        if scope.stack.is_empty() && response.is_error() {
            let empty = Response::new(response.status());
            *response = scope.render(std::mem::replace(response, empty));
            self.shared.report_panics(Some(target), head.request_id());
        }
        if response.status().is_server_error() {
            self.report_failure(target, head.method_token(), head.request_id(), response);
        }
    }

    /// A server with these limits serves it from now on. What a layer has changed is collected behind the worker, which
    /// has checked its own limit before.
    #[cfg(feature = "tower")]
    pub(crate) fn served_within(&self, limits: &Limits) {
        self.shared.facts.body_max.fetch_max(limits.body_max, Relaxed);
    }

    #[cfg(not(feature = "tower"))]
    pub(crate) fn served_within(&self, _: &Limits) {}

    /// Whether it asks for a runtime, or any part of it is async and needs one.
    pub(crate) fn needs_runtime(&self) -> bool {
        let is_async =
            |info: &EndpointInfo| info.kind == Kind::Async || info.body == BodyUse::Streamed;
        self.shared.wants_runtime
            || self.shared.infos.iter().any(is_async)
            || self.shared.scopes.iter().any(|scope| scope.stack.waits())
    }

    /// Whether a layer reads Tokio's clock, which only stands still and moves as a test says inside a runtime.
    #[cfg(feature = "testing")]
    pub(crate) fn keeps_time(&self) -> bool {
        let mut layers = self.shared.scopes.iter().flat_map(|scope| scope.stack.layers());
        layers.any(|layer| layer.keeps_time)
    }

    /// Notifies handlers that the server is draining.
    pub(crate) fn drain(&self) {
        self.shared.facts.drain.begin();
    }

    /// What handlers are notified by.
    pub(crate) fn draining(&self) -> Draining {
        Draining::of(&self.shared.facts.drain)
    }

    /// Whether a future may await the pool: that of an asynchronous layer around a blocking handler.
    pub(super) fn awaits_pool(&self) -> bool {
        self.shared.infos.iter().any(|info| info.kind == Kind::Blocking)
            && self.shared.scopes.iter().any(|scope| scope.stack.waits())
    }

    /// The automatic concurrency limits: the name of each, and functions that return the limit and the number
    /// of permits held.
    pub(crate) fn found_limits(
        &self,
    ) -> impl Iterator<Item = (&str, impl Fn() -> u32 + use<>, impl Fn() -> u32 + use<>)> {
        self.shared.found_limits.iter().map(|(name, limit)| {
            let (of, in_flight) = (Arc::clone(limit), Arc::clone(limit));
            (name.as_str(), move || of.limit(), move || in_flight.held())
        })
    }

    /// Whether the server announces that clients can send an extended CONNECT (RFC 8441 §3).
    pub(crate) fn takes_connect(&self) -> bool {
        self.shared.takes_connect
    }

    /// Whether the peers' addresses have to be looked up.
    pub(crate) fn needs_peer(&self) -> bool {
        self.shared.wants_peer
    }
}

impl Shared {
    /// The outcome of the target itself, within all layers.
    #[inline]
    pub(super) fn answer(&self, request: &Request<'_>) -> Outcome<'_> {
        match request.route() {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].handler.dispatch(request),
            target => Outcome::Ready(self.answer_without_endpoint(target, request)),
        }
    }
}
