//! Which measurements may be compared? Pure: no clock, no files.
//!
//! - A machine may have several *speeds* (a shared virtual machine's host moves its CPUs between cores that
//!   share a cache and cores that do not). The round trip of a cache line between the server's and the
//!   client's CPU tells them apart; it is taken before and after each row.
//! - A row counts if it is not void, both round trips belong to one speed, and nothing else used its CPUs.
//! - A *pair* is two rows of one round and cell that count and have the same speed. Only ratios of pairs are
//!   compared.

use std::collections::BTreeMap;

use super::others::{self, Other};
use super::plan::Metric;
use super::record::{Measured, Record, Row};

/// Speeds whose round trips differ by less are one speed: those of one placement differ by up to 1.7 on the
/// machine of bench/evidence, those of two by 2.5 and more.
const SPEEDS_APART: f64 = 2.0;
/// Share of the server's or the client's CPUs that other processes may use, plus these seconds: the
/// kernel reports a CPU's use in ticks of 10 ms, so either end of a short row can be off by one.
const FOREIGN_MAX: f64 = 0.10;
const FOREIGN_SLACK_S: f64 = 0.02;

/// The middle value; the mean of the middle two for an even number. `None` for no value.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Which rows of a record may be compared, and by which metric. The machine's speeds are told apart by the round trips
/// of the whole record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rules {
    metric: Metric,
    /// Round trips from here on, in ns, are of the slower speed. `None`: there was one speed.
    limit: Option<f64>,
}

/// The speed of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    Near,
    Far,
}

impl Rules {
    pub(crate) fn of(record: &Record) -> Rules {
        Rules::of_rows(record.rows(), record.plan.metric())
    }

    /// Divides all round trips in two groups so that their logarithms vary least within the groups (Otsu). If
    /// the groups' means differ by less than a factor of two, there was one speed.
    pub(crate) fn of_rows<'a>(rows: impl Iterator<Item = &'a Row>, metric: Metric) -> Rules {
        let probes =
            rows.filter_map(|row| row.measured.as_ref()).flat_map(|row| row.c2c_ns.clone());
        let mut logs: Vec<f64> = probes.filter(|ns| *ns > 0.0).map(f64::ln).collect();
        logs.sort_by(f64::total_cmp);
        let spread = |part: &[f64]| {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            (mean, part.iter().map(|log| (log - mean).powi(2)).sum::<f64>())
        };
        let divide = |at: usize| {
            let ((low, below), (high, above)) = (spread(&logs[..at]), spread(&logs[at..]));
            (below + above, high - low, logs[at])
        };
        let best = (1..logs.len()).map(divide).min_by(|a, b| a.0.total_cmp(&b.0));
        let limit =
            best.filter(|(_, apart, _)| *apart >= SPEEDS_APART.ln()).map(|best| best.2.exp());
        // The logarithm and back may give a little more than the original value.
        Rules { metric, limit: limit.map(|limit| limit * 0.999) }
    }

    /// The compared value of a row: more is better. `None` if it is not known.
    pub(crate) fn value(&self, row: &Measured) -> Option<f64> {
        let value = match self.metric {
            Metric::ServerCoreSecond => 1e6 / row.server_cpu_us_per_request,
            Metric::ClientCoreSecond => 1e6 / row.client_cpu_us_per_request,
            Metric::Second => row.rps,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// The row's speed; `None` if it changed meanwhile.
    pub(crate) fn speed(&self, row: &Row) -> Option<Speed> {
        let probes = row.measured.as_ref().map_or(&[][..], |row| &row.c2c_ns);
        let is_far = |ns: &f64| self.limit.is_some_and(|limit| *ns >= limit);
        match (probes.iter().all(|ns| !is_far(ns)), probes.iter().all(is_far)) {
            (true, _) => Some(Speed::Near),
            (_, true) => Some(Speed::Far),
            _ => None,
        }
    }
}

/// Why a row does not count; `None` if it does.
pub(crate) fn rejection(row: &Row, rules: Rules) -> Option<&'static str> {
    let Some(measured) = &row.measured else { return Some("void") };
    if !row.is_ok() {
        return Some("void");
    }
    let foreign_max = FOREIGN_MAX + FOREIGN_SLACK_S / measured.seconds.max(1e-3);
    if measured.foreign_on_server_cpus > foreign_max {
        return Some("something else used the server's CPUs");
    }
    // A disturbed client sends smaller batches, and those cost a server more per request.
    if measured.foreign_on_client_cpus > foreign_max {
        return Some("something else used the client's CPUs");
    }
    rules.speed(row).is_none().then_some("the machine changed its speed meanwhile")
}

/// Whether any row of a record counts.
pub(crate) fn counts_any(record: &Record) -> bool {
    let rules = Rules::of(record);
    record.cells.iter().any(|row| rejection(row, rules).is_none())
}

/// What disturbed those of `rows` that do not count, each at its worst.
pub(crate) fn disturbers<'a>(rows: impl Iterator<Item = &'a Row>, rules: Rules) -> Option<String> {
    let disturbed = rows.filter(|row| rejection(row, rules).is_some());
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    for other in disturbed.filter_map(|row| row.measured.as_ref()).flat_map(|row| &row.others) {
        let known = worst.entry(&other.name).or_default();
        *known = known.max(other.busy);
    }
    let all = worst.into_iter().map(|(name, busy)| Other { name: name.to_owned(), busy });
    others::show(&others::most(all.collect()))
}

/// A comparison of two rows of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    /// The compared value, the candidate's over the baseline's.
    pub(crate) ratio: f64,
    /// The 99th percentile of latency, likewise; `None` where the baseline's is not known.
    pub(crate) p99: Option<f64>,
}

impl Pair {
    /// The pair of two rows; `None` if they may not be compared.
    pub(crate) fn of(baseline: &Row, candidate: &Row, rules: Rules) -> Option<Pair> {
        let counts = |row| rejection(row, rules).is_none();
        if !counts(baseline)
            || !counts(candidate)
            || rules.speed(baseline) != rules.speed(candidate)
        {
            return None;
        }
        let (baseline, candidate) = (baseline.measured.as_ref()?, candidate.measured.as_ref()?);
        let ratio = rules.value(candidate)? / rules.value(baseline)?;
        let p99 = candidate.p99_us / baseline.p99_us;
        let is_known = p99.is_finite() && p99 > 0.0;
        (ratio.is_finite() && ratio > 0.0).then_some(Pair { ratio, p99: is_known.then_some(p99) })
    }
}

/// The pairs of two servers in one cell, in the order of rounds.
pub(crate) fn pairs(
    rows: &[Row],
    cell: &str,
    baseline: &str,
    candidate: &str,
    rules: Rules,
) -> Vec<Pair> {
    let of = |server: &str| {
        let rows = rows.iter().filter(|row| row.cell == cell && row.server == server);
        rows.map(|row| (row.round, row)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (baseline, candidate) = (of(baseline), of(candidate));
    let both = baseline.iter().filter_map(|(round, row)| Some((row, candidate.get(round)?)));
    both.filter_map(|(baseline, candidate)| Pair::of(baseline, candidate, rules)).collect()
}

/// The pairs of an A/A run's rows in one cell, round by round. Which of the two is the candidate alternates: in real
/// rounds the order is random too.
pub(crate) fn pairs_aa(rows: &[Row], cell: &str, rules: Rules) -> Vec<Pair> {
    let of_cell: Vec<&Row> = rows.iter().filter(|row| row.cell == cell).collect();
    let mut rounds: std::collections::BTreeMap<u32, Vec<&Row>> = std::collections::BTreeMap::new();
    of_cell.iter().for_each(|row| rounds.entry(row.round).or_default().push(row));
    rounds
        .iter()
        .filter_map(|(round, rows)| match rows[..] {
            [first, second] if round % 2 == 0 => Pair::of(first, second, rules),
            [first, second] => Pair::of(second, first, rules),
            _ => None,
        })
        .collect()
}
