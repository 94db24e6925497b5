//! What does this machine allow a server to do?

use highwater_sys::{Capabilities, cpu, limits};

/// Whether there are other drivers than the portable one.
const IS_LINUX: bool = cfg!(all(target_os = "linux", not(highwater_portable_only)));

/// A busy service needs more connections than fewer descriptors allow.
const DESCRIPTORS_MODEST: u64 = 10_000;

/// Descriptors kept for files, clients and metrics, beyond those of connections and workers.
const DESCRIPTORS_RESERVED: u64 = 64;

/// Descriptors kept for each worker: its listener, its driver and its waker, and what a runtime that begins with its
/// first stream opens. A guess.
const DESCRIPTORS_PER_WORKER: u64 = 10;

/// How to allow more descriptors.
pub(crate) const RAISE_DESCRIPTORS: &str =
    "raise the limit (LimitNOFILE= in systemd, --ulimit nofile= in a container)";

/// The capabilities of this machine that this process can see and use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The transport that `auto` chooses here.
    pub transport: String,
    /// Why it was chosen.
    pub transport_reason: String,
    /// The cores this process may run on.
    pub cores: Vec<usize>,
    /// Worker threads by default.
    pub workers: usize,
    /// Descriptors this process may open, after raising its limit as far as it may.
    pub descriptors_soft: u64,
    /// How far that limit can be raised.
    pub descriptors_hard: u64,
    /// Connections that the descriptors allow.
    pub connections_max: u32,
    /// The kernel's bound on connections that wait to be accepted.
    pub somaxconn: Option<u32>,
}

/// Examines the machine. Raises the process's descriptor limit to its hard limit, as a server
/// would.
pub fn look() -> Machine {
    let Capabilities { uring, kernel } = highwater_sys::probe();
    let descriptors = limits::raise_descriptors().or_else(|_| limits::descriptors());
    let (soft, hard) = descriptors.map_or((0, 0), |limit| (limit.soft, limit.hard));
    let (transport, reason) = match uring {
        Ok(()) => ("uring", "io_uring works here".to_owned()),
        Err(reason) if IS_LINUX => ("epoll", reason),
        Err(reason) => ("portable", format!("for development: {reason}, and so does epoll")),
    };
    let workers = cpu::suggested_workers();
    Machine {
        kernel,
        transport: transport.into(),
        transport_reason: reason,
        cores: cpu::allowed().unwrap_or_default(),
        workers,
        descriptors_soft: soft,
        descriptors_hard: hard,
        connections_max: connections_max(soft, workers),
        somaxconn: std::fs::read_to_string("/proc/sys/net/core/somaxconn")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
    }
}

/// The default share of memory for request bodies: a quarter of the memory that this process may
/// use. The handlers' own data and everything else must fit into the rest. A guess.
const BODY_MEMORY_SHARE: u64 = 4;

/// Memory for bodies if the machine's memory is not known.
const BODY_MEMORY_UNKNOWN: u64 = 256 << 20;

/// How much memory all request bodies together may take by default.
pub(crate) fn body_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").as_deref().and_then(meminfo_total);
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = memory_limit_files(&groups).into_iter();
    // A control group without a limit reads `max`; in version 1 it reads a number larger than any
    // memory.
    let limits = limits.filter_map(|path| read(&path)?.trim().parse().ok());
    let least = limits.chain(total).min();
    least.map_or(BODY_MEMORY_UNKNOWN, |bytes: u64| (bytes / BODY_MEMORY_SHARE).max(1 << 20))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files with the memory limits of the control groups that `/proc/self/cgroup` names, and of
/// their parents: any of them may have the lowest limit.
fn memory_limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    files
}

/// The number of connections that `descriptors` allow to so many workers together.
pub(crate) fn connections_max(descriptors: u64, workers: usize) -> u32 {
    let reserved = DESCRIPTORS_RESERVED + DESCRIPTORS_PER_WORKER * workers as u64;
    let available = descriptors.saturating_sub(reserved).max(1);
    u32::try_from(available).unwrap_or(u32::MAX)
}

impl Machine {
    /// Recommended changes, the most valuable first.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.transport == "epoll" {
            advice.push(format!(
                "io_uring cannot be used ({}); it would save about a fifth of the CPU per request. \
                 Allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile, \
                 and set the sysctl kernel.io_uring_disabled to 0",
                self.transport_reason
            ));
        }
        if self.descriptors_soft < DESCRIPTORS_MODEST {
            advice.push(format!(
                "only {} descriptors are allowed, and each connection needs one: {RAISE_DESCRIPTORS}",
                self.descriptors_soft
            ));
        }
        if self.somaxconn.is_some_and(|backlog| backlog < 4096) {
            advice.push(
                "the kernel keeps few connections waiting to be accepted: \
                 sysctl -w net.core.somaxconn=4096"
                    .into(),
            );
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the lowest limit counts, in any level of the control groups, in both versions.
    #[test]
    fn memory_limits_are_found() {
        assert_eq!(meminfo_total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(meminfo_total("nothing"), None);
        assert_eq!(
            memory_limit_files("0::/a/b\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        let first = "5:cpu,cpuacct:/x\n4:memory:/\n";
        assert_eq!(memory_limit_files(first), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        assert!(body_memory() >= 1 << 20);
    }

    /// Purpose: each shortcoming is named with its remedy, and a good machine gets no advice.
    #[test]
    fn advice_names_the_remedy() {
        let good = Machine {
            kernel: "6.18".into(),
            transport: "uring".into(),
            transport_reason: "io_uring works here".into(),
            cores: vec![0],
            workers: 1,
            descriptors_soft: 20_000,
            descriptors_hard: 20_000,
            connections_max: connections_max(20_000, 1),
            somaxconn: Some(4096),
        };
        assert_eq!(good.connections_max, 19_926);
        assert_eq!(connections_max(1024, 16), 800);
        assert_eq!(connections_max(1024, 96), 1);
        assert!(good.advice().is_empty());
        let bad = Machine {
            transport: "epoll".into(),
            descriptors_soft: 80,
            somaxconn: Some(128),
            ..good
        };
        let advice = bad.advice().join("\n");
        for remedy in ["io_uring_disabled", "LimitNOFILE", "net.core.somaxconn=4096"] {
            assert!(advice.contains(remedy), "{advice}");
        }
    }
}
