//! Who waits for a command to be visible?

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::Model;
use crate::store::Outcome;

/// Those who wait: at most one for each request that is open.
#[derive(Default)]
pub(super) struct Waiters {
    /// How many there are, so that nobody takes the lock where nobody waits.
    count: AtomicUsize,
    waiting: Mutex<HashMap<Uuid, oneshot::Sender<Outcome>>>,
}

/// Waits for one command. Dropping it ends the waiting.
pub struct Wait {
    model: Arc<Model>,
    command: Uuid,
    told: oneshot::Receiver<Outcome>,
}

impl Wait {
    /// Resolves when the command's effect is visible to every read of this instance that begins then. `None`
    /// if nobody is going to say so.
    pub async fn outcome(&mut self) -> Option<Outcome> {
        (&mut self.told).await.ok()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waiters = &self.model.waiters;
        let mut waiting = waiters.lock();
        waiting.remove(&self.command);
        waiters.count.store(waiting.len(), Ordering::SeqCst);
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({})", self.command)
    }
}

impl Waiters {
    pub(super) fn wait(model: &Arc<Model>, command: Uuid) -> Wait {
        let (tell, told) = oneshot::channel();
        let mut waiting = model.waiters.lock();
        waiting.insert(command, tell);
        model.waiters.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        Wait { model: Arc::clone(model), command, told }
    }

    /// Tells what became of commands to those who wait for them.
    pub(super) fn tell(&self, commands: Vec<(Uuid, Outcome)>) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = self.lock();
        for (command, outcome) in commands {
            if let Some(tell) = waiting.remove(&command) {
                // Who has given up needs no answer.
                let _ = tell.send(outcome);
            }
        }
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, oneshot::Sender<Outcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
