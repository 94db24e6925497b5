//! The description of an endpoint.

use std::time::Duration;

use super::extract::BodyUse;
use super::handler::Kind;
use crate::admission::priority::Priority;
use crate::admission::route_limit::Concurrency;

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
