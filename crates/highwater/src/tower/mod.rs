//! How do I serve an existing axum application, or any other `tower` service?
//!
//! Unchanged. [`serve`] replaces `axum::serve`; the application then has deadlines, limits, overload control, the
//! metrics port and a drain that ends. [`Router::nest_service`] and [`Router::fallback_service`] put a service
//! below a prefix, or behind everything else, so that an application can move one route at a time;
//! [`Router::layer`] takes `tower` layers for native routes.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use highwater::tower::Body;
//! use highwater::{Router, http};
//!
//! #[derive(Clone)]
//! struct Echo;
//!
//! impl tower_service::Service<http::Request<Body>> for Echo {
//!     type Response = http::Response<Body>;
//!     type Error = Infallible;
//!     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
//!
//!     fn poll_ready(
//!         &mut self,
//!         _: &mut std::task::Context<'_>,
//!     ) -> std::task::Poll<Result<(), Infallible>> {
//!         std::task::Poll::Ready(Ok(()))
//!     }
//!
//!     fn call(&mut self, request: http::Request<Body>) -> Self::Future {
//!         std::future::ready(Ok(http::Response::new(request.into_body())))
//!     }
//! }
//!
//! let app = Router::new().get("/health", || "ok").nest_service("/echo", Echo);
//! # app.build().unwrap();
//! ```
//!
//! **Where a service runs.** On the worker that has the connection, within that worker's Tokio runtime, which has
//! one thread. A service's future need not be `Send` and never changes threads. Tasks that it spawns with
//! `tokio::spawn` run there, too; objects made before on another runtime, such as a pool of database connections,
//! work, and wake the worker across threads. A blocking call blocks the whole worker: `tokio::task::spawn_blocking`
//! works, `block_in_place` does not (it panics on a runtime with one thread).
//!
//! **One service for all workers, one layered service for each.** A mounted service is cloned for each request, as
//! `tower` intends; state that its clones share is shared by all workers. A layer given to [`Router::layer`] makes
//! a service on each worker, and state that the clones of that share belongs to the worker: a bound on concurrency,
//! a cache, state that need be neither `Send` nor `Sync`.
//!
//! **Disconnects.** A service's future is dropped when its client resets the connection.
//! [`Disconnected`](crate::Disconnected), in the request's extensions, also reports a client that has only finished
//! sending.
//!
//! **The server's own part.** Framing, `Date` and `Connection` are the server's: such fields in a response are
//! dropped, except a `Content-Length`, which gives the length of streamed content; content with the status 204, 205
//! or 304 is dropped as well. A wrong `Content-Length`, and a `Transfer-Encoding` other than `chunked`, are
//! answered 500, and the reason is logged. Trailers of responses are sent over HTTP/2, as gRPC (tonic) needs; over HTTP/1.1 to
//! clients that ask for them (`TE: trailers`), if the response's `Trailer` field names them. Trailers of requests are the last frame of their
//! content, but for the fields that cannot be trailers
//! ([`BodyStream::take_trailers`](crate::BodyStream::take_trailers)). `CONNECT` and `OPTIONS *` are answered by the
//! server. Bodies have no size limit here; back-pressure follows their reader. A service limits the content that it
//! collects, as axum's extractors do.
//!
//! **Upgrades.** A request with an `Upgrade` field carries a `hyper::upgrade::OnUpgrade`, so axum's `WebSocketUpgrade`
//! works over HTTP/1.1 (`upgrade.rs` says how). WebSockets over HTTP/2 (RFC 8441) are not offered to clients where a
//! service is mounted, not even for native routes: a client that may open one WebSocket this way would open all of them
//! this way, and axum then needs `hyper::ext::Protocol`, which only hyper's own HTTP/2 provides.
//!
//! **Clients with certificates** (feature `tls`). The certificates are in the request's extensions, as
//! [`PeerCertificates`](crate::PeerCertificates).

mod body;
mod layer;
mod request;
mod response;
mod serve;
mod service;
mod upgrade;

pub use body::Body;
pub use layer::{Inner, InnerFuture, ViaTower};
pub use serve::{Serve, ServeFuture, serve};
pub use service::{IntoApp, IntoRoutes, ViaMake, ViaRouter, ViaService};

#[cfg(doc)]
use crate::app::Router;
