//! Streamed content: request bodies on the way to their handlers, and answers on the way to their clients.

use std::task::{self, Poll};

use highwater_core::driver::Close;
use highwater_core::http::LengthMismatch;
use highwater_core::time::Clock;

use super::super::Parts;
use super::super::connections::Connection;
use super::super::encode::{finish, push};
use super::ExchangeMut;

impl<C: Clock> ExchangeMut<'_, C> {
    /// The handler may have made room for more of a streamed request body, asked for its first piece, or
    /// dropped it.
    pub(super) fn resume_feed(&mut self) {
        let Parts { encoder, turn, .. } = &mut *self.parts;
        let Connection { link, protocol, .. } = &mut *self.connection;
        let Some(feed) = &self.exchange.feed else { return };
        if feed.is_abandoned() {
            self.exchange.feed = None;
            self.exchange.is_endless |= protocol.has_left_http();
            protocol.drop_body(&encoder.limits, turn.now);
        } else {
            if feed.wanted() {
                encoder.lend(link);
                protocol.send_continue(link, turn.now);
            }
            let has_room = feed.has_room();
            protocol.pause_body(link, !has_room, turn.now);
        }
    }

    /// Encodes streamed content while there is some and the output has room.
    pub(in super::super) fn pump(&mut self) {
        let id = self.exchange_id;
        if self.exchange.content.is_none() || self.parts.tasks.lacks_runtime(id) {
            return;
        }
        let waker = self.parts.tasks.waker(self.exchange, id);
        let Parts { encoder, turn, .. } = &mut *self.parts;
        let Some(mut content) = self.exchange.content.take() else { return };
        let Connection { link, protocol, .. } = &mut *self.connection;
        let before = link.pending();
        encoder.lend(link);
        let mut cx = task::Context::from_waker(&waker);
        while link.room(&encoder.limits) > 0 {
            let pushed = match content.poll_next(&mut cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(piece))) => push((link, protocol), piece),
                Poll::Ready(None) => {
                    self.exchange.feed = None;
                    match finish((link, protocol), &mut content, &encoder.limits, turn.now) {
                        Ok(()) => {
                            // Content of known length needs no end marker.
                            self.exchange.answer.bytes += (link.pending() - before) as u64;
                            encoder.recycle(link.reclaim_buffer());
                            drop(content);
                            self.ended(true);
                            self.report_panics();
                            return self.touch();
                        }
                        Err(mismatch) => Err(mismatch),
                    }
                }
                Poll::Ready(Some(Err(_))) => Err(LengthMismatch),
            };
            if pushed.is_err() {
                // The status was already sent; only a reset can report the failure now. A stream that has
                // failed must not be polled again.
                self.connection.channel.end(Close::Reset);
                drop(content);
                self.ended(false);
                self.report_panics();
                return self.touch();
            }
        }
        self.exchange.answer.bytes += (link.pending() - before) as u64;
        self.exchange.content = Some(content);
        self.touch();
    }

    /// Ends an answer without an end to a client that has finished sending: an event stream, or an upgraded
    /// protocol that no longer reads. The content made so far is sent.
    pub(in super::super) fn end_unheard(&mut self) {
        let exchange = &mut *self.exchange;
        let is_unheard = exchange.is_endless && exchange.content.is_some();
        if is_unheard && self.connection.link.has_hung_up() {
            exchange.content = None;
            exchange.feed = None;
            self.connection.protocol.cut_short(&mut self.connection.link);
            self.ended(false);
        }
    }
}
