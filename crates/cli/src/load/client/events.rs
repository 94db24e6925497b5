//! The meaning of a dialer's events for the requests on a connection.

use highwater_core::http1::client::{End, Eof, Malformed, Next};
use highwater_core::time::Instant;
use highwater_sys::dial::{Arrival, Event, Failure};

use super::super::counts::Outcome;
use super::super::expect::{Check, Expect};
use super::super::wire::{Happened, MESSAGE};
use super::{AWAY, Core, KERNEL_TICK, LINGER, State, Todo};

impl Core {
    #[inline]
    pub(super) fn on_event(&mut self, happened: Happened<'_>, now: Instant) {
        match happened {
            Happened::Io(Event::Connected(id)) => self.on_connected(id.0, now),
            Happened::Io(Event::Received(id, bytes, arrival)) => {
                self.on_received(id.0, bytes, arrival, now);
            }
            Happened::Io(Event::Eof(id)) => self.on_eof(id.0, now),
            Happened::Io(Event::Failed(id, failure)) => self.on_failed(id.0, failure, now),
            Happened::Bytes(len) => self.tally.received(now, len),
            Happened::Status(id, status) => {
                self.check(id.0, |check, expect| check.status(expect, status))
            }
            Happened::Field(id, name, value) => {
                self.check(id.0, |check, _| check.field(name, value))
            }
            Happened::Content(id, piece) => {
                self.check(id.0, |check, expect| check.content(expect, piece))
            }
            Happened::End(id, status, arrival) => {
                let arrived = if self.was_away { self.arrived(id.0, arrival, now) } else { now };
                if self.connections[id.index()].state == State::Busy {
                    self.on_answer(id.0, End { status, keep_alive: true }, arrived, now);
                }
            }
            Happened::Broken(id, outcome) => match self.connections[id.index()].state {
                State::Free => {}
                State::Lingering | State::Idle => self.close(id.0),
                State::Connecting | State::Busy => self.give_up(id.0, now, outcome),
            },
        }
    }

    /// Goes on with the check of an answer, if its request expects anything.
    fn check(&mut self, index: u32, step: impl FnOnce(&mut Check, &Expect)) {
        let request = self.connections[index as usize].request as usize;
        if let Some(expect) = &self.plan.requests.list[request].expect {
            step(&mut self.checks[index as usize], expect);
        }
    }

    /// The requests of a connection are sent, unless their time is over.
    fn on_connected(&mut self, index: u32, now: Instant) {
        let connection = &mut self.connections[index as usize];
        if connection.state != State::Connecting {
            return;
        }
        self.tally.connected += 1;
        let until = connection.due.intended + self.plan.give_up;
        if now < until {
            connection.state = State::Busy;
            self.todo.push(Todo::Send(index));
        } else if now < until + AWAY {
            self.give_up(index, now, Outcome::TimedOut);
        } else {
            // A timer would have ended it, had this client run: the server is not to blame.
            self.not_sent(index, now);
        }
    }

    /// The arrival time of bytes that are read at `now`, for a client that did not run.
    fn arrived(&self, index: u32, arrival: Arrival, now: Instant) -> Instant {
        let ago = arrival.ago().filter(|ago| *ago >= AWAY);
        let arrived = ago.and_then(|ago| now.checked_sub(ago - KERNEL_TICK));
        arrived.map_or(now, |arrived| arrived.max(self.connections[index as usize].begun))
    }

    #[inline]
    fn on_received(&mut self, index: u32, mut bytes: &[u8], arrival: Arrival, now: Instant) {
        let arrived = if self.was_away { self.arrived(index, arrival, now) } else { now };
        self.tally.received(arrived, bytes.len());
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
                Ok(Some(end)) => self.on_answer(index, end, arrived, now),
                Err(malformed) => {
                    return self.give_up(index, now, Outcome::Malformed(malformed.reason()));
                }
            }
        }
    }

    /// Like `Reader::skip`, but checks the skipped bytes.
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

    /// The result of an answer, compared with the expected one.
    #[inline]
    fn judge(&mut self, index: u32, status: u16) -> Outcome {
        let is_message = status == MESSAGE;
        let right = if is_message { Outcome::Message } else { Outcome::Answered(status) };
        if !self.checking {
            return right;
        }
        let request = &self.plan.requests.list[self.connections[index as usize].request as usize];
        let expect = request.expect.as_ref();
        let Some(expect) = expect else { return right };
        let Some(wrong) = self.checks[index as usize].end(expect) else {
            self.tally.met += 1;
            return right;
        };
        self.tally.wrong(|| format!("{}: {wrong}", request.name));
        if is_message { Outcome::WrongMessage } else { Outcome::Wrong(status) }
    }

    /// An answer that came at `arrived` is read at `now`.
    #[inline]
    fn on_answer(&mut self, index: u32, answer: End, arrived: Instant, now: Instant) {
        let outcome = self.judge(index, answer.status);
        let lingers = !answer.keep_alive && self.has_room_to_linger();
        let connection = &mut self.connections[index as usize];
        self.tally.ended(connection.request as usize, connection.due.intended, arrived, outcome);
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
        if lingers {
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
                    self.on_answer(index, answer, now, now);
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
}
