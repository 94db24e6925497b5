//! `highwater::serve`, the replacement for `axum::serve`.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::net::TcpListener;

use super::request::REST;
use super::service::IntoApp;
use crate::metrics::{Metrics, Readiness};
#[cfg(feature = "tls")]
use crate::server::Tls;
use crate::server::{self, Server, ServerConfig};

/// Serves `app` on `listener`, with Highwater's workers: threads of their own, each with its own single-threaded
/// Tokio runtime. See [`IntoApp`] for what `app` may be, and the module [`tower`](crate::tower) for where it runs
/// and how that differs from `axum::serve`.
///
/// It serves until SIGTERM, SIGINT, SIGQUIT or SIGHUP, or until the future given to [`Serve::with_graceful_shutdown`] is
/// ready; then it drains for as long as the drain timeout allows, after SIGQUIT for two seconds at most. A further SIGTERM,
/// SIGINT or SIGQUIT cuts the remaining connections. Events go to the `tracing` subscriber that the application has set
/// before, else to standard error as `HIGHWATER_LOG` says ([`logging`](crate::logging)). Settings come from the environment
/// (`HIGHWATER_WORKERS`, … , and the file named by `HIGHWATER_CONFIG`), unless [`Serve::config`] gives them; the address is
/// the listener's.
///
/// ```no_run
/// use highwater::Router;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let app = Router::new().get("/", || "Hello, World!"); // or an axum::Router
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// highwater::serve(listener, app).await
/// # }
/// ```
///
/// A `main` that returns [`ServerError`](crate::ServerError) prints one sentence with the remedy for every error here and
/// in `bind`, while [`io::Error`] prints its internal parts:
///
/// ```no_run
/// # use highwater::Router;
/// #[tokio::main]
/// async fn main() -> Result<(), highwater::ServerError> {
///     let app = Router::new().get("/", || "Hello, World!");
///     let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
///     highwater::serve(listener, app).await?;
///     Ok(())
/// }
/// ```
pub fn serve<M>(listener: TcpListener, app: impl IntoApp<M>) -> Serve {
    let router = app.into_router(REST);
    Serve { listener, serve: Server::new(router).serve() }
}

/// A server that is about to serve; made by [`serve`]. Await it.
#[must_use = "nothing is served before this is awaited"]
pub struct Serve {
    listener: TcpListener,
    serve: server::Serve,
}

impl Serve {
    /// Takes all settings from `config`, and none from the environment. Its address is not used: the
    /// listener has one.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.serve.server = self.serve.server.config(config);
        self
    }

    /// Drains when `signal` is ready, instead of at a signal to the process, which is then the
    /// application's to handle.
    pub fn with_graceful_shutdown<F>(mut self, signal: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.serve = self.serve.with_graceful_shutdown(signal);
        self
    }

    /// Speaks TLS, as [`Server::tls`] describes: its certificates may also come from the settings.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.serve.server = self.serve.server.tls(tls);
        self
    }

    /// See [`Server::metrics`].
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.serve.server = self.serve.server.metrics(metrics);
        self
    }

    /// See [`Server::readiness`].
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.serve.server = self.serve.server.readiness(readiness);
        self
    }

    /// The address that the server listens on.
    ///
    /// # Errors
    /// Whatever `getsockname(2)` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl IntoFuture for Serve {
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(run(self)))
    }
}

/// A server at work. Dropping it stops the server without a drain.
#[must_use = "nothing is served before this is awaited"]
pub struct ServeFuture(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl Future for ServeFuture {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeFuture")
    }
}

async fn run(serve: Serve) -> io::Result<()> {
    let Serve { listener, mut serve } = serve;
    serve.server = serve.server.listener(listener.into_std()?);
    Ok(serve.await?)
}
