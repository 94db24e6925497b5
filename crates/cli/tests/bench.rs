//! `highwater bench` as it is called: real servers that do what they should, and servers that do not.
//!
//! The servers are this program: `highwater` starts it again, told by its environment what to do.

#[path = "bench/overload.rs"]
mod overload;
#[path = "bench/programs.rs"]
mod programs;
#[path = "bench/scene.rs"]
mod scene;
#[path = "bench/servers.rs"]
mod servers;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use scene::{Scene, assert_measured, bench, cpus_or_skip, json_of, text_of, until};
use serde_json::Value;

/// Purpose: a run of good servers measures every row, with every field that is promised; its record says under what
/// it was made; `show`, `claim` and `compare` read it, and a verdict is said by the exit status too.
#[test]
fn a_run_and_what_reads_it() {
    let Some(scene) = cpus_or_skip("run") else { return };
    let servers = scene.server("ours", "good", "") + &scene.server("theirs", "good", "");
    let cells = scene.cell("hello", "pipeline = 4")
        + &scene.cell("paced", "rate = 500\nburst = 5\nclose = true");
    let plan = scene.plan(2, &(servers + &cells));
    let run = scene.run(&plan);
    assert_measured(&run);
    assert!(text_of(&run).contains(" s left: "), "{}", text_of(&run));
    let record = scene.record("r.json");
    assert_eq!(record["plan"]["name"], "test");
    for field in
        ["machine", "seed", "server_cpus", "client_cpus", "started", "highwater", "servers"]
    {
        assert!(!record["environment"][field].is_null(), "{field}: {}", record["environment"]);
    }
    let rows = record["cells"].as_array().expect("a list");
    // More than two rounds only if the machine spoiled pairs.
    assert!((8..=16).contains(&rows.len()), "{}", rows.len());
    for row in rows.iter().chain(record["aa"]["rows"].as_array().expect("a list")) {
        assert_eq!(row["status"], "ok", "{row}");
        let numbers =
            ["round", "errors", "non_2xx", "client_busy", "p50_us", "p99_us", "p999_us", "c2c_ns"];
        assert!(numbers.iter().all(|field| !row[field].is_null()), "{row}");
        for field in ["requests", "rps", "server_cpu_us_per_request", "server_rss_kib", "checked"] {
            assert!(row[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {row}");
        }
    }
    assert!(
        record["aa"]["rows"].as_array().is_some_and(|rows| rows.len() >= 8),
        "{}",
        record["aa"]
    );
    let path = scene.path("r.json");
    let between = ["--baseline", "ours", "--candidate", "theirs", "--cell", "hello", "--json"];
    let claim = bench(&[&["claim", &path][..], &between].concat());
    let json = json_of(&claim);
    let code = match json["verdict"].as_str().expect("it has one") {
        "faster" => 0,
        "slower" | "same" => 1,
        "void" => 2,
        other => panic!("{other}"),
    };
    assert_eq!(claim.status.code(), Some(code), "{json}");
    for field in ["metric", "ratio", "noise", "pairs", "reasons"] {
        assert!(json.get(field).is_some(), "{field}: {json}");
    }
    let shown = bench(&["show", &path]);
    assert!(shown.status.success() && text_of(&shown).contains("A/A: "), "{}", text_of(&shown));
    assert_eq!(
        json_of(&bench(&["show", &path, "--json"]))["summaries"].as_array().map(Vec::len),
        Some(4)
    );
    let compared = bench(&["compare", &path, &path, "--json"]);
    assert!(json_of(&compared)["changes"].is_array(), "{}", text_of(&compared));
}

/// Purpose: whatever a server does wrong, its row is void with a reason that says what, the others are measured, and
/// no claim is made over it.
#[test]
fn void_rows() {
    let Some(scene) = cpus_or_skip("void") else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let taken = taken.local_addr().map(|address| (taken, address.port())).expect("it is bound");
    let cases = [
        ("silent", "silent", "", "not ready within 8s"),
        (
            "crashes",
            "crashes",
            "",
            "it ended before it was ready (exit status 7): it said: cannot start",
        ),
        (
            "lies",
            "lies",
            "",
            "before: GET /hello answered 5 bytes \"Lies!\", expected 5 bytes \"Hello\"",
        ),
        ("late-lies", "late-lies", "", "answered 5 bytes \"Lies!\""),
        ("dies", "dies", "", "the server ended while it was measured (exit status 9)"),
        ("fails", "fails", "", "before: GET /hello answered 500"),
        ("occupied", "good", &format!("port = {}", taken.1), "is in use"),
    ];
    let absent =
        "[[server]]\nname = \"absent\"\ncommand = [\"no-such-program\"]\nready = \"/hello\"\n";
    let shell = "[[server]]\nname = \"shell\"\ncommand = [\"/bin/sh\", \"-c\", \"true\"]\n\
                 program = \"no-such-program\"\nready = \"/hello\"\n";
    let servers: String =
        cases.iter().map(|(name, does, more, _)| scene.server(name, does, more)).collect();
    let servers = scene.server("good", "good", "") + &servers + absent + shell;
    let text = servers + &scene.cell("hello", "");
    let plan = scene.plan(1, &text);
    let path = scene.path("r.json");
    let run = scene.run(&plan);
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    let said_first = "absent: there is no program no-such-program; build or install it; without it, all its rows are void";
    assert!(text_of(&run).contains(said_first), "{}", text_of(&run));
    let record = scene.record("r.json");
    let rows = record["cells"].as_array().expect("a list");
    let row = |name: &str| rows.iter().find(|row| row["server"] == name).expect("each has a row");
    assert_eq!(row("good")["status"], "ok", "{}", row("good"));
    let absent = ("absent", "", "", "there is no program no-such-program; build or install it");
    let shell = ("shell", absent.1, absent.2, absent.3);
    for (name, _, _, reason) in cases.into_iter().chain([absent, shell]) {
        assert_eq!(row(name)["status"], "void", "{name}: {}", row(name));
        let text = row(name)["reason"].as_str().expect("void rows have one");
        assert!(text.contains(reason), "{name}: {text}");
        let claim = bench(&["claim", &path, "--baseline", "good", "--candidate", name, "--json"]);
        assert_eq!(claim.status.code(), Some(2), "{}", text_of(&claim));
        let claim = json_of(&claim);
        assert_eq!(claim["verdict"], "void", "{claim}");
        assert!(claim["reasons"][0].as_str().is_some_and(|text| text.contains(reason)), "{claim}");
    }
    let shown = text_of(&bench(&["show", &path]));
    assert!(shown.contains("void: absent: 1 of 1: there is no program"), "{shown}");
}

/// Purpose: a server's cost is that of all its processes: one that has its work done by a child costs as much.
#[test]
fn children_are_counted() {
    let Some(scene) = cpus_or_skip("children") else { return };
    let plan = scene.plan(1, &(scene.server("parent", "parent", "") + &scene.cell("hello", "")));
    let run = scene.run(&plan);
    assert_measured(&run);
    let record = scene.record("r.json");
    // The parent only waits. What answering costs at least: a system call or two.
    let cost = record["cells"][0]["server_cpu_us_per_request"].as_f64().expect("it was measured");
    assert!(cost > 0.5, "{cost} µs per request");
}

/// Purpose: a run that is killed loses the row it was measuring, leaves no process behind, and goes on where it was:
/// what had been measured is kept to the digit, and nothing is measured twice.
#[test]
fn killed_and_resumed() {
    let Some(scene) = cpus_or_skip("resume") else { return };
    let servers = scene.server("ours", "parent", "") + &scene.server("theirs", "good", "");
    let plan = scene.plan(2, &(servers + &scene.cell("hello", "")));
    let path = scene.path("r.json");
    let flags = ["run", &plan, "--out", &path];
    let mut killed = scene::command(&flags).spawn().expect("the binary under test was built");
    until("it measures its rounds", || scene.rows("r.json").len() >= 5);
    until("a server runs", || !scene.living().is_empty());
    killed.kill().expect("it runs");
    killed.wait().expect("it was started");
    until("all its processes are gone", || scene.living().is_empty());
    let before = scene.rows("r.json");
    let refused = bench(&flags);
    assert_eq!(refused.status.code(), Some(2), "{}", text_of(&refused));
    assert!(
        text_of(&refused).contains("r.json exists: --resume goes on with it"),
        "{}",
        text_of(&refused)
    );
    assert_eq!(scene.rows("r.json"), before);
    let resumed = bench(&[&flags[..], &["--resume"]].concat());
    assert_measured(&resumed);
    let after = scene.rows("r.json");
    assert!(before.iter().all(|row| after.contains(row)), "a row was lost or measured again");
    // The A/A run's four and the servers' four; more only if the machine spoiled pairs.
    assert!((8..=16).contains(&after.len()), "{}", after.len());
    let record = scene.record("r.json");
    let rows = record["cells"].as_array().expect("a list");
    let mut keys: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row["server"], row["cell"], row["round"]))
        .collect();
    keys.sort();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count, "a row is there twice: {keys:?}");
    assert!(scene.living().is_empty(), "{:?}", scene.living());
    // A complete run has nothing left to do; another plan is refused.
    let again = bench(&[&flags[..], &["--resume"]].concat());
    assert_measured(&again);
    assert!(
        text_of(&again).contains("r.json is complete; nothing was measured"),
        "{}",
        text_of(&again)
    );
    assert_eq!(scene.rows("r.json"), after);
    // How often is decided before anything is measured.
    let longer = bench(&[&flags[..], &["--resume", "--rounds", "9"]].concat());
    assert_eq!(longer.status.code(), Some(2), "{}", text_of(&longer));
    assert!(text_of(&longer).contains("was begun with 2 rounds"), "{}", text_of(&longer));
    assert_eq!(scene.rows("r.json"), after);
    let changed =
        std::fs::read_to_string(&plan).expect("just written").replace("seed = 3", "seed = 4");
    std::fs::write(&plan, changed).expect("the folder is ours");
    let other = bench(&[&flags[..], &["--resume"]].concat());
    assert_eq!(other.status.code(), Some(2));
    assert!(text_of(&other).contains("of another plan"), "{}", text_of(&other));
}

/// Purpose: rows of two programs, or of two machines, do not come into one record: a program that is rebuilt during a
/// run makes the rows of that run void, and a record is not continued with another program, or on another machine.
#[test]
fn records_of_one_program_and_one_machine() {
    let Some(scene) = cpus_or_skip("changed") else { return };
    let program = scene.path("program");
    let build = |version: &str| {
        std::fs::write(&program, format!("#!/bin/sh\n# {version}\n")).expect("the folder is ours");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("it was just written");
    };
    build("1");
    let servers = scene.server("ours", "good", &format!("program = {program:?}"))
        + &scene.server("theirs", "good", "");
    let plan = scene.plan(2, &(servers + &scene.cell("hello", "")));
    let path = scene.path("r.json");
    let mut run = scene::command(&["run", &plan, "--out", &path]);
    let run = run.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let run = run.spawn().expect("the binary under test was built");
    until("it measures", || !scene.rows("r.json").is_empty());
    build("2");
    let run = run.wait_with_output().expect("it was started");
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    assert!(text_of(&run).contains("its program was changed during the run"), "{}", text_of(&run));
    let rows = scene.rows("r.json");
    for row in &rows {
        assert_eq!(row["status"], if row["server"] == "ours" { "void" } else { "ok" }, "{row}");
    }
    let resume = || {
        let resumed = bench(&["run", &plan, "--out", &path, "--resume"]);
        assert_eq!(resumed.status.code(), Some(2), "{}", text_of(&resumed));
        assert_eq!(scene.rows("r.json"), rows);
        text_of(&resumed)
    };
    let output = resume();
    let expected =
        "server ours: its program has changed since this record was begun; give another --out";
    assert!(output.contains(expected), "{output}");
    build("1");
    let mut record = scene.record("r.json");
    record["environment"]["machine"]["kernel"] = "0.1".into();
    std::fs::write(&path, record.to_string()).expect("the folder is ours");
    let output = resume();
    assert!(
        output.contains("machine: kernel: the record was begun with 0.1, now it is "),
        "{output}"
    );
}

/// Purpose: Ctrl-C ends a run soon, keeps what was measured, says how to go on, and leaves no process behind.
#[test]
fn interrupted() {
    let Some(scene) = cpus_or_skip("interrupt") else { return };
    let plan = scene.plan(500, &(scene.server("ours", "parent", "") + &scene.cell("hello", "")));
    let mut run = scene::command(&["run", &plan, "--out", &scene.path("r.json")]);
    let run =
        run.stderr(std::process::Stdio::piped()).spawn().expect("the binary under test was built");
    until("it has measured something", || scene.rows("r.json").len() >= 2);
    scene::interrupt(run.id());
    let run = run.wait_with_output().expect("it was started");
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    assert!(text_of(&run).contains("interrupted; --resume"), "{}", text_of(&run));
    assert!(scene.living().is_empty(), "{:?}", scene.living());
    assert!(scene.rows("r.json").iter().all(|row| row["status"] == "ok"));
}

/// Purpose: a run whose record can no longer be saved, as on a full disk, ends with exit status 1: it did start. It says
/// where the rows are, and leaves no half of a record.
#[test]
fn a_record_that_cannot_be_saved_any_more() {
    let Some(scene) = cpus_or_skip("unsaved") else { return };
    let plan = scene.plan(500, &(scene.server("ours", "good", "") + &scene.cell("hello", "")));
    let path = scene.path("r.json");
    let mut run = scene::command(&["run", &plan, "--out", &path]);
    let run =
        run.stderr(std::process::Stdio::piped()).spawn().expect("the binary under test was built");
    until("it has measured something", || !scene.rows("r.json").is_empty());
    // A folder in its place; the run may save a row in between.
    until("the record is in the way", || {
        std::fs::rename(&path, scene.path("saved.json")).is_ok()
            && std::fs::create_dir_all(scene.path("r.json/occupied")).is_ok()
    });
    let run = run.wait_with_output().expect("it was started");
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    let output = text_of(&run);
    assert!(
        output.contains("the rows that were saved are in") && output.contains("--resume"),
        "{output}"
    );
    assert!(!std::path::Path::new(&scene.path("r.json.new")).exists());
    assert!(scene.living().is_empty(), "{:?}", scene.living());
}

/// Purpose: what cannot be measured fairly, or not at all, is refused before anything starts, with exit status 2 and
/// one line that names file, line, field and remedy.
#[test]
fn refused_plans() {
    let scene = Scene::new("refused");
    let good =
        scene.server("a", "good", "") + &scene.server("b", "good", "") + &scene.cell("hello", "");
    for (from, to, message) in [
        (
            "workers = 1\nready = \"/hello\"\n[[cell",
            "workers = 2\nready = \"/hello\"\n[[cell",
            "unequal workers",
        ),
        ("workers = 1", "wokers = 1", "unknown field `wokers`; did you mean `workers`?"),
        ("rounds = 1", "rounds = -2", "rounds: integer -2 is not a whole number"),
        ("rounds = 1", "rounds = \"two\"", "rounds: string \"two\" is not a whole number"),
        ("ready = \"/hello\"", "", "missing field `ready`; write ready = "),
        (
            "seed = 3",
            "server_cpus = \"0\"\nclient_cpus = \"0\"",
            "client_cpus: CPU 0 is in server_cpus too",
        ),
        (
            "seed = 3",
            "server_cpus = \"70000\"",
            "server_cpus: \"70000\" is not a list of CPUs; write",
        ),
        ("seed = 3", "server_cpus = \"60000\"", "server_cpus: CPU 60000 may not be used here"),
        ("rounds = 1", "rounds = 0", "rounds: 0; write 1 to 1000"),
        ("connections = 4", "load = 2.0", "load: needs a deadline"),
        ("connections = 4", "samples = [\"x\"]", "samples: server \"a\" has no metrics port"),
        ("name = \"test\"", "name = test", "plan.toml:1: "),
    ] {
        let plan = scene.plan(1, &good);
        let text = std::fs::read_to_string(&plan).expect("just written");
        assert!(text.contains(from), "{from}");
        std::fs::write(&plan, text.replacen(from, to, 1)).expect("the folder is ours");
        let run = bench(&["run", &plan, "--out", &scene.path("r.json")]);
        assert_eq!(run.status.code(), Some(2), "{to}: {}", text_of(&run));
        assert!(text_of(&run).contains(message), "{to}: {}", text_of(&run));
        assert!(text_of(&run).contains("plan.toml"), "{to}: {}", text_of(&run));
    }
    let plan = scene.plan(1, &scene.cell("hello", ""));
    let none = bench(&["run", &plan]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        text_of(&none).contains("server: none is given; add a [[server]]"),
        "{}",
        text_of(&none)
    );
    let plan = scene.plan(1, &good);
    for (flags, message) in [
        (
            &["run", &plan, "--only", "hullo"][..],
            "--only hullo: no cell of this plan; it has hello",
        ),
        (&["run", &plan, "--rounds", "0"], "1..=1000"),
        (&["run", &plan, "--quick"], "this plan has no [quick]; use --rounds and --only"),
        (&["run", "no-such-plan.toml"], "no-such-plan.toml"),
        (&["show", "no-such-record.json"], "there is no record"),
        (&["claim", &plan, "--baseline", "a", "--candidate", "b"], "give a record that"),
        (&["compare", &plan, &plan], "give a record that"),
    ] {
        let refused = bench(flags);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {}", text_of(&refused));
        assert!(text_of(&refused).contains(message), "{flags:?}: {}", text_of(&refused));
    }
    assert!(!std::path::Path::new(&scene.path("r.json")).exists());
}

/// Purpose: a difference that is there is found with about its size, the same server twice is called the same, and
/// an unpaired comparison of their records agrees. A measurement: `make bench-selftest` runs it on a quiet machine.
#[test]
#[ignore = "a measurement of two minutes, for a quiet machine: make bench-selftest"]
fn a_slowed_handler_is_found() {
    let Some(scene) = cpus_or_skip("slowed") else { return };
    let busy = |name: &str, nanos: u32| {
        let program = scene::example("busy");
        format!(
            "[[server]]\nname = {name:?}\ncommand = [{program:?}, \"127.0.0.1:{{port}}\", \"{nanos}\"]\n\
             ready = \"/plaintext\"\n"
        )
    };
    let servers = busy("fast", 0) + &busy("twin", 0) + &busy("slow", 300);
    let cell =
        "[[cell]]\nname = \"plaintext\"\npath = \"/plaintext\"\nexpect = \"Hello, World!\"\n";
    let plan = scene.plan(12, &(servers + cell));
    let text = std::fs::read_to_string(&plan).expect("just written");
    let text = text.replace("\"400ms\"", "\"600ms\"").replace("\"50ms\"", "\"300ms\"");
    std::fs::write(&plan, text).expect("the folder is ours");
    let path = scene.path("r.json");
    let run = bench(&["run", &plan, "--out", &path]);
    eprintln!("{}", text_of(&run));
    assert_eq!(run.status.code(), Some(0));
    let claim = |candidate: &str| {
        let claim =
            bench(&["claim", &path, "--baseline", "fast", "--candidate", candidate, "--json"]);
        eprintln!("{}", text_of(&claim));
        json_of(&claim)
    };
    let (twin, slow) = (claim("twin"), claim("slow"));
    assert_eq!(twin["verdict"], "same", "{twin}");
    assert_eq!(slow["verdict"], "slower", "{slow}");
    let costs = json_of(&bench(&["show", &path, "--json"]));
    let cost = |name: &str| -> f64 {
        let summaries: &Vec<Value> = costs["summaries"].as_array().expect("a list");
        let summary =
            summaries.iter().find(|summary| summary["server"] == name).expect("each has one");
        summary["server_cpu_us_per_request"].as_f64().expect("it was measured")
    };
    // From the paired ratio, so that the machine's speeds are not in it.
    let ratio = slow["ratio"]["median"].as_f64().expect("it was measured");
    let found = Duration::from_nanos(((1.0 / ratio - 1.0) * cost("fast") * 1e3) as u64);
    eprintln!("300 ns in the handler were found as {found:?}");
    assert!((180..=420).contains(&found.as_nanos()), "{found:?}");
}
