//! How an application is described: routes, groups of routes, and what covers them.
//!
//! A [`Router`] only writes down what it is told, in any order; [`Router::build`] makes an [`App`] of
//! it, or says everything that is wrong with it at once.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::Method;

use super::build::{BuildError, build};
use super::dispatch::{AfterHook, App, BeforeHook, Renderer};
use super::error::Error;
use super::handler::{Description, Dispatch, Handler, erase};
use super::middleware::{self, Layer, MiddlewareRequest, Next};
use super::request::Request;
use super::response::{IntoResponse, Response};

/// Routes, and what covers them.
///
/// # Paths
///
/// `/users/me` is that path. `{id}` stands for one segment that is not empty, `{*rest}`, at the end,
/// for at least one byte, slashes included. Literal text goes before `{param}`, and that before
/// `{*rest}`; the order of registration never matters. Paths are matched as they arrive: `/a%62` is
/// not `/ab`, and `/users/` not `/users`.
///
/// # What is answered without a route
///
/// * `HEAD` is answered by the route for `GET`, `OPTIONS` with 204 and `Allow`, unless they are
///   routed themselves. `OPTIONS *` lists every method the application takes.
/// * A path without route is 404; a path that is not for the method 405, with `Allow`; a method that
///   is none known to RFC 9110 or RFC 5789 501. If two patterns match a path, the more specific one
///   decides, even if only the other has the method.
///
/// # What covers a route
///
/// Hooks ([`before`](Router::before), [`after`](Router::after)), [`middleware`](Router::middleware),
/// the renderer of [`errors`](Router::errors) and [`state`](Router::state)s cover the whole router
/// they are given to, wherever they stand among its routes: its routes, those of nested routers, and
/// what is answered without a route; for a nested router, that is everything below its prefix. So a
/// hook that asks for a password cannot be got round by way of a 404. They apply from the outermost
/// router to the innermost and, within one router, in the order they were given; `after` hooks in the
/// reverse order. All hooks surround all middleware.
///
/// ```
/// use highwater::{Error, Request, Response, Router, fixed};
/// use highwater::header;
///
/// fn hello() -> &'static str {
///     "Hello, World!"
/// }
///
/// fn authorize(request: &Request<'_>) -> Result<(), Error> {
///     match request.header("authorization") {
///         Some("Bearer open sesame") => Ok(()),
///         _ => Err(Error::unauthorized("a token is needed")),
///     }
/// }
///
/// let admin = Router::new()
///     .before(authorize)
///     .get("/stats", || "1 visitor");
///
/// let app = Router::new()
///     .get("/", hello)
///     .get("/health", fixed("ok"))
///     .nest("/admin", admin)
///     .after(|_: &Request<'_>, response: &mut Response| {
///         response.set_header(header::X_CONTENT_TYPE_OPTIONS, "nosniff".parse().unwrap());
///     })
///     .build()?;
/// # Ok::<(), highwater::BuildError>(())
/// ```
#[derive(Default)]
pub struct Router {
    pub(super) routes: Vec<Route>,
    pub(super) nested: Vec<(String, Router)>,
    pub(super) states: Vec<GivenState>,
    pub(super) before: Vec<Arc<BeforeHook>>,
    pub(super) after: Vec<Arc<AfterHook>>,
    pub(super) middleware: Vec<Arc<Layer>>,
    pub(super) renderer: Option<Arc<Renderer>>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    pub(super) priority_field: Option<String>,
}

/// A route as it was registered.
pub(super) struct Route {
    /// `None` for all.
    pub(super) methods: Option<Vec<Method>>,
    pub(super) path: String,
    pub(super) handler: Box<dyn Dispatch>,
    pub(super) description: Description,
}

pub(super) struct GivenState {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
    pub(super) value: Arc<dyn Any + Send + Sync>,
}

impl Router {
    /// A router without routes.
    pub fn new() -> Self {
        Router::default()
    }

    /// Routes `GET`, and `HEAD` unless that is routed itself.
    #[must_use]
    pub fn get<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::GET, path, handler)
    }

    /// Routes `POST`.
    #[must_use]
    pub fn post<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::POST, path, handler)
    }

    /// Routes `PUT`.
    #[must_use]
    pub fn put<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::PUT, path, handler)
    }

    /// Routes `PATCH`.
    #[must_use]
    pub fn patch<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::PATCH, path, handler)
    }

    /// Routes `DELETE`.
    #[must_use]
    pub fn delete<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::DELETE, path, handler)
    }

    /// Routes `HEAD`, instead of leaving it to the handler for `GET`.
    #[must_use]
    pub fn head<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::HEAD, path, handler)
    }

    /// Routes `OPTIONS`, instead of the answer 204 with `Allow`.
    #[must_use]
    pub fn options<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::OPTIONS, path, handler)
    }

    /// Routes a method, which may be one of the application's own.
    #[must_use]
    pub fn route<M: 'static>(self, method: Method, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(vec![method]), path, handler)
    }

    /// Routes several methods to one endpoint.
    #[must_use]
    pub fn on<M: 'static>(self, methods: &[Method], path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(methods.to_vec()), path, handler)
    }

    /// Routes whatever method is not routed otherwise, known or unknown, `HEAD` and `OPTIONS` included.
    #[must_use]
    pub fn any<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(None, path, handler)
    }

    /// Adds a router below `prefix`, which begins with a slash and does not end with one. It may have
    /// parameters; they come before those of the routes below. The path `/` of `router` becomes
    /// `prefix` itself.
    #[must_use]
    pub fn nest(mut self, prefix: &str, router: Router) -> Self {
        self.nested.push((prefix.to_string(), router));
        self
    }

    /// Adds the routes of `router`, each covered by what `router` has and by what this router has.
    #[must_use]
    pub fn merge(self, router: Router) -> Self {
        self.nest("", router)
    }

    /// Provides a value to handlers ([`State`](super::State)), hooks and middleware, by its type. A
    /// nested router may provide another one of the same type to its own.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.push(GivenState {
            id: TypeId::of::<T>(),
            name: type_name::<T>(),
            value: Arc::new(state),
        });
        self
    }

    /// Runs `hook` before each request's handler. It may refuse the request, or
    /// [attach a value](Request::insert) to it. It runs at once, on the worker, and costs no
    /// allocation and no future.
    #[must_use]
    pub fn before<F>(mut self, hook: F) -> Self
    where
        F: Fn(&Request<'_>) -> Result<(), Error> + Send + Sync + 'static,
    {
        self.before.push(Arc::new(hook));
        self
    }

    /// Runs `hook` on each response, when it is complete but for streamed content. Errors are rendered
    /// already; see [`Response::error`]. For async and blocking handlers, the request's head is copied
    /// so that the hook can see it; its body is gone. For blocking handlers, the hook runs on the pool.
    #[must_use]
    pub fn after<F>(mut self, hook: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Response) + Send + Sync + 'static,
    {
        self.after.push(Arc::new(hook));
        self
    }

    /// Puts an async function around handlers. It makes what it covers async and copies the request's
    /// head; what need not wait is cheaper as a hook. [`fixed`](super::fixed) responses are not covered.
    ///
    /// ```
    /// use highwater::{MiddlewareRequest, Next, Response, Router};
    ///
    /// async fn timing(request: MiddlewareRequest, next: Next) -> Response {
    ///     let start = std::time::Instant::now();
    ///     let response = next.run(request).await;
    ///     response.with_header("server-timing", format!("app;dur={}", start.elapsed().as_millis()))
    /// }
    ///
    /// let app = Router::new().middleware(timing).get("/", || "Hello");
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn middleware<F, Fut>(mut self, middleware: F) -> Self
    where
        F: Fn(MiddlewareRequest, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResponse> + 'static,
    {
        self.middleware.push(middleware::erase(middleware));
        self
    }

    /// Renders every error, ours and the application's, in the service's own shape. The innermost
    /// renderer that covers a route is used; that of the outermost router also renders what the
    /// protocol engine refuses.
    ///
    /// A response with status 200 gets the error's status; header fields of the error (`Allow`,
    /// `Retry-After`, …) are added unless the response has them. Without a renderer errors are
    /// `{"error":{"code":…,"message":…}}`.
    ///
    /// ```
    /// use highwater::{Error, Html, Router};
    ///
    /// let app = Router::new()
    ///     .errors(|error: &Error| Html(format!("<h1>{}</h1>", error.status())));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn errors<F, R>(mut self, renderer: F) -> Self
    where
        F: Fn(&Error) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.renderer = Some(Arc::new(move |error: &Error| renderer(error).into_response()));
        self
    }

    /// Has the peers' addresses looked up, for hooks and middleware that call [`Request::peer`]. A
    /// handler that takes [`PeerAddr`](super::PeerAddr) asks by itself.
    #[must_use]
    pub fn peer_addresses(mut self) -> Self {
        self.wants_peer = true;
        self
    }

    /// Puts a Tokio runtime around plain handlers and hooks, so that they can spawn tasks and make timers:
    /// `tokio::spawn`, `tokio::task::spawn_local`, `tokio::runtime::Handle::current`.
    ///
    /// An application has one anyway if a handler is an `async fn` or takes a
    /// [`BodyStream`](super::BodyStream), or if there is middleware; and a worker gets one with the first
    /// streamed answer or upgraded connection. It costs a worker that waits a few system calls more, so an
    /// application of plain handlers has none unless it asks. Each worker has a runtime of its own, on its
    /// own thread; [`blocking`](super::blocking) handlers run outside of it.
    ///
    /// ```
    /// use highwater::{Router, StatusCode};
    ///
    /// fn notify() -> StatusCode {
    ///     tokio::task::spawn_local(async { /* tell somebody */ });
    ///     StatusCode::ACCEPTED
    /// }
    ///
    /// let app = Router::new().runtime().post("/notify", notify);
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn runtime(mut self) -> Self {
        self.wants_runtime = true;
        self
    }

    /// Lets clients say how important their requests are, in the header field `name`: `high`, `normal`
    /// or `low`, or an urgency as in `u=1` (RFC 9218; 0 to 2 are high, 3 is normal, 4 to 7 are low).
    /// It goes before the priority of the route. Only of the outermost router, and only for clients
    /// that can be trusted not to call everything urgent: by default, none can.
    #[must_use]
    pub fn priority_field(mut self, name: impl Into<String>) -> Self {
        self.priority_field = Some(name.into());
        self
    }

    /// Makes an application of it.
    ///
    /// # Errors
    /// Everything that is wrong: malformed and conflicting paths, methods routed twice, states that
    /// handlers want and nobody provides, bodies taken twice.
    pub fn build(self) -> Result<App, BuildError> {
        build(self)
    }

    fn register<M: 'static>(
        mut self,
        methods: Option<Vec<Method>>,
        path: &str,
        handler: impl Handler<M>,
    ) -> Self {
        let description = Description::of(&handler);
        let (path, handler) = (path.to_string(), erase(handler));
        self.routes.push(Route { methods, path, handler, description });
        self
    }
}

impl Route {
    /// The methods as they are shown: separated by commas, or `*`.
    pub(super) fn methods_text(&self) -> String {
        match &self.methods {
            None => String::from("*"),
            Some(methods) => methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.iter().map(|route| (route.methods_text(), &route.path));
        f.debug_struct("Router")
            .field("routes", &routes.collect::<Vec<_>>())
            .field("nested", &self.nested)
            .finish_non_exhaustive()
    }
}
