//! How an instance learns of changes that others have applied.
//!
//! An applier in the same process updates the [`Model`] directly. Otherwise a [`Feed`] reports the changes, and
//! [`follow`] applies them to the model:
//!
//! ```text
//!  worker process ─▶ store ─▶ Feed::next ─▶ follow ─▶ Model::apply ─▶ every request from then on
//! ```
//!
//! Invariants: a feed reports changes in the order of versions; nothing is left out: after any interruption it reports
//! the difference, or everything again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use highwater::logging::rate_limited;

use crate::health::Part;
use crate::model::Model;
use crate::store::{Changes, Loaded, Revision, StoreError};

/// The longest wait for a feed before checking whether to stop.
const WAIT: Duration = Duration::from_millis(100);

/// How long to pause after a feed has failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Changes that others have applied. It blocks its thread.
pub trait Feed: Send {
    /// Waits at most `wait` for something new.
    ///
    /// # Errors
    ///
    /// If it cannot be known now. The next call tries again, and leaves nothing out.
    fn next(&mut self, wait: Duration) -> Result<News, StoreError>;

    /// This revision of the store was seen before. If the store is behind it, it was restored.
    fn was_seen(&mut self, revision: Revision);

    /// After many deletions, less is in memory than could be: asks the feed to report the newest todos again, when
    /// there is time.
    fn again(&mut self) {}

    /// Whether it works.
    fn part(&self) -> Part;
}

/// A report of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Nothing,
    /// The changes since the last report.
    Changes(Changes),
    /// The changes are unknown; this is everything, or the newest part.
    Everything(Loaded),
}

/// A thread that follows a feed, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Applies `feed`'s reports to `model`, on its own thread.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn follow(mut feed: impl Feed + 'static, model: Arc<Model>) -> std::io::Result<Follower> {
    let stop = Arc::<AtomicBool>::default();
    let stopped = Arc::clone(&stop);
    let run = move || {
        let part = feed.part();
        while !stopped.load(Ordering::Relaxed) {
            match feed.next(WAIT) {
                Ok(News::Nothing) => part.is_up(),
                Ok(News::Changes(changes)) => {
                    part.is_up();
                    model.apply(changes);
                    if model.is_short() {
                        feed.again();
                    }
                }
                Ok(News::Everything(loaded)) => {
                    part.is_up();
                    model.replace(loaded);
                }
                Err(error) => {
                    rate_limited!(WARN, error = %error, "changes by other processes cannot be read");
                    part.is_down(error.to_string());
                    thread::sleep(PAUSE);
                }
            }
        }
    };
    let thread = thread::Builder::new().name("todos-feed".into()).spawn(run)?;
    Ok(Follower { stop, thread: Some(thread) })
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic was reported already.
            let _ = thread.join();
        }
    }
}
