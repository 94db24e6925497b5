//! What does the guard's own metrics page say?
//!
//! The names are those that a server of ours has, so that dashboards, alerts and autoscalers need not
//! know which of the two they look at; what only a guard has begins with `highwater_guard_`. A family
//! whose value is not known is left out, rather than made up.

use std::fmt::{self, Display, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::metrics::CONTENT_TYPE;
use highwater::server::{ServerConfig, Shed};
use highwater::{Response, Router, Running, Server, ServerError};
use highwater_core::http1::Limits;

use super::policy::State;
use super::report::Report;

/// How long a client of the page may take to send its request, or to take some of its answer.
const SLOW_MAX: Duration = Duration::from_secs(2);

/// The latest report, for whoever asks.
pub(crate) type Shared = Arc<Mutex<Report>>;

/// Serves `/metrics`, `/scaling` and `/livez` at `listen`, until the answer is dropped.
///
/// # Errors
/// The address cannot be bound.
pub(crate) fn serve(listen: SocketAddr, shared: &Shared) -> Result<Running, ServerError> {
    let page = Arc::clone(shared);
    let scaling = Arc::clone(shared);
    let router = Router::new()
        .get("/metrics", move || {
            Response::from(text(&latest(&page))).with_content_type(CONTENT_TYPE)
        })
        .get("/scaling", move || {
            Response::from(super::line::json(&latest(&scaling)))
                .with_content_type("application/json")
        })
        .get("/livez", || "ok");
    let config = ServerConfig {
        listen,
        metrics: None,
        workers: NonZeroUsize::new(1),
        shed: Some(Shed::None),
        // Whoever asks here sends little and at once; a probe must not have to wait for those who do not.
        limits: Limits {
            header_timeout: SLOW_MAX,
            body_timeout: SLOW_MAX,
            write_timeout: SLOW_MAX,
            body_max: 0,
            output_max: 1,
            ..Limits::default()
        },
        ..ServerConfig::default()
    };
    Server::new(router).config(config).start()
}

fn latest(shared: &Shared) -> Report {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A page in the Prometheus text format.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn gauge(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        self.single(name, "gauge", help, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        self.single(name, "counter", help, value);
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.family(name, kind, help);
            self.put(format_args!("{name} {value}\n"));
        }
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes everything");
    }
}

/// A label's value, escaped as the format demands.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn text(report: &Report) -> String {
    let mut page = Page::default();
    scaling(&mut page, report);
    connections(&mut page, report);
    let labels = [("mechanism", report.mechanism), ("reason", &report.reason)];
    info(
        &mut page,
        "highwater_gate_info",
        "What refuses connections, and why that; always 1.",
        &labels,
    );
    let labels = [("state", report.source.name()), ("detail", &report.source.to_string())];
    info(
        &mut page,
        "highwater_guard_source_info",
        "How it stands with the source; always 1.",
        &labels,
    );
    let is_up = u8::from(matches!(report.source, State::Good(_) | State::Kernel));
    let help = "Whether what moves the limit is known; while it is not, the limit stays.";
    page.gauge("highwater_guard_source_up", help, Some(is_up));
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("limiter", report.limiter)];
    info(&mut page, "highwater_guard_info", "Which guard this is; always 1.", &labels);
    page.0
}

fn scaling(page: &mut Page, report: &Report) {
    let signals = &report.signals;
    let help = "Most connections at once.";
    page.gauge("http_scaling_connection_limit", help, Some(report.limit));
    let help = "Connections refused per second, over the last second.";
    page.gauge("http_scaling_rejection_rate", help, Some(report.rates.refused));
    let help = "Connections refused.";
    // A counter by meaning; its established name lacks the suffix that a declared one needs.
    page.single("http_scaling_total_rejections", "untyped", help, Some(report.counted.refused));
    let help = "Connections over the limit, 0 to 1.";
    page.gauge("http_scaling_saturation_ratio", help, Some(signals.saturation_ratio));
    let help = "Whether another instance is needed: 1 if so.";
    page.gauge("http_scaling_needs_scaleout", help, Some(u8::from(signals.needs_scaleout)));
    let help = "How many more connections the limit leaves room for.";
    page.gauge("http_scaling_connection_headroom", help, Some(signals.headroom));
    let help = "Work offered over work that can be done; not capped at 1.";
    page.gauge("http_scaling_demand_ratio", help, Some(signals.demand_ratio));
}

fn connections(page: &mut Page, report: &Report) {
    let help = "Connections at this moment, but for idle ones if the limit is found.";
    page.gauge("http_connections_active", help, report.in_flight);
    let help = "Connections at this moment for which the limit makes room besides.";
    page.gauge("highwater_guard_connections_idle", help, Some(report.counted.idle));
    let help = "Connections let in.";
    page.counter("http_connections_total", help, Some(report.counted.admitted));
    let name = "http_rejections_total";
    page.family(name, "counter", "Requests and connections turned away.");
    let refused = report.counted.refused;
    page.put(format_args!("{name}{{layer=\"kernel\",reason=\"limit\"}} {refused}\n"));
    let help = "How long requests wait to be read by the server, now.";
    let waited = report.waited.map(|waited| waited.as_secs_f64());
    page.gauge("highwater_guard_queue_delay_seconds", help, waited);
    let help = "Connections closed.";
    page.counter("highwater_guard_connections_closed_total", help, report.counted.completed);
}

fn info(page: &mut Page, name: &str, help: &str, labels: &[(&str, &str)]) {
    page.family(name, "gauge", help);
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    page.put(format_args!("{name}{{{}}} 1\n", labels.join(",")));
}
