//! The schema of the file and its migrations.

use std::path::Path;

use highwater_kit::sqlite::Refusal;
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::todo::now_us;

/// Marks the file as ours in its header: "HWtd".
const APPLICATION_ID: i64 = 0x4857_7464;

/// The layout, one step after the other: a file that has had the first `n` gets the rest.
const MIGRATIONS: [&str; 4] = ["
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
-- Commands of Kafka that were applied: offsets do not distinguish a topic from a recreated one of the same name.
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
", "
CREATE INDEX todos_newest_first ON todos (created_us DESC, id DESC);
ALTER TABLE versions ADD COLUMN todos INTEGER NOT NULL DEFAULT 0;
UPDATE versions SET todos = (SELECT count(*) FROM todos);
", "
-- By how many partitions the commands of a topic are divided: not by more, while the topic has more.
CREATE TABLE queue_partitions (
    source TEXT PRIMARY KEY NOT NULL,
    partitions INTEGER NOT NULL CHECK (partitions > 0)
) STRICT, WITHOUT ROWID;
-- The ids of commands that were requested before this may have been removed.
ALTER TABLE versions ADD COLUMN forgotten_us INTEGER NOT NULL DEFAULT 0;
UPDATE versions SET forgotten_us = (unixepoch() - 14 * 86400) * 1000000;
"];

const LAYOUTS: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY NOT NULL,
    applied_us INTEGER NOT NULL
) STRICT";

/// Brings a file to the layout of this version: a new one, or an old one of ours.
pub(super) fn migrate(transaction: &Transaction<'_>, path: &Path) -> Result<(), Refusal> {
    let path = path.display();
    let application: i64 =
        transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let first: Option<String> = transaction
        .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| row.get(0))
        .optional()?;
    if application != APPLICATION_ID && (first.is_some() || application != 0) {
        return Err(Refusal::Message(format!(
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
        return Err(Refusal::Message(format!(
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
