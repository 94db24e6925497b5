//! Handlers: plain functions, whose form decides how they are run.
//!
//! The work is divided so that the compiler can say precisely what is wrong with a function: it is a
//! [`Callable`](function::Callable) of some number of arguments; each of them is an extractor
//! ([`Arguments`](function::Arguments)); its return type is an [`Answer`](function::Answer). There is one
//! implementation of [`Handler`] for all functions, so the compiler names the missing part rather than rejecting the
//! function as a whole.

mod blocking;
mod function;
#[cfg(feature = "files")]
mod lookup;
mod options;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

#[cfg(feature = "openapi")]
use super::described::Documentation;
use super::extract::{BodyUse, FromRequest, Requirements};
use super::outcome::Outcome;
use super::prepared::Template;
use super::request::Request;
use crate::admission::priority::Priority;
use crate::admission::route_limit::Concurrency;

#[cfg(feature = "openapi")]
pub(in crate::app) use blocking::ViaBlocking;
pub use blocking::{Blocking, blocking};
pub(crate) use function::Callable;
#[cfg(feature = "openapi")]
pub(in crate::app) use function::{Answer, Arguments};
#[cfg(any(feature = "json", feature = "openapi"))]
pub(in crate::app) use function::{Async, Inline};
#[cfg(feature = "files")]
pub(crate) use lookup::{LookedUp, Lookup};
pub use options::Endpoint;
use options::Options;
#[cfg(feature = "openapi")]
pub(in crate::app) use options::ViaEndpoint;

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
/// Up to eight arguments, in any order, each of which implements [`FromRequest`](super::FromRequest); at most one of them
/// takes the body. The result implements [`IntoResponse`](super::IntoResponse).
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
            to have more than eight extractors, combine some in a tuple, which is an extractor, too",
    note = "pass the function itself, `handler` instead of `handler()`; a service or router of `tower` or axum goes into \
            `Router::nest_service` or `fallback_service`"
)]
pub trait Handler<M>: Sized + Send + Sync + 'static {
    /// Declares what the handler needs.
    #[doc(hidden)]
    fn describe(&self, description: &mut Description);

    /// Answers a request.
    #[doc(hidden)]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h>;

    /// Erases its type, so that an application's size does not grow with the number of its types.
    #[doc(hidden)]
    fn erase(self) -> Box<dyn Dispatch>
    where
        M: 'static,
    {
        Box::new(Erased(self, PhantomData))
    }

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
    ///
    /// On each worker 4096 async handlers may run on without their peers; a further one is dropped, and that is logged.
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
#[derive(Clone, Debug)]
pub struct Description {
    pub(in crate::app) kind: Kind,
    /// The arguments that take the body, by type.
    pub(in crate::app) bodies: Vec<(&'static str, BodyUse)>,
    /// The arguments that have to be awaited, by type.
    pub(in crate::app) awaited: Vec<&'static str>,
    pub(in crate::app) wants_peer: bool,
    /// An argument takes an extended CONNECT.
    pub(in crate::app) takes_connect: bool,
    /// It is a service, which may open WebSockets over HTTP/1.1 only.
    pub(in crate::app) is_service: bool,
    pub(in crate::app) requirements: Requirements,
    pub(in crate::app) options: Options,
    pub(in crate::app) problems: Vec<String>,
    /// The response of a fixed answer.
    pub(in crate::app) fixed: Option<Template>,
    /// What a document says of it.
    #[cfg(feature = "openapi")]
    pub(in crate::app) documentation: Documentation,
}

impl Description {
    pub(in crate::app) fn of<M>(handler: &impl Handler<M>) -> Self {
        let mut description = Description::new();
        handler.describe(&mut description);
        description
    }

    /// A function of its own, like [`Description::takes`]: an application has many handlers of few types of arguments.
    #[inline(never)]
    pub(in crate::app) fn new() -> Self {
        Description {
            kind: Kind::Inline,
            bodies: Vec::new(),
            awaited: Vec::new(),
            wants_peer: false,
            takes_connect: false,
            is_service: false,
            requirements: Requirements::default(),
            options: Options::default(),
            problems: Vec::new(),
            fixed: None,
            #[cfg(feature = "openapi")]
            documentation: Documentation::default(),
        }
    }

    /// Its handler takes an `A`.
    #[inline(never)]
    fn takes<A: FromRequest>(&mut self) {
        if A::BODY != BodyUse::None {
            self.bodies.push((type_name::<A>(), A::BODY));
        }
        if A::AWAITS {
            self.awaited.push(type_name::<A>());
        }
        self.wants_peer |= A::PEER;
        self.takes_connect |= A::CONNECT;
        self.is_service |= A::SERVICE;
        A::requires(&mut self.requirements);
    }
}

/// A type-erased handler.
#[doc(hidden)]
pub trait Dispatch: Send + Sync {
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h>;
}

struct Erased<H, M>(H, PhantomData<fn() -> M>);

impl<M: 'static, H: Handler<M>> Dispatch for Erased<H, M> {
    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.0.dispatch(request)
    }
}
