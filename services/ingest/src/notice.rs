//! Log lines for operators: once when there is no room, and once when there is room again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use highwater::batcher::{Failure, FailureKind};
use highwater::logging::rate_limited;

use crate::backend::Backend;
use crate::counts::Counts;

/// Logs why records cannot be written. All workers share it.
pub struct Notice {
    backend: Arc<Backend>,
    counts: Arc<Counts>,
    data: String,
    /// A full disk or journal was logged.
    is_full: AtomicBool,
    /// Refusals of clients were logged.
    refuses: AtomicBool,
}

impl Notice {
    /// Nothing is wrong yet. `data` is the directory of the journal.
    pub fn new(backend: Arc<Backend>, counts: Arc<Counts>, data: String) -> Notice {
        let (is_full, refuses) = (AtomicBool::new(false), AtomicBool::new(false));
        Notice { backend, counts, data, is_full, refuses }
    }

    /// Takes a batcher's trouble at the end of a turn, if any.
    pub fn look(&self, trouble: Option<&Failure>) {
        let is_full = trouble.is_some_and(|failure| failure.kind() == FailureKind::Full);
        let Some(failure) = trouble else {
            let has_room = self.is_full.load(Relaxed) && self.backend.has_room();
            if has_room && self.is_full.swap(false, Relaxed) {
                self.refuses.store(false, Relaxed);
                tracing::info!(data = self.data, "there is room again: records are written");
            }
            return;
        };
        if !is_full {
            rate_limited!(WARN, cause = %failure, "records could not be written");
        } else if !self.is_full.swap(true, Relaxed) {
            self.say_full(failure);
        }
    }

    /// A client was refused, because memory is full.
    pub fn refused(&self) {
        if !self.is_full.load(Relaxed) {
            rate_limited!(
                WARN,
                "--memory-max is reached: the journal or Kafka is too slow; clients get 503"
            );
        } else if !self.refuses.swap(true, Relaxed) {
            let (in_memory, on_disk) = self.waiting();
            tracing::error!(
                data = self.data,
                in_memory,
                on_disk,
                "memory (--memory-max) is full as well as the disk: clients get 503 until there is room"
            );
        }
    }

    fn say_full(&self, failure: &Failure) {
        let (in_memory, on_disk) = self.waiting();
        tracing::error!(
            cause = %failure, data = self.data, spool_bytes = self.backend.spool_bytes(), in_memory, on_disk,
            "there is no room for records. {}",
            self.backend.remedy()
        );
    }

    /// Acknowledged records in memory, and undelivered ones on the disk.
    fn waiting(&self) -> (u64, u64) {
        let (accepted, durable) = (self.counts.accepted(), self.counts.durable());
        let delivered = self.backend.delivered(durable);
        (accepted.saturating_sub(durable), durable.saturating_sub(delivered))
    }
}
