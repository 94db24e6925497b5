//! Sockets and cores: the few calls the standard library does not offer.

use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};

/// Connections the kernel may complete before we accept them. The kernel caps it at
/// `net.core.somaxconn`.
const BACKLOG: libc::c_int = 4096;

/// Listens on `addr` with a long backlog. Accepted sockets inherit `TCP_NODELAY` from the listener,
/// which saves a system call a connection.
///
/// # Errors
/// Whatever the system calls report; usually the address is in use.
pub fn listen(addr: SocketAddrV4) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr)?;
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the pointer and the length describe `on`, which outlives
    // the call.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    check(result)?;
    // SAFETY: takes no pointer; the descriptor is open. A second `listen` only changes the backlog.
    check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) })?;
    Ok(listener)
}

/// Accepts one connection, non-blocking from birth (the standard library would need a second call).
/// `None` when no connection is waiting on a non-blocking listener.
///
/// # Errors
/// Whatever `accept4(2)` reports, except that nothing is waiting.
pub fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let no_address = std::ptr::null_mut();
    // SAFETY: null for the address and its length asks for neither, so the kernel writes to no
    // memory of ours.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            no_address,
            std::ptr::null_mut(),
            flags,
        )
    };
    match check(fd) {
        // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
        Ok(()) => Ok(Some(unsafe { TcpStream::from_raw_fd(fd) })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// The CPU does not exist or is not ours to use.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `cpu_set_t` is an array of integers, for which all zeroes is a valid value: the empty
    // set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is inside the set, as checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the length describe `set`; 0 means the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) })
}

/// Turns the return value of a system call into a `Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
