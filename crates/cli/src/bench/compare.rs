//! Has anything changed between two records of one plan? Pure.
//!
//! Absolute figures of different minutes differ by more than most changes, so this compares each server's *ratio* to
//! the baseline that both records share. Only a plan with one server has no baseline; its costs are compared
//! directly, and the result says so.

use serde::Serialize;

use super::gate::Ratio;
use super::interval;
use super::record::Record;
use super::stats::{self, Rules};

/// As in `gate`: a smaller difference is not a change.
const MARGIN: f64 = 0.03;

/// The comparison of one server in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    pub(super) cell: String,
    pub(super) server: String,
    /// The baseline in both records; `None`: there is only one server, and the ratio includes the machine's change.
    pub(super) baseline: Option<String>,
    /// The new over the old; more is faster.
    pub(super) ratio: Option<Ratio>,
    /// The probability that the interval contains the true ratio: exactly this from 95 % on, else at least this.
    pub(super) coverage: Option<f64>,
    /// Values behind it, old and new.
    pub(super) pairs: [usize; 2],
    /// `faster`, `slower`, `same` or `void`.
    pub(super) verdict: &'static str,
}

/// Compares the servers and cells that both records have.
///
/// # Errors
/// They have no server and cell in common.
pub(super) fn compare(old: &Record, new: &Record) -> Result<Vec<Change>, String> {
    if old.plan.metric() != new.plan.metric() {
        return Err("the records compare different figures; give two of one plan".to_owned());
    }
    let names = |record: &Record| -> Vec<String> {
        record.plan.contenders().map(|contender| contender.name().to_owned()).collect()
    };
    let known = names(old);
    let both: Vec<String> = names(new).into_iter().filter(|name| known.contains(name)).collect();
    let cells: Vec<&str> = new.plan.cells.iter().map(|cell| cell.name.as_str()).collect();
    let cells: Vec<&str> = cells
        .into_iter()
        .filter(|name| old.plan.cells.iter().any(|cell| cell.name == *name))
        .collect();
    let (Some(first), false) = (both.first(), cells.is_empty()) else {
        return Err(
            "the records have no server and cell in common; give two of one plan".to_owned()
        );
    };
    let others: Vec<&String> = both.iter().skip(1).collect();
    let mut changes = Vec::new();
    for cell in cells {
        if others.is_empty() {
            changes.push(change(cell, first, None, [old, new]));
        }
        changes.extend(others.iter().map(|server| change(cell, server, Some(first), [old, new])));
    }
    Ok(changes)
}

fn change(cell: &str, server: &str, baseline: Option<&String>, records: [&Record; 2]) -> Change {
    let values = records.map(|record| {
        let rules = Rules::of(record);
        match baseline {
            Some(baseline) => {
                let pairs = stats::pairs(&record.cells, cell, baseline, server, rules);
                pairs.iter().map(|pair| pair.ratio).collect::<Vec<_>>()
            }
            None => speeds_alone(record, cell, server, rules),
        }
    });
    let [old, new] = &values;
    let factor = interval::factor(old, new);
    let ratio = factor.map(|factor| Ratio {
        median: factor.median,
        low: factor.interval.low,
        high: factor.interval.high,
    });
    Change {
        cell: cell.to_owned(),
        server: server.to_owned(),
        baseline: baseline.cloned(),
        ratio,
        coverage: factor.map(|factor| factor.coverage),
        pairs: [values[0].len(), values[1].len()],
        verdict: match ratio {
            None => "void",
            Some(ratio) if ratio.low >= 1.0 + MARGIN => "faster",
            Some(ratio) if ratio.high <= 1.0 - MARGIN => "slower",
            Some(_) => "same",
        },
    }
}

/// The compared value of each row that counts.
fn speeds_alone(record: &Record, cell: &str, server: &str, rules: Rules) -> Vec<f64> {
    let rows = record.cells.iter().filter(|row| row.cell == cell && row.server == server);
    let counted = rows.filter(|row| stats::rejection(row, rules).is_none());
    counted.filter_map(|row| rules.value(row.measured.as_ref()?)).collect()
}
