//! Resource use of a server and its children, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Ticks of `/proc/PID/stat` per second: USER_HZ, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// The flag of a kernel thread in `/proc/PID/stat` (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;
/// Seconds that the two ways to count CPU time may differ by, on top of this share: each process's ticks are
/// rounded.
const TICKS_SLACK_S: f64 = 0.03;
const TICKS_SLACK: f64 = 0.03;

/// The children of each process.
pub(super) fn families() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for id in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = stat(id).and_then(|stat| stat.first()?.parse().ok()) {
            children.entry(parent).or_default().push(id);
        }
    }
    children
}

/// The children of `root`.
pub(super) fn children(root: u32) -> Vec<u32> {
    families().remove(&root).unwrap_or_default()
}

/// The descendants of `root`, which itself is left out.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    below(&mut families(), root)
}

/// The same, removed from `families`.
pub(super) fn below(families: &mut BTreeMap<u32, Vec<u32>>, root: u32) -> Vec<u32> {
    let mut found: Vec<u32> = families.remove(&root).unwrap_or_default();
    let mut at = 0;
    while at < found.len() {
        found.extend(families.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found
}

/// All processes of this machine at an instant.
#[derive(Debug, Default)]
pub(super) struct Processes(BTreeMap<u32, Process>);

#[derive(Debug)]
struct Process {
    parent: u32,
    name: String,
    /// CPU time of all threads there have ever been, and of children that have ended, in s.
    cpu_s: f64,
    /// A thread of the kernel.
    is_kernel: bool,
}

/// The CPU time that a process used between two scans.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Used {
    pub(super) name: String,
    /// In s, to a tick.
    pub(super) cpu_s: f64,
    pub(super) is_kernel: bool,
}

impl Processes {
    /// The current processes.
    pub(super) fn scan() -> Processes {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let read = |id| Some((id, process(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?));
        Processes(ids.filter_map(read).collect())
    }

    /// `root` and everything below it.
    pub(super) fn family(&self, root: u32) -> BTreeSet<u32> {
        let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (id, process) in &self.0 {
            families.entry(process.parent).or_default().push(*id);
        }
        below(&mut families, root).into_iter().chain([root]).collect()
    }

    /// The CPU time of each process that is not one of `ours`, since `earlier`.
    pub(super) fn used_since(&self, earlier: &Processes, ours: &BTreeSet<u32>) -> Vec<Used> {
        let mut before: BTreeMap<u32, f64> =
            earlier.0.iter().map(|(id, process)| (*id, process.cpu_s)).collect();
        // What a process used before it ended is in its parent's time now.
        for process in earlier.0.iter().filter(|(id, _)| !self.0.contains_key(id)).map(|it| it.1) {
            let heir = earlier.living_ancestor(process.parent, self);
            *before.entry(heir).or_default() += process.cpu_s;
        }
        let others = self.0.iter().filter(|(id, _)| !ours.contains(id));
        let used = others.map(|(id, process)| {
            let before = before.get(id).copied().unwrap_or_default();
            // To a tick: sums of hundredths are not exact.
            let ticks = ((process.cpu_s - before) * TICKS_PER_SECOND).round();
            let cpu_s = ticks.max(0.0) / TICKS_PER_SECOND;
            Used { name: process.name.clone(), cpu_s, is_kernel: process.is_kernel }
        });
        used.collect()
    }

    /// The process from `id` upwards that is still there in `later`.
    fn living_ancestor(&self, mut id: u32, later: &Processes) -> u32 {
        // A parent is older than its child, unless ids were used again: then the way may not end.
        for _ in 0..self.0.len() {
            match self.0.get(&id) {
                Some(process) if !later.0.contains_key(&id) => id = process.parent,
                _ => break,
            }
        }
        id
    }
}

/// A process by its `/proc/PID/stat`.
fn process(stat: &str) -> Option<Process> {
    let name = stat.split_once('(')?.1.rsplit_once(')')?.0.to_owned();
    let fields = fields_of(stat);
    let ticks = fields.iter().skip(10).take(4).filter_map(|ticks| ticks.parse::<f64>().ok());
    let cpu_s = ticks.sum::<f64>() / TICKS_PER_SECOND;
    let flags: u64 = fields.get(5)?.parse().ok()?;
    let is_kernel = flags & PF_KTHREAD != 0;
    Some(Process { parent: fields.first()?.parse().ok()?, name, cpu_s, is_kernel })
}

/// Resource use of processes up to an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// On-CPU time of each living thread, in ns.
    threads: BTreeMap<(u32, u32), u64>,
    /// CPU time of all threads there have ever been, and of children that have ended, in s.
    ticks_s: f64,
    /// Voluntary and involuntary, of living threads.
    switches: u64,
    pub(super) rss_kib: u64,
}

impl Usage {
    /// Of these processes, now. Those that have ended count nothing.
    pub(super) fn of(processes: &[u32]) -> Usage {
        let mut usage = Usage::default();
        for &id in processes {
            let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok())
                else {
                    continue;
                };
                let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
                let on_cpu =
                    read("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok());
                usage.threads.extend(on_cpu.map(|ns| ((id, thread), ns)));
                let status = read("status");
                usage.switches += sum_of(&status, "voluntary_ctxt_switches:");
                usage.switches += sum_of(&status, "nonvoluntary_ctxt_switches:");
            }
            // utime, stime, cutime, cstime.
            let times = stat(id).unwrap_or_default();
            let ticks = times.iter().skip(10).take(4).filter_map(|ticks| ticks.parse::<f64>().ok());
            usage.ticks_s += ticks.sum::<f64>() / TICKS_PER_SECOND;
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            usage.rss_kib += sum_of(&status, "VmRSS:");
        }
        usage
    }

    /// CPU seconds since `earlier`, and their source. Threads' own times are exact, but lack threads that have ended;
    /// then ticks, which include them.
    pub(super) fn cpu_since(&self, earlier: &Usage) -> (f64, &'static str) {
        let of = |(thread, ns): (&(u32, u32), &u64)| {
            ns.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        let exact = self.threads.iter().map(of).sum::<u64>() as f64 / 1e9;
        let ticks = (self.ticks_s - earlier.ticks_s).max(0.0);
        let has_all = earlier.threads.keys().all(|thread| self.threads.contains_key(thread));
        match has_all && ticks <= exact * (1.0 + TICKS_SLACK) + TICKS_SLACK_S {
            true => (exact, "schedstat"),
            false => (ticks, "stat"),
        }
    }

    /// Context switches since `earlier`.
    pub(super) fn switches_since(&self, earlier: &Usage) -> u64 {
        self.switches.saturating_sub(earlier.switches)
    }
}

/// How long these CPUs have been idle, waited or been stolen since boot, added up, in s.
///
/// The rest of the time they were busy. The busy columns of the same line do not say so: a kernel may take the state of a
/// CPU at each tick for the whole tick, and a load in step with the ticks then always looks busy, or
/// never. Idle time is measured (`tick_nohz_start_idle`).
pub(super) fn idle(cpus: &[usize]) -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    cpus.iter().map(|cpu| idle_of(&text, *cpu)).sum::<f64>() / TICKS_PER_SECOND
}

/// The time of each of these CPUs in interrupts that the kernel put off (softirq) since boot, added up, in s.
pub(super) fn softirq(cpus: &[usize]) -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let of = |cpu: &usize| {
        let prefix = format!("cpu{cpu} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix))?;
        line.split_whitespace().nth(6)?.parse::<f64>().ok()
    };
    cpus.iter().filter_map(of).sum::<f64>() / TICKS_PER_SECOND
}

/// `cpuN user nice system idle iowait irq softirq steal …`, in ticks.
fn idle_of(stat: &str, cpu: usize) -> f64 {
    let prefix = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    let [_user, _nice, _system, idle, waiting, _irq, _softirq, stolen, ..] = ticks[..] else {
        return 0.0;
    };
    idle + waiting + stolen
}

/// CPU seconds of this process so far.
pub(super) fn own_cpu() -> f64 {
    let usage = Usage::of(&[std::process::id()]);
    usage.threads.values().sum::<u64>() as f64 / 1e9
}

/// The fields of `/proc/PID/stat` from the parent's id on: after the name, which may be anything, and the state.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(fields_of(&text))
}

fn fields_of(stat: &str) -> Vec<String> {
    let (_, behind) = stat.rsplit_once(')').unwrap_or_default();
    behind.split_whitespace().skip(1).map(str::to_owned).collect()
}

/// The number of the line that begins with `name`; 0 if there is none.
fn sum_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Purpose: the fields are found whatever the process's name (proc(5): it may contain spaces and
    /// brackets), and cpu1 is not cpu10.
    #[test]
    fn reads_what_proc_says() {
        let fields = fields_of("7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 111 222 13 14");
        assert_eq!(
            (fields[0].as_str(), fields[10].as_str(), fields[11].as_str()),
            ("1", "111", "222")
        );
        let stat = "cpu 9 9 9 9 9 9 9 9\ncpu10 9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 100 200 4 5 6 7 8\n";
        assert_eq!(idle_of(stat, 1), 306.0);
        assert_eq!(idle_of(stat, 2), 0.0);
        assert_eq!(
            sum_of("VmRSS:\t  12 kB\nvoluntary_ctxt_switches:\t3\n", "voluntary_ctxt_switches:"),
            3
        );
    }

    /// Purpose: processes that used the CPU are found by name, and ours are left out with their descendants.
    #[test]
    fn others_are_found() {
        let scan = |times: [u32; 4]| {
            let stat = |id: u32, parent: u32, name: &str, ticks: u32| {
                let line = format!("{id} ({name}) R {parent} 2 3 4 5 6 7 8 9 10 {ticks} 10 0 0 20");
                (id, process(&line).expect("a line of stat"))
            };
            let [own, child, other, grandchild] = times;
            Processes(BTreeMap::from([
                stat(10, 1, "highwater", own),
                stat(20, 10, "a (b) c", child),
                stat(30, 1, "rustc", other),
                stat(40, 20, "inner", grandchild),
            ]))
        };
        let (first, later) = (scan([5, 5, 5, 5]), scan([105, 55, 98, 7]));
        let ours = later.family(10);
        assert_eq!(ours, BTreeSet::from([10, 20, 40]));
        assert_eq!(later.used_since(&first, &ours), [used("rustc", 0.93)]);
        let all = later.used_since(&first, &BTreeSet::new());
        assert_eq!(all[1], used("a (b) c", 0.5));
    }

    fn used(name: &str, cpu_s: f64) -> Used {
        Used { name: name.to_owned(), cpu_s, is_kernel: false }
    }

    /// Purpose: a thread of the kernel is told from a program by its flags, whatever its parent.
    #[test]
    fn threads_of_the_kernel() {
        let of = |flags: u32| {
            process(&format!("15 (a) R 2 0 0 0 -1 {flags} 0 0 0 0 1 2 0 0 20"))
                .expect("a line of stat")
        };
        // As of ksoftirqd/0 and of a shell.
        assert!(of(69_238_848).is_kernel && !of(4_194_304).is_kernel);
    }

    /// Purpose: a parent that has waited for its children has used what they used meanwhile, and not what they had used in
    /// all their lives: a build was reported with 2600 % of a CPU.
    #[test]
    fn lives_of_children_are_not_use() {
        let stat = |id: u32, parent: u32, name: &str, own: u32, of_children: u32| {
            let line =
                format!("{id} ({name}) R {parent} 2 3 4 5 6 7 8 9 10 {own} 0 {of_children} 0 20");
            (id, process(&line).expect("a line of stat"))
        };
        let first = Processes(BTreeMap::from([
            stat(10, 1, "cargo", 100, 500),
            stat(20, 10, "rustc", 2000, 0),
            stat(30, 20, "ld", 300, 0),
        ]));
        // ld ended after 10 ticks more, then rustc after 40.
        let later = Processes(BTreeMap::from([stat(10, 1, "cargo", 101, 500 + 2040 + 310)]));
        assert_eq!(later.used_since(&first, &BTreeSet::new()), [used("cargo", 0.51)]);
    }

    /// Purpose: grandchildren are found, and their use is counted.
    #[test]
    fn descendants_are_all_generations() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "/bin/sh -c 'while :; do :; done' & wait"]);
        highwater_sys::process::tie(&mut shell, &[], highwater_sys::process::End::Kill);
        let mut shell = shell.spawn().expect("there is a shell");
        let begin = std::time::Instant::now();
        let all = loop {
            let found = descendants(std::process::id());
            let inner = found
                .iter()
                .find(|id| stat(**id).is_some_and(|stat| stat[0] == shell.id().to_string()));
            if let Some(inner) = inner {
                break vec![shell.id(), *inner];
            }
            assert!(begin.elapsed().as_secs() < 30, "{found:?}");
            std::thread::yield_now();
        };
        let earlier = Usage::of(&all);
        while Usage::of(&all).cpu_since(&earlier).0 < 0.01 {
            assert!(begin.elapsed().as_secs() < 30, "a loop uses CPU time");
            std::thread::yield_now();
        }
        assert!(Usage::of(&all).rss_kib > 0);
        highwater_sys::process::end(all[1], highwater_sys::process::End::Kill).expect("it runs");
        shell.wait().expect("it was started");
        assert_eq!(descendants(all[0]), [0_u32; 0]);
    }

    /// Purpose: where threads come and go, exact times miss the use of ended threads; ticks include it.
    #[test]
    fn ticks_count_threads_that_ended() {
        let usage = |threads: &[(u32, u64)], ticks_s| Usage {
            threads: threads.iter().map(|(thread, ns)| ((1, *thread), *ns)).collect(),
            ticks_s,
            ..Usage::default()
        };
        let begin = usage(&[(1, 1_000_000_000), (2, 5_000_000_000)], 6.0);
        let same = usage(&[(1, 1_500_000_000), (2, 5_000_000_000), (3, 7)], 6.51);
        assert_eq!(same.cpu_since(&begin), (0.500_000_007, "schedstat"));
        let one_ended = usage(&[(1, 1_500_000_000)], 7.25);
        assert_eq!(one_ended.cpu_since(&begin), (1.25, "stat"));
        let some_between = usage(&[(1, 1_500_000_000), (2, 5_000_000_000)], 7.0);
        assert_eq!(some_between.cpu_since(&begin), (1.0, "stat"));
    }
}
