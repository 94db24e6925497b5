//! The hooks and background tasks of an application, in the form that a server takes.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::draining::Draining;
use super::error::BoxError;

/// How long a hook may take, unless it sets its own time.
pub const HOOK_TIME_MAX: Duration = Duration::from_secs(30);

/// A step of the life of an application, in the order in which it was given.
pub(crate) struct Hook {
    pub(crate) name: String,
    pub(crate) time_max: Duration,
    pub(crate) step: Step,
}

/// When it is done, and what.
pub(crate) enum Step {
    /// Before the server listens.
    Start(Box<dyn FnOnce() -> Done + Send>),
    /// After it has drained.
    Stop(Box<dyn FnOnce() -> Done + Send>),
    /// While it serves.
    Beside(Task),
}

/// Work, and whether it succeeded.
pub(crate) type Done = Pin<Box<dyn Future<Output = Result<(), BoxError>>>>;

/// Work beside serving, which learns of the drain.
pub(crate) type Task = Box<dyn FnOnce(Draining) -> Pin<Box<dyn Future<Output = ()>>> + Send>;
