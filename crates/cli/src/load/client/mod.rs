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

mod connections;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::http1::client::{End, Eof, Malformed, Next, Reader};
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;
use highwater_sys::dial::{Dial, Event, Failure};

use super::demand::Demand;
use super::expect::Check;
use super::request::{Choice, Requests};
use super::tally::{Outcome, Span, Tally};
use super::template::Values;

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
    pub(crate) requests: Arc<Requests>,
    /// Which of them is next.
    pub(crate) choice: Choice,
    /// What their parameters are.
    pub(crate) values: Values,
    /// Latencies are kept over time.
    pub(crate) logs: bool,
}

/// What a dialer must be made with to send `requests`, so many of them at once: those that never change, in order.
pub(crate) fn messages(requests: &Requests, pipeline: usize) -> Vec<Vec<u8>> {
    requests.list.iter().filter_map(|request| Some(request.fixed()?.repeat(pipeline))).collect()
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
    /// Which request is on it; a batch has only one kind.
    request: u32,
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
    /// The check of each connection's answer; empty if no request expects anything.
    checks: Vec<Check>,
    checking: bool,
    /// For each request: its message and size, if it never changes.
    fixed: Vec<Option<(usize, usize)>>,
    /// For bodies that are being written.
    scratch: Vec<u8>,
    /// Connections that exist and are not lingering.
    alive: usize,
    /// The last used first, with its serial: some may have been closed since.
    idle: Vec<(u32, u32)>,
    /// Until when, with slot and serial, in order.
    lingering: VecDeque<(Instant, u32, u32)>,
    wheel: Wheel,
    todo: Vec<Todo>,
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
        let requests = &plan.requests.list;
        let mut messages = 0..;
        let fixed = requests.iter().map(|request| {
            let size = request.fixed()?.len();
            messages.next().map(|message| (message, size))
        });
        let fixed = fixed.collect();
        let rows = if plan.requests.is_mix { requests.len() } else { 0 };
        let core = Core {
            end: span.to,
            demand,
            connections: Vec::new(),
            checks: Vec::new(),
            checking: requests.iter().any(|request| request.expect.is_some()),
            fixed,
            scratch: Vec::new(),
            alive: 0,
            idle: Vec::new(),
            lingering: VecDeque::new(),
            wheel: Wheel::new(span.start),
            todo: Vec::new(),
            tally: Tally::new(span, deadline).with_details(rows, plan.logs),
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
        let request = core.plan.choice.next();
        match dialed {
            Ok(index) => core.assign(index, request, due, now),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                core.sent(request, due, now, 1);
                core.tally.ended(request, due.intended, now, Outcome::Failed(errno));
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
                    let connection = &self.core.connections[index as usize];
                    // It may have failed meanwhile.
                    if connection.state == State::Busy {
                        self.send(index, connection.request as usize, connection.owed);
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

    /// Sends as many requests of one kind as the connection owes answers.
    #[inline]
    fn send(&mut self, index: u32, request: usize, count: usize) {
        let (dialer, core) = (&mut self.dialer, &mut self.core);
        if let Some((message, size)) = core.fixed[request] {
            return dialer.send(ConnId(index), message, size * count);
        }
        let Core { plan, scratch, .. } = core;
        let request = &plan.requests.list[request];
        dialer.write(ConnId(index), |buffer| {
            for _ in 0..count {
                request.write(&mut plan.values, scratch, buffer);
            }
        });
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
            let request = &self.plan.requests.list[connection.request as usize];
            let read = match request.expect {
                None => connection.reader.skip(&mut bytes, request.asked),
                Some(_) => self.read_and_check(index, &mut bytes),
            };
            match read {
                Ok(None) => return,
                Ok(Some(end)) => self.on_answer(index, end, now),
                Err(malformed) => {
                    return self.give_up(index, now, Outcome::Malformed(malformed.reason()));
                }
            }
        }
    }

    /// As [`Reader::skip`], and looks at what it skips.
    fn read_and_check(&mut self, index: u32, bytes: &mut &[u8]) -> Result<Option<End>, Malformed> {
        let connection = &mut self.connections[index as usize];
        let request = &self.plan.requests.list[connection.request as usize];
        let Some(expect) = &request.expect else { return Ok(None) };
        let check = &mut self.checks[index as usize];
        loop {
            match connection.reader.next(bytes, request.asked)? {
                Next::Wait => return Ok(None),
                Next::End(end, _) => return Ok(Some(end)),
                Next::Head(head) => check.head(expect, &head),
                Next::Content(piece) => check.content(expect, piece),
                Next::Interim(_) | Next::Raw(_) => {}
            }
        }
    }

    /// What an answer is, according to what was expected of it.
    #[inline]
    fn judge(&mut self, index: u32, status: u16) -> Outcome {
        if !self.checking {
            return Outcome::Answered(status);
        }
        let request = &self.plan.requests.list[self.connections[index as usize].request as usize];
        let expect = request.expect.as_ref();
        let Some(wrong) = expect.and_then(|expect| self.checks[index as usize].end(expect)) else {
            return Outcome::Answered(status);
        };
        self.tally.wrong(|| format!("{}: {wrong}", request.name));
        Outcome::Wrong(status)
    }

    #[inline]
    fn on_answer(&mut self, index: u32, answer: End, now: Instant) {
        let outcome = self.judge(index, answer.status);
        let connection = &mut self.connections[index as usize];
        self.tally.ended(connection.request as usize, connection.intended, now, outcome);
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
        let (request, intended) = (connection.request as usize, connection.intended);
        for _ in 0..connection.owed {
            self.tally.ended(request, intended, now, outcome);
        }
        self.free(index);
        self.demand.turned_away(now);
    }
}

#[cfg(test)]
mod tests;
