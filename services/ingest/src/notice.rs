//! Log lines for operators: once when there is no room, and once when there is room again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use highwater::batcher::{Failure, FailureKind};
use highwater::logging::rate_limited;

use crate::backend::Backend;
use crate::counts::Counts;
use crate::failure::JOURNAL_REMEDY;

/// How long no write must have failed before the log says that there is room again. On a disk that is full to the edge, a write
/// succeeds whenever something was removed, and the next one fails.
const CALM: Duration = Duration::from_secs(10);

/// Logs why records cannot be written. All workers share it.
pub struct Notice {
    backend: Arc<Backend>,
    counts: Arc<Counts>,
    data: String,
    shortage: Shortage,
    /// Refusals of clients were logged.
    refuses: AtomicBool,
    /// That the journal has failed was logged.
    has_failed: AtomicBool,
}

impl Notice {
    /// Nothing is wrong yet. `data` is the directory of the journal.
    pub fn new(backend: Arc<Backend>, counts: Arc<Counts>, data: String) -> Notice {
        let (shortage, refuses) = (Shortage::default(), AtomicBool::new(false));
        Notice { backend, counts, data, shortage, refuses, has_failed: AtomicBool::new(false) }
    }

    /// Takes a batcher's trouble at the end of a turn, if any.
    pub fn look(&self, now: Instant, trouble: Option<&Failure>) {
        let Some(failure) = trouble else {
            let has_room = self.shortage.lasts() && self.backend.has_room();
            if has_room && self.shortage.ends(now) {
                self.refuses.store(false, Relaxed);
                tracing::info!(data = self.data, "there is room again: records are written");
            }
            return;
        };
        if failure.kind() == FailureKind::Full {
            if self.shortage.begins(now) {
                self.say_full(failure);
            }
        } else if !self.backend.has_failed() {
            rate_limited!(WARN, cause = %failure, "records could not be written");
        } else if !self.has_failed.swap(true, Relaxed) {
            tracing::error!(
                cause = %failure,
                data = self.data,
                "the journal has failed, and accepts nothing until it is opened again. {JOURNAL_REMEDY}"
            );
        }
    }

    /// A client was refused, because memory is full.
    pub fn refused(&self) {
        if !self.shortage.lasts() {
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

/// A time without room: from the first write that failed until none has failed for [`CALM`].
#[derive(Default)]
struct Shortage {
    /// What all turns look at.
    lasts: AtomicBool,
    /// When a write failed last.
    failed: Mutex<Option<Instant>>,
}

impl Shortage {
    fn lasts(&self) -> bool {
        self.lasts.load(Relaxed)
    }

    /// A write has failed. Whether the shortage begins with it.
    fn begins(&self, now: Instant) -> bool {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        self.lasts.store(true, Relaxed);
        failed.replace(now).is_none()
    }

    /// No write has failed in a turn. Whether the shortage ends with it: true for one of the workers.
    fn ends(&self, now: Instant) -> bool {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = failed.is_some_and(|at| now.saturating_duration_since(at) >= CALM);
        if is_over {
            *failed = None;
            self.lasts.store(false, Relaxed);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a disk that is full to the edge, where writes succeed and fail in turns, is one shortage: two lines in the log,
    /// not two for each write.
    #[test]
    fn a_shortage_ends_after_a_calm() {
        let (shortage, start) = (Shortage::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!shortage.lasts() && !shortage.ends(after(0)));
        assert!(shortage.begins(after(0)));
        for second in 1..100 {
            assert!(!shortage.ends(after(second)), "{second}");
            assert!(second % 9 != 0 || !shortage.begins(after(second)), "{second}");
        }
        assert!(shortage.lasts() && !shortage.ends(after(108)));
        assert!(shortage.ends(after(109)), "the last failure was at 99");
        assert!(!shortage.lasts() && !shortage.ends(after(200)), "it ends once");
        assert!(shortage.begins(after(201)), "the next one");
    }
}
