//! Checks a plan: what is wrong, where, and what to write instead?

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::findings::{
    Check, DURATION, NAME_SIZE_MAX, ROUNDS, WARM_UP_MAX, command, environment, headers, is_token,
    name, path, workers,
};
use super::{
    Cell, Draft, Refused, Server, Setup, check_overload as overload, check_program,
    check_protocols, cpus,
};
use crate::load::{BURST_MAX, CONNECTIONS_MAX, PIPELINE_MAX, RATE_MAX};

const READY_WITHIN: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);
const SERVERS_MAX: usize = 64;
const CELLS_MAX: usize = 256;
const SETUP_MAX: usize = 10_000;
/// Bytes of a request's body, and of an answer's.
const BODY_MAX: usize = 64 * 1024 * 1024;

/// All problems of `draft`, whose text is `text`.
pub(super) fn all(text: &str, draft: &Draft) -> Vec<Refused> {
    let mut check = Check { text, at: 0, of: String::new(), refused: Vec::new() };
    top(&mut check, draft);
    let mut names: Vec<&str> = Vec::new();
    for server in &draft.server {
        check.at = server.span().start;
        let server = server.get_ref();
        check.of = format!("server {:?}: ", server.name);
        check.expect(!names.contains(&server.name.as_str()), "name", "another server has it");
        names.push(&server.name);
        one_server(&mut check, server, draft.server[0].get_ref());
        let texts = check_program::texts(&server.command, &server.env);
        check_program::service_words(&mut check, &texts, draft);
    }
    let servers = std::mem::take(&mut names);
    check_program::all(&mut check, draft);
    let contenders = match draft.program.is_empty() {
        true => servers.clone(),
        false => draft.program.iter().map(|program| program.get_ref().name.as_str()).collect(),
    };
    for cell in &draft.cell {
        check.at = cell.span().start;
        let cell = cell.get_ref();
        check.of = format!("cell {:?}: ", cell.name);
        check.expect(!names.contains(&cell.name.as_str()), "name", "another cell has it");
        names.push(&cell.name);
        one_cell(&mut check, cell, &contenders);
        check_program::one_cell(&mut check, cell, draft, &servers);
        check_protocols::one_cell(&mut check, cell, draft);
        overload::one_cell(&mut check, cell, draft, &servers);
    }
    overload::quick(&mut check, draft);
    check.refused
}

fn top(check: &mut Check<'_>, draft: &Draft) {
    let is_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    check.expect(
        !draft.name.is_empty()
            && draft.name.len() <= NAME_SIZE_MAX
            && draft.name.bytes().all(is_name),
        "name",
        format!(
            "{:?} is not a name; write 1 to {NAME_SIZE_MAX} of a-z, 0-9, '.', '-' and '_'",
            draft.name
        ),
    );
    let rounds = draft.rounds;
    check.expect(ROUNDS.contains(&rounds), "rounds", format!("{rounds}; write 1 to 1000"));
    check.expect(draft.warm_up.0 <= WARM_UP_MAX, "warm_up", "is more than 60s; write less");
    check.expect(DURATION.contains(&draft.duration.0), "duration", "write 10ms to 1h");
    check.expect(READY_WITHIN.contains(&draft.ready_within.0), "ready_within", "write 10ms to 10m");
    let lists = [("server_cpus", &draft.server_cpus), ("client_cpus", &draft.client_cpus)].map(
        |(field, list)| {
            let list = list.as_deref().map(cpus::parse).transpose();
            list.unwrap_or_else(|problem| {
                check.refuse(field, problem);
                None
            })
        },
    );
    if let [Some(server), Some(client)] = &lists
        && let Some(both) = server.iter().find(|cpu| client.contains(cpu))
    {
        check.refuse(
            "client_cpus",
            format!("CPU {both} is in server_cpus too: the load would take the server's time; name others"),
        );
    }
    check_program::top(check, draft);
    let servers = draft.server.len();
    check.expect(
        servers > 0 || !draft.program.is_empty(),
        "server",
        "none is given; add a [[server]] with name, command and ready",
    );
    check.expect(
        servers <= SERVERS_MAX,
        "server",
        format!("{servers} of them; give {SERVERS_MAX} at most"),
    );
    let cells = draft.cell.len();
    check.expect(cells > 0, "cell", "none is given; add a [[cell]] with name, path and expect");
    check.expect(cells <= CELLS_MAX, "cell", format!("{cells} of them; give {CELLS_MAX} at most"));
}

fn one_server(check: &mut Check<'_>, server: &Server, first: &Server) {
    name(check, &server.name);
    command(check, &server.command, server.program.as_deref());
    environment(check, &server.env);
    check.expect(
        (200..300).contains(&server.status),
        "status",
        format!("{}; write 200 to 299", server.status),
    );
    check.expect(
        server.status == 200 || server.expect.is_some(),
        "status",
        "needs the server's expect; add it, or set the cell's status",
    );
    workers(check, server.workers, (&first.name, first.workers));
    path(check, "ready", &server.ready);
}

fn one_cell(check: &mut Check<'_>, cell: &Cell, servers: &[&str]) {
    name(check, &cell.name);
    // Whether it needs a path is checked where servers and programs are known.
    let target = if cell.path.is_empty() { "/" } else { &cell.path };
    request(check, &cell.method, target, &cell.headers, cell.status);
    content(check, cell);
    load(check, cell);
    check.expect(
        cell.setup.len() <= SETUP_MAX,
        "setup",
        format!("give {SETUP_MAX} requests at most"),
    );
    for Setup { method, path, headers, status, .. } in &cell.setup {
        request(check, method, path, headers, *status);
    }
    for wanted in &cell.servers {
        let known = servers.join(", ");
        check.expect(
            servers.contains(&wanted.as_str()),
            "servers",
            format!("{wanted:?} is not a server of this plan; write some of {known}"),
        );
    }
}

/// The body of a cell's requests, and the one that it expects.
fn content(check: &mut Check<'_>, cell: &Cell) {
    let expect = cell.expect.as_deref().unwrap_or_default();
    let sizes = [
        ("body_repeat", cell.body.as_str(), cell.body_repeat),
        ("expect_repeat", expect, cell.expect_repeat),
    ];
    for (field, text, repeat) in sizes {
        let size = text.len().saturating_mul(repeat as usize);
        check.expect(repeat > 0, field, "write 1 or more");
        check.expect(size <= BODY_MAX, field, format!("{size} bytes; stay within 64 MiB"));
    }
    if let Some(any) = cell.any {
        let is_fine = any.is_ascii() && expect.contains(any);
        check.expect(
            is_fine,
            "any",
            format!("{any:?}; write an ASCII character that stands in expect, or remove it"),
        );
    }
}

/// How a cell sends its requests.
fn load(check: &mut Check<'_>, cell: &Cell) {
    let connections = cell.connections;
    check.expect(
        (1..=CONNECTIONS_MAX).contains(&connections),
        "connections",
        format!("{connections}; write 1 to {CONNECTIONS_MAX}"),
    );
    let pipeline = cell.pipeline;
    check.expect(
        (1..=PIPELINE_MAX).contains(&pipeline),
        "pipeline",
        format!("{pipeline}; write 1 to {PIPELINE_MAX}"),
    );
    check.expect(
        cell.rate == 0.0 || (0.001..=RATE_MAX).contains(&cell.rate),
        "rate",
        format!(
            "{}; write 0.001 to 10000000 requests per second, or 0 for a closed loop",
            cell.rate
        ),
    );
    let burst = cell.burst;
    check.expect(
        (1..=BURST_MAX).contains(&burst),
        "burst",
        format!("{burst}; write 1 to {BURST_MAX}"),
    );
    check.expect(
        burst == 1 || cell.rate > 0.0 || cell.load > 0.0,
        "burst",
        "only a cell with a rate has bursts; add a rate",
    );
    check.expect(
        pipeline == 1 || (cell.rate == 0.0 && !cell.close && !cell.is_overload()),
        "pipeline",
        "only a closed loop that keeps its connections can pipeline; remove it, or remove rate, close and the fields about overload",
    );
}

fn request(
    check: &mut Check<'_>,
    method: &str,
    target: &str,
    headers: &BTreeMap<String, String>,
    status: u16,
) {
    check.expect(
        is_token(method),
        "method",
        format!("{method:?} is not a method; write GET or POST"),
    );
    path(check, "path", target);
    self::headers(check, headers);
    check.expect(
        (200..300).contains(&status),
        "status",
        format!(
            "{status}: only successes (200 to 299) are measured; ask for something that succeeds"
        ),
    );
}
