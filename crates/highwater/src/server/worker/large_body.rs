//! How do large bodies come into their memory?
//!
//! ```text
//!  Received, a few KiB ─▶ the protocol copies them into the body, and waits for more
//!  the end of the events ─▶ take: what else has arrived goes there straight from the kernel
//!  the end of the turn ─▶ a few KiB more are to be delivered
//! ```
//!
//! Deliveries continue because they report what a call cannot: the arrival of bytes, and the end. The bytes of a client that
//! sends little at a time come only by deliveries. This is done only for collected bodies of a known length from
//! `Limits::large_body` on, on plain channels: otherwise the next bytes may not be content.
//!
//! Once a connection has had such a body, its next request is delivered in the same way, because it may have another.

use highwater_core::driver::Driver;
use highwater_core::time::Clock;

use super::WorkerState;
use super::connections::Connection;
use super::protocol::Protocol;
use super::serve::ConnectionMut;

/// Bytes of large bodies that one turn takes, so that nobody waits longer for it: this much is copied in less than half
/// a millisecond. The next turn takes more.
const TAKEN_MAX: usize = 1024 * 1024;

impl<C: Clock, P: Protocol> WorkerState<C, P> {
    /// Large bodies that got content in this turn get the rest of what has arrived, straight into their memory.
    #[cold]
    pub(super) fn take_bodies(&mut self, driver: &mut impl Driver) {
        let (mut taken, mut collecting) = (0, std::mem::take(&mut self.agenda.collecting));
        for id in collecting.drain(..) {
            taken += self.connection(id).take_body(driver, taken < TAKEN_MAX);
        }
        // What has listed itself meanwhile needs nothing before its next delivery.
        self.agenda.collecting = collecting;
    }
}

impl<C: Clock, P: Protocol> ConnectionMut<'_, C, P> {
    /// Whether there is room for the body that is being collected; else it is refused. A large one gets the rest of what
    /// has arrived at the end of the events.
    #[cold]
    pub(super) fn hold_body(&mut self) -> bool {
        let holds = self.exchange().holds_body();
        if holds && self.connection.protocol.collecting().is_some() {
            self.agenda.collecting.push(self.id);
        }
        holds
    }

    /// The large body that is being collected gets the rest of what has arrived, with `may_take`. Returns how much that
    /// was.
    fn take_body(&mut self, driver: &mut impl Driver, may_take: bool) -> usize {
        let Connection { protocol, channel, is_open, .. } = &mut *self.connection;
        let Some((body, lacks)) = protocol.collecting().filter(|_| *is_open) else { return 0 };
        if let Some(reading) = channel.read_briefly() {
            driver.read(self.id, reading);
        }
        let len = match may_take && channel.may_take() {
            true => driver.take(self.id, body, lacks),
            false => 0,
        };
        if len > 0 {
            protocol.took(len, self.parts.turn.now);
            self.parts.metrics.bytes_read.add(len as u64);
            // Counted also if it is complete, since it may be much. What is refused drops the rest.
            self.exchange().holds_body();
            self.serve_carry();
        }
        len
    }
}
