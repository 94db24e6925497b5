//! The store on a Postgres server, for several instances and workers.
//!
//! | file | what |
//! |---|---|
//! | `link.rs` | a connection that is replaced when it breaks |
//! | `schema.rs` | the tables, and their migrations |
//! | `statements.rs` | the statements, and what goes in and comes out |
//! | `apply.rs` | a batch of commands, in one transaction |
//! | `feed.rs` | what others have applied |
//!
//! A commit is durable when it is answered, unless the server is set up otherwise (`synchronous_commit`).

mod apply;
mod feed;
mod link;
mod schema;
mod statements;

use std::error;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use highwater::logging::rate_limited;
use tokio_postgres::Config;
use uuid::Uuid;

pub use self::feed::PostgresFeed;
pub use self::link::Timeouts;
use self::link::{Failure, Link, Session};
use super::{Applied, DEAD_LETTERS_MAX, DeadLetter, Loaded, Store, StoreError};
use crate::queue::Delivery;
use crate::todo::Todo;

/// How long ids of applied commands are kept, as Postgres writes [`COMMANDS_KEPT_US`](super::COMMANDS_KEPT_US).
const COMMANDS_KEPT: &str = "14 days";

/// How long an instance may be disconnected and still learn the difference instead of everything.
const HISTORY_KEPT: &str = "1 hour";

/// So many versions are kept however old they are: an instance that is no further behind finds the version that it knows
/// among them.
const VERSIONS_KEPT: i64 = 1000;

/// How often what is too old is removed.
const CLEAN_EVERY: Duration = Duration::from_secs(60);

/// Rows of each kind that [`Postgres::clean_now`] removes at most.
const CLEAN_ROWS_MAX: u32 = 10_000;

/// While too old rows are left, each batch is followed by a cleaning of at most so many rows for each of its commands. A command
/// adds at most one row of each kind: so a backlog shrinks by at least as much as the batch adds, whatever the rate is, and the
/// cleaning takes a time that is in proportion to the batch, not to the backlog.
const CLEAN_ROWS_PER_COMMAND: u32 = 2;

/// The same for a small batch: a guess at what costs less than the batch's own commit.
const CLEAN_ROWS_MIN: u32 = 128;

/// What is removed at once while no commands come: nobody waits for it longer than for a full batch.
const CLEAN_ROWS_IDLE: u32 = 1024;

/// Deliveries of one transaction where the server refuses a value: one by one, they take many turns of the connection, and
/// still have to be done before the timeout of an operation.
const PIECE: usize = 32;

/// Todos on a Postgres server.
#[derive(Debug)]
pub struct Postgres {
    link: Link,
    /// `None`: the last cleaning has left something.
    cleaned: Option<Instant>,
}

impl Postgres {
    /// Connects and migrates, trying again until `timeouts.connect` has passed: a server that starts at the same
    /// time as we do is not an error.
    ///
    /// # Errors
    ///
    /// If there is no connection in time, or the tables are of a later version.
    pub fn connect(config: &Config, timeouts: Timeouts) -> Result<Postgres, StoreError> {
        let mut link = Link::new(config, timeouts, None)?;
        link.run(async |_| Ok(()))?;
        Ok(Postgres { link, cleaned: Some(Instant::now()) })
    }

    /// Removes what is too old, now and then: at most `rows` of each kind. The store works without it.
    fn clean(&mut self, rows: u32) {
        if self.cleaned.is_some_and(|cleaned| cleaned.elapsed() < CLEAN_EVERY) {
            return;
        }
        if let Err(error) = self.clean_rows(rows) {
            rate_limited!(WARN, error = %error, "expired rows could not be removed");
        }
    }

    /// Removes what is too old now: at most 10 000 rows of each kind. [`Store::apply`] removes some every minute, and each time
    /// while there is more; [`Store::idle`] as well.
    ///
    /// # Errors
    ///
    /// If the server fails. The store works all the same.
    pub fn clean_now(&mut self) -> Result<(), StoreError> {
        self.clean_rows(CLEAN_ROWS_MAX)
    }

    fn clean_rows(&mut self, rows: u32) -> Result<(), StoreError> {
        // If it fails, the next one waits its time.
        self.cleaned = Some(Instant::now());
        if !self.link.run(async |session| clean(session, rows).await)? {
            self.cleaned = None;
        }
        Ok(())
    }

    /// Applies `deliveries` in one transaction. `None`: the server refuses a value, and nothing was applied.
    fn together(
        &mut self,
        source: &str,
        deliveries: &[Delivery],
    ) -> Result<Option<Applied>, StoreError> {
        self.link.run(async |Session { client, statements }| {
            let mut transaction = client.transaction().await?;
            let together = apply::apply_together(&mut transaction, statements, source, deliveries);
            match together.await {
                Ok(applied) => {
                    transaction.commit().await?;
                    Ok(Some(applied))
                }
                Err(failure) if failure.refused_value().is_some() => {
                    transaction.rollback().await?;
                    Ok(None)
                }
                Err(failure) => Err(failure),
            }
        })
    }

    /// The same, where a command that the server refuses becomes a dead letter.
    fn one_by_one(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError> {
        self.link.run(async |Session { client, statements }| {
            let mut transaction = client.transaction().await?;
            let applied =
                apply::apply_each(&mut transaction, statements, source, deliveries).await?;
            transaction.commit().await?;
            Ok(applied)
        })
    }
}

impl Store for Postgres {
    fn newest(&mut self, rows_max: usize, bytes_max: usize) -> Result<Loaded, StoreError> {
        self.link.run(async |Session { client, statements }| {
            let transaction = statements::snapshot(client).await?;
            let row = transaction.query_one(&statements.state, &[]).await?;
            let revision = statements::revision(row.try_get(0)?, row.try_get(1)?)?;
            let count = statements::count(row.try_get(2)?)?;
            let todos = statements::newest(&transaction, statements, rows_max, bytes_max).await?;
            transaction.commit().await?;
            Ok(Loaded { revision, count, todos })
        })
    }

    fn find(&mut self, id: Uuid) -> Result<Option<Todo>, StoreError> {
        self.link.run(async |Session { client, statements }| {
            let row = client.query_opt(&statements.one, &[&id]).await?;
            row.as_ref().map(statements::todo).transpose()
        })
    }

    fn apply(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError> {
        let applied = match self.together(source, deliveries)? {
            Some(applied) => applied,
            None => {
                let mut all = Applied::default();
                for piece in deliveries.chunks(PIECE) {
                    all.add(match self.together(source, piece)? {
                        Some(applied) => applied,
                        None => self.one_by_one(source, piece)?,
                    });
                }
                all
            }
        };
        let commands = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
        let rows = commands.saturating_mul(CLEAN_ROWS_PER_COMMAND);
        self.clean(rows.clamp(CLEAN_ROWS_MIN, CLEAN_ROWS_MAX));
        Ok(applied)
    }

    fn idle(&mut self) {
        self.clean(CLEAN_ROWS_IDLE);
    }

    fn positions(&mut self, source: &str) -> Result<Vec<(u32, u64)>, StoreError> {
        self.link.run(async |Session { client, statements }| {
            let rows = client.query(&statements.positions, &[&source]).await?;
            statements::positions(source, &rows)
        })
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        // What was answered is durable.
        Ok(())
    }

    fn dead_letters(&mut self, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.link.run(async |Session { client, .. }| {
            let sql = "SELECT number, origin, bytes, reason, dead_at FROM dead_letters
                       ORDER BY number DESC LIMIT $1";
            client.query(sql, &[&max]).await?.iter().map(dead_letter).collect()
        })
    }

    fn unsent(&mut self, source: &str, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let origins = format!("{source}/");
        self.link.run(async |Session { client, .. }| {
            // Held until they were sent, or this connection ends: so that two workers never send the same one.
            if !client.query_one(SENDING, &[]).await?.try_get::<_, bool>(0)? {
                return Ok(Vec::new());
            }
            let sql = "SELECT number, origin, bytes, reason, dead_at FROM dead_letters
                       WHERE sent_at IS NULL AND starts_with(origin, $1) ORDER BY number LIMIT $2";
            let rows = client.query(sql, &[&origins, &max]).await.map_err(Failure::from);
            let letters: Result<Vec<DeadLetter>, Failure> =
                rows.and_then(|rows| rows.iter().map(dead_letter).collect());
            // Without any there is no `were_sent`, and a lock that is taken again has to be given back as often.
            if !letters.as_ref().is_ok_and(|letters| !letters.is_empty()) {
                client.query_one(SENT, &[]).await?;
            }
            letters
        })
    }

    fn were_sent(&mut self, numbers: &[i64]) -> Result<(), StoreError> {
        self.link.run(async |Session { client, .. }| {
            let sql = "UPDATE dead_letters SET sent_at = now() WHERE number = ANY($1)";
            client.execute(sql, &[&numbers]).await?;
            client.query_one(SENT, &[]).await?;
            Ok(())
        })
    }

    fn divided_by(&mut self, source: &str, found: Option<u32>) -> Result<Option<u32>, StoreError> {
        let found = found.map(|found| i32::try_from(found).unwrap_or(i32::MAX));
        self.link.run(async |Session { client, .. }| {
            let find = "SELECT partitions FROM queue_partitions WHERE source = $1";
            if let Some(found) = &found {
                let store = "INSERT INTO queue_partitions VALUES ($1, $2) ON CONFLICT DO NOTHING";
                client.execute(store, &[&source, found]).await?;
            }
            let stored = client.query_opt(find, &[&source]).await?;
            stored.map(|row| partitions(row.try_get(0)?)).transpose()
        })
    }

    fn divide_by(&mut self, source: &str, partitions: u32) -> Result<(), StoreError> {
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        self.link.run(async |Session { client, .. }| {
            let store = "INSERT INTO queue_partitions VALUES ($1, $2)
                ON CONFLICT (source) DO UPDATE SET partitions = excluded.partitions";
            client.execute(store, &[&source, &partitions]).await?;
            Ok(())
        })
    }
}

/// A number of partitions, which this service never stores beyond what Kafka can have.
fn partitions(stored: i32) -> Result<u32, Failure> {
    u32::try_from(stored).map_err(|_| Failure::Damaged(format!("queue_partitions: {stored}")))
}

/// One process at a time sends dead letters: "HWdl".
const SENDING: &str = "SELECT pg_try_advisory_lock(1213694060)";
const SENT: &str = "SELECT pg_advisory_unlock(1213694060)";

fn dead_letter(row: &tokio_postgres::Row) -> Result<DeadLetter, Failure> {
    let time: SystemTime = row.try_get(4)?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(DeadLetter {
        number: row.try_get(0)?,
        origin: row.try_get(1)?,
        bytes: row.try_get(2)?,
        reason: row.try_get(3)?,
        time_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
    })
}

/// Removes at most `rows_max` of each kind. Whether nothing is left that is too old.
async fn clean(Session { client, .. }: &mut Session, rows_max: u32) -> Result<bool, Failure> {
    let transaction = client.transaction().await?;
    // The row of todo_state comes last, as for those who apply: so nobody waits for each other.
    let versions = format!(
        "WITH old AS (
             DELETE FROM todo_versions WHERE version IN (
                 SELECT version FROM todo_versions WHERE made_at < now() - interval '{HISTORY_KEPT}'
                     AND version <= (SELECT version FROM todo_state) - {VERSIONS_KEPT}
                 ORDER BY version LIMIT {rows_max} FOR UPDATE SKIP LOCKED)
             RETURNING version, batch),
         gone AS (DELETE FROM todo_tombstones USING old WHERE todo_tombstones.batch = old.batch)
         SELECT max(version) + 1, count(*) FROM old"
    );
    let versions = transaction.query_one(&versions, &[]).await?;
    let horizon: Option<i64> = versions.try_get(0)?;
    let commands = format!(
        "WITH removed AS (
             DELETE FROM applied_commands WHERE id IN (
                 SELECT id FROM applied_commands WHERE applied_at < now() - interval '{COMMANDS_KEPT}'
                 ORDER BY applied_at LIMIT {rows_max} FOR UPDATE SKIP LOCKED)
             RETURNING applied_at)
         SELECT max(applied_at) + interval '1 us', count(*) FROM removed"
    );
    let commands = transaction.query_one(&commands, &[]).await?;
    let forgotten: Option<SystemTime> = commands.try_get(0)?;
    if horizon.is_some() || forgotten.is_some() {
        // `greatest` ignores what is null.
        let raise = "UPDATE todo_state SET horizon = greatest(horizon, $1),
            forgotten_at = greatest(forgotten_at, $2)";
        transaction.execute(raise, &[&horizon, &forgotten]).await?;
    }
    transaction.commit().await?;
    let letters = format!(
        "DELETE FROM dead_letters WHERE number IN (
             SELECT number FROM dead_letters WHERE number <= (
                 SELECT number FROM dead_letters ORDER BY number DESC LIMIT 1 OFFSET {DEAD_LETTERS_MAX})
             ORDER BY number LIMIT {rows_max})"
    );
    let letters = i64::try_from(client.execute(&letters, &[]).await?).unwrap_or(i64::MAX);
    let most = letters.max(versions.try_get(1)?).max(commands.try_get(1)?);
    Ok(most < i64::from(rows_max))
}

/// Reads `postgres://user:password@host:port/database`.
///
/// # Errors
///
/// If it is no such URL, or asks for what this client cannot do.
pub fn parse_url(text: &str) -> Result<Config, StoreError> {
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(StoreError::new("expected `postgres://user:password@host:port/database`"));
    }
    let config = Config::from_str(text).map_err(|error| {
        let cause =
            error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        StoreError::new(format!("not a Postgres URL: {cause}"))
    })?;
    use tokio_postgres::config::SslMode;
    match config.get_ssl_mode() {
        SslMode::Disable | SslMode::Prefer => Ok(config),
        _ => Err(StoreError::new(
            "sslmode=require is not supported: use a local proxy that speaks TLS, and sslmode=disable",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a wrong URL is refused with what to write, and a password never reaches a log.
    #[test]
    fn urls() {
        let config = parse_url("postgres://u:hunter2@db:5433/todos").expect("a URL");
        assert!(!format!("{config:?}").contains("hunter2"));
        let refusal = |text: &str| parse_url(text).expect_err(text).to_string();
        assert!(refusal("mysql://db").contains("postgres://user:password@host"));
        assert!(refusal("postgres://db:port/x").contains("not a Postgres URL"));
        assert!(refusal("postgres://db/x?sslmode=require").contains("sslmode=disable"));
    }
}
