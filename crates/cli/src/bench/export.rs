//! `highwater bench export`: records as tables of a SQLite database, for `highwater book` and for SQL.
//!
//! `documents` holds whole records, for data that is in no table: SQLite's `json_each` reads them. Records of the
//! scripts before this harness (`derived`, `rows`) are accepted too. An existing file is replaced only when everything
//! has been written.

use std::path::PathBuf;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::record::Record;
use super::{export_overload, gate, show};

/// The tables. Names of columns are those of records.
const SCHEMA: &str = "
CREATE TABLE records (record TEXT PRIMARY KEY, name TEXT, started TEXT, cpu TEXT, kernel TEXT, commit_hash TEXT);
CREATE TABLE rows (record TEXT, server TEXT, cell TEXT, round INTEGER, status TEXT, reason TEXT,
  server_cpu_us_per_request REAL, rps REAL, p50_us REAL, p99_us REAL, errors INTEGER, non_2xx INTEGER,
  client_busy REAL, server_rss_kib REAL, client_cpu_us_per_request REAL);
CREATE TABLE summaries (record TEXT, server TEXT, cell TEXT, rows INTEGER, server_cpu_us_per_request REAL,
  requests_per_core_second REAL, rps REAL, p50_us REAL, p99_us REAL, client_cpu_us_per_request REAL);
CREATE TABLE comparisons (record TEXT, cell TEXT, server TEXT, baseline TEXT, pairs INTEGER, ratio REAL, low REAL,
  high REAL, verdict TEXT, metric TEXT);
CREATE TABLE parts (record TEXT, server TEXT, cell TEXT, part TEXT, cpu_us_per_request REAL, busy REAL);
CREATE TABLE documents (record TEXT PRIMARY KEY, document TEXT);
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
}

/// # Errors
/// A record cannot be read, or the database cannot be written.
pub(super) fn run(args: &Args) -> Result<(), String> {
    let shown = args.db.display();
    let mut beside = args.db.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |error: String| format!("--db {shown}: {error}");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed(error.to_string()));
        }
        _ => {}
    }
    let mut database = Connection::open(&beside).map_err(|error| failed(error.to_string()))?;
    let transaction = database.transaction().map_err(|error| failed(error.to_string()))?;
    for schema in [SCHEMA, export_overload::SCHEMA] {
        transaction.execute_batch(schema).map_err(|error| failed(error.to_string()))?;
    }
    for path in &args.records {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let put = match json.get("plan") {
            Some(_) => put_record(&transaction, &name, &Record::read(path)?, &json),
            None => put_older(&transaction, &name, &json),
        };
        put.and_then(|()| put_document(&transaction, &name, &text))
            .map_err(|error| failed(format!("{}: {error}", path.display())))?;
    }
    transaction.commit().map_err(|error| failed(error.to_string()))?;
    drop(database);
    std::fs::rename(&beside, &args.db).map_err(|error| failed(error.to_string()))
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
            let ratio = claim.ratio;
            database.execute(
                "INSERT INTO comparisons VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    name,
                    one.cell,
                    one.server,
                    baseline,
                    claim.pairs as i64,
                    ratio.map(|ratio| ratio.median),
                    ratio.map(|ratio| ratio.low),
                    ratio.map(|ratio| ratio.high),
                    claim.verdict.name(),
                    claim.metric.name()
                ],
            )?;
        }
    }
    Ok(())
}

/// The first server in a cell.
fn baseline<'a>(record: &'a Record, cell: &str) -> Option<&'a str> {
    let cell = record.plan.cells.iter().find(|known| known.name == cell)?;
    record.plan.parties_of(cell).next()
}

/// The record as it is.
fn put_document(database: &Connection, name: &str, text: &str) -> rusqlite::Result<()> {
    database.execute("INSERT INTO documents VALUES (?1, ?2)", params![name, text])?;
    Ok(())
}

/// A record of the scripts, which contains its derived values.
fn put_older(database: &Connection, name: &str, json: &Value) -> rusqlite::Result<()> {
    let run = json["runs"].as_array().and_then(|runs| runs.last()).unwrap_or(json);
    let title = json["name"].as_str().unwrap_or(name);
    let commit =
        if run["source"].is_object() { &run["source"]["commit"] } else { &run["commit"]["commit"] };
    put_head(database, name, title, run, &run["machine"], commit)?;
    for row in json["rows"].as_array().into_iter().flatten() {
        if row["server"].is_string() && row["cell"].is_string() {
            put_row(database, name, row)?;
        }
    }
    let derived = |field: &str| json["derived"][field].as_array().cloned().unwrap_or_default();
    for one in derived("summaries") {
        let cost = &one["cpu_us_per_request"];
        // Of the speed with more rows.
        let speeds = [&cost["near"], &cost["far"]];
        let most = speeds.into_iter().max_by_key(|speed| speed["rows"].as_u64().unwrap_or(0));
        database.execute(
            "INSERT INTO summaries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL)",
            params![
                name,
                one["server"].as_str(),
                one["cell"].as_str(),
                one["rows"].as_i64(),
                most.and_then(|speed| speed["median"].as_f64()),
                one["requests_per_core_second"].as_f64(),
                one["rps"].as_f64(),
                one["p50_us"].as_f64(),
                one["p99_us"].as_f64()
            ],
        )?;
    }
    for one in derived("comparisons") {
        database.execute(
            "INSERT INTO comparisons VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL)",
            params![
                name,
                one["cell"].as_str(),
                one["server"].as_str(),
                one["baseline"].as_str(),
                one["pairs"].as_i64(),
                one["speed"].as_f64(),
                one["speed_ci95"][0].as_f64(),
                one["speed_ci95"][1].as_f64()
            ],
        )?;
    }
    Ok(())
}

fn put_head(
    database: &Connection,
    record: &str,
    name: &str,
    about: &Value,
    machine: &Value,
    commit: &Value,
) -> rusqlite::Result<()> {
    let started = about["started"].as_str().or(about["at"].as_str());
    database.execute(
        "INSERT INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            record,
            name,
            started,
            machine["cpu"].as_str(),
            machine["kernel"].as_str(),
            commit.as_str()
        ],
    )?;
    Ok(())
}

/// A row of either kind of record; the names they share mean the same.
fn put_row(database: &Connection, record: &str, row: &Value) -> rusqlite::Result<()> {
    let failed = row["error"].is_string();
    let status = row["status"].as_str().unwrap_or(if failed { "void" } else { "ok" });
    database.execute(
        "INSERT INTO rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            record,
            row["server"].as_str(),
            row["cell"].as_str(),
            row["round"].as_i64(),
            status,
            row["reason"].as_str().or(row["error"].as_str()),
            row["server_cpu_us_per_request"].as_f64(),
            row["rps"].as_f64(),
            row["p50_us"].as_f64(),
            row["p99_us"].as_f64(),
            row["errors"].as_i64(),
            row["non_2xx"].as_i64(),
            row["client_busy"].as_f64().or(row["client_utilisation"].as_f64()),
            row["server_rss_kib"].as_f64(),
            row["client_cpu_us_per_request"].as_f64()
        ],
    )?;
    Ok(())
}
