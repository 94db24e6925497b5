//! From records to batches, and from batches to a sink, on one thread.
//!
//! Methods are inputs ([`append`](Batcher::append), [`append_awaiting`](Batcher::append_awaiting)), commands
//! ([`on_turn_end`](Batcher::on_turn_end), [`flush`](Batcher::flush)) and outputs ([`counts`](Batcher::counts),
//! [`memory`](Batcher::memory), [`trouble`](Batcher::trouble)).
//!
//! Invariants: memory is counted as allocated, not as filled; every non-empty lane is among the busy ones; a batch's
//! ids are unique, because they are taken from a counter in blocks of `records_max`.

use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use crate::awaiting::Awaiting;
use crate::batch::Size;
use crate::failure::{Failure, FailureKind};
use crate::flow::{Counts, Flow};
use crate::lane::Lane;
use crate::options::{Options, OptionsError};
use crate::sink::Sink;

/// Gathers one worker's records into batches, and hands them to a sink. See the crate's documentation.
///
/// Dropping it drops records that the sink does not have yet, and their waiters get an error; call
/// [`flush`](Batcher::flush) first.
#[derive(Debug)]
pub struct Batcher<S> {
    lanes: Vec<Lane>,
    flow: Flow<S>,
}

/// A moment on two clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For measuring waits.
    pub now: Instant,
    /// The time stored in records, in microseconds since 1970.
    pub unix_us: u64,
}

/// Why a record was not accepted. No part of it is or will be in a batch.
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

impl<S: Sink> Batcher<S> {
    /// An empty batcher that hands its batches to `sink`.
    ///
    /// # Errors
    ///
    /// Which option is out of its range.
    pub fn new(sink: S, options: Options) -> Result<Batcher<S>, OptionsError> {
        options.check()?;
        let lanes = (0..options.lanes()).map(|_| Lane::default()).collect();
        let flow = Flow {
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
        Ok(Batcher { lanes, flow })
    }

    /// Accepts a record of `partition`, and returns its id. If its batch is full, the batch goes to the sink.
    ///
    /// # Errors
    ///
    /// Why the record was not accepted.
    ///
    /// # Panics
    ///
    /// If there is no such partition.
    #[inline]
    pub fn append(&mut self, partition: u32, moment: Moment, body: &[u8]) -> Result<u128, Refused> {
        let lane = self.flow.lane(partition);
        if body.len() > self.flow.options.record_bytes_max {
            return Err(Refused::TooLarge);
        }
        match self.lanes[lane].open.push(partition, moment.unix_us, body) {
            Some(id) => {
                self.flow.counts.appended += 1;
                Ok(id)
            }
            None => self.append_slowly(lane, partition, moment, body),
        }
    }

    /// [`append`](Batcher::append), which also returns a future for the record's outcome.
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
    ) -> Result<(u128, Awaiting), Refused> {
        let id = self.append(partition, moment, body)?;
        let lane = self.flow.lane(partition);
        let Lane { open, place, .. } = &mut self.lanes[lane];
        let place = Rc::clone(place.get_or_insert_default());
        Ok((id, place.wait_for(open.records() as u32 - 1)))
    }

    /// Whether this many more records of `partition`, with this many bytes in total, are sure to be accepted: for a
    /// request whose records are accepted together or not at all.
    ///
    /// # Panics
    ///
    /// If there is no such partition.
    pub fn has_room(&mut self, partition: u32, now: Instant, records: usize, bytes: usize) -> bool {
        let lane = self.flow.lane(partition);
        let open = &self.lanes[lane].open;
        let needed = open.growth_max(records, bytes, self.flow.size);
        self.make_room(needed, now)
    }

    /// Adds a record that needs more than a copy.
    #[cold]
    #[inline(never)]
    fn append_slowly(
        &mut self,
        lane: usize,
        partition: u32,
        moment: Moment,
        body: &[u8],
    ) -> Result<u128, Refused> {
        let size = self.flow.size;
        let this = &mut self.lanes[lane];
        if !this.open.takes(body.len(), size) {
            this.close(moment.now);
            self.flow.hand_over(this, moment.now);
        }
        if this.open.is_empty() {
            self.flow.begin(&mut this.open);
        }
        let growth = this.open.growth(body.len(), size);
        if !self.make_room(growth, moment.now) {
            let Batcher { lanes, flow } = self;
            if lanes[lane].open.is_empty() {
                flow.recycle(lanes[lane].open.take());
            }
            return Err(Refused::Full);
        }
        let Batcher { lanes, flow } = self;
        let this = &mut lanes[lane];
        let before = this.open.memory();
        this.open.prepare(partition, moment.unix_us, body.len(), size);
        flow.memory += this.open.memory() - before;
        let id = this.open.push(partition, moment.unix_us, body);
        this.since.get_or_insert(moment.now);
        if !this.is_busy {
            this.is_busy = true;
            flow.busy.push(lane as u32);
        }
        flow.counts.appended += 1;
        Ok(id.expect("room was made for it"))
    }

    /// Whether this much more memory is available, after releasing all that can be released.
    fn make_room(&mut self, bytes: usize, now: Instant) -> bool {
        if self.flow.has_room(bytes) {
            return true;
        }
        let Batcher { lanes, flow } = self;
        for &lane in &flow.busy.clone() {
            flow.settle(&mut lanes[lane as usize], now);
        }
        flow.drop_spare();
        flow.has_room(bytes)
    }

    /// Does the work that is due: takes the sink's answers, and hands over due batches (see the crate's documentation).
    /// From now on receipts wake `waker`; call this again then, and at the time it returns, if any.
    pub fn on_turn_end(&mut self, now: Instant, waker: &Waker) -> Option<Instant> {
        if self.flow.busy.is_empty() {
            return None;
        }
        self.flow.waker.clone_from(waker);
        self.work(|flow, lane| {
            // Closed batches go first: whether the open batch is due depends on them.
            flow.hand_over(lane, now);
            if flow.is_due(lane, now) {
                lane.close(now);
                flow.hand_over(lane, now);
            }
            flow.time_out(lane, now);
        });
        self.deadline()
    }

    /// Hands over as much as the sink accepts, whether due or not: for shutdown. [`is_idle`](Batcher::is_idle) says
    /// whether the sink has answered for everything; until then this may be called again.
    pub fn flush(&mut self, now: Instant) {
        self.work(|flow, lane| {
            lane.close(now);
            lane.retry_at = None;
            flow.hand_over(lane, now);
        });
    }

    fn work(&mut self, mut with: impl FnMut(&mut Flow<S>, &mut Lane)) {
        let Batcher { lanes, flow } = self;
        let mut busy = std::mem::take(&mut flow.busy);
        busy.retain(|&lane| {
            let lane = &mut lanes[lane as usize];
            with(flow, lane);
            lane.is_busy = !lane.is_idle();
            lane.is_busy
        });
        flow.busy = busy;
    }

    /// When [`on_turn_end`](Batcher::on_turn_end) must be called at the latest: a batch's linger ends then, or the sink
    /// is to be retried.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |lane: &u32| self.flow.deadline(&self.lanes[*lane as usize]);
        self.flow.busy.iter().filter_map(of).min()
    }

    /// Whether the sink has answered for everything that was appended.
    pub fn is_idle(&self) -> bool {
        self.flow.busy.is_empty()
    }

    /// The time of the oldest record that the sink has not answered for, in microseconds since 1970. `None` if there is
    /// none.
    pub fn oldest_us(&self) -> Option<u64> {
        let of = |lane: &u32| self.lanes[*lane as usize].oldest_us();
        self.flow.busy.iter().filter_map(of).min()
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.flow.counts
    }

    /// How much memory all batches take; never more than `memory_max`.
    pub fn memory(&self) -> usize {
        self.flow.memory
    }

    /// The sink's last failure, if nothing has been written since.
    pub fn trouble(&self) -> Option<&Failure> {
        self.flow.trouble.as_ref()
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.flow.sink
    }
}

/// Waiters get an outcome, whatever happens.
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
