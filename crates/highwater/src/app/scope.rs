//! The scope of a router: its own layers and settings, and those it inherits.

use std::sync::Arc;

use super::error::Error;
use super::finisher::guarded;
use super::request::Request;
use super::response::Response;
use super::stack::{Effect, Responding, Stack};
use crate::admission::route_limit::RouteLimit;

/// Renders an error.
pub(super) type Renderer = dyn Fn(&Error) -> Response + Send + Sync;

/// The layers and settings of one router's routes, outermost first.
#[derive(Clone, Default)]
pub(super) struct Scope {
    pub(super) stack: Stack,
    pub(super) renderer: Option<Arc<Renderer>>,
    /// What the renderer returns.
    #[cfg(feature = "openapi")]
    pub(super) renders: Option<&'static str>,
    pub(super) concurrency: Option<Arc<RouteLimit>>,
}

impl Scope {
    /// Renders the error in `response`, if it has one that is not rendered.
    #[inline]
    pub(super) fn render(&self, response: Response) -> Response {
        response.render(|error| match &self.renderer {
            Some(renderer) => guarded(|| renderer(error)).unwrap_or_else(|_| error.render()),
            None => error.render(),
        })
    }

    /// Whether a layer needs requests after their bytes are dropped.
    pub(super) fn retains(&self) -> bool {
        self.stack.wants_end() || self.stack.effect_on_response() == Effect::OfRequest
    }

    /// Runs the response parts of `layers` around the layer `inside`.
    pub(super) fn respond(
        &self,
        layers: &[Responding],
        inside: usize,
        request: &Request<'_>,
        response: Response,
    ) -> Response {
        let response = self.render(response);
        self.stack.respond(layers.iter(), inside, request, response, |made| self.render(made))
    }

    /// Runs the response parts for a preflight that the layer `inside` has answered.
    pub(super) fn respond_to_preflight(
        &self,
        inside: usize,
        request: &Request<'_>,
        response: Response,
    ) -> Response {
        let response = self.render(response);
        self.stack.respond_to_preflight(inside, request, response, |made| self.render(made))
    }

    /// Applies the changes that layers that cover everything make to each response alike.
    pub(super) fn amend(&self, response: Response) -> Response {
        self.stack.amend(response, |made| self.render(made))
    }
}
