//! How does the operator tell this process to stop? With the signals that the system has.
//!
//! Handlers only set flags. A waiting thread looks at its flags every [`LOOK`], a delay that is not noticeable after
//! pressing Ctrl-C.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::signal as number;

use crate::Waker;

/// A waiter looks for signals this often.
const LOOK: Duration = Duration::from_millis(50);

/// A signal that a server handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop, finishing what was begun.
    Terminate,
    /// SIGINT: the same, from a keyboard.
    Interrupt,
    /// SIGQUIT: stop at once. Windows has none.
    Quit,
    /// SIGHUP: the terminal has closed, or: read the configuration again. Windows has none.
    HangUp,
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
            Signal::Quit => "SIGQUIT",
            Signal::HangUp => "SIGHUP",
        })
    }
}

const SIGNALS: &[(Signal, i32)] = &[
    (Signal::Terminate, number::SIGTERM),
    (Signal::Interrupt, number::SIGINT),
    #[cfg(unix)]
    (Signal::Quit, number::SIGQUIT),
    #[cfg(unix)]
    (Signal::HangUp, number::SIGHUP),
];

/// Waits for signals. Once one of these exists, the signals do not end the process any more.
#[derive(Debug)]
pub struct Signals {
    flags: Vec<(Signal, Arc<AtomicBool>, SigId)>,
    own: Waker,
}

impl Signals {
    /// Catches the signals that the system has, until this is dropped.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn catch() -> io::Result<Signals> {
        let mut signals = Signals { flags: Vec::new(), own: Waker::standalone()? };
        for (signal, number) in SIGNALS {
            let flag = Arc::new(AtomicBool::new(false));
            let id = signal_hook::flag::register(*number, Arc::clone(&flag))?;
            signals.flags.push((*signal, flag, id));
        }
        Ok(signals)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            if let Some(signal) = self.wait_or(&self.own, None)? {
                return Ok(signal);
            }
        }
    }

    /// Waits for the next signal for at most `timeout`.
    ///
    /// # Errors
    /// None.
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<Option<Signal>> {
        self.wait_or(&self.own, Some(timeout))
    }

    /// Waits for the next signal, or until `waker` is used, for at most `timeout`. `None` if no signal came.
    ///
    /// # Errors
    /// None.
    pub fn wait_or(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(signal) = self.take() {
                return Ok(Some(signal));
            }
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || waker.wait_for(left.min(LOOK)) {
                return Ok(self.take());
            }
        }
    }

    fn take(&self) -> Option<Signal> {
        let taken = self.flags.iter().find(|(_, flag, _)| flag.swap(false, Ordering::SeqCst));
        taken.map(|(signal, ..)| *signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (.., id) in self.flags.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Purpose: a signal reaches each waiter once, a wake ends a wait without one, and so does its end.
    #[test]
    fn each_waiter_hears_it() {
        let (one, other) = (Signals::catch().unwrap(), Signals::catch().unwrap());
        let waker = Waker::standalone().unwrap();
        assert_eq!(one.wait_timeout(Duration::from_millis(1)).unwrap(), None);
        waker.wake();
        assert_eq!(one.wait_or(&waker, None).unwrap(), None);
        signal_hook::low_level::raise(number::SIGHUP).unwrap();
        assert_eq!(one.wait().unwrap(), Signal::HangUp);
        assert_eq!(other.wait_or(&waker, None).unwrap(), Some(Signal::HangUp));
        assert_eq!(one.wait_timeout(Duration::ZERO).unwrap(), None);
    }
}
