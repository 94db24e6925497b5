//! The poller's counts, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::Outcome;
use crate::feed::Skip;

/// Counters since the start. Each is exact; read together they may be of different polls.
#[derive(Debug, Default)]
pub struct PollStats {
    ok: AtomicU64,
    not_modified: AtomicU64,
    failed: AtomicU64,
    skipped: [AtomicU64; Skip::ALL.len()],
    last_success: AtomicI64,
}

impl PollStats {
    /// Polls that read a whole feed.
    pub fn ok(&self) -> u64 {
        self.ok.load(Ordering::Relaxed)
    }

    /// Polls that learned that nothing changed.
    pub fn not_modified(&self) -> u64 {
        self.not_modified.load(Ordering::Relaxed)
    }

    /// Polls that failed, in part or altogether.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Plans skipped for this reason, counted again in every feed that has them.
    pub fn skipped(&self, reason: Skip) -> u64 {
        self.skipped[reason as usize].load(Ordering::Relaxed)
    }

    /// When the last poll that did not fail began, in seconds since 1970-01-01T00:00:00Z; `None`
    /// until there is one.
    pub fn last_success(&self) -> Option<i64> {
        Some(self.last_success.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    pub(super) fn count(&self, outcome: &Outcome, seen_at: i64) {
        let counter = match outcome {
            Outcome::Fetched { .. } => &self.ok,
            Outcome::NotModified => &self.not_modified,
            Outcome::Failed { .. } => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if !matches!(outcome, Outcome::Failed { .. }) {
            self.last_success.store(seen_at, Ordering::Relaxed);
        }
        let skipped = outcome.feed().map(|feed| feed.skipped).unwrap_or_default();
        for (counter, count) in self.skipped.iter().zip(skipped) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}
