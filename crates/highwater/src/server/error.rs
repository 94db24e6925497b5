//! Why does a server not run?

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::app::BuildError;
#[cfg(doc)]
use crate::metrics::Metrics;

/// Why a server could not start, or had to stop.
///
/// `Debug` shows the same sentence as `Display`: it is what a `main` that returns this prints.
#[non_exhaustive]
pub enum ServerError {
    /// The router is inconsistent.
    Build(BuildError),
    /// A setting is wrong; says which, where it comes from, and what to write instead.
    Settings(String),
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
    /// The requested transport does not work here; says which and why.
    Transport(String),
    /// The requested gate or limiter does not work here; says why, and what to do instead.
    Admission(String),
    /// A worker could not start, or its driver failed.
    Worker(io::Error),
    /// The [`Metrics`] describe another server, or one that could not start; make new ones.
    Metrics,
    /// Signals could not be set up.
    Signals(io::Error),
    /// The server would block the only thread of the Tokio runtime that it was started in.
    Runtime,
}

impl ServerError {
    pub(super) fn bind(address: SocketAddr, error: io::Error) -> Self {
        ServerError::Bind(address, error)
    }

    pub(super) fn signals(error: io::Error) -> Self {
        ServerError::Signals(error)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Build(error) => write!(f, "{error}"),
            // It names the address and the remedy.
            ServerError::Bind(_, error) => write!(f, "{error}"),
            ServerError::Settings(reason)
            | ServerError::Transport(reason)
            | ServerError::Admission(reason) => f.write_str(reason),
            ServerError::Worker(error) => write!(f, "a worker failed: {error}"),
            ServerError::Metrics => f.write_str(
                "these metrics describe another server already; each needs `Metrics::new()` of its own",
            ),
            ServerError::Signals(error) => write!(f, "cannot set up the process: {error}"),
            ServerError::Runtime => f.write_str(
                "`run()` would block the only thread of the Tokio runtime around it; write `.serve().await`, or \
                 call `run()` in `spawn_blocking`",
            ),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ServerError {}
