//! A sink that appends to a journal: written means durable.

use std::sync::Arc;

use highwater_core::frame::frame_bytes;
use highwater_journal::Producer;

use crate::batch::Batch;
use crate::failure::Failure;
use crate::receipt::Receipt;
use crate::sink::Sink;

/// Appends each batch to a journal, through its own queue.
///
/// The journal's `batch_bytes_max` must hold the largest batch: [`JournalSink::batch_bytes_of`] computes its size
/// there. A larger batch is refused with [`FailureKind::TooLarge`](crate::FailureKind::TooLarge).
#[derive(Debug)]
pub struct JournalSink {
    producer: Producer,
}

impl JournalSink {
    /// Appends through `producer`.
    pub fn new(producer: Producer) -> JournalSink {
        JournalSink { producer }
    }

    /// Whether the journal had no room for the last records.
    #[cfg(feature = "kafka")]
    pub(crate) fn is_full(&self) -> bool {
        self.producer.is_full()
    }

    /// The largest size of a journal batch with `records` records and `body_bytes` bytes in total.
    pub const fn batch_bytes_of(records: usize, body_bytes: usize) -> usize {
        // Each frame's padding comes to less than what an empty body's frame takes beyond its header.
        let framed = frame_bytes(1);
        records.saturating_mul(framed).saturating_add(body_bytes)
    }
}

impl Sink for JournalSink {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        let bytes = JournalSink::batch_bytes_of(batch.records(), batch.body_bytes());
        let mut framed = highwater_journal::Batch::with_capacity(bytes);
        batch.iter().for_each(|record| framed.push(record));
        match self.producer.append(framed) {
            Ok(receipt) => Ok(Receipt::of_journal(receipt)),
            Err(refused) => Err(Failure::from(&refused.error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use highwater_journal::{Directory, Item, Journal, Options};

    use crate::{Batcher, FailureKind, Moment, OnFailure};

    /// A journal, and its directory, which goes when the test ends.
    fn journal(batch_bytes_max: usize) -> (tempfile::TempDir, Journal) {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::open(place.path()).expect("a directory of its own");
        let mut options = Options::default();
        options.batch_bytes_max = batch_bytes_max;
        (place, Journal::open(directory, options).expect("it is empty"))
    }

    /// Purpose: what goes through the batcher into a journal stands there with its partition, id, time and body, in order;
    /// and a batch of any bodies fits into what `batch_bytes_of` says.
    #[test]
    fn records_arrive() {
        let bodies: Vec<Vec<u8>> = (0..300_usize).map(|n| vec![n as u8; n % 40]).collect();
        let bytes = bodies.iter().map(Vec::len).sum();
        let (_place, journal) = journal(JournalSink::batch_bytes_of(bodies.len(), bytes));
        let sink = JournalSink::new(journal.producer().expect("there are few"));
        let options = crate::Options { partitions: 7, first_id: 100, ..crate::Options::default() };
        let mut batcher = Batcher::new(sink, options).expect("in range");
        let now = Instant::now();
        for (number, body) in bodies.iter().enumerate() {
            let moment = Moment { now, unix_us: 5 + number as u64 / 10 };
            let id = batcher.append(number as u32 % 7, moment, body).expect("there is room");
            assert_eq!(id, 100 + number as u128);
        }
        let until = now + Duration::from_secs(30);
        while !batcher.is_idle() {
            assert!(Instant::now() < until, "no answer");
            batcher.on_turn_end(now, Waker::noop());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((batcher.counts().written, batcher.counts().retries), (300, 0));
        let mut reader = journal.reader_from_start();
        for (number, body) in bodies.iter().enumerate() {
            let Item::Record(record) = reader.next().expect("it can be read") else {
                panic!("record {number} is missing");
            };
            assert_eq!((record.partition, record.id), (number as u32 % 7, 100 + number as u128));
            assert_eq!((record.time_us, record.body), (5 + number as u64 / 10, &body[..]));
        }
    }

    /// Purpose: a journal whose batches are too small, and one that is closed, are reported as such; nobody waits.
    #[test]
    fn refusals_are_reported() {
        for (bytes, is_closed, kind) in
            [(64, false, FailureKind::TooLarge), (1 << 20, true, FailureKind::Closed)]
        {
            let (_place, journal) = journal(bytes);
            let sink = JournalSink::new(journal.producer().expect("there are few"));
            if is_closed {
                journal.close().expect("the disk works");
            }
            let options =
                crate::Options { on_failure: OnFailure::Report, ..crate::Options::default() };
            let mut batcher = Batcher::new(sink, options).expect("in range");
            let moment = Moment { now: Instant::now(), unix_us: 0 };
            let appended = batcher.append_awaiting(0, moment, &[0; 100]);
            let (_, awaiting) = appended.expect("there is room");
            batcher.on_turn_end(moment.now, Waker::noop());
            let outcome = awaiting.outcome().expect("it is known at once");
            assert_eq!(outcome.expect_err("it is refused").kind(), kind);
            assert!(batcher.is_idle());
        }
    }
}
