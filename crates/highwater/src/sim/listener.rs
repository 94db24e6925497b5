//! A listener of the simulated kernel: who waits there, and how many of them the worker takes.

use std::collections::VecDeque;

use highwater_core::driver::Accepting;
use highwater_core::prng::Prng;

/// How many may wait to be accepted until the worker says otherwise: the initial value of a
/// worker's listener.
const BACKLOG_MAX: u32 = 4096;

/// Most connections that are still accepted after a smaller bound.
pub(super) const LATE_MAX: u32 = 2;

/// One listener.
pub(crate) struct Listener {
    /// The links of the connections in the listen queue.
    pub(super) backlog: VecDeque<usize>,
    /// How many may wait there, as set by the worker.
    pub(super) backlog_max: u32,
    pub(super) accepting: Accepting,
    /// An accept has failed; nothing is accepted before the worker asks again.
    pub(super) has_stopped: bool,
    /// Connections still accepted although the worker has paused: they were already in transit.
    pub(super) late: u64,
}

impl Listener {
    pub(super) fn new() -> Listener {
        Listener {
            backlog: VecDeque::new(),
            backlog_max: BACKLOG_MAX,
            accepting: Accepting::Paused,
            has_stopped: false,
            late: 0,
        }
    }

    /// Connections that wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// How many more may be accepted before the worker can stop that: if it accepts all
    /// connections, those that wait, and as many as have come in the meantime.
    pub(super) fn welcome(&self) -> u32 {
        match self.accepting() {
            Accepting::On => 2 * self.backlog_max,
            Accepting::Few(count) => count,
            Accepting::Paused | Accepting::Closed => 0,
        }
    }

    /// Whether connections are accepted now.
    pub(crate) fn accepting(&self) -> Accepting {
        match self.accepting {
            _ if self.has_stopped => Accepting::Paused,
            Accepting::Few(0) => Accepting::Paused,
            accepting => accepting,
        }
    }

    /// Whether the next connection may be accepted, and there is one.
    pub(super) fn may_accept(&self) -> bool {
        let may = match self.accepting {
            _ if self.has_stopped => false,
            Accepting::On | Accepting::Closed => true,
            Accepting::Few(left) => left > 0 || self.late > 0,
            Accepting::Paused => self.late > 0,
        };
        may && !self.backlog.is_empty()
    }

    /// Accepts the next connection. Returns its link.
    pub(super) fn accept(&mut self) -> usize {
        self.late = self.late.saturating_sub(1);
        if let Accepting::Few(left) = &mut self.accepting {
            *left = left.saturating_sub(1);
        }
        self.backlog.pop_front().expect("the caller has looked")
    }

    /// A command of the worker.
    pub(super) fn set(&mut self, accepting: Accepting, prng: Option<&mut Prng>) {
        self.has_stopped = false;
        if self.accepting == Accepting::Closed {
            assert!(accepting == Accepting::Closed, "the listener is closed for ever");
        }
        // When a smaller bound replaces a larger one, some connections may already be in transit.
        let bound = |accepting| match accepting {
            Accepting::On | Accepting::Closed => u64::MAX,
            Accepting::Few(left) => u64::from(left),
            Accepting::Paused => 0,
        };
        let before = bound(std::mem::replace(&mut self.accepting, accepting)).max(self.late);
        self.late = match prng {
            Some(prng) if before > bound(accepting) => {
                prng.below(u64::from(LATE_MAX) + 1).min(before)
            }
            _ => 0,
        };
    }
}
