//! `highwater load`: requests in a closed or an open loop, and their results.
//!
//! ```text
//!  args ─▶ target (address, request bytes) ─▶ run: threads of client ⇄ sys::dial
//!                                                   demand  tally
//!                                              └─▶ report (text | JSON)
//! ```
//!
//! Pure, given the time: `schedule`, `demand`, `tally`, and `client` but for its dialer. Answers are
//! read by `core::http1::client`. Clocks, threads and files are `run`'s.

mod args;
mod client;
mod demand;
mod report;
mod run;
mod schedule;
mod tally;
mod target;

use std::process::ExitCode;

pub(crate) use args::{Args, BURST_MAX, CONNECTIONS_MAX, PIPELINE_MAX, RATE_MAX, parse_duration};
pub(crate) use run::{OnMark, Outcome};

/// Exit status for a wrong flag, as clap has it.
const WRONG_FLAG: u8 = 2;
/// Exit status under `--strict` if the figures measure the client.
const BOTTLENECK: u8 = 3;

#[expect(clippy::print_stderr, reason = "this is how a command complains")]
pub(crate) fn run(args: &Args) -> ExitCode {
    let prepared = args.check().and_then(|()| target::resolve(args));
    let target = match prepared {
        Ok(target) => target,
        Err(problem) => {
            eprintln!("highwater load: {problem}");
            return ExitCode::from(WRONG_FLAG);
        }
    };
    let result = match run::run(args, &target, Box::new(|_| ())) {
        Ok(result) => result,
        Err(problem) => {
            eprintln!("highwater load: {problem}");
            return ExitCode::FAILURE;
        }
    };
    report::print(args, &target, &result);
    match () {
        () if result.nothing_listens() => ExitCode::FAILURE,
        () if args.strict && !result.bottlenecks(args).is_empty() => ExitCode::from(BOTTLENECK),
        () => ExitCode::SUCCESS,
    }
}

/// Generates the load that `args` describe, for a caller that reports it itself.
///
/// # Errors
/// An argument is wrong, or the machinery failed.
pub(crate) fn generate(args: &Args, on_mark: OnMark) -> Result<Outcome, String> {
    args.check()?;
    let target = target::resolve(args)?;
    run::run(args, &target, on_mark)
}
