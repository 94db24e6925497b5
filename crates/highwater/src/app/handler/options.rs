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
    pub(in crate::app) priority: Option<Priority>,
    pub(in crate::app) concurrency: Option<Concurrency>,
    pub(in crate::app) is_never_shed: bool,
}

impl Options {
    /// Takes what an endpoint around this one sets; the rest stays.
    fn set(&mut self, outer: &Options) {
        let Options { body_max, name, timeout, detached, priority, concurrency, is_never_shed } =
            outer.clone();
        self.body_max = body_max.or(self.body_max);
        self.name = name.or_else(|| self.name.take());
        self.timeout = timeout.or(self.timeout);
        self.detached |= detached;
        self.priority = priority.or(self.priority);
        self.concurrency = concurrency.or(self.concurrency);
        self.is_never_shed |= is_never_shed;
    }
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
        self.options.priority = Some(priority);
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
        description.options.set(&self.options);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: options that are set on both sides of a wrapper, such as `api`, all hold, and the outer ones win.
    #[test]
    fn options_of_an_endpoint_within_another_are_kept() {
        let inner = (|| "").timeout(Duration::from_secs(1)).body_max(10).name("inner").detached();
        let inner = inner.priority(Priority::High).concurrency_limit(4).never_shed();
        let outer = Handler::body_max(Handler::name(inner, "middle"), 20).name("outer");
        let Options { body_max, name, timeout, detached, priority, concurrency, is_never_shed } =
            Description::of(&outer).options;
        assert_eq!((body_max, name.as_deref()), (Some(20), Some("outer")));
        assert_eq!((timeout, priority), (Some(Duration::from_secs(1)), Some(Priority::High)));
        assert_eq!(concurrency, Some(Concurrency::Fixed(4)));
        assert!(detached && is_never_shed);
    }
}
