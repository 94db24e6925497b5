//! Starts that do not end: a signal ends them.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use highwater_testkit::{PATIENCE, Process, program, within};

/// Longer than the end of a start takes on a busy machine, and far less than what the start waits for.
const SOON: Duration = Duration::from_secs(8);

fn strained(scene: &str) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_strained"));
    let at = ["--listen", "127.0.0.1:0", "--metrics", "off", "--workers", "2"];
    command.args(at).args(["--scene", scene]);
    command
}

/// Whether the process has a handler for SIGTERM.
fn catches_sigterm(process: &Process) -> bool {
    const SIGTERM: u64 = 1 << 14;
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|m| m & SIGTERM != 0))
}

/// Has a start that does not end hear SIGTERM. Returns all that it said.
fn ended(scene: &str) -> String {
    let mut server = Process::start_unready(&mut strained(scene));
    assert!(within(PATIENCE, || catches_sigterm(&server)));
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    server.signal("TERM");
    let status = server.ends_within(SOON);
    let status = status.unwrap_or_else(|| panic!("it does not end, after\n{}", server.log()));
    println!("{scene}: ended after {:?}", begun.elapsed());
    assert_eq!(status.code(), Some(0), "{}", server.log());
    server.log()
}

/// Purpose: SIGTERM ends a server of which a start hook does not end, however long that hook may take. What was opened before
/// is closed.
#[test]
fn hooks_that_do_not_end() {
    let log = ended("hook");
    assert!(log.contains("closed what was opened"), "{log}");
    assert!(log.contains(" stopping signal=SIGTERM"), "{log}");
}

/// Purpose: SIGTERM ends a server of which a worker's value is never made.
#[test]
fn workers_that_do_not_begin() {
    let log = ended("worker");
    assert!(log.contains("closed what was opened"), "{log}");
    assert!(log.contains(" stopping signal=SIGTERM"), "{log}");
}
