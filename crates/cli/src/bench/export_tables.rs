//! The tables of `bench export`, and their rows.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::gate::Ratio;
use super::interval;

/// The tables. Names of columns are those of records.
pub(super) const SCHEMA: &str = "
CREATE TABLE records (record TEXT PRIMARY KEY, name TEXT, started TEXT, cpu TEXT, kernel TEXT, commit_hash TEXT);
CREATE TABLE rows (record TEXT, server TEXT, cell TEXT, round INTEGER, status TEXT, reason TEXT,
  server_cpu_us_per_request REAL, rps REAL, p50_us REAL, p99_us REAL, errors INTEGER, non_2xx INTEGER,
  client_busy REAL, server_rss_kib REAL, client_cpu_us_per_request REAL, bytes_per_s REAL);
CREATE TABLE summaries (record TEXT, server TEXT, cell TEXT, rows INTEGER, server_cpu_us_per_request REAL,
  requests_per_core_second REAL, rps REAL, p50_us REAL, p99_us REAL, client_cpu_us_per_request REAL);
CREATE TABLE comparisons (record TEXT, cell TEXT, server TEXT, baseline TEXT, pairs INTEGER, ratio REAL, low REAL,
  high REAL, verdict TEXT, metric TEXT, coverage REAL);
CREATE TABLE parts (record TEXT, server TEXT, cell TEXT, part TEXT, cpu_us_per_request REAL, busy REAL);
CREATE TABLE documents (record TEXT PRIMARY KEY, document TEXT);
CREATE TABLE versions (tag TEXT PRIMARY KEY, chapter_number INTEGER, title TEXT, description TEXT, commit_hash TEXT,
  baseline_rps REAL, improvement_percent REAL, technique TEXT, started TEXT);
";

/// A row of `comparisons`.
pub(super) struct Comparison<'a> {
    pub(super) record: &'a str,
    pub(super) cell: &'a str,
    pub(super) server: &'a str,
    pub(super) baseline: &'a str,
    pub(super) pairs: usize,
    pub(super) ratio: Option<Ratio>,
    /// `None`: the gate has not seen it.
    pub(super) verdict: Option<&'static str>,
    pub(super) metric: &'static str,
}

pub(super) fn put_comparison(database: &Connection, of: &Comparison<'_>) -> rusqlite::Result<()> {
    database.execute(
        "INSERT INTO comparisons VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            of.record,
            of.cell,
            of.server,
            of.baseline,
            of.pairs as i64,
            of.ratio.map(|ratio| ratio.median),
            of.ratio.map(|ratio| ratio.low),
            of.ratio.map(|ratio| ratio.high),
            of.verdict,
            of.metric,
            interval::coverage(of.pairs)
        ],
    )?;
    Ok(())
}

pub(super) fn put_head(
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
pub(super) fn put_row(database: &Connection, record: &str, row: &Value) -> rusqlite::Result<()> {
    let failed = row["error"].is_string();
    let status = row["status"].as_str().unwrap_or(if failed { "void" } else { "ok" });
    database.execute(
        "INSERT INTO rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
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
            row["client_cpu_us_per_request"].as_f64(),
            row["bytes_per_s"].as_f64()
        ],
    )?;
    Ok(())
}
