//! A connection to a Postgres server, replaced when it breaks.
//!
//! A private current-thread runtime carries the client, so the caller blocks like on a file and no other
//! runtime is involved. Statements are prepared once for each connection. A connection that died while idle is
//! replaced, and the operation done again, once for each call ([`postgres::run`]).

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use highwater_kit::postgres::{self, NoConnection, cause, is_refusal, server};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

use super::schema;
use super::statements::Statements;
use crate::store::StoreError;

/// How long to wait for the server.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection, attempts included. Default: 5 s.
    pub connect: Duration,
    /// For one operation: a load, a batch. Default: 30 s.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(5), operation: Duration::from_secs(30) }
    }
}

/// A live connection.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) statements: Statements,
}

/// The way to a server, with or without a connection at the moment.
pub(super) struct Link {
    /// Dropped before the runtime, which carries its connection.
    session: Option<Session>,
    runtime: Runtime,
    config: Config,
    timeouts: Timeouts,
    /// What each connection begins with.
    greeting: Option<&'static str>,
    /// Told by the connection of every notification, and of its own end.
    news: Arc<Notify>,
}

impl Link {
    /// Without a connection yet; the first operation makes it.
    /// `greeting` is a statement that each connection begins with.
    pub(super) fn new(
        config: &Config,
        timeouts: Timeouts,
        greeting: Option<&'static str>,
    ) -> Result<Link, StoreError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| {
            StoreError::new(format!("cannot start a runtime for Postgres: {error}"))
        })?;
        let news = Arc::default();
        Ok(Link { session: None, runtime, config: config.clone(), timeouts, greeting, news })
    }

    /// Runs `work` on a live connection, and once more on a new one if the connection broke.
    pub(super) fn run<T>(
        &mut self,
        work: impl AsyncFn(&mut Session) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let Link { session, runtime, config, timeouts, greeting, news } = self;
        let connect = async || connect(config, timeouts.connect, *greeting, news).await;
        let result = runtime.block_on(postgres::run(
            session,
            timeouts.operation,
            |session| &session.client,
            connect,
            work,
        ));
        result.map_err(|failure| failure.explain(config))
    }

    /// Waits for a notification, or the end of the connection, at most for `wait`.
    pub(super) fn wait(&mut self, wait: Duration) {
        let Link { runtime, news, .. } = self;
        runtime.block_on(async {
            // Nothing came in time: the caller looks for itself.
            let _ = timeout(wait, news.notified()).await;
        });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", server(&self.config))
    }
}

/// Why the server could not be used.
pub(super) enum Failure {
    Sql(Error),
    Timeout(&'static str, Duration),
    Connect(Error, Duration),
    Schema(i32),
    Damaged(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Sql(error)
    }
}

impl postgres::Failure for Failure {
    fn no_answer(within: Duration) -> Failure {
        Failure::Timeout("answer", within)
    }

    fn is_broken_connection(&self) -> bool {
        matches!(self, Failure::Sql(error) if postgres::is_broken_connection(error))
    }

    /// The tables are not those that this connection found: a newer version of the service has changed them. The next
    /// connection says so.
    fn is_outdated(&self) -> bool {
        let Failure::Sql(error) = self else { return false };
        let codes = [
            SqlState::UNDEFINED_COLUMN,
            SqlState::UNDEFINED_TABLE,
            SqlState::FEATURE_NOT_SUPPORTED,
        ];
        error.code().is_some_and(|code| codes.contains(code))
    }
}

impl Failure {
    /// Why the server will never take these values, if that is what it says: they are wrong in themselves,
    /// not the moment. Class 22: data exception; 54: a limit of the program; 23: a constraint.
    pub(super) fn refused_value(&self) -> Option<String> {
        let Failure::Sql(error) = self else { return None };
        let class = error.code()?.code().get(..2)?;
        ["22", "23", "54"].contains(&class).then(|| cause(error))
    }

    fn explain(self, config: &Config) -> StoreError {
        let server = server(config);
        let is_permanent = match &self {
            Failure::Schema(_) => true,
            Failure::Connect(error, _) => is_refusal(error),
            _ => false,
        };
        let message = match self {
            Failure::Sql(error) if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
                format!(
                    "{server}: {}; give DATABASE_URL of the primary, or let it take writes \
                     (default_transaction_read_only)",
                    cause(&error)
                )
            }
            Failure::Sql(error) => format!("{server}: {}", cause(&error)),
            Failure::Timeout(what, after) => {
                format!("{server}: no {what} within {after:?}; is it overloaded?")
            }
            Failure::Connect(error, after) => format!(
                "{server}: no connection within {after:?}: {}; check DATABASE_URL and that the server runs",
                cause(&error)
            ),
            Failure::Schema(version) => format!(
                "{server}: schema_migrations is at {version}, this version knows {}; run the version that wrote it",
                schema::VERSION
            ),
            Failure::Damaged(what) => format!("{server}: {what}"),
        };
        if is_permanent { StoreError::permanent(message) } else { StoreError::new(message) }
    }
}

/// A connection whose tables are there, trying until `within` has passed.
async fn connect(
    config: &Config,
    within: Duration,
    greeting: Option<&str>,
    news: &Arc<Notify>,
) -> Result<Session, Failure> {
    let deadline = Instant::now() + within;
    let connected = postgres::connect(config, deadline).await;
    let (client, connection) = connected.map_err(|why| match why {
        NoConnection::Refused(error) => Failure::Connect(error, within),
        NoConnection::Timeout => Failure::Timeout("connection", within),
    })?;
    // Runs whenever the runtime does; its error also reaches the client's next call.
    tokio::spawn(carry(connection, Arc::clone(news)));
    let opened = timeout_at(deadline, open(client, greeting)).await;
    opened.unwrap_or(Err(Failure::Timeout("answer", within)))
}

async fn open(mut client: Client, greeting: Option<&str>) -> Result<Session, Failure> {
    schema::migrate(&mut client).await?;
    if let Some(greeting) = greeting {
        client.batch_execute(greeting).await?;
    }
    let statements = Statements::prepare(&client).await?;
    Ok(Session { client, statements })
}

/// Carries the connection to its end.
async fn carry(
    mut connection: Connection<Socket, tokio_postgres::tls::NoTlsStream>,
    news: Arc<Notify>,
) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(_) = message {
            news.notify_one();
        }
    }
    news.notify_one();
}
