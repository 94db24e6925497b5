//! Connections as a client sees them: which is free, what is on it, and when it goes.

use highwater_core::driver::ConnId;
use highwater_core::http1::client::Reader;
use highwater_core::time::Instant;

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
                intended: Instant::ZERO,
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
        connection.intended = due.intended;
        connection.request = request as u32;
        connection.owed = batch;
        if connection.state == State::Idle {
            connection.state = State::Busy;
            self.todo.push(Todo::Send(index));
        }
        if !connection.timed {
            self.set_timer(index);
        }
        self.sent(request, due, now, batch);
    }

    pub(super) fn sent(&mut self, request: usize, due: Due, now: Instant, count: usize) {
        for _ in 0..count {
            if !self.demand.is_open() {
                self.tally.due(due.intended);
            }
            self.tally.sent(request, due, now);
        }
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
