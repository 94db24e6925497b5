//! The rows about overload, as text.

use std::fmt::Write;

use super::super::plan::Cell;
use super::super::record::{Measured, Overload, Record, Row};
use super::super::stats::median;
use super::derive::{self, Judged, Signal};

/// No further below the law than this share of the peak: more is marked.
const LAW_TOLERANCE: f64 = 0.03;

/// Tables of the cells that ask for too much; nothing if there is none.
pub(in super::super) fn text(record: &Record) -> String {
    let mut out = String::new();
    let costs = derive::refusals(record);
    if !costs.is_empty() {
        let _ = writeln!(out, "\nCPU of a refusal   us (least to greatest)");
        for (server, [least, middle, most]) in costs {
            let _ = writeln!(out, "  {server:<16} {middle:>6.1} ({least:.1} to {most:.1})");
        }
    }
    let is_plain =
        |cell: &&Cell| cell.is_overload() && cell.steps.is_empty() && cell.refusal.is_none();
    for cell in record.plan.cells.iter().filter(is_plain) {
        out += &goodput(record, cell);
    }
    let (judged, signals) = (derive::steps(record), derive::signals(record));
    for cell in record.plan.cells.iter().filter(|cell| !cell.steps.is_empty()) {
        out += &steps(cell, &judged, &signals);
    }
    out + &troubles(record)
}

fn goodput(record: &Record, cell: &Cell) -> String {
    let of = |server: &str| {
        let rows = record.cells.iter().filter(|row| row.cell == cell.name && row.server == server);
        let both = |row: &'_ Row| -> Option<(Measured, Overload)> {
            let measured = row.measured.clone().filter(|_| row.is_ok())?;
            Some((measured.clone(), measured.overload?))
        };
        rows.filter_map(both).collect::<Vec<_>>()
    };
    let rows: Vec<_> = (record.plan.servers.iter())
        .map(|server| (&server.name, of(&server.name)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{:<16} {:>10} {:>8} {:>7} {:>7} {:>8} {:>8} {:>10} {:>8} {:>10} {:>7} {:>7}\n",
        cell.name,
        "goodput/s",
        "of peak",
        "law",
        "load",
        "p50 ms",
        "p99 ms",
        "refused/s",
        "503/s",
        "timeout/s",
        "softirq",
        "limit"
    );
    for (server, rows) in rows {
        let middle = |of: &dyn Fn(&Measured, &Overload) -> Option<f64>| {
            let values: Vec<f64> = rows.iter().filter_map(|(row, more)| of(row, more)).collect();
            median(&values)
        };
        let per_s = |count: u64, row: &Measured| Some(count as f64 / row.seconds.max(1e-9));
        let share = middle(&|_, more| more.goodput_of_peak);
        let bound = middle(&|_, more| more.law);
        let below = share.zip(bound).is_some_and(|(share, bound)| bound - share > LAW_TOLERANCE);
        let _ = writeln!(
            out,
            "  {server:<14} {:>10} {:>8} {:>7} {:>7} {:>8} {:>8} {:>10} {:>8} {:>10} {:>7} {:>7}{}",
            number(middle(&|_, more| Some(more.goodput_per_s)), 0),
            percent(share),
            percent(bound),
            number(middle(&|_, more| more.load), 2),
            number(middle(&|row, _| Some(row.p50_us / 1e3)), 1),
            number(middle(&|row, _| Some(row.p99_us / 1e3)), 1),
            number(middle(&|row, more| per_s(more.refused, row)), 0),
            number(middle(&|row, _| per_s(row.non_2xx, row)), 0),
            number(middle(&|row, more| per_s(more.timeouts, row)), 0),
            percent(middle(&|_, more| Some(more.softirq))),
            number(middle(&|_, more| more.limit), 0),
            if below { "  BELOW" } else { "" },
        );
    }
    out
}

fn steps(cell: &Cell, judged: &[Judged], signals: &[Signal]) -> String {
    let of_cell: Vec<&Judged> = judged.iter().filter(|one| one.cell == cell.name).collect();
    if of_cell.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{:<20} {:>9} {:>9} {:>8} {:>7} {:>10} {:>9} {:>8} {:>10}\n",
        cell.name, "sent", "lost", "p99 ms", "max ms", "goodput/s", "of best", "after s", "swing"
    );
    let mut last = "";
    for one in of_cell {
        if one.step != last {
            last = &one.step;
            let best = one.best.as_ref().map_or(String::new(), |best| format!(", best is {best}"));
            let _ = writeln!(out, "-- {}{best}", one.step);
        }
        let after = match (one.of_best, one.after_s) {
            (Some(_), None) => "never".to_owned(),
            (_, after) => number(after, 1),
        };
        let _ = writeln!(
            out,
            "  {:<18} {:>9} {:>9} {:>8.1} {:>7.0} {:>10} {:>9} {after:>8} {:>10}",
            one.server,
            one.sent,
            one.lost,
            one.p99_us / 1e3,
            one.max_us / 1e3,
            number(one.goodput_per_s, 0),
            percent(one.of_best),
            percent(one.swing),
        );
        let own = signals.iter().filter(|signal| {
            (&signal.cell, &signal.server, &signal.step) == (&one.cell, &one.server, &one.step)
        });
        for signal in own {
            let _ = writeln!(
                out,
                "      {}: {} ({} to {}), rose {}{}{}",
                signal.metric,
                number(signal.settled, 2),
                number(Some(signal.least), 2),
                number(Some(signal.most), 2),
                signal.rises,
                signal
                    .raised_after_s
                    .map_or(String::new(), |after| format!(", after {after:.1} s")),
                signal
                    .cleared_after_s
                    .map_or(String::new(), |after| format!(", over after {after:.1} s")),
            );
        }
    }
    out
}

/// Rows that are void, and rows whose figures may be the client's.
fn troubles(record: &Record) -> String {
    let mut counts = std::collections::BTreeMap::new();
    let is_ours = |row: &&Row| {
        record.plan.cells.iter().any(|cell| cell.name == row.cell && cell.is_overload())
    };
    for row in record.cells.iter().filter(is_ours) {
        let of = format!("{} {}", row.cell, row.server);
        if !row.is_ok() {
            let reason = row.reason.as_deref().unwrap_or("no reason was given");
            *counts.entry(format!("  void: {of}: {reason}")).or_insert(0) += 1;
        }
        let more = row.measured.as_ref().and_then(|row| row.overload.as_ref());
        for what in more.iter().flat_map(|more| &more.bottlenecks) {
            *counts.entry(format!("  the client was the bottleneck: {of}: {what}")).or_insert(0) +=
                1;
        }
    }
    let line = |(what, times): (&String, &i32)| match times {
        1 => format!("{what}\n"),
        times => format!("{what} ({times} times)\n"),
    };
    counts.iter().map(line).collect()
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}%", value * 100.0))
}
