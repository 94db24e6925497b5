//! `highwater bench keep`: stands between a run and what it starts, so that no process outlives the run.
//!
//! It starts a server, a program or a service, and adopts orphaned descendants. When it gets SIGTERM, or the run ends
//! in any way (`SIGKILL` too), it ends all of them.
//!
//! ```text
//!  run ──starts──▶ supervisor ──starts──▶ server ─▶ its children
//!   │ ends: SIGTERM    │ ends: SIGKILL
//! ```

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use highwater_sys::process::{self, End};
use highwater_sys::signal::Signals;
use serde::{Deserialize, Serialize};

use super::network::{Network, Side};
use super::{plan, tree};

/// How long a server may take to stop after SIGTERM.
const STOPPED_WITHIN: Duration = Duration::from_secs(3);
/// The same for processes that a service left behind, unless its own limit is shorter.
const LEFT_WITHIN: Duration = Duration::from_secs(60);
/// How often a stopping process is checked.
const TICK: Duration = Duration::from_millis(5);
/// Exit status if the server cannot be started, as in shells.
const NOT_STARTED: u8 = 127;
/// The line that a supervisor prints when a service has started.
pub(super) const STARTED: &str = "highwater bench keep: started";

/// Started by `bench run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CPUs of the command.
    #[arg(long)]
    cpus: String,

    /// When it has ended, print its resource use as a line of JSON after its output.
    #[arg(long)]
    report: bool,

    /// The command starts a service and ends; this, a JSON list of words, stops it.
    #[arg(long)]
    stop: Option<String>,

    /// The limit for that, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    within: u64,

    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The resource use of a program and all its descendants, which have ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Used {
    pub(super) cpu_s: f64,
    pub(super) seconds: f64,
}

/// A running supervisor. Dropping it ends everything below it, and then the supervisor.
pub(super) struct Supervisor(pub(super) Child);

impl Supervisor {
    /// Starts a supervisor made by [`command`] on a side of the network.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(
        supervisor: &mut Command,
        (network, side): (&Network, Side),
    ) -> Result<Supervisor, String> {
        let supervisor = network.on(side, || supervisor.spawn())?;
        Ok(Supervisor(supervisor.map_err(|error| format!("starting it: {error}"))?))
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Ends everything below it, and then itself; false if it could not start or stop what it was told to.
    pub(super) fn end(&mut self) -> bool {
        if self.ended().is_none() {
            let _ = process::end(self.0.id(), End::Ask);
        }
        // It is known how it ended, if it did before.
        let status = self.0.wait();
        !status.is_ok_and(|status| status.code() == Some(i32::from(NOT_STARTED)))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

/// A supervisor of `command` on `cpus`, with its own `flags`. It ends with the calling thread.
///
/// # Errors
/// The path of this program is not known.
pub(super) fn command(
    cpus: &[usize],
    flags: &[String],
    command: &[String],
) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut supervisor = Command::new(own);
    supervisor
        .args(["bench", "keep", "--cpus", &plan::show_cpus(cpus)])
        .args(flags)
        .arg("--")
        .args(command)
        // Ctrl-C is for the run alone: a server that it ended would look like one that failed.
        .process_group(0)
        .stdin(Stdio::null());
    process::tie(&mut supervisor, &[], End::Ask);
    Ok(supervisor)
}

pub(super) fn run(args: &Args) -> ExitCode {
    let kept = match &args.stop {
        None => keep(args),
        Some(stop) => keep_service(args, stop),
    };
    match kept {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            super::complain(&format!("{}: {problem}", args.command[0]));
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Redirects the output of everything below `supervisor` to files: standard output and standard error.
///
/// # Errors
/// There is no room for them.
pub(super) fn into_files(supervisor: &mut Command) -> Result<(File, File), String> {
    let file = || unnamed_file().map_err(|error| format!("a file for its output: {error}"));
    let clone = |file: &File| file.try_clone().map(Stdio::from).map_err(|error| error.to_string());
    let (stdout, stderr) = (file()?, file()?);
    supervisor.stdout(clone(&stdout)?).stderr(clone(&stderr)?);
    Ok((stdout, stderr))
}

/// A file without a name.
pub(super) fn unnamed_file() -> std::io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path =
        std::env::temp_dir().join(format!("highwater-bench-{}-{number}", std::process::id()));
    let file =
        OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Starts `command` on `cpus`; it ends with the calling thread.
fn begin(command: &[String], cpus: &[usize], stdout: Stdio) -> Result<Child, String> {
    let mut starting = Command::new(&command[0]);
    starting.args(&command[1..]).stdin(Stdio::null()).stdout(stdout);
    process::tie(&mut starting, cpus, End::Kill);
    starting.spawn().map_err(|error| error.to_string())
}

fn keep(args: &Args) -> Result<u8, String> {
    let cpus = plan::parse_cpus(&args.cpus)?;
    let signals = Signals::catch().map_err(|error| format!("catching signals: {error}"))?;
    process::adopt_orphans().map_err(|error| format!("adopting orphans: {error}"))?;
    let stdout = if args.report { Stdio::inherit() } else { Stdio::null() };
    let began = Instant::now();
    let server = begin(&args.command, &cpus, stdout)?.id();
    let has_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_ended);
    let report = args.report.then_some(began);
    let waiter = std::thread::spawn(move || wait(server, &flag, report));
    // Until SIGTERM: the waiter ends the process if the server ends first.
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

/// Waits for all children and orphans. If the server ends first, so does this process, with its status and with all
/// orphans.
fn wait(server: u32, has_ended: &AtomicBool, report: Option<Instant>) {
    let (mut status, mut seconds) = (None, 0.0);
    // An error means no child: there is nothing to wait for.
    while let Ok(Some((id, ended))) = process::wait_any() {
        if id == server {
            seconds = report.map_or(0.0, |began| began.elapsed().as_secs_f64());
            status = ended.code().or_else(|| signal_of(ended).map(|signal| 128 + signal));
            has_ended.store(true, Ordering::Release);
            std::thread::spawn(kill_until_over);
        }
    }
    if let (Some(_), Ok(cpu)) = (report, process::ended_children_cpu()) {
        let used = Used { cpu_s: cpu.as_secs_f64(), seconds };
        super::print(&format!("\n{}\n", serde_json::json!(used)));
    }
    std::process::exit(status.unwrap_or(0));
}

fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// Repeated, since a killed process may have started another just before.
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

/// Runs the start command to its end, waits for SIGTERM, and runs the stop command.
fn keep_service(args: &Args, stop: &str) -> Result<u8, String> {
    let cpus = plan::parse_cpus(&args.cpus)?;
    let stop: Vec<String> =
        serde_json::from_str(stop).map_err(|error| format!("--stop: {error}"))?;
    let within = Duration::from_millis(args.within);
    let signals = Signals::catch().map_err(|error| format!("catching signals: {error}"))?;
    process::adopt_orphans().map_err(|error| format!("adopting orphans: {error}"))?;
    let is_told = || matches!(signals.wait_timeout(TICK), Ok(Some(_)));
    let mut starting = begin(&args.command, &cpus, Stdio::inherit())?;
    let status = ended_within(&mut starting, within, &is_told);
    let stopped = match status.is_some_and(|status| status.success()) {
        true => wait_and_stop(&signals, &stop, &cpus, within),
        false => Ok(false),
    };
    // Whatever failed, no process may stay.
    end_what_is_left(within.min(LEFT_WITHIN), stopped == Ok(true));
    stopped?;
    Ok(match status {
        Some(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_STARTED)
        }
        None => NOT_STARTED,
    })
}

/// Says that the service has started, waits for SIGTERM, and runs the stop command to its end; false if there is none.
fn wait_and_stop(
    signals: &Signals,
    stop: &[String],
    cpus: &[usize],
    within: Duration,
) -> Result<bool, String> {
    super::print(&format!("\n{STARTED}\n"));
    signals.wait().map_err(|error| format!("waiting for a signal: {error}"))?;
    if stop.is_empty() {
        return Ok(false);
    }
    let stopping = begin(stop, cpus, Stdio::null());
    let mut stopping = stopping.map_err(|problem| format!("stop: {}: {problem}", stop[0]))?;
    ended_within(&mut stopping, within, &|| {
        std::thread::sleep(TICK);
        false
    });
    Ok(true)
}

/// The exit status of `child`; `None` if it has not ended within `limit`, or before `is_over`, which waits a moment.
fn ended_within(
    child: &mut Child,
    limit: Duration,
    is_over: &dyn Fn() -> bool,
) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline && !is_over() => {}
            _ => return None,
        }
    }
}

/// Sends SIGTERM to every process below this one, after `patience` if it `is_stopped` already, and kills the remaining
/// ones.
fn end_what_is_left(patience: Duration, is_stopped: bool) {
    let waiter = std::thread::spawn(|| while let Ok(Some(_)) = process::wait_any() {});
    let wait = || {
        let deadline = Instant::now() + patience;
        while !waiter.is_finished() && Instant::now() < deadline {
            std::thread::sleep(TICK);
        }
    };
    if is_stopped {
        wait();
    }
    for id in tree::children(std::process::id()) {
        // It may have ended meanwhile.
        let _ = process::end(id, End::Ask);
    }
    wait();
    while !waiter.is_finished() {
        kill_all();
        std::thread::sleep(TICK);
    }
}
