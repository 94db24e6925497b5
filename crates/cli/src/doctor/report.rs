//! How what was found is said: as text, and as JSON with stable keys (docs/profiling.md lists them).

use serde_json::json;

use super::Found;

#[expect(clippy::print_stdout, reason = "this is the command's output")]
pub(super) fn text(found: &Found) {
    let Found { machine, gate, limits, cores, .. } = found;
    println!("highwater {}", env!("CARGO_PKG_VERSION"));
    println!("kernel       {}", machine.kernel);
    for feature in found.kernel.iter().filter(|feature| !feature.here) {
        println!("             too old for {}, which is since {}", feature.name, feature.since);
    }
    println!("transport    {} ({})", machine.transport, machine.transport_reason);
    println!("gate         {} ({})", gate.mechanism, gate.reason);
    let allowed: Vec<String> = machine.cores.iter().map(ToString::to_string).collect();
    println!(
        "cores        {} allowed ({}), {} workers by default",
        allowed.len(),
        allowed.join(" "),
        machine.workers
    );
    cores.lines().iter().for_each(|line| println!("             {line}"));
    println!("descriptors  {} (hard limit {})", machine.descriptors_soft, machine.descriptors_hard);
    println!("connections  {} at most, over all workers", machine.connections_max);
    limits.lines().iter().for_each(|(name, value)| println!("{name:<12} {value}"));
    println!("\nkernel settings");
    for sysctl in &found.sysctls {
        let current = sysctl.current.as_deref().unwrap_or("unknown");
        println!("  {:<34} {current:<14} {:<8} {}", sysctl.name, sysctl.verdict.name(), sysctl.why);
    }
    println!("\ntools");
    for tool in &found.tools {
        let says = if tool.works { "works" } else { "missing" };
        println!("  {:<14} {says:<8} {}", tool.name, tool.good_for);
        if let Some(mend) = &tool.mend {
            println!("  {:<14} {:<8} {}: {}", "", "", mend.what, mend.command);
        }
    }
    let advice = found.advice();
    if advice.is_empty() {
        println!("\nNothing to change.");
    }
    for line in advice {
        println!("\nadvice: {line}");
    }
}

#[expect(clippy::print_stdout, reason = "this is the command's output")]
pub(super) fn json(found: &Found) {
    let Found { machine, gate, .. } = found;
    let said = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": machine.kernel,
        "kernel_features": found.kernel,
        "transport": machine.transport,
        "transport_reason": machine.transport_reason,
        "gate": gate.mechanism,
        "gate_reason": gate.reason,
        "cores": machine.cores,
        "cpu": found.cores,
        "workers": machine.workers,
        "descriptors_soft": machine.descriptors_soft,
        "descriptors_hard": machine.descriptors_hard,
        "connections_max": machine.connections_max,
        "limits": found.limits,
        "somaxconn": machine.somaxconn,
        "sysctls": found.sysctls,
        "tools": found.tools,
        "advice": found.advice(),
    });
    println!("{said}");
}
