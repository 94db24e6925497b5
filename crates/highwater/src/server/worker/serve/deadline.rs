//! What happens to an exchange when its deadline passes, and when it is over before its answer?

use highwater_core::time::Clock;

use super::super::detached::Detached;
use super::super::exchange::{Counted, Exchange};
use super::super::protocol::{Protocol, Stream};
use super::ExchangeMut;
use crate::admission::worker::Demand;
use crate::app::{EndpointInfo, Error, Target};

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// Its connection is gone, or its stream is over. A detached handler continues. Returns what its request was
    /// routed to.
    pub(super) fn cancel(&mut self) -> Option<Target> {
        if let Some(disconnected) = self.exchange.disconnected.take() {
            disconnected.notify();
        }
        self.exchange.feed = None;
        if self.exchange.queue.waiting.is_some() {
            let Exchange { queue, started, .. } = &*self.exchange;
            self.parts.admission.left(queue.class, *started, self.parts.turn.now);
        }
        self.ended(false);
        if self.endpoint().is_some_and(EndpointInfo::is_detached) {
            self.detach();
        }
        let Counted { charged, held, .. } = &mut self.exchange.counted;
        let bytes = std::mem::take(charged) + std::mem::take(held);
        if bytes != 0 {
            self.parts.body_memory.give_back(bytes);
        }
        if std::mem::take(&mut self.exchange.counted.is_awaiting) {
            self.parts.tasks.count_awaiting(false);
        }
        self.parts.count_demand(self.exchange, Demand::None);
        self.exchange.target
    }

    /// It has waited too long for its turn.
    pub(super) fn give_up(&mut self) {
        self.exchange.queue.waiting = None;
        self.stream.reset();
    }

    /// Detaches the future of the handler, if there is one: it runs on, and its answer is dropped.
    fn detach(&mut self) {
        if let Some(future) = self.exchange.take_future()
            && let Some(waker) = self.exchange.waker.clone()
        {
            let permit = self.exchange.permit.take();
            self.parts.tasks.detached.adopt(self.id, Detached { future, waker, permit });
        }
    }

    /// The timer of its connection has fired. Returns whether its handler's time is over.
    pub(super) fn expire(&mut self) -> bool {
        let looked_at = self.parts.turn.looked_at;
        if looked_at >= self.exchange.task_deadline {
            self.time_out();
            return true;
        }
        if looked_at >= self.exchange.upload.due {
            self.look_at_upload();
        }
        false
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
        if self.stream.is_reply_owed() {
            let mut response = self.exchange.fail(self.app, Error::timed_out());
            // A client may set itself any deadline; missing it is not a failure of the handler.
            if !is_clients {
                self.report_failure(&mut response);
            }
            self.answer(response);
        }
    }
}
