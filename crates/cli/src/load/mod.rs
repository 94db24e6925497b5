//! `highwater load`: requests in a closed or an open loop, and their results.
//!
//! ```text
//!  args ─▶ target (address, requests) ─▶ run: threads of client ⇄ sys::dial
//!   mix ─▶  request  template  expect              demand  tally  hlog
//!                                         └─▶ report (text | JSON)  chart
//! ```
//!
//! Between a client and its dialer are `tls`, and `http2` or `ws`, if they are requested; with both, `ws` over `tunnels`.
//!
//! Pure, given the time: `schedule`, `demand`, `tally`, `verdict`, `template`, `expect`, `chart`, and `client` except for
//! its dialer. Answers are read by `core::http1::client`. Clocks and threads are `run`'s; files are read by `files` before
//! anything is sent.

mod args;
mod chart;
mod client;
mod counts;
mod demand;
mod expect;
mod files;
mod frames;
mod handshakes;
mod hlog;
mod http2;
mod message;
mod mix;
mod report;
mod request;
mod run;
mod schedule;
mod series;
mod spec;
mod tally;
mod target;
mod template;
mod tls;
mod tunnels;
mod units;
mod upgrade;
mod verdict;
mod wire;
mod ws;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use target::{Target, Texts};

pub(crate) use args::{
    Args, BURST_MAX, CONNECTIONS_MAX, PIPELINE_MAX, RATE_MAX, STREAMS_MAX, parse_duration,
};
use run::IfRefused;
pub(crate) use run::{OnMark, Outcome};

/// Exit status for a wrong flag, as clap has it.
const WRONG_FLAG: u8 = 2;

#[expect(clippy::print_stderr, reason = "this is how a command complains")]
pub(crate) fn run(args: &Args) -> ExitCode {
    let prepared = prepare(args);
    let (target, hlog) = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => {
            eprintln!("highwater load: {problem}");
            return ExitCode::from(WRONG_FLAG);
        }
    };
    let shown = report::Shown::new(&target);
    let mut result = match run::run(args, target, IfRefused::End, Box::new(|_| ())) {
        Ok(result) => result,
        Err(problem) => {
            eprintln!("highwater load: {problem}");
            return ExitCode::FAILURE;
        }
    };
    report::print(args, &shown, &result);
    if let Some((path, file)) = hlog
        && let Err(problem) = write_log(args, &mut result, file)
    {
        eprintln!("highwater load: --hlog {}: {problem}", path.display());
        return ExitCode::FAILURE;
    }
    match result.failure(args, shown.address) {
        Some((status, what)) => {
            eprintln!("highwater load: {}: {what}", args.urls[0]);
            ExitCode::from(status)
        }
        None => ExitCode::SUCCESS,
    }
}

/// Where the log of latencies is written.
type Log<'a> = (&'a Path, File);

/// Everything that can be wrong with the flags is found here, before anything is sent.
fn prepare(args: &Args) -> Result<(Target, Option<Log<'_>>), String> {
    args.check()?;
    let target = target::resolve(args, Texts::Templates)?;
    let create = |path: &PathBuf| {
        File::create(path).map_err(|error| {
            format!("--hlog {}: {error}; name a file that can be written", path.display())
        })
    };
    let log = args.hlog.as_ref().map(|path| Ok::<_, String>((path.as_path(), create(path)?)));
    Ok((target, log.transpose()?))
}

fn write_log(args: &Args, result: &mut Outcome, file: File) -> Result<(), String> {
    let Some(intervals) = result.tally.intervals.take() else { return Ok(()) };
    let mut out = BufWriter::new(file);
    let count = result.span.as_nanos().div_ceil(args.series.as_nanos()) as u64;
    intervals.write(result.began, count, &mut out)?;
    out.flush().map_err(|error| error.to_string())
}

/// Generates the load that `args` describe, for a caller that reports it itself.
///
/// # Errors
/// An argument is wrong, or the machinery failed.
pub(crate) fn generate(args: &Args, on_mark: OnMark) -> Result<Outcome, String> {
    args.check()?;
    let target = target::resolve(args, Texts::Literal)?;
    run::run(args, target, IfRefused::GoOn, on_mark)
}
