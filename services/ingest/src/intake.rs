//! What does a worker do with a record?
//!
//! Each worker has a batcher and a sink of its own. Requests append during the turn; at its end, what is due goes to the
//! sink, and what the sink has answered is counted and told to the handlers that wait.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use highwater::Request;
use highwater::batcher::{Awaiting, Batcher, Moment, Options, OptionsError, Refused, Sink};

use crate::counts::{Tally, add};
use crate::notice::Notice;
use crate::partition;

/// How often a worker that ends looks whether the sink has answered.
const END_LOOK: Duration = Duration::from_millis(1);

/// What takes a worker's records.
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

/// What is taken for one worker, and for how long.
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
            Some(key) => partition::of_key(key, self.partitions),
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

    /// Takes a record, and says how to learn that it is written.
    ///
    /// # Errors
    /// Why not.
    pub fn append_awaiting(&self, partition: u32, body: &[u8]) -> Result<Awaiting, Refused> {
        let moment = self.moment();
        let (_, awaiting) = self.batcher.borrow_mut().append_awaiting(partition, moment, body)?;
        add(&self.tally.appended, 1);
        Ok(awaiting)
    }

    /// Whether so many records with so many bytes in all can be taken now, all of them.
    pub fn has_room(&self, partition: u32, records: usize, bytes: usize) -> bool {
        let now = self.moment().now;
        self.batcher.borrow_mut().has_room(partition, now, records, bytes)
    }

    /// Records are answered 503, because there is no room for them in memory.
    pub fn refuse(&self, records: usize) {
        self.notice.refused();
        self.count_refused(records);
    }

    /// Counts records that are answered 503.
    pub fn count_refused(&self, records: usize) {
        add(&self.tally.refused, records as u64);
    }

    /// The time, read once a turn.
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

    /// The end of a turn. Returns after how long to come again.
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
        self.notice.look(batcher.trouble());
        self.publish(&batcher);
        due.map(|due| due.saturating_duration_since(now))
    }

    fn publish(&self, batcher: &Batcher<Box<dyn Sink>>) {
        self.tally.written.store(batcher.counts().written, Relaxed);
        self.tally.oldest_us.store(batcher.oldest_us().unwrap_or(0), Relaxed);
    }
}

/// The worker has drained: what it has accepted goes to the sink before it ends.
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
