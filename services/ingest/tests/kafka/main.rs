//! The gateway in front of a real Kafka broker: what 202 means, also when processes are killed.
#![forbid(unsafe_code)]

#[path = "../../../../crates/batcher/tests/kafka/broker.rs"]
#[allow(dead_code, reason = "the client's tests use the rest of it")]
mod broker;
mod full;
#[path = "../gateway/mod.rs"]
mod gateway;
mod leader;
mod meaning;
mod topics;
mod torture;

use std::path::Path;

use highwater_testkit::Process;

/// What every gateway here is told.
fn arguments<'a>(ack: &'a str, brokers: &'a str, topic: &'a str, data: &'a Path) -> Vec<&'a str> {
    let data = data.to_str().expect("temporary directories have plain names");
    let own = ["--sink=kafka", "--workers=2", "--data", data];
    [&own[..], &["--ack", ack, "--kafka-brokers", brokers, "--topic", topic]].concat()
}

/// Starts a gateway on this port and the next (0: on any two), and waits until it serves.
fn start(port: u16, arguments: &[&str]) -> Process {
    let metrics = if port == 0 { 0 } else { port + 1 };
    let [listen, metrics] = [port, metrics].map(|port| format!("127.0.0.1:{port}"));
    let own = ["--listen", &listen, "--metrics", &metrics];
    Process::start(&mut gateway::command(&[&own, arguments].concat()))
}
