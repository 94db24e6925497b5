//! A worker's connections: each has a channel, a link, a protocol, and the current exchange.
//!
//! Also here is the worker's agenda: which connections are to be flushed at the end of the turn, and when
//! each has to be looked at again.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use highwater_core::driver::ConnId;
use highwater_core::limit::ClientKey;
use highwater_core::link::Link;
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;

use super::channel::Channel;
use super::exchange::{Exchange, ExchangeId, Exchanges};
use super::protocol::{Protocol, Wire};
use crate::admission::worker::Demand;
use crate::app::Disconnected;

/// For how long a connection without a request counts as work after it was accepted. Its request is most
/// likely on its way; but clients that connect and send nothing must not shut the gate for others.
const FRESH_MAX: Duration = Duration::from_millis(100);

/// One connection.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) link: Link,
    pub(super) protocol: Protocol,
    /// It is open: accepted, and not reported closed.
    pub(super) is_open: bool,
    /// It is on the list of connections to flush in this turn.
    is_touched: bool,
    /// It may have waited long in the listen queue: before its first request is served, the worker checks
    /// that its client is still connected.
    pub(super) is_suspect: bool,
    /// The demand under which the gate last counted it.
    pub(super) demand: Demand,
    /// The index of its exchange.
    pub(super) exchange: u32,
    generation: u32,
    /// When the timer wheel will fire for it; `MAX` if it will not.
    timer_at: Instant,
    pub(super) accepted_at: Instant,
    pub(super) peer: Option<SocketAddr>,
    /// Whose requests it brings, once that was asked.
    pub(super) client: Option<ClientKey>,
    /// Tells handlers that the client has gone; made when one asks.
    pub(super) disconnected: OnceLock<Disconnected>,
}

impl Connection {
    fn new() -> Self {
        Connection {
            channel: Channel::NEW,
            link: Link::new(),
            protocol: Protocol::new(Instant::ZERO),
            is_open: false,
            is_touched: false,
            is_suspect: false,
            demand: Demand::None,
            exchange: 0,
            generation: 0,
            timer_at: Instant::MAX,
            accepted_at: Instant::ZERO,
            peer: None,
            client: None,
            disconnected: OnceLock::new(),
        }
    }

    /// Its protocol, over its link.
    #[inline]
    pub(super) fn wire(&mut self) -> Wire<'_> {
        (&mut self.link, &mut self.protocol)
    }

    /// Whether it is open, and was not closed by us.
    #[inline]
    pub(super) fn is_alive(&self) -> bool {
        self.is_open && !self.channel.is_closing()
    }

    /// Its demand on its worker for `exchange`: see `admission::gate`.
    #[inline]
    pub(super) fn demand(&self, exchange: &Exchange, now: Instant) -> Demand {
        if !self.is_alive() {
            Demand::None
        } else if exchange.is_queued()
            || exchange.target.is_none() && now < self.accepted_at + FRESH_MAX
        {
            Demand::Time
        } else if self.protocol.is_reply_owed() {
            Demand::Answer
        } else {
            Demand::None
        }
    }

    /// When it stops counting as work if no request has come; `MAX` if it does not count.
    #[inline]
    pub(super) fn fresh_until(&self, exchange: &Exchange) -> Instant {
        match self.demand == Demand::Time && exchange.target.is_none() {
            true => self.accepted_at + FRESH_MAX,
            false => Instant::MAX,
        }
    }

    /// The token of this use of the record in the timer wheel.
    fn timer_token(&self, id: ConnId) -> u64 {
        u64::from(self.generation) << 32 | u64::from(id.0)
    }
}

/// The connections of a worker, indexed by `ConnId`, and their exchanges.
#[derive(Default)]
pub(super) struct Connections {
    records: Vec<Connection>,
    pub(super) exchanges: Exchanges,
}

impl Connections {
    /// Adds a connection that was accepted at `now`.
    pub(super) fn open(
        &mut self,
        id: ConnId,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> &mut Connection {
        if self.records.len() <= id.index() {
            self.records.resize_with(id.index() + 1, Connection::new);
        }
        let connection = &mut self.records[id.index()];
        debug_assert!(!connection.is_open, "an id is used again only after Closed");
        connection.protocol = Protocol::new(now);
        connection.is_open = true;
        connection.accepted_at = now;
        connection.peer = peer;
        connection.exchange = self.exchanges.open(id);
        connection
    }

    /// Drops everything of a connection that was reported closed. Its ids become invalid.
    pub(super) fn close(&mut self, id: ConnId) {
        let connection = &mut self.records[id.index()];
        let generation = connection.generation.wrapping_add(1);
        self.exchanges.close(connection.exchange);
        let is_touched = connection.is_touched; // It is still on the list of this turn.
        *connection = Connection { generation, is_touched, ..Connection::new() };
    }

    /// A connection.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> &mut Connection {
        &mut self.records[id.index()]
    }

    /// A connection, and the exchange of it that is at `index`.
    #[inline]
    pub(super) fn with_exchange(
        &mut self,
        id: ConnId,
        index: u32,
    ) -> (&mut Connection, (ExchangeId, &mut Exchange)) {
        (&mut self.records[id.index()], self.exchanges.get_mut(index))
    }

    /// The connection of the exchange `id`, if that is not over.
    pub(super) fn lookup(&self, id: ExchangeId) -> Option<ConnId> {
        let connection = self.exchanges.lookup(id)?;
        self.records[connection.index()].is_alive().then_some(connection)
    }

    /// When the client of the exchange `id` hung up, if it did.
    pub(super) fn hung_up_at(&self, id: ExchangeId) -> Option<Instant> {
        let connection = self.lookup(id)?;
        self.records[connection.index()].link.hung_up_at()
    }

    /// The connection that `token` of the timer wheel names, if it is still the same. The wheel then has no
    /// entry for it any more.
    pub(super) fn fired(&mut self, token: u64) -> Option<ConnId> {
        let id = ConnId(token as u32);
        let connection = &mut self.records[id.index()];
        if !connection.is_open || connection.timer_token(id) != token {
            return None; // The entry outlived its connection.
        }
        connection.timer_at = Instant::MAX;
        Some(id)
    }

    /// An open connection and its exchange.
    #[cfg(feature = "sim")]
    pub(super) fn record(&self, id: ConnId) -> Option<(&Connection, &Exchange)> {
        let connection = self.records.get(id.index()).filter(|connection| connection.is_open)?;
        Some((connection, self.exchanges.iter().nth(connection.exchange as usize)?))
    }

    /// The connections that are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = (ConnId, &Connection)> {
        let named = self.records.iter().enumerate();
        let named = named.map(|(index, connection)| (ConnId(index as u32), connection));
        named.filter(|(_, connection)| connection.is_alive())
    }

    /// The ids that were ever used.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> + use<> {
        (0..self.records.len() as u32).map(ConnId)
    }
}

/// Room that the lists of the agenda have from the start, so that a turn which takes a while, as on a machine
/// that pauses it, allocates nothing.
const CAPACITY: usize = 32;

/// The work for connections at the end of the turn, and later.
pub(super) struct Agenda {
    /// To be flushed at the end of the turn.
    pub(super) touched: Vec<ConnId>,
    wheel: Wheel,
    due: Vec<u64>,
}

impl Agenda {
    pub(super) fn new(now: Instant) -> Self {
        Agenda {
            touched: Vec::with_capacity(CAPACITY),
            wheel: Wheel::new(now),
            due: Vec::with_capacity(CAPACITY),
        }
    }

    /// Flushes the connection at the end of the turn.
    #[inline]
    pub(super) fn touch(&mut self, id: ConnId, connection: &mut Connection) {
        if !connection.is_touched {
            connection.is_touched = true;
            self.touched.push(id);
        }
    }

    /// The connection is being flushed.
    #[inline]
    pub(super) fn untouch(connection: &mut Connection) {
        connection.is_touched = false;
    }

    /// Makes sure that the wheel fires for the connection no later than at `deadline`.
    #[inline]
    pub(super) fn arm(&mut self, id: ConnId, connection: &mut Connection, deadline: Instant) {
        if deadline < connection.timer_at {
            connection.timer_at = deadline;
            self.wheel.insert(deadline, connection.timer_token(id));
        }
    }

    /// When the wheel fires next.
    pub(super) fn next(&self) -> Instant {
        self.wheel.next().unwrap_or(Instant::MAX)
    }

    /// Takes the tokens whose time has come by `now`; give the list back with [`Agenda::put_back`].
    #[inline]
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut |token| due.push(token));
        due
    }

    /// Keeps a list for the next time.
    #[inline]
    pub(super) fn put_back(&mut self, mut due: Vec<u64>) {
        due.clear();
        self.due = due;
    }
}
