//! Functions that run on the pool.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::function::{Callable, SendArguments};
use super::{Description, Dispatch, Handler, Kind};
use crate::app::finisher::{ResponseFinisher, guarded};
use crate::app::into_response::IntoResponse;
use crate::app::job::Job;
use crate::app::outcome::Outcome;
use crate::app::request::Request;

/// A function that is run on the pool; see [`blocking`].
///
/// `S` is the function and its arguments, for their description.
pub struct Blocking<S = ()> {
    handler: Box<dyn Dispatch>,
    /// Declares what the handler needs.
    describe: fn(&mut Description),
    signature: PhantomData<fn() -> S>,
}

/// A handler that may block: it runs on a bounded pool of threads, so that the worker can serve others
/// meanwhile. Use it for CPU-bound work of more than a few hundred microseconds, for files, and for clients
/// that are not async. The pool grows while handlers block, up to
/// [`ServerConfig::pool_threads`](crate::ServerConfig::pool_threads). Handlers wait for a thread in order, and
/// are not begun if their peer has disconnected or was answered meanwhile ([`Handler::timeout`]) unless they
/// are [`detached`](Handler::detached). One that has waited for longer than
/// [`ServerConfig::patience`](crate::ServerConfig::patience) is answered 503; so is one that arrives while
/// 16 384 wait.
///
/// Its arguments are extracted on the worker and moved to the pool: they have to be `Send`.
///
/// ```
/// use highwater::{Path, Router, blocking};
///
/// fn primes(Path(below): Path<u32>) -> String {
///     let is_prime = |n: &u32| (2..*n).all(|divisor| n % divisor != 0);
///     (2..below).filter(is_prime).count().to_string()
/// }
///
/// let app = Router::new().get("/primes/{below}", blocking(primes));
/// # app.build().unwrap();
/// ```
pub fn blocking<F, Args>(function: F) -> Blocking<(F, Args)>
where
    F: Callable<Args>,
    Args: SendArguments,
    F::Output: BlockingAnswer,
{
    let function = Arc::new(function);
    Blocking {
        handler: Box::new(Pooled { function, marker: PhantomData }),
        describe: Args::describe,
        signature: PhantomData,
    }
}

/// Marks [`Blocking`] as a handler.
#[derive(Debug)]
pub struct ViaBlocking;

#[diagnostic::do_not_recommend]
impl<S: 'static> Handler<ViaBlocking> for Blocking<S> {
    fn describe(&self, description: &mut Description) {
        description.kind = Kind::Blocking;
        (self.describe)(description);
        let problems = description.awaited.iter().map(|name| {
            format!(
                "`blocking(…)` cannot wait for its argument `{name}`; make the handler an `async fn`, and run what \
                 blocks in it with `tokio::task::spawn_blocking(…).await`"
            )
        });
        description.problems.extend(problems);
    }

    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.handler.dispatch(request)
    }
}

impl<S> fmt::Debug for Blocking<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

/// The content of [`Blocking`], type-erased so that the compiler reports an error in a function once, where
/// `blocking` is called.
struct Pooled<F, Args> {
    function: Arc<F>,
    marker: PhantomData<fn(Args)>,
}

impl<F, Args> Dispatch for Pooled<F, Args>
where
    F: Callable<Args>,
    Args: SendArguments,
    F::Output: IntoResponse,
{
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        let args = match Args::extract(request) {
            Ok(args) => args,
            Err(error) => return Outcome::Ready(error.into_response()),
        };
        let function = Arc::clone(&self.function);
        let finisher = ResponseFinisher::of(request);
        Outcome::Offload(Job::new(move || {
            finisher.finish(guarded(|| function.call(args).into_response()))
        }))
    }
}

/// The return type of a blocking handler.
#[diagnostic::on_unimplemented(
    message = "a blocking handler cannot return `{Self}`",
    label = "this function returns something that is not a response",
    note = "`blocking` takes a plain `fn` that returns a response; an `async fn` is a handler by \
            itself, and stays on the worker"
)]
pub trait BlockingAnswer: IntoResponse {}

#[diagnostic::do_not_recommend]
impl<R: IntoResponse> BlockingAnswer for R {}
