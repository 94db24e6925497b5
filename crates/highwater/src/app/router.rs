//! The description of an application: routes, groups of routes, and their layers.
//!
//! A [`Router`] only collects routes and layers, in any order; [`Router::build`] (`build.rs`) makes an
//! application from them, or reports all errors at once.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use http::Method;

use super::dispatch::ClientKeys;
use super::error::Error;
use super::handler::{Description, Dispatch, Handler, erase};
use super::into_response::IntoResponse;
use super::layer::IntoLayer;
use super::scope::Renderer;
use super::stack::Covering;
use super::worker_local::{GivenLocal, PerWorker};
use crate::admission::route_limit::Concurrency;

/// Routes, and the layers that cover them.
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
/// * A path without a route is answered 404; a path that has no route for the method 405, with `Allow`; a
///   method that neither RFC 9110 nor RFC 5789 defines 501. If two patterns match a path, the more specific
///   one decides, even if only the other has the method.
///
/// # What covers a route
///
/// [Layers](Router::layer), the renderer of [`errors`](Router::errors) and [`state`](Router::state)s cover
/// the whole router they are given to, wherever they appear among its routes: its routes, those of nested
/// routers, and requests without a route; for a nested router, that is everything below its prefix. So a 404
/// cannot bypass a layer that asks for a password. They apply from the outermost router to the innermost and,
/// within one router, in the order they were given; to responses in the reverse order.
///
/// ```
/// use highwater::layers::security_headers;
/// use highwater::{Error, Request, Router, fixed, layer};
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
///     .layer(layer::on_request(authorize))
///     .get("/stats", || "1 visitor");
///
/// let app = Router::new()
///     .layer(security_headers())
///     .get("/", hello)
///     .get("/health", fixed("ok"))
///     .nest("/admin", admin)
///     .build()?;
/// # Ok::<(), highwater::BuildError>(())
/// ```
#[derive(Default)]
pub struct Router {
    pub(super) routes: Vec<Route>,
    pub(super) nested: Vec<(String, Router)>,
    pub(super) states: Vec<GivenState>,
    pub(super) layers: Vec<Covering>,
    pub(super) renderer: Option<Arc<Renderer>>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    pub(super) priority_field: Option<String>,
    pub(super) clients: Option<Box<ClientKeys>>,
    pub(super) worker_locals: Vec<GivenLocal>,
    /// Fallback routes: used if no other route of this router or a nested one matches.
    pub(super) fallbacks: Vec<Route>,
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

    /// Routes every method that is not routed otherwise, known or unknown, `HEAD` and `OPTIONS` included.
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

    /// Adds the routes of `router`, each covered by the layers of `router` and of this router.
    #[must_use]
    pub fn merge(self, router: Router) -> Self {
        self.nest("", router)
    }

    /// Provides a value to handlers ([`State`](super::State)) and layers, by its type. A nested router may
    /// provide another value of the same type to its own routes.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.push(GivenState {
            id: TypeId::of::<T>(),
            name: type_name::<T>(),
            value: Arc::new(state),
        });
        self
    }

    /// Covers this router with a layer: one made from a function by the module [`layer`](super::layer), a
    /// type that implements [`Layer`](super::Layer), or, with the feature `tower`, a layer of that ecosystem.
    /// The layers given to a router form one list, the first outermost, whatever their kinds.
    ///
    /// ```
    /// use highwater::layers::{cors, security_headers};
    /// use highwater::{MiddlewareRequest, Next, Request, Response, Router, fixed, layer};
    ///
    /// fn log(request: &Request<'_>, response: &mut Response) {
    ///     println!("{} {}", request.path(), response.status());
    /// }
    ///
    /// async fn audit(request: MiddlewareRequest, next: Next) -> Response {
    ///     next.run(request).await
    /// }
    ///
    /// let app = Router::new()
    ///     .layer(security_headers())
    ///     .layer(cors().origin("https://shop.example"))
    ///     .layer(layer::on_response(log))
    ///     .layer(layer::around(audit))
    ///     .get("/health", fixed("ok"))
    ///     .get("/", || "Hello");
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn layer<M>(mut self, layer: impl IntoLayer<M>) -> Self {
        self.layers.push(Covering::new(layer.into_layer()));
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

    /// Answers at most `limit` requests of this router's routes at once, all of them together and over all
    /// workers; a further one is answered 503, with `Retry-After`. A route or a nested router with a limit of
    /// its own keeps to both. [`fixed`](super::fixed) answers and routes that are [never
    /// shed](Handler::never_shed) are not counted, and neither are answers without a route.
    ///
    /// ```
    /// use highwater::{Concurrency, Router};
    ///
    /// async fn ask_the_database() -> &'static str {
    ///     "a row"
    /// }
    ///
    /// let database = Router::new()
    ///     .get("/users", ask_the_database)
    ///     .get("/orders", ask_the_database)
    ///     .concurrency_limit(Concurrency::Auto);
    ///
    /// let app = Router::new().get("/", || "Hello").merge(database);
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn concurrency_limit(mut self, limit: impl Into<Concurrency>) -> Self {
        self.concurrency = Some(limit.into());
        self
    }

    /// Looks up the peers' addresses, for layers that call [`Request::peer`](super::Request::peer). A handler
    /// that takes [`PeerAddr`](super::PeerAddr) asks for it automatically.
    #[must_use]
    pub fn peer_addresses(mut self) -> Self {
        self.wants_peer = true;
        self
    }

    /// Puts a Tokio runtime around plain handlers and layers, so that they can spawn tasks and make timers:
    /// `tokio::spawn`, `tokio::task::spawn_local`, `tokio::runtime::Handle::current`.
    ///
    /// An application has one anyway if a handler is an `async fn` or takes a
    /// [`BodyStream`](super::BodyStream), or if a layer is asynchronous; and a worker gets one with the first
    /// streamed answer or upgraded connection. Each time a worker waits, its runtime costs a few more system
    /// calls, so an application of plain handlers has none unless it asks for one. Each worker has a runtime
    /// of its own, on its own thread; [`blocking`](super::blocking) handlers run outside of it.
    ///
    /// ```
    /// use highwater::{Router, StatusCode};
    ///
    /// fn notify() -> StatusCode {
    ///     tokio::task::spawn_local(async { /* notify a service */ });
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

    /// Gives each worker a value of its own, which its handlers take as [`WorkerLocal`](super::WorkerLocal):
    /// see [`PerWorker`].
    #[must_use]
    pub fn per_worker<T: 'static>(mut self, value: PerWorker<T>) -> Self {
        self.worker_locals.push(value.erase());
        self
    }

    /// Lets clients set the priority of their requests, in the header field `name`: `high`, `normal` or
    /// `low`, or an urgency such as `u=1` (RFC 9218; 0 to 2 are high, 3 is normal, 4 to 7 are low). It takes
    /// precedence over the priority of the route. Only the outermost router's field counts. Use it only if
    /// clients can be trusted not to call everything urgent: by default, none are.
    #[must_use]
    pub fn priority_field(mut self, name: impl Into<String>) -> Self {
        self.priority_field = Some(name.into());
        self
    }

    /// Uses the routes of `router` if no other route matches.
    #[cfg(feature = "tower")]
    pub(crate) fn with_fallbacks(mut self, router: Router) -> Self {
        self.fallbacks.extend(router.routes);
        self
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
