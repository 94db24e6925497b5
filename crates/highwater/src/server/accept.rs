//! How many connections are let in: as the gate, the number of connections and the kernel allow.
//!
//! ```text
//!  room = what is left of --connections-max and, where accepting is the gate, of the limit
//!         more than the listen queue holds   On          nothing to count
//!         some                               Few(room)   the driver never accepts one too many
//!         none                               Paused      with a short listen queue, if the gate is shut
//! ```
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

/// The most while the gate is shut, or as many as may have work if that is less. Each of them will wait
/// for as long as it takes to serve those before it, so it must be few; the kernel drops the attempts
/// beyond, which is the cheapest refusal that needs no privilege. A guess: 16 to 64 were tried.
const BACKLOG_SHUT: u32 = 16;

/// How long the gate must have been open before the listen queue is long again. Under overload it
/// opens for moments, and a long queue that fills in one of them stands: everybody in it is served
/// after all who came before, which is too late for all of them. (Measured at 100 ms: 300 waited all
/// the time, and nobody was answered within 200 ms.)
const BACKLOG_SHUT_MIN: Duration = Duration::from_secs(2);

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
        slot.suspect = self.short_backlog;
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
        let backlog =
            if self.short_backlog { self.short_until.max(self.now) } else { Instant::MAX };
        let retry = match self.accepting {
            // Somebody may be waiting for room, and somebody idle be about to make some.
            Accepting::Paused if !self.has_room() => self.evict_due.max(self.evict_after),
            Accepting::Paused if !shut => self.accept_retry,
            _ => Instant::MAX,
        };
        if self.draining { retry } else { retry.min(gate).min(if shut { gate } else { backlog }) }
    }

    /// What the driver is to be told about accepting, if nothing has failed.
    fn wanted_accepting(&self) -> Accepting {
        if self.draining {
            return Accepting::Closed; // What waits in the listen queue is let in whatever happens.
        }
        let room = self.connections_max.saturating_sub(self.connections);
        let room = self.gate.room().map_or(room, |gate| gate.min(room));
        if room > BACKLOG { Accepting::On } else { few(room) }
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
            self.evict();
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

    /// A short listen queue while the gate is shut, and a while after; else a long one.
    fn fit_backlog(&mut self) {
        let Worker { driver, state } = self;
        if state.gate.room() == Some(0) && !state.draining {
            state.short_until = state.now + BACKLOG_SHUT_MIN;
            if !std::mem::replace(&mut state.short_backlog, true) {
                driver.backlog(state.gate.share().min(BACKLOG_SHUT));
            }
        } else if state.short_backlog && state.now >= state.short_until {
            state.short_backlog = false;
            driver.backlog(BACKLOG);
        }
    }

    /// Closes the connections that have been idle longest, to make room for new ones.
    fn evict(&mut self) {
        let state = &mut self.state;
        let Some(before) = state.now.checked_sub(EVICTION_AGE_MIN) else { return };
        if state.now < state.evict_after {
            return; // Looking at all connections with each refused one would cost too much.
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
