//! The bounded pool for `blocking` handlers: threads that may wait, so that workers never do.
//!
//! Threads start when the first job comes, and live as long as the server. Jobs wait in order. A job is
//! refused (503 at once) if the oldest waiting job has waited for longer than the patience: the new one would
//! wait at least as long. The size of a burst alone causes no refusal; a hard bound on the number of jobs
//! bounds their memory.
//!
//! A job is not begun once its answer is no longer awaited: see [`Ticket`].

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::logging::rate_limited;

/// A unit of blocking work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Most threads of a server for `blocking` handlers.
pub(crate) const POOL_THREADS_MAX: usize = 32;

/// Most jobs that wait for one of them; beyond it 503. A bound on memory only: each holds a request's
/// arguments, and most hold little else. A guess.
pub(crate) const POOL_QUEUE_MAX: usize = 16_384;

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
    patience: Duration,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Instant, Job)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The queue is full, or its oldest job has waited too long; the job is returned.
pub(crate) struct Full(pub(crate) Job);

impl std::fmt::Debug for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Full")
    }
}

/// Held while the answer of a job is awaited. Dropping it cancels the job if it has not begun.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<AtomicBool>);

/// The job's side of a [`Ticket`].
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Ticket {
    pub(crate) fn new() -> (Ticket, Wanted) {
        let gone = Arc::new(AtomicBool::new(false));
        (Ticket(Arc::clone(&gone)), Wanted(gone))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Wanted {
    /// Whether the answer is still awaited.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.load(Relaxed)
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads. It refuses while the job that has waited longest has
    /// waited for longer than `patience`, and while `queue_max` jobs wait.
    pub(crate) fn new(threads_max: usize, patience: Duration, queue_max: usize) -> Self {
        let (state, work) = (Mutex::default(), Condvar::new());
        let shared = Shared { state, work, threads_max, queue_max, patience };
        Pool { shared: Arc::new(shared) }
    }

    /// A pool without threads: jobs run when `run_deferred` is called. For the simulator, which has
    /// to decide when.
    #[cfg(feature = "sim")]
    pub(crate) fn deferred(queue_max: usize) -> Self {
        Pool::new(0, Duration::MAX, queue_max)
    }

    /// Jobs that wait.
    #[cfg(feature = "sim")]
    pub(crate) fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// Runs the jobs that wait.
    #[cfg(feature = "sim")]
    pub(crate) fn run_deferred(&self) {
        let jobs = std::mem::take(&mut self.shared.lock().queue);
        jobs.into_iter().for_each(|(_, job)| run_caught(job));
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`Full`] if the oldest job has waited too long, or the queue is full.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Full> {
        let mut state = self.shared.lock();
        let now = Instant::now();
        let waited = state.queue.front().map(|(since, _)| now.saturating_duration_since(*since));
        let stands = waited.is_some_and(|waited| waited > self.shared.patience);
        if stands || state.queue.len() >= self.shared.queue_max {
            return Err(Full(job));
        }
        state.queue.push_back((now, job));
        if state.idle < state.queue.len() && state.threads < self.shared.threads_max {
            let shared = Arc::clone(&self.shared);
            let name = format!("hw-pool-{}", state.threads);
            let started = thread::Builder::new().name(name).spawn(move || shared.run());
            if started.is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                // There is no thread to run it, and there may never be one: refuse it now.
                let (_, job) = state.queue.pop_back().expect("it was pushed above");
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
            if let Some((_, job)) = state.queue.pop_front() {
                drop(state);
                run_caught(job);
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

/// Runs a job, and keeps its panic from ending the thread. Handlers catch their own panics; a panic that
/// reaches this place comes from a value that was dropped around the handler.
fn run_caught(job: Job) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        rate_limited!(
            ERROR,
            cause = panic_text(&*panic),
            instead = "let nothing panic when it is dropped",
            "a job on the pool panicked outside of its handler",
        );
        // Dropping it might panic again.
        std::mem::forget(panic);
    }
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A pool with one thread, which waits until the test releases it; and a channel that reports finished
    /// jobs.
    struct Held {
        pool: Pool,
        release: mpsc::Sender<()>,
        finished: mpsc::Sender<u32>,
        done: mpsc::Receiver<u32>,
    }

    impl Held {
        fn new(patience: Duration, queue_max: usize) -> Held {
            let pool = Pool::new(1, patience, queue_max);
            let (release, gate) = mpsc::channel::<()>();
            let (started, running) = mpsc::channel();
            let (finished, done) = mpsc::channel();
            let finish = finished.clone();
            pool.submit(Box::new(move || {
                started.send(()).expect("the test waits");
                gate.recv().expect("the test releases it");
                finish.send(0).expect("the test waits");
            }))
            .expect("there is room");
            running.recv().expect("it starts");
            Held { pool, release, finished, done }
        }

        fn submit(&self, number: u32) -> Result<(), Full> {
            let finished = self.finished.clone();
            self.pool.submit(Box::new(move || finished.send(number).expect("the test waits")))
        }
    }

    /// Purpose: jobs beyond the threads wait, jobs beyond the queue are refused, none is lost.
    #[test]
    fn bounded() {
        let held = Held::new(Duration::MAX, 2);
        held.submit(1).expect("one below the bound");
        held.submit(2).expect("at the bound");
        assert!(held.submit(3).is_err(), "one above it");
        held.release.send(()).expect("it waits");
        assert_eq!([held.done.recv(), held.done.recv(), held.done.recv()], [Ok(0), Ok(1), Ok(2)]);
        held.pool.close();
    }

    /// Purpose: a job is refused for how long the oldest job has waited, never for how many jobs wait.
    #[test]
    fn a_queue_that_stands_refuses() {
        let patient = Held::new(Duration::from_secs(3600), usize::MAX);
        for number in 1..=5000 {
            patient.submit(number).expect("a burst is no overload");
        }
        patient.release.send(()).expect("it waits");
        assert!((0..=5000).all(|number| patient.done.recv() == Ok(number)));
        patient.pool.close();

        let strict = Held::new(Duration::ZERO, usize::MAX);
        strict.submit(1).expect("the queue is empty");
        // Any time at all is longer than its patience.
        while Instant::now() == Instant::now() {}
        assert!(strict.submit(2).is_err());
        strict.release.send(()).expect("it waits");
        assert_eq!([strict.done.recv(), strict.done.recv()], [Ok(0), Ok(1)]);
        strict.submit(3).expect("it goes on again");
        assert_eq!(strict.done.recv(), Ok(3));
        strict.pool.close();
    }

    /// A panic whose payload panics again when it is dropped.
    struct Spiteful;

    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("on demand, when dropped");
        }
    }

    /// Purpose: a job that panics does not cost the pool a thread. It once ended its thread while the pool
    /// still counted that thread, so that after a few panics no job ran any more.
    #[test]
    fn panics_cost_no_thread() {
        let pool = Pool::new(1, Duration::MAX, usize::MAX);
        for _ in 0..3 {
            pool.submit(Box::new(|| panic!("on demand"))).expect("there is room");
            pool.submit(Box::new(|| std::panic::panic_any(Spiteful))).expect("there is room");
        }
        let (finished, done) = mpsc::channel();
        pool.submit(Box::new(move || finished.send(()).expect("the test waits"))).expect("room");
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(()));
        assert_eq!(pool.shared.lock().threads, 1);
        pool.close();
    }

    /// Purpose: a job learns that its answer is no longer awaited.
    #[test]
    fn tickets_tell() {
        let (ticket, wanted) = Ticket::new();
        assert!(wanted.is_wanted());
        drop(ticket);
        assert!(!wanted.is_wanted());
    }
}
