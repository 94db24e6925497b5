//! How a worker handles its records.
//!
//! Each worker has its own batcher and sink. Requests append during the turn; at its end, due batches go to the sink,
//! and the sink's answers are counted and passed to the waiting handlers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use highwater::Request;
use highwater::batcher::sink::kafka::partition_of_key;
use highwater::batcher::{Awaiting, Batcher, Moment, Options, OptionsError, Refused, Sink};

use crate::counts::{Tally, add};
use crate::notice::Notice;

/// How often an ending worker checks for the sink's answers.
const END_LOOK: Duration = Duration::from_millis(1);

/// Accepts a worker's records.
pub struct Intake {
    batcher: RefCell<Batcher<Box<dyn Sink>>>,
    tally: Arc<Tally>,
    partitions: u32,
    /// Where records without a key go in this turn.
    turn_partition: Cell<u32>,
    /// The time of this turn, once it was asked for.
    moment: Cell<Option<Moment>>,
    /// How long it may take at the end to hand over what is left.
    end_timeout: Duration,
    notice: Arc<Notice>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("tally", &self.tally).finish_non_exhaustive()
    }
}

/// The options of one worker's intake.
#[derive(Clone, Debug)]
pub struct IntakeOptions {
    /// The batcher's.
    pub batcher: Options,
    /// The partition that this worker begins with.
    pub first_partition: u32,
    /// How long it may take at the end to hand over what is left.
    pub end_timeout: Duration,
}

impl Intake {
    /// Gives records to `sink`, and counts them in `tally`.
    ///
    /// # Errors
    /// An option of the batcher is out of its range.
    pub fn new(
        sink: Box<dyn Sink>,
        options: IntakeOptions,
        tally: Arc<Tally>,
        notice: Arc<Notice>,
    ) -> Result<Intake, OptionsError> {
        let partitions = options.batcher.partitions;
        Ok(Intake {
            batcher: RefCell::new(Batcher::new(sink, options.batcher)?),
            tally,
            partitions,
            turn_partition: Cell::new(options.first_partition % partitions),
            moment: Cell::new(None),
            end_timeout: options.end_timeout,
            notice,
        })
    }

    /// The partition of a request's records: that of its `Record-Key`, or that of this turn.
    pub fn partition(&self, request: &Request<'_>) -> u32 {
        if self.partitions == 1 {
            return 0;
        }
        match request.headers().get("record-key") {
            Some(key) => partition_of_key(key, self.partitions),
            None => self.turn_partition.get(),
        }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// Why not.
    pub fn append(&self, partition: u32, body: &[u8]) -> Result<(), Refused> {
        let moment = self.moment();
        self.batcher.borrow_mut().append(partition, moment, body)?;
        add(&self.tally.appended, 1);
        Ok(())
    }

    /// Accepts a record, and returns a future for its outcome.
    ///
    /// # Errors
    /// Why not.
    pub fn append_awaiting(&self, partition: u32, body: &[u8]) -> Result<Awaiting, Refused> {
        let moment = self.moment();
        let (_, awaiting) = self.batcher.borrow_mut().append_awaiting(partition, moment, body)?;
        add(&self.tally.appended, 1);
        Ok(awaiting)
    }

    /// Whether this many records with this many bytes in total can all be accepted now.
    pub fn has_room(&self, partition: u32, records: usize, bytes: usize) -> bool {
        let now = self.moment().now;
        self.batcher.borrow_mut().has_room(partition, now, records, bytes)
    }

    /// Counts and reports records answered 503 because there is no room in memory.
    pub fn refuse(&self, records: usize) {
        self.notice.refused();
        self.count_refused(records);
    }

    /// Counts records that are answered 503.
    pub fn count_refused(&self, records: usize) {
        add(&self.tally.refused, records as u64);
    }

    /// The time, read once per turn.
    fn moment(&self) -> Moment {
        if let Some(moment) = self.moment.get() {
            return moment;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let moment = Moment { now: Instant::now(), unix_us };
        self.moment.set(Some(moment));
        moment
    }

    /// Ends a turn. Returns when to call it again.
    pub fn end_turn(&self, waker: &Waker) -> Option<Duration> {
        if self.moment.take().is_some() {
            self.turn_partition.set((self.turn_partition.get() + 1) % self.partitions);
        }
        let mut batcher = self.batcher.borrow_mut();
        if batcher.is_idle() {
            return None;
        }
        let now = Instant::now();
        let due = batcher.on_turn_end(now, waker);
        self.notice.look(now, batcher.trouble());
        self.publish(&batcher);
        due.map(|due| due.saturating_duration_since(now))
    }

    fn publish(&self, batcher: &Batcher<Box<dyn Sink>>) {
        self.tally.written.store(batcher.counts().written, Relaxed);
        self.tally.oldest_us.store(batcher.oldest_us().unwrap_or(0), Relaxed);
    }
}

/// The worker has drained: accepted records go to the sink before it ends.
impl Drop for Intake {
    fn drop(&mut self) {
        let batcher = self.batcher.get_mut();
        let begun = Instant::now();
        loop {
            batcher.flush(Instant::now());
            if batcher.is_idle() || begun.elapsed() >= self.end_timeout {
                break;
            }
            thread::sleep(END_LOOK);
        }
        let batcher = self.batcher.borrow();
        self.publish(&batcher);
    }
}
