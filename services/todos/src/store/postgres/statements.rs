//! The statements, and what goes in and comes out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, Statement, Transaction};
use uuid::Uuid;

use super::link::Failure;
use crate::store::{Change, Outcome, Revision};
use crate::todo::Todo;

/// Prepared once for each connection.
pub(super) struct Statements {
    pub(super) number: Statement,
    pub(super) claim: Statement,
    pub(super) begin: Statement,
    pub(super) known: Statement,
    pub(super) touched: Statement,
    pub(super) one: Statement,
    pub(super) forgotten: Statement,
    pub(super) upsert: Statement,
    pub(super) delete: Statement,
    pub(super) revive: Statement,
    pub(super) bury: Statement,
    pub(super) record: Statement,
    pub(super) position: Statement,
    pub(super) dead: Statement,
    pub(super) advance: Statement,
    pub(super) notify: Statement,
    pub(super) state: Statement,
    pub(super) is_past: Statement,
    pub(super) diverge: Statement,
    pub(super) positions: Statement,
    pub(super) newest: Statement,
    pub(super) older: Statement,
    pub(super) versions: Statement,
    pub(super) changed: Statement,
    pub(super) gone: Statement,
    pub(super) outcomes: Statement,
}

/// The channel on which the applier announces a new version.
macro_rules! channel {
    () => {
        "highwater_todos"
    };
}

/// Subscribes to new versions.
pub(super) const LISTEN: &str = concat!("LISTEN ", channel!());

/// The columns of a todo, in the order that [`todo`] reads.
macro_rules! todo_columns {
    () => {
        "id, title, description, completed, user_id, created_at, updated_at"
    };
}

/// Locks the partitions of a source, in one order, so that two transactions never wait for each other.
const CLAIM: &str = "SELECT partition_number, next_offset FROM positions
    WHERE source = $1 AND partition_number = ANY($2) ORDER BY 1 FOR UPDATE";

/// Makes the positions of partitions that are new.
const BEGIN: &str =
    "INSERT INTO positions SELECT $1, partition_number, 0 FROM unnest($2::integer[])
        AS partition (partition_number) ORDER BY 2 ON CONFLICT DO NOTHING";

/// Writes todos as they become.
const UPSERT: &str = "INSERT INTO todos
    SELECT *, $8::bigint FROM unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[], $5::text[],
        $6::timestamptz[], $7::timestamptz[])
    ON CONFLICT (id) DO UPDATE SET title = excluded.title, description = excluded.description,
        completed = excluded.completed, updated_at = excluded.updated_at, batch = excluded.batch";

/// Remembers outcomes. An id stays as long as a clock that was wrong when the command was requested may say that it is
/// new.
const RECORD: &str = "INSERT INTO applied_commands (id, batch, outcome, reason, applied_at)
    SELECT id, $5, outcome, reason, greatest(now(), requested_at)
    FROM unnest($1::uuid[], $2::\"char\"[], $3::text[], $4::timestamptz[])
        AS command (id, outcome, reason, requested_at)";

/// Takes the next version. It may be there already where a backup was restored in part.
const ADVANCE: &str = "WITH state AS (
        UPDATE todo_state SET version = version + 1, stamp = $2, todos = todos + $3
        RETURNING version, timeline, todos, stamp),
    made AS (
        INSERT INTO todo_versions (version, batch, stamp) SELECT version, $1, stamp FROM state
        ON CONFLICT (version) DO UPDATE
        SET batch = excluded.batch, stamp = excluded.stamp, made_at = now())
    SELECT version, timeline, todos FROM state";

/// Whether a version has a stamp. Those of versions below the horizon are not known any more.
const IS_PAST: &str = "SELECT $1 < (SELECT horizon FROM todo_state)
        OR EXISTS (SELECT 1 FROM todo_versions WHERE version = $1 AND stamp = $2)";

/// Remembers which todos are gone.
const BURY: &str = "INSERT INTO todo_tombstones (id, batch) SELECT unnest($1::uuid[]), $2
    ON CONFLICT (id) DO UPDATE SET batch = excluded.batch";

/// Moves the positions of a source on, never back.
const REACH: &str =
    "UPDATE positions SET next_offset = greatest(positions.next_offset, reached.next_offset)
    FROM unnest($2::integer[], $3::bigint[]) AS reached (partition_number, next_offset)
    WHERE source = $1 AND positions.partition_number = reached.partition_number";

/// Keeps commands that cannot be applied. Those of other queues have no topic to be sent to.
const GIVE_UP: &str = "INSERT INTO dead_letters (origin, bytes, reason, sent_at)
    VALUES ($1, $2, $3, CASE WHEN $4 THEN NULL ELSE now() END) ON CONFLICT DO NOTHING";

/// The outcomes of batches, in their order.
const OUTCOMES: &str = "SELECT id, outcome, reason FROM applied_commands WHERE batch = ANY($1)
    ORDER BY array_position($1, batch) LIMIT $2";

impl Statements {
    pub(super) async fn prepare(client: &Client) -> Result<Statements, Failure> {
        let prepare = async |sql: &str| client.prepare(sql).await;
        Ok(Statements {
            number: prepare("SELECT nextval('todo_batches')").await?,
            claim: prepare(CLAIM).await?,
            begin: prepare(BEGIN).await?,
            known: prepare("SELECT id, outcome, reason FROM applied_commands WHERE id = ANY($1)").await?,
            touched: prepare(concat!(
                "SELECT ",
                todo_columns!(),
                " FROM todos WHERE id = ANY($1) ORDER BY id FOR UPDATE"
            ))
            .await?,
            one: prepare(concat!("SELECT ", todo_columns!(), " FROM todos WHERE id = $1")).await?,
            forgotten: prepare("SELECT forgotten_at FROM todo_state").await?,
            upsert: prepare(UPSERT).await?,
            delete: prepare("DELETE FROM todos WHERE id = ANY($1)").await?,
            revive: prepare("DELETE FROM todo_tombstones WHERE id = ANY($1)").await?,
            bury: prepare(BURY).await?,
            record: prepare(RECORD).await?,
            position: prepare(REACH).await?,
            dead: prepare(GIVE_UP).await?,
            advance: prepare(ADVANCE).await?,
            notify: prepare(concat!("NOTIFY ", channel!())).await?,
            state: prepare("SELECT version, timeline, todos, stamp, horizon FROM todo_state").await?,
            is_past: prepare(IS_PAST).await?,
            diverge: prepare("UPDATE todo_state SET timeline = $2 WHERE timeline = $1").await?,
            positions: prepare("SELECT partition_number, next_offset FROM positions WHERE source = $1 ORDER BY 1")
                .await?,
            newest: prepare(concat!(
                "SELECT ",
                todo_columns!(),
                " FROM todos ORDER BY created_at DESC, id DESC LIMIT $1"
            ))
            .await?,
            older: prepare(concat!(
                "SELECT ",
                todo_columns!(),
                " FROM todos WHERE (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $1"
            ))
            .await?,
            versions: prepare("SELECT batch FROM todo_versions WHERE version > $1 ORDER BY version LIMIT $2")
                .await?,
            changed: prepare(concat!(
                "SELECT ",
                todo_columns!(),
                " FROM todos WHERE batch = ANY($1) LIMIT $2"
            ))
            .await?,
            gone: prepare("SELECT id FROM todo_tombstones WHERE batch = ANY($1) LIMIT $2").await?,
            outcomes: prepare(OUTCOMES).await?,
        })
    }
}

/// A todo, from the columns of [`todo_columns`].
pub(super) fn todo(row: &Row) -> Result<Todo, Failure> {
    Ok(Todo {
        id: row.try_get(0)?,
        title: row.try_get(1)?,
        description: row.try_get(2)?,
        completed: row.try_get(3)?,
        user_id: row.try_get(4)?,
        created_us: microseconds(row.try_get(5)?),
        updated_us: microseconds(row.try_get(6)?),
    })
}

/// How many todos at once are read of those that are newest.
const PAGE: i64 = 1000;

/// A transaction whose reads all see the store at one moment.
pub(super) async fn snapshot(
    client: &mut Client,
) -> Result<Transaction<'_>, tokio_postgres::Error> {
    let reads = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    reads.read_only(true).start().await
}

/// The newest todos: at most `rows_max`, and not many more than take `bytes_max`. Within one transaction that sees one
/// state.
pub(super) async fn newest(
    transaction: &Transaction<'_>,
    statements: &Statements,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<Todo>, Failure> {
    let mut todos: Vec<Todo> = Vec::new();
    let mut bytes = 0;
    while todos.len() < rows_max && bytes < bytes_max {
        let left = i64::try_from(rows_max - todos.len()).unwrap_or(i64::MAX).min(PAGE);
        let rows = match todos.last() {
            None => transaction.query(&statements.newest, &[&left]).await?,
            Some(last) => {
                let values: [&(dyn ToSql + Sync); 3] = [&left, &time(last.created_us), &last.id];
                transaction.query(&statements.older, &values).await?
            }
        };
        for row in &rows {
            let todo = todo(row)?;
            bytes += todo.bytes();
            todos.push(todo);
        }
        if rows.len() < usize::try_from(left).unwrap_or(usize::MAX) {
            break;
        }
    }
    Ok(todos)
}

/// A version and a timeline, which no version of this service makes negative.
pub(super) fn revision(version: i64, timeline: i64) -> Result<Revision, Failure> {
    let of = |what: &str, number: i64| {
        let damaged = || Failure::Damaged(format!("todo_state: the {what} is {number}"));
        u64::try_from(number).map_err(|_| damaged())
    };
    Ok(Revision { timeline: of("timeline", timeline)?, version: of("version", version)? })
}

/// How many todos there are.
pub(super) fn count(count: i64) -> Result<u64, Failure> {
    u64::try_from(count)
        .map_err(|_| Failure::Damaged(format!("todo_state: there are {count} todos")))
}

/// The rows of `positions`, as partition and next offset.
pub(super) fn positions(source: &str, rows: &[Row]) -> Result<Vec<(u32, u64)>, Failure> {
    let position = |row: &Row| {
        let (partition, offset): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        let damaged = || {
            Failure::Damaged(format!(
                "positions of {source}: partition {partition}, offset {offset}"
            ))
        };
        let partition = u32::try_from(partition).map_err(|_| damaged())?;
        Ok((partition, u64::try_from(offset).map_err(|_| damaged())?))
    };
    rows.iter().map(position).collect()
}

/// What is different, from rows of todos and of ids that are gone.
pub(super) fn changes(changed: &[Row], gone: &[Row]) -> Result<Vec<Change>, Failure> {
    let is = changed.iter().map(|row| Ok(Change::Is(todo(row)?)));
    let gone = gone.iter().map(|row| Ok(Change::Gone(row.try_get(0)?)));
    is.chain(gone).collect()
}

/// What became of a command, from its id, outcome and reason.
pub(super) fn outcome(row: &Row) -> Result<(Uuid, Outcome), Failure> {
    let id = row.try_get(0)?;
    let letter: i8 = row.try_get(1)?;
    let reason: Option<String> = row.try_get(2)?;
    let outcome = match letter as u8 {
        b'd' => Outcome::Done,
        b'n' => Outcome::NotFound,
        b'x' => Outcome::Dead(reason.unwrap_or_default()),
        other => {
            return Err(Failure::Damaged(format!(
                "applied_commands row {id}: outcome {:?} is not one we wrote; correct or delete the row",
                char::from(other)
            )));
        }
    };
    Ok((id, outcome))
}

/// An outcome as it is stored.
pub(super) fn letter(outcome: &Outcome) -> (i8, Option<&str>) {
    match outcome {
        Outcome::Done => (b'd' as i8, None),
        Outcome::NotFound => (b'n' as i8, None),
        Outcome::Dead(reason) => (b'x' as i8, Some(reason)),
    }
}

/// A time of the database, in microseconds since 1970: its own resolution.
pub(super) fn microseconds(time: SystemTime) -> i64 {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

/// Microseconds since 1970 as a time of the database.
pub(super) fn time(us: i64) -> SystemTime {
    let distance = Duration::from_micros(us.unsigned_abs());
    if us < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a time comes out of the database as it went in, on both sides of 1970.
    #[test]
    fn times_survive() {
        for us in [0, 1, -1, 1_700_000_000_000_001, -62_135_596_800_000_000] {
            assert_eq!(microseconds(time(us)), us);
        }
    }
}
