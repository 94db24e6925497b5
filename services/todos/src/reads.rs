//! The reads that clients make.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use uuid::Uuid;

use crate::store::{Outcome, StoreError};

/// The most todos that a list may have.
pub const LIST_MAX: u32 = 10_000;

/// How many todos a list may have: 1 to [`LIST_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit(u32);

impl Limit {
    /// As many as a list may have.
    pub const ALL: Limit = Limit(LIST_MAX);

    /// At most so many. Zero or less, and more than [`LIST_MAX`]: all that a list may have.
    pub fn of(number: i64) -> Limit {
        match u32::try_from(number) {
            Ok(0) | Err(_) => Limit::ALL,
            Ok(number) => Limit(number.min(LIST_MAX)),
        }
    }

    /// The number.
    pub fn get(self) -> usize {
        self.0 as usize
    }

    /// Whether instances share the lists of this limit: anybody may ask for every limit, and a list of each would take
    /// gigabytes.
    pub fn is_shared(self) -> bool {
        self.0 <= 10 || self == Limit::ALL || SHARED.binary_search(&self.0).is_ok()
    }
}

/// The limits that clients usually have, besides 1 to 10 and all. A guess; rising.
const SHARED: [u32; 13] = [15, 20, 25, 30, 40, 50, 100, 200, 250, 500, 1000, 2000, 5000];

/// What clients read. An answer holds everything that was visible in this instance before it was asked for.
pub trait Reads: Send + Sync + 'static {
    /// The newest todos, newest first: a JSON list.
    fn list(&self, limit: Limit) -> Read<Bytes>;

    /// One todo.
    fn todo(&self, id: Uuid) -> Read<Option<Shown>>;

    /// Waits for a command to be applied, and its effect to be visible to every read of this instance that begins
    /// then. Called before the command is sent; dropping it ends the waiting. `None`: nobody is going to say.
    fn wait_for(&self, command: Uuid) -> Waiting;

    /// Counts a creation that is about to be queued, from now until its outcome is known. False: with it there would
    /// be more than `max` todos; it must not be queued then. Creations that other instances have queued are not known
    /// here before they are applied.
    fn reserve(&self, command: Uuid, max: usize) -> bool;

    /// A creation that was counted was not queued.
    fn release(&self, command: Uuid);

    /// Whether answers are always [`Read::Ready`]. Then the worker answers at once, without a task.
    fn is_in_memory(&self) -> bool;
}

/// Resolves when a command's outcome is known.
pub type Waiting = Pin<Box<dyn Future<Output = Option<Outcome>>>>;

/// An answer: at once where it is in memory, else once it was asked for.
pub enum Read<T> {
    /// Here it is.
    Ready(T),
    /// It comes. The future need not be `Send`: it stays on the worker, inside its Tokio runtime.
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>>>>),
}

/// A todo as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its JSON.
    pub json: Bytes,
    /// Whose it is.
    pub user_id: std::sync::Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: few limits are shared, so that asking for all of them fills no cache of others; the usual ones are.
    #[test]
    fn few_limits_are_shared() {
        let shared = (1..=i64::from(LIST_MAX)).filter(|limit| Limit::of(*limit).is_shared());
        assert_eq!(shared.count(), 10 + SHARED.len() + 1);
        assert!([0, 1, 10, 20, 50, 100, 10_000, 20_000].iter().all(|l| Limit::of(*l).is_shared()));
        assert!([11, 99, 9_999].iter().all(|limit| !Limit::of(*limit).is_shared()));
    }
}
