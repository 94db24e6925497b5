//! One load of a cell, as arguments of `highwater load`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

use super::network::{Network, Side};
use super::plan::{Cell, Plan, Span, Step};
use crate::load::{self, OnMark, Outcome};

/// A request that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same where waiting is measured.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of client threads, as in `load`.
const THREADS_MAX: usize = 64;
/// Length of one point of a series.
pub(super) const POINT: Duration = Duration::from_millis(100);

/// What is sent, how, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) method: String,
    pub(super) paths: Vec<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
    pub(super) connections: u32,
    pub(super) pipeline: u32,
    pub(super) http2: bool,
    pub(super) streams: u32,
    pub(super) tls: bool,
    pub(super) resume: bool,
    pub(super) ws: bool,
    pub(super) idle: u64,
    pub(super) requests_per_connection: u64,
    pub(super) close: bool,
    /// 0: a closed loop.
    pub(super) rate: f64,
    pub(super) burst: u32,
    pub(super) random: bool,
    /// Whether to send nothing after `duration`, and only wait for answers.
    pub(super) stops_at_end: bool,
    pub(super) deadline: Option<Span>,
    pub(super) timeout: Duration,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    /// Whether to connect from several addresses: one has too few ports for many connections.
    pub(super) many_sources: bool,
    /// Which addresses, by their last parts; `None` for a few.
    pub(super) sources: Option<[u8; 2]>,
}

impl Sending {
    /// The load of a cell without steps.
    pub(super) fn of_cell(plan: &Plan, cell: &Cell) -> Sending {
        Sending {
            method: cell.method.clone(),
            paths: vec![cell.ws.as_ref().unwrap_or(&cell.path).clone()],
            headers: cell.headers.clone(),
            body: cell.request_body(),
            connections: cell.connections,
            pipeline: cell.pipeline,
            http2: cell.http2,
            streams: cell.streams,
            tls: cell.tls,
            resume: cell.resume,
            ws: cell.ws.is_some(),
            idle: cell.idle,
            requests_per_connection: cell.requests_per_connection,
            close: cell.close,
            rate: cell.rate,
            burst: cell.burst,
            random: false,
            // The server counts as refused what this client would send later and not wait for.
            stops_at_end: cell.refuses_nothing,
            deadline: cell.deadline,
            timeout: if cell.refuses_nothing { PATIENCE } else { TIMEOUT },
            warm_up: cell.warm_up(plan).0,
            duration: cell.duration(plan).0,
            many_sources: cell.is_overload(),
            sources: None,
        }
    }

    /// The load of a step for `duration`; `rate` is known by then.
    pub(super) fn of_step(
        plan: &Plan,
        cell: &Cell,
        step: &Step,
        rate: f64,
        duration: Duration,
    ) -> Sending {
        let whole = Sending::of_cell(plan, cell);
        let path = step.path.as_ref().unwrap_or(&cell.path);
        let values = step.values(plan.seed);
        let each = values.iter().map(|value| path.replace("{value}", &value.to_string()));
        Sending {
            paths: if values.is_empty() { vec![path.clone()] } else { each.collect() },
            headers: cell
                .headers
                .iter()
                .chain(&step.headers)
                .map(|(a, b)| (a.clone(), b.clone()))
                .collect(),
            connections: step.connections.unwrap_or(cell.connections),
            close: step.close.unwrap_or(cell.close),
            rate,
            burst: step.burst,
            random: step.random,
            stops_at_end: whole.stops_at_end || step.lasts.is_some(),
            sources: step.sources,
            warm_up: Duration::ZERO,
            duration,
            ..whole
        }
    }

    /// Sends it, from the client's side.
    ///
    /// # Errors
    /// The machinery failed.
    pub(super) fn send(
        &self,
        network: &Network,
        port: u16,
        threads: usize,
        on_mark: OnMark,
    ) -> Result<Outcome, String> {
        /// The arguments of `highwater load`.
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: load::Args,
        }
        let line = self.line(network, SocketAddr::from((network.host(), port)), threads);
        let args = Line::try_parse_from(line).map_err(|error| error.to_string())?.args;
        network.on(Side::Client, || load::generate(&args, on_mark))?
    }

    fn line(&self, network: &Network, address: SocketAddr, threads: usize) -> Vec<String> {
        let threads = threads.min(self.connections as usize).min(THREADS_MAX);
        let span = |duration: Duration| String::from(Span(duration));
        let mut line = vec!["load".to_owned()];
        let scheme = match (self.ws, self.tls) {
            (false, false) => "http",
            (false, true) => "https",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        line.extend(self.paths.iter().map(|path| format!("{scheme}://{address}{path}")));
        line.extend([
            format!("--connections={}", self.connections),
            format!("--threads={threads}"),
            format!("--warmup={}", span(self.warm_up)),
            format!("--duration={}", span(self.duration)),
            format!("--timeout={}", span(self.timeout)),
            format!("--series={}", span(POINT)),
            "--quiet".to_owned(),
        ]);
        if self.ws {
            line.extend(["--ws".to_owned(), format!("--idle={}", self.idle)]);
            line.push(format!("--expect-body={}", self.body));
        } else {
            line.push(format!("--method={}", self.method));
        }
        if self.tls {
            line.push("--insecure".to_owned());
            line.extend((!self.resume).then(|| "--resume=off".to_owned()));
        }
        line.extend(self.headers.iter().map(|(name, value)| format!("--header={name}: {value}")));
        if !self.body.is_empty() {
            line.push(format!("--body={}", self.body));
        }
        if self.rate > 0.0 {
            line.extend([format!("--rate={}", self.rate), format!("--burst={}", self.burst)]);
            line.extend(self.random.then(|| "--arrivals=poisson".to_owned()));
            line.extend(self.stops_at_end.then(|| "--stop-at-end".to_owned()));
        } else if self.pipeline > 1 {
            line.push(format!("--pipeline={}", self.pipeline));
        }
        if self.http2 {
            line.extend(["--http2".to_owned(), format!("--streams={}", self.streams)]);
        }
        if self.close {
            line.push("--close".to_owned());
        } else if self.requests_per_connection > 0 {
            line.push(format!("--requests-per-connection={}", self.requests_per_connection));
        }
        line.extend(self.deadline.map(|deadline| format!("--deadline={}", String::from(deadline))));
        line.extend(
            self.many_sources.then(|| format!("--source={}", network.sources(self.sources))),
        );
        line
    }
}
