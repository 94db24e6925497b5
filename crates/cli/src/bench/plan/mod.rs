//! A plan says what to measure: servers or programs, cells (one kind of request each), and how often.
//!
//! A plan is TOML. It is read ([`Plan::read`]) and checked as a whole before anything is started; a
//! mistake is refused with the file, the line, the field, and what to write instead. It never starts anything.

mod check;
mod check_overload;
mod check_program;
mod check_protocols;
mod cpus;
mod draft;
mod findings;
mod form;
mod mend;
mod overload;
mod program;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_form;
#[cfg(test)]
mod tests_program;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use draft::Draft;

pub(crate) use cpus::{Cpus, parse as parse_cpus, show as show_cpus};
pub(crate) use overload::{Network, Quick, Step};
pub(crate) use program::{Contender, Figure, Metric, Program, Service, Unit, put, words, words_in};

use crate::load::parse_duration;

/// Bytes of a plan, at most.
const PLAN_SIZE_MAX: u64 = 1024 * 1024;

/// The last parts of the addresses that clients may have.
pub(crate) const ADDRESSES: std::ops::RangeInclusive<u8> = 2..=120;

/// A plan whose every value is within its range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) name: String,
    /// How often each cell of each server is measured, and how many pairs the A/A run has.
    pub(crate) rounds: u32,
    pub(crate) warm_up: Span,
    pub(crate) duration: Span,
    /// How long a server may take until it answers `ready`.
    pub(crate) ready_within: Span,
    /// As written; `None`: chosen automatically.
    pub(crate) server_cpus: Option<String>,
    pub(crate) client_cpus: Option<String>,
    /// Seed of the order within rounds.
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) network: Network,
    /// What `--quick` changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quick: Option<Quick>,
    /// Whether both sides have all of these CPUs.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(crate) shared_cpus: bool,
    /// The metric of claims; `None`: the contenders' cost of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metric: Option<Metric>,
    /// Processes whose CPU time rows show: by name, a text in their command lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parts: BTreeMap<String, String>,
    #[serde(default, rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<Service>,
    #[serde(rename = "server")]
    pub(crate) servers: Vec<Server>,
    /// If there are any, they are compared, and servers only run meanwhile.
    #[serde(default, rename = "program", skip_serializing_if = "Vec::is_empty")]
    pub(crate) programs: Vec<Program>,
    #[serde(rename = "cell")]
    pub(crate) cells: Vec<Cell>,
}

/// The word for a server's port that speaks TLS.
pub(crate) const TLS_PORT: &str = "{tls_port}";

/// How a server is started. `{host}`, `{port}` and `{metrics}`, a second port, in `command` and `env` are replaced, and so are
/// `{tls_port}`, a port for TLS, and `{tls_cert}` and `{tls_key}`, files in PEM that are made for it; PORT and WORKERS are in
/// its environment in any case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The measured program, if `command` is a shell that prepares something and then executes it: it must exist, and
    /// records name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default = "one")]
    pub(crate) workers: u32,
    /// A path that is requested until it answers 2xx.
    pub(crate) ready: String,
    /// For servers whose port is fixed; 0: a free port.
    #[serde(default)]
    pub(crate) port: u16,
    /// Its answer to every request, with `status`, instead of the cell's expected answer: for a bare loop that reads no
    /// request, and for a handler that does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<String>,
    /// Goes with `expect`.
    #[serde(default = "ok")]
    pub(crate) status: u16,
}

impl Server {
    /// The name of the program that is measured.
    pub(crate) fn measured_program(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.command[0])
    }
}

/// One kind of request, the answer it must get to the byte, and how it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cell {
    pub(crate) name: String,
    #[serde(default = "get")]
    pub(crate) method: String,
    /// Empty only in cells without a server.
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) body: String,
    /// How often `body` is repeated in the body.
    #[serde(default = "one")]
    pub(crate) body_repeat: u32,
    #[serde(default = "ok")]
    pub(crate) status: u16,
    /// `None` only in a plan of programs: answers are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<String>,
    /// How often `expect` is repeated in the answer.
    #[serde(default = "one")]
    pub(crate) expect_repeat: u32,
    /// A placeholder in `expect` for any bytes, or none: for ids and times, which differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) any: Option<char>,
    #[serde(default = "usual_connections")]
    pub(crate) connections: u32,
    #[serde(default = "one")]
    pub(crate) pipeline: u32,
    /// The load is HTTP/2 by prior knowledge. Answers are compared over HTTP/1.1, on the same port.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(crate) http2: bool,
    /// HTTP/2: requests on a connection at a time.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) streams: u32,
    /// The load is TLS, on the server's `{tls_port}`; its certificate is not verified. Answers are compared in plain text.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(crate) tls: bool,
    /// TLS with `close`: whether later connections resume the sessions of earlier ones.
    #[serde(default = "yes", skip_serializing_if = "is")]
    pub(crate) resume: bool,
    /// The load is `body` as messages of a WebSocket at this path, each of which is echoed. Answers are compared at `path`,
    /// without a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ws: Option<String>,
    /// WebSockets that are held open besides, on which nothing is said.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) idle: u64,
    #[serde(default)]
    pub(crate) close: bool,
    /// Requests per second; 0: a closed loop.
    #[serde(default)]
    pub(crate) rate: f64,
    /// With a rate: the number of requests at one instant.
    #[serde(default = "one")]
    pub(crate) burst: u32,
    /// Requests that are sent once before, in order.
    #[serde(default)]
    pub(crate) setup: Vec<Setup>,
    /// The servers or programs that take part; empty: all of them.
    #[serde(default, alias = "programs")]
    pub(crate) servers: Vec<String>,
    /// The server that runs while programs do, unless they have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Further words for the commands of programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) variables: BTreeMap<String, String>,
    /// Whether it has an A/A run, if it can have one.
    #[serde(default = "yes", skip_serializing_if = "is")]
    pub(crate) aa: bool,
    /// Further words of the servers' commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) flags: Vec<String>,
    /// Maximum number of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rounds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warm_up: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration: Option<Span>,
    /// The cost is that of the server's CPUs, including all of the kernel's work there.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(crate) whole_cpu: bool,
    /// Answers that take longer are not goodput, and the client gives up on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Span>,
    /// The rate, in capacities of the server, which are measured before and after.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) load: f64,
    /// Measures the cost of a refusal: a request of this path takes the only place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// Every request must be answered with 2xx, or the row is void.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(crate) refuses_nothing: bool,
    /// Requests on a connection; 0: any number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) requests_per_connection: u64,
    /// Metrics of the server that are sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<String>,
    /// The best of these servers is the mark for each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) best_of: Vec<String>,
    #[serde(default, rename = "step", skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<Step>,
}

/// A request that prepares a server for a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setup {
    #[serde(default = "post")]
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) body: String,
    #[serde(default = "ok")]
    pub(crate) status: u16,
}

impl Cell {
    /// The body of its request.
    pub(crate) fn request_body(&self) -> String {
        self.body.repeat(self.body_repeat as usize)
    }

    /// The status and the content that `server` must answer with, as far as [`Cell::is_expected`] compares it.
    pub(crate) fn expected(&self, server: &Server) -> (u16, Vec<u8>) {
        match &server.expect {
            Some(always) => (server.status, always.clone().into_bytes()),
            None => {
                let expect = self.expect.as_deref().unwrap_or_default();
                (self.status, expect.repeat(self.expect_repeat as usize).into_bytes())
            }
        }
    }

    /// Whether `content` is `expected`, to the byte; between the pieces that `any` separates, it may be anything.
    pub(crate) fn is_expected(any: Option<u8>, expected: &[u8], content: &[u8]) -> bool {
        let mut pieces = expected.split(|byte| Some(*byte) == any);
        let first = pieces.next().unwrap_or_default();
        let Some(last) = pieces.next_back() else { return expected == content };
        let between = content.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
        let Some(mut rest) = between else { return false };
        // The earliest place of a piece leaves the most for those after it.
        pieces.filter(|piece| !piece.is_empty()).all(|piece| {
            let at = rest.windows(piece.len()).position(|window| window == piece);
            at.inspect(|at| rest = &rest[at + piece.len()..]).is_some()
        })
    }

    /// Whether the server or program of this name is measured in it.
    pub(crate) fn is_for(&self, server: &str) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|name| name == server)
    }
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

fn yes() -> bool {
    true
}

fn is(value: &bool) -> bool {
    *value
}

fn is_not(value: &bool) -> bool {
    !value
}

fn is_none(value: &f64) -> bool {
    *value == 0.0
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn ok() -> u16 {
    200
}

fn get() -> String {
    "GET".to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

/// Enough to reach the peak; more would hide it behind queueing.
fn usual_connections() -> u32 {
    64
}

/// A span of time, written as `300ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        parse_duration(&text).map(Span)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        let micros = span.0.as_micros();
        match micros % 1000 {
            0 => format!("{}ms", micros / 1000),
            _ => format!("{micros}us"),
        }
    }
}

fn usual_rounds() -> u32 {
    6
}

fn usual_warm_up() -> Span {
    Span(Duration::from_millis(300))
}

fn usual_duration() -> Span {
    Span(Duration::from_secs(1))
}

fn usual_ready_within() -> Span {
    Span(Duration::from_secs(20))
}

fn usual_seed() -> u64 {
    1
}

/// Why a plan is refused, with the position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// From 1.
    line: usize,
    what: String,
}

impl Plan {
    /// Reads and checks the plan in `path`.
    ///
    /// # Errors
    /// One line per problem, with file, line, field and remedy.
    pub(crate) fn read(path: &Path) -> Result<Plan, String> {
        let missing = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => format!(
                "{}: there is no such plan; Highwater's own are bench/plans/*.toml of its sources, and \
                 docs/benchmarks.md says how to write one",
                path.display()
            ),
            _ => format!("{}: {error}", path.display()),
        };
        let size = path.metadata().map_err(missing)?.len();
        if size > PLAN_SIZE_MAX {
            return Err(format!("{}: {size} bytes; a plan has at most 1 MiB", path.display()));
        }
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Plan::parse(&text).map_err(|refused| {
            let lines: Vec<String> = refused
                .iter()
                .map(|refused| format!("{}:{}: {}", path.display(), refused.line, refused.what))
                .collect();
            lines.join("\n")
        })
    }

    /// Reads and checks a plan.
    ///
    /// # Errors
    /// All problems, by lines.
    pub(crate) fn parse(text: &str) -> Result<Plan, Vec<Refused>> {
        let draft = form::read(text)?;
        Ok(Plan {
            name: draft.name,
            rounds: draft.rounds,
            warm_up: draft.warm_up,
            duration: draft.duration,
            ready_within: draft.ready_within,
            server_cpus: draft.server_cpus,
            client_cpus: draft.client_cpus,
            seed: draft.seed,
            network: draft.network,
            quick: draft.quick,
            shared_cpus: draft.shared_cpus,
            metric: draft.metric,
            parts: draft.parts,
            services: draft.service.into_iter().map(Spanned::into_inner).collect(),
            programs: draft.program.into_iter().map(Spanned::into_inner).collect(),
            servers: draft.server.into_iter().map(Spanned::into_inner).collect(),
            cells: draft.cell.into_iter().map(Spanned::into_inner).collect(),
        })
    }
}
