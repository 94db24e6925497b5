//! Detached tasks: futures of detached handlers whose client has disconnected or whose deadline has passed.
//! They run to their end although their answer is not sent.

use std::collections::BTreeMap;
use std::task::Waker;

use super::exchange::{ExchangeId, poll};
use crate::admission::route_limit::Permit;
use crate::app::{GuardedFuture, Response, drop_guarded};
use crate::logging::rate_limited;

/// Most detached tasks of one worker; beyond it a future is dropped with its client, as if not detached, and that is logged.
const TASKS_MAX: usize = 4096;

/// A future, with its place within its route's limit.
pub(super) struct Detached {
    pub(super) future: GuardedFuture<Response>,
    pub(super) waker: Waker,
    pub(super) permit: Option<Permit>,
}

/// The detached tasks of one worker.
#[derive(Default)]
pub(super) struct DetachedTasks {
    /// By the exchange whose id their wakers name, and in the order in which they came: a connection that lives on
    /// may leave several.
    futures: BTreeMap<(ExchangeId, u64), Detached>,
    adopted: u64,
}

impl DetachedTasks {
    /// Adds a task that wakes as `id`.
    pub(super) fn adopt(&mut self, id: ExchangeId, task: Detached) {
        if self.futures.len() < TASKS_MAX {
            // A wake-up may have come while the connection was being closed, and found no task.
            task.waker.wake_by_ref();
            self.futures.insert((id, self.adopted), task);
            self.adopted += 1;
        } else {
            rate_limited!(
                ERROR,
                tasks = self.futures.len(),
                instead = "queue work that must be done elsewhere, such as in a journal",
                "a detached handler was dropped with its client: too many run on without theirs",
            );
        }
    }

    /// Polls the tasks of `id`, if there are any.
    pub(super) fn advance(&mut self, id: ExchangeId) {
        let mut finished = Vec::new();
        for (key, task) in self.futures.range_mut((id, 0)..=(id, u64::MAX)) {
            if let Some(result) = poll(&mut task.future, &task.waker) {
                if let (Some(permit), Ok(response)) = (&mut task.permit, &result) {
                    permit.answered(response.status());
                }
                drop_guarded(result);
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
    use crate::server::worker::Inbox;

    /// Purpose: a detached task is polled once without being woken. The simulator found one that slept for
    /// ever: it was woken while its connection was being closed, and the wake-up reached neither the
    /// connection nor the detached tasks.
    #[test]
    fn adopted_futures_are_polled() {
        let inbox = Inbox::new(Box::new(|| {}));
        let id = ExchangeId::new(3, 1);
        let mut tasks = DetachedTasks::default();
        for _ in 0..2 {
            // Two of one connection: neither takes the other's place.
            let future = async { crate::app::Response::new(http::StatusCode::OK) };
            let future = GuardedFuture::new(future);
            tasks.adopt(id, Detached { future, waker: inbox.waker(id), permit: None });
        }
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.take(&mut woken, &mut done);
        let woken: Vec<ExchangeId> = woken.into_iter().map(|task| task.begin()).collect();
        assert_eq!(woken, [id, id]);
        assert_eq!(tasks.futures.len(), 2);
        tasks.advance(ExchangeId::new(3, 2));
        assert_eq!(tasks.futures.len(), 2, "these are another connection's");
        tasks.advance(id);
        assert!(tasks.is_empty());
    }

    /// Purpose: as many run on as may, and one more does not.
    #[test]
    fn bounded() {
        let inbox = Inbox::new(Box::new(|| {}));
        let mut tasks = DetachedTasks::default();
        for number in 0..=TASKS_MAX as u32 {
            let id = ExchangeId::new(number, 1);
            let future = GuardedFuture::new(std::future::pending::<Response>());
            tasks.adopt(id, Detached { future, waker: inbox.waker(id), permit: None });
            assert_eq!(tasks.futures.len(), TASKS_MAX.min(number as usize + 1));
        }
    }
}
