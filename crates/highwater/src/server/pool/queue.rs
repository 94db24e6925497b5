//! In which order does work leave the queue?
//!
//! Tasks and jobs wait in queues of their own: a task is never refused, and must not keep the jobs behind it from being
//! refused in time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Job, Task, Work};

/// Work that waits, and since when.
#[derive(Default)]
pub(super) struct Queue {
    tasks: VecDeque<(Instant, Task)>,
    jobs: VecDeque<(Instant, Job)>,
}

impl Queue {
    pub(super) fn push(&mut self, since: Instant, work: Work) {
        match work {
            Work::Task(task) => self.tasks.push_back((since, task)),
            Work::Job(job) => self.jobs.push_back((since, job)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len() + self.jobs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long the oldest has waited, if any waits.
    pub(super) fn waited(&self, now: Instant) -> Option<Duration> {
        let oldest = [since(self.tasks.front()), since(self.jobs.front())];
        oldest.into_iter().flatten().min().map(|since| now.saturating_duration_since(since))
    }

    /// What waits at `now` has waited for so much less.
    pub(super) fn excuse(&mut self, by: Duration, now: Instant) {
        let tasks = self.tasks.iter_mut().map(|(since, _)| since);
        let jobs = self.jobs.iter_mut().map(|(since, _)| since);
        tasks.chain(jobs).for_each(|since| *since = (*since + by).min(now));
    }

    /// The next to begin: the oldest; or the newest if the oldest is a job that would be answered too late. Tasks keep
    /// their order.
    pub(super) fn pop(&mut self, now: Instant, patience: Duration) -> Option<Work> {
        let (task, job) = (since(self.tasks.front()), since(self.jobs.front()));
        let Some(job) = job.filter(|&job| task.is_none_or(|task| job < task)) else {
            return self.tasks.pop_front().map(|(_, task)| Work::Task(task));
        };
        let is_late = now.saturating_duration_since(job) > patience / 2;
        if is_late && since(self.tasks.back()) > since(self.jobs.back()) {
            return self.tasks.pop_front().map(|(_, task)| Work::Task(task));
        }
        let next = if is_late { self.jobs.pop_back() } else { self.jobs.pop_front() };
        next.map(|(_, job)| Work::Job(job))
    }

    /// The next job to be refused: the oldest, if it has waited for longer than the patience.
    pub(super) fn pop_expired(&mut self, now: Instant, patience: Duration) -> Option<Work> {
        let is_over =
            |&mut (since, _): &mut (Instant, Job)| now.saturating_duration_since(since) > patience;
        self.jobs.pop_front_if(is_over).map(|(_, job)| Work::Job(job))
    }
}

fn since<W>(waiting: Option<&(Instant, W)>) -> Option<Instant> {
    waiting.map(|(since, _)| *since)
}
