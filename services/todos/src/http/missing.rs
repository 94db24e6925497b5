//! When did a client first look for a todo in vain?
//!
//! It knows the id, so the creation was acknowledged before that, if it ever was. So once everything from before its first
//! request is applied and the todo is still not found, there is none, however short each of its requests waits.
//!
//! For each user separately: somebody who guesses an id before it is given to another user must not make that user's
//! first request look old.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use uuid::Uuid;

/// How many are remembered. Beyond it the oldest is forgotten, and its next request counts as the first. A guess; they take
/// 350 KiB at most.
const MISSING_MAX: usize = 1024;

/// Todos that clients have looked for, and that may have been acknowledged without being applied. The oldest is the first.
#[derive(Debug, Default)]
pub struct Missing(Mutex<Looks>);

type Looks = VecDeque<(Uuid, Arc<str>, Instant)>;

impl Missing {
    /// When the user first looked for the todo, as far as it is remembered.
    pub(super) fn since(&self, todo: Uuid, user: &str) -> Option<Instant> {
        find(&self.lock(), todo, user)
    }

    /// Remembers that the user has looked for it, unless [`since`](Missing::since) says so.
    pub(super) fn remember(&self, todo: Uuid, user: &Arc<str>, at: Instant) {
        let mut all = self.lock();
        if find(&all, todo, user).is_some() {
            return;
        }
        if all.len() == MISSING_MAX {
            all.pop_front();
        }
        all.push_back((todo, Arc::clone(user), at));
    }

    fn lock(&self) -> MutexGuard<'_, Looks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(all: &Looks, todo: Uuid, user: &str) -> Option<Instant> {
    all.iter().find(|(id, by, _)| *id == todo && **by == *user).map(|(.., at)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: no more than so many are remembered, the oldest is forgotten first, and a repeated request stays as old as the
    /// first one.
    #[test]
    fn the_oldest_is_forgotten() {
        let (missing, user, at) = (Missing::default(), Arc::from("me"), Instant::now());
        let ids = (0..=MISSING_MAX as u128).map(Uuid::from_u128).collect::<Vec<_>>();
        let since = |id: usize| missing.since(ids[id], "me");
        ids[..MISSING_MAX].iter().for_each(|id| missing.remember(*id, &user, at));
        missing.remember(ids[0], &user, Instant::now());
        assert_eq!((since(0), since(MISSING_MAX - 1)), (Some(at), Some(at)));
        missing.remember(ids[MISSING_MAX], &user, at);
        assert_eq!((since(0), since(1), since(MISSING_MAX)), (None, Some(at), Some(at)));
        assert_eq!(missing.since(ids[1], "you"), None);
    }
}
