//! Plans that ask for too much, as they are run.

use serde_json::Value;

use crate::scene::{self, assert_measured, bench, cpus_or_skip, text_of, until};

const SHED: &str = "--shed accept";
/// Of 4 ms each: a core does 250 a second, and less here. A machine that others use may let a server wait for long.
const WORK: &str = "deadline = \"2s\"\nclose = true\nduration = \"1s\"\nwarm_up = \"300ms\"\n";

/// A cell of requests that take 4 ms.
fn work(name: &str, more: &str) -> String {
    format!(
        "[[cell]]\nname = {name:?}\npath = \"/work\"\nexpect = \"Hello\"\nconnections = 2000\n{WORK}{more}\n"
    )
}

fn step(name: &str, more: &str) -> String {
    format!("[[cell.step]]\nname = {name:?}\n{more}\n")
}

fn row<'a>(record: &'a Value, cell: &str, server: &str) -> &'a Value {
    let rows = record["cells"].as_array().expect("a list");
    let is_it = |row: &&Value| row["cell"] == cell && row["server"] == server;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no row of {cell} {server}: {rows:?}"))
}

/// Purpose: a load in capacities is measured beside its own server's peak, steps with the server's metrics meanwhile,
/// bursts without a refusal; a run that is killed goes on without measuring anything twice; what it measured is shown and
/// exported, and no claim is made of it.
#[test]
fn too_much() {
    let Some(scene) = cpus_or_skip("overload") else { return };
    let samples = "samples = [\"http_scaling_connection_limit\", \"http_scaling_demand_ratio\"]\n";
    let course = work("course", &format!("{samples}best_of = [\"shed\"]"))
        + &step("half", "load = 0.5")
        + &step("twice", "at = \"500ms\"\nload = 2.0");
    let pages = work("pages", "refuses_nothing = true").replace("\"2s\"", "\"30s\"")
        + &step("page", "burst = 5\nrate = 10\nlasts = \"900ms\"")
        + &step("beside", "path = \"/hello\"\nrate = 20\nrandom = true\nclose = false");
    // The cell whose rows take least: it measures no capacity.
    let quick = "[quick]\nrounds = 1\ncells = [\"pages\"]\n";
    let cells = work("3x", "load = 3.0") + &course + &pages + &scene.cell("plain", "rate = 100");
    let servers = scene.busy_server("shed", SHED) + &scene.busy_server("none", "--shed none");
    let plan = scene.plan(1, &(quick.to_owned() + &servers + &cells));
    let path = scene.path("r.json");
    let flags = ["run", &plan, "--out", &path];
    let only = [&flags[..], &["--only", "3x", "--only", "course", "--only", "pages"]].concat();
    let mut killed = scene::command(&only).spawn().expect("the binary under test was built");
    until("it measures", || !scene.rows("r.json").is_empty());
    killed.kill().expect("it runs");
    killed.wait().expect("it was started");
    until("all its processes are gone", || scene.living().is_empty());
    let before = scene.rows("r.json");
    let run = bench(&[&only[..], &["--resume"]].concat());
    assert_measured(&run);
    let record = scene.record("r.json");
    let rows = scene.rows("r.json");
    assert!(before.iter().all(|row| rows.contains(row)), "a row was lost or measured again");
    assert_eq!(rows.len(), 6, "two servers in three cells, once, and no A/A run");
    let tenfold = row(&record, "3x", "shed");
    for field in ["goodput_per_s", "sent", "refused", "timeouts", "softirq", "limit"] {
        assert!(tenfold[field].is_number(), "{field}: {tenfold}");
    }
    assert_eq!(tenfold["peaks_per_s"].as_array().map(Vec::len), Some(2), "{tenfold}");
    assert!(tenfold["goodput_of_peak"].as_f64().is_some_and(|share| share > 0.0), "{tenfold}");
    let load = tenfold["load"].as_f64().expect("it was asked for");
    assert!((1.0..9.0).contains(&load), "{tenfold}");
    let course = row(&record, "course", "shed");
    let (first, second) = (&course["steps"][0], &course["steps"][1]);
    assert_eq!((&first["name"], &second["name"]), (&"half".into(), &"twice".into()));
    let rate = |step: &Value| step["rate"].as_f64().expect("it had one");
    assert!((3.0..5.0).contains(&(rate(second) / rate(first))), "four times as much: {course}");
    assert!(second["begin_s"].as_f64().is_some_and(|at| at >= 0.5), "{course}");
    for series in ["goodput_per_s", "http_scaling_connection_limit", "http_scaling_demand_ratio"] {
        assert!(
            course["series"][series].as_array().is_some_and(|points| !points.is_empty()),
            "{course}"
        );
    }
    let pages = row(&record, "pages", "shed");
    assert_eq!(pages["steps"][0]["ok"], pages["steps"][0]["sent"], "{pages}");
    assert!(pages["steps"][0]["sent"].as_u64().is_some_and(|sent| sent >= 5), "{pages}");
    let shown = text_of(&bench(&["show", &path]));
    for text in ["of peak", "-- twice, best is shed", "http_scaling_demand_ratio"] {
        assert!(shown.contains(text) || is_disturbed(&shown), "{text}: {shown}");
    }
    let between = ["--baseline", "none", "--candidate", "shed", "--cell", "3x"];
    let claim = bench(&[&["claim", &path][..], &between].concat());
    assert_eq!(claim.status.code(), Some(2));
    assert!(text_of(&claim).contains("about goodput under overload"), "{}", text_of(&claim));
    exported(&scene, &path, is_disturbed(&shown));
    let other = scene.path("quick.json");
    let quick = bench(&["run", &plan, "--out", &other, "--quick"]);
    assert_measured(&quick);
    let rows = scene.rows("quick.json");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["cell"] == "pages"), "{rows:?}");
}

/// What SQL sees of the record. Steps and signals are those of rows that count.
fn exported(scene: &scene::Scene, path: &str, is_disturbed: bool) {
    let db = scene.path("r.sqlite");
    let export = bench(&["export", "--db", &db, path]);
    assert!(export.status.success(), "{}", text_of(&export));
    let database = rusqlite::Connection::open(&db).expect("it was written");
    let count = |sql: &str| -> i64 {
        database
            .query_row(sql, [], |row| row.get(0))
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    assert_eq!(
        count("SELECT count(*) FROM overload WHERE cell = '3x' AND goodput_of_peak IS NOT NULL"),
        2
    );
    if !is_disturbed {
        assert_eq!(count("SELECT count(*) FROM steps WHERE cell = 'course'"), 4);
        let demand = "SELECT count(*) FROM signals WHERE metric = 'http_scaling_demand_ratio'";
        assert!(count(demand) > 0);
    }
    assert!(count("SELECT count(*) FROM series WHERE name = 'goodput_per_s'") > 0);
}

/// Purpose: a cell in which everything is to be answered with 2xx is void if something was not, with how much.
#[test]
fn refusals_where_none_may_be() {
    let Some(scene) = cpus_or_skip("refuses") else { return };
    let servers = scene.busy_server("one", SHED);
    // The answer that is compared is right; the step asks for what is not there.
    let page = "path = \"/nothing\"\nburst = 10\nrate = 20";
    let cell = work("pages", "refuses_nothing = true") + &step("page", page);
    let run = scene.run(&scene.plan(1, &(servers + &cell)));
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    let record = scene.record("r.json");
    let reason = row(&record, "pages", "one")["reason"].as_str().expect("it is void").to_owned();
    assert!(
        reason.contains("requests were not answered with 2xx, and nothing was to be refused"),
        "{reason}"
    );
}

/// Purpose: in a network of its own, what a refusal costs is measured, and the law stands beside the share of the peak.
#[test]
fn a_network_of_its_own() {
    let Some(scene) = cpus_or_skip("network") else { return };
    let one = format!("{SHED} --limiter fixed --connection-limit 1");
    let network = "[network]\nnamespaces = true\n";
    let refusal = work("refusal", "refusal = \"/hold\"\nrate = 500");
    let plan = scene.plan(
        1,
        &(network.to_owned()
            + &scene.busy_server("one", &one)
            + &refusal
            + &work("2x", "load = 2.0")),
    );
    let run = scene.run(&plan);
    let record = scene.record("r.json");
    let reason = row(&record, "2x", "one")["reason"].as_str().unwrap_or_default().to_owned();
    if reason.contains("run it as root") {
        return highwater_skip::skip("root", &reason);
    }
    // The core may be so busy with others' work that what it lost cannot be told; then the row says so.
    let refusal = row(&record, "refusal", "one");
    if refusal["status"] == "void" {
        let reason = refusal["reason"].as_str().expect("void rows have one");
        assert!(reason.contains("no free moment"), "{reason}");
        return;
    }
    assert_measured(&run);
    let cost = refusal["cpu_us_per_refusal"].as_f64().expect("it was measured");
    assert!(cost.is_finite(), "{refusal}");
    assert!(record["environment"]["network"].as_str().is_some_and(|text| text.contains("veth")));
    let shown = text_of(&bench(&["show", &scene.path("r.json")]));
    if !is_disturbed(&shown) {
        assert!(row(&record, "2x", "one")["law"].is_number(), "{record}");
        assert!(shown.contains("CPU of a refusal"), "{shown}");
    }
}

/// Whether other work of the machine disturbed a row: such rows are in no table.
fn is_disturbed(shown: &str) -> bool {
    shown.contains("something else used the")
}

/// Purpose: without the right to make a network, rows are void, with the reason and the remedy, and no other network is used.
#[test]
fn no_network_without_privilege() {
    let Some(scene) = cpus_or_skip("unprivileged") else { return };
    let network = "[network]\nnamespaces = true\n";
    let plan = scene.plan(
        1,
        &(network.to_owned() + &scene.busy_server("one", SHED) + &work("2x", "load = 2.0")),
    );
    let path = scene.path("r.json");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--bounding-set", "-all", "--inh-caps", "-all"]);
    if may_not_shed_capabilities() {
        return highwater_skip::skip("root", "who has no capabilities cannot give them up");
    }
    command.args([env!("CARGO_BIN_EXE_highwater"), "bench", "run", &plan, "--out", &path]);
    let run = command.output().expect("setpriv is installed");
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    let record = scene.record("r.json");
    let reason = row(&record, "2x", "one")["reason"].as_str().expect("it is void").to_owned();
    assert!(
        reason.contains("no network namespace") && reason.contains("run it as root"),
        "{reason}"
    );
}

/// Whether this process may not shrink its bounding set.
fn may_not_shed_capabilities() -> bool {
    let mut probe = std::process::Command::new("setpriv");
    probe.args(["--bounding-set", "-all", "--inh-caps", "-all", "true"]);
    !probe.output().is_ok_and(|output| output.status.success())
}
