//! What happens to an exchange when a deadline passes, when its output was sent, and when its client
//! disconnects?

use highwater_core::driver::Close;
use highwater_core::http::Reject;
use highwater_core::time::Clock;

use super::super::connections::Connection;
use super::super::detached::Detached;
use super::super::protocol::Expired;
use super::ExchangeMut;
use crate::admission::worker::Demand;
use crate::app::{BodyError, EndpointInfo, Error};
use crate::metrics::Timeout;

impl<C: Clock> ExchangeMut<'_, C> {
    /// The output in flight was sent.
    pub(in super::super) fn sent(&mut self) {
        self.connection.channel.sent();
        self.connection.link.on_sent(self.parts.turn.now);
        if self.connection.channel.is_closing() || self.connection.channel.has_ended() {
            return;
        }
        if self.exchange.content.is_some() {
            self.pump();
        }
        if self.exchange.content.is_some() {
            self.touch();
        } else if self.connection.link.has_carry() {
            self.read_on();
        } else if self.connection.link.has_output() {
            self.touch();
        } else {
            // The deadline that applies now (idle, lingering) may be earlier than that of the write, and the
            // wheel knows only the latter.
            self.arm();
        }
    }

    /// The peer has finished sending, or has disconnected. A request that was received is still answered,
    /// within `half_closed_timeout`; an endless answer ends now.
    pub(in super::super) fn hung_up(&mut self) {
        self.connection.link.on_hang_up(self.parts.turn.now);
        if let Some(disconnected) = self.connection.disconnected.get() {
            disconnected.tell();
        }
        self.touch();
    }

    /// The connection is gone. A detached handler continues.
    pub(in super::super) fn closed(&mut self) {
        if let Some(disconnected) = self.connection.disconnected.take() {
            disconnected.tell();
        }
        self.exchange.feed = None;
        self.ended(false);
        if self.endpoint().is_some_and(EndpointInfo::is_detached) {
            self.detach();
        }
        let charged = std::mem::take(&mut self.exchange.charged);
        if charged != 0 {
            self.parts.body_memory.give_back(charged);
        }
        if self.exchange.is_awaiting {
            self.exchange.is_awaiting = false;
            self.parts.tasks.count_awaiting(false);
        }
        self.parts.admission.change(self.connection.demand, Demand::None);
    }

    /// How to close the connection now, if it has nothing more to send and its time is over.
    pub(in super::super) fn ends(&mut self) -> Option<Close> {
        let Connection { link, channel, .. } = &mut *self.connection;
        channel.take_end().or_else(|| {
            let has_lingered = link.is_lingering()
                && !channel.is_sending()
                && (link.is_eof() || link.has_lingered_enough(&self.parts.encoder.limits));
            has_lingered.then_some(Close::Fin)
        })
    }

    /// Detaches the future of the handler, if there is one: it runs on, and its answer is dropped.
    fn detach(&mut self) {
        if let Some(future) = self.exchange.take_future()
            && let Some(waker) = self.exchange.waker.clone()
        {
            let permit = self.exchange.permit.take();
            let id = self.exchange_id;
            self.parts.tasks.detached.adopt(id, Detached { future, waker, permit });
        }
    }

    /// The timer has fired.
    pub(in super::super) fn expire(&mut self) {
        if self.connection.channel.is_ending() {
            return; // It ends in this turn, and how it ends is already decided.
        }
        self.touch();
        let looked_at = self.parts.turn.looked_at;
        if looked_at >= self.exchange.task_deadline {
            return self.time_out();
        }
        if looked_at >= self.exchange.upload.due {
            self.look_at_upload();
        }
        let metrics = &self.parts.metrics;
        let Connection { link, protocol, .. } = &mut *self.connection;
        let expired = protocol.on_deadline(link, looked_at, &self.parts.encoder.limits);
        match expired {
            Expired::Early => {}
            Expired::Close => {
                if self.connection.protocol.is_idle(&self.connection.link) {
                    let is_fresh = self.exchange.target.is_none();
                    metrics.timeout(if is_fresh { Timeout::Header } else { Timeout::Idle });
                }
                self.connection.channel.end(Close::Fin);
            }
            Expired::Reset => {
                metrics.timeout(Timeout::Write);
                self.connection.channel.end(Close::Reset);
            }
            Expired::HalfClosed => {
                metrics.timeout(Timeout::HalfClosed);
                self.connection.channel.end(Close::Reset);
            }
            Expired::Reject(reject) => {
                let is_body = reject == Reject::BodyTimeout;
                metrics.timeout(if is_body { Timeout::Body } else { Timeout::Header });
                self.reject(reject);
            }
            Expired::BodyFailed(reject) => {
                metrics.timeout(Timeout::Body);
                if let Some(feed) = self.exchange.feed.take() {
                    feed.fail(BodyError::from(reject));
                }
            }
        }
    }

    /// The handler did not answer in time: its future is dropped, and the client gets an error. A detached
    /// handler that missed the client's deadline, but not its route's timeout, runs on.
    fn time_out(&mut self) {
        let is_detached = self.endpoint().is_some_and(EndpointInfo::is_detached);
        let is_clients = self.exchange.task_deadline == self.exchange.deadline;
        if is_detached && is_clients {
            self.detach();
        }
        self.exchange.end_task();
        self.report_panics();
        if self.connection.protocol.is_reply_owed() {
            let mut response = self.exchange.fail(self.app, Error::timed_out());
            // A client may set itself any deadline; missing it is not a failure of the handler.
            if !is_clients {
                self.report_failure(&mut response);
            }
            self.answer(response);
            self.read_on();
        }
    }
}
