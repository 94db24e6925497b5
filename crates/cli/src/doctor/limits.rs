//! What may this process use? Its resource limits, and those of its control groups.

use serde::Serialize;

use super::{Mend, Read};

/// Locked memory that io_uring and the gate may need on kernels that count it: older than 5.12 and 5.11.
const MEMLOCK_MODEST: u64 = 8 << 20;

/// `null` in JSON: no limit, or not known.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Limits {
    /// Memory that may be locked, bytes.
    memlock: Option<u64>,
    /// Threads and processes of this user.
    processes: Option<u64>,
    /// CPUs' worth of time, over all control groups above this process.
    cgroup_cpus: Option<f64>,
    /// Bytes, over all control groups above this process.
    cgroup_memory: Option<u64>,
}

pub(super) fn look(read: Read<'_>) -> Limits {
    let limits = read("/proc/self/limits").unwrap_or_default();
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let folders = folders(&groups);
    let least = |file: &str, parse: fn(&str) -> Option<f64>| {
        let values = folders.iter().filter_map(|folder| parse(&read(&format!("{folder}/{file}"))?));
        values.min_by(f64::total_cmp)
    };
    Limits {
        memlock: soft(&limits, "Max locked memory"),
        processes: soft(&limits, "Max processes"),
        cgroup_cpus: least("cpu.max", cpus),
        cgroup_memory: least("memory.max", |text| text.trim().parse().ok())
            .map(|bytes| bytes as u64),
    }
}

/// The soft limit in a line of `/proc/self/limits`; `None` if it is unlimited.
fn soft(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The folder of the process's control group (the second version), and of those above it.
fn folders(groups: &str) -> Vec<String> {
    let Some(mut path) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let mut folders = Vec::new();
    loop {
        path = path.trim_end_matches('/');
        folders.push(format!("/sys/fs/cgroup{path}"));
        match path.rfind('/') {
            Some(end) => path = &path[..end],
            None => return folders,
        }
    }
}

/// `cpu.max`: microseconds in a period, and the period; or `max`.
fn cpus(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

impl Limits {
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "no limit".to_owned());
        let bytes = |value: Option<u64>| or_none(value.map(|bytes| format!("{} MiB", bytes >> 20)));
        vec![
            ("memlock", bytes(self.memlock)),
            ("processes", or_none(self.processes.map(|count| count.to_string()))),
            ("cgroup CPU", or_none(self.cgroup_cpus.map(|cpus| format!("{cpus:.2} cores")))),
            ("cgroup mem", bytes(self.cgroup_memory)),
        ]
    }

    /// What to mend under a kernel that `counts_memory` of io_uring as locked, or does not.
    pub(super) fn mends(&self, counts_memory: bool) -> Vec<Mend> {
        let mut mends = Vec::new();
        if counts_memory && self.memlock.is_some_and(|bytes| bytes < MEMLOCK_MODEST) {
            mends.push(Mend {
                what: "little memory may be locked, and kernels before 5.12 count io_uring's rings and the gate's maps"
                    .into(),
                command: "ulimit -l 65536 (LimitMEMLOCK=64M in systemd, --ulimit memlock=67108864 in a container)".into(),
            });
        }
        if self.cgroup_cpus.is_some_and(|cpus| cpus < 1.0) {
            mends.push(Mend {
                what: "the control group has less than one core: the kernel stops all workers for the rest of each \
                       period, and requests wait as long"
                    .into(),
                command: "give it a whole core (CPUQuota=100% in systemd, --cpus 1 in a container, limits.cpu: 1 in \
                          Kubernetes)"
                    .into(),
            });
        }
        mends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max processes             31741                31741                processes \n\
Max locked memory         67108864             unlimited            bytes     \n";

    /// Purpose: the lowest limit of all control groups counts, for CPU time and for memory; unlimited means no limit.
    #[test]
    fn the_lowest_limit_counts() {
        let read = |path: &str| {
            let text = match path {
                "/proc/self/limits" => LIMITS,
                "/proc/self/cgroup" => "0::/system.slice/a.service\n",
                "/sys/fs/cgroup/system.slice/a.service/cpu.max" => "150000 100000\n",
                "/sys/fs/cgroup/system.slice/cpu.max" => "50000 100000\n",
                "/sys/fs/cgroup/system.slice/a.service/memory.max" => "max\n",
                "/sys/fs/cgroup/memory.max" => "1073741824\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let limits = look(&read);
        let expected = Limits {
            memlock: Some(64 << 20),
            processes: Some(31741),
            cgroup_cpus: Some(0.5),
            cgroup_memory: Some(1 << 30),
        };
        assert_eq!(limits, expected);
        assert!(limits.mends(false).iter().any(|mend| mend.command.contains("CPUQuota")));
        assert_eq!(look(&|_| None), Limits::default());
        assert!(Limits::default().mends(true).is_empty());
        let little = Limits { memlock: Some(64 << 10), ..Limits::default() };
        assert!(little.mends(true)[0].command.contains("LimitMEMLOCK"));
        assert!(little.mends(false).is_empty());
    }
}
