//! A worker's connections: each has a channel, a link, a protocol, and exchanges.
//!
//! A connection has one exchange from the start, which is all that a protocol without streams needs: it is
//! found without a search. Those of further streams are beside it, as long as they last.
//!
//! Also here is the worker's agenda: which connections are to be flushed at the end of the turn, and when
//! each has to be looked at again.

use std::net::SocketAddr;
use std::time::Duration;

use highwater_core::driver::ConnId;
use highwater_core::limit::ClientKey;
use highwater_core::link::Link;
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;

use super::channel::Channel;
use super::cork::{Cork, Corks};
use super::exchange::{ExchangeId, Exchanges};
use super::protocol::{Protocol, StreamId, Versions};
use crate::admission::per_client::Place;
use crate::admission::worker::Demand;
use crate::app::PeerCertificates;

/// For how long a connection without a request counts as work after it was accepted. Its request is most
/// likely on its way; but clients that connect and send nothing must not shut the gate for others.
const FRESH_MAX: Duration = Duration::from_millis(100);

/// One connection.
pub(super) struct Connection<P> {
    pub(super) channel: Channel,
    pub(super) link: Link,
    pub(super) protocol: P,
    /// Its exchanges.
    pub(super) streams: Streams,
    /// It is open: accepted, and not reported closed.
    pub(super) is_open: bool,
    /// It is on the list of connections to flush in this turn.
    is_touched: bool,
    /// It may have waited long in the listen queue: before its first request is served, the worker checks
    /// that its client is still connected.
    pub(super) is_suspect: bool,
    /// No request of it has been found.
    pub(super) is_fresh: bool,
    /// Which went first the last time that output was sent: input, or else the content of streams.
    is_inputs_turn: bool,
    /// The demand under which the gate last counted it.
    pub(super) demand: Demand,
    /// Its answers to refused requests that wait for others.
    pub(super) cork: Cork,
    generation: u32,
    /// When the timer wheel will fire for it; `MAX` if it will not.
    timer_at: Instant,
    pub(super) accepted_at: Instant,
    pub(super) peer: Option<SocketAddr>,
    /// Its place among the connections of its client, where these have a limit.
    pub(super) place: Option<Place>,
    /// The certificates with which the peer has authenticated itself.
    pub(super) certificates: Option<PeerCertificates>,
    /// Which versions of HTTP its listener allows.
    pub(super) versions: Versions,
    /// The client whose requests it carries, once that is determined.
    pub(super) client: Option<ClientKey>,
}

impl<P: Protocol> Connection<P> {
    fn new() -> Self {
        Connection {
            channel: Channel::NEW,
            link: Link::new(),
            protocol: P::new(Instant::ZERO, Versions::Both),
            streams: Streams::default(),
            is_open: false,
            is_touched: false,
            is_suspect: false,
            is_fresh: true,
            is_inputs_turn: false,
            demand: Demand::None,
            cork: Cork::NONE,
            generation: 0,
            timer_at: Instant::MAX,
            accepted_at: Instant::ZERO,
            peer: None,
            place: None,
            certificates: None,
            versions: Versions::Both,
            client: None,
        }
    }

    /// Whether it counts as work although no request has come: it was just accepted, or its handshake waits.
    #[inline]
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.is_fresh && (now < self.accepted_at + FRESH_MAX || self.channel.is_waiting())
    }

    /// The protocol begins, or begins again, and may speak `versions`: its deadlines count from `now`.
    pub(super) fn begin_protocol(&mut self, now: Instant, versions: Versions, is_draining: bool) {
        self.protocol = P::new(now, versions);
        if is_draining {
            self.drain(now);
        }
    }

    /// Answers the requests that have begun and no more. What a protocol sends about that cannot reach the peer before the
    /// handshake is complete; then it begins again.
    pub(super) fn drain(&mut self, now: Instant) {
        self.protocol.drain(&mut self.link, now);
        if self.channel.is_shaking_hands() {
            self.link.drop_output();
        }
    }

    /// Whether input goes before content now that there is room for output: in turns, so that neither keeps the other waiting.
    #[inline]
    pub(super) fn turn_to_input(&mut self) -> bool {
        self.is_inputs_turn = !self.is_inputs_turn;
        self.is_inputs_turn
    }

    /// When it stops counting as work if no request has come; `MAX` if it does not count.
    #[inline]
    pub(super) fn fresh_until(&self) -> Instant {
        match self.demand == Demand::Time && self.is_fresh && !self.channel.is_waiting() {
            true => self.accepted_at + FRESH_MAX,
            false => Instant::MAX,
        }
    }
}

impl<P> Connection<P> {
    /// Whether it is open, and was not closed by us.
    #[inline]
    pub(super) fn is_alive(&self) -> bool {
        self.is_open && !self.channel.is_closing()
    }

    /// The token of this use of the record in the timer wheel.
    fn timer_token(&self, id: ConnId) -> u64 {
        u64::from(self.generation) << 32 | u64::from(id.0)
    }
}

/// Which exchange belongs to which stream of a connection: indices into the worker's exchanges.
#[derive(Debug)]
pub(super) struct Streams {
    /// The one that a connection always has. Its stream is [`StreamId::CONNECTION`] while it is free, which is
    /// also the only stream of a protocol without streams.
    first: (StreamId, u32),
    /// Those of further streams.
    more: Vec<(StreamId, u32)>,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { first: (StreamId::CONNECTION, 0), more: Vec::new() }
    }
}

impl Streams {
    /// The exchange that the connection always has.
    #[inline]
    pub(super) fn first(&self) -> u32 {
        self.first.1
    }

    /// Whether an exchange belongs to a stream, and not to the connection as a whole.
    #[inline]
    pub(super) fn is_divided(&self) -> bool {
        self.first.0 != StreamId::CONNECTION || !self.more.is_empty()
    }

    /// Those of further streams.
    #[inline]
    pub(super) fn more(&self) -> &[(StreamId, u32)] {
        &self.more
    }

    /// Exchange number `n` of the connection.
    #[inline]
    pub(super) fn get(&self, n: usize) -> Option<u32> {
        match n {
            0 => Some(self.first.1),
            n => self.more.get(n - 1).map(|&(_, index)| index),
        }
    }

    /// The exchange of `stream` of connection `id`, which gets one of `exchanges` if it has none.
    #[inline]
    pub(super) fn at(&mut self, stream: StreamId, id: ConnId, exchanges: &mut Exchanges) -> u32 {
        match stream == self.first.0 {
            true => self.first.1,
            false => self.find(stream).unwrap_or_else(|| self.open(stream, id, exchanges)),
        }
    }

    #[inline(never)]
    fn open(&mut self, stream: StreamId, id: ConnId, exchanges: &mut Exchanges) -> u32 {
        if stream == StreamId::CONNECTION {
            return self.first.1;
        }
        if self.first.0 == StreamId::CONNECTION {
            self.first.0 = stream;
            exchanges.rename(self.first.1, stream);
            return self.first.1;
        }
        let index = exchanges.open(id, stream);
        self.more.push((stream, index));
        index
    }

    /// The stream of the exchange at `index` is over: its record is free, and its id becomes invalid.
    pub(super) fn close(&mut self, index: u32, exchanges: &mut Exchanges) {
        if self.first.1 == index {
            self.first.0 = StreamId::CONNECTION;
            exchanges.renew(index);
        } else {
            self.more.retain(|&(_, other)| other != index);
            exchanges.close(index);
        }
    }

    /// The exchange of `stream`, if it has one.
    pub(super) fn find(&self, stream: StreamId) -> Option<u32> {
        if stream == self.first.0 {
            return Some(self.first.1);
        }
        self.more.iter().find(|(other, _)| *other == stream).map(|&(_, index)| index)
    }
}

/// The connections of a worker, indexed by `ConnId`, and their exchanges.
pub(super) struct Connections<P> {
    records: Vec<Connection<P>>,
    pub(super) exchanges: Exchanges,
}

impl<P> Default for Connections<P> {
    fn default() -> Self {
        Connections { records: Vec::new(), exchanges: Exchanges::default() }
    }
}

impl<P: Protocol> Connections<P> {
    /// Adds a connection that was accepted at `now`, which may speak `versions`.
    pub(super) fn open(
        &mut self,
        id: ConnId,
        (peer, versions): (Option<SocketAddr>, Versions),
        now: Instant,
    ) -> &mut Connection<P> {
        if self.records.len() <= id.index() {
            self.records.resize_with(id.index() + 1, Connection::new);
        }
        let connection = &mut self.records[id.index()];
        debug_assert!(!connection.is_open, "an id is used again only after Closed");
        connection.protocol = P::new(now, versions);
        connection.versions = versions;
        connection.is_open = true;
        connection.accepted_at = now;
        connection.peer = peer;
        connection.streams.first.1 = self.exchanges.open(id, StreamId::CONNECTION);
        connection
    }

    /// Drops everything of a connection that was reported closed. Its ids become invalid.
    pub(super) fn close(&mut self, id: ConnId) {
        let connection = &mut self.records[id.index()];
        let generation = connection.generation.wrapping_add(1);
        self.exchanges.close(connection.streams.first());
        for &(_, index) in connection.streams.more() {
            self.exchanges.close(index);
        }
        let is_touched = connection.is_touched; // It is still on the list of this turn.
        *connection = Connection { generation, is_touched, ..Connection::new() };
    }
}

impl<P> Connections<P> {
    /// A connection.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnId) -> &mut Connection<P> {
        &mut self.records[id.index()]
    }

    /// A connection, and the exchanges of all.
    #[inline]
    pub(super) fn with_exchanges(&mut self, id: ConnId) -> (&mut Connection<P>, &mut Exchanges) {
        (&mut self.records[id.index()], &mut self.exchanges)
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

    /// The connection that `token` of the timer wheel names, if it is still the same and is to be looked at by `now`.
    ///
    /// A deadline that moved closer has left an entry behind it, which does nothing: if it were taken for the one that counts,
    /// each would be followed by another, and a busy connection would collect thousands.
    pub(super) fn fired(&mut self, token: u64, now: Instant) -> Option<ConnId> {
        let id = ConnId(token as u32);
        let connection = &mut self.records[id.index()];
        if !connection.is_open || connection.timer_token(id) != token || connection.timer_at > now {
            return None;
        }
        connection.timer_at = Instant::MAX;
        Some(id)
    }

    /// An open connection and its exchanges.
    #[cfg(feature = "sim")]
    pub(super) fn record(
        &self,
        id: ConnId,
    ) -> Option<(&Connection<P>, impl Iterator<Item = &super::exchange::Exchange>)> {
        let connection = self.records.get(id.index()).filter(|connection| connection.is_open)?;
        let more = connection.streams.more().iter().map(|&(_, index)| index);
        let all = std::iter::once(connection.streams.first()).chain(more);
        Some((connection, all.map(|index| self.exchanges.get(index))))
    }

    /// The connections that are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = (ConnId, &Connection<P>)> {
        let named = self.records.iter().enumerate();
        let named = named.map(|(index, connection)| (ConnId(index as u32), connection));
        named.filter(|(_, connection)| connection.is_alive())
    }

    /// The ids that were ever used.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> + use<P> {
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
    /// Flushed with output in flight, and not armed since. Also with the last, which the peer may not read.
    pub(super) sending: Vec<ConnId>,
    /// To be flushed when their answers have waited for long enough.
    pub(super) corks: Corks,
    /// Whose large bodies got content in this turn, and may get the rest of what has arrived.
    pub(super) collecting: Vec<ConnId>,
    wheel: Wheel,
    due: Vec<u64>,
}

impl Agenda {
    pub(super) fn new(now: Instant) -> Self {
        Agenda {
            touched: Vec::with_capacity(CAPACITY),
            sending: Vec::with_capacity(CAPACITY),
            corks: Corks::default(),
            collecting: Vec::new(),
            wheel: Wheel::new(now),
            due: Vec::with_capacity(CAPACITY),
        }
    }

    /// Flushes the connection at the end of the turn.
    #[inline]
    pub(super) fn touch<P>(&mut self, id: ConnId, connection: &mut Connection<P>) {
        if !connection.is_touched {
            connection.is_touched = true;
            self.touched.push(id);
        }
    }

    /// The connection is being flushed.
    #[inline]
    pub(super) fn untouch<P>(connection: &mut Connection<P>) {
        connection.is_touched = false;
    }

    /// Makes sure that the wheel fires for the connection no later than at `deadline`.
    #[inline]
    pub(super) fn arm<P>(&mut self, id: ConnId, connection: &mut Connection<P>, deadline: Instant) {
        if deadline < connection.timer_at {
            connection.timer_at = deadline;
            self.wheel.insert(deadline, connection.timer_token(id));
        }
    }

    /// When the wheel fires next, or answers have waited for long enough.
    pub(super) fn next(&self) -> Instant {
        self.wheel.next().unwrap_or(Instant::MAX).min(self.corks.next())
    }

    /// Whether the time of a token may have come by `now`.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.wheel.is_due(now)
    }

    /// Takes the tokens whose time has come by `now`; give the list back with [`Agenda::put_back`].
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

#[cfg(test)]
mod tests {
    use super::super::protocol::Http;
    use super::*;

    /// Purpose: a connection that is used for hours has a few entries in the timer wheel, although each of its requests has a
    /// deadline that is closer than the one before. Once, it collected thousands, and was looked at more often than it was asked.
    #[test]
    fn a_busy_connection_has_few_timers() {
        const WRITE: Duration = Duration::from_secs(30);
        const IDLE: Duration = Duration::from_secs(60);
        let (id, mut now) = (ConnId(0), Instant::from_nanos(1_000_000_000));
        let mut connections = Connections::<Http>::default();
        let mut agenda = Agenda::new(now);
        connections.open(id, (None, Versions::Both), now);
        let (mut deadline, mut looks, mut asked) = (now + IDLE, 0, 0);
        for step in 0..100_000_u64 {
            now += Duration::from_millis(50 + step * 7 % 100);
            let due = agenda.take_due(now);
            for &token in &due {
                if connections.fired(token, now).is_some() {
                    looks += 1;
                    agenda.arm(id, connections.get_mut(id), deadline);
                }
            }
            agenda.put_back(due);
            asked += 1;
            // Its answer is sent, and then it is idle.
            agenda.arm(id, connections.get_mut(id), now + WRITE);
            deadline = now + IDLE;
            agenda.arm(id, connections.get_mut(id), deadline);
            let timers = agenda.wheel.len();
            assert!(timers <= 4, "{timers} timers after {asked} requests");
        }
        assert!(looks * 100 < asked, "looked at {looks} times for {asked} requests");
    }
}
