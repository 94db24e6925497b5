//! Which requests are due, and since when? The two kinds of loop, without connections.
//!
//! ```text
//!  open:   schedule ──▶ line ──▶ (a connection)          waits in line with its clock running
//!  closed: ready users ▶ line ─▶ (a connection) ─▶ answered: ready │ refused: pausing     ─▶ ready
//! ```
//!
//! Invariants: the line is in the order of the intended instants; in a closed loop, each user is in
//! exactly one place.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

use super::schedule::{Due, Schedule};
use super::tally::Tally;

/// How many arrivals one turn takes from the schedule, before it looks at answers again. More than arrive in that time
/// at any rate, so that the schedule is caught up with after a stall.
const ARRIVALS_MAX: usize = 16 * 1024;
/// How many requests may wait for a connection; beyond that they are dropped and counted as not sent.
const LINE_MAX: usize = 1 << 20;

enum Source {
    Open(Schedule),
    Users {
        /// Users that have their answers.
        ready: usize,
        /// Users that were refused, and until when they pause, in order.
        pausing: VecDeque<Instant>,
        backoff: Duration,
    },
}

/// The requests to send.
pub(crate) struct Demand {
    source: Source,
    line: VecDeque<Due>,
}

impl Demand {
    /// Requests by schedule.
    pub(crate) fn open(schedule: Schedule) -> Demand {
        Demand { source: Source::Open(schedule), line: VecDeque::new() }
    }

    /// Users that send again when they are answered, or `backoff` after a refusal or failure.
    pub(crate) fn closed(users: usize, backoff: Duration) -> Demand {
        let source = Source::Users { ready: users, pausing: VecDeque::new(), backoff };
        Demand { source, line: VecDeque::new() }
    }

    /// Whether requests are due by schedule, and not by answers.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.source, Source::Open(_))
    }

    /// Puts all requests that are due by `now` into the line. Those of an open loop that have not been begun
    /// `within` their intended instant are not sent; for want of a connection, if those are `used_up`.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        within: Duration,
        used_up: bool,
        tally: &mut Tally,
    ) {
        match &mut self.source {
            Source::Open(schedule) => {
                while let Some(due) = self.line.front()
                    && due.intended + within <= now
                {
                    tally.expired(due.intended);
                    if used_up {
                        tally.crowded(due.intended);
                    }
                    self.line.pop_front();
                }
                for _ in 0..ARRIVALS_MAX {
                    if schedule.peek() > now {
                        break;
                    }
                    let intended = schedule.take();
                    tally.due(intended);
                    if intended + within > now && self.line.len() < LINE_MAX {
                        self.line.push_back(Due { intended, seen: now });
                    } else {
                        tally.expired(intended);
                    }
                }
            }
            Source::Users { ready, pausing, .. } => {
                while pausing.front().is_some_and(|until| *until <= now) {
                    pausing.pop_front();
                    *ready += 1;
                }
                let due = Due { intended: now, seen: now };
                self.line.extend(std::iter::repeat_n(due, std::mem::take(ready)));
            }
        }
    }

    /// Nothing more is sent: requests that were due before `until` are not sent, for lack of a connection if all are `used_up`.
    pub(crate) fn abandon(&mut self, until: Instant, used_up: bool, tally: &mut Tally) {
        let Source::Open(schedule) = &mut self.source else { return };
        while schedule.peek() < until {
            let intended = schedule.take();
            tally.due(intended);
            self.line.push_back(Due { intended, seen: until });
        }
        for due in self.line.drain(..) {
            tally.expired(due.intended);
            if used_up {
                tally.crowded(due.intended);
            }
        }
    }

    /// Whether a request waits for a connection.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// Takes the request that has waited longest.
    pub(crate) fn take(&mut self) -> Option<Due> {
        self.line.pop_front()
    }

    /// A user has its answers, and continues.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if let Source::Users { ready, .. } = &mut self.source {
            *ready += 1;
        }
    }

    /// A user was refused, and pauses.
    pub(crate) fn turned_away(&mut self, now: Instant) {
        if let Source::Users { pausing, backoff, .. } = &mut self.source {
            pausing.push_back(now + *backoff);
        }
    }

    /// When there is something to [`advance`](Demand::advance); [`Instant::ZERO`] if there is now.
    pub(crate) fn next(&self) -> Option<Instant> {
        match &self.source {
            Source::Open(schedule) => Some(schedule.peek()),
            Source::Users { ready: 1.., .. } => Some(Instant::ZERO),
            Source::Users { pausing, .. } => pausing.front().copied(),
        }
    }

    /// Whether all requests that are due before `end` are in the line.
    pub(crate) fn is_past(&self, end: Instant) -> bool {
        match &self.source {
            Source::Open(schedule) => schedule.peek() >= end,
            Source::Users { .. } => true,
        }
    }
}
