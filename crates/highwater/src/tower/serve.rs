//! `highwater::serve`, where `axum::serve` stood.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::request::REST;
use super::service::IntoApp;
use crate::logging;
use crate::metrics::{Metrics, Readiness};
use crate::server::args::{self, ServerArgs};
use crate::server::{Server, ServerConfig, ServerError, Stop, Stopper};

/// Serves `app` on `listener`, with Highwater's workers: threads of their own, each with its own
/// single-threaded Tokio runtime. What `app` may be says [`IntoApp`]; where it runs, and what differs
/// from `axum::serve`, the module [`tower`](crate::tower).
///
/// It serves until SIGTERM, SIGINT or SIGHUP (SIGQUIT cuts at once), or until the future given to
/// [`Serve::with_graceful_shutdown`] is ready; then it drains for as long as the drain timeout allows. A
/// further SIGTERM, SIGINT or SIGQUIT cuts what is left.
/// Events go to the `tracing` subscriber that the application has set before, else to standard error as
/// `HIGHWATER_LOG` says ([`logging`](crate::logging)).
/// Settings come from the environment (`HIGHWATER_WORKERS`, … , and the file named by
/// `HIGHWATER_CONFIG`), unless [`Serve::config`] gives them; the address is the listener's.
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
pub fn serve<M>(listener: TcpListener, app: impl IntoApp<M>) -> Serve {
    let router = app.into_router(REST);
    Serve { listener, server: Server::new(router), config: None, shutdown: None }
}

/// A server that is about to serve; made by [`serve`]. Await it.
#[must_use = "nothing is served before this is awaited"]
pub struct Serve {
    listener: TcpListener,
    server: Server,
    config: Option<ServerConfig>,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Serve {
    /// Takes all settings from `config`, and none from the environment. The address in there does not
    /// count: it is the listener's.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// Drains when `signal` is ready, instead of at a signal to the process, which is then the
    /// application's to handle.
    pub fn with_graceful_shutdown<F>(mut self, signal: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shutdown = Some(Box::pin(signal));
        self
    }

    /// As [`Server::metrics`].
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.server = self.server.metrics(metrics);
        self
    }

    /// As [`Server::readiness`].
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.server = self.server.readiness(readiness);
        self
    }

    /// The address that is listened on.
    ///
    /// # Errors
    /// Whatever `getsockname(2)` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("config", &self.config)
            .finish_non_exhaustive()
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
    let Serve { listener, server, config, shutdown } = serve;
    // Before the workers start: a signal that comes from now on is heard.
    let mut end = match shutdown {
        Some(shutdown) => End::Asked(shutdown),
        None => End::Signalled(Stops::new()?),
    };
    let config = match config {
        Some(config) => config,
        None => from_environment()?,
    };
    let server = server.config(config).listener(listener.into_std()?);
    let told = Told(Arc::default());
    let stopper = Arc::clone(&told.0);
    let (report, mut outcome) = oneshot::channel();
    // Starting, looking after the workers and draining block: that is not for a runtime's thread.
    thread::Builder::new().name("highwater-serve".into()).spawn(move || {
        let served = server.start().and_then(|running| running.until_requested(&stopper));
        // Nobody may be left to hear it.
        let _ = report.send(served.map_err(to_io));
    })?;
    poll_fn(|context| {
        if let Poll::Ready(outcome) = Pin::new(&mut outcome).poll(context) {
            return Poll::Ready(outcome.unwrap_or_else(|_| Err(gone())));
        }
        while let Poll::Ready(how) = end.poll(context) {
            told.0.tell(how);
        }
        Poll::Pending
    })
    .await
}

/// Stops the server without a drain, or in the middle of one, when nobody waits for it any more.
struct Told(Arc<Stopper>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.tell(Stop::Cut);
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that looks after the server panicked")
}

fn to_io(error: ServerError) -> io::Error {
    let kind = match &error {
        ServerError::Bind(_, cause) | ServerError::Worker(cause) | ServerError::Signals(cause) => {
            cause.kind()
        }
        ServerError::Build(_)
        | ServerError::Transport(_)
        | ServerError::Admission(_)
        | ServerError::Metrics => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

/// What ends the serving.
enum End {
    Asked(Pin<Box<dyn Future<Output = ()> + Send>>),
    Signalled(Stops),
    /// Nothing further.
    Over,
}

impl End {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        match self {
            End::Asked(asked) => {
                ready!(asked.as_mut().poll(context));
                *self = End::Over;
                Poll::Ready(Stop::Drain)
            }
            End::Signalled(stops) => stops.poll(context),
            End::Over => Poll::Pending,
        }
    }
}

/// The signals that [`Server::run`] obeys. The runtime hears them whatever thread they come to, so
/// that none has to be held back before threads start.
struct Stops {
    signals: [(Signal, SignalKind); 4],
    is_draining: bool,
}

impl Stops {
    fn new() -> io::Result<Self> {
        let hear = |kind| Ok::<_, io::Error>((signal(kind)?, kind));
        let signals = [
            hear(SignalKind::terminate())?,
            hear(SignalKind::interrupt())?,
            hear(SignalKind::hangup())?,
            hear(SignalKind::quit())?,
        ];
        Ok(Stops { signals, is_draining: false })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        for (signal, kind) in &mut self.signals {
            if signal.poll_recv(context).is_ready() {
                tracing::info!(signal = kind.as_raw_value(), "stopping");
                // A terminal that closes is no reason to hurry.
                let is_hurried = self.is_draining && *kind != SignalKind::hangup();
                let is_cut = is_hurried || *kind == SignalKind::quit();
                self.is_draining = true;
                return Poll::Ready(if is_cut { Stop::Cut } else { Stop::Drain });
            }
        }
        Poll::Pending
    }
}

/// The settings that the environment gives, as [`args::parse`] reads them.
fn from_environment() -> io::Result<ServerConfig> {
    /// Nothing of the command line: that is the application's.
    #[derive(clap::Parser)]
    #[command(name = "highwater")]
    struct Environment {
        #[command(flatten)]
        server: ServerArgs,
    }
    let program = [OsString::from("highwater")];
    let parsed = args::try_parse_from::<Environment>(program, env::vars_os());
    let parsed = parsed
        .map_err(|mistake| io::Error::new(io::ErrorKind::InvalidInput, mistake.to_string()))?;
    let mut config = parsed.server.config();
    // For the warning that may come before the server starts.
    logging::install(config.log);
    let is_default = config.metrics == ServerConfig::default().metrics;
    if let Some(address) = config.metrics.filter(|_| is_default)
        && let Err(taken) = std::net::TcpListener::bind(address)
        && taken.kind() == io::ErrorKind::AddrInUse
    {
        // Nobody asked for this port. A second application on one machine must not fail for it.
        tracing::warn!(
            address = %address,
            "no metrics: another process has the port; set HIGHWATER_METRICS to another, or to off",
        );
        config.metrics = None;
    }
    Ok(config)
}
