//! `highwater doctor`: what this machine allows a server to do, and what to change.
//!
//! It changes nothing. Each finding has its reason and, where something should be changed, the command. `limits`, `sysctl`,
//! `cores`, `kernel` and `tools` look at one subject each; they read through a [`Read`], so tests give them text.

mod cores;
mod kernel;
mod limits;
mod report;
mod sysctl;
#[cfg(test)]
mod tests;
mod tools;

use std::fmt;
use std::process::ExitCode;

use highwater::machine::{self, Machine};
use highwater::server;
use serde::Serialize;

/// Report which transport and which gate a server would use and why, its limits, the kernel's settings, the cores, the
/// tools that measure, and what to change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  highwater doctor
  highwater doctor --json
  highwater doctor --check && start-the-server

Exit status: 0. With --check: 0 if there is nothing to change, 1 if there is.")]
pub(crate) struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,

    /// Exit with status 1 if there is something to change.
    #[arg(long)]
    check: bool,
}

/// Settings that `Machine::advice` covers.
const SAID_BY_MACHINE: [&str; 2] = ["net.core.somaxconn", "kernel.io_uring_disabled"];

/// Reads a file of `/proc`, `/sys` or `/etc`; `None` if it is not there or not for us.
type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn run(args: &Args) -> ExitCode {
    let found = Found::here();
    if args.json {
        report::json(&found);
    } else {
        report::text(&found);
    }
    ExitCode::from(u8::from(args.check && !found.advice().is_empty()))
}

/// Something to mend: what is wrong, and the command that changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Mend {
    what: String,
    command: String,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Advice {
    /// In words, the remedy among them.
    Words(String),
    Mend(Mend),
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Words(words) => f.write_str(words),
            Advice::Mend(mend) => write!(f, "{}: {}", mend.what, mend.command),
        }
    }
}

/// Everything that was found.
struct Found {
    machine: Machine,
    gate: Gate,
    limits: limits::Limits,
    sysctls: Vec<sysctl::Sysctl>,
    cores: cores::Cores,
    kernel: Vec<kernel::Feature>,
    tools: Vec<tools::Tool>,
}

impl Found {
    fn here() -> Found {
        let machine = machine::look();
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Found {
            gate: Gate::here(),
            limits: limits::look(&read),
            sysctls: sysctl::look(&read),
            cores: cores::look(&read, &machine.cores),
            kernel: kernel::look(&machine.kernel),
            tools: tools::look(&read),
            machine,
        }
    }

    /// What to change, the most valuable first: each with its reason and, where there is one, its command. A missing
    /// tool is not included: no server needs one.
    fn advice(&self) -> Vec<Advice> {
        let machine = self.machine.advice().into_iter();
        let mut advice: Vec<Advice> =
            machine.chain(self.gate.advice().map(str::to_owned)).map(Advice::Words).collect();
        let of_sysctls =
            self.sysctls.iter().filter(|sysctl| !SAID_BY_MACHINE.contains(&sysctl.name));
        let of_sysctls = of_sysctls.filter_map(sysctl::Sysctl::mend);
        let of_limits = self.limits.mends(kernel::counts_memory(&self.machine.kernel));
        let mends = of_limits.into_iter().chain(self.cores.mends()).chain(of_sysctls);
        advice.extend(mends.map(Advice::Mend));
        advice
    }
}

/// The mechanism with which a server would refuse connections.
struct Gate {
    mechanism: &'static str,
    reason: String,
}

impl Gate {
    fn here() -> Gate {
        let (mechanism, reason) = server::gate_here();
        Gate { mechanism, reason }
    }

    fn advice(&self) -> Option<&'static str> {
        match self.mechanism {
            "ebpf" => None,
            "nft" => Some(
                "the gate is a fixed ceiling, and excess within it waits instead of being refused: \
                 grant CAP_BPF for one that follows the limit (setcap cap_bpf+ep on the program, \
                 AmbientCapabilities=CAP_BPF in systemd, --cap-add BPF in a container)",
            ),
            _ => Some(
                "connections beyond the limit wait instead of being refused in the kernel: grant \
                 CAP_BPF (setcap cap_bpf+ep on the program, AmbientCapabilities=CAP_BPF in \
                 systemd, --cap-add BPF in a container)",
            ),
        }
    }
}
