//! When is a request given up, and when must the client look again?

use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::time::Instant;

use super::super::counts::Outcome;
use super::{Core, LINGERING_MAX, State};

/// How soon it looks again at connections that are being closed, while others wait for their places.
const CLOSING_TICK: Duration = Duration::from_millis(1);

impl Core {
    /// Gives up requests that have taken too long.
    pub(super) fn expire(&mut self, now: Instant) {
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

    /// Whether one more connection may wait for the server to close it first. Those that it has closed leave the list.
    pub(super) fn has_room_to_linger(&mut self) -> bool {
        while let Some(&(_, index, serial)) = self.lingering.front()
            && self.connections[index as usize].serial != serial
        {
            self.lingering.pop_front();
        }
        self.lingering.len() < LINGERING_MAX
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
        if connection.due.intended + self.plan.give_up > now {
            self.set_timer(index); // It has sent other requests since.
        } else if connection.state == State::Busy && !connection.is_sent {
            self.not_sent(index, now);
        } else {
            self.give_up(index, now, Outcome::TimedOut);
        }
    }

    pub(super) fn set_timer(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.timed = true;
        let token = u64::from(connection.serial) << 32 | u64::from(index);
        self.wheel.insert(connection.due.intended + self.plan.give_up, token);
    }

    pub(super) fn wait(&self, now: Instant, latest: Instant) -> Wait {
        let is_waiting = self.demand.has_waiting();
        if is_waiting && (self.given_up > 0 || !self.idle.is_empty() || self.has_room()) {
            return Wait::No;
        }
        let closing = (is_waiting && self.closing > 0).then(|| now + CLOSING_TICK);
        let lingering = self.lingering.front().map(|first| first.0);
        let soonest = [self.demand.next(), lingering, self.wheel.next(), closing, Some(latest)];
        match soonest.into_iter().flatten().min() {
            Some(soonest) if soonest > now => Wait::Until(soonest),
            _ => Wait::No,
        }
    }
}
