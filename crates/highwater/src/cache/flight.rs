//! A build in progress, and the threads that wait for it.

use bytes::Bytes;

use super::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A build of `key` at `version`. Starts as `Building` and ends, once, as one of the other two.
pub(super) struct Flight<K> {
    pub(super) key: K,
    pub(super) version: u64,
    state: Mutex<State>,
    ended: Condvar,
}

enum State {
    Building,
    Built(Bytes),
    /// The builder panicked.
    Abandoned,
}

impl<K> Flight<K> {
    pub(super) fn new(key: K, version: u64) -> Arc<Self> {
        let state = Mutex::new(State::Building);
        Arc::new(Flight { key, version, state, ended: Condvar::new() })
    }

    /// Ends the build: with its result, or with `None` if it failed.
    pub(super) fn end(&self, built: Option<Bytes>) {
        *lock(&self.state) = built.map_or(State::Abandoned, State::Built);
        self.ended.notify_all();
    }

    /// Blocks until it has ended. `None` if the build failed.
    pub(super) fn wait(&self) -> Option<Bytes> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Built(bytes) => return Some(bytes.clone()),
                State::Abandoned => return None,
                State::Building => {}
            }
            state = self.ended.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// Locks, even if poisoned: the only code that can panic here (a key's `Eq`) leaves no half-done
/// changes behind the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
