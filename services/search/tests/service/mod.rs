//! The real binary, and what only it has: its flags, its provider, the lines of its polls.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use highwater_testkit::{Process, program};

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-search"));
    command.args(args).env_remove("PROVIDER_URL");
    command
}

/// The search service, polling `provider` every second.
pub(crate) fn search(provider: SocketAddr, data: &Path) -> Process {
    let url = format!("http://{provider}/");
    let data = data.to_str().expect("temporary directories have plain names");
    Process::start(&mut command(&[
        "--listen=127.0.0.1:0",
        "--metrics=127.0.0.1:0",
        "--workers=2",
        "--poll-interval=1s",
        "--provider-url",
        &url,
        "--data",
        data,
    ]))
}

/// The provider, at this port (0 for any), behaving like this.
pub(crate) fn provider(port: u16, behaviour: &[&str]) -> Process {
    let listen = format!("--listen=127.0.0.1:{port}");
    Process::start(&mut command(&[&["provider", &listen], behaviour].concat()))
}

/// The line of the next poll with this outcome.
pub(crate) fn wait_for_poll(service: &Process, outcome: &str) -> String {
    let wanted = format!(" poll outcome={outcome} ");
    service.wait_for(|line| line.contains(&wanted))
}
