//! The delivery's progress and health, for metrics and waiters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A delivery's progress. All counts are of this process, and only increase.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) left: [AtomicU64; 2],
    pub(super) delivered: AtomicU64,
    pub(super) delivered_bytes: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) position: AtomicU64,
    pub(super) oldest_us: AtomicU64,
    pub(super) sessions: AtomicU64,
    pub(super) is_idle: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Progress {
    /// Undelivered records in the journal when the delivery started. Pending records are these plus those appended
    /// since, minus [`delivered`](Progress::delivered).
    pub fn left_at_start(&self) -> u64 {
        self.left[0].load(Ordering::Relaxed)
    }

    /// The bytes of their bodies.
    pub fn left_at_start_bytes(&self) -> u64 {
        self.left[1].load(Ordering::Relaxed)
    }

    /// Records in Kafka or among the dead letters, with the position committed. Each record of the journal counts once
    /// in a process, even if its message had to be sent again.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Acquire)
    }

    /// The bytes of their bodies.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.load(Ordering::Acquire)
    }

    /// How many of [`delivered`](Progress::delivered) are dead letters.
    pub fn dead_lettered(&self) -> u64 {
        self.dead.load(Ordering::Acquire)
    }

    /// The committed position in the journal: every record with a lower offset is delivered or a dead letter.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// When the oldest undelivered record was accepted, in microseconds since 1970; 0 if there is none.
    pub fn oldest_us(&self) -> u64 {
        self.oldest_us.load(Ordering::Relaxed)
    }

    /// How many producers were created: the first, and one each time a producer could not continue.
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Whether everything in the journal was delivered at the last check.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Acquire)
    }

    /// What prevents delivery now, worded for operators; `None` if all is well.
    pub fn trouble(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current problem, or none. An unchanged one is not logged again.
    pub(super) fn set_trouble(&self, text: Option<String>) {
        let mut trouble = self.lock();
        match (&*trouble, &text) {
            (None, Some(text)) => tracing::warn!("records wait in the journal: {text}"),
            (Some(before), Some(text)) if before != text => {
                tracing::warn!("records still wait in the journal: {text}");
            }
            (Some(_), None) => tracing::info!("records are delivered again"),
            _ => {}
        }
        *trouble = text;
    }
}
