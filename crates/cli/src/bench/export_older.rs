//! Records of the scripts before this harness as tables: their rows judged by today's rules.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::export_tables::{Comparison, put_comparison, put_head, put_row};
use super::gate::Ratio;
use super::plan::Metric;
use super::record::{Measured, Row};
use super::stats::{self, Rules};

/// What such records have, each at least one of it: rows, or runs, or the machine that it was measured on.
const FIELDS: [&str; 4] = ["rows", "runs", "machine", "environment"];

/// Whether `json` is such a record, and not any other file.
pub(super) fn is_record(json: &Value) -> bool {
    FIELDS.iter().any(|field| json.get(field).is_some_and(|it| it.is_array() || it.is_object()))
}

/// Writes `json`, a record called `name`. Its medians are those it contains; intervals are today's.
pub(super) fn put(database: &Connection, name: &str, json: &Value) -> rusqlite::Result<()> {
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
    let rows = rows(json);
    let rules = Rules::of_rows(rows.iter(), Metric::ServerCoreSecond);
    for one in derived("comparisons") {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        let (cell, server, baseline) = (text("cell"), text("server"), text("baseline"));
        let pairs = stats::pairs(&rows, cell, baseline, server, rules);
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
        put_comparison(
            database,
            &Comparison {
                record: name,
                cell,
                server,
                baseline,
                pairs: ratios.len(),
                ratio: Ratio::of(&ratios),
                verdict: None,
                metric: Metric::ServerCoreSecond.name(),
            },
        )?;
    }
    Ok(())
}

/// Its rows as today's harness has them. Rounds of several runs are numbered through.
fn rows(json: &Value) -> Vec<Row> {
    let mut rounds: Vec<(&Value, &Value)> = Vec::new();
    let mut rows = Vec::new();
    for row in json["rows"].as_array().into_iter().flatten() {
        let (Some(server), Some(cell)) = (row["server"].as_str(), row["cell"].as_str()) else {
            continue;
        };
        let round = (&row["run"], &row["round"]);
        let known = rounds.iter().position(|known| *known == round);
        let at = known.unwrap_or(rounds.len());
        if known.is_none() {
            rounds.push(round);
        }
        let number = |field: &str| row[field].as_f64().unwrap_or_default();
        let probes = row["c2c_ns"].as_array().into_iter().flatten();
        let measured = Measured {
            seconds: number("seconds"),
            server_cpu_us_per_request: number("server_cpu_us_per_request"),
            p99_us: number("p99_us"),
            foreign_on_server_cpus: number("foreign_on_server_cpu"),
            foreign_on_client_cpus: number("foreign_on_client_cpu"),
            c2c_ns: probes.filter_map(Value::as_f64).collect(),
            ..Measured::default()
        };
        let failed = row["error"].is_string();
        rows.push(Row {
            server: server.to_owned(),
            cell: cell.to_owned(),
            round: at as u32,
            status: if failed { "void" } else { "ok" }.to_owned(),
            measured: (!failed).then_some(measured),
            ..Row::default()
        });
    }
    rows
}
