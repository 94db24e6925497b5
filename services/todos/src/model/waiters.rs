//! Requests that wait for a command to be visible.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::reads::Waiting;
use crate::store::Outcome;

/// The waiters: at most one per open request.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Their number, so that the lock is not taken when there are none.
    count: AtomicUsize,
    waiting: Mutex<HashMap<Uuid, oneshot::Sender<Outcome>>>,
}

/// Takes itself off the list.
struct Place {
    waiters: Arc<Waiters>,
    command: Uuid,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        waiting.remove(&self.command);
        self.waiters.count.store(waiting.len(), Ordering::SeqCst);
    }
}

impl Waiters {
    /// Waits for one command from now on, whether or not the future is polled. Dropping it ends the waiting.
    pub fn wait_for(self: &Arc<Self>, command: Uuid) -> Waiting {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.insert(command, sender);
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        let place = Place { waiters: Arc::clone(self), command };
        Box::pin(async move {
            let _place = place;
            receiver.await.ok()
        })
    }

    /// Passes the outcomes of commands to their waiters. The effects must be visible by now.
    pub fn notify(&self, commands: impl IntoIterator<Item = (Uuid, Outcome)>) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = self.lock();
        for (command, outcome) in commands {
            if let Some(sender) = waiting.remove(&command) {
                // The waiter may have given up.
                let _ = sender.send(outcome);
            }
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, oneshot::Sender<Outcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
