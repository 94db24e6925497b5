//! Which metrics does every server have?
//!
//! One function per subject, each writing whole families; the names are a contract with dashboards
//! and autoscalers. [`NAMES`] lists them all, and a test holds the two together.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use highwater_core::time::Instant;

use super::counters::{Endpoint, STATUS_MIN, WorkerMetrics};
use super::exposition::{Kind, Page};
use super::process::Process;
use super::reasons::Row;
use super::sockets::{SocketEnd, Sockets};
use super::tally::Tally;
use super::{
    Completed, DURATION_BOUNDS, HandshakeFailure, Inner, PoolState, Rates, Scaling, Server, Timeout,
};

/// Every family that the server itself writes.
pub(super) const NAMES: [&str; 59] = [
    "http_requests_total",
    "http_requests_by_endpoint",
    "http_requests_per_second",
    "http_request_duration_seconds",
    "http_responses_total",
    "http_endpoint_responses_total",
    "http_rejections_total",
    "http_timeouts_total",
    "http_handler_panics_total",
    "http_bytes_read_total",
    "http_bytes_written_total",
    "http_streams_total",
    "http_stream_resets_total",
    "http_goaways_total",
    "http_connections_total",
    "http_listener_connections_total",
    "http_connections_active",
    "http_connections_in_flight",
    "http_tls_handshakes_total",
    "http_tls_handshake_failures_total",
    "http_websockets_open",
    "http_websocket_messages_total",
    "http_websocket_closes_total",
    "http_body_memory_bytes",
    "highwater_pool_threads",
    "highwater_pool_jobs_waiting",
    "http_goodput_total",
    "http_queue_delay_seconds",
    "http_scaling_connection_limit",
    "http_scaling_connection_headroom",
    "http_scaling_saturation_ratio",
    "http_scaling_demand_ratio",
    "http_scaling_demand_ratio_min",
    "http_scaling_needs_scaleout",
    "http_scaling_calm_seconds",
    "http_scaling_rejection_rate",
    "http_scaling_total_rejections",
    "http_shed_cpu_seconds_total",
    "highwater_refuses",
    "highwater_share_connections_refused_total",
    "highwater_share_accounts",
    "highwater_share_overflow_total",
    "highwater_gate_info",
    "highwater_limiter_info",
    "http_uptime_seconds",
    "highwater_build_info",
    "highwater_transport_info",
    "highwater_transport_workers",
    "highwater_worker_busy_ratio",
    "highwater_worker_turns_total",
    "highwater_worker_events_total",
    "highwater_worker_failures_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "process_threads",
];

/// The whole page.
pub(super) fn write(metrics: &Inner, now: Instant) -> String {
    let mut page = Page::default();
    if let Some(server) = metrics.server.get() {
        let rates = metrics.rates();
        let admission = metrics.admission.get().map(|admission| (admission.0)());
        requests(&mut page, server, &rates);
        super::classes::write(&mut page, server);
        refusals(&mut page, server, &admission.unwrap_or_default());
        panics(&mut page, metrics);
        super::streams::write(&mut page, server);
        connections(&mut page, server);
        handshakes(&mut page, server);
        websockets(&mut page, server);
        let held = metrics.body_memory.get().map_or(0, |held| held.load(Relaxed));
        let help = "Memory held for bodies of requests and messages of WebSockets; --body-memory-max bounds it.";
        page.single("http_body_memory_bytes", help, Kind::Gauge, held);
        let pool = metrics.pool.get().map_or(PoolState::default(), |pool| (pool.0)());
        let help = "Threads for blocking handlers; --pool-threads bounds them.";
        page.single("highwater_pool_threads", help, Kind::Gauge, pool.threads as u64);
        let help = "Blocking handlers that wait for a thread.";
        page.single("highwater_pool_jobs_waiting", help, Kind::Gauge, pool.waiting as u64);
        if let Some(admission) = admission {
            scaling(&mut page, server, &admission);
        }
        let uptime = (now - server.since).as_secs_f64();
        page.single("http_uptime_seconds", "Time since the server began.", Kind::Gauge, uptime);
        workers(&mut page, server, &rates);
        let help =
            "Workers that died: a panic escaped, or their driver failed. The server stops then.";
        let failures = metrics.worker_failures.load(Relaxed);
        page.single("highwater_worker_failures_total", help, Kind::Counter, failures);
    }
    build(&mut page, metrics);
    process(&mut page, &Process::read(&metrics.process_start));
    metrics.registry.write(&mut page);
    page.into_text()
}

impl Server {
    pub(super) fn sum(&self, counter: impl Fn(&WorkerMetrics) -> &Tally) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).sum()
    }

    /// A sum over all workers and all endpoints with one name.
    pub(super) fn sum_endpoints(&self, indices: &[usize], count: impl Fn(&Endpoint) -> u64) -> u64 {
        let of_worker = |worker: &Arc<WorkerMetrics>| -> u64 {
            indices.iter().map(|&index| count(&worker.endpoints()[index])).sum()
        };
        self.workers.iter().map(of_worker).sum()
    }
}

fn requests(page: &mut Page, server: &Server, rates: &Rates) {
    let total: u64 = server.workers.iter().map(|worker| worker.requests()).sum();
    page.single("http_requests_total", "Requests answered.", Kind::Counter, total);
    let help = "Requests answered, by endpoint; not_found counts those that matched none or were \
                refused before they could. Untyped, as its established name lacks _total; \
                http_request_duration_seconds_count is a counter by endpoint.";
    let mut family = page.family("http_requests_by_endpoint", help, Kind::Untyped);
    for (name, indices) in &server.endpoints {
        let count = server.sum_endpoints(indices, |endpoint| endpoint.answers.total());
        family.sample(&[("endpoint", name)], count);
    }
    let help = "Requests answered per second over the last second.";
    page.single("http_requests_per_second", help, Kind::Gauge, rates.requests_per_second);
    durations(page, server);
    let help = "Requests answered within their deadline and without a failure of the server: 2xx to 4xx, \
                refusals not among them.";
    let good = server.sum(|worker| &worker.good);
    page.single("http_goodput_total", help, Kind::Counter, good);
    queue_delay(page, server);
    let mut family =
        page.family("http_responses_total", "Responses, by status code.", Kind::Counter);
    let slots = server.workers.first().map_or(0, |worker| worker.statuses().len());
    for slot in 0..slots {
        let count = server.sum(|worker| &worker.statuses()[slot]);
        if count == 0 {
            continue;
        }
        let code = (slot + 1 < slots).then(|| (slot + usize::from(STATUS_MIN)).to_string());
        family.sample(&[("status", code.as_deref().unwrap_or("other"))], count);
    }
}

fn durations(page: &mut Page, server: &Server) {
    let help = "Time from a request's reception to its answer's hand-over to the kernel.";
    let mut family = page.family("http_request_duration_seconds", help, Kind::Histogram);
    for (name, indices) in &server.endpoints {
        let buckets = bounds().enumerate().map(|(index, bound)| {
            (bound, server.sum_endpoints(indices, |endpoint| endpoint.buckets[index].get()))
        });
        let nanos = server.sum_endpoints(indices, |endpoint| endpoint.nanos.get());
        family.histogram(&[("endpoint", name)], buckets, seconds(nanos));
    }
}

fn queue_delay(page: &mut Page, server: &Server) {
    let help = "Time that requests waited between being ready and being started.";
    let buckets = bounds()
        .enumerate()
        .map(|(index, bound)| (bound, server.sum(|worker| &worker.queue_delay.buckets[index])));
    let nanos = server.sum(|worker| &worker.queue_delay.nanos);
    let mut family = page.family("http_queue_delay_seconds", help, Kind::Histogram);
    family.histogram(&[], buckets, seconds(nanos));
}

/// Upper bounds of the buckets, in seconds.
fn bounds() -> impl Iterator<Item = f64> {
    DURATION_BOUNDS.iter().map(|&nanos| seconds(nanos)).chain([f64::INFINITY])
}

fn refusals(page: &mut Page, server: &Server, scaling: &Scaling) {
    let help = "Work that was refused or delayed, by layer and reason.";
    let mut family = page.family("http_rejections_total", help, Kind::Counter);
    for row in Row::ALL {
        let (layer, reason) = row.labels();
        let count = server.sum(|worker| &worker.rejections[row as usize]);
        family.sample(&[("layer", layer), ("reason", reason)], count);
    }
    for (layer, reason, count) in [
        ("kernel", "reset", scaling.reset),
        ("kernel", "drop", scaling.dropped),
        ("accept", "backlog", scaling.overflowed),
    ] {
        family.sample(&[("layer", layer), ("reason", reason)], count);
    }
    let help =
        "Connections ended and requests refused because they were slow, by what was awaited.";
    let mut family = page.family("http_timeouts_total", help, Kind::Counter);
    for timeout in Timeout::ALL {
        let count = server.sum(|worker| &worker.timeouts[timeout as usize]);
        family.sample(&[("kind", timeout.name())], count);
    }
}

fn panics(page: &mut Page, metrics: &Inner) {
    let help = "Panics caught in handlers and all other code of the application.";
    let count = metrics.panics.get().map_or(0, |panics| panics.load(Relaxed));
    page.single("http_handler_panics_total", help, Kind::Counter, count);
}

fn connections(page: &mut Page, server: &Server) {
    let mut counter = |name, help, count| page.single(name, help, Kind::Counter, count);
    counter("http_bytes_read_total", "Bytes received.", server.sum(|worker| &worker.bytes_read));
    let written = server.sum(|worker| &worker.bytes_written);
    counter("http_bytes_written_total", "Bytes handed to the kernel to send.", written);
    let accepted = server.sum(|worker| &worker.connections);
    counter("http_connections_total", "Connections accepted.", accepted);
    let help = "Connections accepted at each listener.";
    let mut family = page.family("http_listener_connections_total", help, Kind::Counter);
    for (index, address) in server.listeners.get().into_iter().flatten().enumerate() {
        let accepted = server.sum(|worker| &worker.connections_at[index]);
        family.sample(&[("listener", address)], accepted);
    }
    let active = server.sum(|worker| &worker.connections_active);
    page.single("http_connections_active", "Connections open now.", Kind::Gauge, active);
    let help = "Connections with work: accepted, or with a request that is not yet answered.";
    let in_flight = server.sum(|worker| &worker.in_flight);
    page.single("http_connections_in_flight", help, Kind::Gauge, in_flight);
}

fn handshakes(page: &mut Page, server: &Server) {
    let help = "TLS handshakes that were completed, by version and whether a session was resumed.";
    let mut family = page.family("http_tls_handshakes_total", help, Kind::Counter);
    for how in Completed::ALL {
        let (version, kind) = how.names();
        let count = server.sum(|worker| worker.handshakes.completed(how));
        family.sample(&[("version", version), ("kind", kind)], count);
    }
    let help = "TLS handshakes that were not completed, by reason; refused is for load, internal the server's fault, and the rest the client's.";
    let mut family = page.family("http_tls_handshake_failures_total", help, Kind::Counter);
    for why in HandshakeFailure::ALL {
        let count = server.sum(|worker| worker.handshakes.failed(why));
        family.sample(&[("reason", why.name())], count);
    }
}

fn websockets(page: &mut Page, server: &Server) {
    let sum = |of: &dyn Fn(&Sockets) -> u64| -> u64 {
        server.workers.iter().map(|worker| of(&worker.sockets)).sum()
    };
    page.single("http_websockets_open", "WebSockets open now.", Kind::Gauge, sum(&Sockets::open));
    let help = "Messages on WebSockets.";
    let mut family = page.family("http_websocket_messages_total", help, Kind::Counter);
    family.sample(&[("direction", "received")], sum(&|sockets| sockets.received.get()));
    family.sample(&[("direction", "sent")], sum(&|sockets| sockets.sent.get()));
    let help = "WebSockets that have ended, by how.";
    let mut family = page.family("http_websocket_closes_total", help, Kind::Counter);
    for end in SocketEnd::ALL {
        family.sample(&[("reason", end.name())], sum(&|sockets| sockets.ended(end)));
    }
}

/// All refusals because of load, by any layer.
pub(super) fn total_rejections(server: &Server, scaling: &Scaling) -> u64 {
    let by_workers: u64 = server.workers.iter().map(|worker| worker.shed()).sum();
    by_workers + scaling.refused_connections()
}

fn scaling(page: &mut Page, server: &Server, scaling: &Scaling) {
    let signals = &scaling.signals;
    let mut gauge = |name, help, value: f64| page.single(name, help, Kind::Gauge, value);
    let help =
        "Connections that may want the workers' time at once; 1048576 while no queue stands.";
    gauge("http_scaling_connection_limit", help, scaling.limit.into());
    let help = "How many more connections the limit leaves room for.";
    gauge("http_scaling_connection_headroom", help, signals.headroom.into());
    let help = "Used part of the workers' time, or of the limit's places if that is more, 0 to 1.";
    gauge("http_scaling_saturation_ratio", help, signals.saturation_ratio);
    let help = "Work offered over work that can be done, counting every attempt; not capped at 1.";
    gauge("http_scaling_demand_ratio", help, signals.demand_ratio);
    let help = "The demand ratio if every refused client tries three times.";
    gauge("http_scaling_demand_ratio_min", help, signals.demand_ratio_min);
    let help = "1 from when demand exceeded capacity until it has been calm for a minute.";
    gauge("http_scaling_needs_scaleout", help, f64::from(u8::from(signals.needs_scaleout)));
    let help = "Time since the demand ratio was last 0.9 or more; 0 while it is.";
    gauge("http_scaling_calm_seconds", help, signals.calm_seconds);
    let help = "Connections and requests refused per second over the last second.";
    gauge("http_scaling_rejection_rate", help, signals.rejection_rate);
    let help = "Connections and requests refused because of load.";
    let name = "http_scaling_total_rejections";
    page.single(name, help, Kind::Untyped, total_rejections(server, scaling));
    let help = "What is refused while more is asked than can be done: 1 for the unit that is, 0 for the other.";
    let mut family = page.family("highwater_refuses", help, Kind::Gauge);
    for (unit, is_refused) in
        [("connections", !scaling.refuses_requests), ("requests", scaling.refuses_requests)]
    {
        family.sample(&[("unit", unit)], u64::from(is_refused));
    }
    let help = "Connections that were refused before they were accepted, because their source had had its share; among \
                those of http_rejections_total.";
    page.single(
        "highwater_share_connections_refused_total",
        help,
        Kind::Counter,
        scaling.refused_for_share,
    );
    let help = "Clients with an account of their own, while each gets its share of a standing queue; at most 1024 per \
                worker.";
    let accounts = server.sum(|worker| &worker.queue.accounts);
    page.single("highwater_share_accounts", help, Kind::Gauge, accounts);
    let help = "Requests whose clients found no account free, and divided one share with all such clients.";
    let overflow = server.sum(|worker| &worker.queue.overflow);
    page.single("highwater_share_overflow_total", help, Kind::Counter, overflow);
    let help = "CPU time spent on refusing connections and requests: estimated from counts and a cost per kind, \
                which was measured on another machine.";
    let name = "http_shed_cpu_seconds_total";
    page.single(name, help, Kind::Counter, scaling.shed_cpu_seconds);
}

fn workers(page: &mut Page, server: &Server, rates: &Rates) {
    let help = "Share of the last second in which a worker was busy, 0 to 1.";
    let mut family = page.family("highwater_worker_busy_ratio", help, Kind::Gauge);
    for (index, &ratio) in rates.busy_ratios.iter().enumerate() {
        family.sample(&[("worker", &index.to_string())], ratio);
    }
    let mut by_worker = |name, help, counter: fn(&WorkerMetrics) -> &Tally| {
        let mut family = page.family(name, help, Kind::Counter);
        for (index, worker) in server.workers.iter().enumerate() {
            family.sample(&[("worker", &index.to_string())], counter(worker).get());
        }
    };
    by_worker("highwater_worker_turns_total", "Turns of a worker's loop.", |worker| &worker.turns);
    let help = "Events that a worker handled; divided by turns, the events per system call.";
    by_worker("highwater_worker_events_total", help, |worker| &worker.events);
}

fn build(page: &mut Page, metrics: &Inner) {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("arch", std::env::consts::ARCH),
        ("profile", profile),
        ("pgo", pgo()),
    ];
    let help = "The version of Highwater and how it was built; pgo is the id of the compiler's profile. Always 1.";
    page.family("highwater_build_info", help, Kind::Gauge).sample(&labels, 1_u64);
    if let Some(transport) = metrics.transport.get() {
        super::transport::write(page, transport, metrics.server.get());
    }
    if let Some(gate) = metrics.gate.get() {
        let labels = [("mechanism", gate.mechanism.as_str()), ("reason", gate.reason.as_str())];
        let help = "The mechanism that refuses excess work, and why; always 1.";
        page.family("highwater_gate_info", help, Kind::Gauge).sample(&labels, 1_u64);
        let labels = [("limiter", gate.limiter.as_str())];
        let help = "The algorithm that finds the connection limit; always 1.";
        page.family("highwater_limiter_info", help, Kind::Gauge).sample(&labels, 1_u64);
    }
}

/// What stands around the note in a program. `highwater pgo info` looks for it.
const PGO_NOTE: &str = concat!("highwater-pgo=", env!("HIGHWATER_PGO"), ";");

/// `none`, `instrumented`, or the id of the profile that the compiler has used (build.rs).
fn pgo() -> &'static str {
    let value = PGO_NOTE.split_once('=').map_or(PGO_NOTE, |(_, value)| value);
    value.trim_end_matches(';')
}

fn process(page: &mut Page, process: &Process) {
    if let Some(seconds) = process.cpu_seconds {
        let help = "User and system CPU time spent.";
        page.single("process_cpu_seconds_total", help, Kind::Counter, seconds);
    }
    let mut gauge = |name, help, value: Option<u64>| {
        if let Some(value) = value {
            page.single(name, help, Kind::Gauge, value);
        }
    };
    gauge("process_resident_memory_bytes", "Memory in use.", process.resident_bytes);
    gauge("process_virtual_memory_bytes", "Address space in use.", process.virtual_bytes);
    gauge("process_open_fds", "Descriptors open.", process.open_fds);
    gauge("process_max_fds", "Descriptors that may be open.", process.max_fds);
    gauge("process_threads", "Threads of the process.", process.threads);
    if let Some(seconds) = process.start_seconds {
        let help = "When the process started, in seconds since the epoch.";
        page.single("process_start_time_seconds", help, Kind::Gauge, seconds);
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
