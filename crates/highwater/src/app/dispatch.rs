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

use std::any::TypeId;
use std::fmt;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use highwater_core::http::{BodyPlan, Head, Limits};
use highwater_core::route;
use http::HeaderValue;

use super::endpoint::EndpointInfo;
use super::extract::{BodyUse, Drain};
use super::find::{Allowed, Methods};
use super::fixed::{Covered, FixedResponse};
use super::guard::GuardedFuture;
use super::handler::{Dispatch, Kind};
use super::job::Job;
use super::refusal::Refusals;
use super::request::{Incoming, Request};
use super::response::Response;
use super::scope::Scope;
use super::sites::Sites;
use super::worker_local::GivenLocal;
use crate::admission::priority::Priority;
use crate::admission::route_limit::RouteLimit;

/// A finished application: routes, handlers, layers and states, ready to be served. Made by
/// [`Router::build`](super::Router::build); cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct App {
    pub(super) shared: Arc<Shared>,
}

/// The plan for a body that no handler reads: a stream without bound, so that the connection drops it as it
/// arrives.
pub(crate) const UNWANTED_BODY: BodyPlan = BodyPlan::Streamed(u64::MAX);

/// The target of a request, found by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An endpoint, as an index into [`App::endpoints`].
    Endpoint(u16),
    /// No route has this path; the index is the scope that answers 404.
    NotFound(ScopeId),
    /// The path exists, the method does not.
    NotAllowed(PathId),
    /// The path exists, and the method is none we know of.
    NotImplemented(ScopeId),
    /// `OPTIONS` of a path.
    Options(PathId),
    /// `OPTIONS *`.
    OptionsAll,
}

impl Target {
    /// The endpoint, if there is one.
    #[inline]
    pub(crate) fn endpoint(self) -> Option<u16> {
        match self {
            Target::Endpoint(endpoint) => Some(endpoint),
            _ => None,
        }
    }
}

/// A path's index: that of its `route::RouteId`.
pub(super) type PathId = u16;
/// An index into `Shared::scopes`. The outermost router's is 0.
pub(super) type ScopeId = u16;

/// The outcome of calling an endpoint: the four ways to answer.
pub enum Outcome<'a> {
    /// Prepared when the application was built.
    Fixed(&'a FixedResponse),
    /// Answered on the worker.
    Ready(Response),
    /// A future to be polled on this worker.
    Later(GuardedFuture<Response>),
    /// To be run on the pool.
    Offload(Job),
}

/// The application's function that says whose a request is: the hash, with a secret, of what it returns.
pub(super) type ClientKeys = dyn Fn(&Request<'_>, &RandomState) -> Option<u64> + Send + Sync;

/// Everything of an application.
pub(crate) struct Shared {
    pub(super) paths: route::Router<Methods>,
    /// Prefixes of nested routers, to find the scope that answers 404 below them.
    pub(super) prefixes: route::Router<ScopeId>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) infos: Vec<EndpointInfo>,
    pub(super) allowed: Vec<Allowed>,
    pub(super) allowed_anywhere: HeaderValue,
    pub(super) scopes: Vec<Scope>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    /// The flag that handlers read to learn that the server drains.
    pub(super) drain: Arc<Drain>,
    /// Some endpoint has a limit of its own, or of its group.
    pub(super) has_limits: bool,
    /// The automatic limits, and their names in metrics.
    pub(super) found_limits: Vec<(String, Arc<RouteLimit>)>,
    /// Some layer needs parts of a request after its bytes are dropped.
    pub(super) wants_known: bool,
    /// By scope.
    pub(super) refusals: Vec<Refusals>,
    /// How often failures were logged lately: one for each endpoint, the last for everything else.
    pub(super) sites: Vec<Sites>,
    /// How many panics were reported.
    pub(super) panics: Arc<AtomicU64>,
    /// The field in which clients send the priority of their requests.
    pub(super) priority_field: Option<Box<str>>,
    /// Says whose a request is.
    pub(super) clients: Option<Box<ClientKeys>>,
    /// The values per worker.
    pub(super) worker_locals: Vec<GivenLocal>,
}

/// An endpoint as built.
pub(super) struct Endpoint {
    pub(super) handler: Box<dyn Dispatch>,
    pub(super) route: route::RouteId,
    pub(super) scope: ScopeId,
    pub(super) kind: Kind,
    pub(super) body: BodyUse,
    pub(super) body_max: Option<u64>,
    pub(super) priority: Priority,
    /// Always served.
    pub(super) is_never_shed: bool,
    pub(super) concurrency: Option<Arc<RouteLimit>>,
    /// A fixed answer after its layers.
    pub(super) covered: Covered,
    pub(super) path: PathId,
}

impl App {
    pub(super) fn new(shared: Shared) -> Self {
        App { shared: Arc::new(shared) }
    }

    /// The endpoints, in the order they were registered.
    pub fn endpoints(&self) -> &[EndpointInfo] {
        &self.shared.infos
    }

    /// How to read the request's body for the target.
    #[inline]
    pub(crate) fn plan(&self, target: Target, limits: &Limits) -> BodyPlan {
        let Target::Endpoint(index) = target else {
            return UNWANTED_BODY;
        };
        let endpoint = &self.shared.endpoints[usize::from(index)];
        let max = endpoint.body_max.unwrap_or(limits.body_max);
        match endpoint.body {
            BodyUse::None => UNWANTED_BODY,
            BodyUse::Whole => BodyPlan::Whole(max),
            BodyUse::Streamed => BodyPlan::Streamed(max),
        }
    }

    /// How many bytes a body for the target may have.
    pub(crate) fn body_max(&self, target: Target, limits: &Limits) -> u64 {
        match self.plan(target, limits) {
            BodyPlan::Whole(max) | BodyPlan::Streamed(max) => max,
        }
    }

    /// Whether the target reads a streamed body; if not, it can be called with `RequestBody::Whole(&[])`.
    #[inline]
    pub(crate) fn reads_stream(&self, target: Target) -> bool {
        matches!(target, Target::Endpoint(index)
            if self.shared.endpoints[usize::from(index)].body == BodyUse::Streamed)
    }

    /// Answers a request, or returns how it will be answered; [`App::render`] makes errors the application's
    /// own. Panics if an extractor or a plain handler without layers panics: the caller catches it, and answers
    /// with [`App::panicked`]. (Catching it here would move each response once more, which is measurable; so
    /// would looking at it here.)
    #[inline]
    pub(crate) fn call(&self, target: Target, incoming: Incoming<'_>) -> Outcome<'_> {
        let request = Request::new(&self.shared, target, incoming);
        let scope = self.shared.scope(target);
        if scope.stack.is_empty() {
            self.shared.answer(&request)
        } else {
            self.shared.call_covered(scope, &request)
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

    /// Whether it asks for a runtime, or any part of it is async and needs one.
    pub(crate) fn needs_runtime(&self) -> bool {
        let is_async =
            |info: &EndpointInfo| info.kind == Kind::Async || info.body == BodyUse::Streamed;
        self.shared.wants_runtime
            || self.shared.infos.iter().any(is_async)
            || self.shared.scopes.iter().any(|scope| scope.stack.waits())
    }

    /// Notifies handlers that the server is draining.
    pub(crate) fn drain(&self) {
        self.shared.drain.begin();
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

    /// Whether the peers' addresses have to be looked up.
    pub(crate) fn needs_peer(&self) -> bool {
        self.shared.wants_peer
    }
}

impl Shared {
    pub(super) fn endpoint(&self, target: Target) -> Option<&Endpoint> {
        match target {
            Target::Endpoint(index) => Some(&self.endpoints[usize::from(index)]),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn scope(&self, target: Target) -> &Scope {
        &self.scopes[usize::from(self.scope_id(target))]
    }

    #[inline]
    pub(super) fn scope_id(&self, target: Target) -> ScopeId {
        match target {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].scope,
            Target::NotFound(scope) | Target::NotImplemented(scope) => scope,
            Target::NotAllowed(path) | Target::Options(path) => {
                self.allowed[usize::from(path)].scope
            }
            Target::OptionsAll => 0,
        }
    }

    pub(super) fn pattern(&self, target: Target) -> Option<&str> {
        self.endpoint(target).map(|endpoint| self.paths.pattern(endpoint.route))
    }

    pub(super) fn param_names(&self, target: Target) -> &[Box<str>] {
        self.endpoint(target).map_or(&[], |endpoint| self.paths.param_names(endpoint.route))
    }

    pub(super) fn state<T: Send + Sync + 'static>(&self, target: Target) -> Option<&T> {
        let wanted = TypeId::of::<T>();
        let states = &self.scope(target).states;
        states.iter().find(|(id, _)| *id == wanted)?.1.downcast_ref()
    }

    /// The outcome of the target itself, within all layers.
    #[inline]
    pub(super) fn answer(&self, request: &Request<'_>) -> Outcome<'_> {
        match request.target {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].handler.dispatch(request),
            target => Outcome::Ready(self.answer_without_endpoint(target, request)),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.infos).finish()
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Fixed(response) => f.debug_tuple("Fixed").field(response).finish(),
            Outcome::Ready(response) => f.debug_tuple("Ready").field(response).finish(),
            Outcome::Later(_) => f.write_str("Later"),
            Outcome::Offload(_) => f.write_str("Offload"),
        }
    }
}
