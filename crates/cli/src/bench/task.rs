//! The task of one row, and the failures that can replace its measurement.

use super::background::Background;
use super::network::Network;
use super::plan::{Cell, Cpus, Plan, Server};
use super::server::INTERRUPTED;

/// Why there is no measurement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The server never ran: it would not run the next time either.
    NotStarted(String),
    /// It ran, and then failed.
    Void(String),
    /// The run is being ended.
    Interrupted,
}

impl Failed {
    pub(super) fn of(reason: String, kind: fn(String) -> Failed) -> Failed {
        if reason == INTERRUPTED { Failed::Interrupted } else { kind(reason) }
    }
}

/// The task of one row: what to measure, and where.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) plan: &'a Plan,
    pub(super) server: &'a Server,
    pub(super) cell: &'a Cell,
    pub(super) network: &'a Network,
    pub(super) cpus: &'a Cpus,
    pub(super) background: &'a Background,
    pub(super) is_over: &'a dyn Fn() -> bool,
}
