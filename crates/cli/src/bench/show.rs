//! A record as text: one block a cell, the cheapest server first.

use std::fmt::Write;

use super::compare::Change;
use super::gate::{Claim, Ratio};
use super::overload;
use super::record::{Interval, Record, Row};
use super::stats::{self, Speeds};

/// The medians of one server in one cell, over the rows that count.
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
    pub(super) requests_per_core_second: Option<f64>,
    pub(super) rps: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) server_busy: Option<f64>,
    pub(super) client_busy: Option<f64>,
    pub(super) server_rss_kib: Option<f64>,
    /// Requests per core-second over the first server's, paired.
    pub(super) ratio: Option<Ratio>,
    pub(super) pairs: usize,
}

/// All servers in all cells, in the plan's order.
pub(super) fn summaries(record: &Record) -> Vec<Summary> {
    let speeds = Speeds::of(record.rows());
    let plan = &record.plan;
    let of = |cell: &str, server: &str| {
        let rows: Vec<&Row> =
            record.cells.iter().filter(|row| row.cell == cell && row.server == server).collect();
        (!rows.is_empty()).then(|| summary(record, cell, server, &rows, speeds))
    };
    plan.cells
        .iter()
        .filter(|cell| !cell.is_overload())
        .flat_map(|cell| plan.servers.iter().filter_map(move |server| of(&cell.name, &server.name)))
        .collect()
}

fn summary(record: &Record, cell: &str, server: &str, rows: &[&Row], speeds: Speeds) -> Summary {
    let counted: Vec<_> = rows
        .iter()
        .filter(|row| stats::rejection(row, speeds).is_none())
        .filter_map(|row| row.measured.as_ref())
        .collect();
    let median = |field: fn(&super::record::Measured) -> f64| {
        let values: Vec<f64> = counted.iter().map(|row| field(row)).collect();
        stats::median(&values)
    };
    let void: Vec<_> = rows.iter().filter(|row| !row.is_ok()).collect();
    let baseline = &record.plan.baseline().name;
    let ratios: Vec<f64> = match baseline == server {
        true => Vec::new(),
        false => stats::pairs(&record.cells, cell, baseline, server, speeds)
            .iter()
            .map(|pair| pair.ratio)
            .collect(),
    };
    let cost = median(|row| row.server_cpu_us_per_request);
    let ratio = stats::median(&ratios).zip(stats::interval(&ratios));
    Summary {
        cell: cell.to_owned(),
        server: server.to_owned(),
        rows: rows.len(),
        counted: counted.len(),
        void: void.len(),
        reason: void.first().and_then(|row| row.reason.clone()),
        server_cpu_us_per_request: cost,
        requests_per_core_second: cost.map(|cost| (1e6 / cost).round()),
        rps: median(|row| row.rps),
        p50_us: median(|row| row.p50_us),
        p99_us: median(|row| row.p99_us),
        server_busy: median(|row| row.server_busy),
        client_busy: median(|row| row.client_busy),
        server_rss_kib: median(|row| row.server_rss_kib as f64),
        ratio: ratio.map(|(median, Interval { low, high })| Ratio { median, low, high }),
        pairs: ratios.len(),
    }
}

/// The record, as a table.
pub(super) fn text(record: &Record) -> String {
    let summaries = summaries(record);
    let baseline = &record.plan.baseline().name;
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
        let cost = |summary: &Summary| summary.server_cpu_us_per_request.unwrap_or(f64::INFINITY);
        of_cell.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let versus = format!("req/core-s vs {baseline}");
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
            let _ = writeln!(out, "{}", line(summary));
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
    // Only cells that a claim is made in have an A/A run, and rows that may not count.
    match summaries.is_empty() {
        true => out,
        false => out + &noise(record) + &rejected(record),
    }
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
        number(summary.server_cpu_us_per_request, 3),
        number(summary.rps, 0),
        number(summary.p50_us, 0),
        number(summary.p99_us, 0),
        percent(summary.server_busy),
        percent(summary.client_busy),
        number(summary.server_rss_kib, 0),
    )
}

/// `1.712 [1.690, 1.730]`.
pub(super) fn show_ratio(ratio: Ratio) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.median, ratio.low, ratio.high)
}

fn noise(record: &Record) -> String {
    let Some(aa) = &record.aa else { return "\nA/A: not run\n".to_owned() };
    match aa.interval {
        None => format!("\nA/A: {} pairs of {}: too few\n", aa.pairs, aa.server),
        Some(Interval { low, high }) => format!(
            "\nA/A: {} against itself is [{low:.3}, {high:.3}] over {} pairs{}\n",
            aa.server,
            aa.pairs,
            if low <= 1.0 && high >= 1.0 {
                ""
            } else {
                ": 1 is not in it, and claims must exceed what it is off by"
            }
        ),
    }
}

fn rejected(record: &Record) -> String {
    let speeds = Speeds::of(record.rows());
    let mut counts = std::collections::BTreeMap::new();
    for reason in record.rows().filter_map(|row| stats::rejection(row, speeds)) {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let parts: Vec<String> =
        counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let parts = if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
    format!("{} rows, not counted: {parts}\n", record.rows().count())
}

/// A claim, as text.
pub(super) fn claim(claim: &Claim) -> String {
    let of = claim.cell.as_ref().map_or_else(String::new, |cell| format!("{cell}: "));
    let ratio = claim.ratio.map_or_else(|| "no ratio".to_owned(), show_ratio);
    let mut out = format!(
        "{of}{} against {}: {}\n  {ratio} requests per server core-second, {} pairs",
        claim.candidate,
        claim.baseline,
        claim.verdict.name(),
        claim.pairs
    );
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
    let ratio = change.ratio.map_or_else(|| "too few pairs".to_owned(), show_ratio);
    let against = match &change.baseline {
        Some(baseline) => format!(" against {baseline}"),
        None => " alone (the machine's change is in it)".to_owned(),
    };
    let [old, new] = change.pairs;
    format!(
        "{}: {}{against}: {}: {ratio} new over old, {old} and {new} values\n",
        change.cell, change.server, change.verdict
    )
}
