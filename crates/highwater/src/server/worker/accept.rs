//! How many connections may be accepted? As many as the gate, the connection limit and the kernel allow.
//!
//! ```text
//!  room = what is left of --connections-max and, where accepting is the gate, of the limit
//!         twice what the listen queue holds   On          nothing to count, and cheapest
//!         some                                Few(room)   the driver never accepts one too many
//!         none                                Paused
//! ```
//!
//! Where accepting is the gate, the listen queue is a fraction of the limit: connections that wait there have
//! no place in any other queue, and one turn must not let in more than there is room for.
//!
//! The room is computed once per turn, after everything that can free some: closed connections and answered
//! requests. So a waiting connection is accepted in the turn that made room for it.

use std::time::Duration;

use highwater_core::driver::Accepting;
use highwater_core::time::Instant;

use crate::admission::gate::WorkerGate;

/// Connections that may wait to be accepted.
pub(in crate::server) const BACKLOG: u32 = 4096;

/// The listen queue is this fraction of the limit, where accepting is the gate.
const BACKLOG_SHARE: u32 = 4;

/// The shortest listen queue, however low the limit. Where accepting is the gate, about as many connections
/// wait in it as the limit admits. Each waits until those before it are served; if it waits for longer than
/// its client's patience, serving it is wasted. The kernel drops the attempts beyond, which is the cheapest
/// refusal that needs no privilege. Tried with requests of 1 ms at ten times the capacity: 16 bring p99 to 26
/// to 38 ms, 6 to 13 ms, but 6 run empty now and then (2 % of goodput).
const BACKLOG_MIN: u32 = 10;

/// The most connections a driver accepts in one turn: allowing more has no effect.
const FEW_ENOUGH: u32 = 64;

/// For this long after the gate was shut, accepted connections may have waited too long in the listen queue.
const DOUBT: Duration = Duration::from_secs(2);

/// How soon a shut gate is looked at again: limit changes do not wake workers.
const GATE_LOOK: Duration = Duration::from_millis(100);

/// How long accepting pauses after the kernel ran out of a resource, unless a connection ends first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What the worker last commanded its driver about accepting, and why.
pub(super) struct Acceptor {
    connections_max: u32,
    /// Open connections.
    count: u32,
    accepting: Accepting,
    /// Accepting failed; try again then. `MAX` if it did not.
    retry_at: Instant,
    /// There was no room for another connection at the end of the last turn.
    was_full: bool,
    /// How long the listen queue may become.
    backlog: u32,
    /// Until then, an accepted connection may have waited long in the listen queue.
    suspect_until: Instant,
    /// The kernel ran out of a resource in this turn.
    is_short: bool,
    /// When idle connections may be looked for again, and when the next will have been idle for long enough.
    pub(super) evict_after: Instant,
    pub(super) evict_due: Instant,
    is_draining: bool,
}

/// The decisions about accepting at the end of a turn.
pub(super) struct Plan {
    /// Connections are to be closed to make room.
    pub(super) make_room: bool,
    /// Accepting paused in this turn because there is no room.
    pub(super) became_full: bool,
}

impl Acceptor {
    pub(super) fn new(connections_max: u32) -> Self {
        Acceptor {
            connections_max: connections_max.max(1),
            count: 0,
            accepting: Accepting::Paused,
            retry_at: Instant::MAX,
            was_full: false,
            backlog: BACKLOG,
            suspect_until: Instant::ZERO,
            is_short: false,
            evict_after: Instant::ZERO,
            evict_due: Instant::MAX,
            is_draining: false,
        }
    }

    /// The number of open connections.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// A connection was accepted.
    #[inline]
    pub(super) fn accepted(&mut self) {
        self.count += 1;
        if let Accepting::Few(left) = self.accepting {
            self.accepting = few(left.saturating_sub(1)); // The driver counts, too.
        }
    }

    /// A connection has ended: a descriptor is free again.
    #[inline]
    pub(super) fn closed(&mut self) {
        self.count -= 1;
        if self.retry_at != Instant::MAX {
            self.retry_at = Instant::ZERO;
        }
    }

    /// The driver could not accept, and has paused.
    pub(super) fn failed(&mut self, now: Instant) {
        self.accepting = Accepting::Paused;
        self.retry_at = now + ACCEPT_BACKOFF;
        self.is_short = true;
    }

    /// Whether a connection that is accepted now may have waited long in the listen queue.
    #[inline]
    pub(super) fn is_doubtful(&self, now: Instant) -> bool {
        now < self.suspect_until
    }

    /// Whether connections end after the answer in progress, and no more are accepted.
    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Stops accepting for good. Returns whether that is new.
    pub(super) fn drain(&mut self) -> bool {
        if std::mem::replace(&mut self.is_draining, true) {
            return false;
        }
        self.accepting = Accepting::Closed;
        self.retry_at = Instant::MAX;
        true
    }

    /// Whether another connection may be accepted. One that waited in the listen queue when a drain began
    /// always may.
    pub(super) fn has_room(&self) -> bool {
        self.is_draining || self.count < self.connections_max
    }

    /// When accepting must be looked at again even if no event comes.
    pub(super) fn due(&self, gate: &WorkerGate, now: Instant) -> Instant {
        let is_shut = gate.room() == Some(0);
        let look = if is_shut { now + GATE_LOOK } else { Instant::MAX };
        let retry = match self.accepting {
            // A connection may be waiting for room, and an idle one may soon be old enough to be closed for
            // it.
            Accepting::Paused if !self.has_room() => self.evict_due.max(self.evict_after),
            Accepting::Paused if !is_shut => self.retry_at,
            _ => Instant::MAX,
        };
        if self.is_draining { retry } else { retry.min(look) }
    }

    /// A turn ends: is room to be made before [`Acceptor::decide`]? `None` if nothing is accepted any more.
    pub(super) fn plan(&mut self) -> Option<Plan> {
        if self.accepting == Accepting::Closed {
            return None;
        }
        let is_full = !self.has_room();
        // Cleared in any case: there may be room again in the next turn.
        let is_short = std::mem::take(&mut self.is_short);
        let became_full = is_full && !self.was_full;
        self.was_full = is_full;
        Some(Plan { make_room: is_full || is_short, became_full })
    }

    /// The command about accepting for the driver, if it has changed.
    pub(super) fn decide(&mut self, gate: &WorkerGate, now: Instant) -> Option<Accepting> {
        let open = self.wanted(gate);
        let may_retry = now >= self.retry_at && open != Accepting::Paused;
        let rests = self.retry_at != Instant::MAX && !may_retry;
        let wanted = if rests { Accepting::Paused } else { open };
        if !rests {
            self.retry_at = Instant::MAX;
        }
        (std::mem::replace(&mut self.accepting, wanted) != wanted).then_some(wanted)
    }

    /// The command about accepting for the driver, if nothing has failed.
    fn wanted(&self, gate: &WorkerGate) -> Accepting {
        if self.is_draining {
            return Accepting::Closed; // What waits in the listen queue is accepted in any case.
        }
        let room = self.connections_max.saturating_sub(self.count);
        let room = gate.room().map_or(room, |gate| gate.min(room));
        match self.accepting {
            // Room changes with every turn, and each command costs. So there is no command while the driver's
            // remaining allowance is neither too large nor so small that a connection could wait for it.
            Accepting::Few(left) if left <= room && left >= room.min(FEW_ENOUGH) => self.accepting,
            // As many may have come meanwhile as wait already.
            _ if room > 2 * self.backlog => Accepting::On,
            _ => few(room),
        }
    }

    /// The listen queue follows the limit, in steps of two, since each step is a system call. Returns its new
    /// length if that changes. It does not follow the gate: if it were long while the gate is open, it would
    /// fill then and stay full, and all connections in it would be served too late.
    pub(super) fn fit_backlog(&mut self, gate: &WorkerGate, now: Instant) -> Option<u32> {
        let share = gate.share_of_accepting()?;
        if gate.room() == Some(0) {
            self.suspect_until = now + DOUBT;
        }
        let wanted = (share / BACKLOG_SHARE).clamp(BACKLOG_MIN, BACKLOG);
        let before = self.backlog;
        let is_far = wanted <= before / 2 || wanted / 2 >= before || wanted == BACKLOG;
        if !is_far || wanted == before || self.is_draining {
            return None;
        }
        self.backlog = wanted;
        Some(wanted)
    }

    /// The worker looks for idle connections, and then not again for a while: looking at all of them with
    /// each connection that finds no room would cost too much. Returns whether they may be looked for now.
    pub(super) fn may_evict(&mut self, now: Instant) -> bool {
        if now < self.evict_after {
            return false;
        }
        self.evict_after = now + ACCEPT_BACKOFF;
        self.evict_due = Instant::MAX;
        true
    }
}

fn few(count: u32) -> Accepting {
    if count == 0 { Accepting::Paused } else { Accepting::Few(count) }
}
