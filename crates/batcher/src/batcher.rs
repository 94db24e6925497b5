//! From records to batches, and from batches to a sink, on one thread.
//!
//! Methods are inputs ([`append`](Batcher::append), [`append_awaiting`](Batcher::append_awaiting)), commands
//! ([`on_turn_end`](Batcher::on_turn_end), [`flush`](Batcher::flush)) and outputs ([`counts`](Batcher::counts),
//! [`memory`](Batcher::memory), [`trouble`](Batcher::trouble)).
//!
//! Invariants: memory is counted by what is allocated, not by what is filled; a lane with anything in it is among the
//! busy ones; a batch's ids are its own, for they are taken from a counter in blocks of `records_max`.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::awaiting::Awaiting;
use crate::batch::{Batch, Size};
use crate::failure::{Failure, FailureKind};
use crate::lane::{Closed, InFlight, Lane};
use crate::options::{Layout, OnFailure, Options, OptionsError};
use crate::receipt::Outcome;
use crate::sink::Sink;

/// Gathers one worker's records into batches, and hands them to a sink. See the crate's documentation.
///
/// Dropping it drops what the sink has not got yet, and tells who waits for it; [`flush`](Batcher::flush) first.
#[derive(Debug)]
pub struct Batcher<S> {
    lanes: Vec<Lane>,
    rest: Rest<S>,
}

/// Everything but the lanes.
#[derive(Debug)]
struct Rest<S> {
    sink: S,
    options: Options,
    size: Size,
    /// Lanes that are not idle.
    busy: Vec<u32>,
    /// Memory to be used again.
    spare: Vec<Batch>,
    /// All memory: of lanes, and spare.
    memory: usize,
    next_id: u128,
    counts: Counts,
    trouble: Option<Failure>,
    /// Whom the receipts wake.
    waker: Waker,
}

/// When something happens: on two clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For how long something waits.
    pub now: Instant,
    /// What records say, in microseconds since 1970.
    pub unix_us: u64,
}

/// A record that was not taken. Nothing of it is or will be in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `memory_max` is reached: the sink is behind. HTTP: 503.
    Full,
    /// Its body is longer than `record_bytes_max`. HTTP: 413.
    TooLarge,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full => "no more records fit into memory until the sink has taken some",
            Refused::TooLarge => "the record is longer than record_bytes_max",
        })
    }
}

impl std::error::Error for Refused {}

/// What a batcher has done, in records. `appended` = `written` + `failed` + those that are still in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Taken in.
    pub appended: u64,
    /// Confirmed by the sink.
    pub written: u64,
    /// Given up: the sink did not take them, and whoever waited was told.
    pub failed: u64,
    /// Batches that were given to the sink again.
    pub retries: u64,
}

/// So many batches' memory is kept to be used again.
const SPARE_MAX: usize = 4;

impl<S: Sink> Batcher<S> {
    /// An empty batcher that hands its batches to `sink`.
    ///
    /// # Errors
    ///
    /// Which option is out of its range.
    pub fn new(sink: S, options: Options) -> Result<Batcher<S>, OptionsError> {
        options.check()?;
        let lanes = (0..options.lanes()).map(|_| Lane::default()).collect();
        let rest = Rest {
            sink,
            size: Size { bytes: options.batch_bytes, records: options.records_max },
            busy: Vec::new(),
            spare: Vec::new(),
            memory: 0,
            next_id: options.first_id,
            counts: Counts::default(),
            trouble: None,
            waker: Waker::noop().clone(),
            options,
        };
        Ok(Batcher { lanes, rest })
    }

    /// Takes a record of `partition`, and returns its id. If its batch is full, that goes to the sink.
    ///
    /// # Errors
    ///
    /// Why the record was not taken.
    ///
    /// # Panics
    ///
    /// If there is no such partition.
    #[inline]
    pub fn append(&mut self, partition: u32, moment: Moment, body: &[u8]) -> Result<u128, Refused> {
        let lane = self.rest.lane(partition);
        match self.lanes[lane].open.push(partition, moment.unix_us, body) {
            Some(id) => {
                self.rest.counts.appended += 1;
                Ok(id)
            }
            None => self.append_slowly(lane, partition, moment, body),
        }
    }

    /// [`append`](Batcher::append), with a way to learn when the record is written.
    ///
    /// # Errors
    ///
    /// As for [`append`](Batcher::append).
    ///
    /// # Panics
    ///
    /// If there is no such partition.
    pub fn append_awaiting(
        &mut self,
        partition: u32,
        moment: Moment,
        body: &[u8],
    ) -> Result<Awaiting, Refused> {
        self.append(partition, moment, body)?;
        let lane = self.rest.lane(partition);
        let Lane { open, place, .. } = &mut self.lanes[lane];
        let place = Rc::clone(place.get_or_insert_default());
        Ok(place.wait_for(open.records() as u32 - 1))
    }

    /// Whether so many more records of `partition`, with so many bytes in all, are sure to be taken: for a request
    /// whose records are taken together or not at all.
    ///
    /// # Panics
    ///
    /// If there is no such partition.
    pub fn has_room(&mut self, partition: u32, now: Instant, records: usize, bytes: usize) -> bool {
        let lane = self.rest.lane(partition);
        let open = &self.lanes[lane].open;
        let needed = open.growth_max(records, bytes, self.rest.size);
        self.make_room(needed, now)
    }

    /// Puts a record in that needs more than a copy.
    #[cold]
    #[inline(never)]
    fn append_slowly(
        &mut self,
        lane: usize,
        partition: u32,
        moment: Moment,
        body: &[u8],
    ) -> Result<u128, Refused> {
        if body.len() > self.rest.options.record_bytes_max {
            return Err(Refused::TooLarge);
        }
        let size = self.rest.size;
        let this = &mut self.lanes[lane];
        if !this.open.takes(body.len(), size) {
            this.close();
            self.rest.hand_over(this, moment.now);
        }
        if this.open.is_empty() {
            self.rest.begin(&mut this.open);
        }
        let growth = this.open.growth(body.len(), size);
        if !self.make_room(growth, moment.now) {
            let Batcher { lanes, rest } = self;
            if lanes[lane].open.is_empty() {
                rest.recycle(lanes[lane].open.take());
            }
            return Err(Refused::Full);
        }
        let Batcher { lanes, rest } = self;
        let this = &mut lanes[lane];
        let before = this.open.memory();
        this.open.prepare(partition, moment.unix_us, body.len(), size);
        rest.memory += this.open.memory() - before;
        let id = this.open.push(partition, moment.unix_us, body);
        this.since.get_or_insert(moment.now);
        if !this.is_busy {
            this.is_busy = true;
            rest.busy.push(lane as u32);
        }
        rest.counts.appended += 1;
        Ok(id.expect("room was made for it"))
    }

    /// Whether so much more memory may be taken, after everything was given back that can be.
    fn make_room(&mut self, bytes: usize, now: Instant) -> bool {
        if self.rest.has_room(bytes) {
            return true;
        }
        let Batcher { lanes, rest } = self;
        for &lane in &rest.busy.clone() {
            rest.settle(&mut lanes[lane as usize], now);
        }
        rest.drop_spare();
        rest.has_room(bytes)
    }

    /// Does what is due: takes the sink's answers, and hands over what the crate's documentation says. Receipts wake
    /// `waker` from now on, and then this is to be called again; likewise at the time it returns, if any.
    pub fn on_turn_end(&mut self, now: Instant, waker: &Waker) -> Option<Instant> {
        if self.rest.busy.is_empty() {
            return None;
        }
        self.rest.waker.clone_from(waker);
        self.work(|rest, lane| {
            rest.settle(lane, now);
            if rest.is_due(lane, now) {
                lane.close();
            }
            rest.hand_over(lane, now);
        });
        self.deadline()
    }

    /// Hands over as much as the sink takes, whether due or not: for the end. [`is_idle`](Batcher::is_idle) says whether
    /// the sink has answered for everything; until then it may be called again.
    pub fn flush(&mut self, now: Instant) {
        self.work(|rest, lane| {
            rest.settle(lane, now);
            lane.close();
            lane.retry_at = None;
            rest.hand_over(lane, now);
        });
    }

    fn work(&mut self, mut with: impl FnMut(&mut Rest<S>, &mut Lane)) {
        let Batcher { lanes, rest } = self;
        let mut busy = std::mem::take(&mut rest.busy);
        busy.retain(|&lane| {
            let lane = &mut lanes[lane as usize];
            with(rest, lane);
            lane.is_busy = !lane.is_idle();
            lane.is_busy
        });
        rest.busy = busy;
    }

    /// When [`on_turn_end`](Batcher::on_turn_end) is to be called if nothing happens before: a batch has waited long
    /// enough then, or the sink is to be tried again.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |lane: &u32| self.rest.deadline(&self.lanes[*lane as usize]);
        self.rest.busy.iter().filter_map(of).min()
    }

    /// Whether the sink has answered for everything that was appended.
    pub fn is_idle(&self) -> bool {
        self.rest.busy.is_empty()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.rest.counts
    }

    /// How much memory all batches take; never more than `memory_max`.
    pub fn memory(&self) -> usize {
        self.rest.memory
    }

    /// Why the sink did not take something, if nothing was written since.
    pub fn trouble(&self) -> Option<&Failure> {
        self.rest.trouble.as_ref()
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.rest.sink
    }
}

impl<S: Sink> Rest<S> {
    #[inline]
    fn lane(&self, partition: u32) -> usize {
        assert!(partition < self.options.partitions, "there is no partition {partition}");
        match self.options.layout {
            Layout::Mixed => 0,
            Layout::Partitioned => partition as usize,
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.memory.saturating_add(bytes) <= self.options.memory_max
    }

    /// Begins a batch, with ids of its own.
    fn begin(&mut self, open: &mut crate::batch::Open) {
        open.begin(self.spare.pop().unwrap_or_default(), self.next_id);
        self.next_id = self.next_id.wrapping_add(self.size.records as u128);
    }

    /// Whether the open batch goes to the sink now.
    fn is_due(&self, lane: &Lane, now: Instant) -> bool {
        let unanswered = lane.in_flight.len() + lane.closed.len();
        if unanswered == 0 || lane.open.is_full(self.size) {
            return true;
        }
        let is_over = |since| now >= since + self.options.linger;
        unanswered < self.options.in_flight_max && lane.since.is_some_and(is_over)
    }

    fn deadline(&self, lane: &Lane) -> Option<Instant> {
        let unanswered = lane.in_flight.len() + lane.closed.len();
        let linger = lane.since.filter(|_| unanswered < self.options.in_flight_max);
        let linger = linger.map(|since| since + self.options.linger);
        let retry = lane.retry_at.filter(|_| !lane.closed.is_empty());
        linger.into_iter().chain(retry).min()
    }

    /// Gives the sink what waits for it, as far as it takes it.
    fn hand_over(&mut self, lane: &mut Lane, now: Instant) {
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

    /// Takes the answers that are there, in order.
    fn settle(&mut self, lane: &mut Lane, now: Instant) {
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
                    self.counts.failed += refused;
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

    /// Whether a batch is kept that failed so.
    fn keeps(&self, failure: &Failure) -> bool {
        self.options.on_failure == OnFailure::Keep && failure.kind().may_pass()
    }

    /// The sink did not take a batch, or did not confirm it. It is tried again after `now`, or given up.
    fn failed(&mut self, lane: &mut Lane, closed: Closed, failure: Failure, now: Option<Instant>) {
        self.trouble = Some(failure.clone());
        if let Some(now) = now {
            self.counts.retries += 1;
            lane.retry_at = Some(now + self.options.retry_after);
            lane.closed.push_front(closed);
        } else {
            self.counts.failed += closed.batch.records() as u64;
            self.finish(closed, Err(failure));
        }
    }

    /// Nothing more happens with a batch.
    fn finish(&mut self, closed: Closed, outcome: Outcome) {
        let Closed { batch, place } = closed;
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

    fn recycle(&mut self, batch: Batch) {
        if self.spare.len() < SPARE_MAX && batch.memory() <= self.options.spare_bytes_max() {
            self.spare.push(batch);
        } else {
            self.memory -= batch.memory();
        }
    }

    fn drop_spare(&mut self) {
        for batch in self.spare.drain(..) {
            self.memory -= batch.memory();
        }
    }
}

/// Who waits is told, whatever happens.
impl<S> Drop for Batcher<S> {
    fn drop(&mut self) {
        let text = "the worker ended before the records were written";
        let failure = Failure::new(FailureKind::Closed, text);
        for lane in &mut self.lanes {
            let open = lane.place.take();
            let closed = lane.closed.drain(..).filter_map(|closed| closed.place);
            let in_flight = lane.in_flight.drain(..).filter_map(|in_flight| in_flight.closed.place);
            for place in in_flight.chain(closed).chain(open) {
                place.resolve(Err(failure.clone()));
            }
        }
    }
}
