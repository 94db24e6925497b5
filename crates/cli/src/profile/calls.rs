//! Which system calls does a process make? From perf trace or strace, which see all of them; else from samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::perf::is_in_path;
use super::threads;

/// How often a thread's system call is looked at, where that is all there is.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Names of the calls that servers wait in, by number.
#[cfg(target_arch = "x86_64")]
const NAMES: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (23, "select"),
    (35, "nanosleep"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (74, "fsync"),
    (75, "fdatasync"),
    (202, "futex"),
    (219, "restart_syscall"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (288, "accept4"),
    (426, "io_uring_enter"),
    (441, "epoll_pwait2"),
];
#[cfg(not(target_arch = "x86_64"))]
const NAMES: &[(u32, &str)] = &[
    (22, "epoll_pwait"),
    (63, "read"),
    (64, "write"),
    (73, "ppoll"),
    (82, "fsync"),
    (83, "fdatasync"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (128, "restart_syscall"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
    (242, "accept4"),
    (426, "io_uring_enter"),
    (441, "epoll_pwait2"),
];

/// System calls, and how it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Calls {
    /// What saw them.
    pub(super) with: String,
    /// What `calls` of a [`Call`] counts: `calls`, or `samples`.
    pub(super) unit: &'static str,
    /// Seconds that were looked at.
    pub(super) seconds: f64,
    /// The most frequent first.
    pub(super) calls: Vec<Call>,
}

/// A kind of system call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) errors: u64,
    /// In all of them, waiting included; `None` if it is not known.
    pub(super) total_ms: Option<f64>,
}

/// Looks at `pid` for `span`. What was tried in vain is said in the notes.
pub(super) fn count(pid: u32, span: Duration, folder: &Path, notes: &mut Vec<String>) -> Calls {
    let began = Instant::now();
    let mut calls = match with_perf(pid, span, folder).or_else(|problem| {
        notes.push(format!(
            "perf trace does not work here ({problem}): run it as root, or use strace"
        ));
        with_strace(pid, span)
    }) {
        Ok(calls) => calls,
        Err(problem) => {
            notes.push(format!("strace does not work here ({problem}): apt-get install strace; --cap-add SYS_PTRACE"));
            sampled(pid, span)
        }
    };
    calls.seconds = began.elapsed().min(span).as_secs_f64();
    calls.calls.sort_by_key(|call| std::cmp::Reverse(call.calls));
    calls
}

fn with_perf(pid: u32, span: Duration, folder: &Path) -> Result<Calls, String> {
    if !is_in_path("perf") {
        return Err("perf is not installed".to_owned());
    }
    let trace = folder.join("trace.txt");
    let mut perf = Command::new("perf");
    perf.args(["trace", "--summary", "-p", &pid.to_string(), "-o"]).arg(&trace);
    perf.args(["--", "sleep", &span.as_secs_f64().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    threads::tie(&mut perf);
    let done = perf.output().map_err(|error| error.to_string())?;
    let text = fs::read_to_string(&trace).unwrap_or_default();
    // It is in the report.
    let _ = fs::remove_file(&trace);
    let calls = parse_perf(&text);
    if calls.is_empty() {
        let complaint = String::from_utf8_lossy(&done.stderr);
        return Err(complaint
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it saw none")
            .trim()
            .to_owned());
    }
    Ok(Calls { with: "perf trace".to_owned(), unit: "calls", calls, ..Calls::default() })
}

fn with_strace(pid: u32, span: Duration) -> Result<Calls, String> {
    if !is_in_path("strace") {
        return Err("strace is not installed".to_owned());
    }
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-p", &pid.to_string()]);
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    threads::tie(&mut strace);
    let strace = strace.spawn().map_err(|error| error.to_string())?;
    std::thread::sleep(span);
    let done = threads::stop(strace, threads::STOPPED_WITHIN).map_err(|error| error.to_string())?;
    let output = String::from_utf8_lossy(&done.stderr);
    let calls = parse_strace(&output);
    if calls.is_empty() {
        return Err(output.lines().next().unwrap_or("it saw none").to_owned());
    }
    Ok(Calls { with: "strace".to_owned(), unit: "calls", calls, ..Calls::default() })
}

/// The threads' tables of `perf trace --summary`, added up.
pub(super) fn parse_perf(output: &str) -> Vec<Call> {
    let mut calls: BTreeMap<&str, Call> = BTreeMap::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, count, errors, total, ..] = words.as_slice() else { continue };
        let (Ok(count), Ok(errors), Ok(total)) =
            (count.parse::<u64>(), errors.parse::<u64>(), total.parse::<f64>())
        else {
            continue;
        };
        let call = calls
            .entry(name)
            .or_insert_with(|| Call { name: (*name).to_owned(), ..Call::default() });
        call.calls += count;
        call.errors += errors;
        call.total_ms = Some(call.total_ms.unwrap_or(0.0) + total);
    }
    calls.into_values().collect()
}

/// The table of `strace -c`. Its seconds are CPU time in the kernel, so they are not taken for how long calls took.
pub(super) fn parse_strace(output: &str) -> Vec<Call> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&name, numbers) = words.split_last()?;
        let mut numbers = numbers.iter().map(|word| word.parse::<f64>().ok());
        // Share, seconds, microseconds a call, calls, and errors where there are any.
        let (_, _, _, calls) =
            (numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??);
        let errors = numbers.next().flatten().unwrap_or(0.0);
        let call = Call {
            name: name.to_owned(),
            calls: calls as u64,
            errors: errors as u64,
            total_ms: None,
        };
        (name != "total").then_some(call)
    };
    output.lines().filter_map(of).collect()
}

/// In which call each thread is, again and again: calls that wait are seen, and short ones rarely.
fn sampled(pid: u32, span: Duration) -> Calls {
    let end = Instant::now() + span;
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    while Instant::now() < end {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            if let Some(name) = call_of(&text) {
                *found.entry(name).or_default() += 1;
            }
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    let call = |(name, calls)| Call { name, calls, ..Call::default() };
    let calls = found.into_iter().map(call).collect();
    Calls {
        with: "samples of /proc/PID/task/*/syscall".to_owned(),
        unit: "samples",
        calls,
        ..Calls::default()
    }
}

/// The call that a thread is in, from the text of its `syscall`; `None` if it is in none.
pub(super) fn call_of(text: &str) -> Option<String> {
    let number: u32 = text.split_whitespace().next()?.parse().ok()?;
    let known = NAMES.iter().find(|(of, _)| *of == number);
    Some(known.map_or_else(|| format!("call {number}"), |(_, name)| (*name).to_owned()))
}
