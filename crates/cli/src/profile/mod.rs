//! `highwater profile`: where does a server's time go? On CPU, in system calls, and waiting.
//!
//! ```text
//!  target: --pid N, or COMMAND ─┐        first span                             second span
//!  --load URL ──────────────────┴─▶ ┌ stacks: perf, else states of threads ┐ ─▶ ┌ system calls: perf trace, ┐ ─▶ folder:
//!                                   └ threads: /proc, beginning and end    ┘    └ strace, else sampled      ┘    flame.svg
//!                                                                                             report.txt, report.json
//! ```
//! System calls get a span of their own, since counting them slows the server. Where a tool is missing, `/proc` takes its place; the report names what each table was made with, and the command that would allow more.
//!
//! `perf` and `calls` run tools and read their output; `threads` reads `/proc`; `report` writes. They measure, and never
//! change the server.

mod calls;
mod flame;
mod perf;
mod report;
mod session;
#[cfg(test)]
mod tests;
mod threads;

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use perf::{here as perf_here, is_in_path, is_missing as is_perf_missing};

use clap::ArgGroup;

use crate::load::parse_duration;

/// Exit status for what cannot be profiled.
const REFUSED: u8 = 2;
const DURATION_MAX: Duration = Duration::from_secs(3600);

/// Show where a server's time goes: a flame graph of its CPU time, its system calls, and what its threads wait for.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("server").required(true).args(["pid", "command"]), after_help = "\
Examples:
  highwater profile --pid 4711
  highwater profile --load http://127.0.0.1:8080/json -- target/release/my-server
  highwater profile --pid 4711 --duration 30s --out tuesday \\
    --load 'http://127.0.0.1:8080/ --rate 20000'

The folder has flame.svg (open it in a browser), report.txt and report.json. docs/profiling.md
says how to read them, and which settings give good stacks. Exit status: 0, or 2 if nothing could
be profiled.")]
pub(crate) struct Args {
    /// The process to look at.
    #[arg(long, value_name = "N")]
    pid: Option<u32>,

    /// How long CPU time is sampled; system calls are then counted for a third of that.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,

    /// Load during the profile: the arguments of `highwater load`, as one argument. May be given several times.
    #[arg(long, value_name = "URL")]
    load: Vec<String>,

    /// The folder of the report [default: profile-PROGRAM-N].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Samples of CPU time per second.
    #[arg(long, value_name = "N", default_value_t = 199, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,

    /// How callers are found: by debug information, or by frame pointers, which the program must be built with.
    #[arg(long, value_enum, default_value_t = perf::Unwind::Dwarf)]
    unwind: perf::Unwind,

    /// A server to start; it is stopped afterwards.
    #[arg(last = true)]
    command: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        duration if duration.is_zero() || duration > DURATION_MAX => {
            Err("between 1ms and one hour is possible".to_owned())
        }
        duration => Ok(duration),
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match session::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!("highwater profile: {problem}"));
            ExitCode::from(REFUSED)
        }
    }
}

/// Progress and complaints.
fn say(line: &str) {
    // The work goes on even if the terminal is gone.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}
