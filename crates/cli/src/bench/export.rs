//! `highwater bench export`: records as tables of a SQLite database, for `highwater book` and for SQL.
//!
//! `documents` holds whole records, for data that is in no table: SQLite's `json_each` reads them. Records of the
//! scripts before this harness (`derived`, `rows`) are accepted too. An existing file is replaced only when everything
//! has been written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde_json::Value;

use super::export_tables::{Comparison, SCHEMA, put_comparison, put_head, put_row};
use super::record::Record;
use super::{export_older, export_overload, gate, show};

/// One version for each commit that records name, in the order in which they were measured first. Figures and words are the
/// author's: `--sql` adds them.
const VERSIONS: &str = "
INSERT INTO versions (tag, chapter_number, title, commit_hash, started)
SELECT substr(commit_hash, 1, 7), row_number() OVER (ORDER BY min(started)), group_concat(record, ', '), commit_hash,
  min(started)
FROM (SELECT * FROM records ORDER BY record) WHERE commit_hash IS NOT NULL GROUP BY substr(commit_hash, 1, 7);
";

/// Write records into a SQLite database.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Records; each has the name of its file.
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,

    /// The database; an existing file is replaced.
    #[arg(long, value_name = "FILE.sqlite")]
    db: PathBuf,

    /// SQL that is run last, for names, versions and views of your own. May be given several times.
    #[arg(long, value_name = "FILE.sql")]
    sql: Vec<PathBuf>,
}

/// # Errors
/// A record cannot be read, its SQL fails, or the database cannot be written.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let shown = args.db.display();
    let mut beside = args.db.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |error: std::io::Error| format!("--db {shown}: {error}");
    let written = write(args, &beside);
    if written.is_err() {
        // It is not whole.
        let _ = std::fs::remove_file(&beside);
    }
    written.and_then(|()| std::fs::rename(&beside, &args.db).map_err(failed))
}

/// Writes the database to `beside`.
fn write(args: &Args, beside: &Path) -> Result<(), String> {
    let shown = args.db.display();
    let failed = |error: String| format!("--db {shown}: {error}");
    match std::fs::remove_file(beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(error.to_string()));
        }
        _ => {}
    }
    let mut database = Connection::open(beside).map_err(|error| failed(error.to_string()))?;
    let transaction = database.transaction().map_err(|error| failed(error.to_string()))?;
    for schema in [SCHEMA, export_overload::SCHEMA] {
        transaction.execute_batch(schema).map_err(|error| failed(error.to_string()))?;
    }
    let mut known: BTreeMap<String, &Path> = BTreeMap::new();
    for path in &args.records {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(other) = known.insert(name.clone(), path) {
            return Err(format!(
                "{}: {} has the same name, {name}, by which the tables tell records apart; give one of them, or rename it",
                path.display(),
                other.display()
            ));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let put = match json.get("plan") {
            Some(_) => put_record(&transaction, &name, &Record::read(path)?, &json),
            None if export_older::is_record(&json) => export_older::put(&transaction, &name, &json),
            None => {
                return Err(format!(
                    "{}: this is not a record: it has no plan; give files that `highwater bench run` wrote",
                    path.display()
                ));
            }
        };
        put.and_then(|()| put_document(&transaction, &name, &text))
            .map_err(|error| failed(format!("{}: {error}", path.display())))?;
    }
    transaction.execute_batch(VERSIONS).map_err(|error| failed(error.to_string()))?;
    for path in &args.sql {
        let sql = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let done =
            sql.and_then(|sql| transaction.execute_batch(&sql).map_err(|error| error.to_string()));
        done.map_err(|error| format!("--sql {}: {error}", path.display()))?;
    }
    transaction.commit().map_err(|error| failed(error.to_string()))
}

fn put_record(
    database: &Connection,
    name: &str,
    record: &Record,
    json: &Value,
) -> rusqlite::Result<()> {
    let environment = &json["environment"];
    put_head(
        database,
        name,
        &record.plan.name,
        environment,
        &environment["machine"],
        &environment["commit"],
    )?;
    for row in json["cells"].as_array().into_iter().flatten() {
        put_row(database, name, row)?;
    }
    export_overload::put(database, name, record)?;
    for one in show::summaries(record) {
        database.execute(
            "INSERT INTO summaries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                name,
                one.server,
                one.cell,
                one.counted as i64,
                one.server_cpu_us_per_request,
                one.requests_per_core_second,
                one.rps,
                one.p50_us,
                one.p99_us,
                one.client_cpu_us_per_request
            ],
        )?;
        for (part, used) in &one.parts {
            database.execute(
                "INSERT INTO parts VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![name, one.server, one.cell, part, used.cpu_us_per_request, used.busy],
            )?;
        }
        let Some(baseline) = baseline(record, &one.cell) else { continue };
        // The baseline itself has none.
        if let Ok(claim) = gate::claim(record, baseline, &one.server, Some(&one.cell)) {
            put_comparison(
                database,
                &Comparison {
                    record: name,
                    cell: &one.cell,
                    server: &one.server,
                    baseline,
                    pairs: claim.pairs,
                    ratio: claim.ratio,
                    verdict: Some(claim.verdict.name()),
                    metric: claim.metric.name(),
                },
            )?;
        }
    }
    Ok(())
}

/// The first server in a cell.
fn baseline<'a>(record: &'a Record, cell: &str) -> Option<&'a str> {
    let cell = record.plan.cells.iter().find(|known| known.name == cell)?;
    record.plan.contenders_of(cell).next()
}

/// The record as it is.
fn put_document(database: &Connection, name: &str, text: &str) -> rusqlite::Result<()> {
    database.execute("INSERT INTO documents VALUES (?1, ?2)", params![name, text])?;
    Ok(())
}
