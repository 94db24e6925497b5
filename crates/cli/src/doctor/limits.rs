//! What may this process use? Its resource limits, and those of its control groups.

use serde::Serialize;

use super::{Mend, Read};

/// Locked memory that io_uring and the gate may need on kernels that count it: older than 5.12 and 5.11.
const MEMLOCK_MODEST: u64 = 8 << 20;

/// From this value on, a limit of the first version of control groups means no limit: the file contains the largest number of
/// pages.
const MEMORY_UNLIMITED: u64 = 1 << 60;

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
    /// Whether resource limits are unknown, and control groups: `/proc` may be hidden.
    #[serde(skip)]
    is_hidden: [bool; 2],
}

pub(super) fn look(read: Read<'_>) -> Limits {
    let (limits, groups) = (read("/proc/self/limits"), read("/proc/self/cgroup"));
    let is_hidden = [limits.is_none(), groups.is_none()];
    let (limits, groups) = (limits.unwrap_or_default(), groups.unwrap_or_default());
    let cpus_of = |folder: &String| cpus(&read(&format!("{folder}/cpu.max"))?);
    let older_cpus_of = |folder: &String| {
        let number = |file: &str| read(&format!("{folder}/{file}"))?.trim().parse::<f64>().ok();
        // Without a quota it is -1.
        let quota = number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
        let period = number("cpu.cfs_period_us").filter(|period| *period > 0.0)?;
        Some(quota / period)
    };
    let bytes = |folder: &String, file: &str| -> Option<u64> {
        let bytes = read(&format!("{folder}/{file}"))?.trim().parse().ok();
        bytes.filter(|bytes| *bytes < MEMORY_UNLIMITED)
    };
    let [both, cpu, memory] = ["", "cpu", "memory"].map(|controller| folders(&groups, controller));
    let cgroup_cpus = both.iter().filter_map(cpus_of).chain(cpu.iter().filter_map(older_cpus_of));
    let older_bytes = memory.iter().filter_map(|folder| bytes(folder, "memory.limit_in_bytes"));
    let cgroup_bytes = both.iter().filter_map(|folder| bytes(folder, "memory.max"));
    Limits {
        memlock: soft(&limits, "Max locked memory"),
        processes: soft(&limits, "Max processes"),
        cgroup_cpus: cgroup_cpus.min_by(f64::total_cmp),
        cgroup_memory: cgroup_bytes.chain(older_bytes).min(),
        is_hidden,
    }
}

/// The soft limit in a line of `/proc/self/limits`; `None` if it is unlimited.
fn soft(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The folder of the process's control group for `controller`, and of those above it; without a controller, of its group of
/// the second version.
fn folders(groups: &str, controller: &str) -> Vec<String> {
    let group = |line: &'_ str| -> Option<String> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    };
    let Some(path) = groups.lines().find_map(group) else { return Vec::new() };
    let root = if controller.is_empty() { String::new() } else { format!("/{controller}") };
    let (mut path, mut folders) = (&path[..], Vec::new());
    loop {
        path = path.trim_end_matches('/');
        folders.push(format!("/sys/fs/cgroup{root}{path}"));
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
        let or_none = |value: Option<String>, is_hidden| {
            value.unwrap_or_else(|| if is_hidden { "unknown" } else { "no limit" }.to_owned())
        };
        let bytes = |value: Option<u64>| value.map(|bytes| format!("{} MiB", bytes >> 20));
        let cpus = self.cgroup_cpus.map(|cpus| format!("{cpus:.2} cores"));
        let [own, groups] = self.is_hidden;
        vec![
            ("memlock", or_none(bytes(self.memlock), own)),
            ("processes", or_none(self.processes.map(|count| count.to_string()), own)),
            ("cgroup CPU", or_none(cpus, groups)),
            ("cgroup mem", or_none(bytes(self.cgroup_memory), groups)),
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

    /// Purpose: the lowest limit of all control groups counts, of both versions, for CPU time and for memory; unlimited
    /// means no limit.
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
            is_hidden: [false; 2],
        };
        assert_eq!(limits, expected);
        assert!(limits.mends(false).iter().any(|mend| mend.command.contains("CPUQuota")));
        // Where nothing can be read, nobody knows that there is no limit.
        let hidden = look(&|_| None);
        assert_eq!(hidden, Limits { is_hidden: [true; 2], ..Limits::default() });
        assert!(hidden.lines().iter().all(|(_, value)| value == "unknown"), "{:?}", hidden.lines());
        assert!(Limits::default().mends(true).is_empty());
        // The first version of control groups has a tree for each controller, and 9223372036854771712 is no limit.
        let older = |path: &str| {
            let text = match path {
                "/proc/self/cgroup" => {
                    "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:name=systemd:/\n"
                }
                "/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us" => "250000\n",
                "/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us" => "100000\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us" => "-1\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us" => "100000\n",
                "/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes" => "536870912\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "9223372036854771712\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let limits = look(&older);
        assert_eq!((limits.cgroup_cpus, limits.cgroup_memory), (Some(2.5), Some(512 << 20)));
        let none =
            |path: &str| older(&path.replace("/docker/a", "")).filter(|_| !path.contains("docker"));
        let unlimited = look(&none);
        assert_eq!(unlimited, Limits { is_hidden: [true, false], ..Limits::default() });
        assert_eq!(unlimited.lines()[2], ("cgroup CPU", "no limit".to_owned()));
        let little = Limits { memlock: Some(64 << 10), ..Limits::default() };
        assert!(little.mends(true)[0].command.contains("LimitMEMLOCK"));
        assert!(little.mends(false).is_empty());
    }
}
