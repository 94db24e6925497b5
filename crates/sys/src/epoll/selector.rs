//! The epoll instance, and the system calls on connections.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::slots::Token;
use crate::call::{check, check_size};
use crate::{direct, sealed};

/// How many events one wait takes. The next wait takes the rest.
const EVENTS_MAX: usize = 512;

pub(super) struct Selector {
    fd: OwnedFd,
    events: Box<[libc::epoll_event; EVENTS_MAX]>,
}

impl Selector {
    pub(super) fn new() -> io::Result<Selector> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = Box::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX]);
        Ok(Selector { fd, events })
    }

    pub(super) fn add(&self, fd: RawFd, flags: u32, token: Token) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, flags, token)
    }

    pub(super) fn modify(&self, fd: RawFd, flags: u32, token: Token) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, flags, token)
    }

    pub(super) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Token(0))
    }

    fn control(&self, operation: i32, fd: RawFd, flags: u32, token: Token) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags, u64: token.0 };
        // SAFETY: `event` lives until the call returns.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &mut event) })?;
        Ok(())
    }

    /// Waits for events, for at most so many nanoseconds, and says how many came. The time is rounded up to whole
    /// milliseconds. A `Duration` would cost two divisions, one of them of 128 bits.
    #[inline]
    pub(super) fn wait(&mut self, nanos: Option<u64>) -> io::Result<usize> {
        let timeout =
            nanos.map_or(-1, |nanos| i32::try_from(nanos.div_ceil(1_000_000)).unwrap_or(i32::MAX));
        match direct::wait(self.fd.as_raw_fd(), &mut *self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// The event at `position` among those of the last wait.
    #[inline]
    pub(super) fn event(&self, position: usize) -> (Token, u32) {
        let event = self.events[position];
        (Token(event.u64), event.events)
    }

    /// Whether a wait would return at once.
    pub(super) fn has_events(&self) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one entry, and lives until the call returns.
        match check(unsafe { libc::poll(&mut poll, 1, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            other => Ok(other? > 0),
        }
    }
}

impl AsFd for Selector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How much of a send the kernel took.
pub(super) struct Taken {
    pub(super) len: usize,
    /// If that is not all, the socket's buffer is full. Otherwise the rest is to be sent at once: no edge will come.
    pub(super) is_full: bool,
}

/// Sends both parts, or as much of them as there is room for.
#[inline]
pub(super) fn send(fd: RawFd, parts: [&[u8]; 2]) -> io::Result<Taken> {
    if let Some(place) = sealed::find(parts[1]) {
        match place.send(fd, parts[0]) {
            Ok(len @ 1..) => return Ok(Taken { len, is_full: false }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Ok(0) | Err(_) => {} // Then with a copy.
        }
    }
    Ok(Taken { len: send_bytes(fd, parts)?, is_full: true })
}

/// The same, with a copy.
#[inline]
pub(super) fn send_bytes(fd: RawFd, parts: [&[u8]; 2]) -> io::Result<usize> {
    let [first, second] = parts;
    if second.is_empty() {
        return direct::send(fd, first);
    }
    let mut parts = parts
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: `msghdr` is integers and pointers, for which all zero bits are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    // SAFETY: the header and the parts live until the call returns; sending only reads them.
    check_size(unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) })
}
