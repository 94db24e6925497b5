//! Streamed content: request bodies on the way to their handlers, and answers on the way to their clients.

use std::task::{self, Poll};

use highwater_core::http::LengthMismatch;
use highwater_core::time::Clock;

use super::super::Parts;
use super::super::encode::{finish, push};
use super::super::exchange::Exchange;
use super::super::protocol::{Protocol, Stream};
use super::super::runtime::Runtime;
use super::ExchangeMut;

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// The handler may have made room for more of a streamed request body, asked for its first piece, or
    /// dropped it.
    pub(super) fn resume_feed(&mut self) {
        let Parts { encoder, turn, .. } = &mut *self.parts;
        let Exchange { feed, content, is_endless, .. } = &mut *self.exchange;
        let Some(feed) = feed else { return };
        if feed.is_abandoned() {
            let may_go_on = || content.as_ref().is_some_and(|content| !content.has_end());
            *is_endless |= self.stream.has_left_http() && !feed.has_ended() && may_go_on();
            self.drop_feed();
        } else {
            if feed.wanted() {
                encoder.lend(&mut self.stream);
                self.stream.send_continue(turn.now);
            }
            self.stream.allow_body(feed.room(), turn.now);
        }
    }

    /// The rest of a request's content, or of what comes on an upgraded connection, is not wanted.
    pub(super) fn drop_feed(&mut self) {
        let Parts { encoder, turn, .. } = &mut *self.parts;
        if self.exchange.feed.take().is_some() {
            self.stream.drop_body(&encoder.limits, turn.now);
        }
    }

    /// Encodes streamed content while there is some and the output has room.
    pub(super) fn pump(&mut self) {
        let id = self.id;
        if self.exchange.content.is_none() || self.lacks_runtime() {
            return;
        }
        let waker = self.parts.tasks.waker(self.exchange, id);
        let Parts { encoder, turn, .. } = &mut *self.parts;
        let Some(mut content) = self.exchange.content.take() else { return };
        let stream = &mut self.stream;
        let before = stream.pending();
        encoder.lend(stream);
        let mut cx = task::Context::from_waker(&waker);
        while stream.room(&encoder.limits) > 0 {
            let pushed = match content.poll_next(&mut cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(piece))) => push(stream, piece),
                Poll::Ready(None) => {
                    if !stream.has_left_http() {
                        self.exchange.feed = None; // Else each side ends by itself.
                    }
                    match finish(stream, &mut content, &encoder.limits, turn.now) {
                        Ok(()) => {
                            // Content of known length needs no end marker.
                            self.exchange.note_content(stream.pending() - before);
                            encoder.recycle(stream.reclaim_buffer());
                            drop(content);
                            self.ended(true);
                            return self.report_panics();
                        }
                        Err(mismatch) => Err(mismatch),
                    }
                }
                Poll::Ready(Some(Err(_))) => Err(LengthMismatch),
            };
            if pushed.is_err() {
                // The status was already sent; only a reset can report the failure now. Content that has
                // failed must not be polled again.
                stream.reset();
                drop(content);
                self.ended(false);
                return self.report_panics();
            }
        }
        self.exchange.note_content(stream.pending() - before);
        self.exchange.content = Some(content);
    }

    /// Whether there is no runtime to poll the exchange's future and content in. It waits for one, or is reset if there
    /// cannot be one.
    #[inline]
    pub(super) fn lacks_runtime(&mut self) -> bool {
        match self.parts.tasks.runtime {
            Runtime::Running => return false,
            Runtime::Absent | Runtime::Wanted => self.parts.tasks.want_runtime(self.id),
            Runtime::Refused => {
                self.exchange.end_task();
                self.exchange.content = None;
                self.exchange.feed = None;
                self.stream.reset();
                self.ended(false);
                self.report_panics();
            }
        }
        true
    }

    /// Ends an answer without an end to a client that has finished sending: an event stream, or an upgraded
    /// protocol that no longer reads. The content made so far is sent.
    pub(super) fn end_unread(&mut self) {
        let exchange = &mut *self.exchange;
        let is_unread = exchange.is_endless && exchange.content.is_some();
        if is_unread && self.stream.link().has_hung_up() {
            exchange.content = None;
            exchange.feed = None;
            self.stream.cut_short();
            self.ended(false);
        }
    }
}
