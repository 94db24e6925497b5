//! The bounded pool for `blocking` handlers: threads that may wait, so that workers never do.
//!
//! Threads start when the first job comes, and live as long as the server. A full queue refuses: the
//! request is answered with 503 at once instead of waiting behind work that is already too much.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A unit of blocking work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads that run jobs, and the queue in front of them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Zero: jobs wait until `run_deferred`.
    threads_max: usize,
    queue_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The queue is full; the job comes back.
pub(crate) struct Full(pub(crate) Job);

impl std::fmt::Debug for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Full")
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads with room for `queue_max` waiting jobs.
    pub(crate) fn new(threads_max: usize, queue_max: usize) -> Self {
        let shared =
            Shared { state: Mutex::default(), work: Condvar::new(), threads_max, queue_max };
        Pool { shared: Arc::new(shared) }
    }

    /// A pool without threads: jobs run when `run_deferred` is called. For the simulator, which has
    /// to decide when.
    pub(crate) fn deferred(queue_max: usize) -> Self {
        Pool::new(0, queue_max)
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// Runs the jobs that wait.
    pub(crate) fn run_deferred(&self) {
        let jobs = std::mem::take(&mut self.shared.lock().queue);
        jobs.into_iter().for_each(|job| job());
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`Full`] if as many jobs wait as may.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Full> {
        let mut state = self.shared.lock();
        if state.queue.len() >= self.shared.queue_max {
            return Err(Full(job));
        }
        state.queue.push_back(job);
        if state.idle < state.queue.len() && state.threads < self.shared.threads_max {
            let shared = Arc::clone(&self.shared);
            let name = format!("highwater-pool-{}", state.threads);
            let started = thread::Builder::new().name(name).spawn(move || shared.run());
            if started.is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                // No thread to run it, and none may come: better an answer now.
                let job = state.queue.pop_back().expect("it was pushed above");
                return Err(Full(job));
            }
        }
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock; nothing inside it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Purpose: jobs beyond the threads wait, jobs beyond the queue are refused, none is lost.
    #[test]
    fn bounded() {
        let pool = Pool::new(1, 2);
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let finish = finished.clone();
        pool.submit(Box::new(move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
            finish.send(0).unwrap();
        }))
        .unwrap();
        running.recv().unwrap();
        for n in 1..=2 {
            let finished = finished.clone();
            pool.submit(Box::new(move || finished.send(n).unwrap())).unwrap();
        }
        assert!(pool.submit(Box::new(|| unreachable!("refused"))).is_err());
        release.send(()).unwrap();
        assert_eq!([done.recv(), done.recv(), done.recv()], [Ok(0), Ok(1), Ok(2)]);
        pool.close();
    }
}
