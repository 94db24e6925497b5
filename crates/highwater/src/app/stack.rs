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
use super::layer::{Amend, Around, Ask, End, Ended, Layer, Respond};
use super::request::Request;
use super::request_id::RequestIds;
use super::response::Response;

/// The layers that cover the routes of one router, outermost first.
#[derive(Clone, Default)]
pub(super) struct Stack {
    layers: Vec<Layer>,
    segments: Vec<Segment>,
    preflights: Vec<Asking>,
    /// The synchronous parts of the layers that cover everything.
    everywhere: Segment,
    /// Those of `everywhere.responses` that need no request.
    amends: Vec<Responding>,
    ends: Vec<Arc<End>>,
    /// How requests get ids, if a layer gives them.
    request_ids: Option<Arc<RequestIds>>,
}

/// The parts of layers between two that may wait.
#[derive(Clone, Default)]
pub(super) struct Segment {
    pub(super) requests: Vec<Asking>,
    pub(super) responses: Vec<Responding>,
    /// The asynchronous part at its inner end; behind the last segment there is the handler.
    pub(super) around: Option<Arc<Around>>,
}

/// The part of a layer that looks at requests.
#[derive(Clone)]
pub(super) struct Asking {
    /// The layer's place in [`Stack::layers`].
    index: usize,
    part: Arc<Ask>,
}

/// The parts of a layer that change responses.
#[derive(Clone)]
pub(super) struct Responding {
    index: usize,
    amend: Option<Arc<Amend>>,
    on_response: Option<Arc<Respond>>,
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
    pub(super) fn with(&self, inner: Vec<Layer>) -> Stack {
        let mut stack = Stack { layers: self.layers.clone(), ..Stack::default() };
        stack.layers.extend(inner);
        if stack.layers.is_empty() {
            return stack;
        }
        let mut segment = Segment::default();
        for (index, layer) in stack.layers.iter().enumerate() {
            let asking = |part: &Option<Arc<Ask>>| part.clone().map(|part| Asking { index, part });
            let responding = |amend: &Option<Arc<Amend>>, on_response: &Option<Arc<Respond>>| {
                let (amend, on_response) = (amend.clone(), on_response.clone());
                let is_there = amend.is_some() || on_response.is_some();
                is_there.then_some(Responding { index, amend, on_response })
            };
            stack.preflights.extend(asking(&layer.preflight));
            stack.ends.extend(layer.on_end.clone());
            stack.request_ids = layer.request_ids.clone().or(stack.request_ids);
            segment.requests.extend(asking(&layer.on_request));
            segment.responses.extend(responding(&layer.amend, &layer.on_response));
            if layer.covers_everything {
                let everywhere = &mut stack.everywhere;
                everywhere.requests.extend(asking(&layer.on_request));
                everywhere.responses.extend(responding(&layer.amend, &layer.on_response));
                stack.amends.extend(responding(&layer.amend, &None));
            }
            if let Some(around) = &layer.around {
                segment.around = Some(Arc::clone(around));
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

    /// How requests get ids, by the innermost layer that gives them.
    pub(super) fn request_ids(&self) -> Option<&RequestIds> {
        self.request_ids.as_deref()
    }

    /// Whether a layer looks at content that handlers do not take.
    pub(super) fn wants_content(&self) -> bool {
        self.layers.iter().any(|layer| layer.wants_content)
    }

    /// Whether a layer observes how answers end.
    pub(super) fn wants_end(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The effect of layers on a response that is the same each time, if no layer answers its request.
    pub(super) fn effect_on_response(&self) -> Effect {
        let of_request = |responding: &Responding| responding.on_response.is_some();
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
    pub(super) fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter()
    }

    /// Runs the request parts of `layers`, up to one that answers. `at` is the running layer; [`HANDLER`]
    /// once all have let the request continue.
    pub(super) fn ask(
        &self,
        layers: &[Asking],
        request: &Request<'_>,
        at: &mut usize,
    ) -> Option<Response> {
        for Asking { index, part } in layers {
            *at = *index;
            if let ControlFlow::Break(response) = part(request) {
                return Some(response);
            }
        }
        *at = HANDLER;
        None
    }

    /// Like [`Stack::ask`], for a preflight.
    pub(super) fn ask_preflight(&self, request: &Request<'_>, at: &mut usize) -> Option<Response> {
        self.ask(&self.preflights, request, at)
    }

    /// Runs the response parts of `layers` that are around the layer `inside`, innermost first. `render`
    /// renders errors: of a panic, and of a layer that replaces the response by one.
    pub(super) fn respond<'l>(
        &self,
        layers: impl DoubleEndedIterator<Item = &'l Responding> + Clone,
        inside: usize,
        request: &Request<'_>,
        response: Response,
        render: impl Fn(Response) -> Response,
    ) -> Response {
        back(layers, inside, response, render, |responding, response| {
            if let Some(amend) = &responding.amend {
                amend(response);
            }
            if let Some(on_response) = &responding.on_response {
                on_response(request, response);
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
        let all = self.segments.iter().flat_map(|segment| &segment.responses);
        self.respond(all, inside, request, response, render)
    }

    /// Runs the request-independent parts of the layers that cover everything.
    pub(super) fn amend(
        &self,
        response: Response,
        render: impl Fn(Response) -> Response,
    ) -> Response {
        back(self.amends.iter(), HANDLER, response, render, |responding, response| {
            responding.amend.iter().for_each(|amend| amend(response));
        })
    }

    /// Like [`Stack::amend`], once, for a prepared response.
    ///
    /// # Errors
    /// The panic of a layer.
    pub(super) fn amend_once(&self, mut response: Response) -> Result<Response, Panic> {
        let amended = guard::guarded(|| {
            for responding in self.amends.iter().rev() {
                responding.amend.iter().for_each(|amend| amend(&mut response));
            }
        });
        if amended.is_err() {
            guard::take_notes(); // It is reported as a problem of the application, and ends no request.
        }
        amended.map(|()| response)
    }

    /// Reports to layers how an answer ended.
    pub(super) fn end(&self, request: &Request<'_>, ended: &Ended) {
        for end in self.ends.iter().rev() {
            // It is noted, and there is no answer left to change.
            let _ = guarded(|| end(request, ended));
        }
    }
}

/// Runs the response parts of `layers` that are around the layer `inside`, innermost first.
fn back<'l>(
    layers: impl DoubleEndedIterator<Item = &'l Responding> + Clone,
    mut inside: usize,
    mut response: Response,
    render: impl Fn(Response) -> Response,
    run: impl Fn(&Responding, &mut Response),
) -> Response {
    loop {
        let mut at = inside;
        let ran = guarded(|| {
            for responding in layers.clone().rev().filter(|layer| layer.index < inside) {
                at = responding.index;
                run(responding, &mut response);
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
