//! How does one thread tell a server that another thread looks after to stop?

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_sys::Waker;

/// How a server that is told to stop does it. What comes later in this list overrules what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Stops accepting, answers what is in flight, and cuts what is left after the drain timeout.
    Drain,
    /// Cuts every connection.
    Cut,
}

/// Tells a server to stop, at any time: before it has started as well.
#[derive(Debug, Default)]
pub(crate) struct Stopper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Stop>,
    /// Of the thread that looks after the server, once there is one.
    waker: Option<Waker>,
}

impl Stopper {
    /// Tells it. Who was told to cut cannot be told to drain.
    pub(crate) fn tell(&self, how: Stop) {
        let mut state = self.lock();
        state.told = state.told.max(Some(how));
        if let Some(waker) = &state.waker {
            waker.wake();
        }
    }

    /// What was told so far.
    pub(super) fn told(&self) -> Option<Stop> {
        self.lock().told
    }

    /// Has everything that is told from now on wake `waker`.
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

    /// Purpose: whoever looks after the server is woken by what it is told, whichever comes first, and a
    /// cut is not taken back.
    #[test]
    fn told_before_and_after() {
        let stopper = Stopper::default();
        assert_eq!(stopper.told(), None);
        stopper.tell(Stop::Drain);
        assert_eq!(stopper.told(), Some(Stop::Drain));
        let waker = Waker::standalone().expect("there are descriptors");
        stopper.wakes(&waker);
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| stopper.tell(Stop::Cut));
            while stopper.told() != Some(Stop::Cut) {
                waker.wait(Duration::from_secs(60)).expect("it can be waited for");
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        stopper.tell(Stop::Drain);
        assert_eq!(stopper.told(), Some(Stop::Cut));
    }
}
