//! What does a server's page say at one moment?
//!
//! Pure: text in, numbers out. A page of another server is refused, with the names that it lacks.
//! The names are those of `highwater::metrics`.

use std::collections::HashMap;

use highwater_core::limit::LIMIT_MAX;
use highwater_core::time::Instant;

use super::histogram::Histogram;
use crate::scrape::text::{self, Line, Malformed};

/// What every page of a Highwater server has from the beginning.
pub(crate) const NEEDED: [&str; 5] = [
    "highwater_build_info",
    "http_requests_total",
    "http_goodput_total",
    "http_request_duration_seconds_bucket",
    "http_connections_active",
];

/// Missing names in one message, at most.
const NAMED_MAX: usize = 3;

/// The numbers of one page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// When it was read, by our clock.
    pub(crate) at: Instant,
    pub(crate) version: String,
    /// How long the server has run, in seconds.
    pub(crate) uptime: Option<f64>,
    /// When its process started, in seconds since 1970.
    pub(crate) started: Option<f64>,
    pub(crate) requests: f64,
    pub(crate) good: f64,
    /// By name, in the order of the page.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) queue_delay: Histogram,
    pub(crate) refusals: Vec<Refusal>,
    /// Clients with a share of a standing queue; more than 0 only while a queue stands.
    pub(crate) shares: f64,
    pub(crate) connections: Connections,
    pub(crate) demand_ratio: Option<f64>,
    pub(crate) saturation_ratio: Option<f64>,
    pub(crate) needs_scaleout: Option<bool>,
    /// Since the demand was last near the capacity, in seconds.
    pub(crate) calm: Option<f64>,
    /// Busy share of each worker's time, by the worker's name.
    pub(crate) workers: Vec<(String, f64)>,
    pub(crate) process: Process,
    pub(crate) gate: Option<Choice>,
    pub(crate) limiter: Option<String>,
    pub(crate) transport: Option<Choice>,
}

/// What was counted for an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) requests: f64,
    pub(crate) durations: Histogram,
}

/// What was refused in one layer for one reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) layer: String,
    pub(crate) reason: String,
    pub(crate) total: f64,
}

/// Connections now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Connections {
    pub(crate) open: f64,
    /// Those with work.
    pub(crate) in_flight: Option<f64>,
    /// Most with work at once; `None` while there is no limit.
    pub(crate) limit: Option<f64>,
}

/// What the process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) memory_bytes: Option<f64>,
    pub(crate) descriptors: Option<f64>,
    pub(crate) descriptors_max: Option<f64>,
}

/// Whether a server needs another instance beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Need {
    None,
    Now,
    /// It did, this many seconds ago; its flag stays up for a while.
    Past(Option<f64>),
}

/// A demand from which on a raised flag is about the present. Servers compare with it as well.
const PRESSING: f64 = 0.9;

/// Something the server chose, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Why a text is not a page of a Highwater server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It is not a page of metrics at all.
    Malformed(Malformed),
    /// It lacks metrics that every server has.
    Lacks(String),
}

impl std::fmt::Display for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stranger::Malformed(malformed) => write!(f, "not a page of metrics: {malformed}"),
            Stranger::Lacks(what) => write!(f, "not a Highwater server: {what}"),
        }
    }
}

impl Sample {
    /// Reads a page that came at `at`.
    ///
    /// # Errors
    /// The text is not a page of metrics, or it is one of another server.
    pub(crate) fn read(page: &str, at: Instant) -> Result<Sample, Stranger> {
        let mut reading = Reading::default();
        reading.sample.at = at;
        let mut samples = 0_usize;
        for line in text::lines(page) {
            reading.take(&line.map_err(Stranger::Malformed)?);
            samples += 1;
        }
        let lacking: Vec<&str> =
            NEEDED.iter().zip(reading.has).filter(|(_, has)| !has).map(|(name, _)| *name).collect();
        if lacking.is_empty() {
            return Ok(reading.sample);
        }
        let more = match lacking.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = lacking[..lacking.len().min(NAMED_MAX)].join(", ");
        Err(Stranger::Lacks(format!("its page has {samples} samples, but no {names}{more}")))
    }

    /// Whether another instance is needed, as of this moment; `None` if the page does not say.
    pub(crate) fn need(&self) -> Option<Need> {
        let is_now = match self.calm {
            Some(seconds) => seconds == 0.0,
            None => self.demand_ratio.is_none_or(|ratio| ratio >= PRESSING),
        };
        Some(match self.needs_scaleout? {
            false => Need::None,
            true if is_now => Need::Now,
            true => Need::Past(self.calm),
        })
    }

    /// How long requests took, of all endpoints.
    pub(crate) fn durations(&self) -> Histogram {
        let all = self.endpoints.iter();
        all.fold(Histogram::default(), |sum, endpoint| sum + &endpoint.durations)
    }
}

/// A page that is being read.
#[derive(Default)]
struct Reading {
    sample: Sample,
    has: [bool; NEEDED.len()],
    /// The place of each endpoint.
    places: HashMap<String, usize>,
}

impl Reading {
    fn take(&mut self, line: &Line<'_>) {
        if let Some(at) = NEEDED.iter().position(|name| *name == line.name) {
            self.has[at] = true;
        }
        let (value, label) = (line.value, |name| line.label(name).into_owned());
        let sample = &mut self.sample;
        match line.name {
            "http_requests_total" => sample.requests = value,
            "http_goodput_total" => sample.good = value,
            "http_requests_by_endpoint" => self.endpoint(label("endpoint")).requests = value,
            "http_request_duration_seconds_bucket" => {
                if let Some(bound) = bound(line) {
                    self.endpoint(label("endpoint")).durations.push(bound, value);
                }
            }
            "http_queue_delay_seconds_bucket" => {
                if let Some(bound) = bound(line) {
                    sample.queue_delay.push(bound, value);
                }
            }
            "http_rejections_total" => {
                let (layer, reason) = (label("layer"), label("reason"));
                sample.refusals.push(Refusal { layer, reason, total: value });
            }
            "highwater_worker_busy_ratio" => sample.workers.push((label("worker"), value)),
            "highwater_build_info" => sample.version = label("version"),
            "highwater_gate_info" => {
                sample.gate = Some(Choice { name: label("mechanism"), reason: label("reason") });
            }
            "highwater_transport_info" => {
                let (name, reason) = (label("transport"), label("reason"));
                sample.transport = Some(Choice { name, reason });
            }
            "highwater_limiter_info" => sample.limiter = Some(label("limiter")),
            name => self.gauge(name, value),
        }
    }

    fn gauge(&mut self, name: &str, value: f64) {
        let sample = &mut self.sample;
        let some = Some(value).filter(|value| value.is_finite());
        match name {
            "http_uptime_seconds" => sample.uptime = some,
            "http_connections_active" => sample.connections.open = value,
            "http_connections_in_flight" => sample.connections.in_flight = some,
            "http_scaling_connection_limit" => {
                sample.connections.limit = some.filter(|limit| *limit < f64::from(LIMIT_MAX));
            }
            "highwater_share_accounts" => sample.shares = value,
            "http_scaling_demand_ratio" => sample.demand_ratio = some,
            "http_scaling_calm_seconds" => sample.calm = some,
            "http_scaling_saturation_ratio" => sample.saturation_ratio = some,
            "http_scaling_needs_scaleout" => {
                sample.needs_scaleout = some.map(|value| value != 0.0);
            }
            "process_cpu_seconds_total" => sample.process.cpu_seconds = some,
            "process_resident_memory_bytes" => sample.process.memory_bytes = some,
            "process_open_fds" => sample.process.descriptors = some,
            "process_max_fds" => sample.process.descriptors_max = some,
            "process_start_time_seconds" => sample.started = some,
            _ => {}
        }
    }

    fn endpoint(&mut self, name: String) -> &mut Endpoint {
        let endpoints = &mut self.sample.endpoints;
        let place = *self.places.entry(name).or_insert_with_key(|name| {
            endpoints.push(Endpoint { name: name.clone(), ..Endpoint::default() });
            endpoints.len() - 1
        });
        &mut endpoints[place]
    }
}

/// The upper bound of a bucket.
fn bound(line: &Line<'_>) -> Option<f64> {
    line.label("le").parse().ok().filter(|bound: &f64| !bound.is_nan())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use highwater::metrics::Metrics;
    use highwater::{Router, Server, ServerConfig};

    use super::*;

    /// The page of a server that runs, and has just begun.
    pub(crate) fn page() -> String {
        let metrics = Metrics::new();
        let config = ServerConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            metrics: None,
            workers: NonZeroUsize::new(2),
            ..ServerConfig::default()
        };
        let router = Router::new().get("/{id}", || "one").get("/\"<b>", || "two");
        let server = Server::new(router).metrics(&metrics).config(config).start();
        let _server = server.unwrap_or_else(|error| panic!("{error}"));
        metrics.page()
    }

    /// Purpose: `top` asks for the names that a server exposes: every field is found on
    /// the page of a real one.
    #[test]
    fn a_servers_page_is_understood() {
        let at = Instant::ZERO + Duration::from_secs(5);
        let sample = Sample::read(&page(), at).expect("our own page");
        assert_eq!(sample.at, at);
        assert_eq!(sample.version, env!("CARGO_PKG_VERSION"));
        assert_eq!((sample.requests, sample.good), (0.0, 0.0));
        let names: Vec<&str> = sample.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
        assert_eq!(names, ["/{id}", "/\"<b>", "not_found"]);
        assert!(sample.endpoints.iter().all(|endpoint| endpoint.durations != Histogram::default()));
        assert_ne!(sample.queue_delay, Histogram::default());
        assert!(sample.refusals.iter().any(|refusal| refusal.layer == "kernel"));
        assert_eq!(sample.connections.limit, None);
        assert_eq!(sample.connections.in_flight, Some(0.0));
        assert_eq!(sample.needs_scaleout, Some(false));
        assert!(sample.demand_ratio.is_some() && sample.saturation_ratio.is_some());
        assert!(sample.calm.is_some() && sample.shares == 0.0);
        assert!(sample.uptime.is_some() && sample.started.is_some());
        let Process { cpu_seconds, memory_bytes, descriptors, descriptors_max } = sample.process;
        assert!(cpu_seconds.is_some() && memory_bytes > Some(0.0));
        assert!(descriptors > Some(0.0) && descriptors_max > descriptors);
        for choice in [&sample.gate, &sample.transport] {
            let choice = choice.as_ref().expect("it was chosen");
            assert!(!choice.name.is_empty() && !choice.reason.is_empty(), "{choice:?}");
        }
        assert!(sample.limiter.is_some());
    }

    /// Purpose: pointed at another exporter, or at a web page, `top` says what is missing there.
    #[test]
    fn a_strange_page_is_refused() {
        let read = |page: &str| Sample::read(page, Instant::ZERO).expect_err(page).to_string();
        assert_eq!(
            read("up 1\nhttp_requests_total 7\n"),
            "not a Highwater server: its page has 2 samples, but no highwater_build_info, \
             http_goodput_total, http_request_duration_seconds_bucket and 1 more"
        );
        let text = read("<!DOCTYPE html>");
        assert!(text.starts_with("not a page of metrics: line 1 "), "{text}");
        let page = page();
        for name in NEEDED {
            let without: Vec<&str> = page.lines().filter(|line| !line.contains(name)).collect();
            assert!(read(&without.join("\n")).ends_with(&format!("but no {name}")), "{name}");
        }
    }

    /// Purpose: a limit below the largest possible one is a limit.
    #[test]
    fn limits_are_told_from_none() {
        let begun = page();
        for (limit, expected) in [(1, Some(1.0)), (1_048_575, Some(1_048_575.0)), (1 << 20, None)] {
            let page = format!("{begun}http_scaling_connection_limit {limit}\n");
            let sample = Sample::read(&page, Instant::ZERO).expect("our own page");
            assert_eq!(sample.connections.limit, expected);
        }
    }
}
