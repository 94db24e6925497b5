//! Checks the fields about overload: what is wrong, and what to write instead?

use std::ops::RangeInclusive;
use std::time::Duration;

use super::findings::{self, Check};
use super::{ADDRESSES, Cell, Draft, Server, Span, Step};
use crate::load::{BURST_MAX, CONNECTIONS_MAX, RATE_MAX};

/// Maximum load in capacities: no server keeps anything of its peak there.
const LOAD_MAX: f64 = 1000.0;
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
const STEPS_MAX: usize = 64;
const SAMPLES_MAX: usize = 16;
const VALUES_MAX: usize = 1024;
const FLAGS_MAX: usize = 64;
/// Of `requests_per_connection`.
const REQUESTS_MAX: u64 = 1_000_000_000;

pub(super) fn one_cell(check: &mut Check<'_>, cell: &Cell, draft: &Draft, servers: &[&str]) {
    let is_load = |load: f64| load == 0.0 || (0.001..=LOAD_MAX).contains(&load);
    check.expect(is_load(cell.load), "load", wrong_load(cell.load));
    check.expect(
        cell.load == 0.0 || (cell.rate == 0.0 && cell.steps.is_empty()),
        "load",
        "is a rate, as a multiple of the capacity; remove it, or remove rate and steps",
    );
    if let Some(Span(deadline)) = cell.deadline {
        check.expect(DEADLINE.contains(&deadline), "deadline", "write 1ms to 60s");
    }
    let needs_deadline = cell.load > 0.0 || cell.steps.iter().any(|step| step.load > 0.0);
    check.expect(
        !needs_deadline || cell.deadline.is_some(),
        "load",
        "needs a deadline, by which an answer is in time; add deadline = \"200ms\"",
    );
    if let Some(rounds) = cell.rounds {
        check.expect(findings::ROUNDS.contains(&rounds), "rounds", "write 1 to 1000");
    }
    if let Some(Span(warm_up)) = cell.warm_up {
        check.expect(warm_up <= findings::WARM_UP_MAX, "warm_up", "is more than 60s; write less");
    }
    if let Some(Span(duration)) = cell.duration {
        check.expect(findings::DURATION.contains(&duration), "duration", "write 10ms to 1h");
    }
    check.expect(cell.flags.len() <= FLAGS_MAX, "flags", format!("give {FLAGS_MAX} at most"));
    check.expect(
        !cell.flags.iter().any(|word| word.contains('\0')),
        "flags",
        "holds a NUL; remove it",
    );
    check.expect(
        cell.requests_per_connection <= REQUESTS_MAX,
        "requests_per_connection",
        format!("write 1 to {REQUESTS_MAX}, or 0 for any number"),
    );
    check.expect(
        cell.requests_per_connection == 0 || !cell.close,
        "requests_per_connection",
        "cannot be combined with close, which is one request per connection; remove one of them",
    );
    refusal(check, cell);
    samples(check, cell, draft);
    for wanted in &cell.best_of {
        let known = servers.join(", ");
        check.expect(
            servers.contains(&wanted.as_str()),
            "best_of",
            format!("{wanted:?} is not a server of this plan; write some of {known}"),
        );
    }
    check.expect(
        cell.best_of.is_empty() || !cell.steps.is_empty(),
        "best_of",
        "compares the servers of each step; add steps, or remove it",
    );
    steps(check, cell, draft);
}

fn wrong_load(load: f64) -> String {
    format!("{load}; write 0.001 to {LOAD_MAX} times the capacity, or 0 for none")
}

fn refusal(check: &mut Check<'_>, cell: &Cell) {
    let Some(held) = &cell.refusal else { return };
    findings::path(check, "refusal", held);
    check.expect(
        cell.rate > 0.0 && cell.steps.is_empty(),
        "refusal",
        "is measured at a rate, without steps; add a rate, which the client can keep up",
    );
    check.expect(cell.deadline.is_some(), "refusal", "needs a deadline; add deadline = \"200ms\"");
}

fn samples(check: &mut Check<'_>, cell: &Cell, draft: &Draft) {
    check.expect(
        cell.samples.len() <= SAMPLES_MAX,
        "samples",
        format!("give {SAMPLES_MAX} at most"),
    );
    let is_name = |name: &String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        !name.is_empty() && name.bytes().all(is_part)
    };
    for name in cell.samples.iter().filter(|name| !is_name(name)) {
        check.refuse("samples", format!("{name:?} is not a metric name; write it without labels"));
    }
    let reads = |server: &&Server| {
        let words = server.command.iter().chain(server.env.values());
        words.into_iter().any(|word| word.contains("{metrics}"))
    };
    let silent = draft
        .server
        .iter()
        .map(toml::Spanned::get_ref)
        .find(|server| cell.is_for(&server.name) && !cell.samples.is_empty() && !reads(server));
    if let Some(server) = silent {
        check.refuse(
            "samples",
            format!(
                "server {:?} has no metrics port to read them from; give it \"--metrics\", \"127.0.0.1:{{metrics}}\"",
                server.name
            ),
        );
    }
}

fn steps(check: &mut Check<'_>, cell: &Cell, draft: &Draft) {
    check.expect(cell.steps.len() <= STEPS_MAX, "step", format!("give {STEPS_MAX} at most"));
    check.expect(
        cell.steps.is_empty() || cell.rate == 0.0,
        "rate",
        "each step has its own; write it there",
    );
    let whole = cell.duration.unwrap_or(draft.duration);
    let of = std::mem::take(&mut check.of);
    for (number, step) in cell.steps.iter().enumerate() {
        check.of = format!("{of}step {}: ", number + 1);
        one_step(check, step, whole);
    }
    check.of = of;
}

fn one_step(check: &mut Check<'_>, step: &Step, whole: Span) {
    let is_load = step.load == 0.0 || (0.001..=LOAD_MAX).contains(&step.load);
    check.expect(is_load, "load", wrong_load(step.load));
    check.expect(
        step.rate == 0.0 || (0.001..=RATE_MAX).contains(&step.rate),
        "rate",
        format!(
            "{}; write 0.001 to 10000000 requests per second, or 0 for a closed loop",
            step.rate
        ),
    );
    check.expect(
        step.rate == 0.0 || step.load == 0.0,
        "load",
        "and rate are two rates; remove one",
    );
    let has_rate = step.rate > 0.0 || step.load > 0.0;
    check.expect(
        (1..=BURST_MAX).contains(&step.burst),
        "burst",
        format!("{}; write 1 to {BURST_MAX}", step.burst),
    );
    check.expect(has_rate || step.burst == 1, "burst", "needs a rate; add one");
    check.expect(has_rate || !step.random, "random", "needs a rate; add one");
    check.expect(
        step.at < whole,
        "at",
        "is after the end of the cell; give the cell a longer duration",
    );
    check.expect(
        step.lasts.is_none_or(|lasts| lasts.0 >= Duration::from_millis(10)),
        "lasts",
        "is less than 10ms; write more",
    );
    if let Some(connections) = step.connections {
        check.expect(
            (1..=CONNECTIONS_MAX).contains(&connections),
            "connections",
            format!("{connections}; write 1 to {CONNECTIONS_MAX}"),
        );
    }
    if let Some(path) = &step.path {
        findings::path(check, "path", path);
    }
    findings::headers(check, &step.headers);
    check.expect(step.values.len() <= VALUES_MAX, "values", format!("give {VALUES_MAX} at most"));
    let has_place = step.path.as_ref().is_some_and(|path| path.contains("{value}"));
    check.expect(
        has_place == (!step.values.is_empty() || step.pareto.is_some()),
        "values",
        "or pareto stand for {value} in the step's path; write both or neither",
    );
    if let Some([first, last]) = step.sources {
        let are_ours = [first, last].iter().all(|part| ADDRESSES.contains(part));
        check.expect(
            first <= last && are_ours,
            "sources",
            format!("[{first}, {last}]; write the first and the last of 2 to 120"),
        );
    }
    let Some(pareto) = step.pareto else { return };
    check.expect(step.values.is_empty(), "pareto", "and values are two lists; remove one");
    check.expect(
        (0.1..=10.0).contains(&pareto.shape) && 0 < pareto.least && pareto.least < pareto.most,
        "pareto",
        "write { shape = 0.1 to 10, least = 1 or more, most = more than that }",
    );
}

pub(super) fn quick(check: &mut Check<'_>, draft: &Draft) {
    let Some(quick) = &draft.quick else { return };
    check.at = check.text.find("[quick]").unwrap_or(0);
    check.of = "[quick]: ".to_owned();
    let known: [(_, _, Vec<&str>); 2] = [
        (
            "cells",
            &quick.cells,
            draft.cell.iter().map(|cell| cell.get_ref().name.as_str()).collect(),
        ),
        (
            "servers",
            &quick.servers,
            match draft.program.is_empty() {
                true => draft.server.iter().map(|server| server.get_ref().name.as_str()).collect(),
                false => draft.program.iter().map(|of| of.get_ref().name.as_str()).collect(),
            },
        ),
    ];
    for (field, wanted, known) in known {
        for name in wanted.iter().filter(|name| !known.contains(&name.as_str())) {
            check.expect(
                false,
                field,
                format!("{name:?} is not in this plan; it has {}", known.join(", ")),
            );
        }
    }
    let rounds = quick.rounds.unwrap_or(1);
    check.expect(findings::ROUNDS.contains(&rounds), "rounds", "write 1 to 1000");
    let is_fine = quick.warm_up.is_none_or(|warm_up| warm_up.0 <= findings::WARM_UP_MAX);
    check.expect(is_fine, "warm_up", "is more than 60s; write less");
    let is_fine = quick.duration.is_none_or(|duration| findings::DURATION.contains(&duration.0));
    check.expect(is_fine, "duration", "write 10ms to 1h");
}
