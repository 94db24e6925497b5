//! Which connections are closed to make room for others?
//!
//! On a port that serves, those that have been idle longest: a client whose connection was closed opens
//! another.
//!
//! On the metrics port any connection may be closed: each request there is answered within a turn, and a
//! client that needs longer is slow, silent, or does not read. So the oldest connections are reset, a few at
//! a time, whatever they do. A probe that comes while hundreds of clients hold their connections is served as
//! on an empty server.

use std::time::Duration;

use highwater_core::driver::{AcceptError, Close, ConnId};
use highwater_core::time::Instant;

use super::connections::Connections;
use super::protocol::Protocol;
use crate::logging::rate_limited;
use crate::machine;

/// A connection must have been idle for so long before it is closed to make room for another.
const EVICTION_AGE_MIN: Duration = Duration::from_secs(1);

/// This fraction of the connections is closed at a time to make room.
const EVICTION_SHARE: u32 = 64;

/// This fraction of the connections is reset at a time on the metrics port, so that a new one has some turns
/// to send its request before it is among the oldest.
const OLDEST_SHARE: usize = 8;

/// The connections that are closed to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The connections that have been idle longest.
    #[default]
    Idle,
    /// The oldest connections.
    Oldest,
}

/// The connections that have been idle longest, to be closed; and when the next one will be idle for long
/// enough.
pub(super) fn idle<P: Protocol>(
    connections: &Connections<P>,
    count: u32,
    now: Instant,
) -> (Vec<ConnId>, Instant) {
    let mut next_due = Instant::MAX;
    let Some(before) = now.checked_sub(EVICTION_AGE_MIN) else { return (Vec::new(), next_due) };
    let mut idle: Vec<(Instant, ConnId)> = Vec::new();
    for (id, connection) in connections.alive() {
        if let Some(since) = connection.protocol.idle_since(&connection.link) {
            if since <= before {
                idle.push((since, id));
            } else {
                next_due = next_due.min(since + EVICTION_AGE_MIN);
            }
        }
    }
    let count = (count / EVICTION_SHARE).max(1) as usize;
    if idle.len() > count {
        next_due = now; // Closing these may take long.
    }
    idle.sort_unstable();
    idle.truncate(count);
    (idle.into_iter().map(|(_, id)| id).collect(), next_due)
}

/// The oldest connections, to be reset; none while earlier resets are not complete.
pub(super) fn oldest<P>(connections: &Connections<P>, total: u32) -> Vec<ConnId> {
    let mut open: Vec<(Instant, ConnId)> =
        connections.alive().map(|(id, connection)| (connection.accepted_at, id)).collect();
    let count = (open.len() / OLDEST_SHARE).max(1);
    if (open.len() as u32) + (count as u32) < total {
        return Vec::new();
    }
    open.sort_unstable();
    open.truncate(count);
    open.into_iter().map(|(_, id)| id).collect()
}

/// How connections are closed to make room.
pub(super) const fn how(policy: Eviction) -> Close {
    match policy {
        Eviction::Idle => Close::Fin,
        Eviction::Oldest => Close::Reset,
    }
}

/// Logs that connections cannot be accepted for now, as the system lacks something.
#[cold]
pub(super) fn report_failure(error: AcceptError) {
    let (cause, instead) = match error {
        AcceptError::Descriptors => ("no descriptor is left", machine::RAISE_DESCRIPTORS),
        AcceptError::Memory => ("the kernel has no memory for it", "lower connections-max"),
        AcceptError::Other(_) => ("the system refuses it", "look at http_rejections_total"),
    };
    rate_limited!(WARN, cause, instead, "no connection can be accepted for now");
}

/// Logs that there are `connections`, as many as may be.
#[cold]
pub(super) fn report_full(connections: u32) {
    rate_limited!(
        WARN,
        connections,
        instead = "raise connections-max, or the limit of descriptors that it follows from",
        "a worker has its maximum number of connections: idle ones are closed, and new ones wait",
    );
}
