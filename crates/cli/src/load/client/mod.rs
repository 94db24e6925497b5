//! One client thread: which connection sends the next request, and what was the result of the last one?
//!
//! Generic over the wire, which is a dialer or stands over one, and given the time. A turn is *due → command → poll → answers*: events only note what to
//! do, as the dialer's contract requires, and commands are given right before a poll, which carries them out.
//!
//! ```text
//!  a request is due: an idle connection, else a new one, else it waits in line
//!
//!  dial ─▶ Connecting ─▶ Busy ⇄ Idle ─▶ Free        Free: no connection, or the dialer is about to
//!                          └─▶ Lingering ─▶ Free           be told to close it
//! ```
//!
//! A client that did not run for a while first reads the answers that have come, before it gives requests up, and then
//! continues with requests that can still be answered in time: being behind never stops it.
//!
//! Invariants: a request that is due ends as not sent or is sent, and one that was sent is tallied exactly once;
//! connecting and busy connections owe at least one answer, all others none.

mod connections;
mod deadlines;
mod events;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::http1::client::Reader;
use highwater_core::time::Instant;
use highwater_core::timer::Wheel;

use super::counts::Outcome;
use super::demand::Demand;
use super::expect::Check;
use super::request::{Choice, Requests};
use super::schedule::Due;
use super::series::Span;
use super::tally::Tally;
use super::template::Values;
use super::wire::{Batch, Wire};

/// How many requests one turn sends before it reads answers again.
const BATCH_MAX: usize = 256;
/// After how long it reads them in any case, and after how many requests it looks at the clock.
const SENDING_MAX: Duration = Duration::from_millis(1);
const CLOCK_EVERY: usize = 8;
/// A poll that reports as many events may have left some behind.
const EVENTS_FULL: usize = 256;
/// How often one turn polls while there may be more.
const POLLS_MAX: usize = 8;
/// A client that has not looked at its connections for this long asks the kernel when answers came. Twice the
/// kernel's coarsest tick, so that no answer is dated earlier than it came.
const AWAY: Duration = Duration::from_millis(20);
/// The kernel's coarsest tick.
const KERNEL_TICK: Duration = Duration::from_millis(10);
/// How long a connection that the server should close is kept. The side that closes first holds the port for
/// a minute; a client has fewer ports than a server has connections.
const LINGER: Duration = Duration::from_secs(1);
/// How many connections may linger at a time; further ones are closed by the client.
pub(crate) const LINGERING_MAX: usize = 1024;

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// At most this many connections at a time, with those that are being given up, and without lingering ones.
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
    /// The values of their parameters.
    pub(crate) values: Values,
    /// Latencies are kept over time.
    pub(crate) logs: bool,
}

impl Plan {
    /// How long after its intended send a request may be begun. One that is begun later would have less than half of
    /// its time left: a client that is behind would begin each of them just before it gives it up, and see no answer
    /// of a server that answers.
    fn begin_within(&self) -> Duration {
        self.give_up / 2
    }

    /// How long after its intended send a request may be sent. What a client that was away meanwhile would send at the
    /// last moment is not the server's to answer.
    fn send_within(&self, was_away: bool) -> Duration {
        if was_away { self.give_up / 4 * 3 } else { self.give_up }
    }
}

/// The messages of those `requests` that never change, in order, each repeated `pipeline` times: a dialer is made with
/// them.
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
    due: Due,
    /// When they were given to it.
    begun: Instant,
    /// They are counted as sent.
    is_sent: bool,
    /// Which request is on it; a batch has only one kind.
    request: u32,
    /// Answers it owes.
    owed: usize,
    /// Requests it may still carry.
    left: u64,
    reader: Reader,
}

/// Commands for the dialer. Each is checked again when it is given: the connection may have failed by then.
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
    /// Connections that are in use, or idle.
    alive: usize,
    /// Connections that were given up since the last poll.
    given_up: usize,
    /// Connections that were closed and still existed after the last poll.
    closing: usize,
    /// The last turn ended because no connection was free.
    is_used_up: bool,
    /// When the client last looked at its connections.
    looked: Instant,
    /// It had not looked for longer than [`AWAY`].
    was_away: bool,
    /// The last used first, with its serial: some may have been closed since.
    idle: Vec<(u32, u32)>,
    /// Until when, with slot and serial, in order.
    lingering: VecDeque<(Instant, u32, u32)>,
    wheel: Wheel,
    todo: Vec<Todo>,
    tally: Tally,
}

impl<D: Wire> Client<D> {
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
            given_up: 0,
            closing: 0,
            is_used_up: false,
            looked: span.start,
            was_away: false,
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

    /// Closes every connection, and returns the results. What was due by `now` and not begun was not sent.
    pub(crate) fn finish(mut self, now: Instant) -> Tally {
        let core = &mut self.core;
        core.demand.abandon(now.min(core.end), core.is_used_up, &mut core.tally);
        for index in 0..core.connections.len() {
            if matches!(core.connections[index].state, State::Connecting | State::Busy) {
                core.sent(index as u32, now);
            }
        }
        self.core.tally
    }

    /// Whether every measured request has ended.
    pub(crate) fn is_decided(&self, now: Instant) -> bool {
        let core = &self.core;
        now >= core.end && core.demand.is_past(core.end) && core.tally.open == 0
    }

    /// One turn: sends what is due at `now`, then waits, until `latest` at most, and handles the events; `clock`
    /// gives their time.
    ///
    /// # Errors
    /// As [`Dial::poll`](highwater_sys::dial::Dial::poll).
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        latest: Instant,
        clock: impl Fn() -> Instant,
    ) -> io::Result<()> {
        if now - self.core.looked >= AWAY {
            // Answers that came while this client did not run are read before their requests are given up.
            self.poll(now, Wait::No, &clock)?;
        }
        self.begin(now, &clock);
        let wait = self.core.wait(now, latest);
        self.poll(now, wait, &clock)
    }

    /// Gives up requests that have taken too long, and sends those that are due.
    fn begin(&mut self, now: Instant, clock: &impl Fn() -> Instant) {
        self.core.expire(now);
        // Given-up requests free their connections before new ones are opened.
        self.command(now);
        let core = &mut self.core;
        let within = core.plan.begin_within();
        core.demand.advance(now, within, core.is_used_up, &mut core.tally);
        core.is_used_up = false;
        for count in 1..=BATCH_MAX {
            if !self.core.demand.has_waiting() {
                break;
            }
            if count % CLOCK_EVERY == 0 && clock() - now >= SENDING_MAX {
                break;
            }
            if !self.begin_next(now) {
                self.core.is_used_up = true;
                break;
            }
        }
    }

    /// Polls until nothing is left, within a bound: a client that sends before it has read all answers falls behind
    /// on them.
    fn poll(&mut self, now: Instant, wait: Wait, clock: &impl Fn() -> Instant) -> io::Result<()> {
        let due_back = match wait {
            Wait::Until(until) => until.max(self.core.looked),
            _ => self.core.looked,
        };
        let before = self.core.looked;
        self.core.was_away = now - before >= AWAY;
        let (mut now, mut wait) = (now, wait);
        for _ in 0..POLLS_MAX {
            self.command(now);
            let (core, mut happened, mut events) = (&mut self.core, None, 0);
            self.dialer.poll(wait, &mut |event| {
                // Everything that one poll reports happened before it returned.
                let now = *happened.get_or_insert_with(clock);
                core.was_away |= now - before >= AWAY;
                core.on_event(event, now);
                events += 1;
            })?;
            now = happened.unwrap_or_else(clock);
            if self.core.looked == before {
                self.core.tally.stood(now, now - due_back);
            }
            self.core.looked = now;
            if events < EVENTS_FULL {
                break;
            }
            wait = Wait::No;
        }
        self.core.given_up = 0;
        self.core.closing = self.dialer.closing();
        Ok(())
    }

    /// Sends the first in line. False if no connection is free.
    fn begin_next(&mut self, now: Instant) -> bool {
        let core = &mut self.core;
        let dialed = match core.pop_idle() {
            Some(index) => Ok(index),
            None if !core.has_room() => return false,
            None => self.dialer.connect().map(|id| core.dialed(id)),
        };
        let Some(due) = core.demand.take() else { return false };
        let request = core.plan.choice.next();
        match dialed {
            Ok(index) => core.assign(index, request, due, now),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                if !core.demand.is_open() {
                    core.tally.due(due.intended);
                }
                core.tally.sent(request, due, now, now);
                core.tally.ended(request, due.intended, now, Outcome::Failed(errno));
                core.demand.turned_away(now);
            }
        }
        true
    }

    fn command(&mut self, now: Instant) {
        while !self.core.todo.is_empty() {
            let mut todo = std::mem::take(&mut self.core.todo);
            for todo in todo.drain(..) {
                match todo {
                    Todo::Send(index) => self.begin_send(index, now),
                    Todo::Close(index) => {
                        let connection = &mut self.core.connections[index as usize];
                        if std::mem::take(&mut connection.closing) {
                            self.dialer.close(ConnId(index));
                        }
                    }
                }
            }
            if self.core.todo.is_empty() {
                self.core.todo = todo;
                break;
            }
        }
    }

    /// Sends the requests of a connection, unless it is too late for them.
    #[inline]
    fn begin_send(&mut self, index: u32, now: Instant) {
        let connection = &self.core.connections[index as usize];
        // It may have failed meanwhile.
        if connection.state != State::Busy || connection.is_sent {
            return;
        }
        let within = self.core.plan.send_within(self.core.was_away);
        if connection.due.intended + within <= now {
            return self.core.not_sent(index, now);
        }
        let (request, count) = (connection.request as usize, connection.owed);
        self.core.sent(index, now);
        self.send(index, request, count);
    }

    /// Sends as many requests of one kind as the connection owes answers.
    #[inline]
    fn send(&mut self, index: u32, request: usize, count: usize) {
        let Core { plan, scratch, fixed, .. } = &mut self.core;
        let fixed = fixed[request];
        let request = &plan.requests.list[request];
        self.dialer.begin(
            ConnId(index),
            Batch { request, fixed, count, values: &mut plan.values, scratch },
        );
    }
}

#[cfg(test)]
mod tests;
