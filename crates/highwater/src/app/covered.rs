//! Passes a request through the layers that cover its route, and also answers without a handler.
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
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use highwater_core::http::{Head, Method, OwnedHead};
use http::Extensions;

use super::application::{App, Shared};
use super::error::Error;
use super::extract::BodyUse;
use super::facts::Facts;
use super::finisher::{ResponseFinisher, guarded};
use super::guard::{self, GuardedFuture};
use super::handler::Kind;
use super::into_response::IntoResponse;
use super::layer::{Around, Ended, LayerFuture, Next};
use super::outcome::Outcome;
use super::prepared::{Covered, Template};
use super::request::{Application, Owned, OwnedRequest, Request};
use super::request_content::OwnedBody;
use super::response::Response;
use super::routed::Routed;
use super::scope::Scope;
use super::stack::{Effect, HANDLER};
use super::target::Target;

impl Application for Shared {
    #[inline]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn responds(&self, target: Target, depth: usize) -> bool {
        self.scope(target).stack.responds(depth)
    }

    fn render(&self, target: Target, response: Response) -> Response {
        self.scope(target).render(response)
    }

    fn respond(&self, request: &Request<'_>, response: Response) -> Response {
        let scope = self.scope(request.route());
        let layers = &scope.stack.segment(request.depth()).responses;
        scope.respond(layers, HANDLER, request, response)
    }

    fn pass_on(&self, request: OwnedRequest) -> (Outcome<'_>, Option<OwnedRequest>) {
        let scope = self.scope(request.route());
        let segment = scope.stack.segment(request.depth());
        let Some(around) = &segment.around else {
            return (self.pass(scope, &request), Some(request));
        };
        if !segment.requests.is_empty()
            && let Some(response) = self.ask(&request)
        {
            return (Outcome::Ready(response), Some(request));
        }
        let future = surround(&**around, ResponseFinisher::of(&request), request);
        (Outcome::Later(GuardedFuture::of(future)), None)
    }

    fn report_panics(&self, target: Option<Target>, sent_id: Option<&[u8]>) {
        Shared::report_panics(self, target, sent_id);
    }
}

/// Calls the asynchronous part at the inner end of the segment that the request is in.
fn surround(around: &Around, finisher: ResponseFinisher, request: OwnedRequest) -> LayerFuture {
    let next = Next::new(Arc::clone(request.app()), request.depth() + 1);
    around(request, next, finisher)
}

impl Shared {
    /// Like `App::call`, for a route that layers cover. Out of line, so that other routes need no room for it.
    #[inline(never)]
    pub(super) fn call_covered<'s>(
        &'s self,
        scope: &'s Scope,
        request: &Request<'_>,
    ) -> Outcome<'s> {
        let is_asked = scope.stack.answers_preflights() && request.with_head(is_preflight);
        let preflight = match is_asked {
            true => answer_preflight(scope, request),
            false => None,
        };
        let fixed = self.endpoint(request.route()).filter(|endpoint| endpoint.kind == Kind::Fixed);
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
        self.report_panics_of(request);
        outcome
    }

    /// Passes a request through one segment, and through the inner ones.
    fn pass<'s>(&'s self, scope: &'s Scope, request: &Request<'_>) -> Outcome<'s> {
        let segment = scope.stack.segment(request.depth());
        let mut at = HANDLER;
        let outcome = guarded(|| {
            if let Some(response) = scope.stack.ask(&segment.requests, request, &mut at) {
                return Outcome::Ready(response);
            }
            let Some(around) = &segment.around else { return self.answer(request) };
            let future = surround(&**around, ResponseFinisher::of(request), request.take());
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
    fn ask(&self, request: &Request<'_>) -> Option<Response> {
        let scope = self.scope(request.route());
        let segment = scope.stack.segment(request.depth());
        let mut at = HANDLER;
        let asked = guarded(|| scope.stack.ask(&segment.requests, request, &mut at));
        let response = asked.unwrap_or_else(|error| Some(error.into_response()))?;
        Some(scope.respond(&segment.responses, at, request, response))
    }

    fn report_panics_of(&self, request: &Request<'_>) {
        if guard::has_notes() {
            self.report_panics(Some(request.route()), request.sent_id());
        }
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
    /// Refusal number `n` of a request, after the layers that cover everything; `None` if it is
    /// [`App::refusal`] unchanged. It must be verified like any response before it is sent.
    pub(crate) fn refuse(&self, request: &Request<'_>, n: u32) -> Option<Response> {
        let scope = usize::from(self.shared.facts.scope_id(request.route()));
        let response = self.shared.refusals[scope].make(n)?;
        let scope = &self.shared.scopes[scope];
        let layers = &scope.stack.everywhere().responses;
        let response = scope.respond(layers, HANDLER, request, response);
        request.drop_attached();
        self.shared.report_panics_of(request);
        Some(response)
    }

    /// An error of the server's own about a request (it took too long, the pool is full, …), in the shape of
    /// the application's errors.
    pub(crate) fn fail(&self, target: Option<Target>, error: Error) -> Response {
        let scope = target.map_or(&self.shared.scopes[0], |target| self.shared.scope(target));
        scope.amend(shape(scope, error))
    }

    /// Like [`App::fail`], where layers that cover everything may look at the request.
    pub(crate) fn fail_request(&self, request: &Request<'_>, error: Error) -> Response {
        let scope = self.shared.scope(request.route());
        let layers = &scope.stack.everywhere().responses;
        let response = scope.respond(layers, HANDLER, request, shape(scope, error));
        request.drop_attached();
        response
    }

    /// A copy of a request without content, for layers that observe how its answer ended or change the server's own
    /// answers; `None` if no layer does.
    #[inline]
    pub(crate) fn retain(
        &self,
        target: Target,
        head: &Head<'_>,
        routed: &Routed,
        peer: &Option<SocketAddr>,
    ) -> Option<OwnedRequest> {
        if !self.shared.retains {
            return None;
        }
        self.retain_copy(target, head, routed, *peer)
    }

    /// The last byte of an answer was given to its connection, or the connection broke.
    pub(crate) fn ended(&self, request: &Request<'_>, ended: &Ended) {
        let scope = self.shared.scope(request.route());
        if scope.stack.wants_end() {
            scope.stack.end(request, ended);
            request.drop_attached();
            self.shared.report_panics(Some(request.route()), None);
        }
    }

    #[inline(never)]
    fn retain_copy(
        &self,
        target: Target,
        head: &Head<'_>,
        routed: &Routed,
        peer: Option<SocketAddr>,
    ) -> Option<OwnedRequest> {
        let stack = &self.shared.scope(target).stack;
        // If the answer is made at once, it cannot fail later.
        let may_fail_later = || {
            self.shared.endpoint(target).is_some_and(|endpoint| {
                matches!(endpoint.kind, Kind::Async | Kind::Blocking)
                    || endpoint.body != BodyUse::None
                    || stack.waits()
            })
        };
        let is_wanted = stack.wants_end()
            || stack.effect_on_response() == Effect::OfRequest && may_fail_later();
        is_wanted.then(|| {
            let (head, routed) = (OwnedHead::copy(head), routed.clone());
            let disconnected = OnceLock::new();
            let owned = Owned { head, routed, disconnected, app: Arc::clone(&self.seen) };
            let body = OwnedBody::Whole(Bytes::new());
            Request::of_parts(owned, target, peer, Extensions::new(), body)
        })
    }
}

/// An error in its final shape, even if its renderer fails.
fn shape(scope: &Scope, error: Error) -> Response {
    let plain = error.render();
    guard::guarded(|| scope.render(error.into_response())).unwrap_or(plain)
}
