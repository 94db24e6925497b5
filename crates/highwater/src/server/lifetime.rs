//! How connections begin, are kept in time, and end.

use highwater_core::driver::{Accepting, Close, ConnId, Driver};
use highwater_core::http1::{Expired, Reject};
use highwater_core::time::{Clock, Instant};

use super::slot::Demand;
use super::worker::{State, Worker};
use crate::app::{BodyError, Error};
use crate::metrics::Timeout;

impl<C: Clock> State<C> {
    pub(super) fn sent(&mut self, id: ConnId, buffer: Vec<u8>) {
        self.responder.recycle(buffer);
        let slot = &mut self.slots[id.index()];
        slot.sending = false;
        slot.connection.on_sent(self.now);
        if slot.closing || slot.ended {
            return;
        }
        if slot.content.is_some() {
            self.pump(id);
            self.end_unheard(id);
            self.count_waiting(id);
        } else if slot.connection.has_carry() {
            self.serve_carry(id);
        } else if slot.connection.has_output() {
            self.touch(id);
        } else {
            // What counts from now on (idleness, lingering) may be due before the write would have
            // been, which is all that the wheel knows of.
            self.arm(id);
        }
    }

    pub(super) fn closed(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        debug_assert!(slot.alive, "Closed names a live connection");
        if let Some(disconnected) = slot.disconnected.take() {
            disconnected.tell();
        }
        let slot = &mut self.slots[id.index()];
        slot.feed = None;
        let endpoint = self.app.endpoints().get(usize::from(slot.endpoint));
        let detached = endpoint.is_some_and(|endpoint| endpoint.is_detached());
        let token = slot.token(id.index());
        if detached
            && let Some(future) = slot.take_future()
            && let Some(waker) = slot.waker.take()
        {
            self.orphans.adopt(token, future, waker);
        }
        let (awaited, demand) = (slot.awaits, slot.demand);
        let target = slot.target;
        let charged = std::mem::take(&mut slot.charged);
        slot.vacate();
        if charged != 0 {
            self.bounds.body_memory.give_back(charged);
        }
        self.app.report_panics(target);
        self.awaiting -= u32::from(awaited);
        self.load.change(demand, Demand::None);
        self.connections -= 1;
        self.metrics.connections_active.set(u64::from(self.connections));
        if self.accept_retry != Instant::MAX {
            self.accept_retry = Instant::ZERO; // A descriptor is free again.
        }
    }

    /// The peer has finished sending, or is gone. Who has asked for an answer still gets it, within
    /// `half_closed_timeout`; what has no end, and was not asked for more, ends now.
    pub(super) fn hung_up(&mut self, id: ConnId) {
        let now = self.now;
        let slot = &mut self.slots[id.index()];
        slot.connection.on_hang_up(now);
        if let Some(disconnected) = slot.disconnected.get() {
            disconnected.tell();
        }
        self.end_unheard(id);
        self.touch(id);
    }

    /// Ends what goes on for ever and is heard by nobody: an event stream, or an upgraded protocol that
    /// no longer reads, to a peer that has finished sending. What was made of it so far is sent.
    pub(super) fn end_unheard(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        if slot.is_endless && slot.content.is_some() && slot.connection.has_hung_up() {
            slot.content = None;
            slot.feed = None;
            slot.connection.cut_short();
            self.count_waiting(id);
            self.serve_carry(id); // What came behind is dropped.
            self.touch(id);
        }
    }

    /// Makes sure that the wheel fires no later than the connection's next deadline.
    #[inline]
    pub(super) fn arm(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let deadline = slot.connection.deadline(&self.responder.limits).min(slot.task_deadline);
        let deadline = deadline.min(slot.fresh_until()).min(slot.upload.due);
        if deadline < slot.timer_at {
            slot.timer_at = deadline;
            self.wheel.insert(deadline, slot.token(id.index()).0);
        }
    }

    /// Looks at every connection whose wheel entry has fired.
    pub(super) fn expire(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(self.looked_at, &mut |token| due.push(token));
        for token in due.drain(..) {
            let index = token as u32 as usize;
            let slot = &mut self.slots[index];
            // An entry outlives its connection; it is told from its successor's by the token.
            if slot.alive && slot.token(index).0 == token {
                slot.timer_at = Instant::MAX;
                self.expire_one(ConnId(index as u32));
            }
        }
        self.due = due;
    }

    fn expire_one(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        if slot.closing || slot.close.is_some() {
            return; // It ends in this turn, and how is decided.
        }
        self.touch(id);
        let slot = &mut self.slots[id.index()];
        if self.looked_at >= slot.task_deadline {
            return self.time_out(id);
        }
        if self.looked_at >= slot.upload.due {
            self.look_at_upload(id);
        }
        let slot = &mut self.slots[id.index()];
        match slot.connection.on_deadline(self.looked_at, &self.responder.limits) {
            Expired::Early => {}
            Expired::Close => {
                if slot.connection.is_idle() {
                    let is_fresh = slot.target.is_none();
                    self.metrics.timeout(if is_fresh { Timeout::Header } else { Timeout::Idle });
                }
                slot.close = Some(Close::Fin);
            }
            Expired::Reset => {
                self.metrics.timeout(Timeout::Write);
                slot.close = Some(Close::Reset);
            }
            Expired::HalfClosed => {
                self.metrics.timeout(Timeout::HalfClosed);
                slot.close = Some(Close::Reset);
            }
            Expired::Reject(reject) => {
                let is_body = reject == Reject::BodyTimeout;
                self.metrics.timeout(if is_body { Timeout::Body } else { Timeout::Header });
                self.refuse(id, reject);
            }
            Expired::BodyFailed(reject) => {
                self.metrics.timeout(Timeout::Body);
                if let Some(feed) = slot.feed.take() {
                    feed.fail(BodyError::from(reject));
                }
            }
        }
    }

    /// The handler did not answer in time: its work is dropped, and the client told. A detached handler
    /// that took too long for its client, but not for its route, runs on.
    fn time_out(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        let endpoint = self.app.endpoints().get(usize::from(slot.endpoint));
        let detached = endpoint.is_some_and(|endpoint| endpoint.is_detached());
        let token = slot.token(id.index());
        if detached
            && slot.task_deadline == slot.deadline
            && let Some(future) = slot.take_future()
            && let Some(waker) = slot.waker.clone()
        {
            self.orphans.adopt(token, future, waker);
        }
        slot.task = None;
        slot.task_deadline = Instant::MAX;
        self.report_panics(id);
        self.count_waiting(id);
        let slot = &mut self.slots[id.index()];
        if slot.connection.is_reply_owed() {
            let response = self.app.fail(slot.target, Error::timed_out());
            self.answer(id, response);
            self.serve_carry(id);
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Stops accepting, and lets every connection end with the answer it owes.
    pub(crate) fn drain(&mut self) {
        let state = &mut self.state;
        if std::mem::replace(&mut state.draining, true) {
            return;
        }
        state.app.drain();
        state.look_again();
        state.accepting = Accepting::Closed;
        state.accept_retry = Instant::MAX;
        for index in 0..state.slots.len() {
            if state.slots[index].alive {
                let now = state.now;
                state.slots[index].connection.drain(now);
                state.touch(ConnId(index as u32));
            }
        }
        self.driver.accept(Accepting::Closed);
        self.flush();
    }

    /// The connections at hand.
    pub(crate) fn connections(&self) -> u32 {
        self.state.connections
    }

    /// Whether any future of a handler is still alive.
    pub(crate) fn has_tasks(&self) -> bool {
        self.state.awaiting > 0 || !self.state.orphans.is_empty()
    }

    /// Whether it has not looked at its connections for long, and reads before it judges.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.state.catching_up > 0
    }

    /// Whether draining has finished: nothing is left to do.
    pub(crate) fn is_drained(&self) -> bool {
        self.state.draining && self.state.connections == 0 && self.state.orphans.is_empty()
    }

    /// Cuts every connection that is left.
    pub(crate) fn cut(&mut self) {
        for index in 0..self.state.slots.len() {
            if self.state.slots[index].alive && !self.state.slots[index].closing {
                self.state.metrics.timeout(Timeout::Drain);
                self.close(ConnId(index as u32), Close::Reset);
            }
        }
    }

    /// Closes what has said its last word, if the time has come; returns whether it did.
    pub(super) fn finish(&mut self, id: ConnId) -> bool {
        let slot = &mut self.state.slots[id.index()];
        let lingered = slot.connection.is_lingering()
            && !slot.sending
            && (slot.connection.is_eof()
                || slot.connection.has_lingered_enough(&self.state.responder.limits));
        let how = match slot.close.take() {
            Some(how) => how,
            None if lingered => Close::Fin,
            None => return false,
        };
        self.close(id, how);
        true
    }
}
