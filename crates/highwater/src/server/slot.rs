//! A connection as its worker keeps it: the protocol's state, and what is under way for it.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use highwater_core::driver::{Close, Reading};
use highwater_core::http1::Connection;
use highwater_core::time::Instant;

use super::inbox::Token;
use super::pool::Ticket;
use super::upload::Upload;
use crate::app::{
    Asked, BodyFeed, ByteStream, Disconnected, GuardedFuture, Panic, Response, Target,
};

/// For how long a connection without a request counts as work after it was accepted. Its request is
/// most likely on its way; but clients that connect and say nothing must not shut the gate for others.
pub(super) const FRESH_MAX: Duration = Duration::from_millis(100);

/// What a connection wants from its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// Nothing: it is idle, or it is being closed.
    None,
    /// The worker's time: it was just accepted, or its request waits to be started.
    Time,
    /// An answer that is being made: its handler was started and waits for something else.
    Answer,
}

/// A handler that has taken all there was at the ends of so many turns in a row keeps up with its client: what
/// comes is read as it comes. Before that, each delivery costs a command of its own.
const KEPT_UP_MIN: u8 = 8;

/// What a connection waits for, if a handler did not answer at once.
pub(super) enum Task {
    /// The reply, from a future that is polled here.
    Answer(GuardedFuture<Response>),
    /// The reply, from the worker's job of this number on the pool. Dropped with its ticket, the job
    /// is not begun; without one it is, even if nobody waits for it any more.
    Offloaded { job: u64, _ticket: Option<Ticket> },
    /// Nothing: the connection belongs to another protocol, spoken by this future.
    Upgraded(GuardedFuture<Result<(), Panic>>),
}

/// One entry of a worker's table, indexed by `ConnId`.
pub(super) struct Slot {
    pub(super) connection: Connection,
    pub(super) alive: bool,
    /// Already on the worker's list of connections to flush this turn.
    pub(super) touched: bool,
    /// A send is in flight.
    pub(super) sending: bool,
    /// The last send was commanded; nothing but a close, to cut it off, may follow.
    pub(super) ended: bool,
    /// No command may name the connection any more; `Closed` is to come.
    pub(super) closing: bool,
    /// The connection is to be closed at the end of the turn.
    pub(super) close: Option<Close>,
    /// What the driver was last told. `Once` until the first delivery, then as wanted.
    pub(super) reading: Reading,
    /// The driver has been told what is wanted since the first delivery, and so tells of its end.
    pub(super) is_watched: bool,
    generation: u32,
    /// What the request at hand was routed to.
    pub(super) target: Option<Target>,
    /// Under which index it is counted.
    pub(super) endpoint: u16,
    pub(super) task: Option<Task>,
    /// Jobs given to the pool so far. The answer of one that was too late must not be taken for that
    /// Counted among those that wait for a future.
    pub(super) awaits: bool,
    /// The content of a streamed reply, as far as it is not encoded yet.
    pub(super) content: Option<ByteStream>,
    /// ... which nobody waits for the end of: an event stream, or an upgraded protocol that no longer
    /// reads. It ends with its client.
    pub(super) is_endless: bool,
    /// Who wants to know when the client has gone; made once per connection, if at all.
    pub(super) disconnected: OnceCell<Disconnected>,
    /// Where the pieces of a streamed request body go.
    pub(super) feed: Option<BodyFeed>,
    /// At how many ends of turns in a row nothing waited in it.
    pub(super) kept_up: u8,
    /// Bytes counted against the memory for bodies.
    pub(super) charged: usize,
    /// What is known of an upload that holds a place of its route's limit.
    pub(super) upload: Upload,
    pub(super) peer: Option<SocketAddr>,
    /// The waker of this connection's tasks; made once per connection, if at all.
    pub(super) waker: Option<Waker>,
    /// The protocols that the request at hand offers to go on with (`Upgrade`); mostly none.
    pub(super) offered: Option<Box<[u8]>>,
    /// When the request at hand was found.
    pub(super) started: Instant,
    /// From when on the client no longer wants the answer; `MAX` if it did not say.
    pub(super) deadline: Instant,
    /// When the handler must have answered.
    pub(super) task_deadline: Instant,
    /// When the timer wheel will fire for this connection; `MAX` if it will not.
    pub(super) timer_at: Instant,
    /// Accepted from a listen queue in which it may have waited for long: whether its client is still
    /// there is looked at before its first request is served.
    pub(super) suspect: bool,
    /// Input waits in the queue of requests.
    pub(super) queued: bool,
    /// When the first input came that is not yet counted as ready, and when the last: while one
    /// request waits, others may come behind it. `MAX` if none has.
    next_ready: Instant,
    last_ready: Instant,
    /// What it was last counted as wanting.
    pub(super) demand: Demand,
    accepted: Instant,
}

impl Slot {
    pub(super) fn vacant() -> Self {
        Slot {
            connection: Connection::new(Instant::ZERO),
            alive: false,
            touched: false,
            sending: false,
            ended: false,
            closing: false,
            close: None,
            reading: Reading::Once,
            is_watched: false,
            generation: 0,
            target: None,
            endpoint: 0,
            task: None,
            awaits: false,
            content: None,
            is_endless: false,
            disconnected: OnceCell::new(),
            feed: None,
            kept_up: 0,
            charged: 0,
            upload: Upload::NONE,
            peer: None,
            waker: None,
            offered: None,
            started: Instant::ZERO,
            deadline: Instant::MAX,
            task_deadline: Instant::MAX,
            timer_at: Instant::MAX,
            suspect: false,
            queued: false,
            next_ready: Instant::MAX,
            last_ready: Instant::MAX,
            demand: Demand::None,
            accepted: Instant::ZERO,
        }
    }

    pub(super) fn open(&mut self, now: Instant, peer: Option<SocketAddr>) {
        *self = Slot {
            connection: Connection::new(now),
            alive: true,
            generation: self.generation,
            peer,
            accepted: now,
            ..Slot::vacant()
        };
    }

    /// Drops everything but the generation, which moves on so that old tokens name nothing.
    pub(super) fn vacate(&mut self) {
        *self = Slot { generation: self.generation.wrapping_add(1), ..Slot::vacant() };
    }

    /// What the connection wants from its worker: see `gate.rs`.
    #[inline]
    pub(super) fn demand(&self, now: Instant) -> Demand {
        if !self.alive || self.closing {
            Demand::None
        } else if self.queued || self.is_fresh() && now < self.accepted + FRESH_MAX {
            Demand::Time
        } else if self.connection.is_reply_owed() {
            Demand::Answer
        } else {
            Demand::None
        }
    }

    /// Input came while the connection's request was waiting.
    pub(super) fn note_more(&mut self, now: Instant) {
        self.next_ready = self.next_ready.min(now);
        self.last_ready = now;
    }

    /// The request that was waiting has its turn; it was ready at `ready`. Returns when what is behind it
    /// was ready: that is known of the first and the last of it only, and in between counts as last.
    pub(super) fn take_next_ready(&mut self, ready: Instant) -> Instant {
        if self.next_ready == Instant::MAX {
            return ready;
        }
        let more = self.last_ready > self.next_ready;
        let after = if more { self.last_ready } else { Instant::MAX };
        std::mem::replace(&mut self.next_ready, after)
    }

    /// Whether it was accepted for a request that has not come yet.
    fn is_fresh(&self) -> bool {
        self.target.is_none()
    }

    /// When it will have been fresh for so long that it no longer counts as work; `MAX` if it does not.
    #[inline]
    pub(super) fn fresh_until(&self) -> Instant {
        match self.demand == Demand::Time && self.is_fresh() {
            true => self.accepted + FRESH_MAX,
            false => Instant::MAX,
        }
    }

    /// What the request at hand says about the answers it can have.
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            is_head: self.connection.is_head(),
            is_complete: self.connection.is_request_complete(),
            upgrade: self.offered.as_deref().unwrap_or_default(),
        }
    }

    /// When it was accepted.
    pub(super) fn accepted_at(&self) -> Instant {
        self.accepted
    }

    /// How input is to be read that has a use. What is read for a feed must not be much more than its
    /// handler takes: so a body is read one delivery at a time until its handler has shown that it keeps up.
    #[inline]
    pub(super) fn reading_wanted(&mut self) -> Reading {
        let Some(feed) = &self.feed else { return Reading::Stream };
        self.kept_up = if feed.is_drained() { self.kept_up.saturating_add(1) } else { 0 };
        if self.kept_up >= KEPT_UP_MIN { Reading::Stream } else { Reading::Once }
    }

    pub(super) fn token(&self, index: usize) -> Token {
        Token::new(index, self.generation)
    }
}
