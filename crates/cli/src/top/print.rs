//! One snapshot, as text for people and as JSON for programs.
//!
//! Pure: figures in, text out. JSON has its units in its names, and `null` where nothing is known.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::figures::{Endpoint, Figures};
use super::histogram::{Quantile, Quantiles};
use super::sample::Need;
use super::state::{Order, ordered};
use super::units::{self, UNKNOWN};

/// Endpoints in the text; JSON has all of them that had requests.
const ENDPOINTS_MAX: usize = 20;

/// The snapshot of the server at `url`, for people.
pub(crate) fn text(url: &str, figures: &Figures) -> String {
    let mut text = String::new();
    let sample = &figures.sample;
    let uptime = sample.uptime.map_or_else(|| UNKNOWN.to_owned(), passed);
    let span = figures.span.map_or_else(|| "no time".to_owned(), units::seconds);
    // Writing into a string cannot fail.
    let _ =
        writeln!(text, "Highwater {} at {url}, up {uptime}; rates over {span}\n", sample.version);
    for (name, value) in rows(figures) {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    let refusals = figures.refusals();
    if !refusals.is_empty() {
        let _ = writeln!(text, "\n{:<32} {:>10} {:>12}", "refused", "per second", "total");
        for (layer, reason, rate, total) in refusals {
            let what = format!("{layer}: {reason}");
            let (rate, total) = (units::rate(rate), units::count(total));
            let _ = writeln!(text, "{what:<32} {rate:>10} {total:>12}");
        }
        if let Some(shares) = figures.shares() {
            let _ = writeln!(text, "{shares}");
        }
    }
    endpoints(&mut text, &ordered(Some(figures), Order::Busiest));
    text
}

fn endpoints(text: &mut String, endpoints: &[&Endpoint]) {
    if endpoints.is_empty() {
        text.push_str("\nno request yet\n");
        return;
    }
    let heads = ["per second", "p50", "p99", "total"];
    let [rate, p50, p99, total] = heads;
    let _ = writeln!(text, "\n{:<32} {rate:>10} {p50:>9} {p99:>9} {total:>12}", "endpoint");
    for endpoint in endpoints.iter().take(ENDPOINTS_MAX) {
        let rate = units::rate(endpoint.rate);
        let [p50, p99] = [endpoint.latency.p50, endpoint.latency.p99].map(units::quantile);
        let total = units::count(endpoint.total);
        let name = printable(&endpoint.name);
        let _ = writeln!(text, "{name:<32} {rate:>10} {p50:>9} {p99:>9} {total:>12}");
    }
    if let Some(more) = endpoints.len().checked_sub(ENDPOINTS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more; --json has all of them");
    }
}

/// The figures by name, in the order in which they are asked for.
pub(crate) fn rows(figures: &Figures) -> Vec<(&'static str, String)> {
    let sample = &figures.sample;
    let connections = sample.connections;
    let limit = connections
        .limit
        .map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", units::count(limit)));
    let latency = |of: Quantiles| {
        let [p50, p90, p99] = [of.p50, of.p90, of.p99].map(units::quantile);
        format!("p50 {p50}   p90 {p90}   p99 {p99}")
    };
    let busy: Vec<String> =
        sample.workers.iter().map(|(_, ratio)| units::percent(*ratio)).collect();
    let memory = sample.process.memory_bytes.map_or_else(|| UNKNOWN.to_owned(), units::bytes);
    let choice = |choice: &Option<super::sample::Choice>| match choice {
        Some(choice) => format!("{}: {}", printable(&choice.name), printable(&choice.reason)),
        None => UNKNOWN.to_owned(),
    };
    vec![
        ("requests", format!("{} /s", units::rate(figures.requests))),
        ("goodput", format!("{} /s", units::rate(figures.good))),
        ("latency", latency(figures.latency)),
        ("queue delay", latency(figures.queue_delay)),
        (
            "connections",
            format!(
                "{} in flight, {limit}, {} open",
                units::rate(connections.in_flight),
                units::count(connections.open)
            ),
        ),
        ("refused", format!("{} /s", units::rate(figures.refused))),
        ("demand", demand(figures)),
        ("workers", if busy.is_empty() { UNKNOWN.to_owned() } else { busy.join("  ") + " busy" }),
        ("memory", memory),
        ("gate", choice(&sample.gate)),
        ("limiter", sample.limiter.as_deref().map_or_else(|| UNKNOWN.to_owned(), printable)),
        ("transport", choice(&sample.transport)),
    ]
}

/// Demand over capacity, and whether that calls for another instance.
pub(crate) fn demand(figures: &Figures) -> String {
    let Some(ratio) = figures.sample.demand_ratio else { return UNKNOWN.to_owned() };
    let needs = match figures.sample.need() {
        Some(Need::Now) => ", needs another instance".to_owned(),
        Some(Need::Past(None)) => ", needed another instance a moment ago".to_owned(),
        Some(Need::Past(Some(seconds))) => {
            format!(", needed another instance {} ago", passed(seconds))
        }
        Some(Need::None) => ", needs no other instance".to_owned(),
        None => String::new(),
    };
    format!("{ratio:.2} of capacity{needs}")
}

/// A text from the server, without what would move a terminal's cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn passed(seconds: f64) -> String {
    units::passed(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The snapshot of the server at `url`, for programs.
pub(crate) fn json(url: &str, figures: &Figures) -> Value {
    let sample = &figures.sample;
    let connections = sample.connections;
    let choice = |choice: &Option<super::sample::Choice>| {
        choice.as_ref().map(|choice| json!({ "name": choice.name, "reason": choice.reason }))
    };
    let refusals = figures.refusals().into_iter().map(|(layer, reason, rate, total)| {
        json!({ "layer": layer, "reason": reason, "per_s": rate, "total": total })
    });
    let endpoints = ordered(Some(figures), Order::Busiest).into_iter().map(|endpoint| {
        let mut json = quantiles(endpoint.latency);
        json["endpoint"] = endpoint.name.as_str().into();
        json["requests_per_s"] = endpoint.rate.into();
        json["requests"] = endpoint.total.into();
        json
    });
    let workers = sample.workers.iter().map(|(name, busy)| json!({ "worker": name, "busy": busy }));
    json!({
        "url": url,
        "version": sample.version,
        "uptime_s": sample.uptime,
        "interval_s": figures.span,
        "requests": sample.requests,
        "requests_per_s": figures.requests,
        "goodput_per_s": figures.good,
        "latency": quantiles(figures.latency),
        "queue_delay": quantiles(figures.queue_delay),
        "connections": {
            "open": connections.open,
            "in_flight": connections.in_flight,
            "limit": connections.limit,
        },
        "refused_per_s": figures.refused,
        "refusals": refusals.collect::<Vec<_>>(),
        "demand_ratio": sample.demand_ratio,
        "saturation_ratio": sample.saturation_ratio,
        "needs_scaleout": sample.needs_scaleout,
        "calm_s": sample.calm,
        "workers": workers.collect::<Vec<_>>(),
        "memory_bytes": sample.process.memory_bytes,
        "cpu_cores": figures.cpu,
        "descriptors": sample.process.descriptors,
        "descriptors_max": sample.process.descriptors_max,
        "gate": choice(&sample.gate),
        "limiter": sample.limiter,
        "transport": choice(&sample.transport),
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// Quantiles in microseconds; of one in the first or the last bucket, the bound that is known.
fn quantiles(quantiles: Quantiles) -> Value {
    let micros = |quantile: Option<Quantile>| quantile.map(|quantile| quantile.seconds * 1e6);
    json!({
        "p50_us": micros(quantiles.p50),
        "p90_us": micros(quantiles.p90),
        "p99_us": micros(quantiles.p99),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    fn figures() -> Figures {
        let before = sample(100.0, 10.0, 1000.0, 5.0);
        Figures::between(Some(&before), sample(100.0, 12.0, 31_000.0, 25.0))
    }

    /// Purpose: the text says everything that the screen would, with units.
    #[test]
    fn a_snapshot_as_text() {
        let expected = "\
Highwater 1.2.3 at u, up 12 s; rates over 2 s

requests     15 k /s
goodput      13.5 k /s
latency      p50 778 µs   p90 1 ms   p99 9.1 ms
queue delay  p50 750 µs   p90 950 µs   p99 995 µs
connections  3 in flight, limit 12, 7 open
refused      10 /s
demand       1.50 of capacity, needs another instance
workers      25 %  100 % busy
memory       13.7 MiB
gate         ebpf: ebpf works here
limiter      gradient
transport    uring: io_uring works here

refused                          per second        total
kernel: reset                            10           25

endpoint                         per second       p50       p99        total
/a                                     15 k    778 µs    9.1 ms         31 k
";
        assert_eq!(text("u", &figures()), expected);
    }

    /// Purpose: while clients have shares the text says how many, below what was refused.
    #[test]
    fn shares_are_said_while_there_are_any() {
        for (shares, expected) in [
            (0.0, "25\n\nendpoint"),
            (1.0, "25\n1 client has its share of the queue\n\nendpoint"),
            (7.0, "25\n7 clients have their share of the queue\n\nendpoint"),
        ] {
            let mut figures = figures();
            figures.sample.shares = shares;
            let text = text("u", &figures);
            assert!(text.contains(expected), "{text}");
        }
    }

    /// Purpose: programs find each figure under a name with its unit, and null where there is none.
    #[test]
    fn a_snapshot_as_json() {
        let json = json("u", &figures());
        assert_eq!(json["requests_per_s"], 15_000.0);
        assert_eq!(json["goodput_per_s"], 13_500.0);
        assert!((json["latency"]["p99_us"].as_f64().expect("known") - 9100.0).abs() < 1e-6);
        assert_eq!(json["connections"]["limit"], 12.0);
        assert_eq!(json["refusals"][0]["layer"], "kernel");
        assert_eq!(json["workers"][1]["busy"], 0.999);
        assert_eq!(json["endpoints"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["endpoints"][0]["endpoint"], "/a");
        let first = super::json("u", &Figures::between(None, sample(100.0, 1.0, 0.0, 0.0)));
        for unknown in ["requests_per_s", "refused_per_s", "interval_s"] {
            assert!(first[unknown].is_null(), "{unknown}");
        }
        assert!(first["latency"]["p50_us"].is_null());
    }

    /// Purpose: demand and what it calls for are of one moment: a server at a quarter of its capacity
    /// does not need another instance, although its flag is still up.
    #[test]
    fn a_need_has_its_time() {
        let mut figures = figures();
        let mut say = |ratio, needs, calm| {
            let sample = &mut figures.sample;
            (sample.demand_ratio, sample.needs_scaleout, sample.calm) = (Some(ratio), needs, calm);
            demand(&figures)
        };
        for (ratio, needs, calm, expected) in [
            (1.5, Some(true), Some(0.0), "1.50 of capacity, needs another instance"),
            (0.23, Some(true), Some(12.4), "0.23 of capacity, needed another instance 12 s ago"),
            (0.23, Some(false), Some(99.0), "0.23 of capacity, needs no other instance"),
            // An older server does not say since when.
            (0.95, Some(true), None, "0.95 of capacity, needs another instance"),
            (0.23, Some(true), None, "0.23 of capacity, needed another instance a moment ago"),
            (0.23, None, None, "0.23 of capacity"),
        ] {
            assert_eq!(say(ratio, needs, calm), expected);
        }
    }

    /// Purpose: a server without a request does not show a table without rows.
    #[test]
    fn nothing_yet() {
        let text = text("u", &Figures::between(None, sample(100.0, 1.0, 0.0, 0.0)));
        assert!(text.ends_with("\nno request yet\n"), "{text}");
        assert!(text.contains("requests     – /s"), "{text}");
    }

    /// Purpose: what a server calls its endpoints cannot command the terminal.
    #[test]
    fn names_do_not_move_the_cursor() {
        assert_eq!(printable("/a\u{1b}[2J\n\u{9b}é"), "/a\u{fffd}[2J\u{fffd}\u{fffd}é");
    }
}
