//! How does the operator tell this process to stop?
//!
//! With signals, which are caught wherever in the process they are delivered: it does not matter which threads ran
//! before, or which runtime the caller is in. A handler notes the signal and wakes the threads that wait for it
//! (`handler.rs`).
//!
//! Invariants:
//!
//! * Handlers that were installed before are called as well, and are restored when the last [`Signals`] is dropped.
//! * Every waiter receives each signal.
//! * A signal that every thread of the process blocks is delivered while a thread waits here.

mod handler;

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use self::handler::Ear;
use crate::Waker;
use crate::call::check;
use crate::wake::wait_readable_with;

/// A signal that a server handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop, finishing what was begun.
    Terminate,
    /// SIGINT: the same, from a keyboard.
    Interrupt,
    /// SIGQUIT: stop at once.
    Quit,
    /// SIGHUP: the terminal has closed, or: read the configuration again.
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

const SIGNALS: [(Signal, i32); 4] = [
    (Signal::Terminate, libc::SIGTERM),
    (Signal::Interrupt, libc::SIGINT),
    (Signal::Quit, libc::SIGQUIT),
    (Signal::HangUp, libc::SIGHUP),
];

/// Waits for signals. While one of these exists, the signals do not end the process.
#[derive(Debug)]
pub struct Signals {
    /// Its descriptor is made before there are connections: a server that has run out of descriptors must still receive
    /// the signal to stop.
    ear: Ear,
}

impl Signals {
    /// Catches SIGTERM, SIGINT, SIGQUIT and SIGHUP from now on, on whichever thread they are delivered, until this
    /// is dropped; and ignores SIGPIPE and SIGXFSZ for the process, where they have no handler. SIGHUP is left alone if it is
    /// ignored, as under `nohup`.
    ///
    /// # Errors
    /// Whatever `sigaction(2)` or `eventfd(2)` reports, and too many of these at once (64).
    pub fn catch() -> io::Result<Signals> {
        let ear = Ear::open()?;
        handler::ignore_failed_writes()?;
        Ok(Signals { ear })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Whatever `ppoll(2)` reports, except that it was interrupted.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            if let Some(signal) = self.take(&[], None)? {
                return Ok(signal);
            }
        }
    }

    /// Waits for the next signal for at most `timeout`.
    ///
    /// # Errors
    /// As for [`wait`](Signals::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<Option<Signal>> {
        self.take(&[], Some(timeout))
    }

    /// Waits for the next signal, or until `waker` is used, for at most `timeout`. `None` if no signal came.
    ///
    /// # Errors
    /// As for [`wait`](Signals::wait).
    pub fn wait_or(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        self.take(&[waker], timeout)
    }

    fn take(&self, wakers: &[&Waker], timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        if let Some(signal) = self.ear.take() {
            return Ok(Some(signal));
        }
        let mut descriptors = vec![self.ear.raw_fd()];
        descriptors.extend(wakers.iter().map(|waker| waker.raw_fd()));
        wait_readable_with(&descriptors, timeout, Some(&unblocked()?))?;
        wakers.iter().for_each(|waker| waker.hear());
        self.ear.reset();
        Ok(self.ear.take())
    }
}

/// This thread's signal mask without the signals: while a thread waits for them, they can be delivered to it, even if
/// the application has blocked them everywhere.
fn unblocked() -> io::Result<libc::sigset_t> {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: with a null set nothing is changed, and `mask` is valid for writes.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: initialised by the call above.
    let mut mask = unsafe { mask.assume_init() };
    for (_, number) in SIGNALS {
        // SAFETY: the set is initialised, and the number is a signal.
        check(unsafe { libc::sigdelset(&mut mask, number) })?;
    }
    Ok(mask)
}

#[cfg(test)]
mod tests;
