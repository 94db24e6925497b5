//! Prints the result of a run: a summary for people, or one JSON object.

use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;

use highwater_core::histogram::Histogram;
use serde_json::{Map, Value, json};

use super::args::Args;
use super::chart;
use super::counts::Counts;
use super::run::Outcome;
use super::tally::{Row, Tally};
use super::target::Target;
use super::units::{micros as shown, time};
use crate::output;

/// The rows of the latency table.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// The parts of a target that are shown.
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
    output::print(&out);
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
        handshakes(outcome),
        frames(outcome),
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
        "http": if args.http2 { "2" } else { "1.1" },
        "ws": args.ws,
        "streams": args.streams,
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
        "not_sent": tally.not_sent,
        "waited": tally.waited,
        "unfinished": tally.open,
        "ok": counts.ok,
        "good": counts.good,
        "late": counts.late,
        "non_2xx": counts.non_2xx,
        "bad_responses": counts.bad,
        "bad_response_reasons": tally.reasons,
        "refused": counts.refused,
        "timeouts": counts.timeouts,
        "unconnected": tally.unconnected,
        "errors": counts.errors(),
        "resets": counts.resets,
        "truncated": counts.truncated,
        "malformed": counts.malformed,
        "malformation": tally.malformation,
        "tls_failed": counts.handshakes,
        "stream_resets": counts.stream_resets,
        "streams_refused": counts.streams_refused,
        "closed": counts.closed,
        "unupgraded": counts.unupgraded,
        "no_port": counts.no_port,
        "failed": counts.failed,
        "statuses": statuses(&tally.statuses),
        "rps": per_second(counts.ok + counts.non_2xx),
        "ok_per_s": per_second(counts.ok),
        // Null, and not 0, if the client did not get to measure it.
        "goodput_per_s": (!outcome.is_unmeasured()).then(|| per_second(counts.good)),
        "sent_per_s": per_second(counts.sent),
        "bytes_per_s": per_second(tally.bytes),
    })
}

fn times(outcome: &Outcome) -> Value {
    let tally = &outcome.tally;
    let latency = |quantile| micros(&tally.latency, quantile);
    json!({
        "p25_us": latency(0.25),
        "p50_us": latency(0.5),
        "p75_us": latency(0.75),
        "iqr_us": tenth(latency(0.75) - latency(0.25)),
        "p90_us": latency(0.9),
        "p95_us": latency(0.95),
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

/// The handshakes of TLS; nothing without it.
fn handshakes(outcome: &Outcome) -> Value {
    let Some(tls) = &outcome.tally.tls else { return json!({}) };
    json!({
        "tls": tls.cipher,
        "tls_problem": tls.problem,
        "handshakes": tls.count(),
        "handshakes_resumed": tls.resumed,
        "handshakes_per_s": tenth(tls.count() as f64 / outcome.span.as_secs_f64().max(1e-9)),
        "handshake_p50_us": micros(&tls.took, 0.5),
        "handshake_p99_us": micros(&tls.took, 0.99),
    })
}

/// What HTTP/2 came to, beside its answers; nothing without it.
fn frames(outcome: &Outcome) -> Value {
    if let Some(frames) = &outcome.tally.ws {
        return json!({
            "ws_closes": frames.count,
            "ws_problem": frames.problem,
            "ws_idle_open": frames.idle_open,
            "ws_idle_lost": frames.idle_lost,
        });
    }
    let Some(frames) = &outcome.tally.http2 else { return json!({}) };
    json!({
        "goaways": frames.goaways,
        "farewells": frames.farewells,
        "http2_problem": frames.problem,
        "server_streams_max": frames.streams_max,
    })
}

fn own(args: &Args, outcome: &Outcome) -> Value {
    let per_request = outcome.cpu.as_secs_f64() * 1e6 / outcome.tally.counts.sent.max(1) as f64;
    json!({
        "rate_ratio": (outcome.rate_ratio() * 1e4).round() / 1e4,
        "client_cpu": (outcome.client_cpu * 1e4).round() / 1e4,
        "client_waited": (outcome.client_waited * 1e4).round() / 1e4,
        "client_stood_us": (outcome.tally.stood.as_secs_f64() * 1e6).round(),
        "client_cpu_us_per_request": (per_request * 1e3).round() / 1e3,
        "bottlenecks": outcome.limits(args),
        "notes": outcome.notes(args),
        "series": series(args, outcome),
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

/// The load over time, without the warm-up. `t` is a point's beginning, in seconds from the beginning of the measured span;
/// everything is counted when it happened.
fn series(args: &Args, outcome: &Outcome) -> Vec<Value> {
    let points =
        outcome.tally.measured_series().chunks(args.points_per_series() as usize).enumerate();
    points
        .map(|(index, fine)| {
            let mut point = Counts::default();
            fine.iter().for_each(|fine| point.add(fine));
            json!({
                "t": (index as f64 * args.series.as_secs_f64() * 1e6).round() / 1e6,
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
    let mut out = headline(args, target, outcome);
    out += &outcomes(args, outcome);
    out += &latencies(args, outcome);
    out += &table(target, outcome);
    let about = match args.rate {
        Some(_) => "the load was not the one that was asked for",
        None => "the client was the bottleneck",
    };
    for limit in outcome.limits(args) {
        out += &format!("\nwarning: {about}: {limit}\n");
    }
    for note in outcome.notes(args) {
        out += &format!("\nnote: {note}\n");
    }
    out
}

/// The results of the requests, in rows.
fn outcomes(args: &Args, outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let seconds = outcome.span.as_secs_f64().max(1e-9);
    let row = |name: &str, count: u64, note: &str| {
        format!("  {name:<12}{count:>12}{:>12.1}/s{note}\n", count as f64 / seconds)
    };
    answered(args, outcome, &row) + &failed(tally, &row) + &protocols(tally, &row) + &reasons(tally)
}

/// Writes a row of the results: a name, a count, and a note.
type WriteRow<'a> = &'a dyn Fn(&str, u64, &str) -> String;

/// How many requests were sent, and what was answered.
fn answered(args: &Args, outcome: &Outcome, row: WriteRow<'_>) -> String {
    let counts = &outcome.tally.counts;
    let mut out = String::new();
    let sent = match args.rate {
        Some(_) => format!("  {:.2} % of the requested rate", outcome.rate_ratio() * 100.0),
        None => String::new(),
    };
    out += &row("sent", counts.sent, &sent);
    out += &row("ok (2xx)", counts.ok, "");
    if let Some(deadline) = args.deadline {
        let note = format!("  within {} of the {}", time(deadline), send(args));
        out += &match outcome.is_unmeasured() {
            false => row("goodput", counts.good, &note),
            true => "  goodput     not measured: the client did not get to send\n".to_owned(),
        };
    }
    out += &match counts.non_2xx {
        0 => String::new(),
        count => row("non-2xx", count, &of_statuses(&outcome.tally.statuses)),
    };
    out
}

/// The failures that there were, by kind.
fn failed(tally: &Tally, row: WriteRow<'_>) -> String {
    let counts = &tally.counts;
    let unconnected = match tally.unconnected {
        0 => String::new(),
        count => format!("  {count} of them before the connection was made"),
    };
    let rest = [
        ("unexpected", counts.bad, "  not as --expect or the mix says"),
        ("refused", counts.refused, ""),
        ("timed out", counts.timeouts, &unconnected),
        ("reset", counts.resets, ""),
        ("truncated", counts.truncated, ""),
        ("malformed", counts.malformed, ""),
        ("TLS failed", counts.handshakes, ""),
        ("stream reset", counts.stream_resets, ""),
        ("closed", counts.closed, "  by the server"),
        ("no upgrade", counts.unupgraded, ""),
        ("refused str.", counts.streams_refused, "  REFUSED_STREAM, or behind a GOAWAY"),
        ("no port", counts.no_port, ""),
        ("failed", counts.failed, ""),
        ("not sent", tally.not_sent, "  the client could not begin them in time"),
        ("unfinished", tally.open, ""),
    ];
    let seen = rest.into_iter().filter(|(_, count, _)| *count > 0);
    seen.map(|(name, count, note)| row(name, count, note)).collect()
}

/// Results of TLS, of WebSockets and of HTTP/2.
fn protocols(tally: &Tally, row: WriteRow<'_>) -> String {
    let mut out = String::new();
    if let Some(tls) = &tally.tls {
        let took = |quantile| shown(micros(&tls.took, quantile));
        let note = format!("  {} resumed; p50 {}, p99 {}", tls.resumed, took(0.5), took(0.99));
        out += &row("handshakes", tls.count(), if tls.count() > 0 { &note } else { "" });
        out += &tls.cipher.as_ref().map_or(String::new(), |cipher| format!("  {cipher}\n"));
        out +=
            &tls.problem.as_ref().map_or(String::new(), |what| format!("  TLS failed: {what}\n"));
    }
    if let Some(what) = tally.ws.as_ref().and_then(|frames| frames.problem.as_ref()) {
        out += &format!("  WebSocket: {what}\n");
    }
    if let Some(frames) = &tally.http2 {
        out += &match frames.goaways {
            0 => String::new(),
            count => row("GOAWAY", count, "  with an error"),
        };
        out += &frames.problem.as_ref().map_or(String::new(), |what| format!("  HTTP/2: {what}\n"));
    }
    out
}

/// Why answers were malformed or unexpected.
fn reasons(tally: &Tally) -> String {
    let mut out = String::new();
    if let Some(what) = tally.malformation {
        out += &format!("  malformed: {what}\n");
    }
    for reason in &tally.reasons {
        out += &format!("  unexpected: {reason}\n");
    }
    out
}

/// How many answers had each status that is not 2xx.
fn of_statuses(counts: &[u64]) -> String {
    let seen = counts.iter().zip(100..).filter(|(count, _)| **count > 0);
    let others = seen.filter(|(_, status)| !(200..300).contains(status));
    let parts: Vec<String> = others.map(|(count, status)| format!("{status}: {count}")).collect();
    format!("  {}", parts.join(", "))
}

/// The instant that latencies run from.
fn send(args: &Args) -> &'static str {
    if args.rate.is_some() { "intended send" } else { "send" }
}

fn headline(args: &Args, target: &Shown, outcome: &Outcome) -> String {
    let shape = match args.rate {
        Some(rate) => format!("open loop, {rate} requests/s"),
        None => format!("closed loop, {} users", args.connections() * args.streams),
    };
    let shape = match args.http2 {
        true => format!("HTTP/2, {shape}, {} connections", args.connections()),
        false => shape,
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

/// The charts, on terminals and on request.
fn charts(args: &Args, outcome: &Outcome) -> String {
    if !args.chart && !stdout().is_terminal() {
        return String::new();
    }
    let points = outcome.tally.measured_series().iter().map(|point| point.ok).collect::<Vec<_>>();
    // Without the answers after the end.
    let step = args.step();
    let to = (outcome.span.as_nanos() / step.as_nanos()) as usize;
    let points = &points[..to.min(points.len())];
    let quantiles: Vec<(&str, f64)> = QUANTILES.into_iter().chain([("max", 1.0)]).collect();
    chart::throughput(points, step) + &chart::latency(&outcome.tally.latency, &quantiles, shown)
}

fn latencies(args: &Args, outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let at = |quantile| shown(micros(&tally.latency, quantile));
    let mut out = String::new();
    if tally.latency.count() > 0 {
        out += &format!("  latency of 2xx, from the {}\n", send(args));
        for (name, quantile) in QUANTILES {
            out += &format!("  {name:<12}{:>12}\n", at(quantile));
        }
        out += &format!("  {:<12}{:>12}\n", "max", at(1.0));
        out += &format!("  {:<12}{:>12} to {}\n", "p25 to p75", at(0.25), at(0.75));
    }
    let cpu = outcome.client_cpu * 100.0;
    out += &format!("  client      {cpu:>10.0} % of a core");
    if args.rate.is_some() {
        let lag = shown(micros(&tally.lag, 0.99));
        out += &format!("; up to {lag} behind schedule (p99)");
    }
    out + "\n"
}
