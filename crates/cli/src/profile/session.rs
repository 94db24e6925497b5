//! One profile: the target, the load, the two spans, and the results.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use highwater_sys::process::{self, End};

use super::calls;
use super::flame::{Cpu, Stacks};
use super::report::{self, Report};
use super::threads::{self, Places, Thread};
use super::{Args, perf, say};
use crate::progress::Progress;

/// How often threads are looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// How long a server may take until it listens, and until it ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// Load before anything is sampled.
const WARM_UP: Duration = Duration::from_millis(500);
/// A process that used less of a CPU than this may have been between two samples each time.
const IDLE_PERCENT: f64 = 1.0;
/// The span of system calls is this part of that of CPU time.
const CALLS_SHARE: u32 = 3;

pub(super) fn run(args: &Args) -> Result<(), String> {
    let target = Target::find(args)?;
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("profile-{}-{}", target.name, target.pid)));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let calls_span = args.duration / CALLS_SHARE;
    let load = Load::start(args, WARM_UP + args.duration + calls_span + PATIENCE)?;
    if !args.load.is_empty() {
        std::thread::sleep(WARM_UP);
    }
    let mut notes = Vec::new();
    let cpu = sample(args, target.pid, &folder, &mut notes)?;
    say(&format!("counting system calls, {calls_span:.0?}"));
    let calls = calls::count(target.pid, calls_span, &folder, &mut notes);
    load.check(&mut notes);
    drop(load);
    let report = Report::new(&target.name, target.pid, args, cpu, calls, notes);
    report::write(&report, &folder)?;
    say(&format!("written: {}/flame.svg, report.txt, report.json", folder.display()));
    Ok(())
}

/// Samples CPU time with perf, or else where threads are; and what threads do, in any case.
fn sample(args: &Args, pid: u32, folder: &Path, notes: &mut Vec<String>) -> Result<Cpu, String> {
    let data = folder.join("perf.data");
    let recording = perf::here().and_then(|event| {
        let recording = perf::Recording::start(event, args.unwind, args.frequency, pid, &data)?;
        Ok((event, recording))
    });
    let (before, began) = (threads::snapshot(pid), Instant::now());
    let mut places = Places::new();
    let mut progress = Progress::new("sampling", args.duration.as_millis() as u64);
    while began.elapsed() < args.duration {
        threads::look(pid, &mut places);
        progress.set(began.elapsed().as_millis() as u64);
        std::thread::sleep(LOOKS_EVERY);
    }
    progress.finish();
    let (span, after) = (began.elapsed(), threads::snapshot(pid));
    if after.is_empty() {
        return Err(format!("process {pid} ended while it was looked at"));
    }
    let threads = threads::between(&before, &after, span, &places);
    let recorded = recording.and_then(|(event, recording)| {
        say("reading the samples");
        let stacks = Stacks::of_perf(&recording.stop()?)?;
        Ok((event, stacks))
    });
    // It has every sampled stack, and is large.
    let _ = fs::remove_file(&data);
    match recorded {
        Ok((event, stacks)) if stacks.total() > 0 => {
            let unwind = args.unwind.name();
            let with = format!("perf record -e {event} -F {} --call-graph {unwind}", args.frequency);
            return Ok(Cpu { with, what: "samples of CPU time", stacks, threads });
        }
        Ok(_) => notes.push(no_sample(&threads)),
        Err(problem) if perf::is_missing(&problem) => notes.push(format!(
            "perf does not work here ({problem}): `highwater doctor` says how to install it"
        )),
        Err(problem) => notes.push(format!(
            "perf does not work here ({problem}): run it as root, or sysctl -w kernel.perf_event_paranoid=1; --cap-add \
             PERFMON in a container"
        )),
    }
    let name = |id: u32| {
        let thread = threads.iter().find(|thread| thread.id == id);
        thread.map_or_else(|| id.to_string(), |thread| thread.name.clone())
    };
    let stacks = Stacks::of_places(&places, name);
    if stacks.total() == 0 {
        return Err(format!(
            "process {pid} may not be looked at: run this as the same user, or as root"
        ));
    }
    let with = "samples of /proc/PID/task/*/stat and wchan: where threads were, not which code ran"
        .to_owned();
    Ok(Cpu { with, what: "samples of threads", stacks, threads })
}

/// Why perf has no sample of `threads`.
pub(super) fn no_sample(threads: &[Thread]) -> String {
    let running: f64 = threads.iter().map(|thread| thread.running_percent).sum();
    if running < IDLE_PERCENT {
        return "perf has no sample: the process used no CPU; give it load with --load".to_owned();
    }
    format!(
        "perf has no sample, although the process used {running:.0} % of a CPU; give a longer --duration"
    )
}

/// The process to look at. If it was started here, it is stopped when this is dropped.
struct Target {
    pid: u32,
    name: String,
    started: Option<Child>,
}

impl Target {
    fn find(args: &Args) -> Result<Target, String> {
        let (pid, started) = match (args.pid, args.command.split_first()) {
            (Some(pid), _) => (pid, None),
            (None, Some((program, arguments))) => {
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null());
                threads::tie(&mut command);
                let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
                (child.id(), Some(child))
            }
            (None, None) => {
                return Err("nothing to look at: give --pid N, or -- COMMAND".to_owned());
            }
        };
        let mut target = Target { pid, name: String::new(), started };
        for load in &args.load {
            target.wait_for(load)?;
        }
        // A program that was just started may not have its name yet: that of the file comes with exec.
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))
            .map_err(|_| format!("there is no process {pid}"))?;
        let is_plain = |at: &char| at.is_ascii_alphanumeric() || "-_.".contains(*at);
        target.name = name.trim().chars().filter(is_plain).collect();
        Ok(target)
    }

    /// Until what `load` names listens.
    fn wait_for(&mut self, load: &str) -> Result<(), String> {
        let address =
            address(load).ok_or_else(|| format!("--load {load}: write http://HOST:PORT/PATH"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let connected = address.to_socket_addrs().and_then(|mut all| {
                let first = all.next().ok_or(std::io::ErrorKind::NotFound)?;
                TcpStream::connect_timeout(&first, PATIENCE)
            });
            let Err(error) = connected else { return Ok(()) };
            if let Some(status) =
                self.started.as_mut().and_then(|child| child.try_wait().ok().flatten())
            {
                return Err(format!("the server ended before it listened at {address}: {status}"));
            }
            if self.started.is_none() || Instant::now() > deadline {
                return Err(format!("nothing listens at {address}: {error}"));
            }
            std::thread::sleep(LOOKS_EVERY);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let Some(child) = &mut self.started else { return };
        // It may have ended already.
        let _ = process::end(child.id(), End::Ask);
        let deadline = Instant::now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            std::thread::sleep(LOOKS_EVERY);
        }
    }
}

/// `HOST:PORT` of the URL that a `--load` begins with.
pub(super) fn address(load: &str) -> Option<String> {
    let url = load.split_whitespace().next()?;
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?']).next().filter(|host| !host.is_empty())?;
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port { host.to_owned() } else { format!("{host}:{port}") })
}

/// The loads meanwhile, each in a process of its own; dropping it ends them.
struct Load {
    running: Vec<(String, Child)>,
}

impl Load {
    fn start(args: &Args, longest: Duration) -> Result<Load, String> {
        let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let mut load = Load { running: Vec::new() };
        for words in &args.load {
            let mut command = Command::new(&own);
            command.arg("load").args(words.split_whitespace()).arg("--quiet");
            command.arg(format!("--duration={}ms", longest.as_millis()));
            command.stdin(Stdio::null()).stdout(Stdio::null());
            threads::tie(&mut command);
            let child = command.spawn().map_err(|error| format!("highwater load: {error}"))?;
            load.running.push((words.clone(), child));
        }
        Ok(load)
    }

    /// Notes which of them ended too soon.
    fn check(&self, notes: &mut Vec<String>) {
        for (words, child) in &self.running {
            if !Path::new(&format!("/proc/{}/exe", child.id())).exists() {
                notes.push(format!(
                    "--load {words}: it ended too soon: try `highwater load {words}`"
                ));
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // It has done what it was for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
