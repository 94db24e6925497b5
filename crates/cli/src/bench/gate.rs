//! May a claim be made? Pure: from a record to a verdict, with its reasons.
//!
//! *Faster* needs all of these: the interval of the paired ratio of the plan's metric (requests per server core-second)
//! lies at +3 % or above, plus the A/A run's distance from 1, if any; the 99th percentile of latency (from the
//! scheduled instant, in a cell with a rate) is at most 10 % worse; no socket error; no answer other than 2xx; a client
//! that was less than 90 % busy, unless the client is measured, and that kept up with the rate. *Slower* needs the
//! interval at −3 % or below, likewise. Everything else is *same*. Over void rows, or without pairs, there is no claim.

use std::collections::BTreeSet;

use serde::Serialize;

use super::interval;
use super::plan::{Contender, Metric};
use super::record::{Interval, Record, Row};
use super::stats::{self, Pair, Rules};

/// The lower end of the interval must reach this for a claim.
pub(super) const FASTER_MIN: f64 = 1.03;
/// *Slower*: the upper end must not exceed this.
const SLOWER_MAX: f64 = 0.97;
/// How much worse the 99th percentile may be.
const P99_MAX: f64 = 1.10;
/// From here on the figures describe the client.
const CLIENT_BUSY_MAX: f64 = 0.90;
/// With a rate: the minimum of sent over requested.
pub(super) const RATE_RATIO_MIN: f64 = 0.98;

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Faster,
    Slower,
    Same,
    Void,
}

impl Verdict {
    /// Its exit status.
    pub(super) fn code(self) -> u8 {
        match self {
            Verdict::Faster => 0,
            Verdict::Slower | Verdict::Same => 1,
            Verdict::Void => 2,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Same => "same",
            Verdict::Void => "void",
        }
    }
}

/// The median of paired ratios, and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// Of paired ratios; a single one is its own interval. `None` for none.
    pub(super) fn of(ratios: &[f64]) -> Option<Ratio> {
        let median = stats::median(ratios)?;
        let one = Interval { low: median, high: median };
        let Interval { low, high } = interval::of_median(ratios).unwrap_or(one);
        Some(Ratio { median, low, high })
    }
}

/// A verdict and its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Claim {
    pub(super) verdict: Verdict,
    pub(super) metric: Metric,
    pub(super) baseline: String,
    pub(super) candidate: String,
    /// `None`: all cells together.
    pub(super) cell: Option<String>,
    /// The candidate's over the baseline's.
    pub(super) ratio: Option<Ratio>,
    /// The probability that the interval contains the true ratio: exactly this from 95 % on, else at least this. `None`:
    /// fewer than two pairs.
    pub(super) coverage: Option<f64>,
    /// Of the A/A run.
    pub(super) noise: Option<Interval>,
    pub(super) pairs: usize,
    /// The candidate's 99th percentile of latency over the baseline's, median of pairs.
    pub(super) p99_ratio: Option<f64>,
    pub(super) reasons: Vec<String>,
    /// The claim for each cell, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cells: Vec<Claim>,
}

/// Judges `candidate` against `baseline` in `cell`, or in all cells that have both.
///
/// # Errors
/// The record has no such server or cell; the message lists those it has.
pub(super) fn claim(
    record: &Record,
    baseline: &str,
    candidate: &str,
    cell: Option<&str>,
) -> Result<Claim, String> {
    let plan = &record.plan;
    for (flag, name) in [("--baseline", baseline), ("--candidate", candidate)] {
        let known: Vec<&str> = plan.contenders().map(Contender::name).collect();
        if !known.contains(&name) {
            return Err(format!("{flag} {name}: not in this record; it has {}", known.join(", ")));
        }
    }
    if baseline == candidate {
        return Err("--baseline and --candidate are the same; name two".to_owned());
    }
    let rules = Rules::of(record);
    let is_both = |name: &str| {
        let cell = plan.cells.iter().find(|cell| cell.name == name);
        cell.is_some_and(|cell| cell.is_for(baseline) && cell.is_for(candidate))
    };
    let all: Vec<&str> = plan
        .cells
        .iter()
        .filter(|cell| !cell.is_overload())
        .map(|cell| cell.name.as_str())
        .filter(|name| is_both(name))
        .collect();
    let is_overload =
        |name: &str| plan.cells.iter().any(|cell| cell.name == name && cell.is_overload());
    match cell {
        Some(cell) if is_overload(cell) => Err(format!(
            "--cell {cell}: it is about goodput under overload, and a claim about the cost of a request; \
             see `highwater bench show`"
        )),
        Some(cell) if !all.contains(&cell) => {
            Err(format!("--cell {cell}: not in this record for both; it has {}", all.join(", ")))
        }
        Some(cell) => Ok(of_cell(record, baseline, candidate, cell, rules)),
        None if all.len() == 1 => Ok(of_cell(record, baseline, candidate, all[0], rules)),
        None => {
            let claims = all.iter().map(|cell| of_cell(record, baseline, candidate, cell, rules));
            Ok(of_all(record, baseline, candidate, claims.collect(), rules))
        }
    }
}

/// The evidence about two servers in some cells, before it is judged.
struct Known<'a> {
    rows: Vec<&'a Row>,
    pairs: Vec<Pair>,
    noise: Option<Interval>,
    /// Whether programs are compared: then the busy client is the subject.
    has_programs: bool,
    /// Whether the 99th percentile must be known: not if a program of the plan does not print it.
    needs_p99: bool,
    /// Why nothing may be said at all.
    hindrance: Option<String>,
}

fn of_cell(record: &Record, baseline: &str, candidate: &str, cell: &str, rules: Rules) -> Claim {
    let is_meant =
        |row: &&Row| row.cell == cell && (row.server == baseline || row.server == candidate);
    let noise = record.aa.as_ref().and_then(|aa| {
        let of_cell = aa.cells.iter().find(|noise| noise.cell == cell);
        of_cell.map_or(aa.interval, |noise| noise.interval.or(aa.interval))
    });
    let known = Known {
        rows: record.cells.iter().filter(is_meant).collect(),
        pairs: stats::pairs(&record.cells, cell, baseline, candidate, rules),
        noise,
        has_programs: !record.plan.programs.is_empty(),
        needs_p99: [baseline, candidate].iter().all(|name| record.plan.has_p99(name)),
        hindrance: hindrance(record, &[baseline, candidate], cell, rules),
    };
    let mut claim = empty(record, baseline, candidate, Some(cell.to_owned()));
    judge(&mut claim, &known, rules);
    claim
}

/// Why nothing may be said about `servers` in `cell`, if so: rows are void, rounds are missing, or a row has no cost.
pub(super) fn hindrance(
    record: &Record,
    servers: &[&str],
    cell: &str,
    rules: Rules,
) -> Option<String> {
    let is_meant = |row: &&Row| row.cell == cell && servers.contains(&row.server.as_str());
    let rows: Vec<&Row> = record.cells.iter().filter(is_meant).collect();
    let void: Vec<&&Row> = rows.iter().filter(|row| !row.is_ok()).collect();
    if let Some(first) = void.first() {
        return Some(format!(
            "{} of {} rows are void; the first: {} in round {}: {}; measure again, into another record",
            void.len(),
            rows.len(),
            first.server,
            first.round,
            first.reason.as_deref().unwrap_or("no reason was given")
        ));
    }
    missing(record, servers, cell).or_else(|| {
        // Without such rows the others would be a selection.
        let has_cost = |row: &Row| row.measured.as_ref().and_then(|row| rules.value(row)).is_some();
        let without = rows.iter().find(|row| !has_cost(row))?;
        Some(format!(
            "{} in round {}: its cost is not positive; measure for longer, into another record",
            without.server, without.round
        ))
    })
}

/// The one of `servers` that has fewer rounds than the plan, if any. A run that is stopped when it looks good proves nothing.
fn missing(record: &Record, servers: &[&str], cell: &str) -> Option<String> {
    let planned = record.plan.cells.iter().find(|known| known.name == cell)?;
    let planned = planned.rounds(&record.plan) as usize;
    let measured = |server: &str| {
        let rows = record.cells.iter().filter(|row| row.cell == cell && row.server == server);
        rows.map(|row| row.round).collect::<BTreeSet<u32>>().len()
    };
    let (least, server) = servers.iter().map(|server| (measured(server), server)).min()?;
    (least < planned).then(|| {
        format!(
            "{server} was measured in {least} of {planned} rounds: `bench run --resume` goes on with them"
        )
    })
}

fn empty(record: &Record, baseline: &str, candidate: &str, cell: Option<String>) -> Claim {
    Claim {
        verdict: Verdict::Void,
        metric: record.plan.metric(),
        baseline: baseline.to_owned(),
        candidate: candidate.to_owned(),
        cell,
        ratio: None,
        coverage: None,
        noise: None,
        pairs: 0,
        p99_ratio: None,
        reasons: Vec::new(),
        cells: Vec::new(),
    }
}

/// Void if one cell is; faster or slower if all are; slower also if one is and none is faster.
fn of_all(
    record: &Record,
    baseline: &str,
    candidate: &str,
    cells: Vec<Claim>,
    rules: Rules,
) -> Claim {
    let mut claim = empty(record, baseline, candidate, None);
    let has = |verdict| cells.iter().any(|claim: &Claim| claim.verdict == verdict);
    claim.verdict = match () {
        () if cells.is_empty() || has(Verdict::Void) => Verdict::Void,
        () if cells.iter().all(|claim| claim.verdict == Verdict::Faster) => Verdict::Faster,
        () if has(Verdict::Slower) && !has(Verdict::Faster) => Verdict::Slower,
        () => Verdict::Same,
    };
    let pairs = cells.iter().filter_map(|claim| claim.cell.as_deref());
    let pairs: Vec<Pair> = pairs
        .flat_map(|cell| stats::pairs(&record.cells, cell, baseline, candidate, rules))
        .collect();
    fill(&mut claim, &pairs, record.aa.as_ref().and_then(|aa| aa.interval));
    claim.reasons = cells
        .iter()
        .map(|claim| {
            let cell = claim.cell.as_deref().unwrap_or_default();
            format!("{cell}: {}: {}", claim.verdict.name(), claim.reasons.join("; "))
        })
        .collect();
    if cells.is_empty() {
        claim.reasons.push("no cell was measured for both".to_owned());
    }
    claim.cells = cells;
    claim
}

fn fill(claim: &mut Claim, pairs: &[Pair], noise: Option<Interval>) {
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
    let p99: Vec<f64> = pairs.iter().filter_map(|pair| pair.p99).collect();
    claim.pairs = pairs.len();
    claim.coverage = interval::coverage(pairs.len());
    claim.ratio = Ratio::of(&ratios);
    claim.p99_ratio = stats::median(&p99);
    claim.noise = noise;
}

fn judge(claim: &mut Claim, known: &Known<'_>, rules: Rules) {
    fill(claim, &known.pairs, known.noise);
    if let Some(hindrance) = &known.hindrance {
        claim.reasons.push(hindrance.clone());
        return;
    }
    let Some(ratio) = claim.ratio.filter(|_| claim.pairs >= 2) else {
        claim.reasons.push(too_few(claim.pairs, &known.rows, rules));
        return;
    };
    let bias = known.noise.map_or(1.0, bias);
    let reasons = &mut claim.reasons;
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let found = format!("{} to {}", percent(ratio.low), percent(ratio.high));
    match known.noise {
        None => reasons.push("the record states no noise: its A/A run has no pairs".to_owned()),
        Some(noise) if bias > 1.0 => reasons.push(format!(
            "the A/A run is off, {} to {}, so {} more are needed",
            percent(noise.low),
            percent(noise.high),
            percent(bias)
        )),
        Some(_) => {}
    }
    if ratio.high <= SLOWER_MAX / bias {
        claim.verdict = Verdict::Slower;
        reasons.push(format!("{found}: -3 % at most is slower"));
        return;
    }
    claim.verdict = Verdict::Same;
    let mut missing = Vec::new();
    if ratio.low < FASTER_MIN * bias {
        missing.push(format!("{found}: +3 % at least is faster, -3 % at most is slower"));
    }
    match claim.p99_ratio {
        Some(p99) if p99 > P99_MAX => {
            missing.push(format!("p99 {} is worse than +10 %", percent(p99)));
        }
        None if known.needs_p99 => missing.push("p99 is not known".to_owned()),
        None => reasons.push("p99 is not known: the plan does not ask for it".to_owned()),
        Some(_) => {}
    }
    missing.extend(of_rows(&known.rows, known.has_programs));
    if missing.is_empty() {
        claim.verdict = Verdict::Faster;
        reasons.push(format!("{found}: +3 % at least is faster"));
    } else {
        reasons.extend(missing);
    }
}

/// The least distance of the A/A run's interval from 1, as a factor: 1 if the interval contains 1. Only this proven
/// bias is deducted, not the width of the interval: the claim's own interval includes that.
fn bias(noise: Interval) -> f64 {
    noise.low.max(1.0 / noise.high).max(1.0)
}

/// The problem in any row that forbids a claim.
fn of_rows(rows: &[&Row], has_programs: bool) -> Vec<String> {
    let measured =
        || rows.iter().filter_map(|row| Some((row.server.as_str(), row.measured.as_ref()?)));
    let mut found = Vec::new();
    let mut servers: Vec<&str> = measured().map(|(server, _)| server).collect();
    servers.sort_unstable();
    servers.dedup();
    for server in servers {
        let of = || measured().filter(|(of, _)| *of == server).map(|(_, row)| row);
        let errors: u64 = of().map(|row| row.errors).sum();
        let non_2xx: u64 = of().map(|row| row.non_2xx).sum();
        let busy: Vec<f64> = of().map(|row| row.client_busy).collect();
        let busy = stats::median(&busy).unwrap_or(0.0);
        let rate = of().map(|row| row.rate_ratio).fold(f64::INFINITY, f64::min);
        if errors > 0 {
            found.push(format!("{server}: {errors} socket errors"));
        }
        if non_2xx > 0 {
            found.push(format!("{server}: {non_2xx} answers other than 2xx"));
        }
        if busy >= CLIENT_BUSY_MAX && !has_programs {
            let percent = busy * 100.0;
            found.push(format!(
                "{server}: the client was {percent:.0} % busy: give it more CPUs, or a rate"
            ));
        }
        if rate < RATE_RATIO_MIN {
            found.push(format!(
                "{server}: only {:.1} % of the rate was sent: ask for less",
                rate * 100.0
            ));
        }
    }
    found
}

fn too_few(pairs: usize, rows: &[&Row], rules: Rules) -> String {
    let mut reasons: Vec<&str> =
        rows.iter().filter_map(|row| stats::rejection(row, rules)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let others = stats::disturbers(rows.iter().copied(), rules);
    let reasons = reasons.into_iter().map(str::to_owned).chain(others).collect::<Vec<_>>();
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    format!("{pairs} pairs are too few{why}: measure again, into another record")
}
