//! The system calls of each connection and each request, without the functions of the C library around them.
//!
//! Those functions are cancellation points (POSIX.1-2024, XSH §2.9.5.2): in a program with several threads each does two
//! atomic exchanges and some sixty instructions for `pthread_cancel`, which nothing here calls.

use std::io;
use std::os::fd::RawFd;

use libc::{c_int, c_long};

use crate::call::check_size;

/// `recv(2)` into the start of `buffer`. Returns how many bytes of it were written.
#[inline]
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, len) = (buffer.as_mut_ptr(), buffer.len());
    let address = std::ptr::null_mut::<u8>();
    // SAFETY: the buffer is valid for writes of its length; no address is asked for.
    size(unsafe { libc::syscall(libc::SYS_recvfrom, fd, start, len, 0 as c_int, address, address) })
}

/// `send(2)`, without a signal if the peer is gone.
#[inline]
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let (start, len, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
    let address = std::ptr::null::<u8>();
    // SAFETY: the bytes are valid for reads of their length; there is no address, of length 0.
    size(unsafe {
        libc::syscall(libc::SYS_sendto, fd, start, len, flags, address, 0 as libc::socklen_t)
    })
}

/// `accept4(2)`.
///
/// # Safety
/// `address` is valid for writes of as many bytes as `len` says.
#[inline]
pub(crate) unsafe fn accept(
    fd: RawFd,
    address: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> io::Result<RawFd> {
    // SAFETY: the caller's.
    size(unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, flags) }).map(|fd| fd as RawFd)
}

/// `epoll_wait(2)` for at most `timeout` milliseconds; −1 waits forever. Returns how many events were written.
#[inline]
pub(crate) fn wait(
    epoll: RawFd,
    events: &mut [libc::epoll_event],
    timeout: c_int,
) -> io::Result<usize> {
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let (events, signals) = (events.as_mut_ptr(), std::ptr::null::<u8>());
    // The call that all architectures have. Without a set of signals, its size is not looked at.
    let call = libc::SYS_epoll_pwait;
    // SAFETY: `events` is valid for writes of `room` events; the signals that are blocked stay as they are.
    size(unsafe { libc::syscall(call, epoll, events, room, timeout, signals, 0_usize) })
}

/// Closes a descriptor that its owner keeps as a number.
#[inline]
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller owns `fd` and forgets it. Linux frees the descriptor whatever it returns.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// What a call returns, which with −1 leaves the cause in `errno`.
#[inline]
fn size(result: c_long) -> io::Result<usize> {
    check_size(result as isize)
}
