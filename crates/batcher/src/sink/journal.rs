//! A sink that appends to a journal: written means durable.

use std::sync::Arc;

use highwater_core::frame::frame_bytes;
use highwater_journal::Producer;

use crate::batch::Batch;
use crate::failure::Failure;
use crate::receipt::Receipt;
use crate::sink::Sink;

/// Appends each batch to a journal, through a queue of its own.
///
/// The journal's `batch_bytes_max` must hold the largest batch: [`JournalSink::batch_bytes_of`] says how many bytes that
/// are there. A batch that it does not hold is refused with [`FailureKind::TooLarge`](crate::FailureKind::TooLarge).
#[derive(Debug)]
pub struct JournalSink {
    producer: Producer,
}

impl JournalSink {
    /// Appends through `producer`.
    pub fn new(producer: Producer) -> JournalSink {
        JournalSink { producer }
    }

    /// How many bytes a journal's batch has, at most, that holds `records` records with `body_bytes` bytes in all.
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
