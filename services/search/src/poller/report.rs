//! The report of one poll, for the log and for tests.

use std::time::Duration;

use super::Outcome;
use crate::catalog::Applied;
use crate::feed::Stats;

/// One poll, told after it is over.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// How it went.
    pub outcome: &'a Outcome,
    /// How long it took.
    pub took: Duration,
    /// How long from now until the next one.
    pub next: Duration,
    /// The version of what is served now.
    pub version: u64,
    /// How many events are served now.
    pub events: usize,
}

impl Report<'_> {
    /// Writes the poll's one line to the log.
    ///
    /// It has the level INFO even if the poll failed: clients notice nothing of a failure, the
    /// metrics show a lasting one, and only lines of this level are never left out.
    pub fn log(&self) {
        let Report { outcome, took, next, version, events } = *self;
        let (reason, detail) = match outcome {
            Outcome::Failed { reason, detail, .. } => (Some(*reason), Some(detail.as_str())),
            Outcome::Fetched { .. } | Outcome::NotModified => (None, None),
        };
        let bytes = match outcome {
            Outcome::Fetched { bytes, .. } => Some(*bytes),
            Outcome::Failed { .. } | Outcome::NotModified => None,
        };
        let feed = outcome.feed();
        let count = |count: fn(&Stats) -> u64| feed.map(count);
        let applied = outcome.applied();
        let change = |count: fn(&Applied) -> usize| applied.map(count);
        tracing::info!(
            outcome = outcome.name(),
            reason,
            detail,
            bytes,
            plans = count(|feed| feed.plans),
            online = count(|feed| feed.online),
            new = change(|applied| applied.new),
            changed = change(|applied| applied.changed),
            skipped = count(Stats::skipped_total),
            duplicates = count(|feed| feed.duplicates).filter(|count| *count > 0),
            refused = change(|applied| applied.refused).filter(|count| *count > 0),
            skipped_plans = feed.filter(|feed| !feed.named.is_empty()).map(named),
            took_ms = millis(took),
            next_ms = millis(next),
            version,
            events,
            "poll",
        );
    }
}

/// The first of the skipped plans, each with its reason: `price(291:1642),date(292:1)`.
fn named(feed: &Stats) -> String {
    let named: Vec<String> = feed.named.iter().map(ToString::to_string).collect();
    named.join(",")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
