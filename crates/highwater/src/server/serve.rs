//! How does a server run in an `async fn main`?

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use highwater_sys::signal::Signals;
use tokio::sync::oneshot;

use super::builder::Server;
use super::ends::Ends;
use super::error::ServerError;
use super::stop::{Stop, Stopper};

impl Server {
    /// Serves as [`Server::run`] does, without blocking: for an `async fn main`, which opens pools and clients first.
    ///
    /// ```no_run
    /// use highwater::{Router, Server};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), highwater::ServerError> {
    ///     // let pool = open(…).await?;
    ///     let router = Router::new().get("/", || "Hello, World!"); // .state(pool)
    ///     Server::new(router).serve().await
    /// }
    /// ```
    ///
    /// Handlers do not run on the runtime of this future, but on the server's own threads: see [`Server`]. Any runtime
    /// works, in any flavor.
    pub fn serve(self) -> Serve {
        Serve { server: self, shutdown: None }
    }
}

/// A server that is about to serve; made by [`Server::serve`]. Await it.
#[must_use = "nothing is served before this is awaited"]
pub struct Serve {
    pub(crate) server: Server,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Serve {
    /// Drains when `signal` is ready, instead of at a signal to the process, which is then the application's to
    /// handle.
    pub fn with_graceful_shutdown<F>(mut self, signal: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shutdown = Some(Box::pin(signal));
        self
    }
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Serve")
    }
}

impl IntoFuture for Serve {
    type Output = Result<(), ServerError>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(run(self)))
    }
}

/// A server at work. Dropping it stops the server without a drain.
#[must_use = "nothing is served before this is awaited"]
pub struct ServeFuture(Pin<Box<dyn Future<Output = Result<(), ServerError>> + Send>>);

impl Future for ServeFuture {
    type Output = Result<(), ServerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeFuture")
    }
}

async fn run(serve: Serve) -> Result<(), ServerError> {
    let Serve { server, mut shutdown } = serve;
    // Before the workers start: from now on a signal is not lost.
    let signals = if shutdown.is_none() { Some(Signals::catch()) } else { None };
    let signals = signals.transpose().map_err(ServerError::signals)?;
    let asked = Asked(Arc::default());
    let stopper = Arc::clone(&asked.0);
    let (report, mut outcome) = oneshot::channel();
    // Starting, looking after the workers and draining block: that is not for a runtime's thread.
    let looking_after = move || {
        let (signals_of, stopper) = (signals.as_ref(), Some(&*stopper));
        let ends = Ends { signals: signals_of, stopper, ..Ends::default() };
        let served = server.serve_until(ends);
        drop(signals);
        // The receiver may be gone.
        let _ = report.send(served);
    };
    crate::thread::start("highwater-serve", Box::new(looking_after))
        .map_err(ServerError::Worker)?;
    poll_fn(|context| {
        if let Poll::Ready(outcome) = Pin::new(&mut outcome).poll(context) {
            return Poll::Ready(outcome.unwrap_or_else(|_| Err(gone())));
        }
        if let Some(ready) = &mut shutdown
            && ready.as_mut().poll(context).is_ready()
        {
            shutdown = None;
            asked.0.request(Stop::Drain);
        }
        Poll::Pending
    })
    .await
}

/// Stops the server without a drain, or in the middle of one, when nobody waits for it any more.
struct Asked(Arc<Stopper>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.request(Stop::Cut);
    }
}

fn gone() -> ServerError {
    ServerError::Worker(io::Error::other("the thread that looks after the server panicked"))
}
