//! What a worker does for one connection, and for one exchange of it.
//!
//! There are two views, borrowed for the time of one event. A [`ConnectionMut`] has the bytes: it receives, sends,
//! flushes and closes, keeps the deadlines, and owns the loop over the protocol's next steps. An [`ExchangeMut`]
//! has one request and its answer: its own state, its stream, and the parts that its answer needs. It cannot reach
//! its connection or another exchange, and calls nothing back: when a method of it returns, the connection decides
//! what is read next.
//!
//! ```text
//!  ConnectionMut   request.rs     bytes in: every complete request is answered, or waits
//!                  other_input.rs what comes besides requests: content, resets, what cannot be served
//!                  preamble.rs    bytes in, behind the header of a proxy
//!                  sealed.rs      bytes in, where they are sealed: the handshake, and what records hold
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
mod other_input;
mod preamble;
mod refuse;
mod request;
mod sealed;
mod stream;

use highwater_core::driver::ConnId;
use highwater_core::time::{Clock, Instant};

use super::accept::Acceptor;
use super::connections::{Agenda, Connection, Connections};
use super::exchange::{Counted, Exchange, ExchangeId, Exchanges};
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
    pub(super) agenda: &'w mut Agenda,
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
    #[inline(always)]
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
        let Connection { link, protocol, streams, channel, .. } = &*self.connection;
        let mut deadline = match channel.is_waiting() {
            false => protocol.deadline(link, &self.parts.encoder.limits),
            true => Instant::MAX, // Its peer has done its part.
        };
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
        let is_alive = self.connection.is_alive();
        self.at = self.connection.streams.first();
        let is_awaited = self.connection.is_fresh && self.is_awaited();
        let mut demand = self.settle_one(is_alive, is_awaited);
        if !self.connection.streams.more().is_empty() {
            demand = self.settle_more(is_alive, demand);
        }
        if demand != self.connection.demand {
            self.parts.admission.change(self.connection.demand, demand);
            self.connection.demand = demand;
        }
    }

    /// Whether a connection that has had no request counts as work nevertheless.
    #[cold]
    fn is_awaited(&mut self) -> bool {
        let (.., first) = self.exchanges.get_mut(self.at);
        self.connection.is_fresh = first.target.is_none();
        self.connection.is_awaited(self.parts.turn.now)
    }

    /// The same for the exchange that is worked on. Returns its demand on its worker: nothing if its connection is not
    /// alive, and the worker's time if it is awaited. It is closed if its stream is over.
    #[inline(always)]
    fn settle_one(&mut self, is_alive: bool, is_awaited: bool) -> Demand {
        let (_, stream, exchange) = self.exchanges.get_mut(self.at);
        let Counted { charged, held, .. } = exchange.counted;
        let has_content = exchange.content.is_some() || charged | held != 0;
        let Connection { link, protocol, .. } = &mut *self.connection;
        let (demand, is_over) =
            self.parts.count((exchange, &protocol.stream(link, stream)), is_alive, is_awaited);
        if has_content || is_over {
            return self.settle_content(is_alive, is_awaited);
        }
        demand
    }

    /// The same, where there is content, or an end.
    #[cold]
    fn settle_content(&mut self, is_alive: bool, is_awaited: bool) -> Demand {
        self.exchange().end_unread();
        self.exchange().release_body();
        self.exchange().holds_rest();
        let (demand, is_over) = self.exchange().count(is_alive, is_awaited);
        if is_over {
            self.close_stream();
        }
        demand
    }

    /// The same for the exchanges of further streams. Returns the demand of the connection, of which one exchange
    /// has `demand`.
    #[cold]
    fn settle_more(&mut self, is_alive: bool, mut demand: Demand) -> Demand {
        let mut n = 1;
        while self.turn_to(n) {
            let before = self.connection.streams.more().len();
            demand = demand.or(self.settle_one(is_alive, false));
            n += usize::from(before == self.connection.streams.more().len());
        }
        self.turn_to(0);
        demand
    }

    /// Closes the stream of the exchange if it is over.
    #[inline(never)]
    fn close_if_over(&mut self) {
        if self.exchange().stream.is_over() {
            self.close_stream();
        }
    }

    /// The stream of the exchange is over: its record is free for another.
    fn close_stream(&mut self) {
        let target = self.exchange().cancel();
        self.connection.is_fresh &= target.is_none(); // Soon nothing of it is left that says so.
        self.connection.streams.close(self.at, self.exchanges);
        self.at = self.connection.streams.first();
        self.app.report_panics(target, None);
    }
}

impl<C: Clock> Parts<C> {
    /// Counts an exchange by what it waits for, and by its demand on the worker. Returns that, and whether its stream
    /// is over.
    #[inline(always)]
    fn count(
        &mut self,
        (exchange, stream): (&mut Exchange, &impl Stream),
        is_alive: bool,
        is_awaited: bool,
    ) -> (Demand, bool) {
        let is_awaiting = exchange.awaits_future() || exchange.content.is_some();
        if is_awaiting != exchange.counted.is_awaiting {
            exchange.counted.is_awaiting = is_awaiting;
            self.tasks.count_awaiting(is_awaiting);
        }
        let demand = match () {
            () if !is_alive => Demand::None,
            () if exchange.wants_time() || is_awaited => Demand::Time,
            () if stream.is_reply_owed() => Demand::Answer,
            () => Demand::None,
        };
        self.count_demand(exchange, demand);
        (demand, stream.is_over())
    }

    /// Updates the count of exchanges by their demand on the worker.
    #[inline(always)]
    fn count_demand(&mut self, exchange: &mut Exchange, demand: Demand) {
        let before = std::mem::replace(&mut exchange.counted.demand, demand);
        if demand != before {
            self.admission.change_exchange(before, demand);
        }
    }
}

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    fn count(&mut self, is_alive: bool, is_awaited: bool) -> (Demand, bool) {
        self.parts.count((self.exchange, &self.stream), is_alive, is_awaited)
    }

    /// Reports the panics that were caught while the exchange was handled.
    #[inline]
    pub(super) fn report_panics(&self) {
        if app::has_panicked() {
            self.app.report_panics(self.exchange.target, self.exchange.named.sent_id.as_deref());
        }
    }
}
