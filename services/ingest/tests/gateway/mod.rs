//! The real binary, and what only it has: its flags, its counters, and what is really in its data directory.
#![allow(dead_code, reason = "no test file uses all of it")]

/// The journal's format, read in the plainest way from its documentation. It shares no line with the journal.
#[path = "../../../../crates/journal/src/simulation/parser.rs"]
mod parser;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{PATIENCE, Process, program, request};

pub(crate) use parser::Found;

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-ingest"));
    command.args(args).env_remove("KAFKA_BROKERS");
    command
}

/// A gateway over this directory, with these flags besides.
pub(crate) fn gateway(data: &Path, flags: &[&str]) -> Process {
    let data = data.to_str().expect("temporary directories have plain names");
    // However busy the machine is: what is refused for want of time is no matter of these tests.
    let patient = ["--ack-timeout=600s", "--patience=60s", "--queue-target=10s"];
    let own = ["--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--data", data];
    let has_workers = flags.iter().any(|flag| flag.starts_with("--workers"));
    let workers: &[&str] = if has_workers { &[] } else { &["--workers=2"] };
    Process::start(&mut command(&[&own, workers, &patient, flags].concat()))
}

/// The request with one record.
pub(crate) fn record(body: impl AsRef<[u8]>) -> Vec<u8> {
    request("POST", "/e", "", body)
}

/// How many records are in this state.
pub(crate) fn records(gateway: &Process, state: &str) -> u64 {
    gateway.metric(&format!("highwater_ingest_records_total{{state=\"{state}\"}}")) as u64
}

/// Waits until nothing is pending, and checks that all counters agree on `total`.
pub(crate) fn settles_at(gateway: &Process, total: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let numbers = ["accepted", "durable", "delivered"].map(|state| records(gateway, state));
        let pending = gateway.metric("highwater_ingest_pending") as u64;
        if numbers == [total; 3] && pending == 0 {
            assert_eq!(gateway.metric("highwater_ingest_lag_seconds"), 0.0);
            return;
        }
        let state = format!("accepted, durable, delivered {numbers:?}, pending {pending}");
        assert!(Instant::now() < until, "not {total}: {state}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What is in the journal, read by a parser of its own, in order of offset.
pub(crate) fn journal(data: &Path) -> Vec<Found> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(data).expect("it is there") {
        let entry = entry.expect("it can be read");
        let name = entry.file_name().into_string().expect("plain names");
        files.insert(name, std::fs::read(entry.path()).expect("it can be read"));
    }
    parser::parse(&files).records
}

/// The bodies in the journal.
pub(crate) fn bodies(data: &Path) -> Vec<Vec<u8>> {
    journal(data).into_iter().map(|record| record.body).collect()
}
