//! A Postgres server: connecting, and its errors.

use std::time::Duration;
use std::{error, io};

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls, Socket};

/// The pause after the first failed attempt to connect; it doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug)]
pub enum NoConnection {
    /// The server refuses, or does not listen.
    Refused(Error),
    /// The deadline has passed.
    Timeout,
}

/// Why an operation failed, as a store explains it.
pub trait Failure: Sized {
    /// There was no answer within that time.
    fn no_answer(within: Duration) -> Self;

    /// Whether the connection is of no use any more: then the operation is done again on a new one.
    fn is_broken_connection(&self) -> bool;

    /// Whether the next operation needs a new connection, for another reason.
    fn is_outdated(&self) -> bool {
        false
    }
}

/// Runs `work` on the session in `slot`, or on what `connect` makes; and once more on a new one if the connection broke. If that
/// fails too, the caller decides when to try again, because it has the schedule.
///
/// # Errors
/// Why `connect` or `work` failed, or [`Failure::no_answer`] if `work` took longer than `within`.
pub async fn run<S, T, F: Failure>(
    slot: &mut Option<S>,
    within: Duration,
    client: impl Fn(&S) -> &Client,
    connect: impl AsyncFn() -> Result<S, F>,
    work: impl AsyncFn(&mut S) -> Result<T, F>,
) -> Result<T, F> {
    let attempt = async |slot: &mut Option<S>| {
        if slot.as_ref().is_none_or(|session| client(session).is_closed()) {
            *slot = None;
            *slot = Some(connect().await?);
        }
        let session = slot.as_mut().expect("connected above");
        match timeout(within, work(session)).await {
            Ok(Err(failure)) if failure.is_broken_connection() || failure.is_outdated() => {
                *slot = None;
                Err(failure)
            }
            Ok(result) => result,
            Err(_) => {
                // What the server makes of the statement is unknown, so the connection is no use.
                *slot = None;
                Err(F::no_answer(within))
            }
        }
    };
    match attempt(slot).await {
        Err(failure) if failure.is_broken_connection() => attempt(slot).await,
        result => result,
    }
}

/// Connects, trying until `deadline`: a server that starts at the same time as we do is not an error. The connection is
/// to be polled.
///
/// # Errors
/// Why there is no connection.
pub async fn connect(
    config: &Config,
    deadline: Instant,
) -> Result<(Client, Connection<Socket, NoTlsStream>), NoConnection> {
    let mut pause = RETRY_PAUSE;
    loop {
        let error = match timeout_at(deadline, config.connect(NoTls)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error,
            Err(_) => return Err(NoConnection::Timeout),
        };
        if is_refusal(&error) || Instant::now() + pause >= deadline {
            return Err(NoConnection::Refused(error));
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// Whether the server answered that it does not want us: a wrong password or database does not become right by waiting. A
/// server that is starting or stopping, or has too many clients, answers as well.
pub fn is_refusal(error: &Error) -> bool {
    let passes = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    error.code().is_some_and(|code| !passes.contains(code))
}

/// Whether the connection is of no use any more.
pub fn is_broken_connection(error: &Error) -> bool {
    let io = error::Error::source(error).is_some_and(|source| source.is::<io::Error>());
    let closing =
        [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::IDLE_SESSION_TIMEOUT];
    error.is_closed() || io || error.code().is_some_and(|code| closing.contains(code))
}

/// The innermost reason: the client's own words ("db error") say little.
pub fn cause(error: &Error) -> String {
    match error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// The server as an operator knows it, without the password.
pub fn server(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "?".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("Postgres at {host}:{port}/{}", config.get_dbname().unwrap_or("?"))
}
