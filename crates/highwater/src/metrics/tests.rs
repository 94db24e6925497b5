//! The whole page: against a parser of its own, and against Prometheus's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use highwater_core::http::Reject;

use super::*;

/// A registry in which everything has happened at least once.
fn busy_server() -> Metrics {
    let metrics = Metrics::new();
    metrics.begin(&["/search", "/users/{id}", "/users/{id}", "a \"quoted\\\" name\n"], 2);
    metrics.transport("epoll", "io_uring: not permitted (EPERM)");
    metrics.gate("accept", "bpf: not permitted (EPERM)", "gradient");
    metrics.admission(|| Scaling {
        signals: Signals {
            demand_ratio: 2.5,
            demand_ratio_min: 1.5,
            needs_scaleout: true,
            calm_seconds: 12.5,
            saturation_ratio: 0.75,
            headroom: 4,
            rejection_rate: 150.5,
        },
        limit: 16,
        in_flight: 12,
        reset: 100,
        dropped: 20,
        overflowed: 3,
        shed_cpu_seconds: 0.25,
        refuses_requests: true,
        refused_for_share: 0,
    });
    for index in 0..2 {
        let worker = metrics.worker(index);
        worker.runs_here();
        worker.serves_over("epoll");
        worker.connections.add(3);
        worker.connections_active.set(2);
        worker.bytes_read.add(100);
        worker.bytes_written.add(1000);
        let answers = [(0, 200), (1, 200), (2, 201)];
        worker.answered(&answers.map(|(endpoint, status)| (endpoint, status.into())), 60_000);
        worker.request(u16::MAX, 404);
        worker.duration(u16::MAX, 300_000);
        worker.reject(Reject::UriTooLong);
        worker.rejected(Rejection::AcceptDescriptors);
        worker.rejected(Rejection::QueueDelay);
        worker.good.add(4);
        worker.queue_delay.record(2_000_000, 3);
        worker.in_flight.set(6);
        worker.set_load(6);
        worker.timeout(Timeout::Idle);
        worker.turn(Duration::from_micros(80), 6);
    }
    metrics.counter("http_cache_hits", "Cache hits.").expect("a fresh name").add(5);
    metrics.gauge_fn("http_store_size", "Rows.", &[], || 1e4).expect("a fresh name");
    metrics
}

/// One sample as parsed: name and labels.
type Key = (String, BTreeMap<String, String>);

/// What the parser knows of a page: kinds by family, values by sample.
#[derive(Default)]
struct Parsed {
    kinds: BTreeMap<String, String>,
    values: BTreeMap<Key, f64>,
}

impl Parsed {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let key = (name.to_owned(), labels);
        *self.values.get(&key).unwrap_or_else(|| panic!("{key:?} is not on the page"))
    }
}

/// Reads a page as strictly as the format's documentation allows.
fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut family = String::new();
    let mut helped = BTreeSet::new();
    assert!(text.ends_with('\n'), "the last line is ended");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help text");
            assert!(!text.is_empty() && helped.insert(name.to_owned()), "{line}: once per family");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert!(helped.contains(name), "{line}: HELP comes first");
            assert!(parsed.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            family = name.to_owned();
        } else {
            let (key, value) = parse_sample(line);
            let suffix = key.0.strip_prefix(&family).unwrap_or_else(|| panic!("{line}: astray"));
            let allowed: &[&str] = match parsed.kinds[&family].as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            assert!(parsed.values.insert(key, value).is_none(), "{line}: twice");
        }
    }
    parsed
}

fn parse_sample(line: &str) -> (Key, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = match value {
        "+Inf" => f64::INFINITY,
        other => other.parse().expect("a number"),
    };
    let Some((name, labels)) = series.split_once('{') else {
        return ((series.to_owned(), BTreeMap::new()), value);
    };
    let mut rest = labels.strip_suffix('}').expect("a closing brace");
    let mut parsed = BTreeMap::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").expect("a quoted value");
        let mut content = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next().expect("a closing quotation mark") {
                (at, '"') => break at + 1,
                (_, '\\') => content.push(match characters.next().expect("an escape").1 {
                    'n' => '\n',
                    other @ ('"' | '\\') => other,
                    other => panic!("{line}: \\{other} is no escape"),
                }),
                (_, other) => content.push(other),
            }
        };
        assert!(parsed.insert(label.to_owned(), content).is_none(), "{line}");
        rest = &quoted[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    ((name.to_owned(), parsed), value)
}

/// Purpose: the numbers on the page are the counted ones, summed over workers; endpoints with one
/// name make one series.
#[test]
fn the_page_says_what_was_counted() {
    let page = parse(&busy_server().page());
    assert_eq!(page.value("http_requests_total", &[]), 8.0);
    assert_eq!(page.value("http_requests_by_endpoint", &[("endpoint", "/search")]), 2.0);
    assert_eq!(page.value("http_requests_by_endpoint", &[("endpoint", "/users/{id}")]), 4.0);
    assert_eq!(page.value("http_requests_by_endpoint", &[("endpoint", "not_found")]), 2.0);
    let odd = [("endpoint", "a \"quoted\\\" name\n")];
    assert_eq!(page.value("http_requests_by_endpoint", &odd), 0.0);
    assert_eq!(page.value("http_responses_total", &[("status", "200")]), 4.0);
    assert_eq!(page.value("http_responses_total", &[("status", "404")]), 2.0);
    let of = |route, status| [("method", "GET"), ("route", route), ("status", status)];
    assert_eq!(page.value("http_endpoint_responses_total", &of("/users/{id}", "2xx")), 4.0);
    assert_eq!(page.value("http_endpoint_responses_total", &of("not_found", "4xx")), 2.0);
    assert_eq!(page.value("http_bytes_read_total", &[]), 200.0);
    assert_eq!(page.value("http_bytes_written_total", &[]), 2000.0);
    assert_eq!(page.value("http_connections_total", &[]), 6.0);
    assert_eq!(page.value("http_connections_active", &[]), 4.0);
    assert_eq!(page.value("http_timeouts_total", &[("kind", "idle")]), 2.0);
    let labels = [("layer", "request"), ("reason", "uri_too_long")];
    assert_eq!(page.value("http_rejections_total", &labels), 2.0);
    assert_eq!(page.value("highwater_worker_events_total", &[("worker", "1")]), 6.0);
    assert_eq!(page.value("http_cache_hits", &[]), 5.0);
    assert_eq!(page.value("http_store_size", &[]), 10_000.0);
    let labels = [("transport", "epoll"), ("reason", "io_uring: not permitted (EPERM)")];
    assert_eq!(page.value("highwater_transport_info", &labels), 1.0);
    assert_eq!(page.value("highwater_transport_workers", &[("transport", "epoll")]), 2.0);

    let users = ("endpoint", "/users/{id}");
    let bucket = |le| page.value("http_request_duration_seconds_bucket", &[users, ("le", le)]);
    assert_eq!(bucket("0.00005"), 0.0);
    assert_eq!(bucket("0.0001"), 4.0);
    assert_eq!(bucket("+Inf"), 4.0);
    assert_eq!(page.value("http_request_duration_seconds_count", &[users]), 4.0);
    assert_eq!(page.value("http_request_duration_seconds_sum", &[users]), 0.000_24);
}

/// Purpose: if a worker had to take another transport than the one chosen, the page counts it there, and the reason of
/// the choice names it.
#[test]
fn a_worker_over_another_transport_counts_there() {
    let metrics = Metrics::new();
    metrics.begin(&["/"], 3);
    metrics.transport("uring", "io_uring works here");
    for (index, transport) in ["uring", "epoll", "uring"].into_iter().enumerate() {
        metrics.worker(index).serves_over(transport);
    }
    let page = parse(&metrics.page());
    let workers =
        |transport| page.value("highwater_transport_workers", &[("transport", transport)]);
    assert_eq!((workers("uring"), workers("epoll")), (2.0, 1.0));
    let reason = "io_uring works here; 1 of 3 workers serve over epoll, for want of memory";
    let labels = [("transport", "uring"), ("reason", reason)];
    assert_eq!(page.value("highwater_transport_info", &labels), 1.0);
}

/// Purpose: the metrics that autoscalers and dashboards use show the figures of admission, and
/// refusals are summed over workers, listener and kernel. A malformed request does not count among
/// them, because no further machine would have served it.
#[test]
fn the_page_says_what_admission_says() {
    let metrics = busy_server();
    let page = parse(&metrics.page());
    for (name, value) in [
        ("http_scaling_connection_limit", 16.0),
        ("http_scaling_connection_headroom", 4.0),
        ("http_scaling_saturation_ratio", 0.75),
        ("http_scaling_demand_ratio", 2.5),
        ("http_scaling_demand_ratio_min", 1.5),
        ("http_scaling_needs_scaleout", 1.0),
        ("http_scaling_calm_seconds", 12.5),
        ("http_scaling_rejection_rate", 150.5),
        ("http_scaling_total_rejections", 125.0),
        ("http_shed_cpu_seconds_total", 0.25),
        ("http_goodput_total", 8.0),
        ("http_connections_in_flight", 12.0),
        ("http_queue_delay_seconds_count", 6.0),
        ("http_queue_delay_seconds_sum", 0.012),
    ] {
        assert_eq!(page.value(name, &[]), value, "{name}");
    }
    for (layer, reason, count) in [
        ("kernel", "reset", 100.0),
        ("kernel", "drop", 20.0),
        ("accept", "backlog", 3.0),
        ("queue", "delay", 2.0),
    ] {
        let labels = [("layer", layer), ("reason", reason)];
        assert_eq!(page.value("http_rejections_total", &labels), count);
    }
    let bucket = |le| page.value("http_queue_delay_seconds_bucket", &[("le", le)]);
    assert_eq!((bucket("0.001"), bucket("0.0025")), (0.0, 6.0));
    let refuses = ["connections", "requests"];
    let refuses = refuses.map(|unit| page.value("highwater_refuses", &[("unit", unit)]));
    assert_eq!(refuses, [0.0, 1.0]);
    let labels = [("mechanism", "accept"), ("reason", "bpf: not permitted (EPERM)")];
    assert_eq!(page.value("highwater_gate_info", &labels), 1.0);
    assert_eq!(page.value("highwater_limiter_info", &[("limiter", "gradient")]), 1.0);
    let json = metrics.scaling().expect("a server admits");
    assert!(
        json.starts_with("{\"demand_ratio\":2.5,") && json.contains("rejections\":125,"),
        "{json}"
    );
    assert_eq!(Metrics::new().scaling(), None);
}

/// Purpose: the list of the server's own names is complete, so that no application's metric can
/// collide with one; and every one of them appears.
#[test]
fn the_list_of_names_is_complete() {
    let page = parse(&busy_server().page());
    let ours: BTreeSet<&str> = families::NAMES.into_iter().collect();
    let written: BTreeSet<&str> = page.kinds.keys().map(String::as_str).collect();
    let applications = BTreeSet::from(["http_cache_hits", "http_store_size"]);
    assert_eq!(written, &ours | &applications);
}

/// Purpose: two pages of an idle server differ only in times, so that a diff shows what happened.
#[test]
fn the_order_is_deterministic() {
    let metrics = busy_server();
    let names = |page: String| -> Vec<String> {
        page.lines().map(|line| line.rsplit_once(' ').expect("words").0.to_owned()).collect()
    };
    assert_eq!(names(metrics.page()), names(metrics.page()));
}

/// Purpose: rates come from the sampler's readings, so that scrapes, however many, change nothing.
#[test]
fn scrapes_do_not_disturb_the_rate() {
    let metrics = Metrics::new();
    metrics.begin(&["/"], 1);
    let worker = metrics.worker(0);
    let origin = metrics.now();
    let at = |millis| origin + Duration::from_millis(millis);
    for step in 1..=8 {
        for _ in 0..50 {
            worker.request(0, 200);
        }
        worker.turn(Duration::from_millis(125), 50);
        metrics.sample(at(step * 250));
        for _ in 0..3 {
            metrics.page();
        }
    }
    let page = parse(&metrics.page());
    assert_eq!(page.value("http_requests_per_second", &[]), 200.0);
    assert_eq!(page.value("highwater_worker_busy_ratio", &[("worker", "0")]), 0.5);
    for step in 9..=13 {
        metrics.sample(at(step * 250));
    }
    assert_eq!(parse(&metrics.page()).value("http_requests_per_second", &[]), 0.0);
}

/// Purpose: the sampler's thread ends when its owner drops it.
#[test]
fn the_sampler_ends_when_dropped() {
    let metrics = busy_server();
    let sampler = metrics.sampler().expect("a thread");
    drop(sampler);
    assert_eq!(Arc::strong_count(&metrics.0), 1, "the thread held the other");
}

/// Purpose: there is a page without a server as well: for a tool, or before the server begins.
#[test]
fn a_registry_without_a_server_has_a_page() {
    let page = parse(&Metrics::new().page());
    assert_eq!(page.kinds.get("highwater_build_info").map(String::as_str), Some("gauge"));
    assert!(!page.kinds.contains_key("http_requests_total"));
}

/// Purpose: Prometheus's own linter finds nothing to say. Needs `promtool`, from Debian's package
/// `prometheus`.
#[test]
fn promtool_accepts_the_page() {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing: install Debian's package prometheus (make test does)");
    let page = busy_server().page();
    promtool.stdin.take().expect("piped").write_all(page.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let output_text =
        String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && output_text.trim().is_empty(),
        "promtool says:\n{output_text}\n{page}"
    );
}
