//! Records that a full disk cannot store: they go to Kafka directly from memory.
//!
//! ```text
//!   SpoolSink ──the journal has room──▶ journal ─▶ delivery ─▶ Kafka
//!       └──it is full, and everything in it is delivered──▶ Direct ─▶ the delivery's thread ─▶ Kafka
//! ```
//!
//! Order: a worker hands over a batch when the previous one is answered for. The delivery's thread takes a batch, then
//! reads the journal to its end, and sends the batch when all of that is acknowledged; so records that the worker
//! appended earlier are in the topic earlier.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::progress::Progress;
use crate::receipt::Answer;
use crate::sink::JournalSink;
use crate::{Batch, Failure, Receipt, Sink};

/// How many of a worker's batches bypass a full journal before it is tried again.
const PAST_MAX: u32 = 16;

/// A sink that appends to the delivery's journal, and bypasses it while it is full; from
/// [`Delivery::sink`](super::Delivery::sink), one per worker. Its batcher must have one batch in flight, as with
/// [`OnFailure::Keep`](crate::OnFailure::Keep), so that order is kept.
///
/// Written means durable in the journal, or acknowledged by Kafka.
#[derive(Debug)]
pub struct SpoolSink {
    journal: JournalSink,
    direct: Arc<Direct>,
    /// Consecutive batches that bypassed the journal.
    past: u32,
}

impl SpoolSink {
    pub(super) fn new(journal: JournalSink, direct: Arc<Direct>) -> SpoolSink {
        SpoolSink { journal, direct, past: 0 }
    }
}

impl Sink for SpoolSink {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        if self.journal.is_full()
            && self.past < PAST_MAX
            && let Some(receipt) = self.direct.give(batch)
        {
            self.past += 1;
            return Ok(receipt);
        }
        self.past = 0;
        self.journal.write(batch)
    }
}

/// The hand-over of batches from workers to the delivery's thread. Each worker has at most one there.
#[derive(Debug)]
pub(super) struct Direct {
    progress: Arc<Progress>,
    /// `None`: the thread has ended.
    batches: Mutex<Option<VecDeque<Given>>>,
}

type Given = (Arc<Batch>, Answer);

impl Direct {
    pub(super) fn new(progress: Arc<Progress>) -> Direct {
        Direct { progress, batches: Mutex::new(Some(VecDeque::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Given>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a batch, unless the journal has something to deliver first, or Kafka does not answer.
    fn give(&self, batch: &Arc<Batch>) -> Option<Receipt> {
        if !self.progress.is_idle() || self.progress.trouble().is_some() {
            return None;
        }
        let (answer, receipt) = Receipt::pair();
        self.lock().as_mut()?.push_back((Arc::clone(batch), answer));
        Some(receipt)
    }

    /// The batch that has waited longest.
    pub(super) fn take(&self) -> Option<Given> {
        self.lock().as_mut()?.pop_front()
    }

    /// Accepts no more, and fails waiting batches.
    pub(super) fn close(&self) {
        let batches = self.lock().take();
        drop(batches);
    }
}
