//! From the queue into the store, and from there to the readers.
//!
//! ```text
//!  Source::next ─▶ Store::apply ─▶ on_applied(changes) ─▶ Source::applied      again and again
//!                      │                              │
//!                      └ fails: the same deliveries   └ now and then: Store::sync, Source::commit
//!                        again, after a pause
//! ```
//!
//! Invariants: deliveries are applied in the order in which they came; a source is committed only as far as the store
//! is durable; an unavailable store costs time, never a command.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use highwater::logging::{rate_limited, tracing};

use crate::health::Part;
use crate::queue::{Delivery, Source};
use crate::store::{Break, Changes, Outcome, Store};
use crate::todo::now_us;

/// The most commands of one transaction. It bounds how long a command waits for those before it.
pub const BATCH_MAX: usize = 1024;

/// The longest wait for the queue before checking whether to stop.
const WAIT: Duration = Duration::from_millis(100);

/// How often the source is committed while commands are applied. It bounds repeated deliveries after a crash, and how
/// much the queue keeps needlessly.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// How long to pause after a failure: the first, and twice as long each time up to the second.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// A thread that applies commands.
#[derive(Debug)]
pub struct Applier {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// What an applier has done so far.
#[derive(Debug, Default)]
pub struct Stats {
    applied: AtomicU64,
    not_found: AtomicU64,
    dead: AtomicU64,
    repeated: AtomicU64,
    failures: AtomicU64,
    lag_us: AtomicU64,
    /// When the oldest command of the transaction in progress was requested; 0 if there is none.
    oldest_us: AtomicI64,
}

impl Stats {
    /// Commands that had their effect.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Commands whose todo was gone, or somebody else's, when their turn came.
    pub fn not_found(&self) -> u64 {
        self.not_found.load(Ordering::Relaxed)
    }

    /// Deliveries that became dead letters.
    pub fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    /// Deliveries of commands that were applied before.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// How often the queue or the store failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// How long the oldest command of the transaction in progress has waited since it was requested, or that of the last one had,
    /// in microseconds; 0 while nothing waits.
    pub fn lag_us(&self) -> u64 {
        match self.oldest_us.load(Ordering::Relaxed) {
            0 => self.lag_us.load(Ordering::Relaxed),
            oldest => since_us(oldest),
        }
    }

    fn begin(&self, oldest: Option<i64>) {
        self.oldest_us.store(oldest.unwrap_or(0), Ordering::Relaxed);
    }

    fn end(&self, oldest: Option<i64>) {
        self.lag_us.store(oldest.map_or(0, since_us), Ordering::Relaxed);
        self.oldest_us.store(0, Ordering::Relaxed);
    }

    fn count(&self, changes: &Changes, dead: u64, repeated: u64) {
        let of = |wanted: fn(&Outcome) -> bool| {
            changes.commands.iter().filter(|(_, outcome)| wanted(outcome)).count() as u64
        };
        self.applied.fetch_add(of(|outcome| *outcome == Outcome::Done), Ordering::Relaxed);
        self.not_found.fetch_add(of(|outcome| *outcome == Outcome::NotFound), Ordering::Relaxed);
        self.dead.fetch_add(dead, Ordering::Relaxed);
        self.repeated.fetch_add(repeated, Ordering::Relaxed);
    }
}

fn since_us(then: i64) -> u64 {
    now_us().saturating_sub(then).max(0).unsigned_abs()
}

/// The stop flag: 0 while it runs.
#[derive(Debug, Default)]
struct Stop(AtomicU8);

/// Apply what is in the queue, then end.
const DRAIN: u8 = 1;
/// End after this transaction.
const NOW: u8 = 2;

impl Stop {
    fn state(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Applier {
    /// Starts to apply `source`'s deliveries to `store`; `on_applied` receives the changes before the source is notified that
    /// they are applied.
    ///
    /// `part` says whether the store works.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(
        source: Box<dyn Source>,
        store: Box<dyn Store>,
        part: Part,
        stats: Arc<Stats>,
        on_applied: impl FnMut(Changes) + Send + 'static,
    ) -> io::Result<Applier> {
        let stop = Arc::<Stop>::default();
        let mut work = Work {
            source,
            store,
            part,
            stats,
            on_applied,
            stop: Arc::clone(&stop),
            pause: PAUSE[0],
            taken_back: BTreeSet::new(),
        };
        let run = move || {
            let _ended = Ended(work.part.clone());
            work.run();
        };
        let thread = thread::Builder::new().name("todos-applier".into()).spawn(run)?;
        Ok(Applier { stop, thread: Some(thread) })
    }

    /// Whether its thread has ended, which is a bug while nobody asked for it.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Applies queued commands for at most `patience`; then commits and ends. The rest stay in the queue.
    pub fn drain(mut self, patience: Duration) {
        self.stop.0.store(DRAIN, Ordering::Relaxed);
        let until = Instant::now() + patience;
        while Instant::now() < until && !self.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        self.end();
    }

    fn end(&mut self) {
        self.stop.0.store(NOW, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic was reported already.
            let _ = thread.join();
        }
    }
}

/// Ends after the current transaction, and commits.
impl Drop for Applier {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reports that nothing is applied any more if the applier panics.
struct Ended(Part);

impl Drop for Ended {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_down("the applier has ended because of a bug; start the service again");
        }
    }
}

struct Work<T> {
    source: Box<dyn Source>,
    store: Box<dyn Store>,
    part: Part,
    stats: Arc<Stats>,
    on_applied: T,
    stop: Arc<Stop>,
    pause: Duration,
    /// The partitions whose loss of commands was logged.
    taken_back: BTreeSet<u32>,
}

impl<T: FnMut(Changes)> Work<T> {
    fn run(&mut self) {
        let mut committed = Instant::now();
        // A crash may have left the position before offsets without a command: while it stays there, a full disk gets no room.
        let mut uncommitted = true;
        while self.stop.state() != NOW {
            let deliveries = match self.source.next(BATCH_MAX, WAIT) {
                Ok(deliveries) => {
                    self.pause = PAUSE[0];
                    deliveries
                }
                Err(error) => {
                    self.failed("the queue cannot be read", &error);
                    continue;
                }
            };
            if deliveries.is_empty() {
                self.stats.end(None);
                self.store.idle();
                if self.stop.state() == DRAIN {
                    break;
                }
            } else {
                uncommitted |= self.apply(&deliveries);
            }
            if uncommitted && committed.elapsed() >= COMMIT_INTERVAL {
                uncommitted = !self.commit();
                committed = Instant::now();
            }
        }
        if uncommitted {
            self.commit();
        }
    }

    /// Applies deliveries, retrying until it succeeds. False if it was stopped first.
    fn apply(&mut self, deliveries: &[Delivery]) -> bool {
        let requested = |delivery: &Delivery| Some(delivery.content.as_ref().ok()?.requested_us);
        let oldest = deliveries.iter().filter_map(requested).min();
        self.stats.begin(oldest);
        loop {
            match self.store.apply(self.source.name(), deliveries) {
                Ok(applied) => {
                    self.stats.end(oldest);
                    self.part.is_up();
                    self.pause = PAUSE[0];
                    self.stats.count(&applied.changes, applied.dead, applied.repeated);
                    self.note_breaks(&applied.breaks);
                    (self.on_applied)(applied.changes);
                    self.source.applied();
                    return true;
                }
                Err(error) => {
                    self.part.is_down(error.to_string());
                    self.failed("commands wait, for the store does not take them", &error);
                    if self.stop.state() == NOW {
                        return false;
                    }
                }
            }
        }
    }

    /// Says that acknowledged commands are missing from the store. A partition that has lost commands stays below the store's
    /// position for as long as that takes, and is named once.
    fn note_breaks(&mut self, breaks: &[Break]) {
        let queue = self.source.name();
        for &Break { partition, expected, found } in breaks {
            if found > expected {
                tracing::warn!(
                    queue,
                    partition,
                    first = expected,
                    last = found - 1,
                    "these commands are missing from the store: it was restored from a backup, or the topic lost them before \
                     they were applied, for example by its retention.ms. To apply those that the topic still has, stop all workers, set \
                     the group's offsets back (kafka-consumer-groups.sh --reset-offsets), and start them again; older changes \
                     of a todo may then replace newer ones"
                );
            } else if self.taken_back.insert(partition) {
                tracing::warn!(
                    queue,
                    partition,
                    expected,
                    found,
                    "the partition counts from a lower offset than before: the topic was recreated, or the brokers have lost \
                     data. New commands are applied, and nothing has to be set back; acknowledged commands that the topic has \
                     lost and that were not applied before are lost: tell the clients to repeat changes that they do not find"
                );
            }
        }
    }

    /// Whether the source knows that everything was applied.
    fn commit(&mut self) -> bool {
        let synced = self.store.sync().map_err(|error| error.to_string());
        let outcome = synced.and_then(|()| self.source.commit().map_err(|error| error.to_string()));
        if let Err(error) = &outcome {
            self.stats.failures.fetch_add(1, Ordering::Relaxed);
            rate_limited!(WARN, error = %error, "the queue's position is not committed");
        }
        outcome.is_ok()
    }

    fn failed(&mut self, what: &str, error: &dyn fmt::Display) {
        self.stats.failures.fetch_add(1, Ordering::Relaxed);
        rate_limited!(WARN, error = %error, "{what}");
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: while a store holds a transaction up, the lag grows: it showed how long the last one had waited, so nothing seemed
    /// to be wrong.
    #[test]
    fn the_lag_of_a_transaction_that_hangs() {
        const HOUR_US: i64 = 3_600_000_000;
        let stats = Stats::default();
        assert_eq!(stats.lag_us(), 0);
        stats.begin(Some(now_us() - HOUR_US));
        assert!(stats.lag_us() >= HOUR_US.unsigned_abs());
        stats.end(Some(now_us() - 2 * HOUR_US));
        assert!(stats.lag_us() >= 2 * HOUR_US.unsigned_abs());
        stats.end(None);
        assert_eq!(stats.lag_us(), 0);
    }
}
