//! Why does a server not run?

use std::fmt;
use std::io;
use std::process::ExitCode;

use highwater_sys::Address;

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
    Bind(Address, io::Error),
    /// The requested transport does not work here; says which and why.
    Transport(String),
    /// The requested gate or limiter does not work here; says why, and what to do instead.
    Admission(String),
    /// A start hook of the application failed, panicked, or took too long; says which.
    Hook(String),
    /// A worker could not start, or its driver failed.
    Worker(io::Error),
    /// The [`Metrics`] describe another server, or one that could not start; make new ones.
    Metrics,
    /// Signals could not be set up.
    Signals(io::Error),
    /// The server would block the only thread of the Tokio runtime that it was started in.
    Runtime,
    /// Something else in `main` failed, such as binding a listener of its own.
    Io(io::Error),
}

/// Why a start has ended.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// It was asked to stop.
    Stopped,
    /// It failed.
    Failed(ServerError),
}

impl NotStarted {
    /// The outcome of a server that was to serve until it was asked to stop.
    pub(super) fn outcome(self) -> Result<(), ServerError> {
        match self {
            NotStarted::Stopped => Ok(()),
            NotStarted::Failed(error) => Err(error),
        }
    }
}

impl From<ServerError> for NotStarted {
    fn from(error: ServerError) -> Self {
        NotStarted::Failed(error)
    }
}

impl ServerError {
    /// Whether a setting has to be changed before the server can start. Programs then end with status 2, as for a wrong
    /// flag: see [`exit_code`](Self::exit_code). A `main` that returns this error ends with 1 in either case.
    ///
    /// ```
    /// use highwater::{Router, Server, ServerConfig};
    ///
    /// let config = ServerConfig { listen: vec!["127.0.0.1:1,http1".parse().unwrap(); 2], ..Default::default() };
    /// let error = Server::new(Router::new()).config(config).run().unwrap_err();
    /// assert!(error.is_setting(), "{error}");
    /// assert_eq!(error.exit_code(), std::process::ExitCode::from(2));
    /// ```
    pub fn is_setting(&self) -> bool {
        matches!(self, ServerError::Settings(_))
    }

    /// The status that a program ends with: 2 if [a setting is wrong](Self::is_setting), and 1 for every other error.
    pub fn exit_code(&self) -> ExitCode {
        if self.is_setting() { ExitCode::from(2) } else { ExitCode::FAILURE }
    }

    pub(super) fn bind(address: Address, error: io::Error) -> Self {
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
            | ServerError::Admission(reason)
            | ServerError::Hook(reason) => f.write_str(reason),
            ServerError::Worker(error) => {
                write!(f, "a worker failed: {error}{}", highwater_sys::limits::start_remedy(error))
            }
            ServerError::Metrics => f.write_str(
                "these metrics describe another server already; each needs `Metrics::new()` of its own",
            ),
            ServerError::Signals(error) => write!(f, "cannot set up the process: {error}"),
            ServerError::Runtime => f.write_str(
                "`run()` would block the only thread of the Tokio runtime around it; write `.serve().await`, or \
                 call `run()` in `spawn_blocking`",
            ),
            ServerError::Io(error) => write!(f, "{error}{}", remedy(error)),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ServerError {}

/// What to do about an error that other code reports, without the address.
fn remedy(error: &io::Error) -> &'static str {
    // Recognized by its text: the standard library gives this error no kind of its own.
    if error.to_string() == "invalid socket address" {
        return "; use an IP address and a port, such as 127.0.0.1:8080";
    }
    highwater_sys::bind_remedy(error)
}

/// For a `main` that returns [`ServerError`]: it prints one sentence for this error, too, while a `main` that returns
/// [`io::Error`] prints what that is made of. An error of the server's own comes out as it went in.
impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(ServerError::Io)
    }
}

/// For programs whose functions return [`io::Result`].
impl From<ServerError> for io::Error {
    fn from(error: ServerError) -> Self {
        let kind = match error {
            ServerError::Io(error) => return error,
            ServerError::Bind(_, ref cause)
            | ServerError::Worker(ref cause)
            | ServerError::Signals(ref cause) => cause.kind(),
            ServerError::Hook(_) => io::ErrorKind::Other,
            ServerError::Build(_)
            | ServerError::Transport(_)
            | ServerError::Admission(_)
            | ServerError::Settings(_)
            | ServerError::Metrics
            | ServerError::Runtime => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Purpose: who has too few descriptors, threads, or lockable memory for a worker reads how to allow more; and a worker
    /// does not give the advice of a listener.
    #[test]
    fn a_worker_names_the_limit_that_stopped_it() {
        // EMFILE, EAGAIN, ENOMEM and EACCES, on every Linux.
        let cases = [
            (24, "Too many open files", "LimitNOFILE="),
            (11, "Resource temporarily unavailable", "TasksMax="),
            (12, "Cannot allocate memory", "--transport auto"),
            (13, "Permission denied", ""),
        ];
        for (number, cause, remedy) in cases {
            let message = ServerError::Worker(io::Error::from_raw_os_error(number)).to_string();
            assert!(message.contains(cause) && message.contains(remedy), "{message}");
            assert!(!message.contains("CAP_NET_BIND_SERVICE"), "{message}");
        }
    }
}
