//! Futures of detached handlers whose client is gone: they run to their end all the same.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use super::answer::{ResponseFuture, poll_caught};
use super::inbox::Token;

/// Most orphans of one worker; beyond it a future is dropped with its client, as if not detached.
const ORPHANS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Orphans {
    futures: BTreeMap<Token, (ResponseFuture, Waker)>,
}

impl Orphans {
    /// Takes in a future that wakes as `token`.
    pub(super) fn adopt(&mut self, token: Token, future: ResponseFuture, waker: Waker) {
        if self.futures.len() < ORPHANS_MAX {
            self.futures.insert(token, (future, waker));
        }
    }

    /// Polls the future of `token`, if there is one.
    pub(super) fn advance(&mut self, token: Token) {
        if let Some((future, waker)) = self.futures.get_mut(&token)
            && let Poll::Ready(_) = poll_caught(future, waker)
        {
            self.futures.remove(&token);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }
}
