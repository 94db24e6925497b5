//! A sink that discards records and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::Batch;
use crate::failure::Failure;
use crate::receipt::{Receipt, Written};
use crate::sink::Sink;

/// Counts records and discards them: to measure everything before a sink, or to try a service without one.
#[derive(Debug, Default)]
pub struct Null {
    counts: Arc<NullCounts>,
}

/// Counts of discarded records, readable on any thread.
#[derive(Debug, Default)]
pub struct NullCounts {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Null {
    /// This sink's counts.
    pub fn counts(&self) -> Arc<NullCounts> {
        Arc::clone(&self.counts)
    }
}

impl NullCounts {
    /// How many records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// How many bytes their bodies had.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Sink for Null {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        self.counts.records.fetch_add(batch.records() as u64, Ordering::Relaxed);
        self.counts.bytes.fetch_add(batch.body_bytes() as u64, Ordering::Relaxed);
        Ok(Receipt::ready(Ok(Written::default())))
    }
}
