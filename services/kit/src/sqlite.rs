//! A SQLite file in a data directory: opening, checking, and its errors.
//!
//! A damaged file is refused, never silently replaced or served in part: the operator decides what to do with it.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long a write waits for another process that holds the file.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the file is not used: SQLite says so, or we do.
#[derive(Debug)]
pub enum Refusal {
    /// SQLite's reason.
    Sql(rusqlite::Error),
    /// Ours, with the remedy.
    Message(String),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Refusal {
        Refusal::Sql(error)
    }
}

/// Opens the file called `name` in `directory`; both are made if they do not exist.
///
/// # Errors
/// The directory cannot be made or written; the sentence names it and the remedy.
pub fn open(
    directory: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(Connection, PathBuf), String> {
    let unusable = |error: &dyn Display| {
        let directory = directory.display();
        format!(
            "cannot use the data directory {directory}: {error}; give --data a directory that this user can write"
        )
    };
    make(directory).map_err(|error| unusable(&error))?;
    let path = directory.join(name);
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    // NO_MUTEX: one thread at a time has the connection, which its owner's `&mut self` guarantees.
    let connection = Connection::open_with_flags(&path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let connection = connection.map_err(|error| unusable(&error))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| unusable(&error))?;
    Ok((connection, path))
}

/// Turns the write-ahead log on, with this level of `synchronous`.
///
/// # Errors
/// The file system has none, or SQLite fails.
pub fn use_write_ahead_log(
    connection: &Connection,
    path: &Path,
    synchronous: &str,
) -> Result<(), Refusal> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        let path = path.display();
        return Err(Refusal::Message(format!(
            "{path}: no write-ahead log here ({mode}); use a local file system"
        )));
    }
    Ok(connection.pragma_update(None, "synchronous", synchronous)?)
}

/// What messages say about a file.
#[derive(Clone, Copy, Debug)]
pub struct ErrorContext<'p> {
    /// Where it is.
    pub path: &'p Path,
    /// A further remedy for a damaged file, from a comma on; may be empty.
    pub remedy: &'static str,
}

impl ErrorContext<'_> {
    /// Refuses a damaged file.
    ///
    /// # Errors
    /// It is damaged, or SQLite fails.
    pub fn check(self, connection: &Connection) -> Result<(), Refusal> {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict == "ok" { Ok(()) } else { Err(Refusal::Message(self.damaged(verdict.trim()))) }
    }

    /// The sentence about a damaged file.
    pub fn damaged(self, what: &str) -> String {
        let ErrorContext { path, remedy } = self;
        let path = path.display();
        format!(
            "{path} is damaged: {what}; restore it from a backup, or recover with `sqlite3 {path} .recover`{remedy}"
        )
    }

    /// What went wrong, and what to do about it.
    pub fn explain(self, error: &rusqlite::Error) -> String {
        let path = self.path.display();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                self.damaged(&error.to_string())
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                format!(
                    "cannot write {path}: {error}; make it and its directory writable for this user"
                )
            }
            Some(ErrorCode::DiskFull) => format!("cannot write {path}: {error}; free some space"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
                "{path} is held by another process: {error}; give each instance its own --data"
            ),
            _ => format!("{path}: {error}"),
        }
    }

    /// The same of a refusal.
    pub fn explain_refusal(self, refusal: Refusal) -> String {
        match refusal {
            Refusal::Sql(error) => self.explain(&error),
            Refusal::Message(sentence) => sentence,
        }
    }
}
