//! How does a future reach the pool? Through its worker's context.
//!
//! A blocking handler behind an asynchronous layer is the one case: the layer's future runs on the worker
//! and awaits an answer that is made elsewhere.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::error::Error;
use super::guard::{Guarded, Panic, guarded};
use super::job::{Job, Task};
use super::request::Application;
use super::response::Response;
use super::target::Target;
use super::worker_local::WorkerContext;

/// Runs `job` on the pool and waits for its response, or an error if it panics. Outside of a worker it runs
/// at once. The log names a panic by `sent_id`, the id that the request was sent with.
///
/// # Errors
/// 503 if the pool's queue is full, or the pool has stopped.
pub(super) async fn offload(
    job: Job,
    app: Arc<dyn Application>,
    target: Target,
    sent_id: Option<Box<[u8]>>,
) -> Result<Response, Error> {
    let Some(context) = WorkerContext::current() else {
        return job.run().map_err(Error::internal);
    };
    let answer = Arc::new(Answer::default());
    let promise = Promise(Some(answer.clone()));
    let task: Task = Box::new(move || {
        // The waiting task's waker may be application code.
        if promise.is_awaited() {
            let result = job.run();
            // First, so that the log has the cause of a failure when its client receives the answer.
            app.report_panics(Some(target), sent_id.as_deref());
            let _ = guarded(|| promise.keep(result));
        }
        app.report_panics(Some(target), sent_id.as_deref());
    });
    if context.submit()(task).is_err() {
        return Err(Error::overloaded("too much is waiting already"));
    }
    let _asker = Asker(answer.clone());
    poll_fn(|context| {
        let mut state = answer.lock();
        match std::mem::replace(&mut *state, State::Waiting(Some(context.waker().clone()))) {
            State::Waiting(_) => Poll::Pending,
            State::Kept(result) => Poll::Ready(result.into_inner().map_err(Error::internal)),
            State::Broken | State::Abandoned => {
                Poll::Ready(Err(Error::overloaded("the server is shutting down")))
            }
        }
    })
    .await
}

#[derive(Default)]
struct Answer(Mutex<State>);

enum State {
    Waiting(Option<Waker>),
    Kept(Box<Guarded<Result<Response, Panic>>>),
    /// The task was dropped without having been run.
    Broken,
    /// It is no longer awaited.
    Abandoned,
}

impl Default for State {
    fn default() -> Self {
        State::Waiting(None)
    }
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves the state inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        let previous = std::mem::replace(&mut *self.lock(), state);
        if let State::Waiting(Some(waker)) = previous {
            waker.wake();
        }
    }
}

/// Held while the answer is awaited. Dropping it cancels the task if it has not begun.
struct Asker(Arc<Answer>);

impl Drop for Asker {
    fn drop(&mut self) {
        let previous = std::mem::replace(&mut *self.0.lock(), State::Abandoned);
        drop(previous); // Outside of the lock: it may be a response, whose drop may run application code.
    }
}

/// The promise of an answer. If it is dropped unfulfilled, the waiting side learns that no answer comes.
struct Promise(Option<Arc<Answer>>);

impl Promise {
    fn is_awaited(&self) -> bool {
        let abandoned = |answer: &Arc<Answer>| matches!(*answer.lock(), State::Abandoned);
        !self.0.as_ref().is_none_or(abandoned)
    }

    fn keep(mut self, result: Result<Response, Panic>) {
        if let Some(answer) = self.0.take() {
            answer.set(State::Kept(Box::new(Guarded::new(result))));
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.set(State::Broken);
        }
    }
}
