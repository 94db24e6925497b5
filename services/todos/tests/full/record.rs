//! Where a measurement ran, and the file that its record goes to.

use std::process::Command;

use serde_json::{Value, json};

/// The machine, and the commit that was measured.
pub(crate) fn environment() -> Value {
    let output_of = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    json!({
        "network": "loopback", "kernel": output_of("uname", &["-r"]), "cpus": output_of("nproc", &[]),
        "commit": output_of("git", &["rev-parse", "HEAD"]),
    })
}

/// Writes the record to the file that the environment variable names, if it is set.
pub(crate) fn write(variable: &str, record: &Value) {
    if let Ok(path) = std::env::var(variable) {
        let text = serde_json::to_string_pretty(record).expect("it is JSON");
        std::fs::write(path, text + "\n").expect("it can be written");
    }
}
