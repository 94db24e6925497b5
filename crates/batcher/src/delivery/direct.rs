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
//!
//! If Kafka then fails, a batch goes back to its worker after [`WAIT_MAX`]: there may be room on the disk by then, where it is
//! safer than in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::progress::Progress;
use crate::receipt::Answer;
use crate::sink::JournalSink;
use crate::{Batch, Failure, FailureKind, Receipt, Sink};

/// How many of a worker's batches bypass a full journal before it is tried again.
const PAST_MAX: u32 = 16;

/// How long a batch waits for a Kafka that has failed. A guess: longer than a partition takes to get another leader.
const WAIT_MAX: Duration = Duration::from_secs(5);

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

/// A batch on its way from memory.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) batch: Arc<Batch>,
    pub(super) answer: Answer,
    at: Instant,
}

impl Given {
    /// Whether it has waited long enough for a Kafka that has failed.
    pub(super) fn is_late(&self) -> bool {
        self.at.elapsed() >= WAIT_MAX
    }

    /// Its worker keeps it, and gives it to the sink again.
    pub(super) fn give_back(self) {
        // Its memory is the worker's again before the worker is notified.
        drop(self.batch);
        let text = "Kafka has not acknowledged records that bypassed the full spool";
        self.answer.resolve(Err(Failure::new(FailureKind::TimedOut, text)));
    }
}

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
        let given = Given { batch: Arc::clone(batch), answer, at: Instant::now() };
        self.lock().as_mut()?.push_back(given);
        Some(receipt)
    }

    /// The batch that has waited longest.
    pub(super) fn take(&self) -> Option<Given> {
        self.lock().as_mut()?.pop_front()
    }

    /// Gives back those that have waited long enough. Nothing of them was sent.
    pub(super) fn give_back(&self) {
        while let Some(given) =
            self.lock().as_mut().and_then(|all| all.pop_front_if(|one| one.is_late()))
        {
            given.give_back();
        }
    }

    /// Accepts no more, and fails waiting batches.
    pub(super) fn close(&self) {
        let batches = self.lock().take();
        drop(batches);
    }
}
