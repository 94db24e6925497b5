//! What `/proc` says about a process's threads: how long each ran, waited for a CPU, and waited for something else, and
//! where.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use highwater_sys::process::{self, End};
use serde::Serialize;

/// Threads that are looked at, at most.
const THREADS_MAX: usize = 4096;
/// How long perf and strace may take to write what they have: perf writes hundreds of megabytes for a busy server.
pub(super) const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// A thread's counters since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    name: String,
    running_ns: u64,
    runnable_ns: u64,
    switches: u64,
    switches_forced: u64,
}

/// Counters of all threads, by id.
pub(super) type Snapshot = BTreeMap<u32, Counters>;

/// What a thread did in a span of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Thread {
    pub(super) id: u32,
    pub(super) name: String,
    /// On a CPU, percent of the span.
    pub(super) running_percent: f64,
    /// Ready to run while another had the CPU.
    pub(super) runnable_percent: f64,
    /// Waiting for anything else.
    pub(super) waiting_percent: f64,
    /// How often per second it began to wait.
    pub(super) switches_per_s: f64,
    /// How often per second another was given its CPU.
    pub(super) switches_forced_per_s: f64,
    /// Where in the kernel it waited, of all samples in which it did; percent, most first.
    pub(super) waits: Vec<(String, f64)>,
}

/// Samples of where threads are, by thread and place.
pub(super) type Places = BTreeMap<(u32, String), u64>;

fn tasks(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let ids = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.take(THREADS_MAX).collect()
}

pub(super) fn snapshot(pid: u32) -> Snapshot {
    let of = |id: &u32| {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/task/{id}/{file}")).unwrap_or_default()
        };
        counters(&read("comm"), &read("schedstat"), &read("status"))
    };
    tasks(pid).into_iter().map(|id| (id, of(&id))).collect()
}

/// From the texts of `comm`, `schedstat` and `status`.
pub(super) fn counters(comm: &str, schedstat: &str, status: &str) -> Counters {
    let mut times = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    Counters {
        name: comm.trim().to_owned(),
        running_ns: times.next().unwrap_or(0),
        runnable_ns: times.next().unwrap_or(0),
        switches: value("voluntary_ctxt_switches:"),
        switches_forced: value("nonvoluntary_ctxt_switches:"),
    }
}

/// Notes where each thread is now: on a CPU or ready for it, or the kernel's function that it waits in.
pub(super) fn look(pid: u32, places: &mut Places) {
    for id in tasks(pid) {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/task/{id}/{file}")).unwrap_or_default()
        };
        if let Some(place) = place(&read("stat"), &read("wchan")) {
            *places.entry((id, place)).or_default() += 1;
        }
    }
}

/// The place of a thread that runs, which is not a wait.
pub(super) const RUNNING: &str = "on a CPU, or ready for one";

/// From the texts of `stat` and `wchan`; `None` if the thread is gone.
pub(super) fn place(stat: &str, wchan: &str) -> Option<String> {
    // The name, in parentheses, may hold anything.
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    let at = wchan.trim().split('.').next().unwrap_or_default();
    Some(match (state, at) {
        ('R', _) => RUNNING.to_owned(),
        ('Z' | 'X', _) => return None,
        ('D', "" | "0") => "uninterruptible (disk?)".to_owned(),
        (_, "" | "0") => "waiting (the kernel does not say where)".to_owned(),
        (_, at) => at.to_owned(),
    })
}

/// What each thread did between two snapshots; the busiest first. Threads that came or went meanwhile are left out.
pub(super) fn between(
    before: &Snapshot,
    after: &Snapshot,
    span: Duration,
    places: &Places,
) -> Vec<Thread> {
    let ns = span.as_nanos().max(1) as f64;
    let of = |(id, after): (&u32, &Counters)| {
        let before = before.get(id)?;
        let share = |later: u64, earlier: u64| {
            (later.saturating_sub(earlier) as f64 / ns * 100.0).min(100.0)
        };
        let rate = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / (ns / 1e9);
        let running_percent = share(after.running_ns, before.running_ns);
        let runnable_percent = share(after.runnable_ns, before.runnable_ns);
        let mine = places.iter().filter(|((of, place), _)| of == id && place != RUNNING);
        let total: u64 = mine.clone().map(|(_, count)| count).sum();
        let waits =
            mine.map(|((_, place), count)| (place.clone(), *count as f64 / total as f64 * 100.0));
        let mut waits: Vec<(String, f64)> = waits.collect();
        waits.sort_by(|a, b| b.1.total_cmp(&a.1));
        Some(Thread {
            id: *id,
            name: after.name.clone(),
            running_percent,
            runnable_percent,
            waiting_percent: (100.0 - running_percent - runnable_percent).max(0.0),
            switches_per_s: rate(after.switches, before.switches),
            switches_forced_per_s: rate(after.switches_forced, before.switches_forced),
            waits,
        })
    };
    let mut threads: Vec<Thread> = after.iter().filter_map(of).collect();
    threads.sort_by(|a, b| b.running_percent.total_cmp(&a.running_percent));
    threads
}

/// Has `command` end with this process.
pub(super) fn tie(command: &mut Command) {
    process::tie(command, &[], End::Ask);
}

/// Interrupts perf or strace, which then write what they have, and waits for its end. After `limit` it is killed.
///
/// # Errors
/// Its output cannot be read.
pub(super) fn stop(tool: Child, limit: Duration) -> std::io::Result<Output> {
    let id = tool.id();
    let (ended, end) = mpsc::channel();
    // Its output must be read meanwhile, or it would wait for a reader.
    std::thread::spawn(move || ended.send(tool.wait_with_output()));
    // It may have ended already.
    let _ = process::end(id, End::Interrupt);
    let output = end.recv_timeout(limit).or_else(|_| {
        let _ = process::end(id, End::Kill);
        end.recv()
    });
    output.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}
