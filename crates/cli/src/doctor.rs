//! `highwater doctor`: what this machine allows a server to do, and what to change.

use std::process::ExitCode;

use highwater::machine::{self, Machine};
use highwater::server;

/// Report which transport and which gate a server would use and why, which limits it has, and what
/// to change.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  highwater doctor\n  highwater doctor --json")]
pub(crate) struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let machine = machine::look();
    let gate = Gate::here();
    if args.json {
        json(&machine, &gate)
    } else {
        text(&machine, &gate)
    }
    ExitCode::SUCCESS
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

/// What to change about the machine and about the gate.
fn advice(machine: &Machine, gate: &Gate) -> Vec<String> {
    let mut advice = machine.advice();
    advice.extend(gate.advice().map(str::to_owned));
    advice
}

#[expect(clippy::print_stdout, reason = "this is the command's output")]
fn text(machine: &Machine, gate: &Gate) {
    println!("highwater {}", env!("CARGO_PKG_VERSION"));
    println!("kernel       {}", machine.kernel);
    println!("transport    {} ({})", machine.transport, machine.transport_reason);
    println!("gate         {} ({})", gate.mechanism, gate.reason);
    let cores: Vec<String> = machine.cores.iter().map(ToString::to_string).collect();
    println!(
        "cores        {} allowed ({}), {} workers by default",
        cores.len(),
        cores.join(" "),
        machine.workers
    );
    println!("descriptors  {} (hard limit {})", machine.descriptors_soft, machine.descriptors_hard);
    println!("connections  {} at most, over all workers", machine.connections_max);
    println!(
        "backlog      {} (net.core.somaxconn)",
        machine.somaxconn.map_or("unknown".into(), |n| n.to_string())
    );
    let advice = advice(machine, gate);
    if advice.is_empty() {
        println!("\nNothing to change.");
    }
    for line in advice {
        println!("\nadvice: {line}");
    }
}

#[expect(clippy::print_stdout, reason = "this is the command's output")]
fn json(machine: &Machine, gate: &Gate) {
    let found = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": machine.kernel,
        "transport": machine.transport,
        "transport_reason": machine.transport_reason,
        "gate": gate.mechanism,
        "gate_reason": gate.reason,
        "cores": machine.cores,
        "workers": machine.workers,
        "descriptors_soft": machine.descriptors_soft,
        "descriptors_hard": machine.descriptors_hard,
        "connections_max": machine.connections_max,
        "somaxconn": machine.somaxconn,
        "advice": advice(machine, gate),
    });
    println!("{found}");
}
