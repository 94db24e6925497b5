//! How does another thread wake a worker?
//!
//! With a descriptor that the driver watches, and a flag in front of it. Of any number of wakes
//! before the worker looks, only the first costs a system call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::check;

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
    /// Writes to a descriptor.
    Descriptor {
        /// Written by the wake.
        bell: OwnedFd,
        /// Watched by the driver, if it is not the bell itself. Kept here so that a write never meets a
        /// closed end.
        ear: Option<OwnedFd>,
    },
    /// Wakes the selector of the portable driver.
    Selector(mio::Waker),
}

impl Waker {
    /// For epoll: an eventfd.
    pub(crate) fn eventfd() -> io::Result<Waker> {
        Ok(Waker::new(eventfd()?, None))
    }

    /// For io_uring: a pair of sockets. A ring that itself signals an eventfd must not be woken
    /// through another eventfd: the kernel does not nest their signals. It delays the second by an
    /// RCU grace period, and Linux 6.18 does even that only once (measured).
    pub(crate) fn socket_pair() -> io::Result<Waker> {
        let (bell, ear) = UnixStream::pair()?;
        Ok(Waker::new(bell.into(), Some(ear.into())))
    }

    /// For the portable driver.
    pub(crate) fn of_selector(waker: mio::Waker) -> Waker {
        Waker::of(Bell::Selector(waker))
    }

    /// A waker that belongs to no driver. Wait for it with [`wait`](Waker::wait), or together with
    /// signals ([`Signals::wait_or`](crate::signal::Signals::wait_or)).
    ///
    /// # Errors
    /// Whatever `eventfd(2)` reports.
    pub fn standalone() -> io::Result<Waker> {
        Waker::eventfd()
    }

    /// Waits for a wake, for at most `timeout`. A wake since the last wait ends it at once. Only
    /// for a waker that belongs to no driver, and by one thread.
    ///
    /// # Errors
    /// Whatever `poll(2)` reports, except that it was interrupted.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        wait_readable([self.raw_fd()], Some(timeout))?;
        self.hear();
        Ok(())
    }

    /// Takes all wakes so far. The flag is cleared last: a wake that finds it set writes nothing.
    pub(crate) fn hear(&self) {
        if let Bell::Descriptor { bell, .. } = &self.shared.bell {
            reset(bell);
        }
        self.acknowledge();
    }

    fn new(bell: OwnedFd, ear: Option<OwnedFd>) -> Waker {
        Waker::of(Bell::Descriptor { bell, ear })
    }

    fn of(bell: Bell) -> Waker {
        Waker { shared: Arc::new(Shared { bell, pending: AtomicBool::new(false) }) }
    }

    /// Makes `poll` return, now or when it is next called. Wakes before that poll coalesce.
    #[inline]
    pub fn wake(&self) {
        // A later wake that finds the flag set relies on this one's write. The swaps form one
        // release sequence, so the driver's `acknowledge` sees what every one of them published.
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            match &self.shared.bell {
                Bell::Descriptor { bell, .. } => ring(bell),
                // Fails only if its selector is gone.
                Bell::Selector(waker) => drop(waker.wake()),
            }
        }
    }

    /// The driver calls this when it has seen a wake, before the worker looks at shared data.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    /// The descriptor that becomes readable. Not of the portable driver's waker: nobody waits for that but its selector.
    pub(crate) fn raw_fd(&self) -> RawFd {
        match &self.shared.bell {
            Bell::Descriptor { bell, ear } => ear.as_ref().unwrap_or(bell).as_raw_fd(),
            Bell::Selector(_) => unreachable!("nobody waits for a driver's waker but the driver"),
        }
    }
}

/// A nonblocking eventfd with a count of zero.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of the descriptors is readable, for at most `timeout`. An interruption also ends
/// it.
pub(crate) fn wait_readable<const N: usize>(
    descriptors: [RawFd; N],
    timeout: Option<Duration>,
) -> io::Result<()> {
    wait_readable_with(&descriptors, timeout, None)
}

/// As [`wait_readable`], under another signal mask for as long as it waits.
pub(crate) fn wait_readable_with(
    descriptors: &[RawFd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> io::Result<()> {
    let entry = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = descriptors.iter().map(entry).collect();
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mask = mask.map_or(ptr::null(), ptr::from_ref);
    let (entries, len) = (polled.as_mut_ptr(), polled.len() as libc::nfds_t);
    // SAFETY: the entries are valid for reads and writes until the call returns; timeout and mask are null or valid.
    match check(unsafe { libc::ppoll(entries, len, timeout, mask) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other.map(drop),
    }
}

/// Sets the count of an eventfd back to zero.
pub(crate) fn reset(fd: &OwnedFd) {
    reset_raw(fd.as_raw_fd());
}

/// As [`reset`], for a descriptor that is never closed.
pub(crate) fn reset_raw(fd: RawFd) {
    let mut count = 0_u64;
    // SAFETY: `count` is valid for writes of its eight bytes. A failure means it was zero already.
    unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
}

fn ring(bell: &OwnedFd) {
    ring_raw(bell.as_raw_fd());
}

/// Makes the other end readable. Async-signal-safe.
pub(crate) fn ring_raw(bell: RawFd) {
    // An eventfd adds these up. For a socket it is eight bytes, and the waker's flag keeps their number
    // low.
    let one = 1_u64;
    // SAFETY: `one` is valid for reads of its eight bytes. If the write fails, the bell is full,
    // and then its owner sees the wake anyway.
    unsafe { libc::write(bell, (&raw const one).cast(), size_of::<u64>()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Purpose: a wake ends a wait whether it comes before or during it, and it ends only one wait.
    #[test]
    fn waits_end_with_a_wake() {
        let waker = Waker::standalone().expect("a descriptor is left");
        waker.wake();
        waker.wake();
        waker.wait(Duration::from_secs(60)).expect("it can be polled");
        let other = waker.clone();
        let thread = thread::spawn(move || other.wake());
        waker.wait(Duration::from_secs(60)).expect("it can be polled");
        thread.join().expect("it does not panic");
        wait_readable([waker.raw_fd()], Some(Duration::ZERO)).expect("it can be polled");
        assert!(!waker.shared.pending.load(Ordering::SeqCst));
    }
}
