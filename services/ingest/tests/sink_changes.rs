//! A data directory whose gateway is started with another sink: nothing that was acknowledged goes.

mod gateway;

use std::path::Path;

use gateway::{bodies, gateway, records};
use highwater_testkit::request;

/// Enough for three segments of 64 MiB, with one a bit filled.
const RECORDS: usize = 2400;

/// A Kafka that never answers: nothing is delivered.
const KAFKA: [&str; 3] = ["--sink=kafka", "--kafka-brokers=127.0.0.1:1", "--partitions=1"];

fn fill(data: &Path, flags: &[&str]) {
    let process = gateway(data, flags);
    let mut client = process.connect();
    for first in (0..RECORDS).step_by(15) {
        let lines: Vec<String> = (first..first + 15)
            .map(|number| format!("{number:05} {}", "x".repeat(60_000)))
            .collect();
        assert_eq!(client.ask(request("POST", "/batch", "", lines.join("\n"))).status, 202);
    }
    process.stop();
    assert_eq!(bodies(data).len(), RECORDS);
}

/// Purpose: a journal that becomes a spool delivers everything in it; its older segments went, silently, when
/// retention looked before the delivery had said that it is there.
#[test]
fn a_journal_becomes_a_spool() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fill(directory.path(), &["--ack=disk"]);
    for _ in 0..3 {
        let process = gateway(directory.path(), &KAFKA);
        assert_eq!(process.metric("highwater_ingest_pending"), RECORDS as f64);
        assert_eq!(records(&process, "accepted"), RECORDS as u64);
        process.stop();
    }
    assert_eq!(bodies(directory.path()).len(), RECORDS);
}

/// Purpose: a spool that becomes a journal with retention keeps what is not delivered, and says so with the ways out;
/// the way back to Kafka delivers all of it, with what the journal took meanwhile.
#[test]
fn a_spool_becomes_a_journal() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fill(directory.path(), &[&KAFKA[..], &["--ack=disk"]].concat());
    for round in 1..=2 {
        let process = gateway(directory.path(), &["--retain-bytes=1MiB", "--retain-age=1s"]);
        let body = format!("journal {round}");
        assert_eq!(process.ask(gateway::record(body.as_bytes())).status, 202);
        process.stop();
        assert_eq!(bodies(directory.path()).len(), RECORDS + round);
    }
    let process = gateway(directory.path(), &KAFKA);
    assert_eq!(process.metric("highwater_ingest_pending"), (RECORDS + 2) as f64);
    process.stop();
}

/// Purpose: retention works in a directory that was a spool and has nothing left to deliver.
#[test]
fn a_spool_without_records_becomes_a_journal() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    gateway(directory.path(), &KAFKA).stop();
    fill(directory.path(), &["--ack=disk"]);
    let process = gateway(directory.path(), &["--retain-bytes=1MiB"]);
    assert_eq!(process.ask(gateway::record(b"one more")).status, 202);
    process.stop();
    assert!(bodies(directory.path()).len() < RECORDS / 2, "older segments have gone");
}
