//! How does another thread get a worker's attention?
//!
//! An eventfd that the driver watches, and a flag in front of it, so that of any number of wakes
//! before the worker looks only the first costs a system call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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
    fd: OwnedFd,
    /// Set by the first wake, cleared by the driver when it has seen the eventfd.
    pending: AtomicBool,
}

impl Waker {
    /// Blocking reads (io_uring turns them into waiting; epoll never reads).
    pub(crate) fn new() -> io::Result<Waker> {
        let shared = Shared { fd: eventfd(0)?, pending: AtomicBool::new(false) };
        Ok(Waker { shared: Arc::new(shared) })
    }

    /// Makes `poll` return, now or when it is next called. Wakes before that poll coalesce.
    #[inline]
    pub fn wake(&self) {
        // A later wake that finds the flag set relies on this one's write. The swaps form one
        // release sequence, so the driver's `acknowledge` sees what every one of them published.
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            add_one(&self.shared.fd);
        }
    }

    /// Called by the driver when the eventfd spoke, before the worker looks at what it was told.
    #[inline]
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }
}

/// An eventfd with a count of zero. `flags` in addition to close-on-exec.
pub(crate) fn eventfd(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the count of a nonblocking eventfd back to zero.
pub(crate) fn reset(fd: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: `count` is valid for writes of its eight bytes. A failure means it was zero already.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

fn add_one(fd: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: `one` is valid for reads of its eight bytes. This can only fail when the count would
    // pass 2^64 − 2, and then the eventfd is readable anyway.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}
