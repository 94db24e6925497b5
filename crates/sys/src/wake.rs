//! How does another thread get a worker's attention?
//!
//! A descriptor that the driver watches, and a flag in front of it, so that of any number of wakes
//! before the worker looks only the first costs a system call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Written by the wake.
    bell: OwnedFd,
    /// Watched by the driver, if not the bell itself. Here, so that writing never meets a closed
    /// end.
    ear: Option<OwnedFd>,
    /// Set by the first wake, cleared by the driver when it has heard it.
    pending: AtomicBool,
}

impl Waker {
    /// For epoll: an eventfd.
    pub(crate) fn eventfd() -> io::Result<Waker> {
        Ok(Waker::new(eventfd()?, None))
    }

    /// For io_uring: a pair of sockets. A ring that itself signals an eventfd must not be woken
    /// through another: the kernel does not nest their signals, it postpones the second by an RCU
    /// grace period, and Linux 6.18 does even that only once (measured).
    pub(crate) fn socket_pair() -> io::Result<Waker> {
        let (bell, ear) = UnixStream::pair()?;
        Ok(Waker::new(bell.into(), Some(ear.into())))
    }

    fn new(bell: OwnedFd, ear: Option<OwnedFd>) -> Waker {
        Waker { shared: Arc::new(Shared { bell, ear, pending: AtomicBool::new(false) }) }
    }

    /// Makes `poll` return, now or when it is next called. Wakes before that poll coalesce.
    #[inline]
    pub fn wake(&self) {
        // A later wake that finds the flag set relies on this one's write. The swaps form one
        // release sequence, so the driver's `acknowledge` sees what every one of them published.
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            ring(&self.shared.bell);
        }
    }

    /// Called by the driver when it has heard a wake, before the worker looks at what it was told.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    /// The descriptor that becomes readable.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.shared.ear.as_ref().unwrap_or(&self.shared.bell).as_raw_fd()
    }
}

/// A nonblocking eventfd with a count of zero.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the count of an eventfd back to zero.
pub(crate) fn reset(fd: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: `count` is valid for writes of its eight bytes. A failure means it was zero already.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

fn ring(bell: &OwnedFd) {
    // What an eventfd adds up. To a socket it is eight bytes, and the flag keeps their number low.
    let one = 1_u64;
    // SAFETY: `one` is valid for reads of its eight bytes. If this fails the bell is full, and then
    // the driver hears it anyway.
    unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}
