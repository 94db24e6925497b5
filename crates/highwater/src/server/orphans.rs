//! Futures of detached handlers that nobody waits for any more, because the client has gone or its
//! deadline has passed: they run to their end all the same.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use super::inbox::Token;
use crate::app::{GuardedFuture, Response, drop_guarded};

/// Most orphans of one worker; beyond it a future is dropped with its client, as if not detached.
const ORPHANS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Orphans {
    /// By the token they wake as, and by when they came: a connection that lives on may leave several.
    futures: BTreeMap<(Token, u64), (GuardedFuture<Response>, Waker)>,
    adopted: u64,
}

impl Orphans {
    /// Takes in a future that wakes as `token`.
    pub(super) fn adopt(&mut self, token: Token, future: GuardedFuture<Response>, waker: Waker) {
        if self.futures.len() < ORPHANS_MAX {
            // A wake-up may have come while the connection was being closed, and found nobody.
            waker.wake_by_ref();
            self.futures.insert((token, self.adopted), (future, waker));
            self.adopted += 1;
        }
    }

    /// Polls the futures of `token`, if there are any.
    pub(super) fn advance(&mut self, token: Token) {
        let mut finished = Vec::new();
        for (key, (future, waker)) in self.futures.range_mut((token, 0)..=(token, u64::MAX)) {
            if let Poll::Ready(response) = future.poll(&mut Context::from_waker(waker)) {
                drop_guarded(response);
                finished.push(*key);
            }
        }
        for key in finished {
            self.futures.remove(&key);
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
        for _ in 0..2 {
            // Two of one connection: neither takes the other's place.
            let future = async { crate::app::Response::new(http::StatusCode::OK) };
            orphans.adopt(token, GuardedFuture::new(future), inbox.waker(token));
        }
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken, [token, token]);
        assert_eq!(orphans.futures.len(), 2);
        orphans.advance(Token::new(3, 2));
        assert_eq!(orphans.futures.len(), 2, "these are another connection's");
        orphans.advance(token);
        assert!(orphans.is_empty());
    }
}
