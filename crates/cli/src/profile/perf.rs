//! perf: does it work here, and what does it report?

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::threads;

/// What is sampled, best first: the processor's counter, or the clock of the kernel where there is no counter, as in
/// many virtual machines.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];

/// What is printed of a sample. Without its period, so that each counts as one.
const FIELDS: &str = "comm,pid,tid,time,event,ip,sym,dso";

/// How perf finds a function's callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Unwind {
    /// By debug information (`.eh_frame`): works for every Rust program, and copies 8 KiB of stack per sample.
    Dwarf,
    /// By frame pointers: cheap; build with `RUSTFLAGS=-Cforce-frame-pointers=yes`.
    Fp,
}

impl Unwind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unwind::Dwarf => "dwarf",
            Unwind::Fp => "fp",
        }
    }
}

/// Whether there is a program `name`.
pub(crate) fn is_in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The event that perf can sample here, found by trying.
///
/// # Errors
/// None; with perf's reason.
pub(crate) fn here() -> Result<&'static str, String> {
    if !is_in_path("perf") {
        return Err("perf is not installed".to_owned());
    }
    let mut problem = String::new();
    for event in EVENTS {
        let tried =
            Command::new("perf").args(["stat", "-x", ",", "-e", event, "--", "true"]).output();
        let tried = tried.map_err(|error| format!("perf: {error}"))?;
        let stderr = String::from_utf8_lossy(&tried.stderr).into_owned();
        if tried.status.success() && counted(&stderr) {
            return Ok(event);
        }
        problem = stderr;
    }
    Err(reason(&problem))
}

/// Whether `perf stat -x ,` counted, or says `<not supported>` or `<not counted>`.
pub(super) fn counted(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(|first: char| first.is_ascii_digit()))
}

/// Whether a complaint says that there is no perf: at all, or none for this kernel, which Debian's and Ubuntu's perf, a
/// script, looks for.
pub(crate) fn is_missing(problem: &str) -> bool {
    problem.contains("is not installed") || problem.contains("not found for kernel")
}

/// The line of perf's complaint that says why.
pub(super) fn reason(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let paranoid = lines().find(|line| line.contains("perf_event_paranoid setting is"));
    let missing = lines().find(|line| is_missing(line));
    let line = missing.or(paranoid).or_else(|| {
        lines().find(|line| line.contains("not permitted") || line.contains("supported"))
    });
    line.or_else(|| lines().next()).unwrap_or("perf counts nothing here").to_owned()
}

/// A perf that records until it is stopped.
pub(super) struct Recording {
    perf: Child,
    data: PathBuf,
}

impl Recording {
    pub(super) fn start(
        event: &str,
        unwind: Unwind,
        frequency: u32,
        pid: u32,
        data: &Path,
    ) -> Result<Recording, String> {
        let mut perf = Command::new("perf");
        perf.args([
            "record",
            "--quiet",
            "-e",
            event,
            "-F",
            &frequency.to_string(),
            "--call-graph",
            unwind.name(),
        ])
        .args(["-p", &pid.to_string(), "-o"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
        threads::tie(&mut perf);
        let perf = perf.spawn().map_err(|error| format!("perf: {error}"))?;
        Ok(Recording { perf, data: data.to_owned() })
    }

    /// Stops it, and has its samples as `perf script` prints them.
    pub(super) fn stop(self) -> Result<Vec<u8>, String> {
        let Recording { perf, data } = self;
        let done = threads::stop(perf, threads::STOPPED_WITHIN);
        let done = done.map_err(|error| format!("perf: {error}"))?;
        if !data.is_file() {
            return Err(reason(&String::from_utf8_lossy(&done.stderr)));
        }
        let mut script = Command::new("perf");
        // Inlined functions would be looked up by another program, for minutes.
        script.args(["script", "--no-inline", "-F", FIELDS, "-i"]).arg(&data).stdin(Stdio::null());
        let output = script.output().map_err(|error| format!("perf script: {error}"))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(reason(&String::from_utf8_lossy(&output.stderr))),
        }
    }
}
