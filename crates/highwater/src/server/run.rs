//! What a worker thread does all day: turn after turn, and where it waits in between.
//!
//! * An application without a runtime waits in its driver: one system call a turn.
//! * With one (`context.rs` says when), a Tokio runtime lives on the same thread and does the waiting, so
//!   that handlers can await any Tokio client on their own core. The driver's readiness descriptor is what
//!   Tokio waits for. Under load neither waits, and a turn ends with a look at Tokio's tasks if there are
//!   any.
//!
//! A worker with a runtime has to be able to hear it at any time, even while no task is alive: any code that
//! ran inside the runtime may have given its `Handle` to another thread. What that thread spawns, and the
//! timers and sockets that it awaits, wake the runtime and nothing else. But waiting in Tokio costs some
//! system calls more. So while no task is alive and events come close together, the worker waits in its
//! driver, but never without a look at the runtime for longer than [`RUNTIME_LOOK`]; as soon as they do
//! not, it waits in Tokio.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::Duration;

use highwater_core::driver::{Driver, Wait};
use highwater_core::time::{Clock, Instant};
use highwater_sys::External;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::inbox::Inbox;
use super::worker::Worker;

/// What waited in the listen queue arrives with the turn after the one that closed it: so many turns
/// of a drain do not wait, and only then may the worker have finished.
const HURRIED_TURNS: u32 = 2;

/// A worker that does not wait in its runtime looks at it once in this time, even if no task of it is
/// known. So much later may be heard what another thread asks of the runtime. A look is a system call; one
/// in a millisecond is nothing.
const RUNTIME_LOOK: Duration = Duration::from_millis(1);

/// What the whole server is doing; each worker looks once a turn.
#[derive(Default)]
pub(crate) struct Phase(AtomicU8);

const DRAINING: u8 = 1;
const CUTTING: u8 = 2;

impl Phase {
    /// From now on: no new connections, and each ends with the answer it owes.
    pub(crate) fn drain(&self) {
        self.0.fetch_max(DRAINING, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(super) fn is_draining(&self) -> bool {
        self.0.load(Ordering::SeqCst) >= DRAINING
    }

    /// From now on: every connection that is left is cut.
    pub(crate) fn cut(&self) {
        self.0.fetch_max(CUTTING, Ordering::SeqCst);
    }
}

impl<D: Driver> Worker<D> {
    /// Follows the server's phase. Returns whether the worker has finished.
    fn follow(&mut self, phase: &Phase, drained_turns: &mut u32) -> bool {
        let phase = phase.0.load(Ordering::Relaxed);
        if phase >= DRAINING {
            self.drain();
            *drained_turns += 1;
        }
        if phase >= CUTTING {
            self.cut();
        }
        *drained_turns > HURRIED_TURNS && (self.is_drained() || phase >= CUTTING && self.is_empty())
    }
}

/// Runs until the server has drained; begins in the driver if there is no need for a runtime.
///
/// # Errors
/// The runtime could not be built, or the driver failed.
pub(crate) fn serve<D: Driver<Error = io::Error> + External>(
    mut worker: Worker<D>,
    inbox: &Inbox,
    phase: &Phase,
    needs_runtime: bool,
) -> io::Result<()> {
    let mut drained_turns = 0;
    if !needs_runtime {
        worker.set_runtime(false);
        if in_driver(&mut worker, inbox, phase, &mut drained_turns)? {
            return Ok(());
        }
    }
    in_tokio(worker, inbox, phase, drained_turns)
}

fn is_hurried(drained_turns: u32) -> bool {
    (1..=HURRIED_TURNS).contains(&drained_turns)
}

/// Runs until the server has drained, waiting in the driver. Returns whether that is so; if not, the
/// worker has to go on inside a runtime.
fn in_driver<D: Driver>(
    worker: &mut Worker<D>,
    inbox: &Inbox,
    phase: &Phase,
    drained_turns: &mut u32,
) -> Result<bool, D::Error> {
    while !worker.follow(phase, drained_turns) {
        let may_wait = !is_hurried(*drained_turns) && inbox.park_in_driver();
        worker.turn(if may_wait { worker.patience() } else { Wait::No })?;
        if worker.wants_runtime() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs until the server has drained, waiting in Tokio. The worker is dropped inside the runtime, as is
/// everything of its application: what is dropped may look for a runtime around it.
fn in_tokio<D: Driver<Error = io::Error> + External>(
    mut worker: Worker<D>,
    inbox: &Inbox,
    phase: &Phase,
    mut drained_turns: u32,
) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default())?;
    let tasks = runtime.metrics();
    worker.set_runtime(true);
    runtime.block_on(async {
        let mut worker = worker;
        let readiness = worker.driver.readiness_fd().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that lie about their \
            descriptor; OwnedFd does not"
        )]
        let readiness = AsyncFd::with_interest(readiness, Interest::READABLE)?;
        let mut looked_at = worker.now();
        // Events come so close together that it pays to wait for them in the driver.
        let mut is_dense = false;
        loop {
            let look_at = looked_at + RUNTIME_LOOK;
            let has_tasks = !worker.awaits_nothing() || tasks.num_alive_tasks() > 0;
            let may_wait = is_dense && !has_tasks && !is_hurried(drained_turns);
            let in_driver = may_wait && inbox.park_in_driver();
            let patience = if in_driver { worker.patience() } else { Wait::No };
            let events = worker.turn(at_most_until(patience, look_at))?;
            // After the turn, which takes the mail, and before the next wait: a nudge may have been all
            // there was in the mail.
            if worker.follow(phase, &mut drained_turns) {
                return Ok(());
            }
            let turned_at = worker.turned_at();
            let is_busy = events > 0 || is_hurried(drained_turns) || worker.has_backlog();
            if !is_busy && wait(&mut worker, inbox, &readiness).await? {
                looked_at = worker.now();
                is_dense = looked_at < turned_at + RUNTIME_LOOK;
                continue;
            }
            let has_tasks = !worker.awaits_nothing() || tasks.num_alive_tasks() > 0;
            if has_tasks || turned_at >= look_at {
                tokio::task::yield_now().await;
                looked_at = turned_at;
            }
        }
    })
}

fn at_most_until(wait: Wait, end: Instant) -> Wait {
    match wait {
        Wait::No => Wait::No,
        Wait::Until(time) => Wait::Until(time.min(end)),
        Wait::Forever => Wait::Until(end),
    }
}

/// Waits until the driver has something to report, a task was woken, or a deadline is due. Returns whether
/// Tokio had its turn; if not, there was no need to wait.
async fn wait<D: Driver<Error = io::Error> + External>(
    worker: &mut Worker<D>,
    inbox: &Inbox,
    readiness: &AsyncFd<OwnedFd>,
) -> io::Result<bool> {
    if !worker.driver.prepare_wait()? {
        return Ok(false);
    }
    let patience = worker.patience();
    let now = worker.now();
    let mut alarm = pin!(async move {
        match patience {
            Wait::Until(due) => tokio::time::sleep(due - now).await,
            Wait::No | Wait::Forever => std::future::pending().await,
        }
    });
    let mut has_waited = false;
    poll_fn(|cx| {
        // Parked anew each time: whoever wakes this task for another reason takes nothing from those
        // who put mail into the inbox.
        if !inbox.park_in_runtime(cx.waker()) {
            return Poll::Ready(Ok(()));
        }
        match readiness.poll_read_ready(cx) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        let polled = alarm.as_mut().poll(cx).map(Ok);
        has_waited |= polled.is_pending();
        polled
    })
    .await?;
    inbox.resume();
    Ok(has_waited)
}

impl<D: Driver> Worker<D> {
    fn is_empty(&self) -> bool {
        self.state.connections == 0
    }

    fn now(&self) -> Instant {
        self.state.clock.now()
    }

    /// When the last turn began.
    fn turned_at(&self) -> Instant {
        self.state.now
    }

    /// Whether no future of a handler is under way.
    fn awaits_nothing(&self) -> bool {
        self.state.awaiting == 0 && self.state.orphans.is_empty()
    }
}
