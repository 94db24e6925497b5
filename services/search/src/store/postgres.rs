//! The store on a Postgres server, for several instances that share their events.
//!
//! A private current-thread runtime carries the client, so the caller blocks like on a file and no
//! other runtime is involved. A batch is one transaction. Rows are written in the order of their
//! ids, so instances that write the same events at the same time wait for each other instead of
//! deadlocking. A connection that died while idle is replaced, and the batch written again, once
//! per call ([`postgres::run`]).

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_kit::postgres::{self, NoConnection, cause, server};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, Config, Error};
use uuid::Uuid;

use super::{Record, Row, Store, StoreError, text};
use crate::event::Event;

/// The layout this version reads and writes.
const SCHEMA_VERSION: i32 = 1;

/// Rows in one statement: bounds what the client has to encode at once.
const ROWS_PER_STATEMENT: usize = 5_000;

/// Serializes the creation of the tables among instances that start together: "HWse".
const SCHEMA_LOCK: &str = "SELECT pg_advisory_xact_lock(1213690725)";

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS search_schema (version integer NOT NULL);
INSERT INTO search_schema SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM search_schema);
CREATE TABLE IF NOT EXISTS search_events (
    id text PRIMARY KEY,
    base_plan_id text NOT NULL,
    plan_id text NOT NULL,
    title text NOT NULL,
    start_at text NOT NULL,
    end_at text NOT NULL,
    sell_from text,
    sell_to text,
    sold_out boolean,
    min_price bigint,
    max_price bigint,
    first_seen_at bigint NOT NULL,
    last_seen_at bigint NOT NULL
)";

const SELECT: &str =
    "SELECT id, base_plan_id, plan_id, title, start_at, end_at, sell_from, sell_to, sold_out,
    min_price, max_price, first_seen_at, last_seen_at FROM search_events";

const UPSERT: &str = "INSERT INTO search_events
SELECT *, $12::bigint, $12::bigint FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::boolean[], $10::bigint[], $11::bigint[])
ON CONFLICT (id) DO UPDATE SET
    title = excluded.title, start_at = excluded.start_at, end_at = excluded.end_at,
    sell_from = excluded.sell_from, sell_to = excluded.sell_to, sold_out = excluded.sold_out,
    min_price = excluded.min_price, max_price = excluded.max_price, last_seen_at = excluded.last_seen_at
-- Another instance may have begun to download later and be done earlier.
WHERE search_events.last_seen_at <= excluded.last_seen_at
-- A clock was ahead: that it was the last says nothing, and would keep every later version out.
OR search_events.last_seen_at > extract(epoch FROM now())";

/// How long to wait for the server.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a first connection at start-up, attempts included; then for each reconnection.
    pub connect: Duration,
    /// For one load or one batch.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(10), operation: Duration::from_secs(30) }
    }
}

/// A connection to the server, replaced when it breaks.
#[derive(Debug)]
pub struct Postgres {
    /// Dropped before the runtime, which carries its connection.
    client: Option<Client>,
    runtime: Runtime,
    config: Config,
    timeouts: Timeouts,
}

impl Postgres {
    /// Connects and makes sure the tables exist, trying again until `timeouts.connect` has passed:
    /// a server that starts at the same time as we do is not an error.
    pub fn connect(config: &Config, timeouts: Timeouts) -> Result<Postgres, StoreError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime
            .map_err(|e| StoreError::new(format!("cannot start a runtime for Postgres: {e}")))?;
        let client = runtime.block_on(connect(config, timeouts.connect));
        let client = Some(client.map_err(|e| e.explain(config))?);
        Ok(Postgres { client, runtime, config: config.clone(), timeouts })
    }

    /// Runs `work` on a live connection, and once more on a new one if the connection broke.
    fn run<T>(
        &mut self,
        work: impl AsyncFn(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let Postgres { client, runtime, config, timeouts } = self;
        let connect = async || connect(config, timeouts.connect).await;
        let result = runtime.block_on(postgres::run(
            client,
            timeouts.operation,
            |client| client,
            connect,
            work,
        ));
        result.map_err(|failure| failure.explain(config))
    }
}

impl Store for Postgres {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        self.run(async |client| {
            let rows = client.query(SELECT, &[]).await?;
            rows.iter().map(record).collect()
        })
    }

    fn seen_since(&mut self, since: i64) -> Result<Vec<Record>, StoreError> {
        let sql = format!("{SELECT} WHERE last_seen_at >= $1");
        self.run(async |client| {
            let rows = client.query(&sql, &[&since]).await?;
            rows.iter().map(record).collect()
        })
    }

    fn apply(&mut self, events: &[Event], seen_at: i64) -> Result<(), StoreError> {
        let by_id: BTreeMap<Uuid, &Event> = events.iter().map(|event| (event.id, event)).collect();
        let ordered: Vec<&Event> = by_id.into_values().collect();
        self.run(async |client| {
            let transaction = client.transaction().await?;
            for rows in ordered.chunks(ROWS_PER_STATEMENT) {
                upsert(&transaction, rows, seen_at).await?;
            }
            Ok(transaction.commit().await?)
        })
    }
}

/// Why the server could not be used.
enum Failure {
    Sql(Error),
    Timeout(&'static str, Duration),
    Connect(Error, Duration),
    Schema(i32),
    Damaged(String, &'static str),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Sql(e)
    }
}

impl postgres::Failure for Failure {
    fn no_answer(within: Duration) -> Failure {
        Failure::Timeout("answer", within)
    }

    fn is_broken_connection(&self) -> bool {
        matches!(self, Failure::Sql(error) if postgres::is_broken_connection(error))
    }
}

impl Failure {
    fn explain(self, config: &Config) -> StoreError {
        let server = server(config);
        StoreError::new(match self {
            Failure::Sql(e) => format!("{server}: {}", cause(&e)),
            Failure::Timeout(what, after) => {
                format!("{server}: no {what} within {after:?}; is it overloaded?")
            }
            Failure::Connect(e, after) => format!(
                "{server}: no connection within {after:?}: {}; check the URL given to --store and that the server runs",
                cause(&e)
            ),
            Failure::Schema(version) => format!(
                "{server}: search_schema has layout {version}, this version reads {SCHEMA_VERSION}; \
                 run the version that wrote it"
            ),
            Failure::Damaged(id, column) => {
                format!(
                    "{server}: search_events row {id}: {column} is not one we wrote; correct or delete the row"
                )
            }
        })
    }
}

/// A connection to a server with the tables, trying until `within` has passed.
async fn connect(config: &Config, within: Duration) -> Result<Client, Failure> {
    let deadline = Instant::now() + within;
    let connected = postgres::connect(config, deadline).await;
    let (mut client, connection) = connected.map_err(|why| match why {
        NoConnection::Refused(error) => Failure::Connect(error, within),
        NoConnection::Timeout => Failure::Timeout("connection", within),
    })?;
    // Runs whenever the runtime does; its error also reaches the client's next call.
    tokio::spawn(connection);
    let created = timeout_at(deadline, create_or_check(&mut client)).await;
    created.unwrap_or(Err(Failure::Timeout("answer", within)))?;
    Ok(client)
}

async fn create_or_check(client: &mut Client) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(SCHEMA_LOCK).await?;
    transaction.batch_execute(SCHEMA).await?;
    let version: i32 =
        transaction.query_one("SELECT max(version) FROM search_schema", &[]).await?.try_get(0)?;
    if version != SCHEMA_VERSION {
        return Err(Failure::Schema(version));
    }
    Ok(transaction.commit().await?)
}

async fn upsert(
    transaction: &tokio_postgres::Transaction<'_>,
    events: &[&Event],
    seen_at: i64,
) -> Result<(), Failure> {
    fn column<T>(events: &[&Event], value: impl Fn(&Event) -> T) -> Vec<T> {
        events.iter().map(|event| value(event)).collect()
    }
    transaction
        .execute(
            UPSERT,
            &[
                &column(events, |event| event.id.to_string()),
                &column(events, |event| event.base_plan_id.to_string()),
                &column(events, |event| event.plan_id.to_string()),
                &column(events, |event| event.title.to_string()),
                &column(events, |event| text(event.start)),
                &column(events, |event| text(event.end)),
                &column(events, |event| event.sell_from.map(text)),
                &column(events, |event| event.sell_to.map(text)),
                &column(events, |event| event.sold_out),
                &column(events, |event| event.min_price.map(|price| price.millionths())),
                &column(events, |event| event.max_price.map(|price| price.millionths())),
                &seen_at,
            ],
        )
        .await?;
    Ok(())
}

fn record(row: &tokio_postgres::Row) -> Result<Record, Failure> {
    let row = Row {
        id: row.try_get(0)?,
        base_plan_id: row.try_get(1)?,
        plan_id: row.try_get(2)?,
        title: row.try_get(3)?,
        start_at: row.try_get(4)?,
        end_at: row.try_get(5)?,
        sell_from: row.try_get(6)?,
        sell_to: row.try_get(7)?,
        sold_out: row.try_get(8)?,
        min_price: row.try_get(9)?,
        max_price: row.try_get(10)?,
        first_seen_at: row.try_get(11)?,
        last_seen_at: row.try_get(12)?,
    };
    let id = row.id.clone();
    row.record().map_err(|column| Failure::Damaged(id, column))
}
