//! Plans whose programs are compared: a server that runs meanwhile, services, parts, and programs that fail.

use std::os::unix::fs::PermissionsExt as _;

use super::scene::{self, Scene, assert_measured, bench, cpus_or_skip, json_of, text_of, until};

/// The figures of `highwater load --json`.
const FIGURES: &str = "requests = { json = [\"ok\"] }\nrps = { json = [\"rps\"] }\np99_us = { json = [\"p99_us\"] }\n\
    errors = { json = [\"errors\", \"timeouts\", \"refused\"] }\nnon_2xx = { json = [\"non_2xx\"] }\n";

/// A program table: `highwater load` against the server that runs meanwhile, through a shell that is its parent.
fn load(name: &str, flags: &str) -> String {
    let highwater = env!("CARGO_BIN_EXE_highwater");
    format!(
        "[[program]]\nname = {name:?}\ncommand = [\"/bin/sh\", \"-c\", '\"$@\"; exit $?', \"sh\", {highwater:?}, \"load\", \
         \"{{url}}\", \"--connections\", \"{{connections}}\", \"--duration\", \"{{seconds}}s\", \"--warmup\", \"0s\", \
         \"--quiet\", \"--json\", {flags}]\nserver = \"good\"\nprogram = {highwater:?}\n[program.figures]\n{FIGURES}\n"
    )
}

/// A program table: a shell that does this, and says `requests N`.
fn shell(name: &str, does: &str) -> String {
    format!(
        "[[program]]\nname = {name:?}\ncommand = [\"/bin/sh\", \"-c\", {does:?}]\nwithin = \"1s\"\n\
         [program.figures]\nrequests = {{ pattern = 'requests (\\d+)' }}\n\
         errors = {{ pattern = 'errors (\\d+)', absent = 0 }}\n\n"
    )
}

/// A service table: it leaves a process behind, which `stop` may end and note that it did.
fn service(scene: &Scene, has_stop: bool) -> String {
    let (id, stopped) = (scene.path("daemon"), scene.path("stopped"));
    let stop =
        format!("stop = [\"/bin/sh\", \"-c\", 'kill $(cat {id}); echo stopped >>{stopped}']\n");
    let stop = if has_stop { stop } else { String::new() };
    format!(
        "[[service]]\nname = \"daemon\"\nstart = [\"/bin/sh\", \"-c\", \
         'setsid sleep 600 <&- >&- 2>&- & echo $! >{id}; echo begun; echo somewhere']\n\
         {stop}env = {{ BENCH_MARK = {:?} }}\n\n",
        scene.mark()
    )
}

/// Purpose: programs are run to their end beside a fresh server and a service; their rows have what they printed, their own
/// cost and that of the parts; `claim`, `show` and `export` work over them; and nothing is left of the service.
#[test]
fn programs_are_compared() {
    let Some(scene) = cpus_or_skip("programs") else { return };
    let tables = service(&scene, true)
        + "[parts]\nserver = \"servers::serve\"\n\n"
        + &scene.server("good", "good", "")
        + &load("few", "\"--threads\", \"{workers}\"")
        + &load("named", "\"--header\", \"X-Daemon: {service.daemon}\"")
        + "[cell_defaults]\npath = \"/hello\"\nexpect = \"Hello\"\nduration = \"300ms\"\n\n"
        + "[[cell]]\nname = \"closed\"\nconnections = 4\n\n";
    let plan = scene.plan(1, &tables);
    let run = scene.run(&plan);
    assert_measured(&run);
    assert!(std::path::Path::new(&scene.path("stopped")).exists(), "it was to be stopped");
    until("the service is gone", || scene.living().is_empty());
    let record = scene.record("r.json");
    assert!(!record["environment"]["programs"]["few"]["sha256"].is_null(), "{record}");
    let rows = record["cells"].as_array().expect("a list");
    assert!(rows.len() >= 2, "{}", rows.len());
    for row in rows.iter().chain(record["aa"]["rows"].as_array().expect("a list")) {
        assert_eq!(row["status"], "ok", "{row}");
        let fields =
            ["requests", "rps", "p99_us", "client_cpu_us_per_request", "client_busy", "seconds"];
        for field in fields.into_iter().chain(["server_cpu_us_per_request"]) {
            assert!(row[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {row}");
        }
        // The whole program's life, to the end of the shell around it.
        assert!(row["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.3), "{row}");
        let part = &row["parts"]["server"]["cpu_us_per_request"];
        assert!(part.as_f64().is_some_and(|us| us > 0.0), "{row}");
    }
    let path = scene.path("r.json");
    let claim = bench(&["claim", &path, "--baseline", "few", "--candidate", "named", "--json"]);
    let json = json_of(&claim);
    assert_eq!(json["metric"], "requests_per_client_core_second", "{json}");
    assert!(json["pairs"].as_u64().is_some(), "{json}");
    let shown = text_of(&bench(&["show", &path]));
    assert!(shown.contains("req/core-s vs few") && shown.contains("server "), "{shown}");
    let export = bench(&["export", "--db", &scene.path("r.sqlite"), &path]);
    assert!(export.status.success(), "{}", text_of(&export));
}

/// Purpose: whatever a program does wrong, its row is void with a reason that says what, the others are measured, and no
/// claim is made over it; a service that does not start voids those that need it, and no others.
#[test]
fn void_programs() {
    let Some(scene) = cpus_or_skip("void-programs") else { return };
    let cases = [
        (
            "fails",
            "echo requests 7; echo sorry >&2; exit 3",
            "it failed (exit status 3): it printed: requests 7 sorry",
        ),
        (
            "mute",
            "echo nothing to say",
            "its output has no requests (requests (\\d+)): it printed: nothing to say",
        ),
        ("errs", "echo requests 7 errors 2", "it reports 2 errors"),
        ("idle", "echo requests 0", "no request succeeded"),
        ("late", "echo requests 7; sleep 600", "it did not end within 1.1s"),
        ("floods", "yes requests 7", "it printed more than 16777216 bytes"),
        (
            "needs",
            "echo requests 7 {service.broken}",
            "service broken: its start failed (exit status 1)",
        ),
        (
            "needs-too",
            "echo requests 7 {service.unstoppable}",
            "service unstoppable: stop: there is no program no-such-stop",
        ),
    ];
    let tables = "[[service]]\nname = \"broken\"\nstart = [\"/bin/sh\", \"-c\", 'echo no broker here >&2; exit 1']\n\n\
        [[service]]\nname = \"unstoppable\"\nstart = [\"/bin/echo\", \"x\"]\nstop = [\"no-such-stop\"]\n\n".to_owned()
        + &shell("good", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo requests 7; echo requests 1000")
        + &cases.iter().map(|(name, does, _)| shell(name, does)).collect::<String>()
        + "[[cell]]\nname = \"all\"\nduration = \"100ms\"\naa = false\n";
    let plan = scene.plan(1, &tables);
    let path = scene.path("r.json");
    let run = bench(&["run", &plan, "--out", &path]);
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    let rows = scene.rows("r.json");
    let row = |name: &str| rows.iter().find(|row| row["server"] == name).expect("each has a row");
    let good = row("good");
    assert_eq!((&good["status"], &good["requests"]), (&"ok".into(), &1000.into()), "{good}");
    // Twenty thousand turns of a shell: some milliseconds.
    assert!(good["client_cpu_us_per_request"].as_f64().is_some_and(|us| us > 1.0), "{good}");
    for (name, _, reason) in cases {
        assert_eq!(row(name)["status"], "void", "{name}: {}", row(name));
        let text = row(name)["reason"].as_str().expect("void rows have one");
        assert!(text.contains(reason), "{name}: {text}");
    }
    let between = ["--baseline", "good", "--candidate", "fails", "--json"];
    let claim = bench(&[&["claim", &path][..], &between].concat());
    assert_eq!(claim.status.code(), Some(2), "{}", text_of(&claim));
    assert!(row("needs")["reason"].as_str().is_some_and(|text| text.contains("no broker here")));
}

/// Purpose: if a service cannot be stopped as the plan says, since its stop command is gone, its processes are ended
/// nevertheless, and the run says so.
#[test]
fn a_stop_command_that_is_gone() {
    let Some(scene) = cpus_or_skip("stop-gone") else { return };
    let stop = scene.path("stop.sh");
    std::fs::write(&stop, "#!/bin/sh\n").expect("the folder is ours");
    std::fs::set_permissions(&stop, std::fs::Permissions::from_mode(0o755)).expect("just written");
    let tables = service(&scene, false).replace("env = ", &format!("stop = [{stop:?}]\nenv = "))
        + &shell("removes", &format!("rm {stop}; echo requests 1000"))
        + "[[cell]]\nname = \"all\"\nduration = \"100ms\"\naa = false\n";
    let run = bench(&["run", &scene.plan(1, &tables), "--out", &scene.path("r.json")]);
    let output = text_of(&run);
    assert!(
        output.contains("service daemon: its stop command failed, and its processes"),
        "{output}"
    );
    assert!(output.contains("stop.sh"), "{output}");
    until("the service is gone", || scene.living().is_empty());
}

/// Purpose: Ctrl-C while a program runs ends it soon, with what services have left behind; one that ran before stays.
#[test]
fn interrupted_programs() {
    let Some(scene) = cpus_or_skip("interrupted-programs") else { return };
    let before = scene.path("stopped-before");
    let tables = service(&scene, false)
        + &format!(
            "[[service]]\nname = \"there\"\nstart = [\"/bin/echo\", \"x\"]\nrunning = [\"/bin/true\"]\n\
             stop = [\"/bin/sh\", \"-c\", 'echo stopped >>{before}']\n\n"
        )
        + &shell("long", "echo {service.daemon} {service.there}; sleep 600")
            .replace("\"1s\"", "\"600s\"")
        + "[[cell]]\nname = \"all\"\naa = false\n";
    let plan = scene.plan(1, &tables);
    let mut run = scene::command(&["run", &plan, "--out", &scene.path("r.json")]);
    let run = run.stderr(std::process::Stdio::piped()).spawn().expect("the binary was built");
    until("the service runs", || !scene.living().is_empty());
    scene::interrupt(run.id());
    let run = run.wait_with_output().expect("it was started");
    assert_eq!(run.status.code(), Some(1), "{}", text_of(&run));
    assert!(text_of(&run).contains("interrupted; --resume"), "{}", text_of(&run));
    until("everything is gone", || scene.living().is_empty());
    assert!(!std::path::Path::new(&before).exists(), "it ran before, and is to stay");
}
