//! What passes between a connection and the driver, and the last command about it.
//!
//! A channel carries the bytes of a protocol. Today it is plain: the driver's bytes are the protocol's.
//! TLS will be a second kind, here and nowhere else: records in and plaintext out ahead of
//! `Connection::receive`, plaintext in and records out in `Worker::flush_one`, its close_notify before a
//! shutdown, and its handshake's deadline beside the protocol's.
//!
//! Invariants: at most one send is in flight; after a send that ends the connection, and after a close, no
//! further command names it.

use highwater_core::driver::{Close, Reading, Then};

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
    /// The last command about reading. `Once` until the first delivery, then as the protocol wants.
    reading: Reading,
    /// The driver was commanded to read nothing more, and so it still reports resets.
    is_watched: bool,
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
    };

    /// Bytes were received: if one delivery was asked for, it has been made.
    #[inline]
    pub(super) fn received(&mut self) {
        if self.reading == Reading::Once {
            self.reading = Reading::Stop;
        }
    }

    /// Whether a send is in flight.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending
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
    pub(super) fn may_send(&self) -> bool {
        !self.is_sending && !self.has_ended
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
    #[inline]
    pub(super) fn read(&mut self, wanted: Reading) -> Option<Reading> {
        let is_armed = self.reading == Reading::Once;
        let is_new = self.reading != wanted || !self.is_watched && wanted == Reading::Stop;
        if is_armed || !is_new {
            return None;
        }
        self.reading = wanted;
        self.is_watched |= wanted == Reading::Stop;
        Some(wanted)
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
        assert_eq!(channel.read(Reading::Stream), None);
        channel.received();
        assert_eq!(channel.read(Reading::Stop), Some(Reading::Stop), "nothing is read any more");
        assert_eq!(channel.read(Reading::Stop), None);
        assert_eq!(channel.read(Reading::Stream), Some(Reading::Stream));
        assert_eq!(channel.read(Reading::Stream), None);
        channel.received();
        assert_eq!(
            channel.read(Reading::Once),
            Some(Reading::Once),
            "a stream needs a command to end"
        );
        assert_eq!(channel.read(Reading::Stop), None, "one delivery is armed");
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
