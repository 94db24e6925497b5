//! Passes a request through the layers that cover its route, and also answers that no handler made.
//!
//! ```text
//!  preflight? ─▶ the first layer that answers it ───────────────────────────┐
//!  fixed? ─▶ prepared, or request parts of the layers that cover everything ─┤
//!  else, segment by segment: request parts ─▶ asynchronous part ─▶ … handler ─┤
//!                                                                             ▼
//!                                render ─▶ response parts, innermost first ─▶ Ready
//! ```
//!
//! A segment whose inner end waits (an asynchronous part, an async or blocking handler) leaves its response
//! parts to that future or job ([`ResponseFinisher`]).

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_core::http::{Head, Method};
use highwater_core::route::Params;

use super::dispatch::{App, Outcome, Shared, Target};
use super::error::Error;
use super::extract::BodyUse;
use super::finisher::{Kept, ResponseFinisher, guarded};
use super::fixed::{Covered, Template};
use super::guard::{self, GuardedFuture};
use super::handler::Kind;
use super::into_response::IntoResponse;
use super::layer::Ended;
use super::middleware::{MiddlewareRequest, Next};
use super::request::{Incoming, Request};
use super::response::Response;
use super::scope::Scope;
use super::stack::{Effect, HANDLER};

/// The parts of a request that are kept after its bytes are dropped: for layers that observe how its answer
/// ended, or that change the server's own answers.
#[derive(Debug)]
pub(crate) struct Known {
    target: Target,
    kept: Kept,
}

impl Shared {
    /// Like `App::call`, for a route that layers cover.
    pub(super) fn call_covered<'s>(
        self: &'s Arc<Self>,
        scope: &'s Scope,
        request: &Request<'_>,
    ) -> Outcome<'s> {
        let preflight = match scope.stack.answers_preflights() && is_preflight(request.head) {
            true => answer_preflight(scope, request),
            false => None,
        };
        let fixed = self.endpoint(request.target).filter(|endpoint| endpoint.kind == Kind::Fixed);
        let outcome = match (preflight, fixed) {
            (Some(response), _) => Outcome::Ready(response),
            (None, None) => self.pass(scope, request),
            (None, Some(endpoint)) => match &endpoint.covered {
                Covered::Not => endpoint.handler.dispatch(request),
                Covered::Prepared(response) => Outcome::Fixed(response),
                Covered::PerRequest(template) => {
                    Outcome::Ready(answer_fixed(scope, template, request))
                }
            },
        };
        self.report_panics(Some(request.target), request.head.request_id());
        outcome
    }

    /// Passes a request through one segment, and through the inner ones.
    pub(super) fn pass<'s>(
        self: &'s Arc<Self>,
        scope: &'s Scope,
        request: &Request<'_>,
    ) -> Outcome<'s> {
        let segment = scope.stack.segment(request.depth);
        let mut at = HANDLER;
        let outcome = guarded(|| {
            if let Some(response) = scope.stack.ask(&segment.requests, request, &mut at) {
                return Outcome::Ready(response);
            }
            let Some(index) = segment.around else { return self.answer(request) };
            let next = Next::new(Arc::clone(self), request.target, request.depth + 1);
            let (finisher, request) =
                (ResponseFinisher::of(request), MiddlewareRequest::take(request));
            let future = scope.stack.layer(index).surround(request, next, finisher);
            Outcome::Later(GuardedFuture::of(future))
        });
        let response = match outcome {
            Ok(Outcome::Ready(response)) => response,
            Ok(outcome) => return outcome,
            Err(error) => error.into_response(),
        };
        Outcome::Ready(scope.respond(&segment.responses, at, request, response))
    }

    /// Runs the request parts of the segment that `request` is in. An answer has been through the response
    /// parts around it.
    pub(super) fn ask(&self, request: &Request<'_>) -> Option<Response> {
        let scope = self.scope(request.target);
        let segment = scope.stack.segment(request.depth);
        let mut at = HANDLER;
        let asked = guarded(|| scope.stack.ask(&segment.requests, request, &mut at));
        let response = asked.unwrap_or_else(|error| Some(error.into_response()))?;
        Some(scope.respond(&segment.responses, at, request, response))
    }
}

/// Whether it is a CORS preflight, judged without knowing the allowed origins (Fetch §3.2.2).
fn is_preflight(head: &Head<'_>) -> bool {
    head.method() == Method::Options
        && head.headers().get("access-control-request-method").is_some()
}

fn answer_preflight(scope: &Scope, request: &Request<'_>) -> Option<Response> {
    let mut at = HANDLER;
    let asked = guarded(|| scope.stack.ask_preflight(request, &mut at));
    let response = asked.unwrap_or_else(|error| Some(error.into_response()))?;
    Some(scope.respond_to_preflight(at, request, response))
}

fn answer_fixed(scope: &Scope, template: &Template, request: &Request<'_>) -> Response {
    let everywhere = scope.stack.everywhere();
    let mut at = HANDLER;
    let asked = guarded(|| scope.stack.ask(&everywhere.requests, request, &mut at));
    let response = match asked {
        Ok(None) => template.make(),
        Ok(Some(response)) => response,
        Err(error) => error.into_response(),
    };
    scope.respond(&everywhere.responses, at, request, response)
}

/// The server's own answers, and reports of how answers ended.
impl App {
    /// Refusal number `n` of a request for `target`, after the layers that cover everything; `None` if it is
    /// [`App::refusal`] unchanged. It must be verified like any response before it is sent.
    pub(crate) fn refuse(
        &self,
        target: Target,
        incoming: Incoming<'_>,
        n: u32,
    ) -> Option<Response> {
        let scope = self.shared.scope_id(target);
        let refusals = &self.shared.refusals[usize::from(scope)];
        let response = refusals.make(n)?;
        let scope = &self.shared.scopes[usize::from(scope)];
        let request = Request::new(&self.shared, target, incoming);
        let layers = &scope.stack.everywhere().responses;
        let response = scope.respond(layers, HANDLER, &request, response);
        self.shared.report_panics(Some(target), request.head.request_id());
        Some(response)
    }

    /// An error of the server's own about a request (it took too long, the pool is full, …), in the shape of
    /// the application's errors.
    pub(crate) fn fail(&self, target: Option<Target>, error: Error) -> Response {
        let scope = target.map_or(&self.shared.scopes[0], |target| self.shared.scope(target));
        scope.amend(shape(scope, error))
    }

    /// Like [`App::fail`], where layers that cover everything may look at the request.
    pub(crate) fn fail_known(&self, known: &Known, error: Error) -> Response {
        let scope = self.shared.scope(known.target);
        let response = shape(scope, error);
        let layers = &scope.stack.everywhere().responses;
        known.kept.with(&self.shared, known.target, 0, |request| {
            scope.respond(layers, HANDLER, request, response)
        })
    }

    /// The parts of a request to keep after its bytes are dropped; `None` if no layer needs them.
    #[inline]
    pub(crate) fn know(
        &self,
        target: Target,
        head: &Head<'_>,
        params: &Params,
        peer: &Option<SocketAddr>,
    ) -> Option<Box<Known>> {
        if !self.shared.wants_known {
            return None;
        }
        self.shared.know(target, head, params, *peer)
    }

    /// The last byte of an answer was given to its connection, or the connection broke.
    pub(crate) fn ended(&self, known: &Known, ended: &Ended) {
        let scope = self.shared.scope(known.target);
        if scope.stack.wants_end() {
            let tell = |request: &Request<'_>| scope.stack.end(request, ended);
            known.kept.with(&self.shared, known.target, 0, tell);
            self.shared.report_panics(Some(known.target), None);
        }
    }
}

impl Shared {
    #[inline(never)]
    fn know(
        &self,
        target: Target,
        head: &Head<'_>,
        params: &Params,
        peer: Option<SocketAddr>,
    ) -> Option<Box<Known>> {
        let stack = &self.scope(target).stack;
        // If the answer is made at once, it cannot fail later.
        let may_fail_later = || {
            self.endpoint(target).is_some_and(|endpoint| {
                matches!(endpoint.kind, Kind::Async | Kind::Blocking)
                    || endpoint.body != BodyUse::None
                    || stack.waits()
            })
        };
        let is_wanted = stack.wants_end()
            || stack.effect_on_response() == Effect::OfRequest && may_fail_later();
        is_wanted.then(|| Box::new(Known { target, kept: Kept::of_head(head, params, peer) }))
    }
}

/// An error in its final shape, even if its renderer fails.
fn shape(scope: &Scope, error: Error) -> Response {
    let plain = error.render();
    guard::guarded(|| scope.render(error.into_response())).unwrap_or(plain)
}

impl<'a> Request<'a> {
    /// The methods that the path has routes for, in the form of `Allow`: `GET, HEAD, OPTIONS`. `None` if it
    /// has none.
    pub fn allowed_methods(&self) -> Option<&'a str> {
        let path = match self.target {
            Target::Endpoint(index) => self.app.endpoints[usize::from(index)].path,
            Target::NotAllowed(path) | Target::Options(path) => path,
            Target::OptionsAll => return self.app.allowed_anywhere.to_str().ok(),
            Target::NotFound(_) | Target::NotImplemented(_) => return None,
        };
        self.app.allowed[usize::from(path)].methods.to_str().ok()
    }
}
