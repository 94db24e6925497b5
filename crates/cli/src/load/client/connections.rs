//! A client's connections: which one is free, which requests it carries, and when it ends.

use highwater_core::driver::ConnId;
use highwater_core::http1::client::Reader;
use highwater_core::time::Instant;

use super::super::counts::Outcome;
use super::super::expect::Check;
use super::super::schedule::Due;
use super::{Connection, Core, State, Todo};

impl Core {
    pub(super) fn pop_idle(&mut self) -> Option<u32> {
        while let Some((index, serial)) = self.idle.pop() {
            if self.connections[index as usize].serial == serial {
                return Some(index);
            }
        }
        None
    }

    pub(super) fn dialed(&mut self, id: ConnId) -> u32 {
        while self.connections.len() <= id.index() {
            self.connections.push(Connection {
                state: State::Free,
                serial: 0,
                timed: false,
                closing: false,
                due: Due { intended: Instant::ZERO, seen: Instant::ZERO },
                begun: Instant::ZERO,
                is_sent: false,
                request: 0,
                owed: 0,
                left: 0,
                reader: Reader::default(),
            });
            if self.checking {
                self.checks.push(Check::default());
            }
        }
        let connection = &mut self.connections[id.index()];
        connection.state = State::Connecting;
        connection.left = self.plan.requests_per_connection;
        connection.reader.reset();
        self.alive += 1;
        id.0
    }

    /// Gives due requests to a connection, which sends them as soon as it is established.
    pub(super) fn assign(&mut self, index: u32, request: usize, due: Due, now: Instant) {
        let connection = &mut self.connections[index as usize];
        let batch = (self.plan.pipeline as u64).min(connection.left) as usize;
        (connection.due, connection.begun, connection.is_sent) = (due, now, false);
        connection.request = request as u32;
        connection.owed = batch;
        let (is_idle, is_timed) = (connection.state == State::Idle, connection.timed);
        if !self.demand.is_open() {
            (0..batch).for_each(|_| self.tally.due(due.intended));
        }
        if is_idle {
            self.connections[index as usize].state = State::Busy;
            self.todo.push(Todo::Send(index));
        }
        if !is_timed {
            self.set_timer(index);
        }
    }

    /// The requests on a connection are being sent, or their connection has failed.
    pub(super) fn sent(&mut self, index: u32, now: Instant) {
        let connection = &mut self.connections[index as usize];
        if std::mem::replace(&mut connection.is_sent, true) {
            return;
        }
        let (request, due, begun) = (connection.request as usize, connection.due, connection.begun);
        for _ in 0..connection.owed {
            self.tally.sent(request, due, begun, now);
        }
    }

    /// The requests on a connection are not to be sent any more.
    pub(super) fn not_sent(&mut self, index: u32, now: Instant) {
        let connection = &self.connections[index as usize];
        for _ in 0..connection.owed {
            self.tally.expired(connection.due.intended);
        }
        self.free(index);
        self.demand.turned_away(now);
        self.given_up += 1;
        self.close_freed(index);
    }

    /// The requests on a connection have failed, and it must be closed.
    pub(super) fn give_up(&mut self, index: u32, now: Instant, outcome: Outcome) {
        self.broken(index, now, outcome);
        self.given_up += 1;
        self.close_freed(index);
    }

    /// The requests on a connection have failed with it.
    pub(super) fn broken(&mut self, index: u32, now: Instant, outcome: Outcome) {
        self.sent(index, now);
        let connection = &self.connections[index as usize];
        let (request, intended) = (connection.request as usize, connection.due.intended);
        if connection.state == State::Connecting && outcome == Outcome::TimedOut {
            self.tally.unconnected(intended, connection.owed);
        }
        for _ in 0..connection.owed {
            self.tally.ended(request, intended, now, outcome);
        }
        self.free(index);
        self.demand.turned_away(now);
    }

    /// Whether one more connection may be opened. In a closed loop the users are the bound.
    pub(super) fn has_room(&self) -> bool {
        let closing = if self.demand.is_open() { self.given_up + self.closing } else { 0 };
        self.alive + closing < self.plan.connections
    }

    /// Lets the dialer close a connection without open requests.
    pub(super) fn close(&mut self, index: u32) {
        self.free(index);
        self.close_freed(index);
    }

    pub(super) fn close_freed(&mut self, index: u32) {
        self.connections[index as usize].closing = true;
        self.todo.push(Todo::Close(index));
    }

    pub(super) fn free(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        self.alive -= usize::from(connection.state != State::Lingering);
        connection.state = State::Free;
        connection.serial = connection.serial.wrapping_add(1);
        connection.timed = false;
        connection.owed = 0;
    }
}
