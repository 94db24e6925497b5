//! How a future reaches the pool: by way of what its worker left for it on this thread.
//!
//! A blocking handler behind middleware is the one case: the middleware's future runs on the worker
//! and awaits an answer that is made elsewhere.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::dispatch::{Shared, Target};
use super::error::Error;
use super::guard::{Guarded, Job, Panic, guarded};
use super::response::Response;

/// What a pool runs.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Hands a task to the pool; gives it back if the pool's queue is full.
pub(crate) type Submit = Rc<dyn Fn(Task) -> Result<(), Task>>;

thread_local! {
    static POOL: RefCell<Option<Submit>> = const { RefCell::new(None) };
}

/// Leaves the way to the pool for this thread's futures. A worker calls it once, before it polls any.
pub(crate) fn set_pool(submit: Submit) {
    POOL.set(Some(submit));
}

/// Runs `job` on the pool and waits for its response, or an error if it panics. On a thread that was
/// given no pool, outside of a server, it runs at once.
///
/// # Errors
/// 503 if the pool's queue is full, or the pool has gone.
pub(super) async fn offload(job: Job, app: Arc<Shared>, target: Target) -> Result<Response, Error> {
    let Some(submit) = POOL.with_borrow(Clone::clone) else {
        return job.run().map_err(Error::internal);
    };
    let answer = Arc::new(Answer::default());
    let promise = Promise(Some(answer.clone()));
    let task: Task = Box::new(move || {
        // Whoever waits is woken by a waker of the application's making.
        if promise.is_awaited() {
            let _ = guarded(|| promise.keep(job.run()));
        }
        app.report_panics(Some(target));
    });
    if submit(task).is_err() {
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
    /// Nobody waits for it any more.
    Abandoned,
}

impl Default for State {
    fn default() -> Self {
        State::Waiting(None)
    }
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can leave the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        let previous = std::mem::replace(&mut *self.lock(), state);
        if let State::Waiting(Some(waker)) = previous {
            waker.wake();
        }
    }
}

/// Whoever waits for the answer. When it is dropped, nobody does, and the task is not begun.
struct Asker(Arc<Answer>);

impl Drop for Asker {
    fn drop(&mut self) {
        let previous = std::mem::replace(&mut *self.0.lock(), State::Abandoned);
        drop(previous); // Outside of the lock: it may be a response, and that anything.
    }
}

/// The answer to come. Dropped before it is kept, it says that none will.
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
