//! A server that is about to start: what it serves, and with which settings.

use highwater_sys::signal::Signals;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::config::ServerConfig;
use super::ends::Ends;
use super::environment;
use super::error::{NotStarted, ServerError};
use super::listener::Listen;
use super::running::Running;
use super::tls::Tls;
use crate::app::Router;
use crate::metrics::{Metrics, Readiness};

/// An HTTP server that is about to start.
///
/// ```no_run
/// use highwater::{Router, Server};
///
/// fn hello() -> &'static str {
///     "Hello, World!"
/// }
///
/// # fn main() -> Result<(), highwater::ServerError> {
/// Server::new(Router::new().get("/", hello)).run()
/// # }
/// ```
///
/// **Settings** come from the environment: `HIGHWATER_LISTEN=0.0.0.0:80`, `HIGHWATER_WORKERS=4` and so on, one
/// variable per field of [`ServerConfig`], and from the TOML file that `HIGHWATER_CONFIG` names. The environment wins
/// over the defaults, and code wins over the environment: [`Server::listen`] sets the address whatever
/// `HIGHWATER_LISTEN` says, and [`Server::config`] sets everything, so that no variable is read. (Without the feature
/// `cli`, which is on by default, no variable is read either.)
///
/// **Where it runs.** [`Server::run`] blocks the thread that calls it; [`Server::serve`] is for `async fn main`.
/// Either way handlers run on threads of the server's own, its workers. Each worker that has `async` handlers has a
/// Tokio runtime of its own, with one thread, and tasks that those handlers spawn run there. Connection pools that
/// were opened before, on the caller's runtime, work in handlers as long as that runtime lives: the caller's `main`
/// holds it while it awaits [`Server::serve`]. A pool per worker is made with
/// [`Router::per_worker`](crate::Router::per_worker), and never leaves its core.
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    pub(super) router: Router,
    /// `None` for the environment's.
    config: Option<ServerConfig>,
    /// Where to listen, as it was written.
    listen: Vec<String>,
    pub(super) readiness: Readiness,
    pub(super) metrics: Metrics,
    pub(super) listener: Option<std::net::TcpListener>,
    /// `None` for the certificates that the settings name.
    pub(super) tls: Option<Tls>,
}

impl Server {
    /// A server for `router`, with settings from the environment, else the defaults: it listens on
    /// `127.0.0.1:8080`, with metrics and health checks on `127.0.0.1:9090`.
    pub fn new(router: Router) -> Self {
        Server {
            router,
            config: None,
            listen: Vec::new(),
            readiness: Readiness::default(),
            metrics: Metrics::new(),
            listener: None,
            tls: None,
        }
    }

    /// Listens on `address`: `"0.0.0.0:8080"`, `"[::1]:8080"`, a [`SocketAddr`](std::net::SocketAddr),
    /// `"unix:/run/app.sock"`, or one of these with options, as [`Listen`] describes. Port 0 lets the kernel choose
    /// one. Any other text is an error when the server starts.
    ///
    /// Each call adds an address. The addresses in the settings are then not used.
    #[doc(alias = "bind")]
    pub fn listen(mut self, address: impl ToString) -> Self {
        self.listen.push(address.to_string());
        self
    }

    /// Serves on a TCP socket that is already bound and listening, for example in a test, and nowhere else: neither
    /// configured addresses nor sockets that the process inherited are used.
    ///
    /// The other workers bind the same address, with the same backlog. If they may not (it belongs to another
    /// user, its port is privileged), all workers accept from this one socket.
    ///
    /// When the server drains, connections whose handshake with another worker's socket is under way are reset. For
    /// restarts that lose none, have a service manager pass the socket: see *Deploying* in the documentation.
    pub fn listener(mut self, listener: std::net::TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Sets the certificates of listeners with the option `tls`, and of a socket given with [`Server::listener`]. The
    /// settings about TLS are then not used.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets all settings. No environment variable is then read.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// The checks behind `/readyz` on the metrics port.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// The registry to count in, which also holds the application's own metrics.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP, then drains: stops accepting, answers the requests in flight, and cuts the
    /// rest after the drain timeout. SIGQUIT drains for two seconds at most. A further SIGTERM, SIGINT or SIGQUIT while it
    /// drains cuts at once. A signal that comes while the server starts ends the start: the stop hooks of everything opened
    /// so far run, and it returns. If certificates for TLS come from files, SIGHUP reloads them instead.
    ///
    /// It blocks the calling thread, and can be called from anywhere: threads may run already, signals may be blocked,
    /// or have handlers (which are called as well, and are the only ones again once the server has ended). In an
    /// `async fn`, write [`serve`](Server::serve)`().await`.
    ///
    /// # Errors
    /// A setting is wrong, the router is inconsistent, an address cannot be bound, or a driver failed; or this
    /// was called on the only thread of a Tokio runtime, which it would block.
    pub fn run(self) -> Result<(), ServerError> {
        if blocks_a_runtime() {
            return Err(ServerError::Runtime);
        }
        // First, so that a signal that comes while the server starts is caught.
        let signals = Signals::catch().map_err(ServerError::signals)?;
        self.serve_until(Ends { signals: Some(&signals), ..Ends::default() })
    }

    /// Serves until one of `ends` asks to stop, which ends a start as well.
    pub(super) fn serve_until(self, ends: Ends<'_>) -> Result<(), ServerError> {
        match self.start_until(ends) {
            Ok(running) => running.until(ends),
            Err(not_started) => not_started.outcome(),
        }
    }

    /// Starts the workers and returns. For tests, and for programs with their own main loop.
    ///
    /// # Errors
    /// See [`Server::run`].
    pub fn start(self) -> Result<Running, ServerError> {
        self.start_until(Ends::default()).map_err(|not_started| match not_started {
            NotStarted::Stopped => unreachable!("nothing asks it to stop"),
            NotStarted::Failed(error) => error,
        })
    }

    /// The settings: those of the code, else those of the environment.
    pub(super) fn settings(&mut self) -> Result<ServerConfig, ServerError> {
        let is_listen_used = self.listen.is_empty() && self.listener.is_none();
        let environment = || environment::settings(is_listen_used);
        let mut config = self.config.take().map_or_else(environment, Ok)?;
        if !self.listen.is_empty() {
            let parse = |text: String| {
                text.parse::<Listen>().map_err(|remedy| {
                    ServerError::Settings(format!("cannot listen on {text:?}: {remedy}"))
                })
            };
            config.listen = self.listen.drain(..).map(parse).collect::<Result<_, _>>()?;
        }
        if self.listener.is_none() {
            config.check_listeners().map_err(ServerError::Settings)?;
        }
        Ok(config)
    }
}

/// Whether the caller runs on the only thread of a Tokio runtime, as its main future. (A task with an id may be one of
/// `spawn_blocking`, which blocks nobody.)
fn blocks_a_runtime() -> bool {
    let is_single = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    Handle::try_current().is_ok_and(is_single) && tokio::task::try_id().is_none()
}
