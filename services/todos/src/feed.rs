//! How does an instance learn what others have applied?
//!
//! Where the applier is in the same process, it tells the [`Model`] itself. Where it is not, a [`Feed`]
//! does, and [`follow`] carries what it says into the model:
//!
//! ```text
//!  worker process ─▶ store ─▶ Feed::next ─▶ follow ─▶ Model::apply ─▶ every request from then on
//! ```
//!
//! Invariants: what a feed gives is in the order of versions; nothing is left out, for whatever breaks in
//! between it gives the difference, or everything again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use highwater::logging::rate_limited;

use crate::health::Part;
use crate::model::Model;
use crate::store::{Changes, Loaded, Revision, StoreError};

/// How long a feed is waited for before it is looked whether to stop.
const WAIT: Duration = Duration::from_millis(100);

/// How long to pause after a feed has failed.
const PAUSE: Duration = Duration::from_millis(50);

/// What others have applied. It blocks its thread.
pub trait Feed: Send {
    /// Waits at most `wait` for something new.
    ///
    /// # Errors
    ///
    /// If it cannot be known now. The next call tries again, and leaves nothing out.
    fn next(&mut self, wait: Duration) -> Result<News, StoreError>;

    /// Somebody has seen this revision of the store before now. If the store is behind it, it was restored.
    fn was_seen(&mut self, revision: Revision);

    /// Less is in memory than could be, since much was deleted: what is newest is to be said again, when there is time.
    fn again(&mut self) {}

    /// Whether it works.
    fn part(&self) -> Part;
}

/// What a feed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Nothing,
    /// This has changed since what was said before.
    Changes(Changes),
    /// What changed is not known any more; this is everything, or the newest of it.
    Everything(Loaded),
}

/// A thread that follows a feed, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Carries what `feed` says into `model`, on a thread of its own.
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
                    rate_limited!(WARN, error = %error, "what others have written is not known");
                    part.is_away(error.to_string());
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
