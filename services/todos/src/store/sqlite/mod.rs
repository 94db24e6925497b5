//! The store in a file of its own: SQLite, `todos.db` in the data directory.
//!
//! Write-ahead log with `synchronous=NORMAL`: a transaction survives `kill -9` at once, and a power cut once
//! [`Store::sync`] has moved it from the log into the database. Until then the queue keeps its commands, for
//! it is committed only after that; after a power cut they are applied again. So the disk waits once for many
//! transactions, and still nothing is lost.
//!
//! A damaged file is refused, never silently replaced or served in part: the operator decides.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater::journal::storage::create_directory;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, params};
use uuid::Uuid;

use super::{
    Applied, COMMANDS_KEPT_US, Change, DeadLetter, Loaded, Outcome, Revision, Store, StoreError,
    is_shared, origin,
};
use crate::command::{Action, Command};
use crate::queue::{Delivery, Position};
use crate::todo::{Todo, now_us};

/// The file's name in the data directory.
const FILE: &str = "todos.db";

/// Marks the file as ours in its header: "HWtd".
const APPLICATION_ID: i64 = 0x4857_7464;

/// How long a write waits for another process that holds the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// So many dead letters are kept; beyond it the oldest goes.
pub const DEAD_LETTERS_MAX: u64 = 100_000;

/// The layout, one step after the other: a file that has had the first `n` gets the rest.
const MIGRATIONS: [&str; 2] = ["
CREATE TABLE todos (
    id TEXT PRIMARY KEY NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    completed INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE positions (
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    PRIMARY KEY (source, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE dead_letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    bytes BLOB NOT NULL,
    reason TEXT NOT NULL,
    time_us INTEGER NOT NULL
) STRICT;
CREATE TABLE versions (version INTEGER NOT NULL) STRICT;
INSERT INTO versions VALUES (0);
", "
ALTER TABLE versions ADD COLUMN timeline INTEGER NOT NULL DEFAULT 0;
-- Commands of Kafka that were applied: offsets do not tell a topic from one that was made anew under its name.
CREATE TABLE applied_commands (
    id BLOB PRIMARY KEY NOT NULL,
    -- NULL: done; empty: not found; else a dead letter, and why.
    reason TEXT,
    applied_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX applied_commands_by_time ON applied_commands (applied_us);
-- 0 while it is to be sent to the topic of dead letters.
ALTER TABLE dead_letters ADD COLUMN sent INTEGER NOT NULL DEFAULT 1;
CREATE INDEX dead_letters_by_origin ON dead_letters (origin);
CREATE INDEX dead_letters_unsent ON dead_letters (number) WHERE sent = 0;
"];

const LAYOUTS: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY NOT NULL,
    applied_us INTEGER NOT NULL
) STRICT";

const CREATE: &str =
    "INSERT INTO todos VALUES (?1, ?2, ?3, 0, ?4, ?5, ?5, ?6) ON CONFLICT (id) DO NOTHING";

const UPDATE: &str = "UPDATE todos SET
    title = coalesce(?3, title), description = coalesce(?4, description),
    completed = coalesce(?5, completed), updated_us = max(updated_us, ?6), version = ?7
WHERE id = ?1 AND user_id = ?2
RETURNING id, title, description, completed, user_id, created_us, updated_us";

const DELETE: &str = "DELETE FROM todos WHERE id = ?1 AND user_id = ?2";

/// An open `todos.db`.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the file in `directory`; both are made if they do not exist.
    ///
    /// # Errors
    ///
    /// Refused: a directory that cannot be written, a file that is damaged, that something else wrote, or that
    /// a newer version wrote. The error names the file and the remedy.
    pub fn open(directory: &Path) -> Result<Sqlite, StoreError> {
        let unusable = |error: &dyn Display| {
            StoreError::new(format!(
                "cannot use the data directory {}: {error}; give --data a directory that this user can write",
                directory.display()
            ))
        };
        create_directory(directory).map_err(|error| unusable(&error))?;
        let path = directory.join(FILE);
        // NO_MUTEX: one thread at a time has the connection, which `&mut self` guarantees.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|error| unusable(&error))?;
        let mut store = Sqlite { connection, path };
        store.prepare().map_err(|refusal| match refusal {
            Refusal::Sql(error) => explain(&store.path, &error),
            Refusal::Said(message) => StoreError::new(message),
        })?;
        Ok(store)
    }

    fn prepare(&mut self) -> Result<(), Refusal> {
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        let mode: String =
            self.connection
                .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        if mode != "wal" {
            let path = self.path.display();
            let message =
                format!("{path}: no write-ahead log here ({mode}); use a local file system");
            return Err(Refusal::Said(message));
        }
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        migrate(&transaction, &self.path)?;
        // Only this process changes the store from now on. What it does is a history of its own, should the file be
        // an older one than the last process had.
        transaction.execute("UPDATE versions SET timeline = max(timeline + 1, ?1)", [now_us()])?;
        transaction.commit()?;
        let verdict: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(Refusal::Said(damaged(&self.path, verdict.trim())));
        }
        Ok(())
    }
}

impl Store for Sqlite {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let path = &self.path;
        let mut read = || -> rusqlite::Result<Loaded> {
            let transaction = self.connection.transaction()?;
            let revision = revision(&transaction)?;
            let mut statement = transaction.prepare(
                "SELECT id, title, description, completed, user_id, created_us, updated_us FROM todos",
            )?;
            let todos = statement.query_map([], todo)?.collect::<rusqlite::Result<_>>()?;
            Ok(Loaded { revision, todos })
        };
        read().map_err(|error| explain(path, &error))
    }

    fn apply(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError> {
        let path = &self.path;
        let mut write = || -> rusqlite::Result<Applied> {
            let transaction = self
                .connection
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let applied = Application::begin(&transaction, source)?.run(deliveries)?;
            transaction.commit()?;
            Ok(applied)
        };
        write().map_err(|error| explain(path, &error))
    }

    fn positions(&mut self, source: &str) -> Result<Vec<(u32, u64)>, StoreError> {
        let read = positions(&self.connection, source);
        read.map(|positions| positions.into_iter().collect())
            .map_err(|error| explain(&self.path, &error))
    }

    /// Moves the log into the database: SQLite syncs the one before and the other after.
    fn sync(&mut self) -> Result<(), StoreError> {
        let moved = self.connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        match moved.map_err(|error| explain(&self.path, &error))? {
            (0, log, done) if log == done => Ok(()),
            (_, log, done) => Err(StoreError::new(format!(
                "{}: another process reads it, so {done} of {log} pages are in the database yet",
                self.path.display()
            ))),
        }
    }

    fn dead_letters(&mut self, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let read = || -> rusqlite::Result<Vec<DeadLetter>> {
            let mut statement = self.connection.prepare(
                "SELECT number, origin, bytes, reason, time_us FROM dead_letters
                 ORDER BY number DESC LIMIT ?1",
            )?;
            statement.query_map([i64::try_from(max).unwrap_or(i64::MAX)], dead_letter)?.collect()
        };
        read().map_err(|error| explain(&self.path, &error))
    }

    fn unsent(&mut self, source: &str, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let read = || -> rusqlite::Result<Vec<DeadLetter>> {
            let mut statement = self.connection.prepare(
                "SELECT number, origin, bytes, reason, time_us FROM dead_letters
                 WHERE sent = 0 AND substr(origin, 1, length(?1)) = ?1 ORDER BY number LIMIT ?2",
            )?;
            let values = params![format!("{source}/"), i64::try_from(max).unwrap_or(i64::MAX)];
            statement.query_map(values, dead_letter)?.collect()
        };
        read().map_err(|error| explain(&self.path, &error))
    }

    fn were_sent(&mut self, numbers: &[i64]) -> Result<(), StoreError> {
        let path = &self.path;
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for number in numbers {
                transaction
                    .prepare_cached("UPDATE dead_letters SET sent = 1 WHERE number = ?1")?
                    .execute([number])?;
            }
            transaction.commit()
        };
        write().map_err(|error| explain(path, &error))
    }
}

/// One transaction of deliveries.
struct Application<'t> {
    transaction: &'t Transaction<'t>,
    source: &'t str,
    revision: Revision,
    now_us: i64,
    positions: BTreeMap<u32, u64>,
    /// What todos have become.
    changed: BTreeMap<Uuid, Option<Todo>>,
    applied: Applied,
}

impl<'t> Application<'t> {
    fn begin(
        transaction: &'t Transaction<'t>,
        source: &'t str,
    ) -> rusqlite::Result<Application<'t>> {
        let Revision { timeline, version } = revision(transaction)?;
        let revision = Revision { timeline, version: version + 1 };
        let positions = positions(transaction, source)?;
        let (changed, applied) = (BTreeMap::new(), Applied::default());
        let now_us = now_us();
        Ok(Application { transaction, source, revision, now_us, positions, changed, applied })
    }

    /// What became of a delivery that was applied before.
    fn repeated(&self, delivery: &Delivery) -> rusqlite::Result<Option<Outcome>> {
        let is_below = |position: Position| {
            self.positions.get(&position.partition).is_some_and(|next| position.offset < *next)
        };
        let is_below = delivery.position.is_some_and(is_below);
        let command = match &delivery.content {
            Ok(command) if is_shared(self.source) => command,
            Err(poison) if is_shared(self.source) => {
                let mut select = self.transaction.prepare_cached(
                    "SELECT 1 FROM dead_letters WHERE origin = ?1 AND bytes = ?2",
                )?;
                let is_known =
                    select.exists(params![origin(self.source, delivery), poison.bytes])?;
                return Ok(is_known.then_some(Outcome::Done));
            }
            // Who waits for it has waited for the first delivery.
            _ => return Ok(is_below.then_some(Outcome::Done)),
        };
        let mut select =
            self.transaction.prepare_cached("SELECT reason FROM applied_commands WHERE id = ?1")?;
        let known = select.query_row([command.id.as_bytes()], |row| row.get(0)).optional()?;
        if let Some(reason) = known {
            return Ok(Some(match reason {
                None => Outcome::Done,
                Some(reason) if String::is_empty(&reason) => Outcome::NotFound,
                Some(reason) => Outcome::Dead(reason),
            }));
        }
        // So old that its id may have been removed.
        let is_old = command.requested_us < self.now_us.saturating_sub(COMMANDS_KEPT_US);
        Ok((is_below && is_old).then_some(Outcome::Done))
    }

    /// Remembers what became of a command that may be delivered again under another position.
    fn remember(&self, command: &Command, outcome: &Outcome) -> rusqlite::Result<()> {
        if !is_shared(self.source) {
            return Ok(());
        }
        let reason = match outcome {
            Outcome::Done => None,
            Outcome::NotFound => Some(""),
            Outcome::Dead(reason) => Some(reason.as_str()),
        };
        let mut insert =
            self.transaction.prepare_cached("INSERT INTO applied_commands VALUES (?1, ?2, ?3)")?;
        insert.execute(params![command.id.as_bytes(), reason, self.now_us])?;
        Ok(())
    }

    /// Removes some ids that are too old; more than are added.
    fn clean(&self, deliveries: usize) -> rusqlite::Result<()> {
        if is_shared(self.source) {
            let mut delete = self.transaction.prepare_cached(
                "DELETE FROM applied_commands WHERE id IN (
                     SELECT id FROM applied_commands WHERE applied_us < ?1 LIMIT ?2)",
            )?;
            delete.execute(params![self.now_us - COMMANDS_KEPT_US, 2 * deliveries as i64])?;
        }
        Ok(())
    }

    fn run(mut self, deliveries: &[Delivery]) -> rusqlite::Result<Applied> {
        for delivery in deliveries {
            if let Some(outcome) = self.repeated(delivery)? {
                self.applied.repeated += 1;
                if let Ok(command) = &delivery.content {
                    self.applied.changes.commands.push((command.id, outcome));
                }
            } else {
                self.deliver(delivery)?;
            }
            if let Some(position) = delivery.position {
                let next = self.positions.entry(position.partition).or_insert(0);
                *next = position.offset.saturating_add(1).max(*next);
            }
        }
        self.clean(deliveries.len())?;
        self.finish()
    }

    fn deliver(&mut self, delivery: &Delivery) -> rusqlite::Result<()> {
        match &delivery.content {
            Ok(command) => {
                let outcome = match self.command(command) {
                    Err(error) if is_for_ever(&error) => {
                        let reason = format!("the database refuses it: {error}");
                        self.bury(delivery, &command.encode(), &reason)?;
                        Outcome::Dead(reason)
                    }
                    other => other?,
                };
                self.remember(command, &outcome)?;
                self.applied.changes.commands.push((command.id, outcome));
                Ok(())
            }
            Err(poison) => self.bury(delivery, &poison.bytes, &poison.reason),
        }
    }

    fn command(&mut self, command: &Command) -> rusqlite::Result<Outcome> {
        let Command { todo: id, user_id, requested_us, .. } = command;
        let mut text = [0; 36];
        let key: &str = id.as_hyphenated().encode_lower(&mut text);
        match &command.action {
            Action::Create { title, description } => {
                let mut create = self.transaction.prepare_cached(CREATE)?;
                let version = self.revision.version as i64;
                let values = params![key, title, description, user_id, requested_us, version];
                if create.execute(values)? == 1 {
                    let todo = Todo {
                        id: *id,
                        title: title.clone(),
                        description: description.clone(),
                        completed: false,
                        user_id: user_id.clone(),
                        created_us: *requested_us,
                        updated_us: *requested_us,
                    };
                    self.changed.insert(*id, Some(todo));
                }
                Ok(Outcome::Done)
            }
            Action::Update { title, description, completed } => {
                let mut update = self.transaction.prepare_cached(UPDATE)?;
                let values = params![
                    key,
                    user_id,
                    title,
                    description,
                    completed,
                    requested_us,
                    self.revision.version as i64
                ];
                let Some(todo) = update.query_row(values, todo).optional()? else {
                    return Ok(Outcome::NotFound);
                };
                self.changed.insert(*id, Some(todo));
                Ok(Outcome::Done)
            }
            Action::Delete => {
                let mut delete = self.transaction.prepare_cached(DELETE)?;
                if delete.execute(params![key, user_id])? == 0 {
                    return Ok(Outcome::NotFound);
                }
                self.changed.insert(*id, None);
                Ok(Outcome::Done)
            }
        }
    }

    /// Keeps what cannot be applied.
    fn bury(&mut self, delivery: &Delivery, bytes: &[u8], reason: &str) -> rusqlite::Result<()> {
        let origin = origin(self.source, delivery);
        let mut insert = self.transaction.prepare_cached(
            "INSERT INTO dead_letters (origin, bytes, reason, time_us, sent) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        insert.execute(params![origin, bytes, reason, self.now_us, !is_shared(self.source)])?;
        let oldest = self.transaction.last_insert_rowid() - DEAD_LETTERS_MAX as i64;
        let mut forget =
            self.transaction.prepare_cached("DELETE FROM dead_letters WHERE number <= ?1")?;
        forget.execute([oldest])?;
        self.applied.dead += 1;
        Ok(())
    }

    fn finish(mut self) -> rusqlite::Result<Applied> {
        for (partition, next) in &self.positions {
            self.transaction
                .prepare_cached(
                    "INSERT INTO positions VALUES (?1, ?2, ?3)
                     ON CONFLICT (source, partition) DO UPDATE SET next_offset = excluded.next_offset",
                )?
                .execute(params![self.source, partition, *next as i64])?;
        }
        if !self.changed.is_empty() {
            self.transaction
                .prepare_cached("UPDATE versions SET version = ?1")?
                .execute([self.revision.version as i64])?;
        } else {
            self.revision.version -= 1;
        }
        let change = |(id, todo): (Uuid, Option<Todo>)| todo.map_or(Change::Gone(id), Change::Is);
        self.applied.changes.revision = self.revision;
        self.applied.changes.todos = self.changed.into_iter().map(change).collect();
        Ok(self.applied)
    }
}

fn revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT timeline, version FROM versions")?;
    select.query_row([], |row| {
        let (timeline, version) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
        Ok(Revision { timeline: timeline as u64, version: version as u64 })
    })
}

fn dead_letter(row: &rusqlite::Row<'_>) -> rusqlite::Result<DeadLetter> {
    let (number, origin, bytes) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(DeadLetter { number, origin, bytes, reason: row.get(3)?, time_us: row.get(4)? })
}

fn positions(connection: &Connection, source: &str) -> rusqlite::Result<BTreeMap<u32, u64>> {
    let mut select = connection
        .prepare_cached("SELECT partition, next_offset FROM positions WHERE source = ?1")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64));
    select.query_map([source], row)?.collect()
}

fn todo(row: &rusqlite::Row<'_>) -> rusqlite::Result<Todo> {
    let id = row.get_ref(0)?.as_str()?;
    let id = Uuid::try_parse(id).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Todo {
        id,
        title: row.get(1)?,
        description: row.get(2)?,
        completed: row.get(3)?,
        user_id: row.get(4)?,
        created_us: row.get(5)?,
        updated_us: row.get(6)?,
    })
}

/// Whether the error is about the values: it would come again for ever.
fn is_for_ever(error: &rusqlite::Error) -> bool {
    let for_ever = [ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch, ErrorCode::TooBig];
    error.sqlite_error_code().is_some_and(|code| for_ever.contains(&code))
}

/// Why the file is not used: SQLite says so, or we do.
enum Refusal {
    Sql(rusqlite::Error),
    Said(String),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Refusal {
        Refusal::Sql(error)
    }
}

/// Brings a file to the layout of this version: a new one, or an old one of ours.
fn migrate(transaction: &Transaction<'_>, path: &Path) -> Result<(), Refusal> {
    let path = path.display();
    let application: i64 =
        transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let first: Option<String> = transaction
        .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| row.get(0))
        .optional()?;
    if application != APPLICATION_ID && (first.is_some() || application != 0) {
        return Err(Refusal::Said(format!(
            "{path} was written by another program; give --data another directory"
        )));
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(LAYOUTS)?;
    let done: i64 = transaction.query_row(
        "SELECT coalesce(max(version), 0) FROM schema_migrations",
        [],
        |row| row.get(0),
    )?;
    let (done, known) = (done as usize, MIGRATIONS.len());
    if done > known {
        return Err(Refusal::Said(format!(
            "{path} has layout {done}, this version reads {known}; run the version that wrote it"
        )));
    }
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        transaction.execute_batch(migration)?;
        let row = params![at as i64 + 1, now_us()];
        transaction.execute("INSERT INTO schema_migrations VALUES (?1, ?2)", row)?;
    }
    Ok(())
}

fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let shown = path.display();
    StoreError::new(match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            damaged(path, &error.to_string())
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            format!(
                "cannot write {shown}: {error}; make it and its directory writable for this user"
            )
        }
        Some(ErrorCode::DiskFull) => format!("cannot write {shown}: {error}; free some space"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!(
                "{shown} is held by another process: {error}; give each instance its own --data"
            )
        }
        _ => format!("{shown}: {error}"),
    })
}

fn damaged(path: &Path, what: &str) -> String {
    let path = path.display();
    format!(
        "{path} is damaged: {what}; restore it from a backup, or recover with `sqlite3 {path} .recover`"
    )
}

#[cfg(test)]
mod tests;
