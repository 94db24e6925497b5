//! Who wants to send a request, and since when? The two kinds of loop, without any connection.
//!
//! ```text
//!  open:   schedule ──▶ line ──▶ (a connection)          waits in line with its clock running
//!  closed: ready users ▶ line ─▶ (a connection) ─▶ answered: ready │ turned away: pausing ─▶ ready
//! ```
//!
//! Invariants: the line is in the order of the intended instants; in a closed loop, each user is in
//! exactly one place.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

use super::schedule::Schedule;
use super::tally::Tally;

/// How many arrivals one turn takes from the schedule, before it looks at answers again.
const ARRIVALS_MAX: usize = 256;
/// How many requests may wait for a connection; beyond that they are dropped and counted as unsent.
const LINE_MAX: usize = 1 << 20;

/// A request, or in a closed loop the batch of one user, that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When it was meant to be sent. Latency runs from here.
    pub(crate) intended: Instant,
    /// When the client could first have sent it.
    pub(crate) seen: Instant,
}

enum Source {
    Open(Schedule),
    Users {
        /// Those who have had their answers.
        ready: usize,
        /// Those who were turned away, and until when they pause, in order.
        pausing: VecDeque<Instant>,
        backoff: Duration,
    },
}

/// What is to be sent.
pub(crate) struct Demand {
    source: Source,
    line: VecDeque<Due>,
}

impl Demand {
    /// Requests by schedule.
    pub(crate) fn open(schedule: Schedule) -> Demand {
        Demand { source: Source::Open(schedule), line: VecDeque::new() }
    }

    /// Users who send again when they have been answered, or `backoff` after they were not.
    pub(crate) fn closed(users: usize, backoff: Duration) -> Demand {
        let source = Source::Users { ready: users, pausing: VecDeque::new(), backoff };
        Demand { source, line: VecDeque::new() }
    }

    /// Whether requests are due by schedule, and not by answers.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.source, Source::Open(_))
    }

    /// Brings everything into line that is due by `now`, and gives up what has waited for
    /// `give_up`.
    pub(crate) fn advance(&mut self, now: Instant, give_up: Duration, tally: &mut Tally) {
        match &mut self.source {
            Source::Open(schedule) => {
                while let Some(due) = self.line.front()
                    && due.intended + give_up <= now
                {
                    tally.expired(due.intended);
                    self.line.pop_front();
                }
                for _ in 0..ARRIVALS_MAX {
                    if schedule.peek() > now {
                        break;
                    }
                    let intended = schedule.take();
                    tally.due(intended);
                    if self.line.len() < LINE_MAX {
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

    /// Whether anything waits for a connection.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// Takes what has waited longest.
    pub(crate) fn take(&mut self) -> Option<Due> {
        self.line.pop_front()
    }

    /// A user has its answers, and goes on.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if let Source::Users { ready, .. } = &mut self.source {
            *ready += 1;
        }
    }

    /// A user was turned away, and pauses.
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

    /// Whether everything that is due before `end` has been seen.
    pub(crate) fn is_past(&self, end: Instant) -> bool {
        match &self.source {
            Source::Open(schedule) => schedule.peek() >= end,
            Source::Users { .. } => true,
        }
    }
}
