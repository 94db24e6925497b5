//! One client thread: which connection sends the next request, and what came of the last one?
//!
//! Generic over the dialer, and given the time: a turn is `due → poll → answers → commands`.
//!
//! ```text
//!  due ──▶ idle connection, else dial, else wait in line (its clock is running)
//!  Connecting ─▶ Busy ⇄ Idle ─▶ (closed) | Lingering ─▶ (closed)
//! ```
//!
//! In a closed loop there are as many users as connections, each with one batch of requests at a
//! time; a user whose request failed or was refused pauses before the next. In an open loop requests
//! are due by schedule, and connections are made as they are needed, up to a bound.
//!
//! Invariants: a request that was sent is tallied exactly once; a connection that is not idle and not
//! lingering owes at least one answer; idle ones owe none.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;
use highwater_sys::dial::{Dial, Event, Failure};

use super::response::{Answer, Parser};
use super::schedule::Schedule;
use super::tally::{Outcome, Span, Tally};

/// How many requests one turn sends before it looks at answers again.
const BATCH_MAX: usize = 256;
/// How many requests may wait for a connection; beyond that they are dropped and counted as unsent.
const LINE_MAX: usize = 1 << 20;
/// How long a connection that the server is to close is kept for it. Whoever closes first holds the
/// port for a minute; a client has fewer ports than a server has connections.
const LINGER: Duration = Duration::from_secs(1);
/// How many connections may linger at a time; the next are closed by us.
pub(crate) const LINGERING_MAX: usize = 1024;

/// What a client is to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// At most so many connections at a time; in a closed loop, exactly as many users.
    pub(crate) connections: usize,
    /// Requests sent in one go, of a closed loop.
    pub(crate) pipeline: usize,
    /// Requests after which a connection is closed.
    pub(crate) requests_per_connection: u64,
    /// How long after its intended send a request is given up.
    pub(crate) give_up: Duration,
    /// How long a user pauses after a failure.
    pub(crate) backoff: Duration,
    /// Bytes of one request, for each message.
    pub(crate) request_sizes: Vec<usize>,
    /// The requests are HEAD.
    pub(crate) bodiless: bool,
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
    /// Changes when the connection is freed, so that its timers do not reach its successor.
    serial: u32,
    /// A timer of this connection is in the wheel.
    timed: bool,
    /// The dialer is to be told to close it.
    closing: bool,
    /// When the requests on it were meant to be sent.
    intended: Instant,
    /// Answers it owes.
    owed: usize,
    /// Requests it may still carry.
    left: u64,
    parser: Parser,
}

/// What the callback of a poll leaves to be done.
#[derive(Clone, Copy)]
enum Todo {
    Send(u32),
    Close(u32),
}

/// Sends requests and tallies what comes of them.
pub(crate) struct Client<D> {
    dialer: D,
    core: Core,
}

/// Everything but the dialer, so that a poll's callback can reach it.
struct Core {
    plan: Plan,
    span: Span,
    connections: Vec<Connection>,
    /// Connections that exist and are not lingering.
    alive: usize,
    lingering: VecDeque<(Instant, u32, u32)>,
    /// The last used first, with its serial: some may have been closed since.
    idle: Vec<(u32, u32)>,
    /// Requests that wait for a connection, by their intended instant.
    line: VecDeque<Instant>,
    /// Open loop; `None` in a closed one.
    schedule: Option<Schedule>,
    /// Users that pause until then, in order.
    pausing: VecDeque<Instant>,
    /// Users ready for their next requests.
    ready: usize,
    wheel: Wheel,
    todo: Vec<Todo>,
    next_message: usize,
    tally: Tally,
}

impl<D: Dial> Client<D> {
    /// `schedule` makes it an open loop.
    pub(crate) fn new(
        dialer: D,
        plan: Plan,
        schedule: Option<Schedule>,
        span: Span,
        tally: Tally,
    ) -> Client<D> {
        let ready = if schedule.is_some() { 0 } else { plan.connections };
        let core = Core {
            span,
            connections: Vec::new(),
            alive: 0,
            lingering: VecDeque::new(),
            idle: Vec::new(),
            line: VecDeque::new(),
            schedule,
            pausing: VecDeque::new(),
            ready,
            wheel: Wheel::new(span.start),
            todo: Vec::new(),
            next_message: 0,
            tally,
            plan,
        };
        Client { dialer, core }
    }

    /// What was seen so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.core.tally
    }

    /// What was seen, and the end.
    pub(crate) fn finish(self) -> Tally {
        self.core.tally
    }

    /// Whether every measured request has ended.
    pub(crate) fn is_decided(&self, now: Instant) -> bool {
        let span_end = self.core.span.to;
        let all_due = self.core.schedule.as_ref().is_none_or(|next| next.peek() >= span_end);
        now >= span_end && all_due && self.core.tally.open == 0
    }

    /// Sends what is due at `now`.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.core.expire(now);
        self.core.arrive(now);
        for _ in 0..BATCH_MAX {
            if self.core.line.is_empty() || !self.begin_next(now) {
                break;
            }
        }
        self.command();
    }

    /// Waits, until `latest` at most, and takes in what happened; `clock` says when that was.
    ///
    /// # Errors
    /// As [`Dial::poll`].
    pub(crate) fn poll(
        &mut self,
        latest: Instant,
        clock: impl Fn() -> Instant,
    ) -> std::io::Result<()> {
        let wait = self.core.wait(latest);
        let (core, mut now) = (&mut self.core, None);
        self.dialer.poll(wait, &mut |event| {
            let now = *now.get_or_insert_with(&clock);
            core.on_event(event, now);
        })?;
        self.command();
        Ok(())
    }

    /// Sends the first request in line. False if no connection is free.
    fn begin_next(&mut self, now: Instant) -> bool {
        let core = &mut self.core;
        let index = match core.pop_idle() {
            Some(index) => index,
            None if core.alive >= core.plan.connections => return false,
            None => match self.dialer.connect() {
                Ok(id) => core.dialed(id),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    core.not_dialed(errno, now);
                    return true;
                }
            },
        };
        core.assign(index, now);
        true
    }

    fn command(&mut self) {
        let mut todo = std::mem::take(&mut self.core.todo);
        for todo in todo.drain(..) {
            match todo {
                Todo::Close(index) => {
                    if std::mem::take(&mut self.core.connections[index as usize].closing) {
                        self.dialer.close(ConnId(index));
                    }
                }
                Todo::Send(index) => {
                    if let Some((message, len)) = self.core.message(index) {
                        self.dialer.send(ConnId(index), message, len);
                    }
                }
            }
        }
        self.core.todo = todo;
    }
}

/// What is due.
impl Core {
    /// Puts what is due by now into line.
    fn arrive(&mut self, now: Instant) {
        if let Some(schedule) = &mut self.schedule {
            for _ in 0..BATCH_MAX {
                if schedule.peek() > now {
                    break;
                }
                let intended = schedule.take();
                self.tally.due(intended);
                if self.line.len() < LINE_MAX {
                    self.line.push_back(intended);
                } else {
                    self.tally.expired(intended);
                }
            }
            return;
        }
        while self.pausing.front().is_some_and(|until| *until <= now) {
            self.pausing.pop_front();
            self.ready += 1;
        }
        for _ in 0..std::mem::take(&mut self.ready) {
            self.line.push_back(now);
        }
    }

    /// Gives up what has waited too long.
    fn expire(&mut self, now: Instant) {
        while let Some(&intended) = self.line.front()
            && intended + self.plan.give_up <= now
            && self.schedule.is_some()
        {
            self.line.pop_front();
            self.tally.expired(intended);
        }
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
        let give_up = self.plan.give_up;
        let connection = &mut self.connections[index as usize];
        if connection.serial != serial {
            return;
        }
        connection.timed = false;
        if !matches!(connection.state, State::Busy | State::Connecting) {
            return;
        }
        let expires = connection.intended + give_up;
        if expires > now {
            connection.timed = true;
            self.wheel.insert(expires, timer(index, serial));
        } else {
            self.give_up(index, now, Outcome::TimedOut);
        }
    }

    fn wait(&self, latest: Instant) -> Wait {
        if self.ready > 0 || (!self.line.is_empty() && !self.idle.is_empty()) {
            return Wait::No;
        }
        if !self.line.is_empty() && self.alive < self.plan.connections {
            return Wait::No;
        }
        let arrival = self.schedule.as_ref().map(Schedule::peek);
        let lingering = self.lingering.front().map(|first| first.0);
        let soonest = [arrival, lingering, self.pausing.front().copied(), self.wheel.next()];
        Wait::Until(soonest.into_iter().flatten().min().unwrap_or(latest).min(latest))
    }
}

/// What happens.
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
        loop {
            let connection = &mut self.connections[index as usize];
            match connection.state {
                State::Busy if !bytes.is_empty() => {}
                State::Idle if !bytes.is_empty() => {
                    // Nobody asked for these: the connection is of no more use.
                    self.tally.malformation.get_or_insert("bytes after the end of an answer");
                    return self.close(index);
                }
                _ => return,
            }
            match connection.parser.feed(&mut bytes) {
                Ok(None) => return,
                Ok(Some(answer)) => self.on_answer(index, answer, now),
                Err(malformed) => {
                    return self.give_up(index, now, Outcome::Malformed(malformed.0));
                }
            }
        }
    }

    #[inline]
    fn on_answer(&mut self, index: u32, answer: Answer, now: Instant) {
        let connection = &mut self.connections[index as usize];
        self.tally.ended(connection.intended, now, Outcome::Answered(answer.status));
        connection.owed -= 1;
        connection.left = connection.left.saturating_sub(1);
        let (owed, done) = (connection.owed, connection.left == 0 || !answer.keep_alive);
        if owed > 0 {
            if !answer.keep_alive {
                // What else was sent on it will not be answered.
                self.give_up(index, now, Outcome::Truncated);
            }
            return;
        }
        self.user_is_free(answer.status, now);
        if !done {
            self.connections[index as usize].state = State::Idle;
            let serial = self.connections[index as usize].serial;
            self.idle.push((index, serial));
        } else if !answer.keep_alive && self.lingering.len() < LINGERING_MAX {
            let connection = &mut self.connections[index as usize];
            connection.state = State::Lingering;
            self.lingering.push_back((now + LINGER, index, connection.serial));
            self.alive -= 1;
        } else {
            self.close(index);
        }
    }

    /// A user of a closed loop has its answers: it goes on, at once unless it was turned away.
    fn user_is_free(&mut self, status: u16, now: Instant) {
        if self.schedule.is_some() {
        } else if matches!(status, 429 | 503) {
            self.pausing.push_back(now + self.plan.backoff);
        } else {
            self.ready += 1;
        }
    }

    fn on_eof(&mut self, index: u32, now: Instant) {
        let connection = &mut self.connections[index as usize];
        match connection.state {
            State::Free => {}
            State::Lingering | State::Idle => self.close(index),
            State::Connecting | State::Busy => match connection.parser.end() {
                Some(answer) => {
                    self.on_answer(index, answer, now);
                    if self.connections[index as usize].state != State::Free {
                        self.close(index);
                    }
                }
                None => self.give_up(index, now, Outcome::Truncated),
            },
        }
    }

    fn on_failed(&mut self, index: u32, failure: Failure, now: Instant) {
        let connection = &mut self.connections[index as usize];
        connection.closing = false;
        match connection.state {
            State::Free => {}
            State::Lingering | State::Idle => self.free(index),
            State::Connecting | State::Busy => self.broken(index, now, outcome(failure)),
        }
    }

    /// The requests on a connection have failed, and it is to be closed.
    fn give_up(&mut self, index: u32, now: Instant, outcome: Outcome) {
        self.broken(index, now, outcome);
        self.close_freed(index);
    }

    /// The requests on a connection have failed with it.
    fn broken(&mut self, index: u32, now: Instant, outcome: Outcome) {
        let connection = &mut self.connections[index as usize];
        let (intended, owed) = (connection.intended, std::mem::take(&mut connection.owed));
        for _ in 0..owed {
            self.tally.ended(intended, now, outcome);
        }
        self.free(index);
        if self.schedule.is_none() {
            self.pausing.push_back(now + self.plan.backoff);
        }
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
                parser: Parser::new(self.plan.bodiless),
            });
        }
        let connection = &mut self.connections[id.index()];
        connection.left = self.plan.requests_per_connection;
        connection.parser.reset();
        self.alive += 1;
        id.0
    }

    /// The first in line could not be given a connection at all.
    fn not_dialed(&mut self, errno: i32, now: Instant) {
        let Some(intended) = self.line.pop_front() else { return };
        self.sent(intended, now, 1);
        self.tally.ended(intended, now, Outcome::Failed(errno));
        if self.schedule.is_none() {
            self.pausing.push_back(now + self.plan.backoff);
        }
    }

    /// Gives the first in line to a connection, which sends it when it is established.
    fn assign(&mut self, index: u32, now: Instant) {
        let Some(intended) = self.line.pop_front() else { return };
        let connection = &mut self.connections[index as usize];
        let batch = (self.plan.pipeline as u64).min(connection.left) as usize;
        connection.intended = intended;
        connection.owed = batch;
        if !connection.timed {
            connection.timed = true;
            let token = timer(index, connection.serial);
            self.wheel.insert(intended + self.plan.give_up, token);
        }
        if connection.state == State::Idle {
            connection.state = State::Busy;
            self.todo.push(Todo::Send(index));
        } else {
            connection.state = State::Connecting;
        }
        self.sent(intended, now, batch);
    }

    fn sent(&mut self, intended: Instant, now: Instant, requests: usize) {
        for _ in 0..requests {
            if self.schedule.is_none() {
                self.tally.due(intended);
            }
            self.tally.sent(intended, now);
        }
    }

    /// What a connection is to send: the next message, as many requests of it as it owes answers.
    /// `None` if it has failed meanwhile.
    fn message(&mut self, index: u32) -> Option<(usize, usize)> {
        let connection = &self.connections[index as usize];
        if connection.state != State::Busy {
            return None;
        }
        let message = self.next_message;
        self.next_message = (message + 1) % self.plan.request_sizes.len();
        Some((message, self.plan.request_sizes[message] * connection.owed))
    }

    /// Has the dialer close a connection that owes nothing.
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
        if connection.state != State::Lingering {
            self.alive -= 1;
        }
        connection.state = State::Free;
        connection.serial = connection.serial.wrapping_add(1);
        connection.timed = false;
        connection.owed = 0;
    }
}

fn timer(index: u32, serial: u32) -> u64 {
    u64::from(serial) << 32 | u64::from(index)
}

fn outcome(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused => Outcome::Refused,
        Failure::Reset => Outcome::Reset,
        Failure::TimedOut => Outcome::TimedOut,
        Failure::Ports => Outcome::NoPort,
        Failure::Other(errno) => Outcome::Failed(errno),
    }
}
