//! Has anything changed between two records of one plan? Pure.
//!
//! Absolute figures of different minutes differ by more than most changes, so this compares each server's *ratio* to
//! the baseline that both records share. Only a plan with one server has no baseline; its costs are compared
//! directly, and the result says so. What cannot be compared is void, with its reason: a server or cell of the old record
//! must not vanish unnoticed.

use serde::Serialize;

use super::gate::{self, Ratio};
use super::interval;
use super::plan::Cell;
use super::record::Record;
use super::stats::{self, Rules};

/// As in `gate`: a smaller difference is not a change.
const MARGIN: f64 = 0.03;
/// Why what only the old record has is void.
const ABSENT: &str = "the new record does not have it; give two of one plan";

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
    /// Why it is void.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Compares the servers and cells of the old record with those of the new one. Cells about overload are left out: they
/// are not about the cost of a request.
///
/// # Errors
/// They have no server and cell in common.
pub(super) fn compare(old: &Record, new: &Record) -> Result<Vec<Change>, String> {
    if old.plan.metric() != new.plan.metric() {
        return Err("the records compare different figures; give two of one plan".to_owned());
    }
    if old.plan.cells.iter().all(Cell::is_overload) {
        return Err(
            "the old record has only cells about overload; `highwater bench show` has their tables"
                .to_owned(),
        );
    }
    let cells = old.plan.cells.iter().filter(|cell| !cell.is_overload());
    let changes: Vec<Change> = cells.flat_map(|cell| of_cell(cell, old, new)).collect();
    if changes.iter().all(|change| change.reason.as_deref() == Some(ABSENT)) {
        return Err(
            "the records have no server and cell in common; give two of one plan".to_owned()
        );
    }
    Ok(changes)
}

/// Compares the servers of one cell of the old record. Their baseline is the first that both records have in it.
fn of_cell(cell: &Cell, old: &Record, new: &Record) -> Vec<Change> {
    let same = new.plan.cells.iter().find(|known| known.name == cell.name && !known.is_overload());
    let known: Vec<&str> =
        same.map(|cell| new.plan.contenders_of(cell).collect()).unwrap_or_default();
    let (both, gone): (Vec<&str>, Vec<&str>) =
        old.plan.contenders_of(cell).partition(|name| known.contains(name));
    let mut changes = match both[..] {
        [alone] => vec![change(&cell.name, alone, None, [old, new])],
        [first, ref others @ ..] => {
            let of = |server: &&str| change(&cell.name, server, Some(first), [old, new]);
            others.iter().map(of).collect()
        }
        [] => Vec::new(),
    };
    changes.extend(gone.into_iter().map(|server| absent(&cell.name, server)));
    changes
}

/// What the old record has, and the new one does not.
fn absent(cell: &str, server: &str) -> Change {
    Change {
        cell: cell.to_owned(),
        server: server.to_owned(),
        baseline: None,
        ratio: None,
        coverage: None,
        pairs: [0, 0],
        verdict: "void",
        reason: Some(ABSENT.to_owned()),
    }
}

fn change(cell: &str, server: &str, baseline: Option<&str>, records: [&Record; 2]) -> Change {
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
    let servers: Vec<&str> = baseline.into_iter().chain([server]).collect();
    let hindrance = ["old", "new"].iter().zip(records).find_map(|(which, record)| {
        let found = gate::hindrance(record, &servers, cell, Rules::of(record))?;
        Some(format!("the {which} record: {found}"))
    });
    let [old, new] = &values;
    let factor = interval::factor(old, new);
    let ratio = factor.map(|factor| Ratio {
        median: factor.median,
        low: factor.interval.low,
        high: factor.interval.high,
    });
    let too_few = || "too few values count: measure again, into another record".to_owned();
    let reason = hindrance.or_else(|| ratio.is_none().then(too_few));
    Change {
        cell: cell.to_owned(),
        server: server.to_owned(),
        baseline: baseline.map(str::to_owned),
        ratio,
        coverage: factor.map(|factor| factor.coverage),
        pairs: [values[0].len(), values[1].len()],
        verdict: match ratio {
            _ if reason.is_some() => "void",
            Some(ratio) if ratio.low >= 1.0 + MARGIN => "faster",
            Some(ratio) if ratio.high <= 1.0 - MARGIN => "slower",
            _ => "same",
        },
        reason,
    }
}

/// The compared value of each row that counts.
fn speeds_alone(record: &Record, cell: &str, server: &str, rules: Rules) -> Vec<f64> {
    let rows = record.cells.iter().filter(|row| row.cell == cell && row.server == server);
    let counted = rows.filter(|row| stats::rejection(row, rules).is_none());
    counted.filter_map(|row| rules.value(row.measured.as_ref()?)).collect()
}
