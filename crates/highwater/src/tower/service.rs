//! Services as routes: one `tower` service answers every path below a prefix, or every path that no other
//! route answers.

use std::future::poll_fn;
use std::net::SocketAddr;

use http_body::Body as HttpBody;
use tower_service::Service;

use super::body::Body;
use super::request::{Asked, Incoming, REST};
use super::response::to_native;
use super::upgrade::Offer;
use crate::app::{BoxError, Error, Handler, Response, Router};

impl Router {
    /// Lets `service` answer everything below `prefix`, and `prefix` itself, whatever the method. The
    /// service sees the path without the prefix, as it would nested in an axum router. `/` stands for
    /// everything.
    ///
    /// The service's content is not bounded by the server's settings; see [`tower`](crate::tower).
    #[must_use]
    pub fn nest_service<M>(self, prefix: &str, service: impl IntoRoutes<M>) -> Self {
        let prefix = prefix.trim_end_matches('/');
        self.merge(service.into_routes(prefix, &format!("{prefix}{REST}")))
    }

    /// Lets `service` answer every path without another route in this router and those nested in it. A
    /// path with a route for another method is answered 405, as without it.
    #[must_use]
    pub fn fallback_service<M>(self, service: impl IntoRoutes<M>) -> Self {
        let router = service.into_routes("", "fallback");
        self.with_fallbacks(router)
    }
}

/// What [`serve`](super::serve) serves: services ([`IntoRoutes`]), and native [`Router`]s.
///
/// `M` is for the compiler only; it tells the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be served",
    label = "this is neither a service of HTTP requests nor a router",
    note = "what can be served is an `axum::Router`, its `into_make_service()` or \
            `into_make_service_with_connect_info::<SocketAddr>()`, a `highwater::Router`, or any \
            `tower::Service<http::Request<highwater::tower::Body>, Response = http::Response<_>>` that is \
            `Clone + Send + Sync + 'static`",
    note = "an `axum::Router<S>` needs its state first: `.with_state(state)`"
)]
pub trait IntoApp<M> {
    /// Describes it; services go by `name` in metrics.
    #[doc(hidden)]
    fn into_router(self, name: &str) -> Router;
}

impl IntoApp<ViaRouter> for Router {
    fn into_router(self, _name: &str) -> Router {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<M, S: IntoRoutes<M>> IntoApp<M> for S {
    fn into_router(self, name: &str) -> Router {
        self.into_routes("", name)
    }
}

/// A service that can be mounted: a cloneable `tower` service of HTTP requests, or a make-service of such
/// services.
///
/// A make-service is called with the peer's address (`SocketAddr`), once per request: so
/// `into_make_service_with_connect_info::<SocketAddr>()` of axum works, with other types that implement
/// axum's `Connected<SocketAddr>`, too.
///
/// `M` is for the compiler only; it tells the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service that can be mounted",
    label = "this is not a service of HTTP requests",
    note = "what can be mounted is an `axum::Router`, its `into_make_service()` or \
            `into_make_service_with_connect_info::<SocketAddr>()`, or any \
            `tower::Service<http::Request<highwater::tower::Body>, Response = http::Response<_>>` that is \
            `Clone + Send + Sync + 'static`",
    note = "an `axum::Router<S>` needs its state first: `.with_state(state)`; \
            a `highwater::Router` is added with `nest` or `merge`"
)]
pub trait IntoRoutes<M> {
    /// A router with the service on every path below `prefix`, under `name` in metrics.
    #[doc(hidden)]
    fn into_routes(self, prefix: &str, name: &str) -> Router;
}

/// The way of a native router.
#[derive(Debug)]
pub struct ViaRouter;

/// The way of a service whose responses have content of type `B`.
#[derive(Debug)]
pub struct ViaService<B>(B);

/// The way of a make-service of `S`, whose responses have content of type `B`.
#[derive(Debug)]
pub struct ViaMake<S, B>(S, B);

impl<S, B> IntoRoutes<ViaService<B>> for S
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn into_routes(self, prefix: &str, name: &str) -> Router {
        let handler = move |incoming: Incoming<false>| {
            let service = self.clone();
            async move { answer(service, incoming.request, incoming.asked).await }
        };
        everywhere(prefix, name, handler)
    }
}

impl<M, S, B> IntoRoutes<ViaMake<S, B>> for M
where
    M: Service<SocketAddr, Response = S> + Clone + Send + Sync + 'static,
    M::Error: Into<BoxError>,
    M::Future: 'static,
    S: Service<http::Request<Body>, Response = http::Response<B>> + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn into_routes(self, prefix: &str, name: &str) -> Router {
        let handler = move |incoming: Incoming<true>| {
            let mut make = self.clone();
            async move {
                let Some(peer) = incoming.peer else {
                    return Err(Error::internal("the peer has no address"));
                };
                let service = ready_call(&mut make, peer.0).await.map_err(Error::internal)?;
                answer(service, incoming.request, incoming.asked).await
            }
        };
        everywhere(prefix, name, handler)
    }
}

/// A router with the patterns that match every path below a prefix, and the prefix itself.
fn everywhere<M: 'static>(prefix: &str, name: &str, handler: impl Handler<M> + Clone) -> Router {
    let endpoint = || handler.clone().name(name).body_max(u64::MAX);
    let router = Router::new().any(&format!("{prefix}/"), endpoint());
    let router = if prefix.is_empty() { router } else { router.any(prefix, endpoint()) };
    router.any(&format!("{prefix}{REST}"), endpoint()).undocumented()
}

/// Asks the service, and makes its answer ours.
async fn answer<S, B>(
    mut service: S,
    mut request: http::Request<Body>,
    asked: Asked,
) -> Result<Response, Error>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody + Send + 'static,
    B::Error: Into<BoxError>,
{
    if asked.wants_upgrade
        && let Some((offer, on_upgrade)) = Offer::new()
    {
        request.extensions_mut().insert(on_upgrade);
        let response = ready_call(&mut service, request).await.map_err(Error::internal)?;
        return Ok(match response.status() {
            http::StatusCode::SWITCHING_PROTOCOLS => offer.accept(response),
            _ => to_native(response, asked),
        });
    }
    let response = ready_call(&mut service, request).await.map_err(Error::internal)?;
    Ok(to_native(response, asked))
}

/// Calls a service once it is ready.
pub(super) async fn ready_call<S, T>(service: &mut S, request: T) -> Result<S::Response, S::Error>
where
    S: Service<T>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    let answer: S::Future = service.call(request);
    answer.await
}
