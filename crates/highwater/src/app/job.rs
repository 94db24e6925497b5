//! Work for the pool that answers a request.

use std::rc::Rc;

use super::guard::{Guarded, Panic, guarded};
use super::response::Response;

/// A unit of work for the pool.
pub struct Job(Guarded<Box<dyn FnOnce() -> Response + Send>>);

impl Job {
    pub(crate) fn new(job: impl FnOnce() -> Response + Send + 'static) -> Self {
        Job(Guarded::new(Box::new(job)))
    }

    /// Runs it.
    pub(crate) fn run(self) -> Result<Response, Panic> {
        guarded(self.0.into_inner())
    }
}

/// A task of the pool.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Hands a task to the pool; gives it back if the pool's queue is full.
pub(crate) type Submit = Rc<dyn Fn(Task) -> Result<(), Task>>;
