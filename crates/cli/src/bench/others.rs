//! Which other processes used the CPUs while a row was measured?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::plan::Cpus;
use super::tree::{self, Processes, Used};

/// Names that a row keeps, and a message shows.
const NAMES_MAX: usize = 3;
/// The share of a CPU from which on a process is named.
const SHARE_MIN: f64 = 0.02;
/// How long the machine is watched before the first row.
const WATCHED: Duration = Duration::from_millis(300);
/// How many CPUs must be in use then for a warning.
const BUSY_MIN: f64 = 0.2;

/// Processes of one name that used a CPU while a row was measured, and are neither ours nor part of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Other {
    pub(super) name: String,
    /// In CPUs.
    pub(super) busy: f64,
}

/// The processes that used most CPU in `seconds`.
pub(super) fn named(used: &[Used], seconds: f64) -> Vec<Other> {
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    for process in used {
        *by_name.entry(&process.name).or_default() += process.cpu_s;
    }
    let share = |cpu_s: f64| (cpu_s / seconds.max(1e-9) * 1e3).round() / 1e3;
    let all = by_name.into_iter();
    most(all.map(|(name, cpu_s)| Other { name: name.to_owned(), busy: share(cpu_s) }).collect())
}

/// The CPU seconds of programs. Threads of the kernel are none: they work for connections that are refused, too.
pub(super) fn programs(used: &[Used]) -> f64 {
    used.iter().filter(|process| !process.is_kernel).map(|process| process.cpu_s).sum()
}

pub(super) fn most(mut all: Vec<Other>) -> Vec<Other> {
    all.retain(|other| other.busy >= SHARE_MIN);
    all.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    all.truncate(NAMES_MAX);
    all
}

/// `rustc 97 % of a CPU, cargo 3 %`; `None` for nobody.
pub(super) fn show(others: &[Other]) -> Option<String> {
    let percent = |other: &Other| format!("{} {:.0} %", other.name, other.busy * 100.0);
    let shown: Vec<String> = others.iter().map(percent).collect();
    (!shown.is_empty()).then(|| format!("{} of a CPU", shown.join(", ")))
}

/// A warning about processes that use the CPUs before anything is measured, if they would spoil rows.
pub(super) fn before(cpus: &Cpus) -> Option<String> {
    let mut all: Vec<usize> = cpus.server.iter().chain(&cpus.client).copied().collect();
    all.sort_unstable();
    all.dedup();
    let (began, idle, first) = (Instant::now(), tree::idle(&all), Processes::scan());
    std::thread::sleep(WATCHED);
    let seconds = began.elapsed().as_secs_f64();
    let busy = all.len() as f64 - (tree::idle(&all) - idle) / seconds;
    let later = Processes::scan();
    let others = named(&later.used_since(&first, &later.family(std::process::id())), seconds);
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

    /// Purpose: the three processes that used most are named, the greatest first; small ones are left out.
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
