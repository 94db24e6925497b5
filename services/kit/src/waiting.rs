//! How a program handles signals, and what it logs, while its start or its end waits, for example for an unavailable database.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use highwater::logging::tracing;
use highwater::server::{Signal, Signals};

use crate::ending::Failure;

/// How long the work may take before the log names it.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// How often signals are checked in the meantime.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `work` on a thread of its own, and returns its result; `None` if a signal asks the process to end first. That thread is
/// then abandoned, so return from `main` soon. SIGHUP is not such a signal if it `reloads` certificates: a start reads new ones
/// anyway. The log says that `who` waits for `what`.
///
/// # Errors
/// The error of `work`, or that signals cannot be received.
pub fn unless_ended<T: Send + 'static>(
    signals: &Signals,
    reloads: bool,
    (who, what): (&str, &str),
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Option<T>, Failure> {
    let (sender, done) = mpsc::sync_channel(1);
    // If a signal came first, nothing receives it.
    let work = move || drop(sender.send(work()));
    thread::Builder::new().name("waited-for".into()).spawn(work)?;
    let mut say_at = Some(Instant::now() + SAY_AFTER);
    loop {
        match done.recv_timeout(LOOK_INTERVAL) {
            Ok(result) => return result.map(Some),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("{who} has failed because of a bug; the log says which").into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match signals.wait_timeout(Duration::ZERO)? {
            Some(Signal::HangUp) if reloads => {}
            Some(signal) => {
                tracing::info!(%signal, "{who} no longer waits for {what}");
                return Ok(None);
            }
            None => {}
        }
        if say_at.is_some_and(|at| at <= Instant::now()) {
            tracing::info!("{who} waits for {what}");
            say_at = None;
        }
    }
}
