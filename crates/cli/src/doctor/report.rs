//! The report, as text and as JSON with stable keys (docs/profiling.md lists them).

use serde_json::json;

use super::{Advice, Found};
use crate::output::say;

/// The longest line of prose, in characters. Commands are never broken: they are copied.
const WIDTH: usize = 100;

pub(super) fn text(found: &Found) {
    let Found { machine, gate, limits, cores, .. } = found;
    say!("highwater {}", env!("CARGO_PKG_VERSION"));
    say!("kernel       {}", machine.kernel);
    for feature in found.kernel.iter().filter(|feature| !feature.here) {
        say!("             too old for {}, which needs {}", feature.name, feature.since);
    }
    let because = |name: &str, choice: &str, reason: &str| {
        say!("{}", wrapped(&format!("{name:<12} {choice} ({reason})"), 13));
    };
    because("transport", &machine.transport, &machine.transport_reason);
    say!("             --transport portable works on every system: slower, for development");
    because("gate", gate.mechanism, &gate.reason);
    let allowed: Vec<String> = machine.cores.iter().map(ToString::to_string).collect();
    say!(
        "cores        {} allowed ({}), {} workers by default",
        allowed.len(),
        allowed.join(" "),
        machine.workers
    );
    cores.lines().iter().for_each(|line| say!("             {line}"));
    say!("descriptors  {} (hard limit {})", machine.descriptors_soft, machine.descriptors_hard);
    say!("connections  {} at most, over all workers", machine.connections_max);
    limits.lines().iter().for_each(|(name, value)| say!("{name:<12} {value}"));
    say!("\nkernel settings");
    for sysctl in &found.sysctls {
        let current = sysctl.current.as_deref().unwrap_or("unknown");
        say!("  {:<34} {current:<20} {}", sysctl.name, sysctl.verdict.name());
        say!("{}", wrapped(&format!("      {}", sysctl.why), 6));
    }
    say!("\ntools");
    for tool in &found.tools {
        let says = if tool.works { "works" } else { "missing" };
        say!("{}", wrapped(&format!("  {:<14} {says:<8} {}", tool.name, tool.good_for), 26));
        if let Some(mend) = &tool.mend {
            say!("{}", wrapped(&format!("{:26}{}:", "", mend.what), 26));
            say!("{:28}{}", "", mend.command);
        }
    }
    let advice = found.advice();
    if advice.is_empty() {
        let lacks_tools = found.tools.iter().any(|tool| !tool.works);
        let also = if lacks_tools { " The missing tools only matter for profiling." } else { "" };
        say!("\nNothing to change for a server.{also}");
    }
    for advice in advice {
        match advice {
            Advice::Words(words) => say!("\n{}", wrapped(&format!("advice: {words}"), 8)),
            Advice::Mend(mend) => {
                say!("\n{}", wrapped(&format!("advice: {}:", mend.what), 8));
                say!("        {}", mend.command);
            }
        }
    }
}

/// `text` in lines of at most [`WIDTH`] characters, those after the first indented by `indent`. A longer word has a
/// line of its own.
fn wrapped(text: &str, indent: usize) -> String {
    let body = text.trim_start();
    let mut lines = " ".repeat(text.len() - body.len());
    let mut column = lines.len();
    let mut is_first = true;
    for word in body.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if !is_first && column + length > WIDTH {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        }
        lines.push_str(word);
        column += word.chars().count();
        is_first = false;
    }
    lines
}

pub(super) fn json(found: &Found) {
    let Found { machine, gate, .. } = found;
    let document = json!({
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
        "advice": found.advice().iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    say!("{document}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: reasons of several hundred characters can be read in a terminal: no line is longer than
    /// the width, no word is lost, and columns stay columns.
    #[test]
    fn long_reasons_are_wrapped() {
        let reason = "with several words ".repeat(20);
        let text = format!("gate         accept ({reason})");
        let lines = wrapped(&text, 13);
        assert!(lines.lines().count() > 3, "{lines}");
        assert!(lines.lines().all(|line| line.chars().count() <= WIDTH), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with(&" ".repeat(13))), "{lines}");
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(words(&lines), words(&text));
        assert_eq!(wrapped("  a  b", 4), "  a  b");
        let long = "x".repeat(2 * WIDTH);
        assert_eq!(wrapped(&format!("a {long} b"), 2), format!("a\n  {long}\n  b"));
    }
}
