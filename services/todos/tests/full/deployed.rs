//! The files under `deploy` start this program with flags and variables that it knows.

use std::fs;
use std::process::Command;

use crate::servers::repository;

/// The words that `--key: [a, b]` or a list of `- a` has in a file, below a line with `key`.
fn flags(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "[],\"".contains(c));
    words.filter(|word| word.starts_with("--") && word.contains('=')).map(str::to_owned).collect()
}

fn accepts(subcommand: &[&str], flag: &str) -> bool {
    let asked = Command::new(env!("CARGO_BIN_EXE_highwater-todos"))
        .args(subcommand)
        .args([flag, "--help"])
        .output();
    asked.expect("it runs").status.success()
}

/// Purpose: a manifest with a flag of yesterday is a pod that does not start. The server's flags and the worker's are
/// told apart: each must be known to the one that gets it.
#[test]
fn flags_of_the_manifests_are_known() {
    assert!(!accepts(&[], "--listem=0.0.0.0:8080"), "the check sees a slip");
    let manifest = fs::read_to_string(repository("deploy/k8s/todos.yaml")).expect("it is there");
    let (of_server, of_worker) = manifest.split_once("\n# Workers:").expect("both are in it");
    for (part, subcommand) in [(of_server, &[][..]), (of_worker, &["worker"][..])] {
        let all = flags(part);
        let flags: Vec<&String> = all.iter().filter(|flag| !flag.starts_with("--from-")).collect();
        assert!(flags.len() >= 2, "{flags:?}");
        for flag in flags {
            assert!(accepts(subcommand, flag), "{subcommand:?} {flag}");
        }
    }
    let compose = fs::read_to_string(repository("deploy/compose.yaml")).expect("it is there");
    let worker =
        compose.lines().find(|line| line.contains("command: [worker,")).expect("it is there");
    for flag in flags(worker) {
        assert!(accepts(&["worker"], &flag), "{flag}");
    }
}

/// Purpose: the variables of the files are those that the program reads.
#[test]
fn variables_of_the_files_are_known() {
    let help = Command::new(env!("CARGO_BIN_EXE_highwater-todos")).arg("--help").output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("it is text");
    for variable in ["DATABASE_URL", "REDIS_URL", "KAFKA_BROKERS", "KAFKA_TODO_TOPIC", "JWT_SECRET"]
    {
        assert!(help.contains(variable), "{variable}");
        for file in ["deploy/k8s/todos.yaml", "deploy/compose.yaml"] {
            let text = fs::read_to_string(repository(file)).expect("it is there");
            assert!(text.contains(variable), "{file} does not set {variable}");
        }
    }
    for variable in ["HIGHWATER_LISTEN", "HIGHWATER_METRICS", "HIGHWATER_DATA", "HIGHWATER_LOG"] {
        let image = fs::read_to_string(repository("deploy/Dockerfile")).expect("it is there");
        assert!(image.contains(variable), "the image does not set {variable}");
        // A value that it refuses is one that it reads.
        let value = if variable == "HIGHWATER_DATA" { "/proc/nowhere" } else { "nonsense" };
        let refused = Command::new(env!("CARGO_BIN_EXE_highwater-todos"))
            .env(variable, value)
            .env("JWT_SECRET", "a secret of thirty-two characters")
            .args(if variable == "HIGHWATER_LISTEN" {
                &[][..]
            } else {
                &["--listen=127.0.0.1:0"][..]
            })
            .output()
            .expect("it runs");
        assert!(!refused.status.success(), "{variable} is not read");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains(value), "{variable}: {message}");
    }
}
