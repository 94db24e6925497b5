//! Futures of detached handlers whose client is gone: they run to their end all the same.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use super::inbox::Token;
use crate::app::{GuardedFuture, Response, drop_guarded};

/// Most orphans of one worker; beyond it a future is dropped with its client, as if not detached.
const ORPHANS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Orphans {
    futures: BTreeMap<Token, (GuardedFuture<Response>, Waker)>,
}

impl Orphans {
    /// Takes in a future that wakes as `token`.
    pub(super) fn adopt(&mut self, token: Token, future: GuardedFuture<Response>, waker: Waker) {
        if self.futures.len() < ORPHANS_MAX {
            // A wake-up may have come while the connection was being closed, and found nobody.
            waker.wake_by_ref();
            self.futures.insert(token, (future, waker));
        }
    }

    /// Polls the future of `token`, if there is one.
    pub(super) fn advance(&mut self, token: Token) {
        if let Some((future, waker)) = self.futures.get_mut(&token)
            && let Poll::Ready(response) = future.poll(&mut Context::from_waker(waker))
        {
            drop_guarded(response);
            self.futures.remove(&token);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Inbox;

    /// Purpose: an orphan is looked at once without being woken. The simulator found one that slept
    /// for ever: it had been woken while its connection was being closed, when neither the connection
    /// nor the orphans would listen.
    #[test]
    fn adopted_futures_are_polled() {
        let inbox = Inbox::new(Box::new(|| {}));
        let token = Token::new(3, 1);
        let mut orphans = Orphans::default();
        let future = async { crate::app::Response::new(http::StatusCode::OK) };
        orphans.adopt(token, GuardedFuture::new(future), inbox.waker(token));
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken, [token]);
        orphans.advance(token);
        assert!(orphans.is_empty());
    }
}
