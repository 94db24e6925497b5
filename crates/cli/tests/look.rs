//! `highwater doctor`, `profile` and `pgo` as they are called, on this machine, over real processes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use highwater_testkit::full_disk;
use serde_json::Value;

fn highwater(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_highwater");
    Command::new(program).args(arguments).output().expect("the command runs")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Purpose: whoever reads may stop, as `head` does: a command that cannot print any more ends as if it had.
#[test]
fn nobody_has_to_read_all_of_it() {
    let commands: [&[&str]; 4] = [
        &["doctor"],
        &["doctor", "--json"],
        &["sim", "--seed", "1"],
        &["sim", "--seeds", "1", "--json"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let program = Command::new(env!("CARGO_BIN_EXE_highwater"))
            .args(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn();
        let output = program.and_then(std::process::Child::wait_with_output).expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    }
}

/// Purpose: what was found and could not be written, as on a full disk, is not a success, and the reason is said once.
#[test]
fn what_cannot_be_written_is_a_failure() {
    let commands: [&[&str]; 3] =
        [&["doctor"], &["doctor", "--json"], &["sim", "--seeds", "1", "--json"]];
    for arguments in commands {
        let program = Command::new(env!("CARGO_BIN_EXE_highwater"))
            .args(arguments)
            .stdout(full_disk())
            .stderr(Stdio::piped())
            .spawn();
        let output = program.and_then(std::process::Child::wait_with_output).expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        let printed = text(&output);
        assert_eq!(
            printed.matches("standard output: No space left on device").count(),
            1,
            "{printed}"
        );
    }
}

/// Purpose: the largest seed is a seed, too: nothing that was not run passes.
#[test]
fn the_last_seed_is_run() {
    let last = u64::MAX.to_string();
    let arguments: [&[&str]; 2] = [&["--seed", &last], &["--first", &last, "--seeds", "1"]];
    for arguments in arguments {
        let output = highwater(&[&["sim", "--json"], arguments].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["passed"], 1, "{arguments:?}: {}", text(&output));
    }
}

/// A folder of the test's own, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("highwater-look-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Purpose: scripts read the report of a real machine by the keys that are documented, those of earlier versions
/// included; and the exit status follows the advice only if it is asked to.
#[test]
fn doctor_has_the_documented_keys() {
    let output = highwater(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for key in [
        "version",
        "kernel",
        "kernel_features",
        "transport",
        "transport_reason",
        "gate",
        "gate_reason",
        "cores",
        "cpu",
        "workers",
        "descriptors_soft",
        "descriptors_hard",
        "connections_max",
        "limits",
        "sysctls",
        "tools",
        "advice",
    ] {
        assert!(!json[key].is_null(), "{key}: {json}");
    }
    let sysctls = json["sysctls"].as_array().expect("a list");
    let somaxconn =
        sysctls.iter().find(|sysctl| sysctl["name"] == "net.core.somaxconn").expect("it is listed");
    let real = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("every Linux has it");
    assert_eq!(somaxconn["current"], real.trim());
    assert!(json["cpu"]["online"].as_array().is_some_and(|cores| !cores.is_empty()), "{json}");
    for tool in json["tools"].as_array().expect("a list") {
        assert_eq!(tool["works"] == true, tool["mend"].is_null(), "{tool}");
    }
    let has_advice = json["advice"].as_array().is_some_and(|advice| !advice.is_empty());
    assert_eq!(highwater(&["doctor", "--check"]).status.code(), Some(i32::from(has_advice)));
}

/// Purpose: a profile of a process that computes has its picture, its report and its threads, whichever tools this
/// machine has; and the process is ended with it.
#[test]
fn a_profile_is_a_folder() {
    let folder = Folder::new("profile");
    let out = folder.path("report");
    let busy =
        ["profile", "--duration", "600ms", "--out", &out, "--", "sh", "-c", "while :; do :; done"];
    let output = highwater(&busy);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).expect("it was written");
    assert!(read("flame.svg").contains("<svg"));
    let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
    assert_eq!(report["program"], "sh", "{report}");
    assert!(report["samples"].as_u64().is_some_and(|samples| samples > 0), "{report}");
    let threads = report["threads"].as_array().expect("a list");
    assert_eq!(threads.len(), 1, "{report}");
    assert!(
        threads[0]["running_percent"].as_f64().is_some_and(|percent| percent > 0.0),
        "{report}"
    );
    for heading in
        ["Functions:", "Threads:", "System calls:", report["cpu_with"].as_str().expect("a text")]
    {
        assert!(read("report.txt").contains(heading), "{heading}: {}", read("report.txt"));
    }
    let pid = report["pid"].as_u64().expect("a number");
    let left = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(!left.contains("while"), "it still runs: {left}");
}

/// Purpose: where perf and strace are missing, the report is made of what /proc says, and names what would allow more.
#[test]
fn a_profile_without_tools_says_so() {
    let folder = Folder::new("bare");
    let out = folder.path("report");
    let output = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args([
            "profile",
            "--duration",
            "600ms",
            "--out",
            &out,
            "--",
            "/bin/sh",
            "-c",
            "while :; do :; done",
        ])
        .env("PATH", &folder.0)
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report = fs::read_to_string(format!("{out}/report.txt")).expect("it was written");
    for part in [
        "perf does not work here",
        "strace does not work here",
        "on a CPU, or ready for one",
        "/proc/PID",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(fs::read_to_string(format!("{out}/flame.svg")).is_ok_and(|svg| svg.contains("<svg")));
}

/// Purpose: what cannot be profiled is refused with its reason, before anything is waited for.
#[test]
fn impossible_profiles_are_refused() {
    let refused = |arguments: &[&str], part: &str| {
        let output = highwater(&[&["profile"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    };
    // Greater than any number Linux gives.
    refused(&["--pid", "4194305"], "no process 4194305");
    refused(&["--", "/no/such/program"], "/no/such/program");
    refused(&[], "--pid");
    refused(&["--pid", "1", "--load", "nonsense"], "http://HOST:PORT/PATH");
    refused(
        &["--load", "http://127.0.0.1:9/", "--", "/bin/sh", "-c", "exit 3"],
        "ended before it listened",
    );
}

/// Purpose: mistakes are reported before minutes of building; `strip` sets profiles aside and removes only its own builds.
#[test]
fn pgo_refuses_and_strips() {
    let folder = Folder::new("pgo");
    let plan = folder.path("plan.toml");
    fs::write(&plan, "name = \"x\"\n").expect("written");
    let run =
        highwater(&["pgo", "run", "-p", "nothing", "--plan", &plan, "--out", &folder.path("out")]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run).contains("no [[server]]"), "{}", text(&run));

    let out = folder.path("made");
    fs::create_dir_all(format!("{out}/build/deep")).expect("a folder");
    fs::write(format!("{out}/a.profdata"), "profile").expect("written");
    fs::write(format!("{out}/record.json"), "{}").expect("written");
    // Whose folders these are is not known.
    let load = ["--", "true"];
    let record = folder.path("made/record.json");
    let good = "name = \"x\"\n[[server]]\nname = \"a\"\ncommand = [\"a\"]\nready = \"/\"\n";
    fs::write(&plan, good).expect("written");
    let with_record = ["--plan", &plan, "--record", &record];
    for (more, message) in [
        (&load[..], "it has files and no .highwater-pgo, so `pgo run` did not make it"),
        (&with_record, "record.json exists: --resume goes on with it"),
    ] {
        let run = highwater(&[&["pgo", "run", "-p", "nothing", "--out", &out], more].concat());
        assert_eq!(run.status.code(), Some(2), "{}", text(&run));
        // Without a reader of profiles, nothing comes as far as the folder.
        assert!(text(&run).contains(message) || llvm_tools().is_err(), "{}", text(&run));
    }
    let strip = highwater(&["pgo", "strip", "--out", &out]);
    assert_eq!(strip.status.code(), Some(2), "{}", text(&strip));
    assert!(PathBuf::from(&out).join("build/deep").is_dir(), "it was made by somebody else");
    fs::write(format!("{out}/.highwater-pgo"), "").expect("written");
    let strip = highwater(&["pgo", "strip", "--out", &out]);
    assert_eq!(strip.status.code(), Some(0), "{}", text(&strip));
    let mut left: Vec<String> = fs::read_dir(&out)
        .expect("it is there")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, [".highwater-pgo", "a.profdata.bak", "record.json"]);
    let missing = highwater(&["pgo", "strip", "--out", &folder.path("none")]);
    assert_eq!(missing.status.code(), Some(2));
    let info = highwater(&["pgo", "info", &folder.path("none.profdata")]);
    assert_eq!(info.status.code(), Some(2), "{}", text(&info));
}

/// Purpose: with a command of the user's as the load, the server is built to count, started where the command is told,
/// ended, and built again with what it counted; a load that fails makes no build. A package of the test's own.
#[test]
fn pgo_with_a_load_of_ones_own() {
    if let Err(missing) = llvm_tools() {
        return highwater_skip::skip("llvm-tools", missing);
    }
    let folder = Folder::new("pgo-load");
    fs::create_dir_all(folder.path("src")).expect("a folder");
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.path("Cargo.toml"), manifest).expect("written");
    fs::write(folder.path("src/main.rs"), TINY).expect("written");
    let pgo = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["pgo", "run", "-p", "tiny", "--cargo-profile", "dev"]).args(more);
        command.current_dir(&folder.0).env_remove("CARGO_TARGET_DIR").output().expect("it runs")
    };
    let failed = pgo(&["--arg", "hello", "--", "sh", "-c", "exit 3"]);
    assert_eq!(failed.status.code(), Some(2), "{}", text(&failed));
    assert!(text(&failed).contains("sh: exit status 3"), "{}", text(&failed));
    assert!(!folder.0.join("target/pgo/pgo").exists());

    let load =
        "test $URL = $0; for path in /a /b /quit; do printf \"$path\\n\" >/dev/tcp/$1/$2; done";
    let done = pgo(&["--arg", "hello", "--", "bash", "-ec", load, "{url}", "{host}", "{port}"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    assert!(text(&done).contains("program: target/pgo/pgo/tiny\n"), "{}", text(&done));
    assert!(folder.0.join("target/pgo/tiny.profdata").is_file());
    let info = highwater(&["pgo", "info", &folder.path("target/pgo/tiny.profdata"), "--json"]);
    let json: Value = serde_json::from_slice(&info.stdout).expect("JSON");
    assert!(json["functions"].as_u64().is_some_and(|count| count > 0), "{json}");

    for (arguments, message) in [
        (&[][..], "--plan"),
        (&["--plan", "p.toml", "--", "true"], "cannot be used with"),
        (&["--port", "80", "--plan", "p.toml"], "cannot be used with"),
        (&["--port", "80"], "--plan"),
    ] {
        let refused = pgo(arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(message), "{}", text(&refused));
    }
}

/// A server that prints the lines it gets, until one is `/quit`.
const TINY: &str = r#"
use std::io::{BufRead, BufReader};
unsafe extern "C" { fn signal(number: i32, handler: usize) -> usize; }
fn main() {
    // SIGTERM is ignored: it may come before the last line has been read.
    unsafe { signal(15, 1) };
    assert_eq!(std::env::args().nth(1).as_deref(), Some("hello"));
    let address = std::env::var("HIGHWATER_LISTEN").unwrap();
    for client in std::net::TcpListener::bind(address).unwrap().incoming() {
        let mut line = String::new();
        let _ = BufReader::new(client.unwrap()).read_line(&mut line);
        println!("{}", line.len());
        if line.trim() == "/quit" { return }
    }
}
"#;

/// Whether the compiler's own `llvm-profdata` is here.
fn llvm_tools() -> Result<(), String> {
    let doctor = highwater(&["pgo", "info", "/dev/null"]);
    match text(&doctor).contains("no llvm-profdata of LLVM") {
        true => Err("llvm-profdata is missing: rustup component add llvm-tools".to_owned()),
        false => Ok(()),
    }
}

/// Purpose: whoever deploys a program can tell from it alone whether the compiler had a profile. This test's own command
/// holds a server, and was built without one; a shell has nothing to say about it.
#[test]
fn a_program_says_whether_it_had_a_profile() {
    let program = env!("CARGO_BIN_EXE_highwater");
    let info = highwater(&["pgo", "info", program, "--json"]);
    let json: Value = serde_json::from_slice(&info.stdout).unwrap_or_default();
    assert_eq!(
        (&json["pgo"], info.status.code()),
        (&Value::from("none"), Some(1)),
        "{}",
        text(&info)
    );
    let info = highwater(&["pgo", "info", program]);
    assert!(text(&info).contains("built without a profile"), "{}", text(&info));
    let shell = highwater(&["pgo", "info", "/bin/sh"]);
    assert_eq!(shell.status.code(), Some(2));
    assert!(text(&shell).contains("it is not a Highwater server"), "{}", text(&shell));
}
