//! A handler with options.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::{Description, Dispatch, Handler};
use crate::admission::priority::Priority;
use crate::admission::route_limit::Concurrency;
use crate::app::outcome::Outcome;
use crate::app::request::Request;

/// The options of one endpoint.
#[derive(Clone, Debug, Default)]
pub(in crate::app) struct Options {
    pub(in crate::app) body_max: Option<u64>,
    pub(in crate::app) name: Option<String>,
    pub(in crate::app) timeout: Option<Duration>,
    pub(in crate::app) detached: bool,
    pub(in crate::app) priority: Priority,
    pub(in crate::app) concurrency: Option<Concurrency>,
    pub(in crate::app) is_never_shed: bool,
}

/// A handler with options, made by the methods of [`Handler`].
pub struct Endpoint<H, M> {
    handler: H,
    options: Options,
    marker: PhantomData<fn() -> M>,
}

impl<H, M> Endpoint<H, M> {
    pub(in crate::app) fn new(handler: H) -> Self {
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

    fn erase(self) -> Box<dyn Dispatch> {
        self.handler.erase()
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
