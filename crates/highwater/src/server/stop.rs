//! How does one thread stop a server that another thread runs?

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_sys::Waker;

/// How a server stops. A later variant overrules an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Stops accepting, answers the requests in flight, and cuts the rest after the drain timeout.
    Drain,
    /// The same, but cuts after two seconds if the drain timeout is longer.
    DrainSoon,
    /// Cuts every connection.
    Cut,
}

/// Asks a server to stop, at any time, also before it has started.
#[derive(Debug, Default)]
pub(crate) struct Stopper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    requested: Option<Stop>,
    /// The waker of the thread that runs the server, once there is one.
    waker: Option<Waker>,
}

impl Stopper {
    /// Asks the server to stop. A request to drain does not replace one to cut.
    pub(crate) fn request(&self, how: Stop) {
        let mut state = self.lock();
        state.requested = state.requested.max(Some(how));
        if let Some(waker) = &state.waker {
            waker.wake();
        }
    }

    /// The strongest request so far, if any.
    pub(super) fn requested(&self) -> Option<Stop> {
        self.lock().requested
    }

    /// From now on each request wakes `waker`.
    pub(super) fn wakes(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Purpose: a request wakes the thread that runs the server, whether it comes before or after the waker
    /// is set, and a cut is not taken back.
    #[test]
    fn requested_before_and_after() {
        let stopper = Stopper::default();
        assert_eq!(stopper.requested(), None);
        stopper.request(Stop::Drain);
        assert_eq!(stopper.requested(), Some(Stop::Drain));
        let waker = Waker::standalone().expect("there are descriptors");
        stopper.wakes(&waker);
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| stopper.request(Stop::Cut));
            while stopper.requested() != Some(Stop::Cut) {
                waker.wait(Duration::from_secs(60)).expect("it can be waited for");
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        stopper.request(Stop::Drain);
        assert_eq!(stopper.requested(), Some(Stop::Cut));
    }
}
