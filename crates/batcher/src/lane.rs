//! The states of a lane's batches.
//!
//! ```text
//!   open ──close──▶ closed ──Sink::write──▶ in flight ──receipt──▶ written, or failed
//!                     ▲                         │
//!                     └──── OnFailure::Keep ────┘   at the front: order is kept
//! ```
//!
//! A lane holds the batches of one partition, or of all of them; its batches reach the sink in the order in which they
//! were begun.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::awaiting::Place;
use crate::batch::{Batch, Open};
use crate::failure::Failure;
use crate::receipt::Receipt;

/// The batches of a lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) open: Open,
    /// The waiters of the open batch.
    pub(crate) place: Option<Rc<Place>>,
    /// When the open batch got its first record.
    pub(crate) since: Option<Instant>,
    /// When the batch before it was closed.
    pub(crate) closed_at: Option<Instant>,
    pub(crate) closed: VecDeque<Closed>,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The sink is not retried before this.
    pub(crate) retry_at: Option<Instant>,
    /// Whether it is among the batcher's busy lanes.
    pub(crate) is_busy: bool,
}

/// A batch that waits for the sink.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) batch: Arc<Batch>,
    /// When it got its first record.
    pub(crate) since: Instant,
    pub(crate) place: Option<Rc<Place>>,
}

/// A batch that the sink has not answered for.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) closed: Closed,
    pub(crate) receipt: Receipt,
}

impl Lane {
    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty() && self.in_flight.is_empty()
    }

    /// Closes the open batch: it waits for the sink now.
    pub(crate) fn close(&mut self, now: Instant) {
        let Some(since) = self.since.take() else { return };
        self.closed_at = Some(now);
        let batch = Arc::new(self.open.take());
        self.closed.push_back(Closed { batch, since, place: self.place.take() });
    }

    /// How many batches the sink has not accepted or not answered for.
    pub(crate) fn unanswered(&self) -> usize {
        self.in_flight.len() + self.closed.len()
    }

    /// The time of the oldest record.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        let first = |closed: &Closed| closed.batch.get(0).map(|record| record.time_us);
        let in_flight = self.in_flight.front().and_then(|in_flight| first(&in_flight.closed));
        in_flight.or_else(|| self.closed.front().and_then(first)).or_else(|| self.open.first_us())
    }

    /// Fails the waiters of all batches that got their first record before `until`.
    pub(crate) fn time_out(&mut self, until: Instant, failure: impl Fn() -> Failure) {
        let in_flight = self.in_flight.iter_mut().map(|in_flight| &mut in_flight.closed);
        let late = in_flight.chain(&mut self.closed).take_while(|closed| closed.since <= until);
        late.filter_map(|closed| closed.place.take())
            .for_each(|place| place.resolve(Err(failure())));
        if self.since.is_some_and(|since| since <= until)
            && let Some(place) = self.place.take()
        {
            place.resolve(Err(failure()));
        }
    }

    /// When the oldest awaited record was appended, or an earlier one in its batch.
    pub(crate) fn awaited_since(&self) -> Option<Instant> {
        let mut closed =
            self.in_flight.iter().map(|in_flight| &in_flight.closed).chain(&self.closed);
        let awaited = closed.find(|closed| closed.place.is_some()).map(|closed| closed.since);
        awaited.or_else(|| self.since.filter(|_| self.place.is_some()))
    }
}
