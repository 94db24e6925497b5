//! Layers: one kind of layer, with as many parts as it needs.
//!
//! ```text
//!  request ─▶ preflight ─▶ on_request ─▶ around ┄▶ … ─▶ handler
//!                                                          │
//!  on_end ◀┄ the last byte ◀─ on_response ◀─ amend ◀─ around ┄ ◀─ … ◀┘
//! ```
//!
//! A layer declares once, when it is given to a router, which parts it has ([`Layer::parts`]). The parts of
//! all layers of a router are composed when the application is built (`stack.rs`): a part that no layer has
//! costs nothing per request.

mod functions;
mod local;
mod next;

use std::fmt;
use std::future::Future;
use std::ops::{BitOr, ControlFlow};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::finisher::ResponseFinisher;
use super::request::{OwnedRequest, Request};
use super::response::Response;
use super::worker_local::LayerLocal;
pub use functions::{Decision, amend, around, on_end, on_request, on_response};
#[cfg(feature = "tower")]
pub(crate) use local::around_per_worker;
pub use next::Next;

/// What the asynchronous part of a layer returns. It stays on its worker and need not be `Send`.
pub type LayerFuture = Pin<Box<dyn Future<Output = Response>>>;

/// A layer around the routes of a [`Router`](super::Router): see [`Router::layer`](super::Router::layer).
///
/// Most layers are made from a function, by the functions of the module [`layer`](self): [`on_request`],
/// [`on_response`], [`amend`], [`around`], [`on_end`]. A layer type of your own implements this trait,
/// overrides the parts it needs, and names them in [`parts`](Layer::parts).
///
/// # Order
///
/// The layers of a router form one list, in the order they were given, the first outermost; those of an outer
/// router surround those of a nested one. Every part keeps its layer's place in that list, whether it is
/// synchronous or not: with the layers A (synchronous), B (asynchronous), C (synchronous) a request passes
/// A, B, C and its handler, and the response C, B, A.
///
/// If a layer answers a request itself, neither that layer nor those within see the answer in `amend` and
/// `on_response`; those around it do. So a layer that must see every answer comes first.
///
/// Preflights are the exception: they are offered to [`preflight`](Layer::preflight) before any other part
/// of any layer sees them, since a browser sends them without the credentials that another layer may
/// ask for.
///
/// # What is covered
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
/// use highwater::layer::{Layer, Parts};
/// use highwater::{IntoResponse, Redirect, Request, Response, Router, header};
///
/// /// Sends clients of the old name to the new one.
/// struct Moved;
///
/// impl Layer for Moved {
///     fn parts(&self) -> Parts {
///         Parts::ON_REQUEST | Parts::AMEND
///     }
///
///     fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
///         match request.header("host") {
///             Some("old.example") => {
///                 let location = format!("https://new.example{}", request.target());
///                 ControlFlow::Break(Redirect::permanent(location).into_response())
///             }
///             _ => ControlFlow::Continue(()),
///         }
///     }
///
///     fn amend(&self, response: &mut Response) {
///         response.set_header(header::SERVER, "new".parse().unwrap());
///     }
/// }
///
/// let app = Router::new().layer(Moved).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Which parts it has, and whether it covers everything. Asked once. **A part that is not named here is
    /// never called.**
    fn parts(&self) -> Parts;

    /// An error in its set-up, and what to write instead: [`Router::build`](super::Router::build) reports it.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Answers a CORS preflight (an `OPTIONS` request with `Access-Control-Request-Method`), or lets it
    /// continue. It comes here before routing answers 405 or 204, and before any other part of any layer.
    fn preflight(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let _ = request;
        ControlFlow::Continue(())
    }

    /// Looks at a request: lets it continue, perhaps with a value [attached](Request::insert), or answers
    /// it. It runs at once, on the worker, and must not wait.
    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let _ = request;
        ControlFlow::Continue(())
    }

    /// Changes a response without regard to its request. It must do the same each time: for responses prepared
    /// when the application was built, it ran then, once and for all.
    fn amend(&self, response: &mut Response) {
        let _ = response;
    }

    /// Changes a response, which is complete but for streamed content ([`Response::map_body`] changes that).
    /// Errors have their shape already; [`Response::error`] returns the error. The request's body is no longer
    /// available. After an async or blocking handler the request's head is a copy, and after a blocking one
    /// this runs on the pool.
    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        let _ = (request, response);
    }

    /// Wraps the inner layers and the handler, and may wait. It makes what it covers async and copies the
    /// request's head: work that need not wait is cheaper in another part.
    fn around(&self, request: OwnedRequest, next: Next) -> LayerFuture {
        Box::pin(next.run(request))
    }

    /// Is called when the last byte of an answer was given to the connection, or when the connection broke
    /// before. The request's body and attached values are no longer available. It must not wait; a panic in
    /// it is logged.
    fn on_end(&self, request: &Request<'_>, ended: &Ended) {
        let _ = (request, ended);
    }

    /// The layer, covering everything of its router: [`fixed`](super::fixed) answers, refusals and the
    /// server's own answers, too. Not for layers with an asynchronous part.
    fn everywhere(self) -> Everywhere<Self>
    where
        Self: Sized,
    {
        Everywhere(self)
    }

    /// Makes the value that its asynchronous part has on each worker. Called once on each worker's thread,
    /// before the worker accepts connections.
    #[doc(hidden)]
    fn per_worker(&self) -> Option<LayerLocal> {
        None
    }

    /// Like [`around`](Layer::around), followed by the finisher: one future for both.
    #[doc(hidden)]
    fn surround(
        &self,
        request: OwnedRequest,
        next: Next,
        finisher: ResponseFinisher,
    ) -> LayerFuture {
        let future = self.around(request, next);
        Box::pin(finisher.after(future))
    }
}

/// Which parts a [`Layer`] has: `Parts::ON_REQUEST | Parts::ON_RESPONSE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// [`Layer::preflight`].
    pub const PREFLIGHT: Parts = Parts(1);
    /// [`Layer::on_request`].
    pub const ON_REQUEST: Parts = Parts(2);
    /// [`Layer::amend`].
    pub const AMEND: Parts = Parts(4);
    /// [`Layer::on_response`].
    pub const ON_RESPONSE: Parts = Parts(8);
    /// [`Layer::around`].
    pub const AROUND: Parts = Parts(16);
    /// [`Layer::on_end`].
    pub const ON_END: Parts = Parts(32);
    /// No part: it covers everything of its router; see [`Layer::everywhere`].
    pub const EVERYWHERE: Parts = Parts(64);

    /// Whether it has any of `parts`.
    pub(super) const fn has(self, parts: Parts) -> bool {
        self.0 & parts.0 != 0
    }
}

impl BitOr for Parts {
    type Output = Parts;

    fn bitor(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
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

/// The types that [`Router::layer`](super::Router::layer) accepts: a [`Layer`], or with the feature `tower` a
/// layer of that ecosystem.
///
/// `M` is for the compiler only; it tells the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    label = "this cannot cover routes",
    note = "make one of a function: `layer::on_request(f)`, `layer::on_response(f)`, `layer::amend(f)`, \
            `layer::around(async_fn)` or `layer::on_end(f)`; or implement `highwater::layer::Layer`",
    note = "a `tower` layer needs the feature `tower`, has to be `Send + Sync + 'static` itself, and its service \
            has to be a `tower::Service<http::Request<highwater::tower::Body>, Response = http::Response<_>>` \
            that is `Clone + 'static`"
)]
pub trait IntoLayer<M> {
    /// The layer, type-erased.
    #[doc(hidden)]
    fn into_layer(self) -> Arc<dyn Layer>;
}

/// The way of a native layer.
#[derive(Debug)]
pub struct ViaLayer;

#[diagnostic::do_not_recommend]
impl<L: Layer> IntoLayer<ViaLayer> for L {
    fn into_layer(self) -> Arc<dyn Layer> {
        Arc::new(self)
    }
}

/// A layer that covers everything of its router; made by [`Layer::everywhere`].
pub struct Everywhere<L>(L);

impl<L: Layer> Layer for Everywhere<L> {
    fn parts(&self) -> Parts {
        self.0.parts() | Parts::EVERYWHERE
    }

    fn problems(&self) -> Vec<String> {
        self.0.problems()
    }

    fn preflight(&self, request: &Request<'_>) -> ControlFlow<Response> {
        self.0.preflight(request)
    }

    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        self.0.on_request(request)
    }

    fn amend(&self, response: &mut Response) {
        self.0.amend(response);
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        self.0.on_response(request, response);
    }

    fn around(&self, request: OwnedRequest, next: Next) -> LayerFuture {
        self.0.around(request, next)
    }

    fn on_end(&self, request: &Request<'_>, ended: &Ended) {
        self.0.on_end(request, ended);
    }

    fn per_worker(&self) -> Option<LayerLocal> {
        self.0.per_worker()
    }

    fn surround(
        &self,
        request: OwnedRequest,
        next: Next,
        finisher: ResponseFinisher,
    ) -> LayerFuture {
        self.0.surround(request, next, finisher)
    }
}

impl<L> fmt::Debug for Everywhere<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Everywhere")
    }
}
