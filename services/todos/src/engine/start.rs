//! Waits until everything that was acknowledged before the start is visible: only then the port opens.
//!
//! That may take as long as the store is unavailable. Meanwhile the log names what the start waits for, and an applier that has
//! ended fails it. A signal ends the start (`highwater_kit::waiting`), as a crash would: queued commands are kept.

use std::thread;
use std::time::{Duration, Instant};

use highwater::logging::tracing;
use highwater_kit::ending::Failure;

use crate::applier::Applier;
use crate::health::Part;
use crate::queue::Queue;

/// When the first line says what is waited for, and how often it is repeated.
const LOG_FIRST: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is checked whether everything is applied.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until what is in the queue is applied.
///
/// # Errors
///
/// If it will not be applied.
pub(super) fn catch_up(queue: &dyn Queue, applier: &Applier, store: &Part) -> Result<(), Failure> {
    let Some(mark) = queue.mark() else { return Ok(()) };
    let mut log_at = Instant::now() + LOG_FIRST;
    while !queue.reached(mark) {
        if applier.has_ended() {
            return Err(Failure::from(
                "the applier has ended because of a bug, and queued commands are not applied; start the service again",
            ));
        }
        thread::sleep(LOOK_INTERVAL);
        if Instant::now() >= log_at {
            log_progress(queue, store);
            log_at = Instant::now() + LOG_INTERVAL;
        }
    }
    Ok(())
}

fn log_progress(queue: &dyn Queue, store: &Part) {
    let left = queue.depth();
    match store.down() {
        None => tracing::info!(left, "applying commands queued before the start"),
        Some(why) => tracing::warn!(
            left,
            "the start waits until queued commands are applied, and the store does not take them: {why}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::applier::Stats;
    use crate::queue::{Delivery, QueueError, Sender, Source};
    use crate::store::sqlite::Sqlite;

    /// A queue that is never applied.
    struct Stuck;

    impl Queue for Stuck {
        fn sender(&self) -> Result<Box<dyn Sender>, QueueError> {
            Err(QueueError::new("nobody sends"))
        }

        fn part(&self) -> Part {
            Part::new("queue")
        }

        fn depth(&self) -> u64 {
            1
        }

        fn mark(&self) -> Option<u64> {
            Some(1)
        }

        fn reached(&self, _: u64) -> bool {
            false
        }
    }

    /// The other end of it: with nothing, or with a bug.
    struct End(fn());

    impl Source for End {
        fn name(&self) -> &str {
            "stuck"
        }

        fn next(&mut self, _: usize, _: Duration) -> Result<Vec<Delivery>, QueueError> {
            (self.0)();
            Ok(Vec::new())
        }

        fn applied(&mut self) {}

        fn commit(&mut self) -> Result<(), QueueError> {
            Ok(())
        }
    }

    fn catch_up_with(next: fn()) -> Result<(), Failure> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let store = Box::new(Sqlite::open(data.path()).expect("it is empty"));
        let (part, stats) = (Part::new("store"), Arc::<Stats>::default());
        let source = Box::new(End(next));
        let applier =
            Applier::start(source, store, part.clone(), stats, drop).expect("threads can be had");
        catch_up(&Stuck, &applier, &part)
    }

    /// Purpose: a start whose applier has died fails, instead of waiting for ever.
    #[test]
    fn a_dead_applier_fails_it() {
        let failure = catch_up_with(|| panic!("a bug")).expect_err("nobody applies");
        assert!(format!("{failure:?}").contains("applier has ended"), "{failure:?}");
    }
}
