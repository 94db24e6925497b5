//! How many connections may be accepted? As many as the gate, the connection limit and the kernel allow.
//!
//! ```text
//!  room = what is left of --connections-max and, where accepting is the gate, of the limit
//!         twice what the listen queue holds   On          nothing to count, and cheapest
//!         some                                Few(room)   the driver never accepts one too many
//!         none                                Paused
//! ```
//!
//! Several listeners divide the room. As long as there is any, each may accept one connection: a listener that
//! accepts none would leave its clients waiting although there is room. So the room can be exceeded by one
//! connection for each listener but the first, and by those that are in transit when the part of a listener
//! shrinks because others have accepted.
//!
//! Where accepting is the gate, the listen queue is a fraction of the limit: connections that wait there have no place in
//! any other queue, and one turn must not let in more than there is room for. Unix sockets have no gate. Their peers are
//! proxies on this machine, which mistake a refused connection for a broken server; under overload their requests are
//! refused.
//!
//! The room is computed once per turn, after everything that can free some: closed connections and answered
//! requests. So a waiting connection is accepted in the turn that made room for it.

use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{Accepting, ListenerId};
use highwater_core::time::Instant;

use super::channel::Sealer;
use super::protocol::Versions;
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

/// What a worker knows about one of its listeners.
#[derive(Clone, Debug)]
pub(crate) struct ListenerTerms {
    /// The gate applies to its connections.
    pub(crate) is_gated: bool,
    /// How many workers accept from the same socket.
    pub(crate) shared_by: u32,
    /// Which versions of HTTP its connections may speak.
    pub(crate) versions: Versions,
    /// The header of a trusted proxy comes before all other bytes of its connections.
    pub(crate) has_preamble: bool,
    /// Seals its connections; without one they are plain.
    pub(crate) sealer: Option<Arc<dyn Sealer>>,
}

impl Default for ListenerTerms {
    /// A TCP socket of the worker's own.
    fn default() -> Self {
        ListenerTerms {
            is_gated: true,
            shared_by: 1,
            versions: Versions::Both,
            has_preamble: false,
            sealer: None,
        }
    }
}

/// What the worker last commanded its driver about accepting, and why.
pub(super) struct Acceptor {
    connections_max: u32,
    /// Open connections.
    count: u32,
    listeners: Vec<Entrance>,
    /// How many of them the gate applies to.
    gated: u32,
    /// Accepting failed; try again then. `MAX` if it did not.
    retry_at: Instant,
    /// There was no room for another connection at the end of the last turn.
    was_full: bool,
    /// How long the listen queue of each gated listener may become.
    backlog: u32,
    /// Until then, an accepted connection may have waited long in the listen queue.
    suspect_until: Instant,
    /// The kernel ran out of a resource in this turn.
    is_short: bool,
    /// The open connections and the gate's room for which the commands were decided last; `None` if they have to be
    /// decided again in any case. In most turns nothing has changed.
    decided_for: Option<(u32, Option<u32>)>,
    /// When idle connections may be looked for again, and when the next will have been idle for long enough.
    pub(super) evict_after: Instant,
    pub(super) evict_due: Instant,
    is_draining: bool,
}

/// One listener.
struct Entrance {
    terms: ListenerTerms,
    accepting: Accepting,
}

/// The decisions about accepting at the end of a turn.
pub(super) struct Plan {
    /// Connections are to be closed to make room.
    pub(super) make_room: bool,
    /// Accepting paused in this turn because there is no room.
    pub(super) became_full: bool,
}

impl Acceptor {
    pub(super) fn new(connections_max: u32, listeners: Vec<ListenerTerms>) -> Self {
        let closed = |terms| Entrance { terms, accepting: Accepting::Paused };
        Acceptor {
            connections_max: connections_max.max(1),
            count: 0,
            gated: listeners.iter().filter(|terms| terms.is_gated).count() as u32,
            listeners: listeners.into_iter().map(closed).collect(),
            retry_at: Instant::MAX,
            was_full: false,
            backlog: BACKLOG,
            suspect_until: Instant::ZERO,
            is_short: false,
            decided_for: None,
            evict_after: Instant::ZERO,
            evict_due: Instant::MAX,
            is_draining: false,
        }
    }

    /// Which versions of HTTP the connections of `listener` may speak.
    #[inline]
    pub(super) fn versions(&self, listener: ListenerId) -> Versions {
        self.listeners[listener.index()].terms.versions
    }

    /// Whether connections of `listener` begin with the header of a proxy.
    pub(super) fn awaits_preamble(&self, listener: ListenerId) -> bool {
        self.listeners[listener.index()].terms.has_preamble
    }

    /// What seals the connections of `listener`.
    pub(super) fn sealer(&self, listener: ListenerId) -> Option<&dyn Sealer> {
        self.listeners[listener.index()].terms.sealer.as_deref()
    }

    /// The number of open connections.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// A connection was accepted at `listener`. Returns whether the gate applies to it.
    #[inline]
    pub(super) fn accepted(&mut self, listener: ListenerId) -> bool {
        self.count += 1;
        let entrance = &mut self.listeners[listener.index()];
        if let Accepting::Few(left) = entrance.accepting {
            entrance.accepting = few(left.saturating_sub(1)); // The driver counts, too.
            self.decided_for = None;
        }
        entrance.terms.is_gated
    }

    /// A connection has ended: a descriptor is free again.
    #[inline]
    pub(super) fn closed(&mut self) {
        self.count -= 1;
        if self.retry_at != Instant::MAX {
            self.retry_at = Instant::ZERO;
        }
    }

    /// The driver could not accept, and has paused at all listeners.
    pub(super) fn failed(&mut self, now: Instant) {
        self.set_all(Accepting::Paused);
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
        self.set_all(Accepting::Closed);
        self.retry_at = Instant::MAX;
        true
    }

    /// The listeners of this worker.
    pub(super) fn ids(&self) -> impl Iterator<Item = ListenerId> + use<> {
        ListenerId::all(self.listeners.len())
    }

    fn set_all(&mut self, accepting: Accepting) {
        self.decided_for = None;
        self.listeners.iter_mut().for_each(|entrance| entrance.accepting = accepting);
    }

    fn is_anywhere(&self, accepting: Accepting) -> bool {
        self.listeners.iter().any(|entrance| entrance.accepting == accepting)
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
        let retry = match self.is_anywhere(Accepting::Paused) {
            // A connection may be waiting for room, and an idle one may soon be old enough to be closed for
            // it.
            true if !self.has_room() => self.evict_due.max(self.evict_after),
            true if !is_shut || self.has_ungated() => self.retry_at,
            _ => Instant::MAX,
        };
        if self.is_draining { retry } else { retry.min(look) }
    }

    /// A turn ends: is room to be made before [`Acceptor::decide`]? `None` if nothing is accepted any more.
    pub(super) fn plan(&mut self) -> Option<Plan> {
        if self.is_draining && !self.is_anywhere(Accepting::Paused) {
            return None;
        }
        let is_full = !self.has_room();
        // Cleared in any case: there may be room again in the next turn.
        let is_short = std::mem::take(&mut self.is_short);
        let became_full = is_full && !self.was_full;
        self.was_full = is_full;
        Some(Plan { make_room: is_full || is_short, became_full })
    }

    /// Gives `command` what has changed about accepting at each listener, for the driver.
    #[inline]
    pub(super) fn decide(
        &mut self,
        gate: &WorkerGate,
        now: Instant,
        command: impl FnMut(ListenerId, Accepting),
    ) {
        if self.decided_for != Some((self.count, gate.room())) || self.retry_at != Instant::MAX {
            self.decide_again(gate, now, command);
        }
    }

    #[inline(never)]
    fn decide_again(
        &mut self,
        gate: &WorkerGate,
        now: Instant,
        mut command: impl FnMut(ListenerId, Accepting),
    ) {
        let seen = Some((self.count, gate.room()));
        let room = Room::new(self, gate);
        let is_open = |entrance: &Entrance| room.wanted(entrance) != Accepting::Paused;
        if self.retry_at != Instant::MAX {
            if now < self.retry_at || !self.listeners.iter().any(is_open) {
                return; // They are paused, and stay so.
            }
            self.retry_at = Instant::MAX;
        }
        for (id, entrance) in ListenerId::all(self.listeners.len()).zip(&mut self.listeners) {
            let wanted = room.wanted(entrance);
            if std::mem::replace(&mut entrance.accepting, wanted) != wanted {
                command(id, wanted);
            }
        }
        self.decided_for = seen;
    }

    fn has_ungated(&self) -> bool {
        (self.gated as usize) < self.listeners.len()
    }

    /// The listen queues follow the limit, in steps of two, since each step is a system call. Gives `command` the
    /// new length of each if that changes. They do not follow the gate: if they were long while the gate is open,
    /// they would fill then and stay full, and all connections in them would be served too late.
    #[inline]
    pub(super) fn fit_backlog(
        &mut self,
        gate: &WorkerGate,
        now: Instant,
        command: impl FnMut(ListenerId, u32),
    ) {
        if let Some(share) = gate.share_of_accepting() {
            self.fit_backlog_to(share, gate, now, command);
        }
    }

    #[inline(never)]
    fn fit_backlog_to(
        &mut self,
        share: u32,
        gate: &WorkerGate,
        now: Instant,
        mut command: impl FnMut(ListenerId, u32),
    ) {
        if gate.room() == Some(0) {
            self.suspect_until = now + DOUBT;
        }
        let share = share / self.gated.max(1);
        let wanted = (share / BACKLOG_SHARE).clamp(BACKLOG_MIN, BACKLOG);
        let before = self.backlog;
        let is_far = wanted <= before / 2 || wanted / 2 >= before || wanted == BACKLOG;
        if !is_far || wanted == before || self.is_draining {
            return;
        }
        self.backlog = wanted;
        self.decided_for = None;
        for (id, Entrance { terms, .. }) in self.ids().zip(&self.listeners) {
            if terms.is_gated {
                command(id, wanted.saturating_mul(terms.shared_by));
            }
        }
    }

    /// The drain begins: returns whether listen queues are shorter than at the start. A socket that a successor has,
    /// too, must not keep the length that suited this process.
    pub(super) fn restore_backlog(&mut self) -> bool {
        std::mem::replace(&mut self.backlog, BACKLOG) != BACKLOG
    }

    /// The worker looks for idle connections, and then not again for a while: looking at all of them with
    /// each connection that finds no room would cost too much. Returns whether they may be looked for now.
    pub(super) fn may_evict(&mut self, now: Instant) -> bool {
        if now < self.evict_after {
            self.evict_due = self.evict_due.min(self.evict_after); // Nothing else may happen until then.
            return false;
        }
        self.evict_after = now + ACCEPT_BACKOFF;
        self.evict_due = Instant::MAX;
        true
    }
}

/// How many more connections the listeners of a worker may accept.
struct Room {
    /// At each listener, behind the gate and without one.
    gated: u32,
    ungated: u32,
    /// Connections that may wait at a gated listener.
    backlog: u32,
    is_draining: bool,
}

impl Room {
    fn new(acceptor: &Acceptor, gate: &WorkerGate) -> Room {
        let room = acceptor.connections_max.saturating_sub(acceptor.count);
        let gated = gate.room().map_or(room, |gate| gate.min(room));
        let each = |room: u32| match acceptor.listeners.len() {
            1 => room,
            many => room.div_ceil(many as u32),
        };
        Room {
            gated: each(gated),
            ungated: each(room),
            backlog: acceptor.backlog,
            is_draining: acceptor.is_draining,
        }
    }

    /// The command about accepting for the driver, if nothing has failed.
    fn wanted(&self, entrance: &Entrance) -> Accepting {
        if self.is_draining {
            return Accepting::Closed; // What waits in the listen queue is accepted in any case.
        }
        let (room, backlog) = match entrance.terms.is_gated {
            true => (self.gated, self.backlog),
            false => (self.ungated, BACKLOG),
        };
        match entrance.accepting {
            // Room changes with every turn, and each command costs. So there is no command while the driver's
            // remaining allowance is neither too large nor so small that a connection could wait for it.
            Accepting::Few(left) if left <= room && left >= room.min(FEW_ENOUGH) => {
                entrance.accepting
            }
            // As many may have come meanwhile as wait already.
            _ if room > 2 * backlog => Accepting::On,
            _ => few(room),
        }
    }
}

fn few(count: u32) -> Accepting {
    if count == 0 { Accepting::Paused } else { Accepting::Few(count) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admission::Shed;
    use crate::admission::gate::Bound;
    use crate::metrics::WorkerMetrics;

    /// The gate of the only worker, which lets in `limit` connections by accepting no more.
    fn gate(limit: u32) -> WorkerGate {
        let metrics = Arc::new(WorkerMetrics::new(0));
        WorkerGate::new(Shed::Accept, &Bound::new(limit), (0, 1), metrics, None)
    }

    fn terms(gated: &[bool]) -> Vec<ListenerTerms> {
        let terms = |&is_gated: &bool| ListenerTerms { is_gated, ..ListenerTerms::default() };
        gated.iter().map(terms).collect()
    }

    fn decided(acceptor: &mut Acceptor, gate: &WorkerGate) -> Vec<(u16, Accepting)> {
        let mut commands = Vec::new();
        acceptor.decide(gate, Instant::ZERO, |at, accepting| commands.push((at.0, accepting)));
        commands
    }

    /// Purpose: listeners divide the room, each may accept one as long as there is any, and none is commanded again
    /// what it does already.
    #[test]
    fn listeners_divide_the_room() {
        let (mut acceptor, gate) = (Acceptor::new(5, terms(&[true; 3])), WorkerGate::open());
        let two = Accepting::Few(2);
        assert_eq!(decided(&mut acceptor, &gate), [(0, two), (1, two), (2, two)]);
        assert_eq!(decided(&mut acceptor, &gate), []);
        for at in [0, 0, 1, 1] {
            assert!(acceptor.accepted(ListenerId(at)));
        }
        let one = Accepting::Few(1);
        assert_eq!(decided(&mut acceptor, &gate), [(0, one), (1, one), (2, one)]);
        acceptor.accepted(ListenerId(2));
        let none = Accepting::Paused;
        assert_eq!(decided(&mut acceptor, &gate), [(0, none), (1, none)]);
        acceptor.closed();
        assert_eq!(decided(&mut acceptor, &gate), [(0, one), (1, one), (2, one)]);
    }

    /// Purpose: where accepting is the gate, it shuts TCP listeners, and their queues are short; a Unix socket stays
    /// open up to the number of connections, and keeps its queue.
    #[test]
    fn unix_sockets_have_no_gate() {
        let (mut acceptor, mut gate) = (Acceptor::new(100, terms(&[true, false])), gate(2));
        let mut shortened = Vec::new();
        acceptor.fit_backlog(&gate, Instant::ZERO, |at, length| shortened.push((at.0, length)));
        assert_eq!(shortened, [(0, BACKLOG_MIN)]);
        let open = [(0, Accepting::Few(1)), (1, Accepting::Few(50))];
        assert_eq!(decided(&mut acceptor, &gate), open);
        for _ in 0..2 {
            assert!(acceptor.accepted(ListenerId(0)));
            gate.accepted();
        }
        assert_eq!(decided(&mut acceptor, &gate), [(1, Accepting::Few(49))]);
        assert!(!acceptor.accepted(ListenerId(1)), "the gate does not count it");
        assert!(acceptor.restore_backlog() && !acceptor.restore_backlog());
    }

    /// Purpose: a worker that finds no room again before it may look for idle connections looks as soon as it may. A third
    /// client once waited until one of the connections, all of which were idle, reached its timeout.
    #[test]
    fn a_full_worker_looks_again() {
        let (mut acceptor, gate, now) =
            (Acceptor::new(1, terms(&[true])), WorkerGate::open(), Instant::ZERO);
        acceptor.accepted(ListenerId(0));
        decided(&mut acceptor, &gate);
        assert!(acceptor.may_evict(now) && acceptor.due(&gate, now) == Instant::MAX);
        let soon = now + ACCEPT_BACKOFF / 2;
        assert!(!acceptor.may_evict(soon));
        assert_eq!(acceptor.due(&gate, soon), now + ACCEPT_BACKOFF);
    }
}
