//! The description of an application: routes, groups of routes, and their layers.
//!
//! A [`Router`] only collects routes and layers, in any order; [`Router::build`] (`build.rs`) makes an
//! application from them, or reports all errors at once.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::client_keys::ClientKeys;
use super::error::Error;
use super::handler::Handler;
use super::hooks::Hook;
use super::into_response::IntoResponse;
use super::layer::{IntoLayer, Layer};
use super::rewrite_rules::Rewrite;
use super::route::{Fallback, Route};
use super::routing::MethodRouter;
use super::scope::Renderer;
use super::trailing_slash::TrailingSlash;
use super::worker_local::{GivenLocal, PerWorker};
use crate::admission::route_limit::Concurrency;

/// Routes, and the layers that cover them.
///
/// # Paths
///
/// `/users/me` is that path. `{id}` stands for one segment that is not empty, or for the rest of a segment beside text, as
/// in `/{name}.json` and `/v{n}`; `{*rest}`, at the end, for at least one byte, slashes included. Literal text takes
/// precedence over `{param}`, and `{param}` over `{*rest}`; the order of registration never matters. Paths are matched as
/// they arrive: `/a%62` is not `/ab`, and `/users/` not `/users`.
///
/// # Answers without a route
///
/// * `HEAD` is answered by the route for `GET`, `OPTIONS` with 204 and `Allow`, unless they are
///   routed themselves. `OPTIONS *` lists every method the application takes.
/// * A path without a route is answered 404, or by the [fallback](Router::fallback); a path that has no route for the method 405, with `Allow`; a
///   method that neither RFC 9110 nor RFC 5789 defines 501. If two patterns match a path, the more specific
///   one decides, even if only the other has the method.
///
/// # Layers, errors and states of a route
///
/// [Layers](Router::layer), the renderer of [`errors`](Router::errors) and [`state`](Router::state)s cover the whole router
/// to which they are added, wherever they appear among its routes: its routes, those of nested routers, and requests
/// without a route; for a nested router, that is everything below its prefix. So a 404 cannot bypass a layer that asks for
/// a password. They apply from the outermost router to the innermost and, within one router, in the order in which they
/// were added; to responses in the reverse order.
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
    pub(super) layers: Vec<Layer>,
    pub(super) renderer: Option<Arc<Renderer>>,
    /// What the renderer returns.
    #[cfg(feature = "openapi")]
    pub(super) renders: Option<&'static str>,
    #[cfg(feature = "openapi")]
    pub(super) openapi: Option<Box<super::openapi::OpenApi>>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    pub(super) priority_field: Option<String>,
    pub(super) clients: Option<Box<ClientKeys>>,
    pub(super) worker_locals: Vec<GivenLocal>,
    /// Fallback routes: used if no other route of this router or a nested one matches.
    pub(super) fallbacks: Vec<Route>,
    pub(super) fallback: Option<Fallback>,
    pub(super) timeout: Option<Duration>,
    pub(super) trailing_slash: Option<TrailingSlash>,
    /// Prefixes, and the routes that answer everything at and below them.
    pub(super) mounts: Vec<(String, [Route; 3])>,
    pub(super) hooks: Vec<Hook>,
    /// Asked in this order before a route is looked for.
    pub(super) rewrites: Vec<Rewrite>,
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

    /// Routes `GET`, and `HEAD` unless that has a route of its own.
    #[must_use]
    pub fn get<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::GET]), path, Route::of(handler))
    }

    /// Routes `POST`.
    #[must_use]
    pub fn post<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::POST]), path, Route::of(handler))
    }

    /// Routes `PUT`.
    #[must_use]
    pub fn put<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::PUT]), path, Route::of(handler))
    }

    /// Routes `PATCH`.
    #[must_use]
    pub fn patch<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::PATCH]), path, Route::of(handler))
    }

    /// Routes `DELETE`.
    #[must_use]
    pub fn delete<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::DELETE]), path, Route::of(handler))
    }

    /// Routes `HEAD`, instead of leaving it to the handler for `GET`.
    #[must_use]
    pub fn head<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::HEAD]), path, Route::of(handler))
    }

    /// Routes `OPTIONS`, instead of the answer 204 with `Allow`.
    #[must_use]
    pub fn options<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(&[Method::OPTIONS]), path, Route::of(handler))
    }

    /// Routes several methods of one path, each to its own handler: see [`routing`](super::routing).
    ///
    /// ```
    /// use highwater::Router;
    /// use highwater::routing::get;
    ///
    /// let app = Router::new().route("/todos", get(|| "all").post(|| "created"));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn route(mut self, path: &str, methods: MethodRouter) -> Self {
        self.routes.extend(methods.routes.into_iter().map(|route| route.at(path)));
        self
    }

    /// Routes one method or several to one endpoint. Methods may be the application's own.
    #[must_use]
    pub fn on<M: 'static>(self, methods: &[Method], path: &str, handler: impl Handler<M>) -> Self {
        self.register(Some(methods), path, Route::of(handler))
    }

    /// Routes every method that is not routed otherwise, known or unknown, `HEAD` and `OPTIONS` included.
    #[must_use]
    pub fn any<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.register(None, path, Route::of(handler))
    }

    /// Answers requests to every path that has no route in this router or in nested ones, whatever the method, instead of
    /// 404. A path with routes for other methods is answered 405 all the same.
    ///
    /// Nested routers inherit it, and their layers cover it there, as does their timeout if the fallback has none of its own;
    /// its concurrency limit is shared by all of them. A router with a fallback of its own uses that below its prefix, even if
    /// an outer router has a route for everything (files, a service, `/{*rest}`). In metrics its name is the prefix and
    /// `{*rest}`, unless it is [named](Handler::name).
    ///
    /// ```
    /// use highwater::{Error, Router, Uri};
    ///
    /// fn nothing_here(uri: Uri) -> Error {
    ///     Error::not_found(format!("there is nothing at {}; try /help", uri.path()))
    /// }
    ///
    /// let app = Router::new().get("/help", || "ask somebody").fallback(nothing_here);
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn fallback<M: 'static>(mut self, handler: impl Handler<M>) -> Self {
        self.fallback = Some(Fallback::new(handler));
        self
    }

    /// Decides about a path that would have a route with, or without, a slash at its end. By default `/a/` is not `/a`.
    /// Call it on the outermost router: it applies to the whole application. A route for everything, such as files at `/`, takes
    /// such a path first.
    ///
    /// ```
    /// use highwater::{Router, TrailingSlash};
    ///
    /// let app = Router::new()
    ///     .trailing_slash(TrailingSlash::Redirect)
    ///     .get("/todos", || "all"); // `/todos/?done=1` is sent to `/todos?done=1`
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn trailing_slash(mut self, policy: TrailingSlash) -> Self {
        self.trailing_slash = Some(policy);
        self
    }

    /// Adds a router below `prefix`, which begins with a slash and does not end with one. It may have
    /// parameters; they come before those of the routes below. The path `/` of `router` becomes
    /// `prefix` itself.
    #[must_use]
    #[doc(alias("scope", "group"))]
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
    #[doc(alias("with_state", "app_data"))]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.push(GivenState {
            id: TypeId::of::<T>(),
            name: type_name::<T>(),
            value: Arc::new(state),
        });
        self
    }

    /// Covers this router with a layer: one made from a function by the module [`layer`](super::layer), one with
    /// several parts ([`Layer`](super::Layer)), or, with the feature `tower`, a layer of that ecosystem.
    /// The layers given to a router form one list, the first outermost, whatever their kinds.
    ///
    /// ```
    /// use highwater::layers::{cors, security_headers};
    /// use highwater::{OwnedRequest, Next, Request, Response, Router, fixed, layer};
    ///
    /// fn log(request: &Request<'_>, response: &mut Response) {
    ///     println!("{} {}", request.path(), response.status());
    /// }
    ///
    /// async fn audit(request: OwnedRequest, next: Next) -> Response {
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
    #[doc(alias("route_layer", "wrap", "middleware"))]
    pub fn layer<M>(mut self, layer: impl IntoLayer<M>) -> Self {
        self.layers.push(layer.into_layer());
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
        #[cfg(feature = "openapi")]
        {
            self.renders = Some(type_name::<R>());
        }
        self
    }

    /// Describes the routes of this router and of those nested in it, in OpenAPI 3.1: `GET /openapi.json` is the document, and
    /// `GET /docs` a page that shows it and can send requests, and loads nothing from elsewhere. Both are below the router's
    /// prefix, and are [`fixed`](super::fixed) answers: anyone who can reach the server can read them, even behind layers that
    /// authenticate. Needs the feature `openapi`; see [`openapi`](super::openapi).
    ///
    /// ```
    /// use highwater::openapi::{OpenApi, api};
    /// use highwater::{Path, Router};
    ///
    /// let app = Router::new()
    ///     .openapi(OpenApi::new("Squares", "1.0.0"))
    ///     .get("/square/{n}", api(|Path(n): Path<u32>| (u64::from(n) * u64::from(n)).to_string()));
    /// # app.build().unwrap();
    /// ```
    #[cfg(feature = "openapi")]
    #[must_use]
    pub fn openapi(mut self, openapi: super::openapi::OpenApi) -> Self {
        self.openapi = Some(Box::new(openapi));
        self
    }

    /// Answers at most `limit` requests to this router's routes at once, together and over all workers; a further request
    /// is answered 503, with `Retry-After`. To a route or a nested router with a limit of its own, both limits apply.
    /// [`fixed`](super::fixed) answers and routes that are [never shed](Handler::never_shed) are not counted, and neither
    /// are answers without a handler, such as a 404; answers of a [fallback](Router::fallback) are counted.
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

    /// Answers 503 if a handler of this router takes longer: [`Handler::timeout`] for all of them. A handler or a nested
    /// router with a timeout of its own uses that instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// use highwater::{Handler, Router};
    ///
    /// # async fn list() {}
    /// # async fn export() {}
    /// let app = Router::new()
    ///     .timeout(Duration::from_secs(5))
    ///     .get("/todos", list)
    ///     .get("/export", export.timeout(Duration::from_secs(60)));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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

    /// Routes `GET` of `prefix`, of `prefix` with a slash at its end, and, as the parameter `path`, of everything below.
    #[cfg(feature = "files")]
    pub(crate) fn mount<M: 'static>(
        mut self,
        prefix: &str,
        handler: impl Handler<M> + Clone,
    ) -> Self {
        let route = || Route::of(handler.clone()).on(&[Method::GET]);
        self.mounts.push((prefix.to_owned(), [route(), route(), route()]));
        self
    }

    /// Leaves its routes out of documents: what answers them describes itself, or does not.
    #[cfg(feature = "tower")]
    pub(crate) fn undocumented(self) -> Self {
        #[cfg(feature = "openapi")]
        let mut this = self;
        #[cfg(feature = "openapi")]
        for route in &mut this.routes {
            route.description.documentation = super::described::Documentation::Hidden;
        }
        #[cfg(not(feature = "openapi"))]
        let this = self;
        this
    }

    /// Uses the routes of `router` if no other route matches.
    #[cfg(feature = "tower")]
    pub(crate) fn with_fallbacks(mut self, router: Router) -> Self {
        self.fallbacks.extend(router.routes);
        self
    }

    fn register(mut self, methods: Option<&[Method]>, path: &str, route: Route) -> Self {
        self.routes.push(Route { methods: methods.map(<[_]>::to_vec), ..route.at(path) });
        self
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
