//! What happens to a connection besides its input: output that was sent, deadlines, clients that disconnect, and its end.
//! Also here: an exchange that continues on its own, and the input that may follow.

use std::time::Duration;

use highwater_core::driver::{Close, Driver, Reading};
use highwater_core::http::Reject;
use highwater_core::time::{Clock, Instant};

use super::super::Parts;
use super::super::connections::Connection;
use super::super::exchange::Item;
use super::super::inbox::Done;
use super::super::protocol::{Expired, Protocol};
use super::ConnectionMut;
use crate::admission::queue::Entry;
use crate::admission::worker::Demand;
use crate::app::BodyError;
use crate::metrics::{HandshakeFailure, Rejection, Timeout};

impl<C: Clock, P: Protocol> ConnectionMut<'_, C, P> {
    /// The output in flight was sent.
    pub(in super::super) fn sent(&mut self) {
        let Connection { channel, link, .. } = &mut *self.connection;
        channel.sent();
        if channel.has_rest() {
            link.on_progress(self.parts.turn.now);
            return self.touch();
        }
        link.on_sent(self.parts.turn.now);
        if channel.is_closing() || channel.has_ended() {
            return;
        }
        let is_divided = self.connection.streams.is_divided();
        if is_divided && self.connection.turn_to_input() {
            self.read_on_streams();
        }
        let has_content = self.pump();
        let Connection { link, protocol, channel, .. } = &*self.connection;
        if has_content {
            self.touch();
            if is_divided {
                self.read_on_streams();
            }
        } else if link.has_carry() || protocol.holds_input() {
            self.read_on();
        } else if link.has_output()
            || protocol.holds_output(link, &self.parts.encoder.limits)
            || channel.is_sealed()
        {
            self.touch();
        } else {
            // The deadline that applies now (idle, lingering) may be earlier than that of the write, and the
            // wheel knows only the latter.
            self.arm();
        }
    }

    /// Serves input that could not be served while the output was full: streams beside it may have content for ever.
    #[inline(never)]
    fn read_on_streams(&mut self) {
        self.read_on();
        self.at = self.connection.streams.first();
    }

    /// Encodes streamed content of all exchanges that have some. Returns whether one has more.
    #[inline]
    fn pump(&mut self) -> bool {
        if self.connection.streams.more().is_empty() {
            let (.., exchange) = self.exchanges.get_mut(self.at);
            if exchange.content.is_none() {
                return false;
            }
        }
        let (mut n, mut has_content) = (0, false);
        while self.turn_to(n) {
            if self.exchange().exchange.content.is_some() {
                self.exchange().pump();
                has_content |= self.exchange().exchange.content.is_some();
                self.touch();
            }
            n += 1;
        }
        has_content
    }

    /// The peer has finished sending, or has disconnected. Requests that were received are still answered,
    /// within `half_closed_timeout`; an endless answer ends now.
    pub(in super::super) fn hung_up(&mut self) {
        self.connection.link.on_hang_up(self.parts.turn.now);
        let mut n = 0;
        while self.turn_to(n) {
            self.tell_disconnected();
            n += 1;
        }
        if self.connection.channel.is_waiting() {
            self.connection.link.abort(); // Nobody will complete the handshake.
        }
        self.touch();
    }

    /// The client may have left before there was a handler to notify.
    #[inline(never)]
    pub(super) fn tell_if_disconnected(&mut self) {
        if self.connection.link.has_hung_up() {
            self.tell_disconnected();
        }
    }

    /// The handler of the exchange learns that its client has left, if it asked.
    pub(super) fn tell_disconnected(&mut self) {
        if let Some(disconnected) = self.exchange().exchange.disconnected.get() {
            disconnected.notify();
        }
    }

    /// The peer has finished sending, and all that it sent has been received.
    pub(in super::super) fn eof(&mut self) {
        if !self.connection.link.is_eof() {
            self.connection.channel.cut();
            self.end_of_input();
        } // Else its channel was closed before.
    }

    /// No input comes any more.
    pub(super) fn end_of_input(&mut self) {
        self.connection.link.on_eof();
        self.hung_up();
        self.read_on();
    }

    /// The deadlines that clients sent end `by` earlier.
    pub(in super::super) fn bring_forward(&mut self, by: Duration) {
        let (mut n, mut is_earlier) = (0, false);
        while self.turn_to(n) {
            let at = self.exchange();
            if at.exchange.deadline != Instant::MAX {
                at.exchange.bring_forward(by);
                is_earlier = true;
            }
            n += 1;
        }
        if is_earlier {
            self.arm();
        }
    }

    /// A task of the exchange was woken.
    pub(in super::super) fn advance_task(&mut self) {
        self.exchange().advance();
        self.read_on(); // Pipelined requests, or more of a body, may be waiting.
        self.touch();
    }

    /// A job of the exchange is done. Its answer is dropped if the request already timed out.
    pub(in super::super) fn job_done(&mut self, done: Done) {
        if self.exchange().finish_job(done) {
            self.read_on(); // Pipelined requests may be waiting.
            self.touch();
        }
    }

    /// The connection is gone, and its exchanges with it. A detached handler continues.
    pub(in super::super) fn closed(&mut self) {
        let mut n = 0;
        while self.turn_to(n) {
            self.exchange().cancel();
            n += 1;
        }
        self.turn_to(0);
        if self.connection.channel.is_waiting() {
            self.left_handshake();
        }
        if self.connection.channel.gives_up_handshake() {
            self.parts.metrics.handshakes.fail(HandshakeFailure::Closed);
        }
        self.parts.admission.change(self.connection.demand, Demand::None);
    }

    /// Whether all of its output waits for more like it: answers to refused requests.
    #[inline]
    pub(in super::super) fn is_corked(&mut self) -> bool {
        let Connection { link, channel, cork, .. } = &mut *self.connection;
        cork.is_some() && {
            let Parts { turn, admission, encoder, .. } = &*self.parts;
            let most = encoder.limits.output_max / 2;
            cork.holds((link, channel), (turn.now, admission.stands()), most)
        }
    }

    /// How to close the connection now, if it has nothing more to send and its time is over.
    #[inline]
    pub(in super::super) fn ends(&mut self) -> Option<Close> {
        let Connection { link, channel, .. } = &mut *self.connection;
        if link.is_aborted() {
            channel.end(Close::Reset);
        }
        channel.take_end().or_else(|| {
            let has_lingered = link.is_lingering()
                && !channel.is_sending()
                && (link.is_eof() || link.has_lingered_enough(&self.parts.encoder.limits));
            has_lingered.then_some(Close::Fin)
        })
    }

    /// Whether it ends in this turn, so that how it ends is decided.
    fn is_ending(&self) -> bool {
        self.connection.channel.is_ending() || self.connection.link.is_aborted()
    }

    /// How to read input that is needed. Where streams have windows, these bound what is read.
    #[inline]
    pub(in super::super) fn reading_wanted(&mut self) -> Reading {
        match self.connection.streams.more().is_empty() {
            true => self.exchanges.get_mut(self.at).2.reading_wanted(),
            false => Reading::Stream,
        }
    }

    /// The timer has fired.
    pub(in super::super) fn expire(&mut self) {
        if self.is_ending() || self.connection.channel.is_waiting() {
            return;
        }
        self.touch();
        let (mut n, mut has_timed_out) = (0, false);
        while self.turn_to(n) {
            has_timed_out |= self.exchange().expire();
            n += 1;
        }
        if has_timed_out {
            return self.read_on();
        }
        let looked_at = self.parts.turn.looked_at;
        let Connection { link, protocol, .. } = &mut *self.connection;
        let (stream, expired) = protocol.on_deadline(link, looked_at, &self.parts.encoder.limits);
        self.at = self.connection.streams.find(stream).unwrap_or(self.connection.streams.first());
        let Connection { link, protocol, channel, is_fresh, .. } = &mut *self.connection;
        let metrics = &self.parts.metrics;
        match expired {
            Expired::Early => {}
            Expired::Close => {
                if protocol.idle_since(link).is_some() {
                    metrics.timeout(if *is_fresh { Timeout::Header } else { Timeout::Idle });
                }
                if channel.gives_up_handshake() {
                    metrics.handshakes.fail(HandshakeFailure::Timeout);
                }
                channel.end(Close::Fin);
            }
            Expired::Reset => {
                metrics.timeout(Timeout::Write);
                channel.end(Close::Reset);
            }
            Expired::Stalled => metrics.timeout(Timeout::Write),
            Expired::HalfClosedStream => metrics.timeout(Timeout::HalfClosed),
            Expired::Ended => {
                metrics.timeout(if *is_fresh { Timeout::Header } else { Timeout::Idle });
            }
            Expired::HalfClosed => {
                metrics.timeout(Timeout::HalfClosed);
                channel.end(Close::Reset);
            }
            Expired::Reject(reject) => {
                let is_body = reject == Reject::BodyTimeout;
                metrics.timeout(if is_body { Timeout::Body } else { Timeout::Header });
                self.exchange().reject(reject);
            }
            Expired::BodyFailed(reject) => {
                metrics.timeout(Timeout::Body);
                if let Some(feed) = self.exchange().exchange.feed.take() {
                    feed.fail(BodyError::from(reject));
                }
            }
        }
    }

    /// Whether the turn of the exchange in the queue comes too late: its client has hung up, and the gate may
    /// refuse requests. Then it is given up.
    pub(in super::super) fn gives_up(
        &mut self,
        entry: &Entry<Item>,
        driver: &mut impl Driver,
    ) -> bool {
        let Connection { link, channel, is_suspect, .. } = &mut *self.connection;
        let is_suspect = std::mem::take(is_suspect);
        let admission = &mut self.parts.admission;
        let is_abandoned = admission.is_abandoned(entry.ready, link.hung_up_at());
        let gives_up =
            admission.may_give_up(entry.ready, self.parts.turn.now, (is_suspect, is_abandoned))
                && !channel.is_sending()
                && !link.has_output()
                && (link.is_eof() || driver.is_hung_up(self.id));
        if gives_up {
            // The client has disconnected, or has only finished sending: the server cannot tell which.
            // Without overload both are served.
            match entry.item {
                Item::Exchange(_) => self.exchange().give_up(),
                Item::Handshake(_) => {
                    channel.stop_waiting(); // That its client has left is counted above.
                    link.abort();
                }
            }
            self.parts.metrics.rejected(Rejection::QueueHungUp);
            self.touch();
        }
        gives_up
    }
}
