//! Layers: one kind of layer, with as many parts as it needs.
//!
//! ```text
//!  request ─▶ preflight ─▶ on_request ─▶ around ┄▶ … ─▶ handler
//!                                                          │
//!  on_end ◀┄ the last byte ◀─ on_response ◀─ amend ◀─ around ┄ ◀─ … ◀┘
//! ```
//!
//! A layer is a value that holds its parts, one function each. The parts of all layers of a router are composed when
//! the application is built (`stack.rs`): a part that no layer has costs nothing per request.

mod functions;
mod local;
mod next;

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::finisher::ResponseFinisher;
use super::into_response::IntoResponse;
use super::request::{OwnedRequest, Request};
use super::request_id::RequestIds;
use super::response::Response;
use super::worker_local::{LayerKey, LayerLocal};
pub use functions::{Decision, amend, around, on_end, on_request, on_response};
#[cfg(feature = "tower")]
pub(crate) use local::around_per_worker;
#[cfg(feature = "jwt")]
pub(crate) use local::on_request_per_worker;
pub use next::Next;

/// What the asynchronous part of a layer returns. It stays on its worker and need not be `Send`.
pub(super) type LayerFuture = Pin<Box<dyn Future<Output = Response>>>;

/// A part that looks at a request.
pub(super) type Ask = dyn Fn(&Request<'_>) -> ControlFlow<Response> + Send + Sync;
/// A part that changes each response alike.
pub(super) type Amend = dyn Fn(&mut Response) + Send + Sync;
/// A part that changes a response.
pub(super) type Respond = dyn Fn(&Request<'_>, &mut Response) + Send + Sync;
/// A part that wraps what is within. Its future includes the finisher: one future for both.
pub(super) type Around = dyn Fn(OwnedRequest, Next, ResponseFinisher) -> LayerFuture + Send + Sync;
/// A part that observes how answers end.
pub(super) type End = dyn Fn(&Request<'_>, &Ended) + Send + Sync;
/// What it adds to the document of an operation that it covers.
#[cfg(feature = "openapi")]
type Document = dyn Fn(&mut super::described::Operation<'_>) + Send + Sync;
/// Makes the value that an asynchronous part has on a worker. Called on each worker's thread, before the worker
/// accepts connections.
pub(super) type MakeLocal = dyn Fn() -> LayerLocal + Send + Sync;

/// A layer around the routes of a [`Router`](super::Router): see [`Router::layer`](super::Router::layer).
///
/// It is made of functions, one for each of its parts: by [`Layer::new`] and the methods here, or, for a layer with
/// one part, by the functions of the module [`layer`](self): [`on_request`], [`on_response`], [`amend`], [`around`],
/// [`on_end`]. A layer that others can use is a function that returns one, or a type that becomes one
/// (`impl From<MyLayer> for Layer`).
///
/// # Order
///
/// The layers of a router form one list, in the order they were given, the first outermost; those of an outer
/// router surround those of a nested one. Every part keeps its layer's place in that list, whether it is
/// synchronous or not: with the layers A (synchronous), B (asynchronous), C (synchronous) a request passes
/// A, B, C and its handler, and the response C, B, A.
///
/// If a layer answers a request itself, neither that layer nor the inner ones see the answer in `amend` and `on_response`;
/// the layers around it do. So a layer that must see every answer comes first.
///
/// Preflights are the exception: they are offered to [`preflight`](Layer::preflight) before any other part
/// of any layer sees them, since a browser sends them without the credentials that another layer may
/// ask for.
///
/// # Coverage
///
/// | answer | layers | layers [everywhere](Layer::everywhere) |
/// |---|---|---|
/// | of a handler or a service; 404, 405, 501, `OPTIONS` | all parts | all parts |
/// | [`fixed`](super::fixed) | none | all parts; `amend` runs once, when the application is built |
/// | 503 under overload | none | `amend`, `on_response` |
/// | of the server about a request whose head it knows (413, 408, a timeout) | none | `amend`, `on_response` |
/// | to an invalid request | none | `amend`, of the outermost router |
///
/// [`on_end`](Layer::on_end) is called for all of these but the last.
///
/// # Panics
///
/// A panic in any part but `on_end` is answered 500, which the layers around it see like any other answer.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use highwater::{IntoResponse, Layer, Redirect, Request, Response, Router, header};
///
/// /// Sends clients of the old name to the new one.
/// fn moved(from: &'static str, to: &'static str) -> Layer {
///     let redirect = move |request: &Request<'_>| match request.header("host") {
///         Some(host) if host == from => {
///             let location = format!("https://{to}{}", request.target());
///             ControlFlow::Break(Redirect::permanent(location))
///         }
///         _ => ControlFlow::Continue(()),
///     };
///     let name = move |response: &mut Response| {
///         response.set_header(header::SERVER, to.parse().unwrap());
///     };
///     Layer::new().on_request(redirect).amend(name)
/// }
///
/// let app = Router::new().layer(moved("old.example", "new.example")).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
#[derive(Clone, Default)]
#[must_use = "give it to `Router::layer`"]
pub struct Layer {
    pub(super) preflight: Option<Arc<Ask>>,
    pub(super) on_request: Option<Arc<Ask>>,
    pub(super) amend: Option<Arc<Amend>>,
    pub(super) on_response: Option<Arc<Respond>>,
    pub(super) around: Option<Arc<Around>>,
    pub(super) on_end: Option<Arc<End>>,
    pub(super) per_worker: Option<(LayerKey, Arc<MakeLocal>)>,
    #[cfg(feature = "openapi")]
    pub(super) documents: Option<Arc<Document>>,
    pub(super) covers_everything: bool,
    pub(super) wants_peer: bool,
    /// It looks at the content of requests, also at that of handlers that take none.
    pub(super) wants_content: bool,
    pub(super) request_ids: Option<Arc<RequestIds>>,
    /// It reads Tokio's clock, which tests move.
    #[cfg(feature = "testing")]
    pub(super) keeps_time: bool,
    problems: Vec<String>,
}

impl Layer {
    /// A layer without parts, which does nothing.
    pub fn new() -> Self {
        Layer::default()
    }

    /// Answers CORS preflights (`OPTIONS` requests with `Access-Control-Request-Method`), or lets them continue. They
    /// come here before routing answers 405 or 204, and before any other part of any layer.
    pub fn preflight<F, D>(self, function: F) -> Self
    where
        F: Fn(&Request<'_>) -> D + Send + Sync + 'static,
        D: Decision + 'static,
    {
        let part: Arc<Ask> = Arc::new(move |request: &Request<'_>| function(request).decide());
        self.set("preflight", |layer| layer.preflight.replace(part).is_some())
    }

    /// Looks at each request: the function returns `ControlFlow::Continue(())` or `ControlFlow::Break(response)`, or
    /// `Ok(())` or `Err(error)`. So it lets the request continue, perhaps with a value [attached](Request::insert),
    /// or answers it. It runs at once, on the worker, and must not wait.
    pub fn on_request<F, D>(self, function: F) -> Self
    where
        F: Fn(&Request<'_>) -> D + Send + Sync + 'static,
        D: Decision + 'static,
    {
        let part: Arc<Ask> = Arc::new(move |request: &Request<'_>| function(request).decide());
        self.set("on_request", |layer| layer.on_request.replace(part).is_some())
    }

    /// Changes a response without regard to its request. It must do the same each time: for responses that were prepared
    /// when the application was built, it ran only then.
    pub fn amend<F>(self, function: F) -> Self
    where
        F: Fn(&mut Response) + Send + Sync + 'static,
    {
        let part: Arc<Amend> = Arc::new(function);
        self.set("amend", |layer| layer.amend.replace(part).is_some())
    }

    /// Changes a response, which is complete except for streamed content ([`Response::map_body`] changes that). Errors have
    /// their shape already; [`Response::error`] returns the error. The request's body is no longer available. After an
    /// async or blocking handler the request's head is a copy, and after a blocking one this runs on the pool. If the layer
    /// has both, it comes after [`amend`](Layer::amend).
    pub fn on_response<F>(self, function: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Response) + Send + Sync + 'static,
    {
        let part: Arc<Respond> = Arc::new(function);
        self.set("on_response", |layer| layer.on_response.replace(part).is_some())
    }

    /// Wraps the inner layers and the handler, and may wait. It makes the handlers that it covers async, and copies the
    /// request's head: work that need not wait is cheaper in another part.
    pub fn around<F, Fut>(self, function: F) -> Self
    where
        F: Fn(OwnedRequest, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResponse> + 'static,
    {
        self.surround(Arc::new(move |request, next, finisher: ResponseFinisher| {
            Box::pin(finisher.after(function(request, next)))
        }))
    }

    /// Is called when the last byte of an answer was given to the connection, or when the connection broke
    /// before. The request's body and attached values are no longer available. It must not wait; a panic in
    /// it is logged.
    pub fn on_end<F>(self, function: F) -> Self
    where
        F: Fn(&Request<'_>, &Ended) + Send + Sync + 'static,
    {
        let part: Arc<End> = Arc::new(function);
        self.set("on_end", |layer| layer.on_end.replace(part).is_some())
    }

    /// Lets the layer cover all answers of its router, including [`fixed`](super::fixed) answers, refusals and the server's
    /// own answers. Not for layers with an asynchronous part.
    pub fn everywhere(mut self) -> Self {
        self.covers_everything = true;
        self
    }

    /// Looks up the peers' addresses, for [`Request::peer`], in the whole application.
    pub fn peer_addresses(mut self) -> Self {
        self.wants_peer = true;
        self
    }

    /// Has the content of a request collected for [`Request::body`] although its handler takes none. A handler that takes it as it comes
    /// still does.
    #[cfg(feature = "cookies")]
    pub(crate) fn wants_content(mut self) -> Self {
        self.wants_content = true;
        self
    }

    /// It reads Tokio's clock outside of futures, too: a test that moves that clock gives it a runtime.
    pub(crate) fn keeps_time(self) -> Self {
        #[cfg(feature = "testing")]
        let this = Layer { keeps_time: true, ..self };
        #[cfg(not(feature = "testing"))]
        let this = self;
        this
    }

    /// Gives each request that it covers an id, before any part of any layer sees it. Its answer does not get it by that.
    pub(crate) fn request_ids(mut self, ids: RequestIds) -> Self {
        self.request_ids = Some(Arc::new(ids));
        self
    }

    /// Says what the layer adds to the [document](super::openapi) of the operations that it covers: the errors by which it
    /// refuses requests, and the credentials that it requires. Needs the feature `openapi`.
    ///
    /// ```
    /// use highwater::openapi::{Operation, SecurityScheme};
    /// use highwater::{Error, Layer, Request, StatusCode};
    ///
    /// fn key() -> Layer {
    ///     let check = |request: &Request<'_>| match request.header("x-key") {
    ///         Some("open sesame") => Ok(()),
    ///         _ => Err(Error::unauthorized("a key is needed")),
    ///     };
    ///     Layer::new().on_request(check).documents(|operation: &mut Operation<'_>| {
    ///         operation.security("key", &SecurityScheme::header("X-Key"));
    ///         operation.error(StatusCode::UNAUTHORIZED, "There is no key, or another one.");
    ///     })
    /// }
    /// ```
    #[cfg(feature = "openapi")]
    pub fn documents<F>(self, function: F) -> Self
    where
        F: Fn(&mut super::described::Operation<'_>) + Send + Sync + 'static,
    {
        self.set("documents", |layer| layer.documents.replace(Arc::new(function)).is_some())
    }

    /// Adds an error in its set-up, and what to write instead: [`Router::build`](super::Router::build) reports it.
    pub fn problem(mut self, problem: impl Into<String>) -> Self {
        self.problems.push(problem.into());
        self
    }

    fn surround(self, part: Arc<Around>) -> Self {
        self.set("around", |layer| layer.around.replace(part).is_some())
    }

    /// Sets a part; that it was there already is a problem, since only one of them would be called.
    fn set(mut self, part: &str, replace: impl FnOnce(&mut Self) -> bool) -> Self {
        match replace(&mut self) {
            true => self.problem(format!(
                "a layer has two functions for `{part}`, and only one would be called; give the router two layers"
            )),
            false => self,
        }
    }

    /// What is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        if self.around.is_some() && self.covers_everything {
            problems.push(String::from(
                "a layer with an asynchronous part cannot cover everything, since refusals do not \
                 wait; leave out `.everywhere()`, or use a layer of `on_request`, `on_response` and \
                 `amend`",
            ));
        }
        problems
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("preflight", self.preflight.is_some()),
            ("on_request", self.on_request.is_some()),
            ("amend", self.amend.is_some()),
            ("on_response", self.on_response.is_some()),
            ("around", self.around.is_some()),
            ("on_end", self.on_end.is_some()),
            ("everywhere", self.covers_everything),
        ];
        let named = parts.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name);
        f.write_str("Layer ")?;
        f.debug_set().entries(named).finish()
    }
}

/// How an answer ended; see [`Layer::on_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    pub(crate) is_complete: bool,
}

impl Ended {
    /// The answer's status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// How many bytes of the answer were given to the connection, its head included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time from when the request could have been started to its end.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Whether the answer was given whole; if not, the connection broke, or streamed content failed.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

/// The types that [`Router::layer`](super::Router::layer) accepts: a [`Layer`] and what becomes one, or with the
/// feature `tower` a layer of that ecosystem.
///
/// `M` is for the compiler only; it tells the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    label = "this cannot cover routes",
    note = "make one of a function: `layer::on_request(f)`, `layer::on_response(f)`, `layer::amend(f)`, \
            `layer::around(async_fn)` or `layer::on_end(f)`; or of several: `Layer::new().on_request(f).amend(g)`",
    note = "a `tower` layer needs the feature `tower`, has to be `Send + Sync + 'static` itself, and its service \
            has to be a `tower::Service<http::Request<highwater::tower::Body>, Response = http::Response<_>>` \
            that is `Clone + 'static`; one for axum's own body, such as `axum::middleware::from_fn`, becomes such a layer with \
            `tower_http::map_request_body`: see docs/coming-from-axum.md",
    note = "a value for all handlers is a state: `Router::state(value)`"
)]
pub trait IntoLayer<M> {
    /// The layer.
    #[doc(hidden)]
    fn into_layer(self) -> Layer;
}

/// The way of a native layer.
#[derive(Debug)]
pub struct ViaLayer;

#[diagnostic::do_not_recommend]
impl<L: Into<Layer>> IntoLayer<ViaLayer> for L {
    fn into_layer(self) -> Layer {
        self.into()
    }
}
