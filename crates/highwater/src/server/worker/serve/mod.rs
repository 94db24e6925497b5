//! What a worker does for one exchange, from received bytes to its answer's last byte.
//!
//! [`ExchangeMut`] is an exchange with its connection and the parts of the worker that it may touch, borrowed
//! for the time of one event. Its methods stand by subject:
//!
//! ```text
//!  request.rs    bytes in: every complete request is answered, or waits
//!  begin.rs      one request: route, judge, call
//!  answer.rs     an outcome: a response at once, a future, a job
//!  stream.rs     content that comes piece by piece, both ways
//!  deadline.rs   deadlines; clients that disconnect; the end of the connection
//! ```

mod answer;
mod begin;
mod deadline;
mod request;
mod stream;

use highwater_core::driver::ConnId;
use highwater_core::time::Clock;

use super::connections::{Connection, Connections};
use super::exchange::{Exchange, ExchangeId};
use super::{Parsing, Parts};
use crate::app::{self, App};

/// One exchange, its connection, and the worker's parts.
pub(super) struct ExchangeMut<'w, C> {
    pub(super) id: ConnId,
    pub(super) exchange_id: ExchangeId,
    pub(super) app: &'w App,
    pub(super) connection: &'w mut Connection,
    pub(super) exchange: &'w mut Exchange,
    pub(super) parts: &'w mut Parts<C>,
    parsing: &'w mut Parsing,
    /// An encoded answer is being dropped, with the values that its handler left in it.
    is_dropping: bool,
}

impl<'w, C: Clock> ExchangeMut<'w, C> {
    /// The exchange at `index`, which is of connection `id`.
    #[inline]
    pub(super) fn new(
        app: &'w App,
        connections: &'w mut Connections,
        parsing: &'w mut Parsing,
        parts: &'w mut Parts<C>,
        (id, index): (ConnId, u32),
    ) -> Self {
        let (connection, (exchange_id, exchange)) = connections.with_exchange(id, index);
        ExchangeMut {
            id,
            exchange_id,
            app,
            connection,
            exchange,
            parts,
            parsing,
            is_dropping: false,
        }
    }

    /// Flushes the connection at the end of the turn.
    #[inline]
    pub(super) fn touch(&mut self) {
        self.parts.agenda.touch(self.id, self.connection);
    }

    /// Makes sure that the connection is checked no later than at its next deadline.
    #[inline]
    pub(super) fn arm(&mut self) {
        let Parts { encoder, agenda, .. } = &mut *self.parts;
        let deadline = self.connection.protocol.deadline(&self.connection.link, &encoder.limits);
        let deadline = deadline.min(self.exchange.due());
        let deadline = deadline.min(self.connection.fresh_until(self.exchange));
        agenda.arm(self.id, self.connection, deadline);
    }

    /// The events of a turn are handled. What follows from the exchange's state is derived here, and nowhere
    /// else.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.end_unheard();
        self.count_awaiting();
        self.count_demand();
        self.release_body();
    }

    /// Updates the count of connections by their demand on the worker.
    #[inline]
    fn count_demand(&mut self) {
        let demand = self.connection.demand(self.exchange, self.parts.turn.now);
        if demand != self.connection.demand {
            self.parts.admission.change(self.connection.demand, demand);
            self.connection.demand = demand;
        }
    }

    /// Updates the count of exchanges that wait for a future.
    #[inline]
    fn count_awaiting(&mut self) {
        let is_awaiting = self.exchange.awaits_future() || self.exchange.content.is_some();
        if is_awaiting != self.exchange.is_awaiting {
            self.exchange.is_awaiting = is_awaiting;
            self.parts.tasks.count_awaiting(is_awaiting);
        }
    }

    /// Reports the panics that were caught while the exchange was handled.
    #[inline]
    pub(super) fn report_panics(&self) {
        if app::has_panicked() {
            self.app.report_panics(self.exchange.target, self.exchange.named.sent_id.as_deref());
        }
    }
}
