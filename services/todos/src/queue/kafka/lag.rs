//! Up to which time are the acknowledged commands of all instances applied?
//!
//! It looks at the ends of the topic's partitions again and again. Once the workers have committed that far, all that was
//! acknowledged before the look is applied.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use highwater::logging::tracing;

use super::KafkaSettings;
use super::waiting::{Partition, Watcher};
use crate::queue::QueueError;

/// How often it looks. Workers commit once per second.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the cluster may take for each answer.
const ANSWER: Duration = Duration::from_secs(2);

/// How long an instance may take to show what is committed. They aim at 100 ms from when it is applied, which is earlier.
const SHOWN: Duration = Duration::from_millis(250);

/// How many looks are remembered; beyond it, every other one is forgotten.
const LOOKS_MAX: usize = 64;

/// Watches the workers, on its own thread, until it is dropped.
pub(super) struct Lag {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    settled: Mutex<Option<Settled>>,
    stop: AtomicBool,
}

/// Everything that was acknowledged before `at` is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    at: Instant,
    /// When that was found out.
    found: Instant,
}

impl Lag {
    pub(super) fn watch(settings: &KafkaSettings) -> Result<Lag, QueueError> {
        let watcher = Watcher::new(settings)?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let run = move || {
            let mut looks = Looks::default();
            while !theirs.stop.load(Ordering::Relaxed) {
                let at = Instant::now();
                match watcher.look(ANSWER) {
                    Ok(partitions) => {
                        let settled = looks
                            .add(at, &partitions)
                            .map(|at| Settled { at, found: Instant::now() });
                        *theirs.settled.lock().unwrap_or_else(PoisonError::into_inner) = settled;
                    }
                    // Others say that the cluster does not answer; until it does, this is the last that is known.
                    Err(error) => tracing::debug!(%error, "how far the workers are is not known"),
                }
                thread::park_timeout(LOOK_EVERY);
            }
        };
        let thread = thread::Builder::new().name("todos-lag".into()).spawn(run);
        let thread =
            thread.map_err(|error| QueueError::new(format!("cannot start a thread: {error}")))?;
        Ok(Lag { shared, thread: Some(thread) })
    }

    /// All that was acknowledged longer ago is applied. `None`: it is not known how long.
    pub(super) fn get(&self) -> Option<Duration> {
        self.settled().map(|settled| settled.at.elapsed())
    }

    /// Whether all that was acknowledged before `at` is applied, and shown.
    pub(super) fn has_settled(&self, at: Instant) -> bool {
        self.settled().is_some_and(|settled| settled.covers(at, Instant::now()))
    }

    fn settled(&self) -> Option<Settled> {
        *self.shared.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settled {
    fn covers(self, at: Instant, now: Instant) -> bool {
        self.at >= at && now.saturating_duration_since(self.found) >= SHOWN
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If it panicked, the panic was reported already.
            let _ = thread.join();
        }
    }
}

/// Looks at the ends that the workers have not reached yet, oldest first.
#[derive(Default)]
struct Looks {
    ahead: VecDeque<(Instant, Vec<i64>)>,
    settled_at: Option<Instant>,
}

impl Looks {
    /// Adds a look that began at `at`. Returns until when everything is applied, if that is known.
    fn add(&mut self, at: Instant, partitions: &[Partition]) -> Option<Instant> {
        let is_beyond = |(end, partition): (&i64, &Partition)| *end > partition.end;
        // A topic that was recreated, or has lost its last messages, may never reach these ends again.
        if self.ahead.iter().any(|(_, ends)| ends.iter().zip(partitions).any(is_beyond)) {
            self.ahead.clear();
        }
        let ends = partitions.iter().map(|partition| partition.end).collect();
        self.ahead.push_back((at, ends));
        while let Some((at, ends)) = self.ahead.front()
            // A recreated topic may have fewer partitions.
            && ends.iter().zip(partitions).all(|(end, partition)| *end <= partition.applied)
        {
            self.settled_at = Some(*at);
            self.ahead.pop_front();
        }
        if self.ahead.len() > LOOKS_MAX {
            let mut stays = false;
            self.ahead.retain(|_| {
                stays = !stays;
                stays
            });
        }
        self.settled_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what was acknowledged before a look counts as applied once the workers have committed as far as the topic
    /// reached then, in every partition; and a long absence of the workers takes no more memory than a short one.
    #[test]
    fn what_is_settled() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let partitions = |applied: [i64; 2], end: [i64; 2]| {
            [0, 1].map(|index| Partition { applied: applied[index], end: end[index] })
        };
        let mut looks = Looks::default();
        assert_eq!(looks.add(at(0), &partitions([0, 5], [0, 6])), None);
        assert_eq!(looks.add(at(2), &partitions([0, 5], [3, 6])), None);
        assert_eq!(looks.add(at(4), &partitions([0, 6], [3, 6])), Some(at(0)));
        assert_eq!(looks.add(at(6), &partitions([3, 6], [4, 6])), Some(at(4)));
        assert_eq!(looks.add(at(8), &partitions([4, 6], [4, 6])), Some(at(8)));
        for step in 0..10_000 {
            let end = 4 + i64::try_from(step).expect("it is small");
            assert_eq!(looks.add(at(10 + step), &partitions([4, 6], [end + 1, 6])), Some(at(8)));
        }
        assert!(looks.ahead.len() <= LOOKS_MAX, "{}", looks.ahead.len());
        let last = looks.add(at(20_000), &partitions([10_004, 6], [10_005, 6]));
        assert!(last > Some(at(5_000)) && last < Some(at(20_000)), "{last:?}");
    }

    /// Purpose: a request is told that what was acknowledged before it is applied only once a look that began after it has
    /// been reached, and instances had time to show it.
    #[test]
    fn what_a_request_may_conclude() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let settled = Settled { at: at(1000), found: at(3000) };
        let shown = at(3000) + SHOWN;
        assert!(settled.covers(at(1000), shown) && settled.covers(at(0), shown));
        assert!(!settled.covers(at(1001), shown));
        assert!(!settled.covers(at(1000), shown - Duration::from_nanos(1)));
    }

    /// Purpose: a look at ends that the topic does not have any more does not stand in the way of later looks.
    #[test]
    fn a_topic_that_ends_earlier() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let one = |applied, end| [Partition { applied, end }];
        let mut looks = Looks::default();
        assert_eq!(looks.add(at(0), &one(90, 100)), None);
        assert_eq!(looks.add(at(2), &one(0, 3)), None);
        assert_eq!(looks.add(at(4), &one(3, 3)), Some(at(4)));
        assert_eq!(looks.add(at(6), &one(3, 5)), Some(at(4)));
        assert_eq!(looks.add(at(8), &one(5, 5)), Some(at(8)));
    }
}
