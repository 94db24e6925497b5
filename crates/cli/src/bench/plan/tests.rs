//! Plans that are read, and plans that are refused.

use std::path::Path;

use proptest::prelude::*;

use super::{Cpus, Plan, show_cpus};

/// As the documentation has it.
pub(super) const WHOLE: &str = r#"name = "framework"
rounds = 6
warm_up = "300ms"
duration = "1s"
server_cpus = "0"
client_cpus = "1"
seed = 7

[[server]]
name = "ours"
command = ["highwater-arena", "--listen", "127.0.0.1:{port}"]
env = { A = "{port}" }
workers = 1
ready = "/plaintext"

[[server]]
name = "theirs"
command = ["axum"]
workers = 1
ready = "/plaintext"
port = 4000
expect = "always"
status = 202
program = "axum"

[[cell]]
name = "plaintext"
method = "POST"
path = "/plaintext"
headers = { Accept = "*/*" }
body = "{}"
status = 201
expect = "Hello, World!"
connections = 32
pipeline = 2
close = false
rate = 0

[[cell]]
name = "paced"
path = "/plaintext?a=b"
expect = "a*c"
any = "*"
rate = 1000.5
burst = 8
close = true
servers = ["ours"]
setup = [{ path = "/todos", body = "x", status = 204 }]
"#;

/// Purpose: every field is read, and an absent field has the documented default.
#[test]
fn a_whole_plan() {
    let plan = Plan::parse(WHOLE).expect("nothing is wrong with it");
    assert_eq!((plan.name.as_str(), plan.rounds, plan.seed), ("framework", 6, 7));
    assert_eq!((plan.warm_up.0.as_millis(), plan.duration.0.as_millis()), (300, 1000));
    assert_eq!((plan.server_cpus.as_deref(), plan.client_cpus.as_deref()), (Some("0"), Some("1")));
    assert_eq!(plan.servers[0].command.len(), 3);
    assert_eq!(plan.servers[0].env["A"], "{port}");
    assert_eq!((plan.servers[1].workers, plan.servers[1].port), (1, 4000));
    assert_eq!(plan.cells[0].expected(&plan.servers[0]), (201, b"Hello, World!".to_vec()));
    assert_eq!(plan.cells[0].expected(&plan.servers[1]), (202, b"always".to_vec()));
    let [first, second] = &plan.cells[..] else { panic!("two cells") };
    assert_eq!(
        (first.method.as_str(), first.status, first.connections, first.pipeline),
        ("POST", 201, 32, 2)
    );
    assert_eq!((first.headers["Accept"].as_str(), first.request_body().as_str()), ("*/*", "{}"));
    assert_eq!((second.method.as_str(), second.status, second.connections), ("GET", 200, 64));
    assert_eq!((first.any, second.any), (None, Some('*')));
    assert_eq!((second.rate, second.burst, second.close), (1000.5, 8, true));
    assert_eq!((second.setup[0].method.as_str(), second.setup[0].status), ("POST", 204));
    assert!(second.is_for("ours") && !second.is_for("theirs") && first.is_for("theirs"));
    let least = "name = \"a\"\n[[server]]\nname = \"s\"\ncommand = [\"x\"]\nready = \"/\"\n\
                 [[cell]]\nname = \"c\"\npath = \"/\"\nexpect = \"\"\n";
    let plan = Plan::parse(least).expect("nothing is wrong with it");
    assert_eq!((plan.rounds, plan.seed), (6, 1));
    assert_eq!((plan.servers[0].measured_program(), plan.servers[0].status), ("x", 200));
    assert_eq!((plan.warm_up.0.as_millis(), plan.duration.0.as_millis()), (300, 1000));
}

/// Purpose: an answer is right to the byte, from its first to its last, but for what may be anything.
#[test]
fn anything_between() {
    for (any, expected, content, is_fine) in [
        (None, "a*c", "a*c", true),
        (None, "a*c", "abc", false),
        (None, "", "", true),
        (None, "", "a", false),
        (Some(b'*'), "abc", "abc", true),
        (Some(b'*'), "abc", "ab", false),
        (Some(b'*'), "a*c", "abc", true),
        (Some(b'*'), "a*c", "ac", true),
        (Some(b'*'), "a*c", "abbc", true),
        (Some(b'*'), "a*c", "abd", false),
        (Some(b'*'), "a*c", "xac", false),
        (Some(b'*'), "aba*aba", "aba", false),
        (Some(b'*'), "a*b*b*c", "a.b.b.c", true),
        (Some(b'*'), "a*b*b*c", "a.b.c", false),
        (Some(b'*'), "a*x*y*c", "ayxc", false),
        (Some(b'*'), "**", "", true),
    ] {
        let found = super::Cell::is_expected(any, expected.as_bytes(), content.as_bytes());
        assert_eq!(found, is_fine, "{expected} {content}");
    }
}

/// Purpose: a plan that is not there is named, and where there are some.
#[test]
fn a_missing_plan() {
    let message = Plan::read(Path::new("plans/nope.toml")).expect_err("there is none");
    assert!(message.starts_with("plans/nope.toml: there is no such plan"), "{message}");
    assert!(message.contains("bench/plans/*.toml"), "{message}");
}

/// Purpose: the plans that ship are plans.
#[test]
fn shipped_plans() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/plans");
    let files = std::fs::read_dir(folder).expect("they are there").flatten();
    let plans: Vec<_> = files.map(|file| file.path()).collect();
    assert!(plans.len() >= 16, "{plans:?}");
    for path in plans {
        let plan = Plan::read(&path).unwrap_or_else(|problem| panic!("{problem}"));
        if plan.quick.is_some() {
            let quick = plan.clone().shortened().expect("it has a shorter form");
            assert!(!quick.cells.is_empty(), "{path:?}");
            let of_none = |cell: &super::Cell| quick.contenders_of(cell).next().is_none();
            assert!(!quick.cells.iter().any(of_none), "{path:?}");
        }
        let stem = path.file_stem().expect("it has a name");
        assert_eq!(*stem, *plan.name, "the record's name is the file's");
    }
}

/// Purpose: a plan in a record is the plan that was read.
#[test]
fn a_plan_survives_json() {
    let plan = Plan::parse(WHOLE).expect("nothing is wrong with it");
    let json = serde_json::to_string(&plan).expect("it has a JSON form");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("its own"), plan);
}

/// Purpose: each mistake is refused on its line, by its field, with what to write instead.
#[test]
fn mistakes() {
    for (from, to, line, message) in [
        (
            "workers = 1\nready = \"/plaintext\"\nport",
            "workers = 2\nready = \"/\"\nport",
            19,
            "unequal workers",
        ),
        (
            "workers = 1\nready = \"/plaintext\"\n\n[[s",
            "workers = 0\nready = \"/\"\n\n[[s",
            13,
            "write 1 to 1024",
        ),
        (
            "ready = \"/plaintext\"\n\n[[server]]",
            "\n\n[[server]]",
            9,
            "missing field `ready`; write ready =",
        ),
        ("expect = \"a*c\"\n", "", 39, "missing field `expect`; write expect ="),
        ("rate = 0", "rat = 0", 37, "unknown field `rat`; did you mean `rate`?"),
        ("seed = 7", "seed = 7\nspede = 7", 8, "unknown field `spede`; did you mean `seed`?"),
        ("seed = 7", "seed = 7\nhurry = 7", 8, "unknown field `hurry`; remove it: docs/"),
        ("seed = 7", "seed = -1", 7, "seed: integer -1 is not a whole number, 0 or more"),
        (
            "client_cpus = \"1\"",
            "client_cpus = \"0-1\"",
            6,
            "client_cpus: CPU 0 is in server_cpus too",
        ),
        ("client_cpus = \"1\"", "client_cpus = \"b\"", 6, "not a list of CPUs; write"),
        ("client_cpus = \"1\"", "client_cpus = \"3-2\"", 6, "not a list of CPUs; write"),
        ("rounds = 6", "rounds = 0", 2, "rounds: 0; write 1 to 1000"),
        ("rounds = 6", "rounds = 1001", 2, "write 1 to 1000"),
        (
            "rounds = 6",
            "rounds = \"two\"",
            2,
            "rounds: string \"two\" is not a whole number from 0",
        ),
        ("rounds = 6", "rounds = -2", 2, "rounds: integer -2 is not a whole number from 0"),
        ("close = false", "close = 1", 36, "close: integer 1 is not true or false"),
        ("status = 204 }", "status = \"x\" }", 48, "status: string \"x\" is not a whole number"),
        (
            "servers = [\"ours\"]",
            "servers = \"ours\"",
            47,
            "servers: string \"ours\" is not a list",
        ),
        (
            "warm_up = \"300ms\"",
            "warm_up = \"300\"",
            3,
            "warm_up: \"300\" is not a duration; write 10s",
        ),
        ("warm_up = \"300ms\"", "warm_up = \"61s\"", 3, "more than 60s"),
        ("duration = \"1s\"", "duration = \"9ms\"", 4, "write 10ms to 1h"),
        ("name = \"framework\"", "name = \"A B\"", 1, "a-z, 0-9"),
        ("name = \"theirs\"", "name = \"ours\"", 17, "another server has it"),
        ("name = \"paced\"", "name = \"plaintext\"", 40, "another cell has it"),
        ("command = [\"axum\"]", "command = []", 18, "is empty; write"),
        ("ready = \"/plaintext\"\nport", "ready = \"plaintext\"\nport", 20, "is not a path"),
        ("env = { A", "env = { \"A=\"", 12, "is not a variable name"),
        ("method = \"POST\"", "method = \"P T\"", 28, "is not a method"),
        ("path = \"/plaintext\"", "path = \"/plain text\"", 29, "percent-encoded"),
        ("headers = { Accept", "headers = { \"A:\"", 30, "is not a header"),
        ("headers = { Accept", "headers = { content-length", 30, "follows from body and close"),
        ("status = 201", "status = 404", 32, "only successes"),
        ("connections = 32", "connections = 0", 34, "write 1 to 100000"),
        ("pipeline = 2", "pipeline = 1025", 35, "write 1 to 1024"),
        ("pipeline = 2", "http2 = true\npipeline = 2", 35, "write streams"),
        ("pipeline = 2", "streams = 2", 35, "write http2 = true"),
        ("close = false", "close = true", 35, "only a closed loop"),
        ("rate = 0\n", "rate = 5\n", 35, "only a closed loop"),
        ("rate = 0\n", "rate = -1\n", 37, "write 0.001 to 10000000"),
        ("rate = 0\n", "rate = 0\nburst = 2\n", 38, "add a rate"),
        ("status = 202", "status = 404", 23, "write 200 to 299"),
        ("expect = \"always\"\nstatus", "status", 22, "needs the server's expect"),
        ("program = \"axum\"", "program = \"\"", 24, "is empty; write the program"),
        ("any = \"*\"", "any = \"!\"", 43, "that stands in expect"),
        ("any = \"*\"", "any = \"**\"", 43, "any: string \"**\" is not one character"),
        ("burst = 8", "burst = 0", 45, "write 1 to 4096"),
        ("servers = [\"ours\"]", "servers = [\"yours\"]", 47, "not a server of this plan"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        refuses((from, to), (line, message));
    }
    for (text, message) in [
        ("name = \"a\"", "server: none is given; add"),
        ("name = \"a\"", "cell: none is given; add"),
    ] {
        let refused = Plan::parse(text).expect_err("it has nothing");
        assert!(refused.iter().any(|refused| refused.what.contains(message)), "{refused:?}");
    }
}

/// Purpose: a cell over TLS or WebSocket is refused where the load or the server cannot do it.
#[test]
fn mistakes_about_protocols() {
    for (to, message) in [
        ("tls = true", "listen on 127.0.0.1:{tls_port}"),
        ("resume = false", "write tls = true and close = true"),
        ("idle = 2", "write ws ="),
        ("ws = \"socket\"", "is not a path"),
        ("ws = \"/\"\nhttp2 = true", "remove them"),
    ] {
        refuses(("pipeline = 2", to), (35, message));
    }
}

/// The plan with `to` in place of `from` is refused on `line`, with `message`.
fn refuses((from, to): (&str, &str), (line, message): (usize, &str)) {
    let refused = Plan::parse(&WHOLE.replacen(from, to, 1)).expect_err(to);
    assert!(
        refused.iter().any(|refused| refused.line == line && refused.what.contains(message)),
        "{to:?} is to be refused on line {line} with {message:?}: {refused:?}"
    );
}

/// As the documentation has it, with every word about overload.
const OVERLOAD: &str = r#"name = "stress"

[network]
namespaces = true

[quick]
rounds = 1
cells = ["10x", "course"]
servers = ["gate"]

[[server]]
name = "none"
command = ["x", "{host}:{port}", "{metrics}"]
ready = "/"

[[server]]
name = "gate"
command = ["x", "{metrics}"]
ready = "/"

[[cell]]
name = "10x"
path = "/"
expect = ""
load = 10.0
deadline = "200ms"
rounds = 2
requests_per_connection = 10
flags = ["--limit", "1"]

[[cell]]
name = "refusal"
path = "/"
expect = ""
refusal = "/sleep"
rate = 10000
deadline = "200ms"
servers = ["none"]

[[cell]]
name = "course"
path = "/"
expect = ""
deadline = "200ms"
duration = "10s"
best_of = ["none", "gate"]
samples = ["http_a"]

[[cell.step]]
load = 2.0

[[cell.step]]
name = "more"
at = "4s"
path = "/work?us={value}"
values = [1, 2]
rate = 5
random = true

[[cell.step]]
at = "6s"
lasts = "1s"
path = "/work?us={value}"
pareto = { shape = 1.5, least = 500, most = 300000 }
burst = 3
rate = 5
sources = [11, 110]
"#;

/// Purpose: the words about overload are read; a step ends when the next begins, unless it says when; the shorter form has
/// what was asked for, and no cell gets servers that it did not have.
#[test]
fn plans_of_overload() {
    let plan = Plan::parse(OVERLOAD).expect("nothing is wrong with it");
    assert!(plan.network.namespaces && plan.cells.iter().all(super::Cell::is_overload));
    let [tenfold, refusal, course] = &plan.cells[..] else { panic!("three cells") };
    assert_eq!((tenfold.rounds(&plan), refusal.rounds(&plan)), (2, 6));
    let ends: Vec<u128> = (0..3).map(|step| course.end_of(step, &plan).0.as_millis()).collect();
    assert_eq!(ends, [4000, 6000, 7000]);
    let json = serde_json::to_string(&plan).expect("it has a JSON form");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("its own"), plan);
    let quick = plan.clone().shortened().expect("it has one");
    let names: Vec<&str> = quick.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!((names, quick.rounds, quick.servers.len()), (vec!["10x", "course"], 1, 1));
    assert_eq!(quick.cells[1].best_of, ["gate"]);
    let values = course.steps[2].values(plan.seed);
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    assert!(values.iter().all(|value| (500..=300_000).contains(value)), "{values:?}");
    // The distribution's mean is shape ÷ (shape − 1) × least × (1 − (least ÷ most)^(shape − 1)) ÷ (1 − (least ÷ most)^shape).
    assert!((mean / 1439.0 - 1.0).abs() < 0.05, "{mean}");
    let (first, again) = (&values[..9], course.steps[2].values(plan.seed));
    assert!(!first.is_sorted() && again == values, "in a random order that the seed decides");
}

/// Purpose: each mistake in words about overload is refused by its field, with what to write instead.
#[test]
fn mistakes_about_overload() {
    for (from, to, message) in [
        ("load = 10.0", "load = -1.0", "load: -1; write 0.001 to 1000"),
        ("load = 10.0", "load = 10.0\nrate = 5", "remove it, or remove rate and steps"),
        ("load = 10.0\ndeadline = \"200ms\"", "load = 10.0", "load: needs a deadline"),
        ("deadline = \"200ms\"", "deadline = \"61s\"", "deadline: write 1ms to 60s"),
        ("rounds = 2", "rounds = 0", "rounds: write 1 to 1000"),
        ("rounds = 1", "rounds = 0", "[quick]: rounds: write 1 to 1000"),
        (
            "cells = [\"10x\"",
            "cells = [\"11x\"",
            "[quick]: cells: \"11x\" is not in this plan; it has 10x",
        ),
        ("namespaces = true", "namespace = true", "unknown field `namespace`"),
        (
            "requests_per_connection = 10",
            "requests_per_connection = 10\nclose = true",
            "cannot be combined with close",
        ),
        ("refusal = \"/sleep\"", "refusal = \"sleep\"", "refusal: \"sleep\" is not a path"),
        ("rate = 10000", "rate = 0", "refusal: is measured at a rate"),
        ("samples = [\"http_a\"]", "samples = [\"a b\"]", "samples: \"a b\" is not a metric name"),
        ("\"x\", \"{metrics}\"", "\"x\"", "samples: server \"gate\" has no metrics port"),
        ("best_of = [\"none\"", "best_of = [\"nobody\"", "best_of: \"nobody\" is not a server"),
        ("at = \"4s\"", "at = \"10s\"", "step 2: at: is after the end of the cell"),
        ("lasts = \"1s\"", "lasts = \"1ms\"", "step 3: lasts: is less than 10ms"),
        ("values = [1, 2]\n", "", "step 2: values: or pareto stand for {value}"),
        ("values = [1, 2]\nrate = 5", "values = [1, 2]\nrate = 0", "step 2: random: needs a rate"),
        ("burst = 3", "burst = 0", "step 3: burst: 0; write 1 to 4096"),
        (
            "[11, 110]",
            "[11, 10]",
            "step 3: sources: [11, 10]; write the first and the last of 2 to 120",
        ),
        (
            "[11, 110]",
            "[1, 10]",
            "step 3: sources: [1, 10]; write the first and the last of 2 to 120",
        ),
        ("shape = 1.5", "shape = 0.0", "step 3: pareto: write { shape"),
        ("load = 2.0", "load = 2.0\nrate = 2", "step 1: load: and rate are two rates"),
    ] {
        assert!(OVERLOAD.contains(from), "{from}");
        let refused = Plan::parse(&OVERLOAD.replacen(from, to, 1)).expect_err(to);
        assert!(
            refused.iter().any(|refused| refused.what.contains(message)),
            "{to:?} is to be refused with {message:?}: {refused:?}"
        );
    }
}

/// Purpose: server and client never share a CPU, whatever is asked for, and what cannot be is refused.
#[test]
fn cpus() {
    let of = |server: Option<&str>, client: Option<&str>, allowed: &[usize]| {
        let mut plan = Plan::parse(WHOLE).expect("nothing is wrong with it");
        (plan.server_cpus, plan.client_cpus) =
            (server.map(str::to_owned), client.map(str::to_owned));
        Cpus::choose(&plan, allowed).map(|cpus| [show_cpus(&cpus.server), show_cpus(&cpus.client)])
    };
    let four = [0, 1, 2, 3];
    assert_eq!(of(Some("0-1"), Some("2,3"), &four).unwrap(), ["0,1", "2,3"]);
    assert_eq!(of(Some("2"), None, &four).unwrap(), ["2", "0,1,3"]);
    assert_eq!(of(None, Some("0"), &four).unwrap(), ["1", "0"]);
    assert_eq!(of(None, None, &four).unwrap(), ["0", "1,2,3"]);
    assert_eq!(of(None, None, &[4, 9]).unwrap(), ["4", "9"]);
    for (server, client, allowed, message) in [
        (Some("4"), None, &four[..], "server_cpus: CPU 4 may not be used here; these may: 0,1,2,3"),
        (None, Some("7"), &four, "client_cpus: CPU 7"),
        (None, None, &[0], "need a CPU each"),
        (Some("0-3"), None, &four, "need a CPU each"),
    ] {
        let problem = of(server, client, allowed).expect_err(message);
        assert!(problem.contains(message), "{problem}");
    }
}

proptest! {
    /// Purpose: whatever stands in a plan, it is read or refused with a line that is in it, and never panics.
    #[test]
    fn anything_is_read_or_refused(at in 0..WHOLE.len(), len in 0..40_usize, put in "[ -~\n\"=\\[\\]{}0-9µ]{0,12}") {
        let end = (at + len).min(WHOLE.len());
        let text = format!("{}{put}{}", &WHOLE[..at], &WHOLE[end..]);
        if let Err(refused) = Plan::parse(&text) {
            prop_assert!(!refused.is_empty());
            for refused in refused {
                prop_assert!(refused.line >= 1 && refused.line <= text.lines().count() + 1, "{:?}", refused);
                prop_assert!(!refused.what.is_empty());
            }
        }
    }

    /// Purpose: a plan that was read is the same when its JSON is read, whatever was changed in it.
    #[test]
    fn plans_survive_json(rounds in 1..1000_u32, rate in 0.001..1e7_f64, seed in any::<u32>(), micros in 10_000..9_000_000_u64) {
        let text = WHOLE
            .replace("rounds = 6", &format!("rounds = {rounds}"))
            .replace("seed = 7", &format!("seed = {seed}"))
            .replace("duration = \"1s\"", &format!("duration = \"{micros}us\""))
            .replace("rate = 1000.5", &format!("rate = {rate:?}"));
        let plan = Plan::parse(&text).expect("all within their ranges");
        prop_assert_eq!(plan.duration.0.as_micros(), u128::from(micros));
        let json = serde_json::to_string(&plan).expect("it has a JSON form");
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).expect("its own"), plan);
    }
}
