//! Statistics of a turn: which requests were answered, and how well?
//!
//! The answers of a turn reach the kernel together, at its end, so that is when they are recorded in the
//! metrics: requests that came in the same turn by their endpoint alone, the others one by one.
//!
//! Invariant: every request that is answered is recorded once.

use highwater_core::time::Instant;

use super::exchange::Exchange;
use crate::metrics::{Answer, WorkerMetrics};

/// Room for this many entries from the start, so that a turn that only took too long allocates nothing.
const CAPACITY: usize = 32;

/// What one turn of a worker has answered.
#[derive(Debug)]
pub(super) struct Statistics {
    /// When the turn began.
    began: Instant,
    /// Endpoints and answers of requests that came and were answered in this turn, without a deadline of their
    /// own.
    prompt: Vec<(u16, Answer)>,
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

impl Default for Statistics {
    fn default() -> Self {
        Statistics {
            began: Instant::ZERO,
            prompt: Vec::with_capacity(CAPACITY),
            prompt_good: 0,
            others: Vec::with_capacity(CAPACITY),
            started_at_once: 0,
            started: 0,
            refused: 0,
        }
    }
}

impl Statistics {
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
            metrics.queue_delay.record(now.nanos_since(ready), 1);
        }
    }

    /// A request is answered.
    #[inline]
    pub(super) fn answered(&mut self, metrics: &WorkerMetrics, exchange: &Exchange, status: u16) {
        // A client's error counts as a good answer; only our own failures do not.
        let good = status < 500;
        let answer = Answer::new(exchange.named.method, status);
        if exchange.started == self.began && exchange.deadline == Instant::MAX {
            self.prompt.push((exchange.endpoint, answer));
            self.prompt_good += u64::from(good);
        } else {
            self.answered_alone(metrics, exchange, answer, good);
        }
    }

    /// It has waited, or has a deadline. Out of line, so that the usual request saves no registers for it.
    #[inline(never)]
    fn answered_alone(
        &mut self,
        metrics: &WorkerMetrics,
        exchange: &Exchange,
        answer: Answer,
        good: bool,
    ) {
        metrics.request(exchange.endpoint, answer);
        self.record(exchange, if good { Outcome::Good } else { Outcome::Failed });
    }

    /// A request is refused, for load or for another reason.
    pub(super) fn refused(
        &mut self,
        metrics: &WorkerMetrics,
        exchange: &Exchange,
        status: u16,
        for_load: bool,
    ) {
        self.refused += u32::from(for_load);
        metrics.request(exchange.endpoint, Answer::new(exchange.named.method, status));
        self.record(exchange, Outcome::Refused);
    }

    /// A handshake is refused for load.
    pub(super) fn refused_handshake(&mut self) {
        self.refused += 1;
    }

    fn record(&mut self, exchange: &Exchange, outcome: Outcome) {
        let Exchange { endpoint, started: ready, deadline, .. } = exchange;
        let (endpoint, ready, deadline) = (*endpoint, *ready, *deadline);
        self.others.push(Other { endpoint, ready, deadline, outcome });
    }

    /// How many requests were started in this turn, and how many refused for load; starts counting from zero.
    #[inline]
    pub(super) fn take_counts(&mut self) -> (u32, u32) {
        (std::mem::take(&mut self.started), std::mem::take(&mut self.refused))
    }

    /// The turn ends.
    #[inline]
    pub(super) fn settle(&mut self, metrics: &WorkerMetrics, end: Instant) {
        if !self.prompt.is_empty() {
            let spent = end.nanos_since(self.began);
            metrics.answered(&self.prompt, spent);
            metrics.latency_nanos.add(spent.saturating_mul(self.prompt.len() as u64));
            metrics.good.add(self.prompt_good);
            self.prompt.clear();
            self.prompt_good = 0;
        }
        if self.started_at_once > 0 {
            metrics.queue_delay.record(0, self.started_at_once);
            self.started_at_once = 0;
        }
        if !self.others.is_empty() {
            self.settle_others(metrics, end);
        }
    }

    #[inline(never)]
    fn settle_others(&mut self, metrics: &WorkerMetrics, end: Instant) {
        for other in self.others.drain(..) {
            let spent = end.nanos_since(other.ready);
            metrics.duration(other.endpoint, spent);
            if other.outcome != Outcome::Refused {
                metrics.latency_nanos.add(spent);
            }
            let good = other.outcome == Outcome::Good && end <= other.deadline;
            metrics.good.add(u64::from(good));
        }
    }
}
