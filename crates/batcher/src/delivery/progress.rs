//! How far has the delivery come, and is it well? For metrics and for whoever waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far a delivery has come. All counts are of this process, and only rise.
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
    /// Records that were in the journal, and not delivered, when the delivery started. Add what was appended since, and
    /// subtract [`delivered`](Progress::delivered), for what is pending.
    pub fn left_at_start(&self) -> u64 {
        self.left[0].load(Ordering::Relaxed)
    }

    /// The bytes of their bodies.
    pub fn left_at_start_bytes(&self) -> u64 {
        self.left[1].load(Ordering::Relaxed)
    }

    /// Records that are done with, the position committed: in Kafka, or among the dead letters. Each record of the
    /// journal counts once in a process, even if its message had to be sent again.
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

    /// The committed position in the journal: every record with a lower offset is done with.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// When the oldest record that is not delivered was taken, in microseconds since 1970; 0 if all are.
    pub fn oldest_us(&self) -> u64 {
        self.oldest_us.load(Ordering::Relaxed)
    }

    /// How often a producer was made: the first time, and each time that one could not go on.
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Whether everything that is in the journal was delivered, when it was last looked.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Acquire)
    }

    /// What keeps records from being delivered now, for an operator; nothing if all is well.
    pub fn trouble(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is wrong, or that nothing is. What was said before is not logged again.
    pub(super) fn say(&self, text: Option<String>) {
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
