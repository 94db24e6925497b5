//! A handler with options.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::dispatch::Outcome;
use super::handler::{Description, Handler};
use super::request::Request;

/// What may be set for one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) body_max: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) detached: bool,
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

    /// As [`Handler::body_max`].
    #[must_use]
    pub fn body_max(mut self, bytes: u64) -> Self {
        self.options.body_max = Some(bytes);
        self
    }

    /// As [`Handler::name`].
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// As [`Handler::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// As [`Handler::detached`].
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.options.detached = true;
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
