//! Plans of programs and services, and what cells have in common.

use super::{Metric, Plan, put, words, words_in};

const WHOLE: &str = r#"name = "clients"
duration = "2500ms"

[parts]
proxy = "nginx.conf"

[[service]]
name = "broker"
start = ["start-broker"]
stop = ["stop-broker"]
running = ["is-running"]
env = { A = "b" }

[[server]]
name = "ours"
command = ["arena", "{port}"]
ready = "/"

[[program]]
name = "wrk"
command = ["wrk", "-c{connections}", "-d{seconds}s", "{url}", "{service.broker}", "{size}"]
env = { RATE = "{rate}" }
within = "9s"

[program.figures]
requests = { pattern = '(\d+) requests', times = "{size}" }
p99_us = { pattern = '99%\s+([\d.]+)', unit = "ms" }

[[program]]
name = "load"
command = ["load", "{url}"]
program = "highwater"
server = "ours"

[program.figures]
requests = { json = ["ok"] }
errors = { json = ["errors", "timeouts"], absent = 0 }

[cell_defaults]
path = "/plaintext"
expect = "Hello"
server = "ours"
variables = { size = "10" }

[[cell]]
name = "64"

[[cell]]
name = "paced"
path = "/other"
rate = 20000
programs = ["load"]
aa = false
"#;

/// Purpose: every word about programs is read, a cell has what it does not say from `[cell_defaults]`, and a plan in a
/// record is the plan that was read.
#[test]
fn a_plan_of_programs() {
    let plan = Plan::parse(WHOLE).expect("nothing is wrong with it");
    let names: Vec<&str> = plan.contenders().map(super::Contender::name).collect();
    assert_eq!(names, ["wrk", "load"]);
    assert_eq!(plan.metric(), Metric::ClientCoreSecond);
    let [first, paced] = &plan.cells[..] else { panic!("two cells") };
    assert_eq!((first.path.as_str(), paced.path.as_str()), ("/plaintext", "/other"));
    assert_eq!((first.expect.as_deref(), paced.expect.as_deref()), (Some("Hello"), Some("Hello")));
    assert!(first.has_aa() && !paced.has_aa());
    assert_eq!(plan.contenders_of(paced).collect::<Vec<_>>(), ["load"]);
    let background = |program: usize| plan.server_beside(&plan.programs[program], first);
    assert_eq!(background(0).map(|server| server.name.as_str()), Some("ours"));
    assert_eq!(plan.programs[1].measured_program(), "highwater");
    assert_eq!(plan.programs[0].within.0.as_secs(), 9);
    assert_eq!((plan.services[0].running.len(), plan.parts["proxy"].as_str()), (1, "nginx.conf"));
    let json = serde_json::to_string(&plan).expect("it has a JSON form");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("its own"), plan);
}

/// Purpose: words in braces are replaced by what the cell says, once; other braces stay.
#[test]
fn words_in_braces() {
    let plan = Plan::parse(WHOLE).expect("nothing is wrong with it");
    let words = words(&plan, &plan.cells[1], &plan.programs[0], Some(("127.0.0.1", 80)));
    for (text, expected) in [
        ("-c{connections} -d{seconds}s", "-c64 -d2.5s"),
        ("{url}", "http://127.0.0.1:80/other"),
        ("{rate}/{size}", "20000/10"),
        ("{\"ok\":{}} ${HOME:-x} {1} {unknown}", "{\"ok\":{}} ${HOME:-x} {1} {unknown}"),
        ("{{size}}", "{10}"),
        ("{size", "{size"),
    ] {
        assert_eq!(put(text, &words), expected);
    }
    assert_eq!(words_in("{a} {B} {service.x-1} {} {a"), ["a", "service.x-1"]);
    let twice = [("a".to_owned(), "{b}".to_owned()), ("b".to_owned(), "c".to_owned())].into();
    assert_eq!(put("{a}{b}", &twice), "{b}c", "what replaces a word is not looked at again");
}

/// Purpose: each mistake is refused on its line, by its field, with what to write instead.
#[test]
fn mistakes_about_programs() {
    for (from, to, line, message) in [
        (
            "name = \"load\"",
            "name = \"wrk\"",
            30,
            "is the name of another program or server; choose another",
        ),
        ("program = \"highwater\"", "workers = 2", 32, "unequal workers"),
        (
            "server = \"ours\"\n\n[p",
            "server = \"yours\"\n\n[p",
            33,
            "not a server of this plan; it has ours",
        ),
        ("within = \"9s\"", "within = \"1ms\"", 23, "write 100ms to 1h"),
        ("requests = { json = [\"ok\"] }\n", "", 29, "figures: have no requests; write"),
        (
            "[program.figures]\nrequests = { json",
            "[program.other]\nrequests = { json",
            35,
            "unknown field",
        ),
        ("errors = {", "erors = {", 37, "erors: is not a figure; write some of requests"),
        ("requests = { json = [\"ok\"]", "requests = { absent = 1", 36, "write either pattern"),
        ("json = [\"ok\"]", "json = [\"ok\"], unit = \"ms\"", 36, "is not a time; remove the unit"),
        ("'(\\d+) requests'", "'\\d+ requests'", 26, "has no group"),
        ("'(\\d+) requests'", "'(\\d+ requests'", 26, "requests: \"(\\\\d+ requests\""),
        ("times = \"{size}\"", "times = \"{sise}\"", 26, "times is \"{sise}\" in cell \"64\""),
        (
            "-c{connections}",
            "-c{conections}",
            21,
            "{conections} in cell \"64\" is not a word of the cell",
        ),
        (
            "{service.broker}",
            "{service.brokr}",
            21,
            "{service.brokr} in cell \"64\" is not a service",
        ),
        ("\"arena\", \"{port}\"", "\"arena\", \"{service.x}\"", 16, "{service.x} is not a service"),
        ("name = \"broker\"", "name = \"the broker\"", 8, "it stands in {service.NAME}"),
        ("start = [\"start-broker\"]", "start = []", 9, "start: is empty; write"),
        ("start = [\"start-broker\"]", "", 7, "missing field `start`; write"),
        (
            "server = \"ours\"\nvariables",
            "variables",
            21,
            "{url} in cell \"64\" belongs to a server",
        ),
        (
            "server = \"ours\"\nvariables",
            "server = \"x\"\nvariables",
            42,
            "\"x\" is not a server that runs",
        ),
        (
            "variables = { size",
            "variables = { rate = \"1\", size",
            43,
            "no word that cells have anyway",
        ),
        ("rate = 20000", "deadline = \"1s\"", 51, "deadline: applies to servers only"),
        (
            "duration = \"2500ms\"",
            "metric = \"requests_per_server_core_second\"",
            2,
            "metric: is not measured here",
        ),
        ("duration = \"2500ms\"", "metric = \"speed\"", 2, "unknown variant"),
        (
            "duration = \"2500ms\"",
            "shared_cpus = true\nclient_cpus = \"0\"",
            3,
            "are the server's with shared_cpus",
        ),
        ("proxy = \"nginx.conf\"", "proxy = \"\"", 1, "parts: \"proxy\"; write"),
        ("path = \"/plaintext\"\n", "", 44, "missing field `path`"),
        ("path = \"/plaintext\"", "path = \"plaintext\"", 40, "is not a path"),
        (
            "[cell_defaults]\npath = \"/plaintext\"",
            "[cell_defaults]\npaht = \"/plaintext\"",
            40,
            "unknown field `paht`",
        ),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let refused = Plan::parse(&WHOLE.replacen(from, to, 1)).expect_err(to);
        assert!(
            refused.iter().any(|refused| refused.line == line && refused.what.contains(message)),
            "{to:?} is to be refused on line {line} with {message:?}: {refused:?}"
        );
    }
    let servers = "name = \"a\"\ncell_defaults = 1\n";
    let refused = Plan::parse(servers).expect_err("it is no table");
    assert!(refused[0].what.contains("write [cell_defaults]"), "{refused:?}");
}

/// Purpose: servers that no program has, and words about programs where there are none, are refused.
#[test]
fn programs_or_servers() {
    let alone = "[[server]]\nname = \"alone\"\ncommand = [\"x\"]\nready = \"/\"\n\n[cell_defaults]";
    let refused =
        Plan::parse(&WHOLE.replace("[cell_defaults]", alone)).expect_err("no program has it");
    assert!(refused[0].what.contains("none of them uses this server"), "{refused:?}");
    let servers = "name = \"a\"\n[[server]]\nname = \"s\"\ncommand = [\"x\"]\nready = \"/\"\n\
                   [[cell]]\nname = \"c\"\npath = \"/\"\nexpect = \"\"\n";
    for (from, to, message) in [
        ("name = \"a\"", "name = \"a\"\nshared_cpus = true", "shared_cpus: is for programs"),
        ("name = \"c\"", "name = \"c\"\nserver = \"s\"", "this plan has 0 programs"),
        ("name = \"c\"", "name = \"c\"\nvariables = { a = \"1\" }", "variables: are for programs"),
        ("path = \"/\"\n", "", "missing field `path`; add it"),
    ] {
        let refused = Plan::parse(&servers.replacen(from, to, 1)).expect_err(to);
        assert!(refused.iter().any(|refused| refused.what.contains(message)), "{to}: {refused:?}");
    }
}
