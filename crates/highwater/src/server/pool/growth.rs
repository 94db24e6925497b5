//! Would more threads finish more jobs?
//!
//! Jobs that block leave the CPU to others: more threads finish more of them. Jobs that compute do not:
//! more threads only make each of them slower. Recently ended jobs show which kind they are. If they used
//! the CPU for a share `s` of their time, then `cores ÷ s` threads occupy all cores; jobs that compute wait
//! for the CPU as well, so for them this is about the number of threads that there are. While no job ends,
//! the CPU use of the whole process shows it.
//!
//! Pure: times in, a number of threads out.

use std::time::Duration;

/// The pool grows if the cores would bear this many times its threads. Other threads also make jobs wait
/// for the CPU, which must not look like blocking.
const MARGIN: f64 = 1.5;

/// While no job ends: the share of the cores beyond which jobs are taken to compute. A guess.
const BUSY: f64 = 0.75;

/// Ended jobs of less time in all than this are no evidence.
const TIME_MIN: f64 = 1e-3;

/// The resources that the pool's jobs and its process have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// The total time of the jobs that have ended.
    pub(super) job_time: Duration,
    /// The CPU time of these.
    pub(super) job_cpu: Duration,
    /// The CPU time of the whole process.
    pub(super) process_cpu: Duration,
}

/// Decides how many threads to add.
#[derive(Debug)]
pub(super) struct Growth {
    cores: f64,
    before: Option<Used>,
    /// The time of jobs that ended lately, and their CPU time, in seconds. Halved with each look.
    time: f64,
    cpu: f64,
}

impl Growth {
    pub(super) fn new(cores: usize) -> Self {
        Growth { cores: cores as f64, before: None, time: 0.0, cpu: 0.0 }
    }

    /// Discards the measurements: nothing waits any more.
    pub(super) fn rest(&mut self) {
        *self = Growth { before: None, time: 0.0, cpu: 0.0, ..*self };
    }

    /// How many threads to add to `threads`, for `waiting` jobs; `passed` after the last look.
    pub(super) fn more(
        &mut self,
        used: Used,
        passed: Duration,
        threads: usize,
        waiting: usize,
    ) -> usize {
        let Some(before) = self.before.replace(used) else { return 0 };
        let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        self.time = self.time / 2.0 + since(used.job_time, before.job_time);
        self.cpu = self.cpu / 2.0 + since(used.job_cpu, before.job_cpu);
        let helps = if self.time >= TIME_MIN {
            self.cores * self.time >= MARGIN * threads as f64 * self.cpu
        } else {
            let used = since(used.process_cpu, before.process_cpu);
            used < BUSY * self.cores * passed.as_secs_f64()
        };
        if helps { (threads / 2 + 1).min(waiting) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(10);

    /// Looks fifty times at a pool on two cores and returns its threads at the end. If a job `ends` on each
    /// thread between two looks, it needed the CPU for `cpu_share` of its time. The process uses the share
    /// `process` of the cores.
    fn grown(mut threads: usize, ends: bool, cpu_share: f64, process: f64) -> usize {
        let (mut growth, mut used) = (Growth::new(2), Used::default());
        for _ in 0..50 {
            let time = if ends { LOOK * threads as u32 } else { Duration::ZERO };
            // Beyond two cores, jobs wait for the CPU.
            let share = cpu_share.min(2.0 / threads as f64);
            used.job_time += time;
            used.job_cpu += time.mul_f64(share);
            used.process_cpu += LOOK.mul_f64(2.0 * process);
            threads = (threads + growth.more(used, LOOK, threads, 1000)).min(512);
        }
        threads
    }

    /// Purpose: jobs that block get threads, whether or not they end and whatever else the process does;
    /// jobs that compute get none, even if other processes take the CPU from them.
    #[test]
    fn threads_are_added_for_jobs_that_block() {
        assert_eq!(grown(32, true, 0.001, 0.1), 512);
        assert_eq!(grown(32, true, 0.001, 1.0), 512, "the workers are busy");
        assert_eq!(grown(32, false, 0.0, 0.1), 512, "jobs take long");
        assert_eq!(grown(32, true, 1.0, 1.0), 32);
        assert_eq!(grown(32, true, 1.0, 0.2), 32, "others take the CPU");
        assert_eq!(grown(32, false, 1.0, 0.9), 32, "jobs compute for long");
        let partly = grown(4, true, 0.1, 0.5);
        assert!((14..=30).contains(&partly), "a tenth of their time: {partly} occupy two cores");
    }

    /// Purpose: not more threads are added than jobs wait, and the first look adds none.
    #[test]
    fn no_thread_is_added_for_nothing() {
        let mut growth = Growth::new(2);
        assert_eq!(growth.more(Used::default(), LOOK, 32, 1000), 0);
        assert_eq!(growth.more(Used::default(), LOOK, 32, 3), 3);
        assert_eq!(growth.more(Used::default(), LOOK, 32, 1000), 17);
        growth.rest();
        assert_eq!(growth.more(Used::default(), LOOK, 32, 1000), 0);
    }
}
