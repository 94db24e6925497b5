//! What does this process cost the machine?
//!
//! Answers the standard `process_*` metrics from `/proc`, once per scrape. A value that the kernel
//! does not provide (another system, a hidden `/proc`) is left out, never a made-up zero.
//!
//! Parsing is separate from reading, so that tests need no particular kernel.

use std::fs;
use std::sync::OnceLock;

/// Ticks of `/proc/self/stat` in a second: `USER_HZ`, which the kernel's interface fixes at 100 on
/// every architecture this crate builds for, whatever the timer interrupt's rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// The kernel's figures about this process; each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// User and system CPU time, in seconds.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    /// The soft limit; absent if there is none.
    pub(super) max_fds: Option<u64>,
    /// Since the epoch, in seconds.
    pub(super) start_seconds: Option<f64>,
    pub(super) threads: Option<u64>,
}

/// When the process started, read once: the boot's time of day moves with each step of the clock, as if the process had been
/// started again; and `/proc/stat` has a line for each core and a number for each interrupt.
#[derive(Debug, Default)]
pub(super) struct Start(OnceLock<Option<f64>>);

impl Process {
    /// Reads this process's own figures; keeps in `start` when it has started.
    pub(super) fn read(start: &Start) -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let stat = text("/proc/self/stat");
        let mut process =
            Process::parse(&stat, &text("/proc/self/status"), &text("/proc/self/limits"));
        process.open_fds = open_fds();
        process.start_seconds = *start.0.get_or_init(|| started(&stat, &text("/proc/stat")));
        process
    }

    fn parse(stat: &str, status: &str, limits: &str) -> Self {
        let times = Times::parse(stat);
        Process {
            cpu_seconds: times.map(|times| times.cpu_ticks as f64 / TICKS_PER_SECOND),
            resident_bytes: status_field(status, "VmRSS:").map(kibibytes),
            virtual_bytes: status_field(status, "VmSize:").map(kibibytes),
            open_fds: None,
            max_fds: max_fds(limits),
            start_seconds: None,
            threads: status_field(status, "Threads:"),
        }
    }
}

/// Fields of `/proc/self/stat`, in ticks.
#[derive(Clone, Copy)]
struct Times {
    cpu_ticks: u64,
    /// Since the machine booted.
    start_ticks: u64,
}

impl Times {
    fn parse(stat: &str) -> Option<Self> {
        // The second field is the command in parentheses, and may itself contain both.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let user: u64 = fields.nth(11)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(6)?.parse().ok()?;
        Some(Times { cpu_ticks: user + system, start_ticks })
    }
}

/// When the process started, in seconds since the epoch.
fn started(stat: &str, system: &str) -> Option<f64> {
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot: f64 = boot.trim().parse().ok()?;
    Some(boot + Times::parse(stat)?.start_ticks as f64 / TICKS_PER_SECOND)
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn kibibytes(count: u64) -> u64 {
    count * 1024
}

fn max_fds(limits: &str) -> Option<u64> {
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    soft.split_ascii_whitespace().next()?.parse().ok()
}

/// How many descriptors are open. Since Linux 6.2 the size of the directory says it; before, a
/// hundred thousand entries take tens of milliseconds to list.
fn open_fds() -> Option<u64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    let listed = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // The listing itself keeps one descriptor open.
    Some(listed.saturating_sub(1))
}

/// The kernel's id of the calling thread.
pub(super) fn thread_id() -> Option<u32> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// CPU time that a thread of this process has used, in nanoseconds: user and kernel together.
pub(super) fn thread_cpu_nanos(thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the fields are taken from the positions in proc(5), even if the command's name
    /// tries to look like fields.
    #[test]
    fn fields_are_those_of_proc_5() {
        let stat = "7 (a) S 1 (b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 4200 20";
        let status = "Name:\tx\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t5\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max open files            1024                 4096                 files\n";
        assert_eq!(started(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_042.0));
        let process = Process::parse(stat, status, limits);
        assert_eq!(
            process,
            Process {
                cpu_seconds: Some(3.0),
                resident_bytes: Some(1024 * 1024),
                virtual_bytes: Some(2048 * 1024),
                open_fds: None,
                max_fds: Some(1024),
                start_seconds: None,
                threads: Some(5),
            }
        );
    }

    /// Purpose: unknown values are left out.
    #[test]
    fn the_unknown_is_absent() {
        assert_eq!(Process::parse("", "", ""), Process::default());
        let limits = "Max open files            unlimited            unlimited            files\n";
        assert_eq!(Process::parse("7 (a) S 1", "VmRSS:\n", limits), Process::default());
        for (stat, system) in [("7 (a) S 1", "btime 1\n"), ("", "btime x\n"), ("", "")] {
            assert_eq!(started(stat, system), None, "{stat:?}, {system:?}");
        }
    }

    /// Purpose: on Linux the real files are parsed.
    #[test]
    fn this_process_is_described() {
        let start = Start::default();
        let process = Process::read(&start);
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100 * 1024));
        assert!(process.open_fds.is_some_and(|count| count >= 3));
        assert!(process.threads.is_some_and(|count| count >= 1));
        assert!(process.start_seconds.is_some_and(|seconds| seconds > 1.6e9));
        assert_eq!(Process::read(&start).start_seconds, process.start_seconds);
        let thread = thread_id().expect("procfs is mounted where the tests run");
        assert!(thread_cpu_nanos(thread).is_some());
    }
}
