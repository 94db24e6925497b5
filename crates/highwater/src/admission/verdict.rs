//! What is asked about a request, and what the answer is.
//!
//! Never here: how the answer is found (`worker.rs`).

use std::sync::Arc;

use highwater_core::time::Instant;

use super::queue::{Class, Entry};
use super::route_limit::{Permit, RouteLimit};
use crate::metrics::Rejection;

/// The verdict about a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is served.
    Serve(Grant),
    /// It waits in the queue, among those of its class, at most until its client's own deadline.
    Wait(Class, Instant),
    /// It is answered 503, or not at all.
    Refuse(Rejection),
}

/// Permission to serve one request.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The client's own deadline; `MAX` if it sent none.
    pub(crate) deadline: Instant,
    /// Its place within the limit of its route, if that has one.
    pub(crate) permit: Option<Permit>,
}

/// How a request arrives at the verdict: at once when its input came, or from the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When it could have been started.
    pub(crate) ready: Instant,
    /// Its deadline, if it has waited in the queue.
    pub(super) deadline: Option<Instant>,
    /// The reason to refuse it, if that is decided.
    pub(crate) refuse: Option<Rejection>,
}

impl Arrival {
    /// Input came at `now`.
    #[inline]
    pub(crate) fn at(now: Instant) -> Self {
        Arrival { ready: now, deadline: None, refuse: None }
    }

    /// Its turn has come, to be started, or refused for `refuse`.
    pub(crate) fn from_queue<T>(entry: &Entry<T>, refuse: Option<Rejection>) -> Self {
        Arrival { ready: entry.ready, deadline: Some(entry.deadline), refuse }
    }

    /// Whether it does not have to wait: it has waited, or is refused.
    #[inline]
    pub(crate) fn is_decided(&self) -> bool {
        self.deadline.is_some() || self.refuse.is_some()
    }
}

/// The admission rules of a request's route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// It is always served.
    pub(crate) is_never_shed: bool,
    /// How many requests of the route may be answered at once.
    pub(crate) limit: Option<&'a Arc<RouteLimit>>,
    /// The time by the clock that the workers share: the limit counts for all of them.
    pub(crate) now: Instant,
}
