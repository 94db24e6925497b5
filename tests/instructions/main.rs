//! Has a request become more expensive? Instructions are counted under Valgrind's Callgrind and compared with
//! `bench/instructions/baseline.json`.
//!
//! Unlike time, the count is the same on a busy machine, and on another one: it leaves out the C library, which chooses
//! its functions by the processor, the simulated network, and everything before the work is warm.
//!
//! ```text
//!  check ─▶ valgrind, which runs: this program, `run` ─▶ setup, warm-up, mark, WORK × n, mark ─▶ a dump for each mark
//!                                                                                                   │
//!         baseline.json ◀─ accept ── counts per piece of work ◀─ callgrind.rs ◀────────────────────┘
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this is the program's output")]

mod baseline;
mod callgrind;
mod server;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use baseline::Baseline;

/// Exit status where nothing could be counted.
const NOT_COUNTED: u8 = 2;
/// Exit status where the baseline is of another compiler.
const NOT_COMPARED: u8 = 3;

/// Counts the instructions of the hot path.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  instructions check                        compare with the baseline (make instructions)
  instructions accept                       make these counts the baseline (make instructions-accept)
  instructions server target/release/highwater-arena     a whole server, over epoll and loopback

Exit status of check: 0 within the tolerance, 1 a count has grown or is not in the baseline, 2 nothing was counted,\n\
3 the baseline is of another compiler.")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Compare with the baseline
    Check {
        /// The baseline.
        #[arg(long, default_value = "bench/instructions/baseline.json")]
        baseline: PathBuf,
        /// Where the counts are written, as JSON.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Make today's counts the baseline
    Accept {
        /// The baseline.
        #[arg(long, default_value = "bench/instructions/baseline.json")]
        baseline: PathBuf,
    },
    /// Count what a whole server's worker does for a request
    Server(server::Args),
    /// Do the work that is counted
    #[command(hide = true)]
    Run,
}

fn main() -> ExitCode {
    let done = match Args::parse().verb {
        Verb::Check { baseline, out } => check(&baseline, out.as_deref()),
        Verb::Accept { baseline } => accept(&baseline),
        Verb::Server(args) => server::run(&args).map(|()| ExitCode::SUCCESS),
        Verb::Run => {
            work::run();
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|problem| {
        eprintln!("instructions: {problem}");
        ExitCode::from(NOT_COUNTED)
    })
}

fn check(path: &Path, out: Option<&Path>) -> Result<ExitCode, String> {
    let known = Baseline::read(path)?;
    if let Err(problem) = known.fits() {
        eprintln!("instructions: {problem}");
        return Ok(ExitCode::from(NOT_COMPARED));
    }
    let found = Baseline::here(callgrind::count()?);
    if let Some(out) = out {
        found.write(out)?;
    }
    let (lines, has_grown) = baseline::compare(&known, &found);
    lines.iter().for_each(|line| println!("{line}"));
    Ok(ExitCode::from(u8::from(has_grown)))
}

fn accept(path: &Path) -> Result<ExitCode, String> {
    let found = Baseline::here(callgrind::count()?);
    // The first baseline, or one that cannot be read any more, is compared with nothing.
    if let Ok(known) = Baseline::read(path) {
        baseline::compare(&known, &found).0.iter().for_each(|line| println!("{line}"));
    }
    found.write(path)?;
    println!("written: {}; commit it with what moved it", path.display());
    Ok(ExitCode::SUCCESS)
}
