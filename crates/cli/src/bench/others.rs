//! Which other processes used the CPUs? Names the processes that disturb a row, or that kept a client from its rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::gate::RATE_RATIO_MIN;
use super::plan::Cpus;
use super::reader::rounded;
use super::record::Row;
use super::stats::{self, Rules};
use super::tree::{self, Processes};
use crate::load::Outcome;

/// Maximum number of names in a row and in a message.
const NAMES_MAX: usize = 3;
/// Minimum share of a CPU for a process to be named.
const SHARE_MIN: f64 = 0.02;
/// How long the machine is watched before the first row.
const WATCHED: Duration = Duration::from_millis(300);
/// Minimum use by others, in CPUs, that is then reported.
const BUSY_MIN: f64 = 0.2;

/// Processes of one name that used a CPU during a row, and are neither ours nor part of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) name: String,
    /// In CPUs.
    pub(super) busy: f64,
}

/// The processes that used most between two scans, `seconds` apart, without `ours` and their descendants.
pub(super) fn between(
    earlier: &Processes,
    later: &Processes,
    ours: &BTreeSet<u32>,
    seconds: f64,
) -> Vec<Other> {
    let mut used: BTreeMap<String, f64> = BTreeMap::new();
    for (name, cpu_s) in later.used_since(earlier, ours) {
        *used.entry(name).or_default() += cpu_s;
    }
    let share = |cpu_s: f64| rounded(cpu_s / seconds.max(1e-9), 3);
    let all = used.into_iter().map(|(name, cpu_s)| Other { name, busy: share(cpu_s) });
    most(all.collect())
}

fn most(mut all: Vec<Other>) -> Vec<Other> {
    all.retain(|other| other.busy >= SHARE_MIN);
    all.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    all.truncate(NAMES_MAX);
    all
}

/// `rustc 97 % of a CPU, cargo 3 %`; `None` if the list is empty.
pub(super) fn show(others: &[Other]) -> Option<String> {
    let percent = |other: &Other| format!("{} {:.0} %", other.name, other.busy * 100.0);
    let shown: Vec<String> = others.iter().map(percent).collect();
    (!shown.is_empty()).then(|| format!("{} of a CPU", shown.join(", ")))
}

/// The processes that disturbed the `rows` that do not count, each with its highest use.
pub(super) fn disturbers<'a>(rows: impl Iterator<Item = &'a Row>, rules: Rules) -> Option<String> {
    let disturbed = rows.filter(|row| stats::rejection(row, rules).is_some());
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    for other in disturbed.filter_map(|row| row.measured.as_ref()).flat_map(|row| &row.others) {
        let known = worst.entry(&other.name).or_default();
        *known = known.max(other.busy);
    }
    let all = worst.into_iter().map(|(name, busy)| Other { name: name.to_owned(), busy });
    show(&most(all.collect()))
}

/// The reason why a row is void whose client did not keep its rate.
pub(super) fn behind(outcome: &Outcome, of: &str, others: &[Other]) -> Option<String> {
    if outcome.rate_ratio() >= RATE_RATIO_MIN {
        return None;
    }
    let busy = outcome.client_cpu * 100.0;
    let kept = match show(others) {
        Some(others) => format!("; others used the CPUs: {others}"),
        None => String::new(),
    };
    Some(format!(
        "{of}the client fell behind: it sent {:.1} % of the rate, and used {busy:.0} % of a CPU{kept}",
        outcome.rate_ratio() * 100.0
    ))
}

/// The processes that use the CPUs before the first row, if they would spoil rows.
pub(super) fn before(cpus: &Cpus) -> Option<String> {
    let mut all: Vec<usize> = cpus.server.iter().chain(&cpus.client).copied().collect();
    all.sort_unstable();
    all.dedup();
    let (began, idle, first) = (Instant::now(), tree::idle(&all), Processes::scan());
    std::thread::sleep(WATCHED);
    let seconds = began.elapsed().as_secs_f64();
    let busy = all.len() as f64 - (tree::idle(&all) - idle) / seconds;
    let later = Processes::scan();
    let others = between(&first, &later, &later.family(std::process::id()), seconds);
    let named = show(&others).map_or_else(String::new, |others| format!(": {others}"));
    (busy >= BUSY_MIN).then(|| {
        format!(
            "something else uses {busy:.1} of {} CPUs{named}; rows that it disturbs do not count",
            all.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the three processes that used most are named, in descending order; small users are not.
    #[test]
    fn the_worst_are_named() {
        let other = |name: &str, busy| Other { name: name.to_owned(), busy };
        let all = vec![
            other("a", 0.01),
            other("cargo", 0.03),
            other("rustc", 0.97),
            other("ld", 0.5),
            other("java", 0.02),
        ];
        let shown = show(&most(all)).expect("some are");
        assert_eq!(shown, "rustc 97 %, ld 50 %, cargo 3 % of a CPU");
        assert_eq!(show(&[]), None);
    }
}
