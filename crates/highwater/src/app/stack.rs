//! The layers of a router, composed when the application is built: which parts run for which answer.
//!
//! The list is divided after each layer that has an asynchronous part. The layers between two divisions are a
//! segment: its synchronous parts run without waiting, on the same request.
//!
//! ```text
//!  layers     A(sync)  B(async)  C(sync)  D(sync)
//!  segments   └───── 0 ──────┘   └────── 1 ──────┘ handler
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;

use super::finisher::guarded;
use super::guard::{self, Panic, drop_guarded};
use super::into_response::IntoResponse;
use super::layer::{Ended, Layer, Parts};
use super::request::Request;
use super::response::Response;

/// A layer as it was given to a router.
#[derive(Clone)]
pub(super) struct Covering {
    layer: Arc<dyn Layer>,
    parts: Parts,
}

impl Covering {
    pub(super) fn new(layer: Arc<dyn Layer>) -> Self {
        let parts = layer.parts();
        Covering { layer, parts }
    }

    /// Its problem, if it has one.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = self.layer.problems();
        if self.parts.has(Parts::AROUND) && self.parts.has(Parts::EVERYWHERE) {
            problems.push(String::from(
                "a layer with an asynchronous part cannot cover everything, since refusals do not \
                 wait; leave out `.everywhere()`, or use a layer of `on_request`, `on_response` and \
                 `amend`",
            ));
        }
        problems
    }
}

/// The layers that cover the routes of one router, outermost first.
#[derive(Clone, Default)]
pub(super) struct Stack {
    layers: Vec<Covering>,
    segments: Vec<Segment>,
    preflights: Vec<usize>,
    /// The synchronous parts of the layers that cover everything.
    everywhere: Segment,
    /// Those of `everywhere.responses` that need no request.
    amends: Vec<usize>,
    ends: Vec<usize>,
}

/// Layers by their index in [`Stack::layers`], between two that may wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) requests: Vec<usize>,
    pub(super) responses: Vec<usize>,
    /// The asynchronous part at its inner end; behind the last segment there is the handler.
    pub(super) around: Option<usize>,
}

/// The effect of layers on prepared answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// The same each time, so that it can be done once.
    Constant,
    /// Something that depends on the request.
    OfRequest,
}

/// An index behind all layers: that of the handler.
pub(super) const HANDLER: usize = usize::MAX;

impl Stack {
    /// These layers, with `inner` within them.
    pub(super) fn with(&self, inner: Vec<Covering>) -> Stack {
        let mut stack = Stack { layers: self.layers.clone(), ..Stack::default() };
        stack.layers.extend(inner);
        if stack.layers.is_empty() {
            return stack;
        }
        let responds = Parts::AMEND | Parts::ON_RESPONSE;
        let mut segment = Segment::default();
        for (index, Covering { parts, .. }) in stack.layers.iter().enumerate() {
            let note = |list: &mut Vec<usize>, wanted| {
                if parts.has(wanted) {
                    list.push(index);
                }
            };
            note(&mut stack.preflights, Parts::PREFLIGHT);
            note(&mut stack.ends, Parts::ON_END);
            note(&mut segment.requests, Parts::ON_REQUEST);
            note(&mut segment.responses, responds);
            if parts.has(Parts::EVERYWHERE) {
                note(&mut stack.everywhere.requests, Parts::ON_REQUEST);
                note(&mut stack.everywhere.responses, responds);
                note(&mut stack.amends, Parts::AMEND);
            }
            if parts.has(Parts::AROUND) {
                segment.around = Some(index);
                stack.segments.push(std::mem::take(&mut segment));
            }
        }
        stack.segments.push(segment);
        stack
    }

    /// Whether there is no layer.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    pub(super) fn segment(&self, depth: usize) -> &Segment {
        &self.segments[depth]
    }

    /// Whether a segment has response parts. There is none without layers.
    pub(super) fn responds(&self, depth: usize) -> bool {
        self.segments.get(depth).is_some_and(|segment| !segment.responses.is_empty())
    }

    pub(super) fn everywhere(&self) -> &Segment {
        &self.everywhere
    }

    /// Whether any layer may wait.
    pub(super) fn waits(&self) -> bool {
        self.segments.iter().any(|segment| segment.around.is_some())
    }

    pub(super) fn answers_preflights(&self) -> bool {
        !self.preflights.is_empty()
    }

    /// Whether a layer observes how answers end.
    pub(super) fn wants_end(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The effect of layers on a response that is the same each time, if no layer answers its request.
    pub(super) fn effect_on_response(&self) -> Effect {
        let of_request = |index: &usize| self.layers[*index].parts.has(Parts::ON_RESPONSE);
        match &self.everywhere.responses[..] {
            [] => Effect::None,
            responses if responses.iter().any(of_request) => Effect::OfRequest,
            _ => Effect::Constant,
        }
    }

    /// The effect of layers on `fixed` routes.
    pub(super) fn effect_on_fixed(&self) -> Effect {
        match self.everywhere.requests.is_empty() {
            true => self.effect_on_response(),
            false => Effect::OfRequest,
        }
    }

    /// All layers, outermost first.
    pub(super) fn layers(&self) -> impl Iterator<Item = &dyn Layer> {
        self.layers.iter().map(|covering| &*covering.layer)
    }

    pub(super) fn layer(&self, index: usize) -> &dyn Layer {
        &*self.layers[index].layer
    }

    /// Runs the request parts of `layers`, up to one that answers. `at` is the running layer; [`HANDLER`]
    /// once all have let the request continue.
    pub(super) fn ask(
        &self,
        layers: &[usize],
        request: &Request<'_>,
        at: &mut usize,
    ) -> Option<Response> {
        for &index in layers {
            *at = index;
            if let ControlFlow::Break(response) = self.layer(index).on_request(request) {
                return Some(response);
            }
        }
        *at = HANDLER;
        None
    }

    /// Like [`Stack::ask`], for a preflight.
    pub(super) fn ask_preflight(&self, request: &Request<'_>, at: &mut usize) -> Option<Response> {
        for &index in &self.preflights {
            *at = index;
            if let ControlFlow::Break(response) = self.layer(index).preflight(request) {
                return Some(response);
            }
        }
        None
    }

    /// Runs the response parts of `layers` that are around the layer `inside`, innermost first. `render`
    /// renders errors: of a panic, and of a layer that replaces the response by one.
    pub(super) fn respond(
        &self,
        layers: &[usize],
        inside: usize,
        request: &Request<'_>,
        response: Response,
        render: impl Fn(Response) -> Response,
    ) -> Response {
        self.back(layers, inside, response, render, |Covering { layer, parts }, response| {
            if parts.has(Parts::AMEND) {
                layer.amend(response);
            }
            if parts.has(Parts::ON_RESPONSE) {
                layer.on_response(request, response);
            }
        })
    }

    /// The response parts of all layers outside of `inside`, whatever their segment: for preflights, which
    /// reach a layer without passing others.
    pub(super) fn respond_to_preflight(
        &self,
        inside: usize,
        request: &Request<'_>,
        response: Response,
        render: impl Fn(Response) -> Response,
    ) -> Response {
        let all = self.segments.iter().flat_map(|segment| segment.responses.iter().copied());
        self.respond(&all.collect::<Vec<_>>(), inside, request, response, render)
    }

    /// Runs the request-independent parts of the layers that cover everything.
    pub(super) fn amend(
        &self,
        response: Response,
        render: impl Fn(Response) -> Response,
    ) -> Response {
        self.back(&self.amends, HANDLER, response, render, |covering, response| {
            covering.layer.amend(response);
        })
    }

    fn back(
        &self,
        layers: &[usize],
        mut inside: usize,
        mut response: Response,
        render: impl Fn(Response) -> Response,
        run: impl Fn(&Covering, &mut Response),
    ) -> Response {
        loop {
            let mut at = inside;
            let ran = guarded(|| {
                for &index in layers.iter().rev().filter(|index| **index < inside) {
                    at = index;
                    run(&self.layers[index], &mut response);
                    if response.is_error() {
                        let empty = Response::new(response.status());
                        response = render(std::mem::replace(&mut response, empty));
                    }
                }
            });
            let Err(error) = ran else { return response };
            let failed = render(error.into_response());
            drop_guarded(std::mem::replace(&mut response, failed));
            inside = at; // One layer fewer each time.
        }
    }

    /// Like [`Stack::amend`], once, for a prepared response.
    ///
    /// # Errors
    /// The panic of a layer.
    pub(super) fn amend_once(&self, mut response: Response) -> Result<Response, Panic> {
        let amended = guard::guarded(|| {
            for &index in self.amends.iter().rev() {
                self.layer(index).amend(&mut response);
            }
        });
        if amended.is_err() {
            guard::take_notes(); // It is reported as a problem of the application, and ends no request.
        }
        amended.map(|()| response)
    }

    /// Reports to layers how an answer ended.
    pub(super) fn end(&self, request: &Request<'_>, ended: &Ended) {
        for &index in self.ends.iter().rev() {
            // It is noted, and there is no answer left to change.
            let _ = guarded(|| self.layer(index).on_end(request, ended));
        }
    }
}
