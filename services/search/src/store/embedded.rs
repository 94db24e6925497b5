//! The store in a file of its own: SQLite, `search.db` in the data directory.
//!
//! Write-ahead log with `synchronous=FULL`: every acknowledged batch has been synced, so it
//! survives `kill -9` and a power cut. (`NORMAL` would survive only the former.) A batch is one
//! transaction, so none is ever torn. A damaged file is refused, never silently replaced or served
//! in part: the operator decides what to do with it.

use std::fs;
use std::path::{Path, PathBuf};

use highwater_kit::sqlite::{self, ErrorContext, Refusal};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{Record, Row, Store, StoreError, text};
use crate::event::Event;

/// The file's name in the data directory.
const FILE: &str = "search.db";

/// Marks the file as ours in its header: "HWse".
const APPLICATION_ID: i64 = 0x4857_7365;

/// The layout this version reads and writes.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "CREATE TABLE events (
    id TEXT PRIMARY KEY NOT NULL,
    base_plan_id TEXT NOT NULL,
    plan_id TEXT NOT NULL,
    title TEXT NOT NULL,
    start_at TEXT NOT NULL,
    end_at TEXT NOT NULL,
    sell_from TEXT,
    sell_to TEXT,
    sold_out INTEGER,
    min_price INTEGER,
    max_price INTEGER,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID";

const UPSERT: &str = "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12)
ON CONFLICT (id) DO UPDATE SET
    title = excluded.title, start_at = excluded.start_at, end_at = excluded.end_at,
    sell_from = excluded.sell_from, sell_to = excluded.sell_to, sold_out = excluded.sold_out,
    min_price = excluded.min_price, max_price = excluded.max_price, last_seen_at = excluded.last_seen_at";

/// An open `search.db`.
#[derive(Debug)]
pub struct Embedded {
    connection: Connection,
    path: PathBuf,
}

impl Embedded {
    /// Opens the file in `directory`; both are made if they do not exist.
    ///
    /// Refused: a directory that cannot be written, a file that is damaged, that something else
    /// wrote, or that a newer version wrote. The error names the file and the remedy.
    pub fn open(directory: &Path) -> Result<Embedded, StoreError> {
        let (connection, path) = sqlite::open(directory, FILE, |path| fs::create_dir_all(path))
            .map_err(StoreError::new)?;
        let mut store = Embedded { connection, path };
        store
            .prepare()
            .map_err(|refusal| StoreError::new(store.error_context().explain_refusal(refusal)))?;
        Ok(store)
    }

    fn prepare(&mut self) -> Result<(), Refusal> {
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        create_or_check(&transaction, &self.path)?;
        transaction.commit()?;
        sqlite::use_write_ahead_log(&self.connection, &self.path, "full")?;
        self.error_context().check(&self.connection)
    }

    fn error_context(&self) -> ErrorContext<'_> {
        let remedy = ", or move it away (events that are no longer in the feed are then lost)";
        ErrorContext { path: &self.path, remedy }
    }

    fn explain(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::new(self.error_context().explain(error))
    }
}

impl Store for Embedded {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Row>> {
            let mut statement = self.connection.prepare("SELECT * FROM events")?;
            statement.query_map([], row)?.collect()
        };
        let rows = read().map_err(|e| self.explain(&e))?;
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            let id = row.id.clone();
            let record = row.record();
            records.push(record.map_err(|column| {
                let what = format!("event {id}: {column} is not one we wrote");
                StoreError::new(self.error_context().damaged(&what))
            })?);
        }
        Ok(records)
    }

    fn apply(&mut self, events: &[Event], seen_at: i64) -> Result<(), StoreError> {
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            let mut upsert = transaction.prepare_cached(UPSERT)?;
            for event in events {
                upsert.execute(params![
                    event.id.to_string(),
                    &*event.base_plan_id,
                    &*event.plan_id,
                    &*event.title,
                    text(event.start),
                    text(event.end),
                    event.sell_from.map(text),
                    event.sell_to.map(text),
                    event.sold_out,
                    event.min_price.map(|price| price.millionths()),
                    event.max_price.map(|price| price.millionths()),
                    seen_at,
                ])?;
            }
            drop(upsert);
            transaction.commit()
        };
        write().map_err(|e| self.explain(&e))
    }
}

/// Lays out a new file, or makes sure that an old one is ours and not from the future.
fn create_or_check(transaction: &Transaction<'_>, path: &Path) -> Result<(), Refusal> {
    let path = path.display();
    let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let first: Option<String> = transaction
        .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| row.get(0))
        .optional()?;
    if first.is_none() && application == 0 && version == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        return Ok(());
    }
    if application != APPLICATION_ID {
        return Err(Refusal::Message(format!(
            "{path} was written by another program; give --data another directory"
        )));
    }
    if version != SCHEMA_VERSION {
        return Err(Refusal::Message(format!(
            "{path} has layout {version}, this version reads {SCHEMA_VERSION}; run the version that wrote it"
        )));
    }
    Ok(())
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        id: row.get("id")?,
        base_plan_id: row.get("base_plan_id")?,
        plan_id: row.get("plan_id")?,
        title: row.get("title")?,
        start_at: row.get("start_at")?,
        end_at: row.get("end_at")?,
        sell_from: row.get("sell_from")?,
        sell_to: row.get("sell_to")?,
        sold_out: row.get("sold_out")?,
        min_price: row.get("min_price")?,
        max_price: row.get("max_price")?,
        first_seen_at: row.get("first_seen_at")?,
        last_seen_at: row.get("last_seen_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::sample;
    use crate::money::Price;
    use jiff::civil::datetime;
    use std::io::{Seek as _, SeekFrom, Write as _};

    fn events() -> Vec<Event> {
        let (start, end) =
            (datetime(2024, 6, 30, 21, 0, 0, 120_000_000), datetime(2024, 7, 1, 0, 0, 0, 0));
        let full = sample("1", start, end, "Ñandú \u{1F3B5}\n'; --");
        let bare = Event {
            sell_to: None,
            sold_out: None,
            min_price: None,
            max_price: None,
            ..sample("2", end, end, "")
        };
        vec![full, bare]
    }

    fn refusal(directory: &Path) -> String {
        Embedded::open(directory).expect_err("it is not usable").to_string()
    }

    /// Purpose: what was applied is what a new process loads, and an event keeps its first sighting.
    #[test]
    fn survives_reopening() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let nested = directory.path().join("made/when/missing");
        let events = events();
        Embedded::open(&nested).expect("a new store").apply(&events, 100).expect("applied");
        let update =
            Event { min_price: Price::parse("1.23"), title: "new".into(), ..events[0].clone() };
        let mut store = Embedded::open(&nested).expect("the same store");
        store.apply(&[events[0].clone(), update.clone()], 200).expect("applied");
        drop(store);
        let mut records = Embedded::open(&nested).expect("the same store").load().expect("loaded");
        records.sort_by_key(|record| record.event.start);
        let expected = [
            Record { event: update, first_seen: 100, last_seen: 200 },
            Record { event: events[1].clone(), first_seen: 100, last_seen: 100 },
        ];
        assert_eq!(records, expected);
    }

    /// Purpose: the settings that make an acknowledgement durable are in force, not just asked for.
    #[test]
    fn durable_settings() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Embedded::open(directory.path()).expect("a new store");
        let pragma = |name| {
            store
                .connection
                .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
        };
        assert_eq!(pragma("synchronous").expect("a value"), 2.into());
        assert_eq!(pragma("journal_mode").expect("a value"), "wal".to_owned().into());
    }

    /// Purpose: a damaged, foreign or future file is refused by name with a remedy, and left as it is.
    #[test]
    fn refuses_what_it_cannot_trust() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(FILE);
        let many: Vec<Event> = (0..500)
            .map(|i| Event { id: Event::identity("291", &i.to_string()), ..events()[0].clone() })
            .collect();
        Embedded::open(directory.path()).expect("a new store").apply(&many, 1).expect("applied");
        let sound = fs::read(&path).expect("it exists");

        let mut file = fs::OpenOptions::new().write(true).open(&path).expect("it exists");
        file.seek(SeekFrom::Start(3 * 4096)).expect("seekable");
        file.write_all(&[0xA5; 3 * 4096]).expect("writable");
        drop(file);
        let message = refusal(directory.path());
        assert!(
            message.contains("search.db is damaged") && message.contains(".recover"),
            "{message}"
        );

        fs::write(&path, &sound[..sound.len() / 2]).expect("writable");
        assert!(refusal(directory.path()).contains("search.db is damaged"));

        fs::write(&path, b"not a database, and longer than a header would have to be")
            .expect("writable");
        assert!(refusal(directory.path()).contains("search.db is damaged"));

        fs::remove_file(&path).expect("it exists");
        Connection::open(&path)
            .and_then(|c| c.execute_batch("CREATE TABLE t (x)"))
            .expect("a foreign file");
        assert!(refusal(directory.path()).contains("another program"));

        fs::write(&path, &sound).expect("writable");
        Connection::open(&path)
            .and_then(|c| c.pragma_update(None, "user_version", 2))
            .expect("a future file");
        assert!(refusal(directory.path()).contains("layout 2, this version reads 1"));

        fs::write(&path, &sound).expect("writable");
        assert_eq!(
            Embedded::open(directory.path()).expect("sound again").load().expect("loaded").len(),
            500
        );
    }

    /// Purpose: a value that no version writes is damage, not an event to guess about.
    #[test]
    fn refuses_foreign_values() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut store = Embedded::open(directory.path()).expect("a new store");
        store.apply(&events(), 1).expect("applied");
        store
            .connection
            .execute("UPDATE events SET end_at = '2024-02-30T00:00:00' WHERE plan_id = '1'", [])
            .expect("sabotage");
        let message = store.load().expect_err("it is damaged").to_string();
        assert!(
            message.contains("end_at") && message.contains("search.db is damaged"),
            "{message}"
        );
    }

    /// Purpose: a directory that cannot be made or written is named, with the remedy.
    #[test]
    fn unusable_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("writable");
        let message = refusal(&file.join("data"));
        assert!(message.contains("file/data") && message.contains("--data"), "{message}");
        // Even root cannot write here.
        let message = refusal(Path::new("/proc/self"));
        assert!(message.contains("/proc/self") && message.contains("writ"), "{message}");
    }
}
