//! What a worker's thread does: turn after turn, and where it waits in between.
//!
//! * An application without a runtime waits in its driver: one system call a turn.
//! * With one (`context.rs` says when), a Tokio runtime lives on the same thread and does the waiting, so
//!   that handlers can await any Tokio client on their own core. The driver's readiness descriptor is what
//!   Tokio waits for. Under load neither waits, and a turn ends with a poll of Tokio's tasks if there are
//!   any.
//!
//! The runtime must be able to wake its worker at any time, even while no task is alive: any code that ran
//! inside the runtime may have given its `Handle` to another thread. Tasks that this thread spawns, and
//! timers and sockets that it awaits, wake only the runtime. But waiting in Tokio costs some more system
//! calls. So while no task is alive and events come in quick succession, the worker waits in its driver and
//! polls the runtime at least every [`RUNTIME_LOOK`]; otherwise it waits in Tokio.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use highwater_core::driver::{Driver, Wait};
use highwater_core::time::{Clock, Instant};
use highwater_sys::External;
use tokio::runtime::LocalRuntime;

use super::Worker;
use super::inbox::Inbox;
use super::protocol::Protocol;
use super::readiness::Readiness;
use crate::app::{App, WorkerContext, WorkerInfo};
use crate::logging::rate_limited;
use crate::machine::RAISE_DESCRIPTORS;
use crate::server::pool::{Full, Pool};

/// Connections in the listen queue arrive in the turn after the one that closed it: this many turns of a
/// drain do not wait, and only then may the worker finish.
const HURRIED_TURNS: u32 = 2;

/// A worker that does not wait in its runtime polls it once in this time, even if it knows of no task. This
/// bounds the delay of what another thread asks of the runtime. A poll costs a system call; one per
/// millisecond is negligible.
const RUNTIME_LOOK: Duration = Duration::from_millis(1);

/// Events that are less than this apart come in quick succession. Well below [`RUNTIME_LOOK`]: a wait about as long as
/// that would nearly always end early, for a look at the runtime, and each event would cost two wake-ups.
const DENSE_GAP: Duration = Duration::from_micros(400);

/// The phase of the whole server; each worker reads it once per turn.
#[derive(Default)]
pub(crate) struct Phase {
    now: AtomicU8,
    /// How many connections were cut before their answer was sent.
    cut: AtomicU64,
}

const DRAINING: u8 = 1;
const CUTTING: u8 = 2;

impl Phase {
    /// From now on there are no new connections, and each ends after the answer in progress.
    pub(crate) fn drain(&self) {
        self.now.fetch_max(DRAINING, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(in crate::server) fn is_draining(&self) -> bool {
        self.now.load(Ordering::SeqCst) >= DRAINING
    }

    /// From now on every remaining connection is cut.
    pub(crate) fn cut(&self) {
        self.now.fetch_max(CUTTING, Ordering::SeqCst);
    }

    /// How many connections were cut before their answer was sent.
    pub(in crate::server) fn cut_count(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }
}

impl<D: Driver, P: Protocol> Worker<D, P> {
    /// Follows the server's phase. Returns whether the worker has finished.
    #[inline]
    fn follow(&mut self, phase: &Phase, drained_turns: &mut u32) -> bool {
        match phase.now.load(Ordering::Relaxed) {
            now @ DRAINING.. => self.follow_end(now, phase, drained_turns),
            _ => false,
        }
    }

    #[cold]
    fn follow_end(&mut self, now: u8, phase: &Phase, drained_turns: &mut u32) -> bool {
        self.drain();
        *drained_turns += 1;
        if now >= CUTTING {
            phase.cut.fetch_add(self.cut(), Ordering::Relaxed);
        }
        *drained_turns > HURRIED_TURNS && (self.is_drained() || now >= CUTTING && self.is_empty())
    }
}

/// Runs until the server has drained; begins in the driver if there is no need for a runtime.
///
/// # Errors
/// The driver failed.
pub(crate) fn serve<D: Driver<Error = io::Error> + External, P: Protocol>(
    mut worker: Worker<D, P>,
    inbox: &Inbox,
    phase: &Phase,
    mut around: Option<Around>,
) -> io::Result<()> {
    let mut drained_turns = 0;
    loop {
        if let Some(around) = around {
            return in_tokio(worker, inbox, phase, drained_turns, around);
        }
        worker.set_runtime(false);
        if in_driver(&mut worker, inbox, phase, &mut drained_turns)? {
            return Ok(());
        }
        around = Around::of(&worker.driver).map_err(report_lack).ok();
        if around.is_none() {
            worker.refuse_runtime();
            worker.turn(Wait::No)?;
        }
    }
}

/// The runtime around one worker.
pub(crate) struct Around {
    /// First: it is dropped before its runtime.
    readiness: Readiness,
    runtime: LocalRuntime,
}

impl Around {
    /// A runtime that a worker over `driver` can wait in.
    ///
    /// # Errors
    /// The system gives it no descriptors.
    pub(crate) fn of(driver: &impl External) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(Default::default())?;
        let readiness = block_on(&runtime, async { Readiness::of(driver) })?;
        Ok(Around { readiness, runtime })
    }

    pub(crate) fn runtime(&self) -> &LocalRuntime {
        &self.runtime
    }
}

fn report_lack(cause: io::Error) {
    rate_limited!(
        WARN,
        %cause,
        remedy = RAISE_DESCRIPTORS,
        "streamed answers and upgraded connections are reset: their worker cannot have a runtime",
    );
}

/// Runs a future in `runtime`, and drops it there. In a box without its type, so that Tokio's part is compiled once, not for
/// each driver.
fn block_on<R>(runtime: &LocalRuntime, future: impl Future<Output = R>) -> R {
    let mut result = None;
    let run: Pin<Box<dyn Future<Output = ()> + '_>> =
        Box::pin(async { result = Some(future.await) });
    runtime.block_on(run);
    result.expect("the future has ended")
}

/// Makes the application's state for `worker`, inside `runtime` if there is one. Each value may take `time_max`.
///
/// # Errors
/// Which value could not be made, and why.
pub(crate) fn context(
    app: &App,
    worker: WorkerInfo,
    pool: &Pool,
    (runtime, time_max): (Option<&LocalRuntime>, Duration),
) -> io::Result<Option<Rc<WorkerContext>>> {
    let pool = pool.clone();
    let submit = Rc::new(move |task| pool.submit(task).map_err(|Full(task)| task));
    let made = app.worker_context(worker, time_max, submit);
    let context = match runtime {
        Some(runtime) => block_on(runtime, made),
        // Without a runtime no initializer may wait: one that waits makes the application ask for a runtime.
        None => match pin!(made).poll(&mut task::Context::from_waker(Waker::noop())) {
            Poll::Ready(context) => context,
            Poll::Pending => Err(String::from("a value per worker waits without a runtime")),
        },
    };
    context.map_err(io::Error::other)
}

fn is_hurried(drained_turns: u32) -> bool {
    (1..=HURRIED_TURNS).contains(&drained_turns)
}

/// Runs until the server has drained, waiting in the driver. Returns false if the worker must continue inside
/// a runtime instead.
fn in_driver<D: Driver, P: Protocol>(
    worker: &mut Worker<D, P>,
    inbox: &Inbox,
    phase: &Phase,
    drained_turns: &mut u32,
) -> Result<bool, D::Error> {
    while !worker.follow(phase, drained_turns) {
        let may_wait = !is_hurried(*drained_turns) && inbox.park_in_driver();
        worker.turn(if may_wait { worker.waits() } else { Wait::No })?;
        if worker.wants_runtime() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs until the server has drained, waiting in Tokio. The worker and its application are dropped inside the
/// runtime, since destructors may need a runtime around them.
fn in_tokio<D: Driver<Error = io::Error> + External, P: Protocol>(
    mut worker: Worker<D, P>,
    inbox: &Inbox,
    phase: &Phase,
    mut drained_turns: u32,
    Around { mut readiness, runtime }: Around,
) -> io::Result<()> {
    let tasks = runtime.metrics();
    worker.set_runtime(true);
    block_on(&runtime, async {
        let mut worker = worker;
        let mut looked_at = worker.now();
        // When there was something to do at last.
        let mut busy_at = looked_at;
        // Events come in such quick succession that waiting in the driver costs less.
        let mut is_dense = false;
        loop {
            let look_at = looked_at + RUNTIME_LOOK;
            let has_tasks = !worker.awaits_nothing() || tasks.num_alive_tasks() > 0;
            let may_wait = is_dense && !has_tasks && !is_hurried(drained_turns);
            let in_driver = may_wait && inbox.park_in_driver();
            let waits = if in_driver { worker.waits() } else { Wait::No };
            let events = worker.turn(at_most_until(waits, look_at))?;
            // After the turn, which takes the mail, and before the next wait: the mail may have been only a
            // nudge.
            if worker.follow(phase, &mut drained_turns) {
                return Ok(());
            }
            let turned_at = worker.turned_at();
            let is_busy = events > 0 || is_hurried(drained_turns) || worker.has_backlog();
            if is_busy {
                busy_at = turned_at;
            } else if wait(&mut worker, inbox, &mut readiness).await? {
                looked_at = worker.now();
                is_dense = looked_at < busy_at + DENSE_GAP;
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
/// Tokio ran; if not, there was no need to wait.
async fn wait<D: Driver<Error = io::Error> + External, P: Protocol>(
    worker: &mut Worker<D, P>,
    inbox: &Inbox,
    readiness: &mut Readiness,
) -> io::Result<bool> {
    if !worker.driver.prepare_wait()? {
        return Ok(false);
    }
    let waits = worker.waits();
    let now = worker.now();
    let mut alarm = pin!(async move {
        match waits {
            Wait::Until(due) => tokio::time::sleep(due - now).await,
            Wait::No | Wait::Forever => std::future::pending().await,
        }
    });
    let mut has_waited = false;
    poll_fn(|cx| {
        // It parks again on each poll: a wake-up for another reason must not consume a wake-up for mail.
        if !inbox.park_in_runtime(cx.waker()) {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(ready) = readiness.poll_ready(cx) {
            return Poll::Ready(ready);
        }
        let polled = alarm.as_mut().poll(cx).map(Ok);
        has_waited |= polled.is_pending();
        polled
    })
    .await?;
    inbox.resume();
    Ok(has_waited)
}

impl<D: Driver, P: Protocol> Worker<D, P> {
    fn is_empty(&self) -> bool {
        self.state.acceptor.count() == 0
    }

    fn now(&self) -> Instant {
        self.state.parts.turn.clock.now()
    }

    /// When the last turn began.
    fn turned_at(&self) -> Instant {
        self.state.parts.turn.now
    }

    /// Whether no future of a handler is under way.
    fn awaits_nothing(&self) -> bool {
        self.state.parts.tasks.is_idle()
    }
}
