//! How does another thread wake a worker? Through the selector that the worker waits at, with a flag in front of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Makes the `poll` of one driver return, from any thread.
///
/// Whatever the waking thread wrote before [`wake`](Waker::wake) is visible to the worker after the
/// `poll` that the wake ended. A wake outlives its driver without harm.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    /// Set by the first wake, cleared by the driver when it has seen the wake.
    pending: AtomicBool,
}

/// What a wake does.
#[derive(Debug)]
enum Bell {
    /// Wakes the selector of a driver.
    Selector(mio::Waker),
    /// Wakes the thread that waits for it. The locked value says whether it was used.
    Thread(Mutex<bool>, Condvar),
}

impl Waker {
    /// For the portable driver.
    pub(crate) fn of_selector(waker: mio::Waker) -> Waker {
        Waker::of(Bell::Selector(waker))
    }

    /// A waker that belongs to no driver. Wait for it with [`wait`](Waker::wait), or together with
    /// signals ([`Signals::wait_or`](crate::signal::Signals::wait_or)).
    ///
    /// # Errors
    /// None.
    pub fn standalone() -> io::Result<Waker> {
        Ok(Waker::of(Bell::Thread(Mutex::new(false), Condvar::new())))
    }

    fn of(bell: Bell) -> Waker {
        Waker { shared: Arc::new(Shared { bell, pending: AtomicBool::new(false) }) }
    }

    /// Waits for a wake, for at most `timeout`. A wake since the last wait ends it at once. Only
    /// for a waker that belongs to no driver, and by one thread.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        self.wait_for(timeout);
        Ok(())
    }

    /// As [`wait`](Waker::wait). Returns whether there was a wake.
    pub(crate) fn wait_for(&self, timeout: Duration) -> bool {
        let Bell::Thread(rang, ringing) = &self.shared.bell else {
            unreachable!("nobody waits for a driver's waker but the driver")
        };
        let rang = rang.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ringing.wait_timeout_while(rang, timeout, |rang| !*rang);
        let (mut rang, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let was_woken = std::mem::take(&mut *rang);
        drop(rang);
        // The flag is cleared last: a wake that finds it set does not ring.
        self.acknowledge();
        was_woken
    }

    /// Makes `poll` return, now or when it is next called. Wakes before that poll coalesce.
    pub fn wake(&self) {
        // A later wake that finds the flag set relies on this one's ring. The swaps form one
        // release sequence, so the driver's `acknowledge` sees what every one of them published.
        if self.shared.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        match &self.shared.bell {
            // Fails only if its selector is gone.
            Bell::Selector(waker) => drop(waker.wake()),
            Bell::Thread(rang, ringing) => {
                *rang.lock().unwrap_or_else(PoisonError::into_inner) = true;
                ringing.notify_one();
            }
        }
    }

    /// The driver calls this when it has seen a wake, before the worker looks at shared data.
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a wake ends a wait whether it comes before or during it, and it ends only one wait.
    #[test]
    fn waits_end_with_a_wake() {
        let waker = Waker::standalone().unwrap();
        waker.wake();
        waker.wake();
        assert!(waker.wait_for(Duration::from_secs(60)));
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert!(waker.wait_for(Duration::from_secs(60)));
        thread.join().unwrap();
        assert!(!waker.wait_for(Duration::ZERO));
    }
}
