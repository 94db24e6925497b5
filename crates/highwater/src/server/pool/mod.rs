//! The bounded pool for `blocking` handlers: threads that may wait, so that workers never do.
//!
//! Threads start when jobs come, up to [`THREADS_FREE`] unconditionally. Beyond that, more start while jobs
//! wait and more threads would finish more of them (`growth.rs`). Threads that are not needed end again.
//!
//! Jobs wait in order. Once the oldest has waited for half of the patience, the newest are begun first: the
//! clients of the oldest will be gone before their answers are there. A job that has waited for longer than
//! the patience is refused (503). Otherwise only jobs beyond the bound on memory are refused.
//!
//! A job is not begun once its answer is no longer awaited: see [`Ticket`]. Time in which the process was stopped does
//! not count as waiting (`State::excuse`), as it does not for the clients of a worker (`worker/served_time.rs`).
//!
//! ```text
//!   submit ─▶ queue ─▶ a thread: run
//!               ▲ └──▶ the keeper: refuse what has waited too long; start threads
//!               └───── the keeper looks every `LOOK` while jobs wait, and sleeps otherwise
//! ```

mod growth;
mod queue;

use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use highwater_sys::{clock, cpu};

use self::growth::{Growth, Used};
use self::queue::Queue;
use crate::logging::rate_limited;
use crate::metrics::PoolState;

/// A unit of blocking work that is never refused.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// A unit of blocking work that answers a request: it is run or refused.
pub(crate) type Job = Box<dyn FnOnce(Begin) + Send>;

/// The fate of a [`Job`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It has a thread.
    Run,
    /// It has waited for longer than the patience.
    Refuse,
}

/// This many threads start unconditionally: their memory is small, and most handlers that block wait for
/// something else. A guess.
const THREADS_FREE: usize = 32;

/// Most jobs that wait for a thread; beyond it 503. A bound on memory only: each holds a request's
/// arguments, and most hold little else. A guess.
pub(crate) const POOL_QUEUE_MAX: usize = 16_384;

/// How often the keeper looks while jobs wait: a small part of what clients notice.
const LOOK: Duration = Duration::from_millis(10);

/// A look that is later than this was kept from running: by a stop of the process or of its machine, most likely. As for
/// workers.
const LATE_MAX: Duration = Duration::from_millis(100);

/// A thread ends if it was not needed for about this long.
const UNUSED_MAX: Duration = Duration::from_secs(10);

/// Threads that run jobs, and the queue in front of them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes a thread.
    work: Condvar,
    /// Wakes the keeper.
    keeping: Condvar,
    /// Zero: jobs wait until `run_deferred`.
    threads_max: usize,
    queue_max: usize,
    patience: Duration,
    unused_max: Duration,
    /// The cores that the process may use. Threads start from workers, which may be pinned to one of them.
    cores: Vec<usize>,
    /// How many of them its control group lets it use at once.
    parallelism: usize,
}

#[derive(Default)]
struct State {
    queue: Queue,
    threads: usize,
    idle: usize,
    surplus: Surplus,
    /// The time that ended jobs took.
    job_time: Duration,
    job_cpu: Duration,
    has_keeper: bool,
    keeper_sleeps: bool,
    /// When the keeper last looked; `None` while nothing waits.
    looked_at: Option<Instant>,
    closed: bool,
}

/// Threads that are not needed.
#[derive(Default)]
struct Surplus {
    /// When the present period began; `None` before the first thread was idle.
    since: Option<Instant>,
    /// The fewest idle threads in it.
    idle_least: usize,
    /// How many are to end.
    ending: usize,
}

enum Work {
    Task(Task),
    Job(Job),
}

impl Work {
    fn call(self, begin: Begin) {
        run_caught(move || match self {
            Work::Task(task) => task(),
            Work::Job(job) => job(begin),
        });
    }
}

/// The queue is full, or its oldest job has waited too long; the task is returned.
pub(crate) struct Full(pub(crate) Task);

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
    /// A pool of at most `threads_max` threads, whose jobs wait for at most `patience`, and of which at most
    /// `queue_max` wait.
    pub(crate) fn new(threads_max: usize, patience: Duration, queue_max: usize) -> Self {
        Pool::with_unused_max(threads_max, patience, queue_max, UNUSED_MAX)
    }

    fn with_unused_max(
        threads_max: usize,
        patience: Duration,
        queue_max: usize,
        unused_max: Duration,
    ) -> Self {
        let (state, work, keeping) = (Mutex::default(), Condvar::new(), Condvar::new());
        // Looked up by reading files: not for the many pools of a simulation.
        let parallelism = match threads_max {
            0 => 1,
            _ => thread::available_parallelism().map_or(1, NonZero::get),
        };
        let shared = Shared {
            state,
            work,
            keeping,
            threads_max,
            queue_max,
            patience,
            unused_max,
            cores: cpu::allowed().unwrap_or_default(),
            parallelism,
        };
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
        self.state().waiting
    }

    /// Runs the jobs that wait.
    #[cfg(feature = "sim")]
    pub(crate) fn run_deferred(&self) {
        let mut queue = std::mem::take(&mut self.shared.lock().queue);
        while let Some(work) = queue.pop(Instant::now(), self.shared.patience) {
            work.call(Begin::Run);
        }
    }

    /// The pool's current statistics.
    pub(crate) fn state(&self) -> PoolState {
        let state = self.shared.lock();
        PoolState { threads: state.threads, waiting: state.queue.len() }
    }

    /// Queues a task.
    ///
    /// # Errors
    /// [`Full`] if the oldest has waited for longer than the patience, or the queue is full.
    pub(crate) fn submit(&self, task: Task) -> Result<(), Full> {
        let now = Instant::now();
        let mut state = self.shared.lock();
        state.excuse(now);
        if state.queue.waited(now).is_some_and(|waited| waited > self.shared.patience) {
            return Err(Full(task));
        }
        self.shared.push(state, now, Work::Task(task)).map_err(|work| match work {
            Work::Task(task) => Full(task),
            Work::Job(_) => unreachable!("it is the work that was given"),
        })
    }

    /// Queues a job that answers a request. Answers whether there was room for it.
    #[must_use]
    pub(crate) fn submit_job(&self, job: Job) -> bool {
        let since = Instant::now();
        self.shared.push(self.shared.lock(), since, Work::Job(job)).is_ok()
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.keeping.notify_all();
    }
}

impl State {
    /// If nobody has looked for long, the process was kept from running: what waits has not waited for that time. It is the
    /// fault of nobody who waits, and it is no overload.
    fn excuse(&mut self, now: Instant) {
        let Some(looked_at) = self.looked_at else { return };
        let lost = now.saturating_duration_since(looked_at).saturating_sub(LOOK + LATE_MAX);
        if !lost.is_zero() {
            self.queue.excuse(lost, now);
            self.looked_at = Some(now);
        }
    }

    /// A thread has nothing to do. Answers whether it should end.
    fn is_surplus(&mut self, unused_max: Duration) -> bool {
        let (now, surplus) = (Instant::now(), &mut self.surplus);
        let since = *surplus.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= unused_max {
            *surplus =
                Surplus { since: Some(now), idle_least: self.idle, ending: surplus.idle_least };
        }
        let ends = surplus.ending > 0;
        surplus.ending = surplus.ending.saturating_sub(1);
        ends
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock; nothing inside it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work`, which has waited since then, and makes sure that a thread takes it.
    ///
    /// # Errors
    /// There is no room, or no thread can be started; the work is returned.
    fn push(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        since: Instant,
        work: Work,
    ) -> Result<(), Work> {
        if state.queue.len() >= self.queue_max {
            return Err(work);
        }
        if state.idle <= state.queue.len() && self.threads_max > 0 {
            let is_free = state.threads < self.threads_max.min(THREADS_FREE);
            if is_free && !self.start_thread(&mut state) && state.threads == 0 {
                // There is no thread to run it, and there may never be one: refuse it now.
                return Err(work);
            }
            if state.idle <= state.queue.len() {
                self.wake_keeper(&mut state);
            }
        }
        state.queue.push(since, work);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Starts a thread, if the system allows it.
    fn start_thread(self: &Arc<Self>, state: &mut State) -> bool {
        let is_started = self.start_one(state.threads);
        state.threads += usize::from(is_started);
        is_started
    }

    /// Starts up to `count` threads, and no more than there may be. To start one takes as long as some requests, so the lock
    /// is not held meanwhile: a worker that has a job would wait for it.
    fn start_threads<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, State>,
        count: usize,
    ) -> MutexGuard<'s, State> {
        for _ in 0..count {
            let number = state.threads;
            if number >= self.threads_max {
                break; // A worker has started some meanwhile.
            }
            state.threads += 1;
            drop(state);
            let is_started = self.start_one(number);
            state = self.lock();
            if !is_started {
                state.threads -= 1;
                break;
            }
        }
        state
    }

    /// Starts thread `number`, which is counted by the caller.
    fn start_one(self: &Arc<Self>, number: usize) -> bool {
        let (shared, name) = (Arc::clone(self), format!("hw-pool-{number}"));
        let started = crate::thread::start(&name, Box::new(move || shared.run()));
        if let Err(error) = &started {
            rate_limited!(
                WARN,
                threads = number,
                error = %error,
                remedy = "allow more processes (ulimit -u, pids.max), or set --pool-threads to less",
                "no further thread for blocking handlers can be started",
            );
        }
        started.is_ok()
    }

    fn wake_keeper(self: &Arc<Self>, state: &mut State) {
        if state.keeper_sleeps {
            state.keeper_sleeps = false;
            self.keeping.notify_one();
        } else if !state.has_keeper {
            let shared = Arc::clone(self);
            let started = crate::thread::start("hw-keeper", Box::new(move || shared.keep()));
            if let Err(error) = &started {
                rate_limited!(
                    WARN,
                    error = %error,
                    remedy = "allow more processes (ulimit -u, pids.max)",
                    "the pool neither grows nor refuses what waits too long: its keeper cannot be started",
                );
            }
            // Without it, the pool works with the threads that it has; the next job tries again.
            state.has_keeper = started.is_ok();
        }
    }

    /// Lets this thread run on any core, even if the worker that started it is pinned to one.
    fn unpin(&self) {
        // If that is not allowed, it runs beside the worker.
        let _ = cpu::pin_thread_to(&self.cores);
    }

    /// A thread of the pool.
    fn run(&self) {
        self.unpin();
        let mut state = self.lock();
        loop {
            let began = Instant::now();
            state.excuse(began);
            if let Some(work) = state.queue.pop(began, self.patience) {
                drop(state);
                let cpu = clock::thread_cpu();
                work.call(Begin::Run);
                let (took, used) = (began.elapsed(), clock::thread_cpu().saturating_sub(cpu));
                state = self.lock();
                state.job_time += took;
                state.job_cpu += used;
            } else if state.closed || state.is_surplus(self.unused_max) {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                let waited = self.work.wait_timeout(state, self.unused_max);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                state.surplus.idle_least = state.surplus.idle_least.min(state.idle);
            }
        }
    }

    /// The keeper: refuses jobs that have waited too long, and starts threads where they help.
    fn keep(self: &Arc<Self>) {
        self.unpin();
        let mut growth = Growth::new(self.parallelism);
        let mut looked_at = Instant::now();
        let mut state = self.lock();
        while !(state.closed && state.queue.is_empty()) {
            if state.queue.is_empty() {
                growth.rest();
                state.looked_at = None;
                state.keeper_sleeps = true;
                state = self.keeping.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.keeper_sleeps = false;
                continue;
            }
            let now = Instant::now();
            state.excuse(now);
            state.looked_at = Some(now);
            if let Some(expired) = state.queue.pop_expired(now, self.patience) {
                drop(state);
                expired.call(Begin::Refuse);
                state = self.lock();
                continue;
            }
            let (job_time, job_cpu) = (state.job_time, state.job_cpu);
            let used = Used { job_time, job_cpu, process_cpu: clock::process_cpu() };
            let (threads, waiting) = (state.threads, state.queue.len());
            let more = growth.more(used, now - looked_at, threads, waiting);
            looked_at = now;
            state = self.start_threads(state, more);
            let waited = self.keeping.wait_timeout(state, LOOK);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (state.has_keeper, state.looked_at) = (false, None);
    }
}

/// Runs a job, and keeps its panic from ending the thread. Handlers catch their own panics; a panic that
/// reaches this place comes from a value that was dropped around the handler.
fn run_caught(job: impl FnOnce()) {
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
mod tests;
