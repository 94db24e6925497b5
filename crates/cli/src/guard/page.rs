//! The guard's own metrics page.
//!
//! It uses the names of a Highwater server's metrics, so that dashboards, alerts and autoscalers
//! work with both. Metrics that only a guard has begin with `highwater_guard_`. A family whose
//! value is not known is left out.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::metrics::exposition::{CONTENT_TYPE, Kind, Page};
use highwater::server::{ServerConfig, Shed};
use highwater::{Response, Router, Running, Server, ServerError};
use highwater_core::http::Limits;

use super::policy::State;
use super::report::Report;

/// How long a client of the page may take to send its request, or to take some of its answer.
const SLOW_MAX: Duration = Duration::from_secs(2);

/// The latest report.
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
        listen: vec![listen.into()],
        inherited: false,
        metrics: None,
        workers: NonZeroUsize::new(1),
        shed: Some(Shed::None),
        // Clients of this page send little, and at once. Slow ones must not delay a probe.
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
        "State of the metrics source; always 1.",
        &labels,
    );
    let is_up = matches!(report.source, State::Good(_) | State::Kernel);
    let help = "Whether the guard can measure; if it cannot, the limit stays.";
    page.single("highwater_guard_source_up", help, Kind::Gauge, is_up);
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("limiter", report.limiter)];
    info(&mut page, "highwater_guard_info", "Which guard this is; always 1.", &labels);
    page.into_text()
}

fn scaling(page: &mut Page, report: &Report) {
    let signals = &report.signals;
    let help = "Most connections at once.";
    page.single("http_scaling_connection_limit", help, Kind::Gauge, report.limit);
    let help = "Connections refused per second, over the last second.";
    page.single("http_scaling_rejection_rate", help, Kind::Gauge, report.rates.refused);
    let help = "Connections refused.";
    // A counter, but its established name lacks the suffix that the declaration needs.
    page.single("http_scaling_total_rejections", help, Kind::Untyped, report.counted.refused);
    let help = "Connections over the limit, 0 to 1.";
    page.single("http_scaling_saturation_ratio", help, Kind::Gauge, signals.saturation_ratio);
    let help = "Whether another instance is needed: 1 if so.";
    page.single("http_scaling_needs_scaleout", help, Kind::Gauge, signals.needs_scaleout);
    let help = "How many more connections the limit leaves room for.";
    page.single("http_scaling_connection_headroom", help, Kind::Gauge, signals.headroom);
    let help = "Work offered over work that can be done; not capped at 1.";
    page.single("http_scaling_demand_ratio", help, Kind::Gauge, signals.demand_ratio);
}

fn connections(page: &mut Page, report: &Report) {
    let help = "Connections at this moment, without idle ones if the limit is found.";
    if let Some(in_flight) = report.in_flight {
        page.single("http_connections_active", help, Kind::Gauge, in_flight);
    }
    let help = "Idle connections at this moment, which are allowed beyond the limit.";
    page.single("highwater_guard_connections_idle", help, Kind::Gauge, report.counted.idle);
    let help = "Connections admitted.";
    if let Some(admitted) = report.counted.admitted {
        page.single("http_connections_total", help, Kind::Counter, admitted);
    }
    let help = "Requests and connections refused.";
    page.family("http_rejections_total", help, Kind::Counter)
        .sample(&[("layer", "kernel"), ("reason", "limit")], report.counted.refused);
    let help = "How long requests wait now until the server reads them.";
    if let Some(waited) = report.waited {
        let seconds = waited.as_secs_f64();
        page.single("highwater_guard_queue_delay_seconds", help, Kind::Gauge, seconds);
    }
    let help = "Connections closed.";
    if let Some(completed) = report.counted.completed {
        let name = "highwater_guard_connections_closed_total";
        page.single(name, help, Kind::Counter, completed);
    }
}

fn info(page: &mut Page, name: &str, help: &str, labels: &[(&str, &str)]) {
    page.family(name, help, Kind::Gauge).sample(labels, 1_u64);
}
