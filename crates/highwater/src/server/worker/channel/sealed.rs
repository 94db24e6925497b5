//! A sealed channel: how far its handshake is, and which output is still to be sealed.
//!
//! ```text
//!  Hello ──first flight──▶ Waiting ──admitted──▶ Handshake ──▶ Open ──closing message──▶ Closed
//!    │                        │                      │           │
//!    └────────────────────────┴──────────────────────┴───────────┴──alert──▶ Failed
//! ```
//!
//! Output is sealed in portions: a large answer shares its bytes until they are sealed, and is never in memory twice as a
//! whole. The link counts all of it as in flight until the last portion is sent.

use highwater_core::driver::{Output, Then};
use highwater_core::http::Limits;
use highwater_core::link::Link;
use highwater_core::time::Instant;

use super::seal::Seal;

/// The least and the most that is sealed for one send: within these bounds, as much as a connection may have encoded
/// and unsent. Less: more sends for a large answer; more: memory for each connection that sends one.
const PORTION_MIN: usize = 8 * 1024;
const PORTION_MAX: usize = 64 * 1024;

/// Room for what sealing adds to a portion.
const OVERHEAD: usize = 512;

/// How far a sealed channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first flight of the handshake has not come.
    Hello,
    /// The handshake waits in the queue.
    Waiting,
    /// It has begun.
    Handshake,
    /// The protocol speaks.
    Open,
    /// The closing message was sent; nothing may follow.
    Closed,
    /// The alert is, or will be, the last that is sent.
    Failed,
}

/// The seal of one channel, and its state.
#[derive(Debug)]
pub(in crate::server) struct Sealed {
    pub(in crate::server::worker) seal: Box<dyn Seal>,
    phase: Phase,
    /// Output of the protocol that is not sealed yet: its first part from `from` on, and what follows it.
    rest: Output,
    from: usize,
    then: Then,
    /// The handshake was completed before the end.
    was_open: bool,
    /// The end of the handshake is counted, whichever it was.
    is_counted: bool,
}

impl Sealed {
    pub(super) fn new(seal: Box<dyn Seal>) -> Self {
        Sealed {
            seal,
            phase: Phase::Hello,
            rest: Output::default(),
            from: 0,
            then: Then::Keep,
            was_open: false,
            is_counted: false,
        }
    }

    /// Whether its handshake waits in the queue.
    pub(in crate::server::worker) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// Whether its handshake is neither complete nor given up.
    pub(in crate::server::worker) fn is_shaking_hands(&self) -> bool {
        matches!(self.phase, Phase::Hello | Phase::Waiting | Phase::Handshake)
    }

    /// Whether nothing that comes is opened any more: it has failed, or has ended before its handshake was complete.
    pub(in crate::server::worker) fn is_deaf(&self) -> bool {
        match self.phase {
            Phase::Hello | Phase::Waiting | Phase::Handshake | Phase::Open => false,
            Phase::Closed => !self.was_open,
            Phase::Failed => true,
        }
    }

    /// The handshake waits for its turn.
    pub(in crate::server::worker) fn wait(&mut self) {
        self.phase = Phase::Waiting;
    }

    /// The handshake is admitted: its costly part runs now.
    pub(in crate::server::worker) fn begin(&mut self) {
        self.phase = Phase::Handshake;
        self.seal.begin();
    }

    /// The handshake is complete. Returns whether the protocol may begin: the server may have ended meanwhile.
    pub(in crate::server::worker) fn establish(&mut self) -> bool {
        self.is_counted = true;
        let begins = self.phase == Phase::Handshake;
        if begins {
            (self.phase, self.was_open) = (Phase::Open, true);
        }
        begins
    }

    /// Whether a handshake is given up with this: it was not complete. Once.
    pub(in crate::server::worker) fn give_up(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }

    /// Nothing but an alert is sent any more.
    pub(in crate::server::worker) fn fail(&mut self) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Failed;
        }
        self.rest = Output::default();
    }

    /// Whether output is still to be sealed.
    pub(super) fn has_rest(&self) -> bool {
        self.from < self.rest.bytes.len() || !self.rest.tail.is_empty()
    }

    /// The seal's own messages, and a portion of the link's output.
    #[cold]
    pub(super) fn take_output(
        &mut self,
        link: &mut Link,
        limits: &Limits,
        now: Instant,
    ) -> Option<(Output, Then)> {
        let mut bytes = Vec::new();
        self.seal.take_own(&mut bytes);
        if self.phase == Phase::Closed {
            bytes.clear(); // Too late, even for an alert.
        }
        let mut has_taken = false;
        if !self.has_rest()
            && let Some((rest, then)) = link.take_output(now)
        {
            (self.rest, self.from, self.then, has_taken) = (rest, 0, then, true);
        }
        match self.phase {
            Phase::Open => self.seal_portion(limits, &mut bytes),
            // Nobody could read it.
            _ => self.rest = Output::default(),
        }
        let is_last = !self.has_rest();
        let then = if is_last { std::mem::replace(&mut self.then, Then::Keep) } else { Then::Keep };
        if then != Then::Keep {
            self.write_closing_message(&mut bytes);
        }
        if bytes.is_empty() && then == Then::Keep {
            if has_taken {
                link.on_sent(now);
            }
            return None;
        }
        link.on_send(now);
        Some((Output { bytes, ..Output::default() }, then))
    }

    fn seal_portion(&mut self, limits: &Limits, into: &mut Vec<u8>) {
        let Sealed { seal, rest, from, .. } = self;
        let mut room = limits.output_max.clamp(PORTION_MIN, PORTION_MAX);
        into.reserve(OVERHEAD + room.min(rest.len() - *from));
        let encoded = &rest.bytes[*from..];
        let encoded = &encoded[..encoded.len().min(room)];
        if !encoded.is_empty() {
            seal.seal(encoded, into);
            *from += encoded.len();
            room -= encoded.len();
        }
        if *from == rest.bytes.len() {
            (rest.bytes, *from) = (Vec::new(), 0);
            let piece = rest.tail.split_to(rest.tail.len().min(room));
            if !piece.is_empty() {
                seal.seal(&piece, into);
            }
        }
    }

    /// What is sent before the connection is closed, unless it has been sent.
    pub(super) fn take_closing_message(&mut self) -> Option<Output> {
        if self.phase == Phase::Closed {
            return None;
        }
        let mut bytes = Vec::new();
        self.seal.take_own(&mut bytes);
        self.write_closing_message(&mut bytes);
        (!bytes.is_empty()).then(|| Output { bytes, ..Output::default() })
    }

    fn write_closing_message(&mut self, into: &mut Vec<u8>) {
        if !matches!(self.phase, Phase::Closed | Phase::Failed) {
            self.seal.close(into);
            self.phase = Phase::Closed;
        }
    }

    /// Bytes of memory it has allocated.
    #[cfg(feature = "sim")]
    pub(super) fn allocated(&self) -> usize {
        self.seal.allocated() + self.rest.bytes.capacity()
    }
}
