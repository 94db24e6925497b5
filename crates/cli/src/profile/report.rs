//! The written results: the picture, a text for people, and the same as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::Args;
use super::calls::Calls;
use super::flame::{Cpu, Function, Stacks};
use super::threads::Thread;

/// Places that the text names for each thread.
const WAITS_MAX: usize = 3;
/// Kinds of system calls that the text names.
const CALLS_MAX: usize = 20;
/// Functions and threads that are printed at once.
const SUMMARY_MAX: usize = 5;
/// Fewer samples than this cannot tell 1 % from 2 %: of 1000 samples, 1 % is 10 ± 3.
const SAMPLES_MIN: u64 = 1000;

/// All of a profile. Its fields are the keys of report.json.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    program: String,
    pid: u32,
    seconds: f64,
    load: Vec<String>,
    /// How the stacks were had.
    cpu_with: String,
    samples: u64,
    functions: Vec<Function>,
    threads: Vec<Thread>,
    system_calls: Calls,
    /// What could not be measured, and what would allow it.
    notes: Vec<String>,
    #[serde(skip)]
    stacks: Stacks,
    #[serde(skip)]
    what: &'static str,
}

impl Report {
    pub(super) fn new(
        program: &str,
        pid: u32,
        args: &Args,
        cpu: Cpu,
        calls: Calls,
        mut notes: Vec<String>,
    ) -> Report {
        let samples = cpu.stacks.total();
        if samples < SAMPLES_MIN {
            notes.push(format!(
                "{samples} samples are few: 1 % is {:.0} of them, give or take {:.0}; give more load, a longer --duration \
                 or a higher --frequency",
                samples as f64 / 100.0,
                (samples as f64 / 100.0).sqrt().max(1.0),
            ));
        }
        Report {
            program: program.to_owned(),
            pid,
            seconds: args.duration.as_secs_f64(),
            load: args.load.clone(),
            cpu_with: cpu.with,
            samples,
            functions: cpu.stacks.functions(),
            threads: cpu.threads,
            system_calls: calls,
            notes,
            stacks: cpu.stacks,
            what: cpu.what,
        }
    }

    /// What is worth knowing at once: the hottest functions, the busiest threads and the notes. The rest is in the files.
    fn summary(&self) -> String {
        let mut text = format!("{} (process {}), {} s\n", self.program, self.pid, self.seconds);
        let _ = writeln!(text, "\nhottest functions, of {} {}", self.samples, self.what);
        for Function { name, own_percent, .. } in self.functions.iter().take(SUMMARY_MAX) {
            let _ = writeln!(text, "{own_percent:>6.1} %  {name}");
        }
        text += "\nbusiest threads\n";
        for thread in self.threads.iter().take(SUMMARY_MAX) {
            let _ = writeln!(text, "{:>6.1} %  {}", thread.running_percent, thread.name);
        }
        self.notes(&mut text);
        text
    }

    fn notes(&self, text: &mut String) {
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{} (process {}), {} s\n", self.program, self.pid, self.seconds);
        self.load.iter().for_each(|load| text += &format!("load: {load}\n"));
        let _ = writeln!(text, "\nFunctions: {} {}, by {}", self.samples, self.what, self.cpu_with);
        text += "     own  with callees\n";
        for Function { name, own_percent, with_callees_percent } in &self.functions {
            let _ = writeln!(text, "{own_percent:>6.1} % {with_callees_percent:>11.1} %  {name}");
        }
        text += "\nThreads: percent of the span; waits are samples of where in the kernel\n";
        text += "     on CPU   wants CPU     waits   switches/s  (forced)  thread\n";
        for thread in &self.threads {
            let waits: Vec<String> = thread
                .waits
                .iter()
                .take(WAITS_MAX)
                .map(|(place, percent)| format!("{place} {percent:.0} %"))
                .collect();
            let _ = writeln!(
                text,
                "{:>9.1} % {:>9.1} % {:>7.1} % {:>12.0} {:>9.0}  {} ({})",
                thread.running_percent,
                thread.runnable_percent,
                thread.waiting_percent,
                thread.switches_per_s,
                thread.switches_forced_per_s,
                thread.name,
                if waits.is_empty() { "never seen waiting".to_owned() } else { waits.join(", ") }
            );
        }
        let calls = &self.system_calls;
        let _ = writeln!(text, "\nSystem calls: {:.1} s, by {}", calls.seconds, calls.with);
        let _ = writeln!(
            text,
            "{:>12} {:>12} {:>10} {:>12}  call",
            calls.unit, "per second", "errors", "ms total"
        );
        for call in calls.calls.iter().take(CALLS_MAX) {
            let rate = call.calls as f64 / calls.seconds.max(1e-9);
            let total = call.total_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
            let _ = writeln!(
                text,
                "{:>12} {rate:>12.0} {:>10} {total:>12}  {}",
                call.calls, call.errors, call.name
            );
        }
        self.notes(&mut text);
        text
    }
}

/// Writes the three files.
pub(super) fn write(report: &Report, folder: &Path) -> Result<(), String> {
    let title = format!("{} ({})", report.program, report.cpu_with);
    let json = serde_json::to_vec_pretty(report).map_err(|error| error.to_string())?;
    let svg = report.stacks.svg(&title, report.what)?;
    for (name, bytes) in
        [("flame.svg", svg), ("report.txt", report.text().into_bytes()), ("report.json", json)]
    {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    super::say(report.summary().trim_end());
    Ok(())
}
