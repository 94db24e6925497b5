//! Whether commands can be read from Kafka: a part of readiness, with patience in one direction.
//!
//! ```text
//!   read ──an error──▶ in doubt ──for PATIENCE──▶ not read: down, with the last reason
//!     ▲                   │                          │
//!     └── a message, or the group's coordinator answers for a topic that is there
//! ```
//!
//! An error alone says little: a broker that restarts causes some, and the other brokers go on. The absence of errors says as
//! little: a topic without messages causes none, and neither does a deleted topic, for minutes. So while no message comes, the
//! cluster is asked, once in [`LOOK_IDLE`], or once in [`LOOK_EVERY`] while there is doubt.

use std::time::{Duration, Instant};

use highwater::logging::tracing;

use crate::health::Part;

/// How long the doubt must last. Guess: longer than a leader's election or a restart of one of several brokers takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the cluster is asked while there is doubt.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often it is asked while nothing comes and nothing seems wrong.
const LOOK_IDLE: Duration = Duration::from_secs(5);

/// Whether commands can be read, as far as is known.
#[derive(Debug)]
pub(super) struct Readable {
    part: Part,
    /// The first failure since commands could last be read.
    since: Option<Instant>,
    /// When the cluster was last asked.
    looked: Option<Instant>,
}

impl Readable {
    pub(super) fn new() -> Readable {
        Readable { part: Part::new("reader"), since: None, looked: None }
    }

    pub(super) fn part(&self) -> Part {
        self.part.clone()
    }

    /// Commands are read, or could be.
    pub(super) fn works(&mut self) {
        if self.since.take().is_some() && self.part.down().is_some() {
            self.part.is_up();
            tracing::info!("commands are read again");
        }
    }

    /// Something has failed.
    pub(super) fn failed(&mut self, now: Instant, why: &str) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATIENCE {
            if self.part.down().is_none() {
                tracing::warn!(cause = %why, "commands cannot be read; they wait in Kafka");
            }
            self.part.is_down(format!("commands cannot be read: {why}"));
        }
    }

    /// Whether the cluster is to be asked now. If so, the next time counts from now.
    pub(super) fn begins_look(&mut self, now: Instant) -> bool {
        let interval = if self.since.is_some() { LOOK_EVERY } else { LOOK_IDLE };
        let is_due = self.looked.is_none_or(|at| now.saturating_duration_since(at) >= interval);
        if is_due {
            self.looked = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: commands that cannot be read for a while make it unavailable, with the last reason, until they can be; a short
    /// failure does not; and the cluster is asked more often while there is doubt, and never more often than it should be.
    #[test]
    fn doubts_last() {
        let (mut readable, start) = (Readable::new(), Instant::now());
        let part = readable.part();
        assert!(readable.begins_look(start) && !readable.begins_look(start + LOOK_EVERY / 2));
        readable.failed(start, "one");
        assert_eq!(part.down(), None);
        assert!(readable.begins_look(start + LOOK_EVERY));
        readable.works();
        assert!(!readable.begins_look(start + 2 * LOOK_EVERY));
        assert!(readable.begins_look(start + LOOK_EVERY + LOOK_IDLE));
        let again = start + PATIENCE;
        readable.failed(again, "two");
        assert_eq!(part.down(), None);
        readable.failed(again + PATIENCE, "three");
        assert_eq!(part.down().as_deref(), Some("commands cannot be read: three"));
        readable.works();
        assert_eq!(part.down(), None);
    }
}
