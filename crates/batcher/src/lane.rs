//! Which batches of a lane are where?
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
use crate::receipt::Receipt;

/// The batches of a lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) open: Open,
    /// Where those wait who wait for the open batch.
    pub(crate) place: Option<Rc<Place>>,
    /// When the open batch got its first record.
    pub(crate) since: Option<Instant>,
    pub(crate) closed: VecDeque<Closed>,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The sink is not asked again before this.
    pub(crate) retry_at: Option<Instant>,
    /// Whether it is among the batcher's busy ones.
    pub(crate) is_busy: bool,
}

/// A batch that waits for the sink.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) batch: Arc<Batch>,
    pub(crate) place: Option<Rc<Place>>,
}

/// A batch that the sink has not answered for.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) closed: Closed,
    pub(crate) receipt: Receipt,
}

impl Lane {
    /// Nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty() && self.in_flight.is_empty()
    }

    /// The open batch waits for the sink now, and is filled no more.
    pub(crate) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let batch = Arc::new(self.open.take());
        self.since = None;
        self.closed.push_back(Closed { batch, place: self.place.take() });
    }
}
