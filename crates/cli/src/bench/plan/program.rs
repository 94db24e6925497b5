//! The fields of a plan about programs that are run to their end and measured, and about services that run meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Cell, Plan, Server, Span};

/// A program that is run to its end for each row, and is compared instead of a server. In `command` and `env`, words in
/// braces are replaced by the cell's values ([`words`]); WORKERS is in its environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The measured program, if `command` is a shell that executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default = "super::one")]
    pub(crate) workers: u32,
    /// The server that runs meanwhile on the server's CPUs, if not the cell's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// How long it may take beyond the duration.
    #[serde(default = "usual_within")]
    pub(crate) within: Span,
    /// Where to find the figures of a row in its output, by their names in the row.
    pub(crate) figures: BTreeMap<String, Figure>,
}

impl Program {
    /// The name of the program that is measured.
    pub(crate) fn measured_program(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.command[0])
    }
}

/// Where to find a figure in a program's standard output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// A regular expression; its last match counts. Groups that are numbers are added up; a group that is a unit is
    /// theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pattern: Option<String>,
    /// Keys of a JSON object, with dots between the keys of nested objects. Their values are added up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) json: Vec<String>,
    /// The unit, if the figure is a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<Unit>,
    /// Multiplies the value found: a number, or a variable of the cell that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) times: Option<String>,
    /// The figure if the output does not have it. `None`: the row is void then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) absent: Option<f64>,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "m")]
    Minutes,
}

impl Unit {
    /// The unit with this name.
    pub(crate) fn named(name: &str) -> Option<Unit> {
        match name {
            "us" => Some(Unit::Micros),
            "ms" => Some(Unit::Millis),
            "s" => Some(Unit::Seconds),
            "m" => Some(Unit::Minutes),
            _ => None,
        }
    }

    /// Its length in microseconds.
    pub(crate) fn us(self) -> f64 {
        match self {
            Unit::Micros => 1.0,
            Unit::Millis => 1e3,
            Unit::Seconds => 1e6,
            Unit::Minutes => 6e7,
        }
    }
}

/// A service that runs meanwhile and is not measured. The last line that `start` prints replaces `{service.NAME}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) start: Vec<String>,
    /// Run at the end of the run, however it ends. Processes that `start` left behind end in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stop: Vec<String>,
    /// Ends with status 0 if the service runs already: it is not stopped then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) running: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    /// How long `start` may take, and `stop`.
    #[serde(default = "usual_service_within")]
    pub(crate) within: Span,
}

/// The metric of claims and comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Metric {
    #[serde(rename = "requests_per_server_core_second")]
    ServerCoreSecond,
    #[serde(rename = "requests_per_client_core_second")]
    ClientCoreSecond,
    #[serde(rename = "requests_per_second")]
    Second,
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::ServerCoreSecond => "requests_per_server_core_second",
            Metric::ClientCoreSecond => "requests_per_client_core_second",
            Metric::Second => "requests_per_second",
        }
    }

    /// In prose.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Metric::ServerCoreSecond => "requests per server core-second",
            Metric::ClientCoreSecond => "requests per client core-second",
            Metric::Second => "requests per second",
        }
    }

    /// At the head of a column.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Metric::Second => "req/s",
            _ => "req/core-s",
        }
    }
}

/// A contender: a server or program that is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contender<'a> {
    Server(&'a Server),
    Program(&'a Program),
}

impl<'a> Contender<'a> {
    pub(crate) fn name(self) -> &'a str {
        match self {
            Contender::Server(server) => &server.name,
            Contender::Program(program) => &program.name,
        }
    }

    /// The name of the program that is measured.
    pub(crate) fn measured_program(self) -> &'a str {
        match self {
            Contender::Server(server) => server.measured_program(),
            Contender::Program(program) => program.measured_program(),
        }
    }
}

impl Plan {
    /// The contenders, in the plan's order: the programs if there are any, else the servers.
    pub(crate) fn contenders(&self) -> impl Iterator<Item = Contender<'_>> {
        let servers = if self.programs.is_empty() { &self.servers[..] } else { &[] };
        self.programs.iter().map(Contender::Program).chain(servers.iter().map(Contender::Server))
    }

    /// The names of the contenders in `cell`.
    pub(crate) fn contenders_of<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = &'a str> {
        self.contenders().map(Contender::name).filter(|name| cell.is_for(name))
    }

    /// Whether rows of the contender `name` have a 99th percentile: those of programs, if its figures include it.
    pub(crate) fn has_p99(&self, name: &str) -> bool {
        let mut programs = self.programs.iter().filter(|program| program.name == name);
        programs.all(|program| program.figures.contains_key("p99_us"))
    }

    /// The metric of claims over its records.
    pub(crate) fn metric(&self) -> Metric {
        self.metric.unwrap_or(match self.programs.is_empty() {
            true => Metric::ServerCoreSecond,
            false => Metric::ClientCoreSecond,
        })
    }

    /// The server that runs while `program` does in `cell`.
    pub(crate) fn server_beside(&self, program: &Program, cell: &Cell) -> Option<&Server> {
        let name = program.server.as_ref().or(cell.server.as_ref())?;
        self.servers.iter().find(|server| server.name == *name)
    }
}

/// The values of words in braces in a program's command, for `cell` of `plan`. `host` and `port` are those of the
/// server that runs meanwhile.
pub(crate) fn words(
    plan: &Plan,
    cell: &Cell,
    program: &Program,
    server: Option<(&str, u16)>,
) -> BTreeMap<String, String> {
    let mut words = BTreeMap::from([
        ("path".to_owned(), cell.path.clone()),
        ("method".to_owned(), cell.method.clone()),
        ("body".to_owned(), cell.request_body()),
        ("connections".to_owned(), cell.connections.to_string()),
        ("pipeline".to_owned(), cell.pipeline.to_string()),
        ("rate".to_owned(), cell.rate.to_string()),
        ("seconds".to_owned(), cell.duration(plan).0.as_secs_f64().to_string()),
        ("workers".to_owned(), program.workers.to_string()),
    ]);
    if let Some((host, port)) = server {
        words.insert("host".to_owned(), host.to_owned());
        words.insert("port".to_owned(), port.to_string());
        words.insert("url".to_owned(), format!("http://{host}:{port}{}", cell.path));
    }
    words.extend(cell.variables.iter().map(|(name, value)| (name.clone(), value.clone())));
    words
}

/// `text` with each `{word}` of `words` replaced. Replacements are not expanded again.
pub(crate) fn put(text: &str, words: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, word, after)) = next_word(rest) {
        out += before;
        match words.get(word) {
            Some(value) => out += value,
            None => out += &format!("{{{word}}}"),
        }
        rest = after;
    }
    out + rest
}

/// The words in braces of `text`.
pub(crate) fn words_in(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, word, after)) = next_word(rest) {
        found.push(word);
        rest = after;
    }
    found
}

/// The first word in braces, the text before it and the text after it. A word begins with a letter: other braces belong
/// to a shell, to JSON or to a pattern.
fn next_word(text: &str) -> Option<(&str, &str, &str)> {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let mut from = 0;
    loop {
        let open = from + text[from..].find('{')?;
        let inner = &text[open + 1..];
        let size = inner.bytes().take_while(|byte| is_part(*byte)).count();
        let is_word = inner.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
            && inner.as_bytes().get(size) == Some(&b'}');
        if is_word {
            return Some((&text[..open], &inner[..size], &inner[size + 1..]));
        }
        from = open + 1;
    }
}

fn usual_within() -> Span {
    Span(Duration::from_secs(60))
}

/// The first start may install something.
fn usual_service_within() -> Span {
    Span(Duration::from_secs(300))
}
