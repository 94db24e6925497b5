//! How many connections are let in: as the gate, the number of connections and the kernel allow.
//!
//! ```text
//!  room = what is left of --connections-max and, where accepting is the gate, of the limit
//!         twice what the listen queue holds   On          nothing to count, and cheapest
//!         some                                Few(room)   the driver never accepts one too many
//!         none                                Paused
//! ```
//!
//! Where accepting is the gate, the listen queue is a fraction of the limit: who waits there has no
//! place in any other queue, and one turn must not let in more than there is room for.
//!
//! Room is looked at once a turn, after all that could make some: connections that closed, requests
//! that were answered. So whoever waits is let in with the turn that made the room.

use std::net::SocketAddr;
use std::time::Duration;

use highwater_core::driver::{AcceptError, Accepting, Close, ConnId, Driver};
use highwater_core::time::{Clock, Instant};

use super::slot::Slot;
use super::worker::{State, Worker};
use crate::metrics::Rejection;

/// Connections that may wait to be accepted.
pub(super) const BACKLOG: u32 = 4096;

/// One in so many of the limit, where accepting is the gate.
const BACKLOG_SHARE: u32 = 4;

/// The fewest of them, however low the limit. Where accepting is the gate, as many may wait outside as
/// the limit lets in: each of them will wait for as long as it takes to serve those before it, and
/// whoever waits for longer than its patience is served for nothing. The kernel drops the attempts
/// beyond, which is the cheapest refusal that needs no privilege. Tried with requests of 1 ms at ten times
/// the capacity: 16 bring p99 to 26 to 38 ms, 6 to 13 ms, but 6 run empty now and then (2 % of goodput).
const BACKLOG_MIN: u32 = 10;

/// As many as a driver accepts in one turn: being allowed more makes no difference to it.
const FEW_ENOUGH: u32 = 64;

/// For how long after the gate was shut those who are accepted may have waited too long outside.
const DOUBT: Duration = Duration::from_secs(2);

/// How long a shut gate is left alone: whoever moves the limit does not knock.
const GATE_LOOK: Duration = Duration::from_millis(100);

/// How long accepting rests after the kernel ran out of something, unless a connection ends first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A connection must have been idle for so long before it is closed to make room for another.
const EVICTION_AGE_MIN: Duration = Duration::from_secs(1);

/// One in so many connections is closed at a time to make room.
const EVICTION_SHARE: u32 = 64;

impl<C: Clock> State<C> {
    pub(super) fn accepted(&mut self, id: ConnId, peer: Option<SocketAddr>) {
        if self.slots.len() <= id.index() {
            self.slots.resize_with(id.index() + 1, Slot::vacant);
        }
        let now = self.now;
        let slot = &mut self.slots[id.index()];
        debug_assert!(!slot.alive, "an id is used again only after Closed");
        slot.open(now, peer);
        slot.suspect = now < self.suspect_until;
        if self.draining {
            slot.connection.drain(now);
        }
        self.gate.accepted();
        if let Accepting::Few(left) = self.accepting {
            self.accepting = few(left.saturating_sub(1)); // The driver counts, too.
        }
        self.connections += 1;
        self.metrics.connections.add(1);
        self.metrics.connections_active.set(u64::from(self.connections));
        self.touch(id);
    }

    pub(super) fn accept_failed(&mut self, error: AcceptError) {
        self.metrics.accept_failed(error);
        self.accepting = Accepting::Paused;
        self.accept_retry = self.now + ACCEPT_BACKOFF;
        self.evict = true;
    }

    /// Whether another connection may be accepted. One that waited in the listen queue when a drain
    /// began always may.
    pub(super) fn has_room(&self) -> bool {
        self.draining || self.connections < self.connections_max
    }

    /// Until when accepting has nothing to do without an event.
    pub(super) fn accepting_due(&self) -> Instant {
        let shut = self.gate.room() == Some(0);
        let gate = if shut { self.now + GATE_LOOK } else { Instant::MAX };
        let retry = match self.accepting {
            // Somebody may be waiting for room, and somebody idle be about to make some.
            Accepting::Paused if !self.has_room() => self.evict_due.max(self.evict_after),
            Accepting::Paused if !shut => self.accept_retry,
            _ => Instant::MAX,
        };
        if self.draining { retry } else { retry.min(gate) }
    }

    /// What the driver is to be told about accepting, if nothing has failed.
    fn wanted_accepting(&self) -> Accepting {
        if self.draining {
            return Accepting::Closed; // What waits in the listen queue is let in whatever happens.
        }
        let room = self.connections_max.saturating_sub(self.connections);
        let room = self.gate.room().map_or(room, |gate| gate.min(room));
        match self.accepting {
            // Room moves with every turn, and telling the driver costs: what it may still accept is
            // neither too many nor so few that somebody could wait for it.
            Accepting::Few(left) if left <= room && left >= room.min(FEW_ENOUGH) => self.accepting,
            // As many may have come meanwhile as wait already.
            _ if room > 2 * self.backlog => Accepting::On,
            _ => few(room),
        }
    }
}

fn few(count: u32) -> Accepting {
    if count == 0 { Accepting::Paused } else { Accepting::Few(count) }
}

impl<D: Driver> Worker<D> {
    /// Tells the driver how many may be accepted, if that has changed.
    pub(super) fn flush_accepting(&mut self) {
        let state = &mut self.state;
        if state.accepting == Accepting::Closed {
            return;
        }
        let full = !state.has_room();
        // Taken in any case: by the next turn there may be room again.
        let out_of_something = std::mem::take(&mut state.evict);
        if full || out_of_something {
            if state.bounds.newest_win { self.make_room() } else { self.evict() }
        }
        self.fit_backlog();
        let state = &mut self.state;
        if full && !state.was_full {
            state.metrics.rejected(Rejection::AcceptConnectionsMax);
        }
        state.was_full = full;
        let open = state.wanted_accepting();
        let may_retry = state.now >= state.accept_retry && open != Accepting::Paused;
        let rests = state.accept_retry != Instant::MAX && !may_retry;
        let wanted = if rests { Accepting::Paused } else { open };
        if !rests {
            state.accept_retry = Instant::MAX;
        }
        if wanted != state.accepting {
            state.accepting = wanted;
            self.driver.accept(wanted);
        }
    }

    /// The listen queue follows the limit, in steps of two: it is a system call each time. It does
    /// not follow the gate: were it long for the moments in which that is open, it would fill in one of
    /// them and stand, and everybody in it be served too late.
    fn fit_backlog(&mut self) {
        let Worker { driver, state } = self;
        let Some(share) = state.gate.share_of_accepting() else { return };
        if state.gate.room() == Some(0) {
            state.suspect_until = state.now + DOUBT;
        }
        let wanted = (share / BACKLOG_SHARE).clamp(BACKLOG_MIN, BACKLOG);
        let before = state.backlog;
        let far = wanted <= before / 2 || wanted / 2 >= before || wanted == BACKLOG;
        if far && wanted != before && !state.draining {
            state.backlog = wanted;
            driver.backlog(wanted);
        }
    }

    /// Closes the connections that have been idle longest, to make room for new ones.
    fn evict(&mut self) {
        let state = &mut self.state;
        let Some(before) = state.now.checked_sub(EVICTION_AGE_MIN) else { return };
        if state.now < state.evict_after {
            return; // Looking at all connections with each refused one would cost too much.
        }
        if state.catching_up > 0 {
            return; // Who looks idle may have spoken, and is not read yet.
        }
        state.evict_after = state.now + ACCEPT_BACKOFF;
        state.evict_due = Instant::MAX;
        let mut idle: Vec<(Instant, ConnId)> = Vec::new();
        for (index, slot) in state.slots.iter().enumerate() {
            if slot.alive
                && !slot.closing
                && let Some(since) = slot.connection.idle_since()
            {
                if since <= before {
                    idle.push((since, ConnId(index as u32)));
                } else {
                    state.evict_due = state.evict_due.min(since + EVICTION_AGE_MIN);
                }
            }
        }
        let count = (state.connections / EVICTION_SHARE).max(1) as usize;
        idle.sort_unstable();
        for &(_, id) in idle.iter().take(count) {
            self.close(id, Close::Fin);
        }
    }
}
