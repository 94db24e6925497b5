//! A thin epoll: create, add, wait.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::socket::check;

/// Events taken in one `epoll_wait`.
const EVENTS_MAX: usize = 512;

/// An epoll instance. A descriptor leaves it when it is closed.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// One batch of events; it is apart from [`Epoll`] so that descriptors can be added while a batch
/// is handled.
#[derive(Debug)]
pub struct Events(Vec<libc::epoll_event>);

impl Events {
    /// Room for one batch.
    pub fn new() -> Events {
        Events(Vec::with_capacity(EVENTS_MAX))
    }

    /// The descriptors that are ready, each with what it is ready for.
    pub fn iter(&self) -> impl Iterator<Item = (usize, libc::c_int)> {
        self.0
            .iter()
            .map(|event| (event.u64 as usize, event.events as libc::c_int))
    }
}

impl Default for Events {
    fn default() -> Self {
        Events::new()
    }
}

impl Epoll {
    /// Creates the instance.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(fd)?;
        // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `source` for `interest` (`EPOLLIN`, …). [`wait`](Epoll::wait) reports it by its
    /// descriptor.
    ///
    /// # Errors
    /// Whatever `epoll_ctl(2)` reports.
    pub fn add(&self, source: &impl AsRawFd, interest: libc::c_int) -> io::Result<()> {
        let fd = source.as_raw_fd();
        let mut event = libc::epoll_event {
            events: interest as u32,
            u64: fd as u64,
        };
        // SAFETY: `event` is valid for the call, and the kernel copies it.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) })
    }

    /// Waits for events, at most `timeout_ms` (−1: for ever), and puts them into `events`: none
    /// after the time-out or a signal.
    ///
    /// # Errors
    /// Whatever `epoll_wait(2)` reports, except `EINTR`.
    pub fn wait(&self, events: &mut Events, timeout_ms: libc::c_int) -> io::Result<()> {
        events.0.clear();
        let (fd, room) = (self.0.as_raw_fd(), events.0.as_mut_ptr());
        // SAFETY: the vector has room for EVENTS_MAX events and is not touched during the call.
        let count = unsafe { libc::epoll_wait(fd, room, EVENTS_MAX as libc::c_int, timeout_ms) };
        match check(count) {
            // SAFETY: the kernel has written the first `count` events, and `count` is at most
            // EVENTS_MAX.
            Ok(()) => unsafe { events.0.set_len(count as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
