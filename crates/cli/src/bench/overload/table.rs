//! The rows about overload, as text.

use std::fmt::Write;

use super::super::plan::Cell;
use super::super::record::{Record, Row};
use super::derive::{self, Goodput, Signal, StepVerdict};

/// A share that is further below the law than this part of the peak is marked.
const LAW_TOLERANCE: f64 = 0.03;

/// Tables of the cells about overload; empty if there are none.
pub(in super::super) fn text(record: &Record) -> String {
    let mut out = String::new();
    let costs = derive::refusals(record);
    if !costs.is_empty() {
        let _ = writeln!(out, "\nCPU of a refusal   us (least to greatest)");
        for (server, [least, middle, most]) in costs {
            let _ = writeln!(out, "  {server:<16} {middle:>6.1} ({least:.1} to {most:.1})");
        }
    }
    for cells in derive::goodputs(record).chunk_by(|a, b| a.cell == b.cell) {
        out += &goodput(cells);
    }
    let (judged, signals) = (derive::steps(record), derive::signals(record));
    for cell in record.plan.cells.iter().filter(|cell| !cell.steps.is_empty()) {
        out += &steps(cell, &judged, &signals);
    }
    out + &problems(record)
}

/// The servers of one cell.
fn goodput(servers: &[Goodput]) -> String {
    let mut out = format!(
        "\n{:<16} {:>10} {:>8} {:>7} {:>7} {:>8} {:>8} {:>10} {:>8} {:>10} {:>7} {:>7}\n",
        servers[0].cell,
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
    let ms = |us: Option<f64>| number(us.map(|us| us / 1e3), 1);
    for one in servers {
        let below =
            one.of_peak.zip(one.law).is_some_and(|(share, law)| law - share > LAW_TOLERANCE);
        let _ = writeln!(
            out,
            "  {:<14} {:>10} {:>8} {:>7} {:>7} {:>8} {:>8} {:>10} {:>8} {:>10} {:>7} {:>7}{}",
            one.server,
            number(one.goodput_per_s, 0),
            percent(one.of_peak),
            percent(one.law),
            number(one.load, 2),
            ms(one.p50_us),
            ms(one.p99_us),
            number(one.refused_per_s, 0),
            number(one.non_2xx_per_s, 0),
            number(one.timeouts_per_s, 0),
            percent(one.softirq),
            number(one.limit, 0),
            if below { "  BELOW" } else { "" },
        );
    }
    out
}

fn steps(cell: &Cell, judged: &[StepVerdict], signals: &[Signal]) -> String {
    let of_cell: Vec<&StepVerdict> = judged.iter().filter(|one| one.cell == cell.name).collect();
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
                "      {}: {} ({} to {}){}",
                signal.metric,
                number(signal.settled, 2),
                number(Some(signal.least), 2),
                number(Some(signal.most), 2),
                rise(signal),
            );
        }
    }
    out
}

/// The times at which a signal of zero or one rose and fell; empty for other metrics.
fn rise(signal: &Signal) -> String {
    let is_signal = [signal.least, signal.most].iter().all(|value| [0.0, 1.0].contains(value));
    if !is_signal || signal.rises == 0 {
        return String::new();
    }
    let after = |what: &str, after: Option<f64>| {
        after.map_or(String::new(), |after| format!(", {what} after {after:.1} s"))
    };
    let raised = after("first", signal.raised_after_s);
    format!(", rose {}{raised}{}", signal.rises, after("over", signal.cleared_after_s))
}

/// Void rows, and rows whose figures may describe the client.
fn problems(record: &Record) -> String {
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
