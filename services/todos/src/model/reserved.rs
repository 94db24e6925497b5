//! Creations that are queued and not shown yet.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::store::Outcome;

/// This instance's pending creations. Each counts as a todo until its outcome is known, so that
/// requests that arrive together cannot pass the bound together.
#[derive(Debug, Default)]
pub struct Reserved(Mutex<HashSet<Uuid>>);

impl Reserved {
    /// Counts the creation `command` beside the todos that are shown; false if there would be more than `max`.
    pub fn reserve(&self, command: Uuid, shown: impl FnOnce() -> usize, max: usize) -> bool {
        let mut reserved = self.lock();
        // Asked under the lock: what is applied is shown first and released afterwards, so nothing is missed.
        let has_room = shown() + reserved.len() < max;
        if has_room {
            reserved.insert(command);
        }
        has_room
    }

    /// The creation was refused.
    pub fn release(&self, command: Uuid) {
        self.lock().remove(&command);
    }

    /// Releases commands whose outcome is known. Their effects must be shown by now.
    pub fn settle(&self, commands: &[(Uuid, Outcome)]) {
        let mut reserved = self.lock();
        if !reserved.is_empty() {
            commands.iter().for_each(|(command, _)| {
                reserved.remove(command);
            });
        }
    }

    /// The outcomes of commands are not known any more.
    pub fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: with one place left one of two creations is refused, until the first was refused, or deleted again.
    #[test]
    fn one_place() {
        let reserved = Reserved::default();
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(reserved.reserve(first, || 4, 5));
        assert!(!reserved.reserve(second, || 4, 5));
        reserved.release(first);
        assert!(reserved.reserve(second, || 4, 5));
        // It is applied: now it is one of those that are shown.
        reserved.settle(&[(second, Outcome::Done)]);
        assert!(!reserved.reserve(first, || 5, 5));
        assert!(reserved.reserve(first, || 4, 5));
        reserved.forget();
        assert!(reserved.reserve(second, || 4, 5));
    }
}
