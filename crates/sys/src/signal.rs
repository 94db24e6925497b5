//! How does the operator tell this process to stop?
//!
//! This module uses no signal handlers. Signals are blocked before the first thread starts, so that
//! every thread inherits the mask; then one thread waits for them and takes them one by one.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::Waker;
use crate::call::check;
use crate::wake::wait_readable;

/// A signal that tells a server something.
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

/// The right to wait for signals, which also proves that they are blocked.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
    /// Readable while one of them is pending. Made once, before there are connections: a server that has run out of
    /// descriptors must still hear that it is to stop.
    fd: OwnedFd,
}

impl Signals {
    /// Blocks SIGTERM, SIGINT, SIGQUIT and SIGHUP for this thread and every thread it will start,
    /// and ignores SIGPIPE for the process. Call it before starting any thread: these signals would
    /// still kill a process through a thread that exists already.
    ///
    /// # Errors
    /// Whatever `pthread_sigmask(3)` or `signalfd(2)` reports.
    pub fn block() -> io::Result<Signals> {
        let set = signal_set();
        // SAFETY: `set` is initialised, and a null pointer for the old mask is allowed.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: SIG_IGN runs no code of ours, so nothing can be interrupted at a bad moment.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        // SAFETY: the set is initialised, and lives until the call returns.
        let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { set, fd })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Whatever `sigtimedwait(2)` reports, except that it was interrupted.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            if let Some(signal) = self.take(None)? {
                return Ok(signal);
            }
        }
    }

    /// Waits for the next signal for at most `timeout`.
    ///
    /// # Errors
    /// As for [`wait`](Signals::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> io::Result<Option<Signal>> {
        self.take(Some(timeout))
    }

    /// Waits for the next signal, or until `waker` is used, for at most `timeout`. `None` if no signal came.
    ///
    /// # Errors
    /// As for [`wait`](Signals::wait).
    pub fn wait_or(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        wait_readable([self.fd.as_raw_fd(), waker.raw_fd()], timeout)?;
        waker.hear();
        self.take(Some(Duration::ZERO))
    }

    fn take(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the set is initialised, a null info is allowed, and `timeout` is null or valid.
        match check(unsafe { libc::sigtimedwait(&self.set, ptr::null_mut(), timeout) }) {
            Ok(number) => Ok(SIGNALS.iter().find(|known| known.1 == number).map(|known| known.0)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            },
        }
    }
}

fn signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is valid for writes.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for (_, number) in SIGNALS {
        // SAFETY: `sigemptyset` initialised the set, and the number is a signal.
        unsafe { libc::sigaddset(set.as_mut_ptr(), number) };
    }
    // SAFETY: initialised by `sigemptyset`.
    unsafe { set.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a blocked signal does not kill, is delivered once, and is named correctly.
    #[test]
    fn blocked_signals_are_taken_in_turn() {
        let signals = Signals::block().unwrap();
        for (signal, number) in SIGNALS {
            // SAFETY: the signal is blocked in this thread, so it stays pending for `wait`.
            unsafe { libc::raise(number) };
            assert_eq!(signals.wait().unwrap(), signal);
        }
        assert_eq!(signals.wait_timeout(Duration::ZERO).unwrap(), None);
        // Together with another event to wait for: the first one ends the wait.
        let (waker, long) = (Waker::standalone().unwrap(), Some(Duration::from_secs(60)));
        waker.wake();
        assert_eq!(signals.wait_or(&waker, long).unwrap(), None);
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGTERM) };
        assert_eq!(signals.wait_or(&waker, long).unwrap(), Some(Signal::Terminate));
    }
}
