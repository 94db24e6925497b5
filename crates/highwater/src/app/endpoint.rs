//! A handler with options, and the description of an endpoint.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::dispatch::Outcome;
use super::extract::BodyUse;
use super::handler::{Description, Handler, Kind};
use super::request::Request;
use crate::admission::priority::Priority;
use crate::admission::route_limit::Concurrency;

/// The options of one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) body_max: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) detached: bool,
    pub(super) priority: Priority,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) is_never_shed: bool,
}

/// A handler with options, made by the methods of [`Handler`].
pub struct Endpoint<H, M> {
    handler: H,
    options: Options,
    marker: PhantomData<fn() -> M>,
}

impl<H, M> Endpoint<H, M> {
    pub(super) fn new(handler: H) -> Self {
        Endpoint { handler, options: Options::default(), marker: PhantomData }
    }

    /// See [`Handler::body_max`].
    #[must_use]
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.options.body_max = Some(bytes);
        self
    }

    /// See [`Handler::name`].
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// See [`Handler::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// See [`Handler::detached`].
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.options.detached = true;
        self
    }

    /// See [`Handler::priority`].
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// See [`Handler::concurrency_limit`].
    #[must_use]
    pub fn concurrency_limit(mut self, limit: impl Into<Concurrency>) -> Self {
        self.options.concurrency = Some(limit.into());
        self
    }

    /// See [`Handler::never_shed`].
    #[must_use]
    pub fn never_shed(mut self) -> Self {
        self.options.is_never_shed = true;
        self
    }
}

/// Marks [`Endpoint`] as a handler.
#[derive(Debug)]
pub struct ViaEndpoint<M>(PhantomData<M>);

#[diagnostic::do_not_recommend]
impl<M: 'static, H: Handler<M>> Handler<ViaEndpoint<M>> for Endpoint<H, M> {
    fn describe(&self, description: &mut Description) {
        self.handler.describe(description);
        description.options = self.options.clone();
    }

    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.handler.dispatch(request)
    }
}

impl<H, M> fmt::Debug for Endpoint<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The description of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointInfo {
    pub(super) methods: Box<str>,
    pub(super) pattern: Box<str>,
    pub(super) name: Box<str>,
    pub(super) kind: Kind,
    pub(super) timeout: Option<Duration>,
    pub(super) detached: bool,
    pub(super) body: BodyUse,
    pub(super) priority: Priority,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) is_never_shed: bool,
}

impl EndpointInfo {
    /// The methods it was registered for, separated by commas; `*` for all.
    pub fn methods(&self) -> &str {
        &self.methods
    }

    /// The path it was registered for, prefixes included.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Its name in metrics: the one it was given, else its pattern.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its handler is run.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How long it may take to answer; `None` if it has no bound of its own.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether its handler runs to its end even if the peer has gone.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// How it takes a request's body.
    pub fn body(&self) -> BodyUse {
        self.body
    }

    /// How important its requests are.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Its own concurrency limit; `None` if it has none. Limits of the routers around it are not included.
    pub fn concurrency(&self) -> Option<Concurrency> {
        self.concurrency
    }

    /// How many of its requests are answered at once, at most; `None` if there is no limit, or the limit is
    /// automatic.
    pub fn concurrency_max(&self) -> Option<u32> {
        match self.concurrency {
            Some(Concurrency::Fixed(max)) => Some(max),
            Some(Concurrency::Auto) | None => None,
        }
    }

    /// Whether its requests are never shed.
    pub fn is_never_shed(&self) -> bool {
        self.is_never_shed
    }
}
