//! `highwater bench keep`: stands between a run and a server, so that no process outlives the run.
//!
//! It starts the server, adopts what the server's processes leave behind, and when it is told to end, or the
//! run ends in any way (`SIGKILL` too), it ends all of them.
//!
//! ```text
//!  run ──starts──▶ keeper ──starts──▶ server ─▶ its children
//!   │ ends: SIGTERM    │ ends: SIGKILL
//! ```

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use highwater_sys::process::{self, End};
use highwater_sys::signal::Signals;

use super::{plan, tree};

/// How long a server may take to stop by itself.
const STOPPED_WITHIN: Duration = Duration::from_secs(3);
/// How often a server that is to stop is looked at.
const TICK: Duration = Duration::from_millis(5);
/// Exit status if the server cannot be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// Started by `bench run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CPUs of the server.
    #[arg(long)]
    cpus: String,

    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Args {
    /// The arguments that have this command start a keeper of `command`.
    pub(super) fn line(cpus: &[usize], command: &[String]) -> Vec<String> {
        let own = ["bench", "keep", "--cpus", &plan::show_cpus(cpus), "--"];
        own.iter().map(|word| (*word).to_owned()).chain(command.iter().cloned()).collect()
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    match keep(args) {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            super::complain(&format!("{}: {problem}", args.command[0]));
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn keep(args: &Args) -> Result<u8, String> {
    let cpus = plan::parse_cpus(&args.cpus)?;
    let signals = Signals::block().map_err(|error| format!("blocking signals: {error}"))?;
    process::adopt_orphans().map_err(|error| format!("adopting orphans: {error}"))?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    process::tie(&mut command, &cpus, End::Kill);
    let server = command.spawn().map_err(|error| error.to_string())?.id();
    let has_ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&has_ended);
    let waiter = std::thread::spawn(move || wait(server, &told));
    // Until it is told to end: the waiter ends the process if the server does first.
    signals.wait().map_err(|error| format!("waiting for a signal: {error}"))?;
    // It may have ended meanwhile.
    let _ = process::end(server, End::Ask);
    let deadline = Instant::now() + STOPPED_WITHIN;
    while !has_ended.load(Ordering::Acquire) && Instant::now() < deadline {
        std::thread::sleep(TICK);
    }
    // The waiter ends the process when there is no child left.
    while !waiter.is_finished() {
        kill_all();
        std::thread::sleep(TICK);
    }
    Ok(0)
}

/// Waits for all children and orphans. If the server ends by itself, so does this process, with its status and
/// with everything it has left behind.
fn wait(server: u32, has_ended: &AtomicBool) {
    let mut status = None;
    // An error is as good as no child: nothing can be waited for.
    while let Ok(Some((id, ended))) = process::wait_any() {
        if id == server {
            status = ended.code().or_else(|| signal_of(ended).map(|signal| 128 + signal));
            has_ended.store(true, Ordering::Release);
            std::thread::spawn(kill_until_over);
        }
    }
    std::process::exit(status.unwrap_or(0));
}

fn signal_of(status: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// Again and again, since what is killed may have started something a moment before.
fn kill_until_over() {
    loop {
        kill_all();
        std::thread::sleep(TICK);
    }
}

fn kill_all() {
    for id in tree::descendants(std::process::id()) {
        // It may have ended meanwhile.
        let _ = process::end(id, End::Kill);
    }
}
