//! From a request's head to an outcome: the edge between the application and a worker.
//!
//! ```text
//!  head ─▶ find ─▶ Target ─▶ plan (how the body is wanted) ─▶ call ─▶ Outcome
//!
//!  call:   Fixed? ─yes─▶ Outcome::Fixed, nothing else runs
//!            │no
//!          before hooks, outermost first ─refused─▶ render the error ─▶ after hooks ─▶ Ready
//!            │
//!          middleware? ─yes─▶ Later(middleware … handler … render ─▶ after hooks)
//!            │no
//!          extract, handler ─┬─ a value  ─▶ render ─▶ after hooks ─▶ Ready
//!                            ├─ a future ─▶ Later(… render ─▶ after hooks)
//!                            └─ blocking ─▶ Offload(… render ─▶ after hooks)
//! ```
//!
//! Invariants: whatever panics in here becomes an error 500, caught by the worker where nothing waits,
//! and by the future or the job otherwise. Every error is rendered
//! exactly once, by the innermost renderer that covers it. A route without hooks and middleware whose
//! handler is a plain function allocates only what extraction and the response do.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use highwater_core::http1::{BodyPlan, Head, Limits, Method, Reject};
use highwater_core::route::{self, Params};
use http::{HeaderValue, StatusCode, header};

use super::concurrency::Concurrency;
use super::endpoint::EndpointInfo;
use super::error::Error;
use super::exit::{Exit, guarded};
use super::extract::{BodyUse, Drain};
use super::fixed::FixedResponse;
use super::guard::{self, GuardedFuture, Job, Panic};
use super::handler::{Dispatch, Kind};
use super::middleware::{Layer, MiddlewareRequest, Next};
use super::priority::Priority;
use super::refusal::Refusals;
use super::request::{Incoming, Request};
use super::response::{IntoResponse, Response};
use crate::log;

/// A finished application: routes, handlers, hooks and states, ready to be served. Made by
/// [`Router::build`](super::Router::build); cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct App {
    pub(super) shared: Arc<Shared>,
}

/// How a body is planned that nobody reads: as a stream without bound, so that the connection drops it
/// as it comes.
pub(crate) const UNWANTED_BODY: BodyPlan = BodyPlan::Streamed(u64::MAX);

/// What a head was found to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An endpoint, as an index into [`App::endpoints`].
    Endpoint(u16),
    /// No route has this path; which scope is responsible for saying so.
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

/// A path's index: that of its `route::RouteId`.
pub(super) type PathId = u16;
/// An index into `Shared::scopes`. The outermost router's is 0.
pub(super) type ScopeId = u16;

/// What calling an endpoint produced: the four ways to answer.
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

/// Everything of an application.
pub(crate) struct Shared {
    pub(super) paths: route::Router<Methods>,
    /// Prefixes of nested routers, to know who says 404 below them.
    pub(super) prefixes: route::Router<ScopeId>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) infos: Vec<EndpointInfo>,
    pub(super) allowed: Vec<Allowed>,
    pub(super) allowed_anywhere: HeaderValue,
    pub(super) scopes: Vec<Scope>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    /// For whoever wants to know that the server drains.
    pub(super) drain: Arc<Drain>,
    /// Some endpoint has a limit of its own.
    pub(super) has_limits: bool,
    /// By scope.
    pub(super) refusals: Vec<Refusals>,
    /// How many panics were reported.
    pub(super) panics: Arc<AtomicU64>,
    /// The field by which clients say how important their requests are.
    pub(super) priority_field: Option<Box<str>>,
}

/// The endpoints of a path by method.
#[derive(Debug)]
pub(super) struct Methods {
    /// By the discriminant of [`Method`]; what falls back on another is written out.
    pub(super) named: [Option<u16>; Method::NAMED.len() + 1],
    /// Methods without a name here.
    pub(super) others: Vec<(Box<str>, u16)>,
    pub(super) path: PathId,
}

/// What `Allow` says of a path, and who says it.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) methods: HeaderValue,
    pub(super) scope: ScopeId,
}

/// What covers the routes of one router: its own and what it inherits, outermost first.
#[derive(Clone, Default)]
pub(super) struct Scope {
    pub(super) states: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    pub(super) before: Vec<Arc<BeforeHook>>,
    pub(super) after: Vec<Arc<AfterHook>>,
    pub(super) middleware: Vec<Arc<Layer>>,
    pub(super) renderer: Option<Arc<Renderer>>,
}

impl Scope {
    /// Gives an error in `response` its shape, if there is one without.
    #[inline]
    pub(super) fn render(&self, response: Response) -> Response {
        response.render(|error| match &self.renderer {
            Some(renderer) => guarded(|| renderer(error)).unwrap_or_else(|_| error.render()),
            None => error.render(),
        })
    }
}

pub(super) type BeforeHook = dyn Fn(&Request<'_>) -> Result<(), Error> + Send + Sync;
pub(super) type AfterHook = dyn Fn(&Request<'_>, &mut Response) + Send + Sync;
pub(super) type Renderer = dyn Fn(&Error) -> Response + Send + Sync;

pub(super) struct Endpoint {
    pub(super) handler: Box<dyn Dispatch>,
    pub(super) route: route::RouteId,
    pub(super) scope: ScopeId,
    pub(super) kind: Kind,
    pub(super) body: BodyUse,
    pub(super) body_max: Option<u64>,
    pub(super) priority: Priority,
    /// Served whatever happens.
    pub(super) is_vital: bool,
    pub(super) concurrency: Option<Arc<Concurrency>>,
}

impl App {
    pub(super) fn new(shared: Shared) -> Self {
        App { shared: Arc::new(shared) }
    }

    /// The endpoints, in the order they were registered.
    pub fn endpoints(&self) -> &[EndpointInfo] {
        &self.shared.infos
    }

    /// What `head` asks for. Leaves in `params` where its path parameters are.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>, params: &mut Params) -> Target {
        let Some((_, methods)) = self.shared.paths.find(head.path_bytes(), params) else {
            return self.shared.find_nothing(head);
        };
        match methods.named[head.method() as usize] {
            Some(endpoint) if head.method() != Method::Other => Target::Endpoint(endpoint),
            any => self.shared.find_rare(methods, any, head),
        }
    }

    /// How the target wants the request's body.
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

    /// Whether the target reads a streamed body; if not, `RequestBody::Whole(&[])` does for one.
    #[inline]
    pub(crate) fn reads_stream(&self, target: Target) -> bool {
        matches!(target, Target::Endpoint(index)
            if self.shared.endpoints[usize::from(index)].body == BodyUse::Streamed)
    }

    /// Answers a request, or says how it will be answered. Panics if an extractor or a plain handler
    /// does that no hook covers: who calls catches it, and answers with [`App::panicked`]. (Catching
    /// it here would move each response once more, which shows in the figures.)
    #[inline]
    pub(crate) fn call(&self, target: Target, incoming: Incoming<'_>) -> Outcome<'_> {
        let request = Request::new(&self.shared, target, incoming);
        let scope = self.shared.scope(target);
        if !scope.after.is_empty() || !scope.before.is_empty() {
            return self.shared.call_guarded(scope, &request);
        }
        match self.shared.run(scope, &request) {
            Outcome::Ready(response) if response.is_error() => {
                let response = scope.render(response);
                self.shared.report_panics(Some(target));
                Outcome::Ready(response)
            }
            outcome => outcome,
        }
    }

    /// What a request is answered whose handling panicked.
    pub(crate) fn panicked(&self, target: Option<Target>, panic: Panic) -> Response {
        self.fail(target, Error::internal(panic))
    }

    /// Logs and counts the panics that were caught on this thread since this was last called, as
    /// those of requests for `target`.
    pub(crate) fn report_panics(&self, target: Option<Target>) {
        self.shared.report_panics(target);
    }

    /// How many panics were caught; it goes on counting.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.panics)
    }

    /// Logs what is wrong with an answer that is sent to nobody.
    #[cold]
    pub(crate) fn report_invalid(&self, target: Option<Target>, error: &Error) {
        let problem = error.source().map(ToString::to_string);
        log::error!(
            "a handler's answer cannot be sent as it is; its client is told 500",
            route = self.shared.route_name(target),
            problem = problem.as_deref().unwrap_or_else(|| error.message()),
        );
    }

    /// A refusal by the protocol engine, in the shape of the application's errors.
    pub(crate) fn reject(&self, reject: Reject) -> Response {
        self.fail(None, Error::of_reject(reject))
    }

    /// An error of the server's own about a request (it took too long, the pool is full, …), in the
    /// shape of the application's errors.
    pub(crate) fn fail(&self, target: Option<Target>, error: Error) -> Response {
        let scope = target.map_or(&self.shared.scopes[0], |target| self.shared.scope(target));
        let plain = error.render();
        guard::guarded(|| scope.render(error.into_response())).unwrap_or(plain)
    }

    /// Whether it asks for a runtime, or anything of it is async and wants one around it.
    pub(crate) fn needs_runtime(&self) -> bool {
        let is_async =
            |info: &EndpointInfo| info.kind == Kind::Async || info.body == BodyUse::Streamed;
        self.shared.wants_runtime
            || self.shared.infos.iter().any(is_async)
            || self.shared.scopes.iter().any(|scope| !scope.middleware.is_empty())
    }

    /// Tells the application that its server drains.
    pub(crate) fn drain(&self) {
        self.shared.drain.begin();
    }

    /// Whether any handler is to run on the pool.
    pub(crate) fn needs_pool(&self) -> bool {
        self.shared.infos.iter().any(|info| info.kind == Kind::Blocking)
    }

    /// Whether the peers' addresses have to be looked up.
    pub(crate) fn needs_peer(&self) -> bool {
        self.shared.wants_peer
    }
}

/// What Tokio panics with where it misses its runtime.
const TOKIO_COMPLAINTS: [&str; 2] =
    ["there is no reactor running", "called from outside of a `task::LocalSet`"];

impl Shared {
    /// The path exists, but there is no endpoint for a method that has a name, or it has none.
    #[cold]
    fn find_rare(&self, methods: &Methods, any: Option<u16>, head: &Head<'_>) -> Target {
        let token = head.method_token();
        let other = methods.others.iter().find(|(method, _)| **method == *token);
        match other.map(|(_, endpoint)| *endpoint).or(any) {
            Some(endpoint) => Target::Endpoint(endpoint),
            None => match head.method() {
                Method::Other => {
                    Target::NotImplemented(self.allowed[usize::from(methods.path)].scope)
                }
                Method::Options => Target::Options(methods.path),
                _ => Target::NotAllowed(methods.path),
            },
        }
    }

    /// The path does not exist.
    #[cold]
    fn find_nothing(&self, head: &Head<'_>) -> Target {
        match (head.method(), head.path()) {
            (Method::Options, "*") => Target::OptionsAll,
            // We are no proxy; there is no resource to speak of, either.
            (Method::Connect, _) => Target::NotImplemented(0),
            (_, path) => match self.prefixes.find(path, &mut Params::new()) {
                Some((_, &scope)) => Target::NotFound(scope),
                None => Target::NotFound(0),
            },
        }
    }

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

    /// As [`App::call`], where hooks have to see what becomes even of a panic.
    fn call_guarded<'s>(
        self: &'s Arc<Self>,
        scope: &'s Scope,
        request: &Request<'_>,
    ) -> Outcome<'s> {
        let response = match guarded(|| self.run(scope, request)) {
            Ok(Outcome::Ready(response)) => response,
            Ok(outcome) => return outcome,
            Err(error) => error.into_response(),
        };
        let response = self.finish(scope, response, request);
        self.report_panics(Some(request.target));
        Outcome::Ready(response)
    }

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
            log::error!(
                "a panic ended a request, and nothing else",
                route = self.route_name(target),
                message = panic.0.as_str(),
            );
            if TOKIO_COMPLAINTS.iter().any(|complaint| panic.0.contains(complaint)) {
                log::error!(
                    "a handler needs a Tokio runtime, and there is none around it",
                    route = self.route_name(target),
                    instead = "make it an async fn, or add .runtime() to the Router; a blocking handler has none",
                );
            }
        }
    }

    fn route_name(&self, target: Option<Target>) -> &str {
        target.and_then(|target| self.pattern(target)).unwrap_or("not_found")
    }

    /// Hooks, then middleware or the handler.
    #[inline]
    fn run<'s>(self: &'s Arc<Self>, scope: &'s Scope, request: &Request<'_>) -> Outcome<'s> {
        if let Some(endpoint) = self.endpoint(request.target)
            && endpoint.kind == Kind::Fixed
        {
            return endpoint.handler.dispatch(request);
        }
        for hook in &scope.before {
            if let Err(error) = hook(request) {
                return Outcome::Ready(error.into_response());
            }
        }
        match scope.middleware.first() {
            None => self.answer(request),
            Some(layer) => {
                let exit = Exit::of(request);
                let next = Next::new(self.clone(), request.target);
                let future = layer(MiddlewareRequest::take(request), next, exit);
                Outcome::Later(GuardedFuture::of(future))
            }
        }
    }

    /// What the target itself has to say, after hooks and middleware.
    #[inline]
    pub(super) fn answer(&self, request: &Request<'_>) -> Outcome<'_> {
        match request.target {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].handler.dispatch(request),
            target => Outcome::Ready(self.answer_without_endpoint(target, request)),
        }
    }

    #[cold]
    fn answer_without_endpoint(&self, target: Target, request: &Request<'_>) -> Response {
        let options = |methods: &HeaderValue| {
            let mut response = Response::new(StatusCode::NO_CONTENT);
            response.set_header(header::ALLOW, methods.clone());
            response
        };
        let method = request.head.method_token();
        match target {
            Target::Options(path) => options(&self.allowed[usize::from(path)].methods),
            Target::OptionsAll => options(&self.allowed_anywhere),
            Target::NotAllowed(path) => {
                let methods = &self.allowed[usize::from(path)].methods;
                let message = format!(
                    "{method} is not for this path; it takes {}",
                    methods.to_str().unwrap_or_default()
                );
                Error::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
                    .with_header(header::ALLOW, methods.clone())
                    .into_response()
            }
            Target::NotImplemented(_) => {
                let message = format!("the method {method} is not known here");
                Error::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message).into_response()
            }
            Target::NotFound(_) | Target::Endpoint(_) => {
                Error::not_found("there is nothing at this path").into_response()
            }
        }
    }

    /// The way out: an error gets its shape, then hooks have the last word.
    #[inline]
    pub(super) fn finish(
        &self,
        scope: &Scope,
        response: Response,
        request: &Request<'_>,
    ) -> Response {
        let response = scope.render(response);
        if scope.after.is_empty() { response } else { self.run_after(scope, response, request) }
    }

    fn run_after(&self, scope: &Scope, mut response: Response, request: &Request<'_>) -> Response {
        let ran = guarded(|| {
            for hook in scope.after.iter().rev() {
                hook(request, &mut response);
            }
        });
        match ran {
            Ok(()) => response,
            Err(error) => scope.render(error.into_response()),
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
