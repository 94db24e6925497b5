//! Prints the result of a run: a summary for people, or one JSON object.

use std::io::{IsTerminal, Write, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use highwater_core::histogram::Histogram;
use serde_json::{Map, Value, json};

use super::args::Args;
use super::chart;
use super::run::Outcome;
use super::tally::Row;
use super::target::Target;

/// The rows of the latency table.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// What of a target is shown.
pub(crate) struct Shown {
    pub(crate) address: SocketAddr,
    /// The requests of a mix, with their weights.
    requests: Vec<(String, u64)>,
}

impl Shown {
    pub(crate) fn new(target: &Target) -> Shown {
        let named = target.requests.list.iter().filter(|_| target.requests.is_mix);
        let requests = named.map(|request| (request.name.clone(), request.weight)).collect();
        Shown { address: target.address, requests }
    }
}

/// Prints the result as the flags ask for.
pub(crate) fn print(args: &Args, target: &Shown, outcome: &Outcome) {
    let out = match args.json {
        true => format!("{}\n", json(args, target, outcome)),
        false => text(args, target, outcome) + &charts(args, outcome),
    };
    // A reader that has exited, as `head` may, is not an error.
    let _ = stdout().write_all(out.as_bytes());
}

/// Microseconds at a quantile, to a tenth; 0 if nothing was recorded.
fn micros(histogram: &Histogram, quantile: f64) -> f64 {
    (histogram.quantile(quantile).unwrap_or(0) as f64 / 100.0).round() / 10.0
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// One flat object: the flags, the results, the latencies, the cost on this machine.
fn json(args: &Args, target: &Shown, outcome: &Outcome) -> Value {
    let parts = [
        settings(args, target, outcome),
        ends(outcome),
        times(outcome),
        requests(target, outcome),
        own(args, outcome),
    ];
    let fields = parts.into_iter().flat_map(|part| match part {
        Value::Object(fields) => fields,
        _ => unreachable!("each part is written as an object"),
    });
    fields.collect::<Map<_, _>>().into()
}

fn settings(args: &Args, target: &Shown, outcome: &Outcome) -> Value {
    json!({
        "url": args.urls.join(" "),
        "address": target.address.to_string(),
        "mode": if args.rate.is_some() { "open" } else { "closed" },
        "rate": args.rate,
        "connections": args.connections(),
        "threads": args.threads,
        "pipeline": args.pipeline,
        "close": args.close,
        "deadline_ms": args.deadline.map(|deadline| deadline.as_secs_f64() * 1e3),
        "transport": outcome.transport.to_string(),
        "seconds": outcome.span.as_secs_f64(),
        "interrupted": outcome.interrupted,
    })
}

fn ends(outcome: &Outcome) -> Value {
    let (tally, counts) = (&outcome.tally, &outcome.tally.counts);
    let seconds = outcome.span.as_secs_f64().max(1e-9);
    let per_second = |count: u64| tenth(count as f64 / seconds);
    json!({
        "asked": tally.asked,
        "sent": counts.sent,
        "unsent": tally.unsent,
        "waited": tally.waited,
        "unfinished": tally.open,
        "ok": counts.ok,
        "good": counts.good,
        "late": counts.ok - counts.good,
        "non_2xx": counts.non_2xx,
        "bad_responses": counts.bad,
        "bad_response_reasons": tally.reasons,
        "refused": counts.refused,
        "timeouts": counts.timeouts,
        "errors": counts.errors(),
        "resets": counts.resets,
        "truncated": counts.truncated,
        "malformed": counts.malformed,
        "malformation": tally.malformation,
        "no_port": counts.no_port,
        "failed": counts.failed,
        "statuses": statuses(&tally.statuses),
        "rps": per_second(counts.ok + counts.non_2xx),
        "ok_per_s": per_second(counts.ok),
        "goodput_per_s": per_second(counts.good),
        "sent_per_s": per_second(counts.sent),
        "bytes_per_s": per_second(tally.bytes),
    })
}

fn times(outcome: &Outcome) -> Value {
    let tally = &outcome.tally;
    let latency = |quantile| micros(&tally.latency, quantile);
    json!({
        "p50_us": latency(0.5),
        "p90_us": latency(0.9),
        "p99_us": latency(0.99),
        "p999_us": latency(0.999),
        "p9999_us": latency(0.9999),
        "max_us": latency(1.0),
        "mean_us": tenth(mean(&tally.latency) / 1e3),
        "rejected_p50_us": micros(&tally.rejection, 0.5),
        "rejected_p99_us": micros(&tally.rejection, 0.99),
        "lag_p50_us": micros(&tally.lag, 0.5),
        "lag_p99_us": micros(&tally.lag, 0.99),
        "lag_max_us": micros(&tally.lag, 1.0),
    })
}

/// A row for each request of a mix; nothing without one.
fn requests(target: &Shown, outcome: &Outcome) -> Value {
    if target.requests.is_empty() {
        return json!({});
    }
    let seconds = outcome.span.as_secs_f64().max(1e-9);
    let rows = target.requests.iter().zip(&outcome.tally.rows);
    let rows: Vec<Value> = rows
        .map(|((name, weight), Row { counts, latency })| {
            json!({
                "name": name,
                "weight": weight,
                "sent": counts.sent,
                "ok": counts.ok,
                "good": counts.good,
                "non_2xx": counts.non_2xx,
                "bad_responses": counts.bad,
                "refused": counts.refused,
                "timeouts": counts.timeouts,
                "errors": counts.errors(),
                "rps": tenth((counts.ok + counts.non_2xx) as f64 / seconds),
                "p50_us": micros(latency, 0.5),
                "p90_us": micros(latency, 0.9),
                "p99_us": micros(latency, 0.99),
                "p999_us": micros(latency, 0.999),
                "max_us": micros(latency, 1.0),
            })
        })
        .collect();
    json!({ "requests": rows })
}

fn own(args: &Args, outcome: &Outcome) -> Value {
    let per_request = outcome.cpu.as_secs_f64() * 1e6 / outcome.tally.counts.sent.max(1) as f64;
    json!({
        "rate_ratio": (outcome.rate_ratio() * 1e4).round() / 1e4,
        "client_cpu": (outcome.client_cpu * 1e4).round() / 1e4,
        "client_cpu_us_per_request": (per_request * 1e3).round() / 1e3,
        "bottlenecks": outcome.bottlenecks(args),
        "series": series(args.series, outcome),
    })
}

fn mean(histogram: &Histogram) -> f64 {
    histogram.sum() as f64 / histogram.count().max(1) as f64
}

fn statuses(counts: &[u64]) -> Value {
    let seen = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    seen.map(|(index, count)| ((index + 100).to_string(), json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

/// The load over time, from the first request on, with the warm-up in it. `t` is a point's beginning
/// in seconds; everything is counted when it happened.
fn series(step: Duration, outcome: &Outcome) -> Vec<Value> {
    let points = outcome.tally.series.iter().enumerate();
    points
        .map(|(index, point)| {
            json!({
                "t": (index as f64 * step.as_secs_f64() * 1e6).round() / 1e6,
                "sent": point.sent,
                "ok": point.ok,
                "goodput": point.good,
                "non_2xx": point.non_2xx,
                "refused": point.refused,
                "timeouts": point.timeouts,
                "errors": point.errors(),
            })
        })
        .collect()
}

fn text(args: &Args, target: &Shown, outcome: &Outcome) -> String {
    let (tally, counts) = (&outcome.tally, &outcome.tally.counts);
    let seconds = outcome.span.as_secs_f64().max(1e-9);
    let row = |name: &str, count: u64, note: &str| {
        format!("  {name:<12}{count:>12}{:>12.1}/s{note}\n", count as f64 / seconds)
    };
    let mut out = headline(args, target, outcome);
    out += &row("sent", counts.sent, "");
    out += &row("ok (2xx)", counts.ok, "");
    if let Some(deadline) = args.deadline {
        out += &row("goodput", counts.good, &format!("  within {deadline:?} of the intended send"));
    }
    let rest = [
        ("non-2xx", counts.non_2xx),
        ("bad", counts.bad),
        ("refused", counts.refused),
        ("timed out", counts.timeouts),
        ("reset", counts.resets),
        ("truncated", counts.truncated),
        ("malformed", counts.malformed),
        ("no port", counts.no_port),
        ("failed", counts.failed),
        ("unsent", tally.unsent),
        ("unfinished", tally.open),
    ];
    for (name, count) in rest.into_iter().filter(|(_, count)| *count > 0) {
        out += &row(name, count, "");
    }
    if let Some(what) = tally.malformation {
        out += &format!("  malformed: {what}\n");
    }
    for reason in &tally.reasons {
        out += &format!("  bad response: {reason}\n");
    }
    out += &latencies(args, outcome);
    out += &table(target, outcome);
    if counts.sent == 0 {
        out += "\nwarning: nothing was sent in the measured span: every user still waited for an \
                answer from before; the server stalls, or --warmup is too short\n";
    }
    for bottleneck in outcome.bottlenecks(args) {
        out += &format!("\nwarning: the client was the bottleneck: {bottleneck}\n");
    }
    out
}

fn headline(args: &Args, target: &Shown, outcome: &Outcome) -> String {
    let shape = match args.rate {
        Some(rate) => format!("open loop, {rate} requests/s"),
        None => format!("closed loop, {} users", args.connections()),
    };
    let how = match (args.close, args.pipeline) {
        (true, _) => ", a connection for each request".to_owned(),
        (false, 1) => String::new(),
        (false, depth) => format!(", {depth} requests at once"),
    };
    let cut = if outcome.interrupted { " (interrupted)" } else { "" };
    format!(
        "{} ({}, {}): {shape}{how}, {:.1} s{cut}\n",
        args.urls[0],
        target.address,
        outcome.transport,
        outcome.span.as_secs_f64()
    )
}

/// The rows of a mix.
fn table(target: &Shown, outcome: &Outcome) -> String {
    let mut out = String::new();
    if target.requests.is_empty() {
        return out;
    }
    let seconds = outcome.span.as_secs_f64().max(1e-9);
    let width = target.requests.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let width = width.clamp(7, 40);
    out += &format!(
        "\n  {:<width$}{:>12}{:>12}{:>10}{:>10}{:>12}{:>12}\n",
        "request", "sent", "2xx/s", "failed", "bad", "p50", "p99"
    );
    for ((name, _), Row { counts, latency }) in target.requests.iter().zip(&outcome.tally.rows) {
        let name: String = name.chars().take(width).collect();
        out += &format!(
            "  {name:<width$}{:>12}{:>12.1}{:>10}{:>10}{:>12}{:>12}\n",
            counts.sent,
            counts.ok as f64 / seconds,
            counts.non_2xx + counts.refused + counts.timeouts + counts.errors(),
            counts.bad,
            shown(micros(latency, 0.5)),
            shown(micros(latency, 0.99)),
        );
    }
    out
}

/// The charts, for terminals and if asked for.
fn charts(args: &Args, outcome: &Outcome) -> String {
    if !args.chart && !stdout().is_terminal() {
        return String::new();
    }
    let points = outcome.tally.series.iter().map(|point| point.ok).collect::<Vec<_>>();
    // What is sent after the span is the rest of what was due before.
    let whole = ((args.warmup + outcome.span).as_nanos() / args.series.as_nanos()) as usize;
    let points = &points[..points.len().min(whole.max(1))];
    let quantiles: Vec<(&str, f64)> = QUANTILES.into_iter().chain([("max", 1.0)]).collect();
    chart::throughput(points, args.series)
        + &chart::latency(&outcome.tally.latency, &quantiles, shown)
}

fn shown(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros:.0} us"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

fn latencies(args: &Args, outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let mut out = String::from("  latency of 2xx, from the intended send\n");
    if tally.latency.count() == 0 {
        out = String::new();
    } else {
        for (name, quantile) in QUANTILES {
            out += &format!("  {name:<12}{:>12}\n", shown(micros(&tally.latency, quantile)));
        }
        out += &format!("  {:<12}{:>12}\n", "max", shown(micros(&tally.latency, 1.0)));
    }
    let cpu = outcome.client_cpu * 100.0;
    out += &format!("  client       {cpu:>10.0} % of a core");
    if args.rate.is_some() {
        out += &format!(
            "; {:.2} % of the asked rate was sent, {} behind schedule (p99)",
            outcome.rate_ratio() * 100.0,
            shown(micros(&tally.lag, 0.99))
        );
    }
    out + "\n"
}
