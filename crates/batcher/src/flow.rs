//! The path of batches to the sink and back.
//!
//! It decides which batches are due, hands them over, interprets answers, and recycles memory, one lane at a time.
//!
//! Invariant: `memory` is the allocation of all batches, in lanes and spare.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::batch::{Batch, Open, Size};
use crate::failure::{Failure, FailureKind};
use crate::lane::{Closed, InFlight, Lane};
use crate::options::{Layout, OnFailure, Options};
use crate::receipt::Outcome;
use crate::sink::Sink;

/// A batcher's counts, in records. `appended` = `written` + `failed` + `rejected` + records still in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Taken in.
    pub appended: u64,
    /// Confirmed by the sink.
    pub written: u64,
    /// Given up: the sink did not accept them now, and their waiters were notified. Clients may send them again.
    pub failed: u64,
    /// Given up: the sink will never accept them.
    pub rejected: u64,
    /// Batches that were given to the sink again.
    pub retries: u64,
}

/// The batcher's state, apart from the lanes.
#[derive(Debug)]
pub(crate) struct Flow<S> {
    pub(crate) sink: S,
    pub(crate) options: Options,
    pub(crate) size: Size,
    /// Lanes that are not idle.
    pub(crate) busy: Vec<u32>,
    /// Memory for reuse.
    pub(crate) spare: Vec<Batch>,
    /// All memory: of lanes, and spare.
    pub(crate) memory: usize,
    pub(crate) next_id: u128,
    pub(crate) counts: Counts,
    pub(crate) trouble: Option<Failure>,
    /// Woken by receipts.
    pub(crate) waker: Waker,
}

/// The most batches whose memory is kept for reuse.
const SPARE_MAX: usize = 4;

impl<S: Sink> Flow<S> {
    #[inline]
    pub(crate) fn lane(&self, partition: u32) -> usize {
        assert!(partition < self.options.partitions, "there is no partition {partition}");
        match self.options.layout {
            Layout::Mixed => 0,
            Layout::Partitioned => partition as usize,
        }
    }

    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.memory.saturating_add(bytes) <= self.options.memory_max
    }

    /// Begins a batch, with ids of its own.
    pub(crate) fn begin(&mut self, open: &mut Open) {
        open.begin(self.spare.pop().unwrap_or_default(), self.next_id);
        self.next_id = self.next_id.wrapping_add(self.size.records as u128);
    }

    /// Whether the open batch goes to the sink now.
    pub(crate) fn is_due(&self, lane: &Lane, now: Instant) -> bool {
        lane.open.is_full(self.size) || self.linger_ends(lane).is_some_and(|end| now >= end)
    }

    /// When the open batch's linger ends; `None` if there is none, or it cannot be in flight yet.
    fn linger_ends(&self, lane: &Lane) -> Option<Instant> {
        let since = lane.since.filter(|_| lane.unanswered() < self.options.in_flight_max)?;
        Some(lane.closed_at.map_or(since, |closed_at| closed_at + self.options.linger))
    }

    pub(crate) fn deadline(&self, lane: &Lane) -> Option<Instant> {
        let linger = self.linger_ends(lane);
        let has_place = lane.in_flight.len() < self.options.in_flight_max;
        let retry = lane.retry_at.filter(|_| has_place && !lane.closed.is_empty());
        let answer = lane.awaited_since().map(|since| since + self.options.answer_timeout);
        [linger, retry, answer].into_iter().flatten().min()
    }

    /// Notifies waiters whose time is up.
    pub(crate) fn time_out(&self, lane: &mut Lane, now: Instant) {
        let timeout = self.options.answer_timeout;
        let is_late = |since| now >= since + timeout;
        if let Some(until) = now.checked_sub(timeout)
            && lane.awaited_since().is_some_and(is_late)
        {
            lane.time_out(until, || {
                let text = format!("the sink has not answered within {timeout:?}");
                Failure::new(FailureKind::TimedOut, text)
            });
        }
    }

    /// Gives waiting batches to the sink, as far as it accepts them.
    pub(crate) fn hand_over(&mut self, lane: &mut Lane, now: Instant) {
        loop {
            self.settle(lane, now);
            let may_try = lane.retry_at.is_none_or(|at| now >= at);
            if !may_try || lane.in_flight.len() >= self.options.in_flight_max {
                return;
            }
            let Some(closed) = lane.closed.pop_front() else { return };
            match self.sink.write(&closed.batch) {
                Ok(receipt) => {
                    lane.retry_at = None;
                    lane.in_flight.push_back(InFlight { closed, receipt });
                }
                Err(failure) => {
                    let is_kept = failure.kind() == FailureKind::Busy || self.keeps(&failure);
                    self.failed(lane, closed, failure, is_kept.then_some(now));
                }
            }
        }
    }

    /// Takes the available answers, in order.
    pub(crate) fn settle(&mut self, lane: &mut Lane, now: Instant) {
        while let Some(first) = lane.in_flight.front_mut() {
            let mut context = Context::from_waker(&self.waker);
            let Poll::Ready(outcome) = Pin::new(&mut first.receipt).poll(&mut context) else {
                return;
            };
            let Some(InFlight { closed, .. }) = lane.in_flight.pop_front() else { return };
            match outcome {
                Ok(written) => {
                    let refused = written.refused.len() as u64;
                    self.counts.written += closed.batch.records() as u64 - refused;
                    self.counts.rejected += refused;
                    self.trouble = None;
                    lane.retry_at = None;
                    self.finish(closed, Ok(written));
                }
                Err(failure) => {
                    let is_kept = self.keeps(&failure);
                    self.failed(lane, closed, failure, is_kept.then_some(now));
                }
            }
        }
    }

    /// Whether a batch with this failure is kept.
    pub(crate) fn keeps(&self, failure: &Failure) -> bool {
        self.options.on_failure == OnFailure::Keep && failure.kind().may_pass()
    }

    /// The sink refused a batch or did not confirm it. It is retried after `now`, or given up.
    pub(crate) fn failed(
        &mut self,
        lane: &mut Lane,
        closed: Closed,
        failure: Failure,
        now: Option<Instant>,
    ) {
        self.trouble = Some(failure.clone());
        if let Some(now) = now {
            self.counts.retries += 1;
            lane.retry_at = Some(now + self.options.retry_after);
            lane.closed.push_front(closed);
        } else {
            let records = closed.batch.records() as u64;
            match failure.kind().may_pass() {
                true => self.counts.failed += records,
                false => self.counts.rejected += records,
            }
            self.finish(closed, Err(failure));
        }
    }

    /// A batch is finished.
    pub(crate) fn finish(&mut self, closed: Closed, outcome: Outcome) {
        let Closed { batch, place, .. } = closed;
        let memory = batch.memory();
        match Arc::into_inner(batch) {
            Some(batch) => self.recycle(batch),
            // The sink still has it, against its contract; it is not ours any more.
            None => self.memory -= memory,
        }
        if let Some(place) = place {
            place.resolve(outcome);
        }
    }

    pub(crate) fn recycle(&mut self, batch: Batch) {
        if self.spare.len() < SPARE_MAX && batch.memory() <= self.options.spare_bytes_max() {
            self.spare.push(batch);
        } else {
            self.memory -= batch.memory();
        }
    }

    pub(crate) fn drop_spare(&mut self) {
        for batch in self.spare.drain(..) {
            self.memory -= batch.memory();
        }
    }
}
