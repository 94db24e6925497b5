//! Handlers: plain functions, whose form decides how they are run.
//!
//! The work is divided so that the compiler can say precisely what is wrong with a function: it is a
//! [`Callable`] of some number of arguments; each of them is an extractor ([`Arguments`]); its return type is
//! an [`Answer`]. There is one implementation of [`Handler`] for all functions, so the compiler names the
//! missing part rather than rejecting the function as a whole.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::dispatch::Outcome;
use super::endpoint::{Endpoint, Options};
use super::error::Error;
use super::extract::{BodyUse, FromRequest, Requirements};
use super::finisher::{ResponseFinisher, guarded};
use super::fixed::Template;
use super::guard::GuardedFuture;
use super::into_response::IntoResponse;
use super::job::Job;
use super::request::Request;
use crate::admission::priority::Priority;
use crate::admission::route_limit::Concurrency;

/// How a handler is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Not at all: the response was encoded when the application was built.
    Fixed,
    /// On the worker, at once: `fn`.
    Inline,
    /// As a future on the worker: `async fn`.
    Async,
    /// On the pool: `blocking(fn)`.
    Blocking,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Fixed => "fixed",
            Kind::Inline => "inline",
            Kind::Async => "async",
            Kind::Blocking => "blocking",
        })
    }
}

/// The types that can be registered with a [`Router`](super::Router).
///
/// | handler | is run |
/// |---|---|
/// | `fn(extractors…) -> response` | on the worker, at once. It must not wait for anything |
/// | `async fn(extractors…) -> response` | on the worker; its future need not be `Send` |
/// | [`blocking`]`(fn(extractors…) -> response)` | on a bounded pool of threads |
/// | [`fixed`](super::fixed)`(response)` | not at all |
///
/// Up to eight arguments, in any order, each of which implements [`FromRequest`]; at most one of them
/// takes the body. The result implements [`IntoResponse`].
///
/// Closures are handlers, too. An `async` closure that captures something is not an `Fn`, though; let a plain
/// closure clone the values that its future needs:
///
/// ```
/// use std::sync::Arc;
/// use highwater::Router;
///
/// let motto: Arc<str> = "fluctuat nec mergitur".into();
/// let app = Router::new().get("/motto", move || {
///     let motto = motto.clone();
///     async move { motto.to_string() }
/// });
/// # app.build().unwrap();
/// ```
///
/// `M` is for the compiler only; it tells the kinds of handlers apart.
///
/// The methods set options of the endpoint:
///
/// ```
/// use std::time::Duration;
/// use highwater::{Bytes, Handler, Router, StatusCode};
///
/// async fn store(content: Bytes) -> StatusCode {
///     StatusCode::CREATED
/// }
///
/// let app = Router::new()
///     .put("/files/{name}", store.body_max(8 << 20).timeout(Duration::from_secs(30)));
/// # app.build().unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "a request cannot be answered with this",
    note = "a handler is `fn(extractors…) -> response`, `async fn(extractors…) -> response`, \
            `blocking(function)` or `fixed(response)`, with at most eight extractors",
    note = "write `fixed(content)` to answer every request with the same content; \
            combine extractors in one of your own (`FromRequest`) to have more than eight"
)]
pub trait Handler<M>: Sized + Send + Sync + 'static {
    /// Declares what the handler needs.
    #[doc(hidden)]
    fn describe(&self, description: &mut Description);

    /// Answers a request.
    #[doc(hidden)]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h>;

    /// Accepts bodies of up to `bytes` bytes, instead of the server's setting; larger ones are answered 413.
    fn body_max(self, bytes: u64) -> Endpoint<Self, M> {
        Endpoint::new(self).body_max(bytes)
    }

    /// Names the endpoint `name` in metrics, instead of using its path's pattern.
    fn name(self, name: impl Into<String>) -> Endpoint<Self, M> {
        Endpoint::new(self).name(name)
    }

    /// Answers 503 in place of the handler if it takes longer. An async handler is dropped. One on the pool
    /// runs on and its answer is dropped; if it still waits for a thread, it is not begun. One that runs on
    /// the worker cannot be interrupted.
    fn timeout(self, timeout: Duration) -> Endpoint<Self, M> {
        Endpoint::new(self).timeout(timeout)
    }

    /// Lets the handler run to its end even if the peer disconnects meanwhile, or is answered 503 because its
    /// own deadline has passed. Otherwise an async handler is dropped at its next `.await`, and a blocking one
    /// is not begun if it still waits for a thread.
    fn detached(self) -> Endpoint<Self, M> {
        Endpoint::new(self).detached()
    }

    /// Sets the priority of the endpoint's requests while requests wait in the queue. The client may override
    /// it where [`Router::priority_field`](super::Router::priority_field) lets it.
    fn priority(self, priority: Priority) -> Endpoint<Self, M> {
        Endpoint::new(self).priority(priority)
    }

    /// Answers at most this many requests of the endpoint at once, over all workers; a further one is
    /// answered 503, with `Retry-After`. A request counts until its response's head is made (streamed content
    /// does not), or until the work on it is over: a blocking handler whose request has timed out still
    /// counts. With [`Concurrency::Auto`] the number is found: see there.
    ///
    /// A request whose body is collected counts from when it is complete. One whose body is streamed counts
    /// from its head; but while others are refused here, what its client must send to keep its place rises
    /// from twice [`Limits::body_rate_min`](crate::Limits::body_rate_min) to 64 times that within three
    /// seconds, and slower clients get 408: so slow clients hold places only while no other request needs
    /// them.
    ///
    /// [`Router::concurrency_limit`](super::Router::concurrency_limit) does the same for a group of routes.
    fn concurrency_limit(self, limit: impl Into<Concurrency>) -> Endpoint<Self, M> {
        Endpoint::new(self).concurrency_limit(limit)
    }

    /// Serves the endpoint's requests before all others and under any overload: for health checks, which must
    /// report the state of an overloaded server. The handler must be quick.
    fn never_shed(self) -> Endpoint<Self, M> {
        Endpoint::new(self).never_shed()
    }
}

/// The properties of a handler that the application checks when it is built.
#[derive(Debug)]
pub struct Description {
    pub(super) kind: Kind,
    /// The arguments that take the body, by type.
    pub(super) bodies: Vec<(&'static str, BodyUse)>,
    pub(super) wants_peer: bool,
    pub(super) requirements: Requirements,
    pub(super) options: Options,
    pub(super) problems: Vec<String>,
    /// The response of a fixed answer.
    pub(super) fixed: Option<Template>,
}

impl Description {
    pub(super) fn of<M>(handler: &impl Handler<M>) -> Self {
        let mut description = Description {
            kind: Kind::Inline,
            bodies: Vec::new(),
            wants_peer: false,
            requirements: Requirements::default(),
            options: Options::default(),
            problems: Vec::new(),
            fixed: None,
        };
        handler.describe(&mut description);
        description
    }
}

/// A type-erased handler.
pub(super) trait Dispatch: Send + Sync {
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h>;
}

/// Erases the type of a handler, so that an application's size does not grow with the number of its types.
pub(super) fn erase<M: 'static>(handler: impl Handler<M>) -> Box<dyn Dispatch> {
    Box::new(Erased(handler, PhantomData))
}

struct Erased<H, M>(H, PhantomData<fn() -> M>);

impl<M: 'static, H: Handler<M>> Dispatch for Erased<H, M> {
    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.0.dispatch(request)
    }
}

impl<F, Args, Way> Handler<(Way, Args)> for F
where
    F: Callable<Args>,
    Args: Arguments,
    F::Output: Answer<Way>,
{
    fn describe(&self, description: &mut Description) {
        description.kind = F::Output::KIND;
        Args::describe(description);
    }

    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        match Args::extract(request) {
            Ok(args) => self.call(args).answer(request),
            Err(error) => Outcome::Ready(error.into_response()),
        }
    }
}

/// A function of up to eight arguments.
pub trait Callable<Args>: Send + Sync + 'static {
    /// The function's return type.
    type Output;

    /// Calls it.
    fn call(&self, args: Args) -> Self::Output;
}

/// The return type of a function, which decides how it is run.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this handler returns something that is not a response",
    note = "a handler returns, or its future resolves to, text (`&'static str`, `String`), bytes \
            (`Bytes`, `Vec<u8>`), `Json(value)`, `Html(text)`, a `StatusCode`, \
            `(StatusCode, response)`, `Result<response, Error>` or a `Response`",
    note = "write `Json(value)` for a value that implements `serde::Serialize`, `Result<_, Error>` for \
            what can fail; implement `IntoError` for an error type of your own, or `IntoResponse` for any \
            other type"
)]
pub trait Answer<Way>: Sized {
    /// How it is run.
    const KIND: Kind;

    /// Makes an outcome of it.
    fn answer<'h>(self, request: &Request<'_>) -> Outcome<'h>;
}

/// The way of `fn`.
#[derive(Debug)]
pub struct Inline;

/// The way of `async fn`.
#[derive(Debug)]
pub struct Async;

impl<R: IntoResponse> Answer<Inline> for R {
    const KIND: Kind = Kind::Inline;

    #[inline]
    fn answer<'h>(self, _request: &Request<'_>) -> Outcome<'h> {
        Outcome::Ready(self.into_response())
    }
}

impl<F> Answer<Async> for F
where
    F: Future<Output: IntoResponse> + 'static,
{
    const KIND: Kind = Kind::Async;

    #[inline]
    fn answer<'h>(self, request: &Request<'_>) -> Outcome<'h> {
        let finisher = ResponseFinisher::of(request);
        Outcome::Later(GuardedFuture::new(finisher.after(self)))
    }
}

/// A list of extractors.
pub trait Arguments: Sized {
    /// Extracts them, from left to right.
    ///
    /// # Errors
    /// That of the first that fails.
    fn extract(request: &Request<'_>) -> Result<Self, Error>;

    /// Adds the requirements of the arguments.
    fn describe(description: &mut Description);
}

/// A list of extractors whose values can be moved to another thread.
pub trait SendArguments: Arguments + Send + 'static {}

/// A function that is run on the pool; see [`blocking`].
pub struct Blocking {
    handler: Box<dyn Dispatch>,
    /// Declares what the handler needs.
    describe: fn(&mut Description),
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
pub fn blocking<F, Args>(function: F) -> Blocking
where
    F: Callable<Args>,
    Args: SendArguments,
    F::Output: BlockingAnswer,
{
    let function = Arc::new(function);
    Blocking {
        handler: Box::new(Pooled { function, marker: PhantomData }),
        describe: Args::describe,
    }
}

/// Marks [`Blocking`] as a handler.
#[derive(Debug)]
pub struct ViaBlocking;

#[diagnostic::do_not_recommend]
impl Handler<ViaBlocking> for Blocking {
    fn describe(&self, description: &mut Description) {
        description.kind = Kind::Blocking;
        (self.describe)(description);
    }

    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.handler.dispatch(request)
    }
}

impl fmt::Debug for Blocking {
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

/// A value that can be moved to the pool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be moved to the pool that blocking handlers run on",
    label = "this argument is not `Send`",
    note = "extract something that is `Send` (an `Arc` instead of an `Rc`), or make the handler an \
            `async fn` or a plain `fn`, which stay on the worker's thread"
)]
pub trait Portable: Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Send + 'static> Portable for T {}

macro_rules! implement_for_arity {
    ($($arg:ident)*) => {
        impl<F, R, $($arg),*> Callable<($($arg,)*)> for F
        where
            F: Fn($($arg),*) -> R + Send + Sync + 'static,
        {
            type Output = R;

            #[inline]
            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn call(&self, ($($arg,)*): ($($arg,)*)) -> R {
                self($($arg),*)
            }
        }

        impl<$($arg: FromRequest),*> Arguments for ($($arg,)*) {
            #[inline]
            #[allow(unused_variables, reason = "there may be no argument")]
            fn extract(request: &Request<'_>) -> Result<Self, Error> {
                Ok(($($arg::from_request(request)?,)*))
            }

            #[allow(unused_variables, reason = "there may be no argument")]
            fn describe(description: &mut Description) {
                $(
                    if $arg::BODY != BodyUse::None {
                        description.bodies.push((std::any::type_name::<$arg>(), $arg::BODY));
                    }
                    description.wants_peer |= $arg::PEER;
                    $arg::requires(&mut description.requirements);
                )*
            }
        }

        impl<$($arg: FromRequest + Portable),*> SendArguments for ($($arg,)*) {}
    };
}

implement_for_arity!();
implement_for_arity!(A);
implement_for_arity!(A B);
implement_for_arity!(A B C);
implement_for_arity!(A B C D);
implement_for_arity!(A B C D E);
implement_for_arity!(A B C D E G);
implement_for_arity!(A B C D E G H);
implement_for_arity!(A B C D E G H I);
