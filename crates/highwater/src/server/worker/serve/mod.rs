//! What a worker does for one connection, and for one exchange of it.
//!
//! There are two views, borrowed for the time of one event. A [`ConnectionMut`] has the bytes: it receives, sends,
//! flushes and closes, keeps the deadlines, and owns the loop over what the protocol says next. An [`ExchangeMut`]
//! has one request and its answer: its own state, its stream, and the parts that its answer needs. It cannot reach
//! its connection or another exchange, and calls nothing back: when a method of it returns, the connection decides
//! what is read next.
//!
//! ```text
//!  ConnectionMut   request.rs     bytes in: every complete request is answered, or waits
//!                  connection.rs  output sent, deadlines, clients that disconnect, the end
//!  ExchangeMut     begin.rs       one request: route, judge, call
//!                  answer.rs      an outcome: a response at once, a future, a job
//!                  refuse.rs      an answer of the server's own: for load, for bad input
//!                  stream.rs      content that comes piece by piece, both ways
//!                  deadline.rs    its deadline, and its end
//! ```

mod answer;
mod begin;
mod connection;
mod deadline;
mod refuse;
mod request;
mod stream;

use highwater_core::driver::ConnId;
use highwater_core::time::Clock;

use super::accept::Acceptor;
use super::connections::{Agenda, Connection, Connections};
use super::exchange::{Exchange, ExchangeId, Exchanges};
use super::protocol::{Protocol, Stream};
use super::{Parsing, Parts};
use crate::admission::worker::Demand;
use crate::app::{self, App};

/// One connection with its exchanges, and the worker's parts.
pub(super) struct ConnectionMut<'w, C, P: Protocol> {
    pub(super) id: ConnId,
    pub(super) app: &'w App,
    pub(super) connection: &'w mut Connection<P>,
    exchanges: &'w mut Exchanges,
    pub(super) parts: &'w mut Parts<C>,
    agenda: &'w mut Agenda,
    acceptor: &'w Acceptor,
    parsing: &'w mut Parsing<P::Scratch>,
    /// The index of the exchange that is worked on.
    at: u32,
    /// An encoded answer is being dropped, with the values that its handler left in it.
    is_dropping: bool,
}

/// One exchange on its stream, and the parts of the worker that its answer needs.
pub(super) struct ExchangeMut<'w, C, P: Protocol + 'w> {
    pub(super) id: ExchangeId,
    pub(super) app: &'w App,
    pub(super) stream: P::Stream<'w>,
    pub(super) exchange: &'w mut Exchange,
    pub(super) parts: &'w mut Parts<C>,
}

impl<'w, C: Clock, P: Protocol> ConnectionMut<'w, C, P> {
    /// Connection `id`, and its exchange at the index `at`; the one that it always has without.
    #[inline]
    pub(super) fn new(
        (app, parsing): (&'w App, &'w mut Parsing<P::Scratch>),
        connections: &'w mut Connections<P>,
        parts: &'w mut Parts<C>,
        (agenda, acceptor): (&'w mut Agenda, &'w Acceptor),
        (id, at): (ConnId, Option<u32>),
    ) -> Self {
        let (connection, exchanges) = connections.with_exchanges(id);
        let at = at.unwrap_or(connection.streams.first());
        let is_dropping = false;
        ConnectionMut {
            id,
            app,
            connection,
            exchanges,
            parts,
            agenda,
            acceptor,
            parsing,
            at,
            is_dropping,
        }
    }

    /// The exchange that is worked on.
    #[inline]
    pub(super) fn exchange(&mut self) -> ExchangeMut<'_, C, P> {
        let ConnectionMut { app, connection, exchanges, parts, at, .. } = self;
        let (id, stream, exchange) = exchanges.get_mut(*at);
        let Connection { protocol, link, .. } = &mut **connection;
        ExchangeMut { id, app, stream: protocol.stream(link, stream), exchange, parts }
    }

    /// Whether there is an exchange number `n`, which is worked on from now on.
    #[inline]
    fn turn_to(&mut self, n: usize) -> bool {
        let index = self.connection.streams.get(n);
        self.at = index.unwrap_or(self.at);
        index.is_some()
    }

    /// Flushes the connection at the end of the turn.
    #[inline]
    pub(super) fn touch(&mut self) {
        self.agenda.touch(self.id, self.connection);
    }

    /// Makes sure that the connection is checked no later than at its next deadline.
    #[inline]
    pub(super) fn arm(&mut self) {
        let Connection { link, protocol, streams, .. } = &*self.connection;
        let mut deadline = protocol.deadline(link, &self.parts.encoder.limits);
        deadline = deadline.min(self.exchanges.get_mut(streams.first()).2.due());
        for &(_, index) in streams.more() {
            deadline = deadline.min(self.exchanges.get_mut(index).2.due());
        }
        let deadline = deadline.min(self.connection.fresh_until());
        self.agenda.arm(self.id, self.connection, deadline);
    }

    /// The events of a turn are handled. What follows from the state of the connection and of its exchanges is
    /// derived here, and nowhere else.
    #[inline]
    pub(super) fn settle(&mut self) {
        let (is_alive, now) = (self.connection.is_alive(), self.parts.turn.now);
        self.at = self.connection.streams.first();
        if self.connection.is_fresh {
            let is_fresh = self.exchange().exchange.target.is_none();
            self.connection.is_fresh = is_fresh;
        }
        let is_awaited = self.connection.is_awaited(now);
        let mut demand = self.exchange().settle(is_alive, is_awaited);
        if !self.connection.streams.more().is_empty() {
            demand = self.settle_more(is_alive, demand);
        }
        if self.exchange().stream.is_over() {
            self.close_stream();
        }
        if demand != self.connection.demand {
            self.parts.admission.change(self.connection.demand, demand);
            self.connection.demand = demand;
        }
    }

    /// The same for the exchanges of further streams. Returns the demand of the connection, of which one exchange
    /// has `demand`.
    #[cold]
    fn settle_more(&mut self, is_alive: bool, mut demand: Demand) -> Demand {
        let mut n = 1;
        while self.turn_to(n) {
            demand = demand.or(self.exchange().settle(is_alive, false));
            if self.exchange().stream.is_over() {
                self.close_stream();
            } else {
                n += 1;
            }
        }
        self.turn_to(0);
        demand
    }

    /// The stream of the exchange is over: its record is free for another.
    #[cold]
    fn close_stream(&mut self) {
        let target = self.exchange().cancel();
        self.connection.streams.close(self.at, self.exchanges);
        self.at = self.connection.streams.first();
        self.app.report_panics(target, None);
    }
}

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// The events of a turn are handled. Returns the demand of the exchange on its worker: nothing if its
    /// connection is not alive, and the worker's time if it is awaited.
    #[inline]
    fn settle(&mut self, is_alive: bool, is_awaited: bool) -> Demand {
        self.end_unheard();
        self.count_awaiting();
        let demand = match () {
            () if !is_alive => Demand::None,
            () if self.exchange.is_queued() || is_awaited => Demand::Time,
            () if self.stream.is_reply_owed() => Demand::Answer,
            () => Demand::None,
        };
        self.count_demand(demand);
        self.release_body();
        demand
    }

    /// Updates the count of exchanges by their demand on the worker.
    #[inline]
    fn count_demand(&mut self, demand: Demand) {
        let counted = &mut self.exchange.counted;
        if demand != counted.demand {
            self.parts.admission.change_exchange(counted.demand, demand);
            counted.demand = demand;
        }
    }

    /// Updates the count of exchanges that wait for a future.
    #[inline]
    fn count_awaiting(&mut self) {
        let is_awaiting = self.exchange.awaits_future() || self.exchange.content.is_some();
        if is_awaiting != self.exchange.counted.is_awaiting {
            self.exchange.counted.is_awaiting = is_awaiting;
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
