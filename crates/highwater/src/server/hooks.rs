//! The thread on which an application's hooks and background tasks run.
//!
//! ```text
//!  start hooks, in order ─▶ tasks, while the server serves ─▶ the drain: tasks end, or are dropped ─▶ stop hooks, backwards
//!          │ one fails, or the server is asked to stop
//!          └─▶ the stop hooks before it, backwards; the server does not start
//! ```
//!
//! Waiting for the thread is bounded: by the time of each hook, and a little more.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use highwater_sys::Waker;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinHandle, LocalSet};

use super::ends::Ends;
use super::error::{NotStarted, ServerError};
use super::pool::panic_text;
use crate::app::{BoxError, Done, Draining, Hook, Step, Task};

/// Beyond the time of all hooks, how long their thread may take to say that they are over.
const GRACE: Duration = Duration::from_secs(2);

/// Hooks whose start is over. Dropping them runs the stop hooks.
pub(super) struct Hooks {
    draining: Draining,
    tasks: Arc<Tasks>,
    /// Dropped, or used, when the server has drained.
    finish: Option<oneshot::Sender<()>>,
    /// Closed when the thread has ended.
    ended: mpsc::Receiver<Result<(), String>>,
    stop_time_max: Duration,
}

/// The tasks that have not ended.
#[derive(Default)]
struct Tasks {
    left: AtomicUsize,
    /// The waker of the thread that waits for them.
    waker: OnceLock<Waker>,
}

impl Hooks {
    /// Runs the start hooks, and then begins the tasks. `None` if there are no hooks at all.
    ///
    /// # Errors
    /// A start hook failed, panicked, or took too long, or one of `ends` asks to stop.
    pub(super) fn start(hooks: Vec<Hook>, ends: Ends<'_>) -> Result<Option<Self>, NotStarted> {
        if hooks.is_empty() {
            return Ok(None);
        }
        let time_max = |is_it: fn(&Step) -> bool| {
            let times = hooks.iter().filter(|hook| is_it(&hook.step)).map(|hook| hook.time_max);
            times.fold(GRACE, Duration::saturating_add)
        };
        let start_time_max = time_max(|step| matches!(step, Step::Start(_)));
        let stop_time_max = time_max(|step| matches!(step, Step::Stop(_)));
        let (draining, tasks) = (Draining::new(), Arc::new(Tasks::default()));
        let (finish, finished) = oneshot::channel();
        let (report, started) = mpsc::sync_channel(1);
        let (end, waker) = (report.clone(), Waker::standalone().map_err(ServerError::Worker)?);
        let life = Life {
            draining: draining.clone(),
            tasks: Arc::clone(&tasks),
            started: report,
            waker: waker.clone(),
        };
        let woken = waker.clone();
        let run = move || {
            life.run(hooks, finished);
            drop(end);
            woken.wake();
        };
        crate::thread::start("highwater-hooks", Box::new(run)).map_err(ServerError::Worker)?;
        // Dropping it ends them.
        let mut hooks =
            Hooks { draining, tasks, finish: Some(finish), ended: started, stop_time_max };
        match hooks.outcome(start_time_max.saturating_add(stop_time_max), &waker, ends)? {
            Some(Ok(())) => Ok(Some(hooks)),
            Some(Err(reason)) => Err(ServerError::Hook(reason).into()),
            None => {
                hooks.finish = None; // Nothing receives it.
                Err(NotStarted::Failed(ServerError::Hook(
                    "a start hook blocks its thread, and does not return; run what blocks in \
                     `tokio::task::spawn_blocking`"
                        .into(),
                )))
            }
        }
    }

    /// The outcome of the start, from their thread; `None` if that takes longer than `time_max`.
    fn outcome(
        &self,
        time_max: Duration,
        waker: &Waker,
        ends: Ends<'_>,
    ) -> Result<Option<Result<(), String>>, NotStarted> {
        let begun = Instant::now();
        loop {
            match self.ended.try_recv() {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(mpsc::TryRecvError::Disconnected) => return Ok(None),
                Err(mpsc::TryRecvError::Empty) => {}
            }
            let left = time_max.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            ends.wait_to_start(waker, Some(left))?;
        }
    }

    /// From now on the last task that ends wakes `waker`.
    pub(super) fn wakes(&self, waker: &Waker) {
        let _ = self.tasks.waker.set(waker.clone());
    }

    /// Notifies the tasks of the drain.
    pub(super) fn drain(&self) {
        self.draining.begin();
    }

    /// Whether all tasks have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.tasks.left.load(SeqCst) == 0
    }

    /// Drops the tasks that are left, and runs the stop hooks.
    fn finish(&mut self) {
        let Some(finish) = self.finish.take() else { return };
        self.drain();
        let _ = finish.send(());
        let ended = loop {
            // Their start may have ended just now; its outcome is of no use any more.
            if let Err(ended) = self.ended.recv_timeout(self.stop_time_max) {
                break ended;
            }
        };
        if ended == mpsc::RecvTimeoutError::Timeout {
            tracing::error!(
                instead = "run what blocks in tokio::task::spawn_blocking",
                "a stop hook or background task blocked its thread and was abandoned",
            );
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// What the thread needs.
struct Life {
    draining: Draining,
    tasks: Arc<Tasks>,
    started: mpsc::SyncSender<Result<(), String>>,
    /// Of the thread that waits for that.
    waker: Waker,
}

type StopHook = (String, Duration, Box<dyn FnOnce() -> Done + Send>);

impl Life {
    /// The life of the hooks, on their own thread.
    fn run(self, hooks: Vec<Hook>, finished: oneshot::Receiver<()>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                self.report(Err(format!("no runtime for hooks: {error}")));
                return;
            }
        };
        LocalSet::new().block_on(&runtime, self.live(hooks, finished));
        // What hooks have spawned on the pool is not waited for.
        runtime.shutdown_background();
    }

    /// The start is over.
    fn report(&self, outcome: Result<(), String>) {
        let _ = self.started.send(outcome); // An error: nothing waits for it any more.
        self.waker.wake();
    }

    async fn live(self, hooks: Vec<Hook>, mut finished: oneshot::Receiver<()>) {
        let (mut stops, mut tasks): (Vec<StopHook>, Vec<(String, Task)>) = Default::default();
        for Hook { name, time_max, step } in hooks {
            match step {
                Step::Start(hook) => {
                    let started = once("start hook", &name, time_max, hook);
                    match unless(&mut finished, started).await {
                        Some(Ok(())) => {}
                        Some(Err(reason)) => {
                            stop(stops).await;
                            return self.report(Err(reason));
                        }
                        None => return stop(stops).await,
                    }
                }
                Step::Stop(hook) => stops.push((name, time_max, hook)),
                Step::Beside(task) => tasks.push((name, task)),
            }
        }
        self.tasks.left.store(tasks.len(), SeqCst);
        let tasks: Vec<_> = tasks.into_iter().map(|task| self.begin(task)).collect();
        self.report(Ok(()));
        let _ = finished.await; // An error: the server is gone.
        for Begun { name, body, watched } in tasks {
            if !watched.is_finished() {
                tracing::warn!(
                    task = name,
                    "a background task was still running after the drain and was dropped"
                );
                body.abort();
            }
            // What it holds is dropped before the hooks that close what was opened.
            let _ = watched.await;
        }
        stop(stops).await;
    }

    fn begin(&self, (name, task): (String, Task)) -> Begun {
        let (draining, left) = (self.draining.clone(), Left(Arc::clone(&self.tasks)));
        let body = spawn(Box::pin(async move {
            task(draining).await;
            Ok(())
        }));
        let (abort, shown) = (body.abort_handle(), name.clone());
        let watched = spawn(Box::pin(async move {
            let _left = left;
            if let Err(error) = body.await
                && error.is_panic()
            {
                tracing::error!(
                    task = shown,
                    cause = panicked(error),
                    "a background task panicked"
                );
            }
            Ok(())
        }));
        Begun { name, body: abort, watched }
    }
}

/// A task that has begun.
struct Begun {
    name: String,
    body: AbortHandle,
    /// Ends after it.
    watched: JoinHandle<Result<(), BoxError>>,
}

/// A task that has not ended.
struct Left(Arc<Tasks>);

impl Drop for Left {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, SeqCst) == 1
            && let Some(waker) = self.0.waker.get()
        {
            waker.wake();
        }
    }
}

/// A task on this thread. All tasks of hooks have one type, so that Tokio's part is compiled once for them.
fn spawn(body: Done) -> JoinHandle<Result<(), BoxError>> {
    tokio::task::spawn_local(body)
}

/// The outcome of `work`; `None` if `end` comes first.
async fn unless<T>(end: &mut oneshot::Receiver<()>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Pin::new(&mut *end).poll(cx).map(|_| None),
    })
    .await
}

/// Runs stop hooks, the last one first.
async fn stop(hooks: Vec<StopHook>) {
    for (name, time_max, hook) in hooks.into_iter().rev() {
        if let Err(reason) = once("stop hook", &name, time_max, hook).await {
            tracing::error!(reason, "a stop hook failed");
        }
    }
}

/// Runs a hook. Its failure is a sentence.
async fn once(
    kind: &str,
    name: &str,
    time_max: Duration,
    hook: Box<dyn FnOnce() -> Done + Send>,
) -> Result<(), String> {
    let begun = Instant::now();
    // A task of its own, so that a panic ends only that.
    let mut task = spawn(Box::pin(async move { hook().await }));
    let _dropped = Aborts(task.abort_handle());
    let outcome: Result<Result<Result<(), BoxError>, JoinError>, _> =
        tokio::time::timeout(time_max, &mut task).await;
    match outcome {
        Ok(Ok(Ok(()))) => {
            tracing::info!(name, took = ?begun.elapsed(), "{kind} done");
            Ok(())
        }
        Ok(Ok(Err(error))) => Err(format!("the {kind} `{name}` failed: {error}")),
        Ok(Err(error)) => Err(format!("the {kind} `{name}` panicked: {}", panicked(error))),
        Err(_) => {
            let within = if kind == "start hook" { "on_start_within" } else { "on_stop_within" };
            Err(format!(
                "the {kind} `{name}` takes longer than {time_max:?}; give it more time with `Router::{within}`"
            ))
        }
    }
}

/// Drops a task that has not ended, when it is dropped.
struct Aborts(AbortHandle);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panicked(error: JoinError) -> String {
    let payload: Option<Box<dyn Any + Send>> = error.try_into_panic().ok();
    let text = payload.as_deref().map_or("no message", panic_text).to_owned();
    // Dropping it might panic again.
    std::mem::forget(payload);
    text
}
