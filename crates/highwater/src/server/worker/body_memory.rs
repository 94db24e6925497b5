//! How much memory do the bodies of requests take up, over all connections of a server?
//!
//! ```text
//!  complete in the receive buffer    never counted, never held
//!  collected for its handler         counted as it grows; no room: 503, Retry-After, and the connection closes
//!  streamed to its handler           64 KiB are set aside; no room: its feed holds a few KiB, and TCP pushes back
//!  held for its handler (HTTP/2)     counted while it waits; no room: its request is refused with 503, or its body fails
//! ```
//!
//! Content of HTTP/2 that a handler does not read, or whose request is in the queue, waits in the protocol, since other
//! streams of the connection must be read: it was promised by windows, up to `Http2Limits::connection_window` for each
//! connection, and cannot be pushed back.
//!
//! Memory stays counted until the request is answered, since the handler most likely has a copy of the
//! content. Requests without a body, and bodies that came with their heads, never come here.
//!
//! Invariant: the bytes that exchanges have charged add up to the counted bytes, and these never exceed the bound.

use highwater_core::http::Reject;
use highwater_core::time::Clock;

use super::protocol::{Protocol, Stream};
use super::serve::ExchangeMut;
use crate::app::BodyError;
use crate::body_memory::BodyMemory;
use crate::metrics::Rejection;

/// Content of a streamed request body that waits for its handler, in bytes; then reading stops.
pub(super) const FEED_SIZE_MAX: usize = 64 * 1024;

/// The same where memory for bodies is scarce. Enough to keep a handler busy, one receive at a time.
const FEED_SIZE_MIN: usize = 4 * 1024;

/// This fraction of the memory is never set aside for streamed bodies, which work without it; collected
/// bodies do not.
const COLLECTED_SHARE: u64 = 2;

impl BodyMemory {
    /// How much a streamed body's feed may hold. The larger size is counted in `charged`.
    pub(super) fn feed_size(&self, charged: &mut usize) -> usize {
        if self.take_leaving(FEED_SIZE_MAX, COLLECTED_SHARE) {
            *charged += FEED_SIZE_MAX;
            FEED_SIZE_MAX
        } else {
            FEED_SIZE_MIN
        }
    }
}

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// Whether there is room for the body that is being collected, if one is; else it is refused.
    #[inline]
    pub(super) fn holds_body(&mut self) -> bool {
        self.stream.collected() <= self.exchange.counted.charged || self.hold_body()
    }

    /// Counts the body that is being collected. Returns `false` if there is no room for it: then it is
    /// refused.
    #[cold]
    fn hold_body(&mut self) -> bool {
        let held = self.stream.collected();
        let charged = &mut self.exchange.counted.charged;
        if self.parts.body_memory.take(held.saturating_sub(*charged)) {
            *charged = held.max(*charged);
            return true;
        }
        self.parts.body_memory.report_full();
        self.stream.refuse_body();
        let (target, number) = (self.exchange.found, self.parts.admission.next_refusal());
        let known = self.exchange.known.as_ref();
        let response = known.and_then(|known| self.app.refuse(known, number));
        self.exchange.be_no_request(self.parts.unmatched, self.parts.turn.now);
        self.refuse(target, Rejection::RequestMemory, number, response);
        self.release_body(); // At once: bodies that arrive in the same turn may have its room.
        false
    }

    /// Counts streamed content that waits for its handler. If there is no room for it, it is dropped: its handler gets an
    /// error, or its request is refused.
    #[inline]
    pub(super) fn holds_rest(&mut self) {
        let held = self.stream.held();
        let before = std::mem::replace(&mut self.exchange.counted.held, held);
        if held != before {
            self.count_held(held, before);
        }
    }

    #[cold]
    fn count_held(&mut self, held: usize, before: usize) {
        if self.parts.body_memory.change(before, held) {
            return;
        }
        self.parts.body_memory.report_full();
        self.exchange.counted.held = 0;
        self.stream.end_upload();
        if let Some(waiting) = &mut self.exchange.queue.waiting {
            waiting.lacks_memory = true; // That is counted when it is refused.
            return;
        }
        self.parts.metrics.rejected(Rejection::RequestMemory);
        match self.exchange.feed.take() {
            Some(feed) => feed.fail(BodyError::from(Reject::BodyMemory)),
            // A tunnel that is not open yet: it must not lack its beginning.
            None => self.stream.reset(),
        }
    }

    /// Gives back the bytes counted for a body whose content is dropped.
    #[inline]
    pub(super) fn release_body(&mut self) {
        let is_over = self.exchange.counted.charged != 0
            && self.exchange.feed.is_none()
            && self.stream.collected() == 0
            && !self.stream.is_reply_owed();
        if is_over {
            self.parts.body_memory.give_back(std::mem::take(&mut self.exchange.counted.charged));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

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
