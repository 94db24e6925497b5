//! The store in a file of its own: SQLite, `todos.db` in the data directory.
//!
//! Write-ahead log with `synchronous=NORMAL`: a transaction survives `kill -9` at once, and a power cut once
//! [`Store::sync`] has moved it from the log into the database. Until then the queue keeps its commands, for
//! it is committed only after that; after a power cut they are applied again. So the disk waits once for many
//! transactions, and still nothing is lost.
//!
//! A damaged file is refused, never silently replaced or served in part: the operator decides.

mod application;
mod schema;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use highwater::journal::storage::create_directory;
use highwater_kit::sqlite::{self, BUSY_TIMEOUT, ErrorContext, Refusal};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use uuid::Uuid;

use self::application::Application;
use self::schema::migrate;
use super::{Applied, DeadLetter, Loaded, Revision, Store, StoreError};
use crate::queue::Delivery;
use crate::todo::{Todo, now_us};

/// The file's name in the data directory.
const FILE: &str = "todos.db";

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
        let (connection, path) = sqlite::open(directory, FILE, |path| create_directory(path))
            .map_err(StoreError::new)?;
        let mut store = Sqlite { connection, path };
        store.prepare().map_err(|refusal| {
            StoreError::new(error_context(&store.path).explain_refusal(refusal))
        })?;
        Ok(store)
    }

    /// Opens the file beside the process's own [`Sqlite::open`], to read what was committed.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn open_to_read(directory: &Path) -> Result<Sqlite, StoreError> {
        Sqlite::open_beside(directory, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    /// The same, to write as well; not to apply.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn open_to_note(directory: &Path) -> Result<Sqlite, StoreError> {
        Sqlite::open_beside(directory, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn open_beside(directory: &Path, access: OpenFlags) -> Result<Sqlite, StoreError> {
        let path = directory.join(FILE);
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok(connection)
        };
        let connection = open().map_err(|error| explain(&path, &error))?;
        Ok(Sqlite { connection, path })
    }

    fn prepare(&mut self) -> Result<(), Refusal> {
        sqlite::use_write_ahead_log(&self.connection, &self.path, "normal")?;
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        migrate(&transaction, &self.path)?;
        // Only this process changes the store from now on. What it does is a history of its own, should the file be
        // an older one than the last process had.
        transaction.execute("UPDATE versions SET timeline = max(timeline + 1, ?1)", [now_us()])?;
        transaction.commit()?;
        error_context(&self.path).check(&self.connection)
    }
}

impl Store for Sqlite {
    fn newest(&mut self, rows_max: usize, bytes_max: usize) -> Result<Loaded, StoreError> {
        let path = &self.path;
        let mut read = || -> rusqlite::Result<Loaded> {
            let transaction = self.connection.transaction()?;
            let revision = revision(&transaction)?;
            let mut statement = transaction.prepare(
                "SELECT id, title, description, completed, user_id, created_us, updated_us FROM todos
                 ORDER BY created_us DESC, id DESC LIMIT ?1",
            )?;
            let count = count(&transaction)?;
            let (mut todos, mut bytes) = (Vec::new(), 0);
            let mut rows = statement.query([i64::try_from(rows_max).unwrap_or(i64::MAX)])?;
            while bytes < bytes_max
                && let Some(row) = rows.next()?
            {
                let todo = todo(row)?;
                bytes = bytes.saturating_add(todo.bytes());
                todos.push(todo);
            }
            Ok(Loaded { revision, count: count as u64, todos })
        };
        read().map_err(|error| explain(path, &error))
    }

    fn find(&mut self, id: Uuid) -> Result<Option<Todo>, StoreError> {
        let read = || {
            let mut select = self.connection.prepare_cached(
                "SELECT id, title, description, completed, user_id, created_us, updated_us FROM todos
                 WHERE id = ?1",
            )?;
            let mut text = [0; 36];
            let key: &str = id.as_hyphenated().encode_lower(&mut text);
            select.query_row([key], todo).optional()
        };
        read().map_err(|error| explain(&self.path, &error))
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

    fn divided_by(&mut self, source: &str, found: Option<u32>) -> Result<Option<u32>, StoreError> {
        let read = || {
            if let Some(found) = found {
                let store = "INSERT INTO queue_partitions VALUES (?1, ?2) ON CONFLICT DO NOTHING";
                self.connection.execute(store, params![source, found])?;
            }
            let find = "SELECT partitions FROM queue_partitions WHERE source = ?1";
            self.connection.query_row(find, [source], |row| row.get(0)).optional()
        };
        read().map_err(|error| explain(&self.path, &error))
    }

    fn divide_by(&mut self, source: &str, partitions: u32) -> Result<(), StoreError> {
        let store = "INSERT INTO queue_partitions VALUES (?1, ?2)
            ON CONFLICT (source) DO UPDATE SET partitions = excluded.partitions";
        let stored = self.connection.execute(store, params![source, partitions]);
        stored.map(drop).map_err(|error| explain(&self.path, &error))
    }
}

fn revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT timeline, version FROM versions")?;
    select.query_row([], |row| {
        let (timeline, version) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
        Ok(Revision { timeline: timeline as u64, version: version as u64 })
    })
}

fn count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT todos FROM versions")?.query_row([], |row| row.get(0))
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

fn error_context(path: &Path) -> ErrorContext<'_> {
    ErrorContext { path, remedy: "" }
}

fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    StoreError::new(error_context(path).explain(error))
}

#[cfg(test)]
mod tests;
