//! `highwater doctor`: what this machine lets a server do, and what to change.

use std::process::ExitCode;

use highwater::machine::{self, Machine};

/// Say which transport will be used and why, what limits there are, and what to change.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  highwater doctor\n  highwater doctor --json")]
pub(crate) struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let machine = machine::look();
    if args.json {
        json(&machine)
    } else {
        text(&machine)
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stdout, reason = "this is the command's output")]
fn text(machine: &Machine) {
    println!("highwater {}", env!("CARGO_PKG_VERSION"));
    println!("kernel       {}", machine.kernel);
    println!("transport    {} ({})", machine.transport, machine.transport_reason);
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
    let advice = machine.advice();
    if advice.is_empty() {
        println!("\nNothing to change.");
    }
    for line in advice {
        println!("\nadvice: {line}");
    }
}

#[expect(clippy::print_stdout, reason = "this is the command's output")]
fn json(machine: &Machine) {
    let quoted = |text: &str| format!("\"{}\"", text.escape_default());
    let cores: Vec<String> = machine.cores.iter().map(ToString::to_string).collect();
    let advice: Vec<String> = machine.advice().iter().map(|line| quoted(line)).collect();
    println!(
        "{{\"version\":{},\"kernel\":{},\"transport\":{},\"transport_reason\":{},\"cores\":[{}],\
         \"workers\":{},\"descriptors_soft\":{},\"descriptors_hard\":{},\"connections_max\":{},\
         \"somaxconn\":{},\"advice\":[{}]}}",
        quoted(env!("CARGO_PKG_VERSION")),
        quoted(&machine.kernel),
        quoted(&machine.transport),
        quoted(&machine.transport_reason),
        cores.join(","),
        machine.workers,
        machine.descriptors_soft,
        machine.descriptors_hard,
        machine.connections_max,
        machine.somaxconn.map_or("null".into(), |n| n.to_string()),
        advice.join(","),
    );
}
