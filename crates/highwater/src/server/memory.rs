//! How much memory do the bodies of requests take up, over all connections of a server?
//!
//! ```text
//!  complete in the receive buffer    never counted, never held
//!  collected for its handler         counted as it grows; no room: 503, Retry-After, and the connection closes
//!  streamed to its handler           64 KiB are set aside; no room: its feed holds a few KiB, and TCP pushes back
//! ```
//!
//! What is counted stays so until the request is answered, since a handler most likely has a copy of it.
//! Requests without a body, and bodies that came with their heads, never come here.
//!
//! Invariant: what connections hold adds up to what is counted, and that never exceeds the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use highwater_core::driver::ConnId;
use highwater_core::time::Clock;

use super::respond::Rest;
use super::slot::Slot;
use super::worker::State;
use crate::app::Target;
use crate::metrics::Rejection;

/// Content of a streamed request body that waits for its handler, in bytes; then reading stops.
pub(super) const FEED_SIZE_MAX: usize = 64 * 1024;

/// The same where memory for bodies is scarce. Enough to keep a handler busy, one receive at a time.
const FEED_SIZE_MIN: usize = 4 * 1024;

/// One in so many parts of the memory is never set aside for streamed bodies, which can do without;
/// collected ones cannot.
const COLLECTED_SHARE: u64 = 2;

/// The memory for the bodies of all requests of a server. Cheap to clone; by default without bound.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    held: Arc<AtomicU64>,
    max: u64,
}

impl Default for BodyMemory {
    fn default() -> Self {
        BodyMemory::new(u64::MAX)
    }
}

impl BodyMemory {
    pub(crate) fn new(max: u64) -> Self {
        BodyMemory { held: Arc::default(), max }
    }

    /// Bytes held, for whoever counts them.
    pub(crate) fn held(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.held)
    }

    /// Takes so many bytes more, if there are any left.
    fn take(&self, bytes: usize) -> bool {
        self.take_below(bytes, self.max)
    }

    /// The same for a streamed body.
    fn take_for_stream(&self, bytes: usize) -> bool {
        self.take_below(bytes, self.max - self.max / COLLECTED_SHARE)
    }

    fn take_below(&self, bytes: usize, max: u64) -> bool {
        let with = |held: u64| held.checked_add(bytes as u64).filter(|&held| held <= max);
        self.held.fetch_update(Relaxed, Relaxed, with).is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes as u64, Relaxed);
    }

    /// How much a streamed body's feed may hold. Counted in `charged` if it is much.
    pub(super) fn feed_size(&self, charged: &mut usize) -> usize {
        if self.take_for_stream(FEED_SIZE_MAX) {
            *charged += FEED_SIZE_MAX;
            FEED_SIZE_MAX
        } else {
            FEED_SIZE_MIN
        }
    }
}

impl<C: Clock> State<C> {
    /// Counts the body that is being collected. Returns `false` if there is no room for it: then it is
    /// refused.
    #[cold]
    pub(super) fn hold_body(&mut self, id: ConnId) -> bool {
        let slot = &mut self.slots[id.index()];
        let held = slot.connection.collected();
        if self.bounds.body_memory.take(held.saturating_sub(slot.charged)) {
            slot.charged = slot.charged.max(held);
            return true;
        }
        slot.connection.refuse_body();
        slot.target = None;
        slot.endpoint = self.unmatched;
        slot.started = self.now;
        self.refusals = self.refusals.wrapping_add(1);
        let State { app, slots, responder, metrics, now, ledger, .. } = self;
        let slot = &mut slots[id.index()];
        let refusal = app.refusal(Target::NotFound(0), self.refusals);
        metrics.rejected(Rejection::RequestMemory);
        ledger.refused(metrics, slot, refusal.status(), false);
        responder.fixed(&mut slot.connection, *now, refusal);
        self.follow(id, Rest::None);
        false
    }

    /// Gives back what was counted for a body that nothing is left of.
    #[cold]
    pub(super) fn release_body(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        self.bounds.body_memory.give_back(std::mem::take(&mut slot.charged));
    }
}

impl Slot {
    /// Whether memory is counted for a body that nothing is left of.
    #[inline]
    pub(super) fn is_overcharged(&self) -> bool {
        self.charged != 0
            && self.feed.is_none()
            && !self.connection.is_collecting()
            && !self.connection.is_reply_owed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the bound is exact, what is given back can be taken again, and streamed bodies leave half
    /// of it to those that are collected.
    #[test]
    fn the_bound_is_exact() {
        let memory = BodyMemory::new(4 * FEED_SIZE_MAX as u64);
        assert!(memory.take(4 * FEED_SIZE_MAX) && !memory.take(1) && memory.take(0));
        memory.give_back(1);
        assert!(!memory.take(2) && memory.take(1));
        memory.give_back(4 * FEED_SIZE_MAX);
        let mut charged = 0;
        let sizes: Vec<usize> = (0..3).map(|_| memory.feed_size(&mut charged)).collect();
        assert_eq!(sizes, [FEED_SIZE_MAX, FEED_SIZE_MAX, FEED_SIZE_MIN]);
        assert_eq!(
            (charged, memory.held().load(Relaxed)),
            (2 * FEED_SIZE_MAX, 2 * FEED_SIZE_MAX as u64)
        );
        assert!(memory.take(2 * FEED_SIZE_MAX) && !memory.take(1));
    }
}
