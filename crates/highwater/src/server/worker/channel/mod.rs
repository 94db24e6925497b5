//! The bytes between a connection and the driver, and the command that ends it.
//!
//! A channel carries the bytes of a protocol. There are two kinds:
//!
//! ```text
//!  plain    the driver's bytes are the protocol's
//!  sealed   received bytes ─▶ open ─▶ plaintext           a handshake first, then records, by a `Seal`
//!           output         ─▶ seal ─▶ bytes to send
//! ```
//!
//! A plain channel costs one comparison where bytes pass. How a sealed one works is in `sealed`; what a kind of seal has
//! to do, in `seal`. In front of either there may be the header of a proxy (`preamble`).
//!
//! Nothing else writes how a connection is closed. Invariants: at most one send is in flight; after a send that ends
//! the connection, and after a close, no further command names it; a sealed channel ends with its closing message,
//! unless it is reset.

mod preamble;
mod seal;
mod sealed;

use std::net::SocketAddr;

use highwater_core::driver::{Close, Output, Reading, Then};
use highwater_core::http::Limits;
use highwater_core::link::Link;
use highwater_core::proxy_header::Malformed;
use highwater_core::time::Instant;

use self::preamble::Preamble;
pub(crate) use self::seal::{Opened, Seal, Sealer};
pub(super) use self::sealed::Sealed;

/// The state of one channel.
#[derive(Debug)]
pub(in crate::server) struct Channel {
    /// A send is in flight.
    is_sending: bool,
    /// The last send was commanded; nothing but a close, to cut it off, may follow.
    has_ended: bool,
    /// It was closed; the driver has not reported `Closed` yet.
    is_closing: bool,
    /// It is to be closed at the end of the turn.
    close: Option<Close>,
    /// The last command about reading. `Once` until the first delivery, then as the protocol wants; `Brief` instead of
    /// `Stream` for large bodies.
    reading: Reading,
    /// The driver was commanded to read nothing more, and so it still reports resets.
    is_watched: bool,
    /// Its seal; a plain channel has none.
    sealed: Option<Box<Sealed>>,
    /// The header of a proxy that has to come first.
    preamble: Option<Box<Preamble>>,
    /// It has neither: received bytes are the protocol's.
    is_plain: bool,
    /// It is sealed, and ended without the peer's closing message: the end may be anybody's.
    is_cut: bool,
}

impl Channel {
    /// The channel of a connection that was just accepted.
    pub(super) const NEW: Channel = Channel {
        is_sending: false,
        has_ended: false,
        is_closing: false,
        close: None,
        reading: Reading::Once,
        is_watched: false,
        sealed: None,
        preamble: None,
        is_plain: true,
        is_cut: false,
    };

    /// From the first byte on it is sealed by `seal`.
    pub(super) fn seal(&mut self, seal: Box<dyn Seal>) {
        self.sealed = Some(Box::new(Sealed::new(seal)));
        self.is_plain = false;
    }

    /// The header of a proxy comes before all other bytes.
    pub(super) fn await_preamble(&mut self) {
        self.preamble = Some(Box::default());
        self.is_plain = false;
    }

    /// Its peer is refused: what it has sent already is nothing that a protocol should see.
    pub(super) fn refuse(&mut self) {
        self.is_plain = false;
    }

    /// Bytes were received. Returns the client that the header of a proxy names, if it is complete, and how many of the
    /// bytes are that header's. No client and no bytes, if none is awaited.
    pub(super) fn pass_preamble(
        &mut self,
        received: &[u8],
    ) -> Result<Option<(Option<SocketAddr>, usize)>, Malformed> {
        let Some(preamble) = &mut self.preamble else { return Ok(Some((None, 0))) };
        let found = preamble.receive(received)?;
        if found.is_some() {
            self.preamble = None;
            self.is_plain = self.sealed.is_none();
        }
        Ok(found)
    }

    /// Whether received bytes are the protocol's as they are.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether it is sealed.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// The peer has finished sending, without a closing message.
    pub(super) fn cut(&mut self) {
        self.is_cut = self.is_sealed();
    }

    /// Whether bytes may be missing behind the last that came.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Takes the seal out, so that plaintext can be borrowed from it while the connection changes.
    pub(super) fn take_seal(&mut self) -> Option<Box<Sealed>> {
        self.sealed.take()
    }

    /// Gives the seal back.
    pub(super) fn put_seal(&mut self, sealed: Box<Sealed>) {
        self.sealed = Some(sealed);
    }

    /// Whether its handshake waits in the queue.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.is_waiting())
    }

    /// Its handshake will not begin.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            sealed.fail();
        }
    }

    /// Whether its handshake is not complete, so that no protocol is spoken yet.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.is_shaking_hands())
    }

    /// Whether a handshake is given up with this: it was not complete. Once.
    pub(super) fn gives_up_handshake(&mut self) -> bool {
        self.sealed.as_mut().is_some_and(|sealed| sealed.give_up())
    }

    /// Whether a part of the output that the link has given away is still to be sealed.
    #[inline]
    pub(super) fn has_rest(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_rest())
    }

    /// Bytes of memory that its seal has allocated.
    #[cfg(feature = "sim")]
    pub(super) fn allocated(&self) -> usize {
        self.sealed.as_ref().map_or(0, |sealed| sealed.allocated())
    }

    /// Bytes were received: if one delivery was asked for, it has been made.
    #[inline]
    pub(super) fn received(&mut self) {
        if self.reading.is_once() {
            self.reading = Reading::Stop;
        }
    }

    /// Whether a send is in flight, or the next portion of the same output is to follow.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending || self.has_rest()
    }

    /// Whether it was closed.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether the last send was commanded.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether output may be sent now.
    #[inline]
    fn may_send(&self) -> bool {
        !self.is_sending && !self.has_ended
    }

    /// Takes what is to be sent now, and what follows it, if output may be sent. [`Channel::sends`] is next.
    #[inline(always)]
    pub(super) fn take_output(
        &mut self,
        link: &mut Link,
        limits: &Limits,
        now: Instant,
    ) -> Option<(Output, Then)> {
        if !self.may_send() {
            return None;
        }
        match &mut self.sealed {
            None => link.take_output(now),
            Some(sealed) => sealed.take_output(link, limits, now),
        }
    }

    /// The message that a sealed channel sends before it is closed without output, if there is one to send. The send
    /// is then under way, and a close follows it.
    pub(super) fn take_closing_message(&mut self, link: &mut Link, now: Instant) -> Option<Output> {
        if !self.may_send() || self.is_closing {
            return None;
        }
        let output = self.sealed.as_mut()?.take_closing_message()?;
        link.on_send(now);
        self.sends(Then::Close);
        Some(output)
    }

    /// A send is commanded; `then` says what follows it.
    #[inline]
    pub(super) fn sends(&mut self, then: Then) {
        self.is_sending = true;
        self.has_ended = then == Then::Close;
    }

    /// The driver has sent what it was given.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.is_sending = false;
    }

    /// It is closed at the end of the turn, without what it has not sent.
    pub(super) fn end(&mut self, how: Close) {
        self.close = Some(how);
    }

    /// Whether it was closed, or will be at the end of the turn.
    pub(super) fn is_ending(&self) -> bool {
        self.is_closing || self.close.is_some()
    }

    /// How to close it now, if it was ended.
    #[inline]
    pub(super) fn take_end(&mut self) -> Option<Close> {
        self.close.take()
    }

    /// Closes it, unless it is closed. Returns whether the driver needs a command for that.
    pub(super) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.is_closing, true)
    }

    /// `wanted` is how input is read from now on. Returns the command for the driver, if one is needed.
    ///
    /// A new connection has one delivery armed; no command is needed until that delivery came. But if nothing
    /// more is read, the driver needs that command once, or a reset would go unnoticed (`core::driver`, R9).
    ///
    /// If all that came lately was large bodies (`is_bulky`), a little is delivered at a time, and the rest of what has
    /// arrived is taken.
    #[inline]
    pub(super) fn read(
        &mut self,
        wanted: Reading,
        is_bulky: impl FnOnce() -> bool,
    ) -> Option<Reading> {
        let is_armed = self.reading.is_once();
        let is_new = self.reading != wanted || !self.is_watched && wanted == Reading::Stop;
        if is_armed || !is_new {
            return None;
        }
        let is_brief = wanted == Reading::Stream && self.is_plain && is_bulky();
        let reading = if is_brief { Reading::Brief } else { wanted };
        self.reading = reading;
        self.is_watched |= reading == Reading::Stop;
        Some(reading)
    }

    /// A large body has begun to come. Returns the command for the driver, if it delivers all that arrives: from now on
    /// a little at a time.
    pub(super) fn read_briefly(&mut self) -> Option<Reading> {
        let is_open = self.is_plain && !self.has_ended && !self.is_ending();
        (is_open && self.reading == Reading::Stream).then(|| {
            self.reading = Reading::Brief;
            Reading::Brief
        })
    }

    /// Whether bytes may be taken now: a delivery was made, and no further one is commanded.
    pub(super) fn may_take(&self) -> bool {
        self.is_plain && self.reading == Reading::Stop && !self.has_ended && !self.is_ending()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: there is no command about reading before the first delivery; then one for each change; and
    /// one to read nothing more, even if nothing was being read.
    #[test]
    fn the_driver_is_told_each_change_once() {
        let mut channel = Channel::NEW;
        assert_eq!(channel.read(Reading::Stream, || false), None);
        channel.received();
        assert_eq!(
            channel.read(Reading::Stop, || false),
            Some(Reading::Stop),
            "nothing is read any more"
        );
        assert_eq!(channel.read(Reading::Stop, || false), None);
        assert_eq!(channel.read(Reading::Stream, || false), Some(Reading::Stream));
        assert_eq!(channel.read(Reading::Stream, || false), None);
        channel.received();
        assert_eq!(
            channel.read(Reading::Once, || false),
            Some(Reading::Once),
            "a stream needs a command to end"
        );
        assert_eq!(channel.read(Reading::Stop, || false), None, "one delivery is armed");
    }

    /// Purpose: where large bodies come, a little is delivered at a time, and bytes are taken between two deliveries only.
    #[test]
    fn large_bodies_are_taken() {
        let mut channel = Channel::NEW;
        assert!(!channel.may_take(), "one delivery is armed");
        channel.received();
        assert!(channel.may_take());
        assert_eq!(channel.read(Reading::Stream, || true), Some(Reading::Brief));
        assert!(!channel.may_take());
        assert_eq!(channel.read(Reading::Stream, || true), None, "one delivery is armed");
        channel.received();
        assert_eq!(channel.read(Reading::Stream, || false), Some(Reading::Stream));
        channel.received();
        assert!(!channel.may_take(), "the driver delivers all that arrives");
        assert_eq!(channel.read_briefly(), Some(Reading::Brief));
        assert_eq!(channel.read_briefly(), None);
        channel.received();
        assert!(channel.may_take());
        channel.end(Close::Fin);
        assert!(!channel.may_take(), "it ends");
        let mut channel = Channel::NEW;
        channel.refuse();
        channel.received();
        assert!(!channel.may_take(), "its bytes are not the protocol's");
        assert_eq!(channel.read(Reading::Stream, || true), Some(Reading::Stream));
    }

    /// Purpose: one send at a time, none after the last, and one close.
    #[test]
    fn one_send_at_a_time() {
        let mut channel = Channel::NEW;
        assert!(channel.may_send());
        channel.sends(Then::Keep);
        assert!(!channel.may_send() && channel.is_sending());
        channel.sent();
        assert!(channel.may_send());
        channel.sends(Then::Close);
        channel.sent();
        assert!(!channel.may_send() && channel.has_ended());
        assert!(channel.close() && !channel.close() && channel.is_closing());
    }
}
