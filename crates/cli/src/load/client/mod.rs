//! One client thread: which connection sends the next request, and what was the result of the last one?
//!
//! Generic over the dialer, and given the time. A turn is *due → command → poll → answers → command*: events
//! only note what to do, as the dialer's contract requires.
//!
//! ```text
//!  a request is due: an idle connection, else a new one, else it waits in line
//!
//!  dial ─▶ Connecting ─▶ Busy ⇄ Idle ─▶ Free        Free: no connection, or the dialer is about to
//!                          └─▶ Lingering ─▶ Free           be told to close it
//! ```
//!
//! Invariants: a request that was sent is tallied exactly once; connecting and busy connections owe at
//! least one answer, all others none.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::http1::client::{Asked, End, Eof, Reader};
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;
use highwater_sys::dial::{Dial, Event, Failure};

use super::demand::Demand;
use super::schedule::Due;
use super::tally::{Outcome, Span, Tally};

/// How many requests one turn sends before it reads answers again.
const BATCH_MAX: usize = 256;
/// How long a connection that the server should close is kept. The side that closes first holds the port for
/// a minute; a client has fewer ports than a server has connections.
const LINGER: Duration = Duration::from_secs(1);
/// How many connections may linger at a time; further ones are closed by the client.
pub(crate) const LINGERING_MAX: usize = 1024;

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// At most this many connections at a time, not counting lingering ones.
    pub(crate) connections: usize,
    /// Requests sent in one go.
    pub(crate) pipeline: usize,
    /// Requests after which a connection is closed.
    pub(crate) requests_per_connection: u64,
    /// How long after its intended send a request is given up.
    pub(crate) give_up: Duration,
    /// Bytes of one request, for each message.
    pub(crate) request_sizes: Vec<usize>,
    /// What they ask for, as far as that decides where an answer ends.
    pub(crate) asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Connecting,
    Busy,
    Idle,
    Lingering,
}

struct Connection {
    state: State,
    /// Changes when the connection is freed, so that old references to it are not taken for its successor's.
    serial: u32,
    /// A timer of this connection is in the wheel.
    timed: bool,
    /// The dialer must get the command to close it.
    closing: bool,
    /// When the requests on it were meant to be sent.
    intended: Instant,
    /// Answers it owes.
    owed: usize,
    /// Requests it may still carry.
    left: u64,
    reader: Reader,
}

/// Commands for the dialer. Each is checked again when it is given: a connection may fail before.
#[derive(Clone, Copy)]
enum Todo {
    Send(u32),
    Close(u32),
}

/// Sends requests and tallies their results.
pub(crate) struct Client<D> {
    dialer: D,
    core: Core,
}

/// Everything but the dialer, so that a poll's callback can reach it.
struct Core {
    plan: Plan,
    /// When the measured span ends.
    end: Instant,
    demand: Demand,
    connections: Vec<Connection>,
    /// Connections that exist and are not lingering.
    alive: usize,
    /// The last used first, with its serial: some may have been closed since.
    idle: Vec<(u32, u32)>,
    /// Until when, with slot and serial, in order.
    lingering: VecDeque<(Instant, u32, u32)>,
    wheel: Wheel,
    todo: Vec<Todo>,
    next_message: usize,
    tally: Tally,
}

impl<D: Dial> Client<D> {
    pub(crate) fn new(
        dialer: D,
        plan: Plan,
        demand: Demand,
        span: Span,
        deadline: Option<Duration>,
    ) -> Client<D> {
        let core = Core {
            end: span.to,
            demand,
            connections: Vec::new(),
            alive: 0,
            idle: Vec::new(),
            lingering: VecDeque::new(),
            wheel: Wheel::new(span.start),
            todo: Vec::new(),
            next_message: 0,
            tally: Tally::new(span, deadline),
            plan,
        };
        Client { dialer, core }
    }

    /// The results so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.core.tally
    }

    /// Closes every connection, and returns the results.
    pub(crate) fn finish(self) -> Tally {
        self.core.tally
    }

    /// Whether every measured request has ended.
    pub(crate) fn is_decided(&self, now: Instant) -> bool {
        let core = &self.core;
        now >= core.end && core.demand.is_past(core.end) && core.tally.open == 0
    }

    /// Sends requests that are due at `now`, and gives up those that have taken too long.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.core.expire(now);
        // Given-up requests free their connections before new ones are opened.
        self.command();
        let core = &mut self.core;
        core.demand.advance(now, core.plan.give_up, &mut core.tally);
        for _ in 0..BATCH_MAX {
            if !self.core.demand.has_waiting() || !self.begin_next(now) {
                break;
            }
        }
        self.command();
    }

    /// Waits, until `latest` at most, and handles the events; `clock` gives their time.
    ///
    /// # Errors
    /// As [`Dial::poll`].
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        latest: Instant,
        clock: impl Fn() -> Instant,
    ) -> io::Result<()> {
        let wait = self.core.wait(now, latest);
        let (core, mut happened) = (&mut self.core, None);
        self.dialer.poll(wait, &mut |event| {
            // Everything that one poll reports happened before it returned.
            core.on_event(event, *happened.get_or_insert_with(&clock));
        })?;
        self.command();
        Ok(())
    }

    /// Sends the first in line. False if no connection is free.
    fn begin_next(&mut self, now: Instant) -> bool {
        let core = &mut self.core;
        let dialed = match core.pop_idle() {
            Some(index) => Ok(index),
            None if core.alive >= core.plan.connections => return false,
            None => self.dialer.connect().map(|id| core.dialed(id)),
        };
        let Some(due) = core.demand.take() else { return false };
        match dialed {
            Ok(index) => core.assign(index, due, now),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                core.sent(due, now, 1);
                core.tally.ended(due.intended, now, Outcome::Failed(errno));
                core.demand.turned_away(now);
            }
        }
        true
    }

    fn command(&mut self) {
        let mut todo = std::mem::take(&mut self.core.todo);
        for todo in todo.drain(..) {
            match todo {
                Todo::Send(index) => {
                    if let Some((message, len)) = self.core.message(index) {
                        self.dialer.send(ConnId(index), message, len);
                    }
                }
                Todo::Close(index) => {
                    if std::mem::take(&mut self.core.connections[index as usize].closing) {
                        self.dialer.close(ConnId(index));
                    }
                }
            }
        }
        self.core.todo = todo;
    }
}

/// ---- time
impl Core {
    /// Gives up requests that have taken too long.
    fn expire(&mut self, now: Instant) {
        let mut due = Vec::new();
        self.wheel.expire(now, &mut |token| due.push(token));
        for token in due {
            self.on_timer(token as u32, (token >> 32) as u32, now);
        }
        while let Some(&(until, index, serial)) = self.lingering.front()
            && until <= now
        {
            self.lingering.pop_front();
            if self.connections[index as usize].serial == serial {
                self.close(index);
            }
        }
    }

    fn on_timer(&mut self, index: u32, serial: u32, now: Instant) {
        let connection = &mut self.connections[index as usize];
        if connection.serial != serial {
            return;
        }
        connection.timed = false;
        if !matches!(connection.state, State::Busy | State::Connecting) {
            return;
        }
        if connection.intended + self.plan.give_up > now {
            self.set_timer(index); // It has sent other requests since.
        } else {
            self.give_up(index, now, Outcome::TimedOut);
        }
    }

    fn set_timer(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.timed = true;
        let token = u64::from(connection.serial) << 32 | u64::from(index);
        self.wheel.insert(connection.intended + self.plan.give_up, token);
    }

    fn wait(&self, now: Instant, latest: Instant) -> Wait {
        let has_room = !self.idle.is_empty() || self.alive < self.plan.connections;
        if self.demand.has_waiting() && has_room {
            return Wait::No;
        }
        let lingering = self.lingering.front().map(|first| first.0);
        let soonest = [self.demand.next(), lingering, self.wheel.next(), Some(latest)];
        match soonest.into_iter().flatten().min() {
            Some(soonest) if soonest > now => Wait::Until(soonest),
            _ => Wait::No,
        }
    }
}

/// ---- events
impl Core {
    fn on_event(&mut self, event: Event<'_>, now: Instant) {
        match event {
            Event::Connected(id) => {
                let connection = &mut self.connections[id.index()];
                if connection.state == State::Connecting {
                    connection.state = State::Busy;
                    self.todo.push(Todo::Send(id.0));
                }
            }
            Event::Received(id, bytes) => self.on_received(id.0, bytes, now),
            Event::Eof(id) => self.on_eof(id.0, now),
            Event::Failed(id, failure) => self.on_failed(id.0, failure, now),
        }
    }

    #[inline]
    fn on_received(&mut self, index: u32, mut bytes: &[u8], now: Instant) {
        self.tally.received(now, bytes.len());
        while !bytes.is_empty() {
            let connection = &mut self.connections[index as usize];
            match connection.state {
                State::Busy => {}
                State::Idle => {
                    // No request asked for these bytes: the connection is not used any more.
                    self.tally.malformation.get_or_insert("bytes after the end of an answer");
                    return self.close(index);
                }
                State::Free | State::Connecting | State::Lingering => return,
            }
            match connection.reader.skip(&mut bytes, self.plan.asked) {
                Ok(None) => return,
                Ok(Some(end)) => self.on_answer(index, end, now),
                Err(malformed) => {
                    return self.give_up(index, now, Outcome::Malformed(malformed.reason()));
                }
            }
        }
    }

    #[inline]
    fn on_answer(&mut self, index: u32, answer: End, now: Instant) {
        let connection = &mut self.connections[index as usize];
        self.tally.ended(connection.intended, now, Outcome::Answered(answer.status));
        connection.owed -= 1;
        connection.left = connection.left.saturating_sub(1);
        let is_used_up = connection.left == 0;
        if connection.owed > 0 {
            if !answer.keep_alive {
                // Other requests on it will not be answered.
                self.give_up(index, now, Outcome::Truncated);
            }
            return;
        }
        if matches!(answer.status, 429 | 503) {
            self.demand.turned_away(now);
        } else {
            self.demand.answered();
        }
        if !answer.keep_alive && self.lingering.len() < LINGERING_MAX {
            connection.state = State::Lingering;
            self.lingering.push_back((now + LINGER, index, connection.serial));
            self.alive -= 1;
        } else if !answer.keep_alive || is_used_up {
            self.close(index);
        } else {
            connection.state = State::Idle;
            self.idle.push((index, connection.serial));
        }
    }

    fn on_eof(&mut self, index: u32, now: Instant) {
        let connection = &mut self.connections[index as usize];
        match connection.state {
            State::Free => {}
            State::Lingering | State::Idle => self.close(index),
            State::Connecting | State::Busy => match connection.reader.on_eof() {
                Eof::End(answer) => {
                    self.on_answer(index, answer, now);
                    if self.connections[index as usize].state != State::Free {
                        self.close(index);
                    }
                }
                Eof::Clean | Eof::Truncated => self.give_up(index, now, Outcome::Truncated),
            },
        }
    }

    fn on_failed(&mut self, index: u32, failure: Failure, now: Instant) {
        let connection = &mut self.connections[index as usize];
        connection.closing = false;
        match connection.state {
            State::Free => {}
            State::Lingering | State::Idle => self.free(index),
            State::Connecting | State::Busy => self.broken(index, now, failure.into()),
        }
    }

    /// The requests on a connection have failed, and it must be closed.
    fn give_up(&mut self, index: u32, now: Instant, outcome: Outcome) {
        self.broken(index, now, outcome);
        self.close_freed(index);
    }

    /// The requests on a connection have failed with it.
    fn broken(&mut self, index: u32, now: Instant, outcome: Outcome) {
        let connection = &mut self.connections[index as usize];
        let (intended, owed) = (connection.intended, connection.owed);
        for _ in 0..owed {
            self.tally.ended(intended, now, outcome);
        }
        self.free(index);
        self.demand.turned_away(now);
    }
}

/// Connections.
impl Core {
    fn pop_idle(&mut self) -> Option<u32> {
        while let Some((index, serial)) = self.idle.pop() {
            if self.connections[index as usize].serial == serial {
                return Some(index);
            }
        }
        None
    }

    fn dialed(&mut self, id: ConnId) -> u32 {
        while self.connections.len() <= id.index() {
            self.connections.push(Connection {
                state: State::Free,
                serial: 0,
                timed: false,
                closing: false,
                intended: Instant::ZERO,
                owed: 0,
                left: 0,
                reader: Reader::default(),
            });
        }
        let connection = &mut self.connections[id.index()];
        connection.state = State::Connecting;
        connection.left = self.plan.requests_per_connection;
        connection.reader.reset();
        self.alive += 1;
        id.0
    }

    /// Gives due requests to a connection, which sends them as soon as it is established.
    fn assign(&mut self, index: u32, due: Due, now: Instant) {
        let connection = &mut self.connections[index as usize];
        let batch = (self.plan.pipeline as u64).min(connection.left) as usize;
        connection.intended = due.intended;
        connection.owed = batch;
        if connection.state == State::Idle {
            connection.state = State::Busy;
            self.todo.push(Todo::Send(index));
        }
        if !connection.timed {
            self.set_timer(index);
        }
        self.sent(due, now, batch);
    }

    fn sent(&mut self, due: Due, now: Instant, requests: usize) {
        for _ in 0..requests {
            if !self.demand.is_open() {
                self.tally.due(due.intended);
            }
            self.tally.sent(due, now);
        }
    }

    /// The output of a connection: the next message, as many requests of it as it owes answers. `None` if it
    /// has failed meanwhile.
    fn message(&mut self, index: u32) -> Option<(usize, usize)> {
        let connection = &self.connections[index as usize];
        if connection.state != State::Busy {
            return None;
        }
        let message = self.next_message;
        self.next_message = (message + 1) % self.plan.request_sizes.len();
        Some((message, self.plan.request_sizes[message] * connection.owed))
    }

    /// Lets the dialer close a connection without open requests.
    fn close(&mut self, index: u32) {
        self.free(index);
        self.close_freed(index);
    }

    fn close_freed(&mut self, index: u32) {
        self.connections[index as usize].closing = true;
        self.todo.push(Todo::Close(index));
    }

    fn free(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        self.alive -= usize::from(connection.state != State::Lingering);
        connection.state = State::Free;
        connection.serial = connection.serial.wrapping_add(1);
        connection.timed = false;
        connection.owed = 0;
    }
}

#[cfg(test)]
mod tests;
