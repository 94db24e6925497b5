//! A record as text: one block per cell, the cheapest server first.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::Change;
use super::gate::{Claim, Ratio};
use super::record::{Interval, Measured, Part, Record, Row};
use super::stats::{self, Rules};
use super::{interval, overload};

/// Minimum share of a CPU for a part to be shown.
const PART_SHOWN: f64 = 0.005;

/// The medians of one server or program in one cell, over the rows that count.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Summary {
    pub(super) cell: String,
    pub(super) server: String,
    pub(super) rows: usize,
    pub(super) counted: usize,
    pub(super) void: usize,
    /// Why the first void row is void.
    pub(super) reason: Option<String>,
    pub(super) server_cpu_us_per_request: Option<f64>,
    pub(super) client_cpu_us_per_request: Option<f64>,
    /// The cost that is compared: the server's, or a program's, which is the client's.
    #[serde(skip)]
    cost_us_per_request: Option<f64>,
    pub(super) requests_per_core_second: Option<f64>,
    pub(super) rps: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) server_busy: Option<f64>,
    pub(super) client_busy: Option<f64>,
    pub(super) server_rss_kib: Option<f64>,
    /// The compared value over the first contender's, paired.
    pub(super) ratio: Option<Ratio>,
    pub(super) pairs: usize,
    /// The resource use of the processes that the plan names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parts: BTreeMap<String, Part>,
}

/// All servers in all cells, in the plan's order.
pub(super) fn summaries(record: &Record) -> Vec<Summary> {
    let rules = Rules::of(record);
    let plan = &record.plan;
    let of = |cell: &str, server: &str| {
        let rows: Vec<&Row> =
            record.cells.iter().filter(|row| row.cell == cell && row.server == server).collect();
        (!rows.is_empty()).then(|| summary(record, cell, server, &rows, rules))
    };
    plan.cells
        .iter()
        .filter(|cell| !cell.is_overload())
        .flat_map(|cell| plan.contenders_of(cell).filter_map(move |name| of(&cell.name, name)))
        .collect()
}

fn summary(record: &Record, cell: &str, server: &str, rows: &[&Row], rules: Rules) -> Summary {
    let counted: Vec<_> = rows
        .iter()
        .filter(|row| stats::rejection(row, rules).is_none())
        .filter_map(|row| row.measured.as_ref())
        .collect();
    let median = |field: fn(&Measured) -> f64| {
        let values: Vec<f64> = counted.iter().map(|row| field(row)).collect();
        stats::median(&values)
    };
    let void: Vec<_> = rows.iter().filter(|row| !row.is_ok()).collect();
    let baseline = baseline(record, cell);
    let ratios: Vec<f64> = match baseline == server {
        true => Vec::new(),
        false => stats::pairs(&record.cells, cell, baseline, server, rules)
            .iter()
            .map(|pair| pair.ratio)
            .collect(),
    };
    let client_cost = median(|row| row.client_cpu_us_per_request);
    let server_cost = median(|row| row.server_cpu_us_per_request);
    let cost = if record.plan.programs.is_empty() { server_cost } else { client_cost };
    // Programs need not report it.
    let latency = |us: Option<f64>| us.filter(|us| *us > 0.0);
    Summary {
        cell: cell.to_owned(),
        server: server.to_owned(),
        rows: rows.len(),
        counted: counted.len(),
        void: void.len(),
        reason: void.first().and_then(|row| row.reason.clone()),
        server_cpu_us_per_request: server_cost,
        client_cpu_us_per_request: client_cost,
        cost_us_per_request: cost,
        requests_per_core_second: cost.map(|cost| (1e6 / cost).round()),
        rps: median(|row| row.rps),
        p50_us: latency(median(|row| row.p50_us)),
        p99_us: latency(median(|row| row.p99_us)),
        server_busy: median(|row| row.server_busy),
        client_busy: median(|row| row.client_busy),
        server_rss_kib: median(|row| row.server_rss_kib as f64),
        ratio: (ratios.len() >= 2).then(|| Ratio::of(&ratios)).flatten(),
        pairs: ratios.len(),
        parts: parts(&counted),
    }
}

/// The first contender in a cell, the baseline of the others.
pub(super) fn baseline<'a>(record: &'a Record, cell: &str) -> &'a str {
    let cell = record.plan.cells.iter().find(|known| known.name == cell);
    cell.and_then(|cell| record.plan.contenders_of(cell).next()).unwrap_or_default()
}

/// The medians of each part's resource use.
fn parts(rows: &[&Measured]) -> BTreeMap<String, Part> {
    let Some(first) = rows.first() else { return BTreeMap::new() };
    let median = |name: &str, field: fn(&Part) -> f64| {
        let values: Vec<f64> =
            rows.iter().filter_map(|row| row.parts.get(name)).map(field).collect();
        stats::median(&values).unwrap_or_default()
    };
    let part = |name: &String| Part {
        cpu_us_per_request: median(name, |part| part.cpu_us_per_request),
        busy: median(name, |part| part.busy),
    };
    first.parts.keys().map(|name| (name.clone(), part(name))).collect()
}

/// The record, as a table.
pub(super) fn text(record: &Record) -> String {
    let summaries = summaries(record);
    let network = record.environment["network"].as_str().unwrap_or("loopback");
    let mut out = format!("{}: {network}", record.plan.name);
    if let Some(cpu) = record.environment["machine"]["cpu"].as_str() {
        let _ = write!(out, ", {cpu}");
    }
    out += "\n";
    for cell in &record.plan.cells {
        let mut of_cell: Vec<&Summary> =
            summaries.iter().filter(|summary| summary.cell == cell.name).collect();
        if of_cell.is_empty() {
            continue;
        }
        let cost = |summary: &Summary| summary.cost_us_per_request.unwrap_or(f64::INFINITY);
        of_cell.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let baseline = baseline(record, &cell.name);
        let versus = format!("{} vs {baseline}", record.plan.metric().short());
        let _ = writeln!(
            out,
            "\n{:<16} {:>11} {:>30} {:>9} {:>7} {:>7} {:>6} {:>6} {:>8}",
            cell.name,
            "CPU us/req",
            versus,
            "req/s",
            "p50 us",
            "p99 us",
            "server",
            "client",
            "RSS KiB"
        );
        for summary in &of_cell {
            match summary.counted {
                // Void rows are listed below, with their reason.
                0 => {
                    let _ = writeln!(
                        out,
                        "  {:<14} none of {} rows counts",
                        summary.server, summary.rows
                    );
                }
                _ => {
                    let _ = writeln!(out, "{}", line(summary));
                    out += &line_of_parts(&summary.parts);
                }
            }
        }
        for summary in of_cell.iter().filter(|summary| summary.void > 0) {
            let reason = summary.reason.as_deref().unwrap_or("no reason was given");
            let _ = writeln!(
                out,
                "  void: {}: {} of {}: {reason}",
                summary.server, summary.void, summary.rows
            );
        }
    }
    out += &overload::text(record);
    // Only cells with claims have an A/A run.
    if !summaries.is_empty() {
        out += &(coverages(&summaries) + &noise(record));
    }
    out + &rejected(record)
}

fn line(summary: &Summary) -> String {
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let percent = |value: Option<f64>| number(value.map(|share| share * 100.0), 0) + "%";
    let ratio = match summary.ratio {
        Some(ratio) => format!("{} n={}", show_ratio(ratio), summary.pairs),
        None => "-".to_owned(),
    };
    format!(
        "  {:<14} {:>11} {ratio:>30} {:>9} {:>7} {:>7} {:>6} {:>6} {:>8}",
        summary.server,
        number(summary.cost_us_per_request, 3),
        number(summary.rps, 0),
        number(summary.p50_us, 0),
        number(summary.p99_us, 0),
        percent(summary.server_busy),
        percent(summary.client_busy),
        number(summary.server_rss_kib, 0),
    )
}

/// The resource use of parts with any use.
fn line_of_parts(parts: &BTreeMap<String, Part>) -> String {
    let used = parts.iter().filter(|(_, part)| part.busy >= PART_SHOWN);
    let shown: Vec<String> = used
        .map(|(name, part)| {
            let (us, percent) = (part.cpu_us_per_request, part.busy * 100.0);
            format!("{name} {us:.2} us {percent:.0}%")
        })
        .collect();
    if shown.is_empty() { String::new() } else { format!("    {}\n", shown.join(", ")) }
}

/// `1.712 [1.690, 1.730]`.
pub(super) fn show_ratio(ratio: Ratio) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.median, ratio.low, ratio.high)
}

/// What an interval of so many values covers.
fn which_cover(coverage: Option<f64>) -> String {
    coverage
        .map_or_else(String::new, |covers| format!(", which cover {}", interval::in_words(covers)))
}

/// What the intervals in the table cover, by the number of their pairs.
fn coverages(summaries: &[Summary]) -> String {
    let mut counts: Vec<usize> = summaries.iter().map(|summary| summary.pairs).collect();
    counts.sort_unstable();
    counts.dedup();
    let covers = |count: usize| Some((count, interval::coverage(count)?));
    let parts: Vec<String> = counts
        .into_iter()
        .filter_map(covers)
        .map(|(count, covers)| format!("n={count} {}", interval::in_words(covers)))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("\nintervals cover: {}\n", parts.join(", "))
    }
}

fn noise(record: &Record) -> String {
    let Some(aa) = &record.aa else { return "\nA/A: not run\n".to_owned() };
    match aa.interval {
        None => format!("\nA/A: {} pairs of {}: too few\n", aa.pairs, aa.server),
        Some(Interval { low, high }) => format!(
            "\nA/A: {} against itself is [{low:.3}, {high:.3}] over {} pairs{}{}\n",
            aa.server,
            aa.pairs,
            which_cover(interval::coverage(aa.pairs)),
            if low <= 1.0 && high >= 1.0 {
                ""
            } else {
                ": 1 is not in it, and claims must exceed its distance from 1"
            }
        ),
    }
}

fn rejected(record: &Record) -> String {
    let rules = Rules::of(record);
    let mut counts = BTreeMap::new();
    for reason in record.rows().filter_map(|row| stats::rejection(row, rules)) {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let parts: Vec<String> =
        counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let parts = if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
    let others = stats::disturbers(record.rows(), rules);
    let others = others.map_or_else(String::new, |others| format!(" (at worst {others})"));
    format!("{} rows, not counted: {parts}{others}\n", record.rows().count())
}

/// The message that no row counts, and why.
pub(super) fn nothing_counts(record: &Record) -> String {
    let rows = record.rows().count();
    format!("nothing was measured; {rows} of {}", rejected(record).trim_end())
}

/// A claim, as text.
pub(super) fn claim(claim: &Claim) -> String {
    let of = claim.cell.as_ref().map_or_else(String::new, |cell| format!("{cell}: "));
    let ratio = claim.ratio.map_or_else(|| "no ratio".to_owned(), show_ratio);
    let mut out = format!(
        "{of}{} against {}: {}\n  {ratio} {}, {} pairs",
        claim.candidate,
        claim.baseline,
        claim.verdict.name(),
        claim.metric.words(),
        claim.pairs
    );
    out += &which_cover(claim.coverage);
    if let Some(Interval { low, high }) = claim.noise {
        let _ = write!(out, "; A/A [{low:.3}, {high:.3}]");
    }
    if let Some(p99) = claim.p99_ratio {
        let _ = write!(out, "; p99 {p99:.3}");
    }
    out += "\n";
    for reason in &claim.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    out
}

/// A change between two records, as text.
pub(super) fn change(change: &Change) -> String {
    let ratio = change.ratio.map_or_else(|| "no ratio".to_owned(), show_ratio);
    let against = match &change.baseline {
        Some(baseline) => format!(" against {baseline}"),
        None if change.ratio.is_none() => String::new(),
        None => " alone (the machine's change is in it)".to_owned(),
    };
    let [old, new] = change.pairs;
    let reason = change.reason.as_ref().map_or_else(String::new, |reason| format!("  {reason}\n"));
    format!(
        "{}: {}{against}: {}: {ratio} new over old, {old} and {new} values{}\n{reason}",
        change.cell,
        change.server,
        change.verdict,
        which_cover(change.coverage)
    )
}
