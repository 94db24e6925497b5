//! The threads of the workers of one listening address: starting, waking and stopping them, and noticing one
//! that died.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_sys::capability::{self, Capability};
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
use highwater_sys::epoll::Epoll;
use highwater_sys::portable::Portable;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
use highwater_sys::uring::UringMemory;
use highwater_sys::{DriverConfig, External, Listener, Waker, cpu};

use super::ends::Ends;
use super::error::{NotStarted, ServerError};
use super::pool::{Pool, panic_text};
use super::transport::Kind;
use super::worker::{self, Around, Inbox, Phase, Worker, WorkerConfig};
use crate::app::{HOOK_TIME_MAX, WorkerInfo};
use crate::metrics::{Metrics, Readiness};

/// How long workers that are stopped without a drain may take.
const END_GRACE: Duration = Duration::from_secs(2);

/// What a worker needs to begin on its own thread.
pub(super) struct WorkerThread {
    pub(super) name: String,
    /// Which of the server's workers it is.
    pub(super) worker: WorkerInfo,
    pub(super) core: Option<usize>,
    pub(super) kind: Kind,
    pub(super) listeners: Vec<Listener>,
    pub(super) pool: Pool,
    /// Whether its thread is to lose the rights that a gate in the kernel needed.
    pub(super) gives_up_rights: bool,
    pub(super) config: WorkerConfig,
}

/// Wakes all workers of a server.
pub(super) type Alarm = Box<dyn Fn() + Send + Sync>;

/// Where the workers of one server report that they have ended, and where the server waits for that.
///
/// A worker ends when the server has drained, and at no other time. If one ends because its driver failed or
/// a panic escaped, that is logged and counted, and the others drain: half a server is worse than none, since
/// a supervisor does not restart it.
pub(super) struct Watch {
    /// Used whenever a worker ends.
    pub(super) waker: Waker,
    has_failed: AtomicBool,
    phase: Arc<Phase>,
    /// Wakes the workers that follow `phase`, once they have started.
    alarm: OnceLock<Alarm>,
    metrics: Metrics,
    readiness: Readiness,
}

impl Watch {
    /// For the workers that follow `phase`.
    pub(super) fn new(
        phase: Arc<Phase>,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Watch {
            waker: Waker::standalone()?,
            has_failed: AtomicBool::new(false),
            phase,
            alarm: OnceLock::new(),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
        }))
    }

    /// Called when a worker fails.
    pub(super) fn set_alarm(&self, alarm: Alarm) {
        let _ = self.alarm.set(alarm);
    }

    /// Whether a worker has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    fn failed(&self, name: &str, error: &io::Error) {
        tracing::error!(worker = name, cause = %error, "a worker died; the server stops");
        self.metrics.worker_failed();
        self.readiness.drain();
        self.phase.drain();
        self.has_failed.store(true, Ordering::SeqCst);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }
}

/// The worker threads of one listening address. If dropped before it is stopped, it stops without a drain.
pub(super) struct Workers {
    phase: Arc<Phase>,
    watch: Arc<Watch>,
    members: Vec<Member>,
}

struct Member {
    inbox: Arc<Inbox>,
    report: Arc<Report>,
    thread: JoinHandle<()>,
}

/// What a worker's thread reports.
#[derive(Default)]
struct Report {
    /// Once it accepts.
    inbox: OnceLock<Arc<Inbox>>,
    /// Once it has ended.
    outcome: OnceLock<io::Result<()>>,
}

impl Report {
    fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }
}

/// Waits for a thread's end, and takes its outcome.
fn join(thread: JoinHandle<()>, report: Arc<Report>) -> io::Result<()> {
    let joined = thread.join();
    let outcome = Arc::into_inner(report).and_then(|report| report.outcome.into_inner());
    joined.ok().and(outcome).unwrap_or_else(|| Err(io::Error::other("it panicked")))
}

/// How a worker reports that it accepts.
pub(super) struct Ready<'t> {
    report: &'t Report,
    /// Of the thread that starts the worker, and waits for this.
    waker: &'t Waker,
}

impl Ready<'_> {
    pub(super) fn report(&self, inbox: &Arc<Inbox>) {
        let stored = self.report.inbox.set(Arc::clone(inbox));
        debug_assert!(stored.is_ok(), "a worker begins once");
        self.waker.wake();
    }
}

impl Workers {
    pub(super) fn new(phase: Arc<Phase>, watch: Arc<Watch>) -> Self {
        Workers { phase, watch, members: Vec::new() }
    }

    /// Starts a worker and waits until it accepts.
    pub(super) fn spawn(&mut self, setup: WorkerThread, ends: Ends<'_>) -> Result<(), NotStarted> {
        let phase = Arc::clone(&self.phase);
        self.start(setup.name.clone(), ends, move |ready| setup.run(&phase, ready))
    }

    /// Starts a thread and waits until it reports that it is ready. If one of `ends` asks to stop before, the thread is
    /// left behind; a worker that begins after all finds that the server drains.
    pub(super) fn start<F>(
        &mut self,
        name: String,
        ends: Ends<'_>,
        body: F,
    ) -> Result<(), NotStarted>
    where
        F: FnOnce(&Ready<'_>) -> io::Result<()> + Send + 'static,
    {
        let report = Arc::new(Report::default());
        let (own, watch, called) = (Arc::clone(&report), Arc::clone(&self.watch), name.clone());
        let run = move || {
            let outcome = caught(|| body(&Ready { report: &own, waker: &watch.waker }));
            if let Err(error) = &outcome
                && own.inbox.get().is_some()
            {
                watch.failed(&called, error);
            }
            let _ = own.outcome.set(outcome); // It ends once.
            watch.waker.wake();
        };
        let thread = crate::thread::start(&name, Box::new(run)).map_err(ServerError::Worker)?;
        loop {
            // In this order: it may have begun and ended meanwhile.
            let has_ended = report.has_ended();
            if let Some(inbox) = report.inbox.get().cloned() {
                self.members.push(Member { inbox, report, thread });
                return Ok(());
            }
            if has_ended {
                let early = || io::Error::other("a worker ended before it began");
                let error = join(thread, report).err().unwrap_or_else(early);
                return Err(ServerError::Worker(error).into());
            }
            ends.wait_to_start(&self.watch.waker, None)?;
        }
    }

    /// Wakes all workers, for another thread.
    pub(super) fn alarm(&self) -> Alarm {
        let inboxes: Vec<Arc<Inbox>> =
            self.members.iter().map(|member| Arc::clone(&member.inbox)).collect();
        Box::new(move || inboxes.iter().for_each(|inbox| inbox.nudge()))
    }

    /// Gives each worker a turn.
    pub(super) fn wake(&self) {
        self.members.iter().for_each(|member| member.inbox.nudge());
    }

    /// Lets every connection end after the answer in progress.
    pub(super) fn drain(&self) {
        self.phase.drain();
        self.wake();
    }

    /// Ends every connection that is left.
    pub(super) fn cut(&self) {
        self.phase.cut();
        self.wake();
    }

    /// How many connections were cut before their answer was sent.
    pub(super) fn cut_count(&self) -> u64 {
        self.phase.cut_count()
    }

    /// Stops without a drain.
    pub(super) fn end_now(&mut self) -> io::Result<()> {
        self.drain();
        self.cut();
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < END_GRACE {
            self.watch.waker.wait(END_GRACE.saturating_sub(begun.elapsed()))?;
        }
        self.join()
    }

    /// Whether all workers have ended, one way or another.
    pub(super) fn has_ended(&self) -> bool {
        self.members.iter().all(|member| member.report.has_ended())
    }

    /// Joins the threads that have ended, and returns an error if one of them failed. Threads that have not
    /// ended are left behind: a handler that does not return holds them.
    pub(super) fn join(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        for member in self.members.drain(..) {
            if member.report.has_ended() {
                outcome = outcome.and(join(member.thread, member.report));
            } else {
                tracing::warn!(
                    instead = "a handler that takes long belongs in blocking(…)",
                    "a worker did not stop and was abandoned",
                );
            }
        }
        outcome
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if !self.members.is_empty() {
            let _ = self.end_now();
        }
    }
}

/// Runs `body`; its panic is an error.
fn caught(body: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let error = io::Error::other(format!("it panicked: {}", panic_text(&*panic)));
        // Dropping it might panic again.
        std::mem::forget(panic);
        Err(error)
    })
}

impl WorkerThread {
    /// A worker's life, on its own thread.
    fn run(self, phase: &Phase, ready: &Ready<'_>) -> io::Result<()> {
        if self.gives_up_rights
            && let Err(error) = capability::give_up(&Capability::ALL)
        {
            tracing::warn!(error = %error, "a worker keeps capabilities that it does not need");
        }
        if let Some(core) = self.core {
            // Pinning is an optimization: a container may forbid it.
            let _ = cpu::pin_thread(core);
        }
        let peer_addresses = self.config.needs_peers();
        let driver = DriverConfig { peer_addresses, ..Default::default() };
        let WorkerThread { kind, worker, listeners, pool, config, .. } = self;
        let report = |inbox: &Arc<Inbox>| ready.report(inbox);
        let metrics = Arc::clone(&config.metrics);
        match kind {
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Kind::Uring { or_epoll } => match UringMemory::new(&driver) {
                Ok(memory) => {
                    let driver = memory.accept_from(listeners, &driver)?;
                    metrics.serves_over(kind.name());
                    work(driver, config, worker, pool, phase, report)
                }
                Err(cause) if or_epoll && cause.kind() == io::ErrorKind::OutOfMemory => {
                    tracing::warn!(
                        worker = self.name,
                        %cause,
                        instead = "raise RLIMIT_MEMLOCK, which all processes of a user share",
                        "a worker serves over epoll: there is no memory for another ring",
                    );
                    metrics.serves_over(Kind::Epoll.name());
                    work(Epoll::new(listeners, &driver)?, config, worker, pool, phase, report)
                }
                Err(cause) => Err(cause),
            },
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Kind::Epoll => {
                metrics.serves_over(kind.name());
                work(Epoll::new(listeners, &driver)?, config, worker, pool, phase, report)
            }
            Kind::Portable => {
                metrics.serves_over(kind.name());
                work(Portable::new(listeners, &driver)?, config, worker, pool, phase, report)
            }
        }
    }
}

/// Serves until the server has drained; reports when it begins.
pub(super) fn work<D: External>(
    driver: D,
    config: WorkerConfig,
    worker: WorkerInfo,
    pool: Pool,
    phase: &Phase,
    begins: impl FnOnce(&Arc<Inbox>),
) -> io::Result<()> {
    let waker = driver.waker();
    let inbox = Inbox::new(Box::new(move || waker.wake()));
    // Also if it is not needed yet: what Tokio opens once per process, it opens while there are descriptors. It panics where
    // there are none.
    let around = Some(Around::of(&driver)?).filter(|_| config.app.needs_runtime());
    let runtime = around.as_ref().map(Around::runtime);
    let context = worker::context(&config.app, worker, &pool, (runtime, HOOK_TIME_MAX))?;
    config.metrics.runs_here();
    let app = config.app.clone();
    let worker: Worker<_> = Worker::new(driver, config, Arc::clone(&inbox), pool);
    let worker = worker.with_context(context);
    begins(&inbox);
    let outcome = worker::run(worker, &inbox, phase, around);
    app.report_panics(None, None); // Panics of what was dropped with the worker.
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANG: Duration = Duration::from_secs(20);

    /// The work of a worker.
    type Body = fn() -> io::Result<()>;

    /// Workers that run `bodies`, each once it has begun.
    fn workers(bodies: Vec<Body>) -> (Workers, Metrics, Readiness) {
        let (metrics, readiness, phase) = (Metrics::new(), Readiness::new(), Arc::default());
        metrics.begin(&[], 1);
        let watch = Watch::new(Arc::clone(&phase), &metrics, &readiness).expect("a descriptor");
        let mut workers = Workers::new(phase, Arc::clone(&watch));
        for body in bodies {
            let start = workers.start("highwater-test".into(), Ends::default(), move |ready| {
                ready.report(&Inbox::new(Box::new(|| {})));
                body()
            });
            start.expect("it begins");
        }
        watch.set_alarm(workers.alarm());
        (workers, metrics, readiness)
    }

    /// Waits as a supervisor does, for one wake-up.
    fn until(watch: &Watch, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < HANG, "the failure was not reported");
            watch.waker.wait(HANG).expect("it can be polled");
        }
    }

    /// Purpose: a worker that dies, by a panic or by an error, is noticed at once, counted, and ends the
    /// server: the others drain, and stopping the server returns the reason.
    #[test]
    fn a_death_is_noticed() {
        let deaths: [(Body, &str); 3] = [
            (|| panic!("on demand"), "it panicked: on demand"),
            (|| std::panic::panic_any(Spiteful), "it panicked: no message"),
            (|| Err(io::Error::other("the ring is gone")), "the ring is gone"),
        ];
        for (death, cause) in deaths {
            let (mut workers, metrics, readiness) = workers(vec![death]);
            let watch = Arc::clone(&workers.watch);
            until(&watch, || watch.has_failed());
            until(&watch, || workers.has_ended());
            assert!(workers.phase.is_draining());
            assert_eq!(readiness.verdict(), Err("draining".to_owned()));
            assert!(metrics.page().contains("\nhighwater_worker_failures_total 1\n"));
            assert_eq!(workers.join().expect_err("it failed").to_string(), cause);
        }
    }

    /// A panic whose payload panics again when it is dropped.
    struct Spiteful;

    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("on demand, when dropped");
        }
    }

    /// Purpose: a worker that ends because the server has drained is not a failure.
    #[test]
    fn an_end_is_no_death() {
        let (mut workers, metrics, readiness) = workers(vec![|| Ok(()), || Ok(())]);
        let watch = Arc::clone(&workers.watch);
        until(&watch, || workers.has_ended());
        assert!(!watch.has_failed() && readiness.verdict().is_ok());
        assert!(metrics.page().contains("\nhighwater_worker_failures_total 0\n"));
        workers.join().expect("all ended well");
    }
}
