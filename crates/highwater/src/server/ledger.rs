//! What has a turn answered, and how well?
//!
//! What a turn answers it hands over to the kernel together, at its end, so that is when it is entered
//! into the metrics: requests that came in the same turn by their endpoint alone, the others one by
//! one.
//!
//! Invariant: every request that is answered is entered once.

use highwater_core::time::Instant;

use super::slot::Slot;
use crate::metrics::WorkerMetrics;

/// One worker's entries of one turn.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// When the turn began.
    began: Instant,
    /// Endpoints of requests that came and were answered in this turn, and that anybody still wants.
    prompt: Vec<u16>,
    /// The good ones among them.
    prompt_good: u64,
    others: Vec<Other>,
    /// Requests started in the turn they came in.
    started_at_once: u64,
    /// All requests started in this turn, and those refused for load.
    started: u32,
    refused: u32,
}

/// A request that came earlier, has a deadline, or was refused.
#[derive(Debug)]
struct Other {
    endpoint: u16,
    ready: Instant,
    deadline: Instant,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    Failed,
    Refused,
}

impl Ledger {
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// When the turn began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// A request that was ready at `ready` is started.
    #[inline]
    pub(super) fn started(&mut self, metrics: &WorkerMetrics, ready: Instant, now: Instant) {
        self.started += 1;
        if ready == self.began {
            self.started_at_once += 1;
        } else {
            metrics.queue_delay.record(nanos(now, ready), 1);
        }
    }

    /// A request is answered.
    #[inline]
    pub(super) fn answered(&mut self, metrics: &WorkerMetrics, slot: &Slot, status: u16) {
        metrics.request(slot.endpoint, status);
        // What a client asks for wrongly is answered well; only our own failures are not.
        let good = status < 500;
        if slot.started == self.began && slot.deadline == Instant::MAX {
            self.prompt.push(slot.endpoint);
            self.prompt_good += u64::from(good);
        } else {
            self.enter(slot, if good { Outcome::Good } else { Outcome::Failed });
        }
    }

    /// A request is refused, for load or for another reason.
    pub(super) fn refused(
        &mut self,
        metrics: &WorkerMetrics,
        slot: &Slot,
        status: u16,
        for_load: bool,
    ) {
        self.refused += u32::from(for_load);
        metrics.request(slot.endpoint, status);
        self.enter(slot, Outcome::Refused);
    }

    fn enter(&mut self, slot: &Slot, outcome: Outcome) {
        let Slot { endpoint, started: ready, deadline, .. } = *slot;
        self.others.push(Other { endpoint, ready, deadline, outcome });
    }

    /// How many requests were started in this turn, and how many refused for load; counts anew.
    #[inline]
    pub(super) fn take_counts(&mut self) -> (u32, u32) {
        (std::mem::take(&mut self.started), std::mem::take(&mut self.refused))
    }

    /// The turn ends.
    #[inline]
    pub(super) fn settle(&mut self, metrics: &WorkerMetrics, end: Instant) {
        if !self.prompt.is_empty() {
            let spent = nanos(end, self.began);
            metrics.durations(&self.prompt, spent);
            metrics.latency_nanos.add(spent.saturating_mul(self.prompt.len() as u64));
            metrics.good.add(self.prompt_good);
            self.prompt.clear();
            self.prompt_good = 0;
        }
        if self.started_at_once > 0 {
            metrics.queue_delay.record(0, self.started_at_once);
            self.started_at_once = 0;
        }
        for other in self.others.drain(..) {
            let spent = nanos(end, other.ready);
            metrics.duration(other.endpoint, spent);
            if other.outcome != Outcome::Refused {
                metrics.latency_nanos.add(spent);
            }
            let good = other.outcome == Outcome::Good && end <= other.deadline;
            metrics.good.add(u64::from(good));
        }
    }
}

fn nanos(end: Instant, start: Instant) -> u64 {
    u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX)
}
