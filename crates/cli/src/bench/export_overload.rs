//! The tables about overload: rows, goodput, refusals, steps, signals and series.

use rusqlite::{Connection, params};

use super::overload;
use super::record::Record;

/// Names of columns are those of records.
pub(super) const SCHEMA: &str = "
CREATE TABLE overload (record TEXT, server TEXT, cell TEXT, round INTEGER, load REAL, goodput_per_s REAL,
  goodput_of_peak REAL, law REAL, cpu_us_per_refusal REAL, sent INTEGER, refused INTEGER, non_2xx INTEGER,
  timeouts INTEGER, p50_us REAL, p99_us REAL, softirq REAL, connection_limit REAL);
CREATE TABLE goodput (record TEXT, server TEXT, cell TEXT, rounds INTEGER, load REAL, goodput_per_s REAL, of_peak REAL,
  law REAL, p50_us REAL, p99_us REAL, refused_per_s REAL, non_2xx_per_s REAL, timeouts_per_s REAL, connection_limit REAL);
CREATE TABLE refusals (record TEXT, server TEXT, least_us REAL, median_us REAL, most_us REAL);
CREATE TABLE steps (record TEXT, server TEXT, cell TEXT, step TEXT, rounds INTEGER, sent INTEGER, lost INTEGER,
  p99_us REAL, max_us REAL, goodput_per_s REAL, best TEXT, of_best REAL, after_s REAL, swing REAL);
CREATE TABLE signals (record TEXT, server TEXT, cell TEXT, step TEXT, metric TEXT, least REAL, settled REAL, most REAL,
  raised_after_s REAL, cleared_after_s REAL, rises INTEGER);
CREATE TABLE series (record TEXT, server TEXT, cell TEXT, round INTEGER, name TEXT, at_s REAL, value REAL);
";

/// Writes the results of `record`, called `name`, about overload.
pub(super) fn put(database: &Connection, name: &str, record: &Record) -> rusqlite::Result<()> {
    put_rounds(database, name, record)?;
    put_goodput(database, name, record)?;
    put_steps(database, name, record)?;
    put_signals(database, name, record)
}

/// Each round of each cell, and its series.
fn put_rounds(database: &Connection, name: &str, record: &Record) -> rusqlite::Result<()> {
    for row in &record.cells {
        let Some(measured) = row.measured.as_ref().filter(|_| row.is_ok()) else { continue };
        let Some(more) = &measured.overload else { continue };
        database.execute(
            "INSERT INTO overload VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                name,
                row.server,
                row.cell,
                row.round,
                more.load,
                more.goodput_per_s,
                more.goodput_of_peak,
                more.law,
                more.cpu_us_per_refusal,
                more.sent as i64,
                more.refused as i64,
                measured.non_2xx as i64,
                more.timeouts as i64,
                measured.p50_us,
                measured.p99_us,
                more.softirq,
                more.limit
            ],
        )?;
        let mut insert =
            database.prepare_cached("INSERT INTO series VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        for (series, points) in &more.series {
            for [at, value] in points {
                insert
                    .execute(params![name, row.server, row.cell, row.round, series, at, value])?;
            }
        }
    }
    Ok(())
}

fn put_steps(database: &Connection, name: &str, record: &Record) -> rusqlite::Result<()> {
    for one in overload::judged(record) {
        database.execute(
            "INSERT INTO steps VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                name,
                one.server,
                one.cell,
                one.step,
                one.rounds as i64,
                one.sent as i64,
                one.lost as i64,
                one.p99_us,
                one.max_us,
                one.goodput_per_s,
                one.best,
                one.of_best,
                one.after_s,
                one.swing
            ],
        )?;
    }
    Ok(())
}

fn put_signals(database: &Connection, name: &str, record: &Record) -> rusqlite::Result<()> {
    for one in overload::signals(record) {
        database.execute(
            "INSERT INTO signals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                name,
                one.server,
                one.cell,
                one.step,
                one.metric,
                one.least,
                one.settled,
                one.most,
                one.raised_after_s,
                one.cleared_after_s,
                one.rises as i64
            ],
        )?;
    }
    Ok(())
}

/// Medians over the rounds.
fn put_goodput(database: &Connection, name: &str, record: &Record) -> rusqlite::Result<()> {
    for one in overload::goodputs(record) {
        database.execute(
            "INSERT INTO goodput VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                name,
                one.server,
                one.cell,
                one.rounds as i64,
                one.load,
                one.goodput_per_s,
                one.of_peak,
                one.law,
                one.p50_us,
                one.p99_us,
                one.refused_per_s,
                one.non_2xx_per_s,
                one.timeouts_per_s,
                one.limit
            ],
        )?;
    }
    for (server, [least, middle, most]) in overload::refusals(record) {
        database.execute(
            "INSERT INTO refusals VALUES (?1, ?2, ?3, ?4, ?5)",
            params![name, server, least, middle, most],
        )?;
    }
    Ok(())
}
