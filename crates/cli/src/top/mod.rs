//! `highwater top`: what is a running server doing?
//!
//! ```text
//!  address ─▶ watch (a thread asks) ─▶ sample ─▶ figures (rates, histogram) ─▶ state ─▶ screen
//!                                                        └─▶ print (--once, --json)
//! ```
//!
//! Pure, given the time: all but `watch` and `terminal`. The page on the server's metrics port shows
//! the same figures (`highwater::metrics`).

mod address;
mod figures;
mod histogram;
mod print;
mod sample;
mod screen;
mod state;
mod terminal;
mod units;
mod watch;

use std::io::{self, IsTerminal as _};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use highwater::server::args::duration;
use ureq::http::Uri;

use self::figures::Figures;
use self::watch::Server;
use crate::output;

/// More often would be a load of its own; more seldom is not watching.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// Watch a running server: requests, latency, limits, refusals, workers.
///
/// Reads the server's /metrics. Rates and latencies are of the last interval. Without a terminal it
/// prints one snapshot, like --once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Keys:\n  \
    q  quit        p  pause        Tab  order of the endpoints        ↑ ↓ Home  scroll them\n\n\
Examples:\n  \
    highwater top\n  \
    highwater top http://10.0.0.7:9090 --interval 5s\n  \
    highwater top --once\n  \
    highwater top --json | jq .latency.p99_us\n\n\
Exit status: 0; 1 if no snapshot could be taken; 2 for a wrong argument, or if it could not be\nprinted; \
128 and the signal's number after a signal.")]
pub(crate) struct Args {
    /// The server's metrics port; /metrics is added if it is missing
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9090", value_parser = address::metrics)]
    url: Uri,

    /// Print one snapshot as text
    #[arg(long)]
    once: bool,

    /// Print one snapshot as JSON
    #[arg(long)]
    json: bool,

    /// How often to ask; a snapshot takes as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration(INTERVAL))]
    interval: Duration,
}

#[expect(clippy::print_stderr, reason = "this is how a command complains")]
pub(crate) fn run(args: &Args) -> ExitCode {
    let server = Server::new(args.url.clone());
    if !args.once && !args.json && io::stdout().is_terminal() {
        return terminal::run(server, args.interval);
    }
    let figures = match snapshot(&server, args.interval) {
        Ok(figures) => figures,
        Err(why) => {
            eprintln!("highwater top: {why}");
            return ExitCode::FAILURE;
        }
    };
    output::print(&match args.json {
        true => format!("{:#}\n", print::json(&server.shown(), &figures)),
        false => print::text(&server.shown(), &figures),
    });
    ExitCode::SUCCESS
}

/// What happens between two pages.
fn snapshot(server: &Server, interval: Duration) -> Result<Figures, String> {
    let before = server.ask().result?;
    thread::sleep(interval);
    Ok(Figures::between(Some(&before), server.ask().result?))
}
