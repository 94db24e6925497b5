//! Checks the fields about programs and services: what is wrong, and what to write instead?

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use regex_lite::Regex;

use super::findings::{self, Check, NAME_SIZE_MAX};
use super::{Cell, Draft, Figure, Metric, Program, Service, put, words_in};

const WITHIN: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const PROGRAMS_MAX: usize = 64;
const SERVICES_MAX: usize = 16;
const PARTS_MAX: usize = 64;
/// Names of the figures that may be read from a program's output.
const FIGURES: [&str; 10] = [
    "requests",
    "rps",
    "bytes_per_s",
    "p50_us",
    "p90_us",
    "p99_us",
    "p999_us",
    "max_us",
    "errors",
    "non_2xx",
];
/// The words that every program gets from its cell, and from the server that runs meanwhile.
const WORDS: [&str; 8] =
    ["path", "method", "body", "connections", "pipeline", "rate", "seconds", "workers"];
const SERVER_WORDS: [&str; 3] = ["host", "port", "url"];

pub(super) fn all(check: &mut Check<'_>, draft: &Draft) {
    let servers: Vec<&str> =
        draft.server.iter().map(|server| server.get_ref().name.as_str()).collect();
    services(check, draft);
    check.expect(
        draft.program.len() <= PROGRAMS_MAX,
        "program",
        format!("{} of them; give {PROGRAMS_MAX} at most", draft.program.len()),
    );
    let mut names = servers.clone();
    for program in &draft.program {
        check.at = program.span().start;
        let program = program.get_ref();
        check.of = format!("program {:?}: ", program.name);
        check.expect(
            !names.contains(&program.name.as_str()),
            "name",
            "is the name of another program or server; choose another",
        );
        names.push(&program.name);
        one_program(check, program, draft, &servers);
    }
    if !draft.program.is_empty() {
        background(check, draft);
    }
}

/// The top level of the plan.
pub(super) fn top(check: &mut Check<'_>, draft: &Draft) {
    let has_programs = !draft.program.is_empty();
    let is_fine = match draft.metric {
        None | Some(Metric::Second) => true,
        Some(Metric::ServerCoreSecond) => !has_programs,
        Some(Metric::ClientCoreSecond) => has_programs,
    };
    check.expect(
        is_fine,
        "metric",
        "is not measured here; write \"requests_per_second\", or remove it: a server's cost is its own, and a program's",
    );
    check.expect(
        !draft.shared_cpus || has_programs,
        "shared_cpus",
        "is for programs: a server's load would take its time; remove it",
    );
    check.expect(
        !draft.shared_cpus || draft.client_cpus.is_none(),
        "client_cpus",
        "are the server's with shared_cpus; remove one of them",
    );
    let parts = draft.parts.len();
    check.expect(parts <= PARTS_MAX, "parts", format!("{parts} of them; give {PARTS_MAX} at most"));
    for (name, words) in &draft.parts {
        let is_fine = !words.is_empty() && !name.is_empty() && name.len() <= NAME_SIZE_MAX;
        check.expect(
            is_fine,
            "parts",
            format!("{name:?}; write \"name\" = \"a text in its command line\""),
        );
    }
}

fn services(check: &mut Check<'_>, draft: &Draft) {
    let count = draft.service.len();
    check.expect(count <= SERVICES_MAX, "service", format!("{count}; give {SERVICES_MAX} at most"));
    let mut names: Vec<&str> = Vec::new();
    for service in &draft.service {
        check.at = service.span().start;
        let Service { name, start, stop, running, env, within } = service.get_ref();
        check.of = format!("service {name:?}: ");
        check.expect(!names.contains(&name.as_str()), "name", "another service has it");
        names.push(name);
        check.expect(
            words_in(&format!("{{{name}}}")) == [name.as_str()] && name.len() <= NAME_SIZE_MAX,
            "name",
            "write a to z, 0 to 9, '.', '-' and '_', a letter first: it stands in {service.NAME}",
        );
        let is_program = |command: &[String]| command.first().is_some_and(|word| !word.is_empty());
        check.expect(is_program(start), "start", "is empty; write [\"program\", \"argument\"]");
        for (field, words) in [("start", start), ("stop", stop), ("running", running)] {
            let is_fine = !words.iter().any(|word| word.contains('\0'));
            check.expect(is_fine, field, "holds a NUL; remove it");
            let is_fine = words.is_empty() || is_program(words);
            check.expect(is_fine, field, "is empty; write [\"program\", \"argument\"]");
        }
        findings::environment(check, env);
        let is_fine = WITHIN.contains(&within.0);
        check.expect(is_fine, "within", "write 100ms to 1h");
    }
}

fn one_program(check: &mut Check<'_>, program: &Program, draft: &Draft, servers: &[&str]) {
    findings::name(check, &program.name);
    findings::command(check, &program.command, program.program.as_deref());
    findings::environment(check, &program.env);
    findings::workers(check, program.workers, {
        let first = draft.program[0].get_ref();
        (&first.name, first.workers)
    });
    let is_fine = WITHIN.contains(&program.within.0);
    check.expect(is_fine, "within", "write 100ms to 1h");
    if let Some(server) = &program.server {
        check.expect(
            servers.contains(&server.as_str()),
            "server",
            format!("{server:?} is not a server of this plan; it has {}", servers.join(", ")),
        );
    }
    check.expect(
        program.figures.contains_key("requests"),
        "figures",
        "have no requests; write requests = { json = [\"key\"] } or { pattern = '(\\d+) requests' }",
    );
    for (name, figure) in &program.figures {
        let known = FIGURES.join(", ");
        check.expect(
            FIGURES.contains(&name.as_str()),
            name,
            format!("is not a figure; write some of {known}"),
        );
        one_figure(check, name, figure, program, draft);
    }
    for cell in draft.cell.iter().map(toml::Spanned::get_ref) {
        if cell.is_for(&program.name) {
            commands(check, program, cell, draft);
        }
    }
}

fn one_figure(
    check: &mut Check<'_>,
    name: &str,
    figure: &Figure,
    program: &Program,
    draft: &Draft,
) {
    check.expect(
        figure.pattern.is_some() == figure.json.is_empty(),
        name,
        "write either pattern = '(\\d+) requests' or json = [\"key\"]",
    );
    let is_time = name.ends_with("_us");
    check.expect(is_time || figure.unit.is_none(), name, "is not a time; remove the unit");
    check.expect(
        figure.absent.is_none_or(|value| value >= 0.0 && value.is_finite()),
        name,
        "absent is not a number; write 0 or more",
    );
    for cell in draft.cell.iter().map(toml::Spanned::get_ref) {
        if !cell.is_for(&program.name) {
            continue;
        }
        if let Some(pattern) = &figure.pattern {
            match Regex::new(&put(pattern, &cell.variables)) {
                Ok(pattern) if pattern.captures_len() > 1 => {}
                Ok(_) => check.refuse(name, "its pattern has no group; put the number in ( )"),
                Err(error) => check.refuse(name, format!("{pattern:?}: {error}")),
            }
        }
        let times = figure.times.as_ref().map(|times| put(times, &cell.variables));
        let is_number = |text: &String| text.parse().is_ok_and(|value: f64| value > 0.0);
        check.expect(
            times.as_ref().is_none_or(is_number),
            name,
            format!(
                "times is {:?} in cell {:?}; write a number above 0, or a variable of all its cells",
                times.unwrap_or_default(),
                cell.name
            ),
        );
    }
}

/// Every word in braces must be known, or a program would get it literally.
fn commands(check: &mut Check<'_>, program: &Program, cell: &Cell, draft: &Draft) {
    let has_server = program.server.is_some() || cell.server.is_some();
    let texts = program.command.iter().map(|text| ("command", text));
    for (field, text) in texts.chain(program.env.values().map(|text| ("env", text))) {
        for word in words_in(text) {
            if cell.variables.contains_key(word) || WORDS.contains(&word) {
                continue;
            }
            let problem = match word.strip_prefix("service.") {
                _ if SERVER_WORDS.contains(&word) && has_server => continue,
                _ if SERVER_WORDS.contains(&word) => {
                    "belongs to a server, and none runs here; write server = \"NAME\" here or in the cell".to_owned()
                }
                Some(name) if is_service(draft, name) => continue,
                Some(_) => "is not a service of this plan; add a [[service]]".to_owned(),
                None => format!(
                    "is not a word of the cell; add variables = {{ {word} = \"…\" }}, or write some of {}",
                    WORDS.join(", ")
                ),
            };
            check.refuse(field, format!("{{{word}}} in cell {:?} {problem}", cell.name));
        }
    }
}

/// Services that servers refer to must exist.
pub(super) fn service_words(check: &mut Check<'_>, texts: &[&String], draft: &Draft) {
    for word in texts.iter().flat_map(|text| words_in(text)) {
        if let Some(name) = word.strip_prefix("service.") {
            check.expect(
                is_service(draft, name),
                "command",
                format!("{{{word}}} is not a service of this plan; add a [[service]]"),
            );
        }
    }
}

fn is_service(draft: &Draft, name: &str) -> bool {
    draft.service.iter().any(|service| service.get_ref().name == name)
}

/// Servers of a plan of programs run beside the programs, or not at all.
fn background(check: &mut Check<'_>, draft: &Draft) {
    let programs = || draft.program.iter().filter_map(|program| program.get_ref().server.as_ref());
    let cells = || draft.cell.iter().filter_map(|cell| cell.get_ref().server.as_ref());
    for server in &draft.server {
        check.at = server.span().start;
        let name = &server.get_ref().name;
        check.of = format!("server {name:?}: ");
        check.expect(
            programs().chain(cells()).any(|named| named == name),
            "name",
            "this plan compares programs, and none of them uses this server; write server = \"NAME\" in a program or a cell",
        );
    }
}

/// A cell, in a plan with programs or without. `names` are those that may take part.
pub(super) fn one_cell(check: &mut Check<'_>, cell: &Cell, draft: &Draft, servers: &[&str]) {
    let has_programs = !draft.program.is_empty();
    let of_server = |program: &Program| program.server.is_some() || cell.server.is_some();
    let mut programs = draft.program.iter().map(toml::Spanned::get_ref);
    let asks =
        !has_programs || programs.any(|program| cell.is_for(&program.name) && of_server(program));
    if asks {
        check.expect(!cell.path.is_empty(), "path", "missing field `path`; add it");
    }
    check.expect(
        has_programs || cell.expect.is_some(),
        "expect",
        "missing field `expect`; write expect = \"…\", the answer's body to the byte",
    );
    if let Some(server) = &cell.server {
        check.expect(
            has_programs && servers.contains(&server.as_str()),
            "server",
            format!(
                "{server:?} is not a server that runs while a program does; this plan has {} programs, and the servers {}",
                draft.program.len(),
                servers.join(", ")
            ),
        );
    }
    check.expect(
        has_programs || cell.variables.is_empty(),
        "variables",
        "are for programs, and there are none; remove them",
    );
    for name in cell.variables.keys() {
        let is_free = !WORDS.contains(&name.as_str()) && !SERVER_WORDS.contains(&name.as_str());
        check.expect(
            is_free && words_in(&format!("{{{name}}}")) == [name.as_str()],
            "variables",
            format!("{name:?}; write a to z, 0 to 9 and '_', and no word that cells have anyway"),
        );
    }
    let of_servers = [
        ("deadline", cell.deadline.is_some()),
        ("load", cell.load > 0.0),
        ("refusal", cell.refusal.is_some()),
        ("refuses_nothing", cell.refuses_nothing),
        ("step", !cell.steps.is_empty()),
        ("whole_cpu", cell.whole_cpu),
        ("close", cell.close),
    ];
    for (field, is_there) in of_servers {
        let is_fine = !has_programs || !is_there;
        check.expect(is_fine, field, "applies to servers only; remove it");
    }
}

/// The words in braces of `env` and `command` of a server.
pub(super) fn texts<'a>(
    command: &'a [String],
    env: &'a BTreeMap<String, String>,
) -> Vec<&'a String> {
    command.iter().chain(env.values()).collect()
}
