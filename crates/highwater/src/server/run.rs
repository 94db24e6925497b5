//! What a worker thread does all day: turn after turn, and where it waits in between.
//!
//! * An application without asynchronous routes waits in its driver: one system call a turn.
//! * With asynchronous routes, a Tokio runtime lives on the same thread and does the waiting, so
//!   that handlers can await any Tokio client on their own core. The driver then never blocks; its
//!   readiness descriptor is what Tokio waits for. Under load neither waits, and each turn ends with
//!   one look at Tokio's tasks.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

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

/// Runs until the server has drained, waiting in the driver.
pub(crate) fn in_driver<D: Driver>(
    worker: &mut Worker<D>,
    inbox: &Inbox,
    phase: &Phase,
) -> Result<(), D::Error> {
    let mut drained_turns = 0;
    while !worker.follow(phase, &mut drained_turns) {
        turn_in_driver(worker, inbox, is_hurried(drained_turns))?;
    }
    Ok(())
}

fn is_hurried(drained_turns: u32) -> bool {
    (1..=HURRIED_TURNS).contains(&drained_turns)
}

/// One turn that waits in the driver, unless there is a reason not to.
fn turn_in_driver<D: Driver>(
    worker: &mut Worker<D>,
    inbox: &Inbox,
    hurry: bool,
) -> Result<u32, D::Error> {
    let may_wait = !hurry && inbox.park(None);
    worker.turn(if may_wait { worker.patience() } else { Wait::No })
}

/// Runs until the server has drained, waiting in Tokio.
///
/// # Errors
/// The runtime could not be built, or the driver failed.
pub(crate) fn in_tokio<D: Driver<Error = io::Error> + External>(
    worker: &mut Worker<D>,
    inbox: &Arc<Inbox>,
    phase: &Phase,
) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let readiness = worker.driver.readiness_fd().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that lie about their \
            descriptor; OwnedFd does not"
        )]
        let readiness = AsyncFd::with_interest(readiness, Interest::READABLE)?;
        let mut drained_turns = 0;
        while !worker.follow(phase, &mut drained_turns) {
            let hurry = is_hurried(drained_turns);
            if worker.awaits_nothing() && runtime.metrics().num_alive_tasks() == 0 {
                // Nobody waits for Tokio: waiting in the driver is cheaper.
                turn_in_driver(worker, inbox, hurry)?;
                continue;
            }
            let events = worker.turn(Wait::No)?;
            if events > 0 || hurry || worker.has_backlog() {
                tokio::task::yield_now().await;
            } else {
                wait(worker, inbox, &readiness).await?;
            }
        }
        Ok(())
    })
}

/// Waits until the driver has something to report, a task was woken, or a deadline is due.
async fn wait<D: Driver<Error = io::Error> + External>(
    worker: &mut Worker<D>,
    inbox: &Arc<Inbox>,
    readiness: &AsyncFd<std::os::fd::OwnedFd>,
) -> io::Result<()> {
    if !worker.driver.prepare_wait()? {
        return Ok(());
    }
    let patience = worker.patience();
    let now = worker.now();
    let mut alarm = pin!(async move {
        match patience {
            Wait::Until(due) => tokio::time::sleep(due - now).await,
            Wait::No | Wait::Forever => std::future::pending().await,
        }
    });
    let mut parked = false;
    std::future::poll_fn(|cx| {
        // A waker of ours was used since: the inbox takes back the announcement when it rings.
        if parked && !inbox.is_parked() || !inbox.park(Some(cx.waker().clone())) {
            return Poll::Ready(Ok(()));
        }
        parked = true;
        match readiness.poll_read_ready(cx) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        alarm.as_mut().poll(cx).map(Ok)
    })
    .await
}

impl<D: Driver> Worker<D> {
    fn is_empty(&self) -> bool {
        self.state.connections == 0
    }

    fn now(&self) -> Instant {
        self.state.clock.now()
    }

    /// Whether no future of a handler is under way.
    fn awaits_nothing(&self) -> bool {
        self.state.awaiting == 0 && self.state.orphans.is_empty()
    }
}
