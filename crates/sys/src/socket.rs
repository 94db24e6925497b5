//! Sockets: the few operations on them, and their addresses as the kernel writes them.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use highwater_core::driver::AcceptError;

use crate::call::check;

/// A socket to listen on `addr` with.
pub(crate) fn socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Connections of the last run may still be in TIME_WAIT on this port.
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    set_for_connections(&fd)?;
    if addr.is_ipv6() {
        // The meaning of the wildcard must not depend on the sysctl net.ipv6.bindv6only.
        let only = i32::from(!addr.ip().is_unspecified());
        set_socket_option(fd.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &only)?;
    }
    Ok(fd)
}

/// Bytes of output that the kernel takes for a connection beyond those on their way to the client; it takes more when half
/// of them have left. Its own bound is its send buffer, which grows to megabytes: a slow client would hold as much
/// memory, and for tens of seconds nothing would show that it reads. Half as much costs large answers CPU time.
const UNSENT_MAX: i32 = 256 * 1024;

/// Sets what accepted TCP connections inherit from the listener `fd`, so that it costs no system call each.
pub(crate) fn set_for_connections(fd: &OwnedFd) -> io::Result<()> {
    // Answers are written whole, so waiting for more bytes gains nothing.
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    set_socket_option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &UNSENT_MAX)
}

pub(crate) fn bind(fd: &OwnedFd, addr: SocketAddr) -> io::Result<()> {
    let mut addr = RawAddr::encode(addr);
    let (raw, len) = (addr.as_mut_ptr(), addr.len);
    // SAFETY: `raw` is valid for reads of `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw, len) })?;
    Ok(())
}

pub(crate) fn listen(fd: &OwnedFd, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(())
}

pub(crate) fn set_option(fd: &OwnedFd, level: i32, option: i32) -> io::Result<()> {
    set_socket_option(fd.as_raw_fd(), level, option, &1_i32)
}

pub(crate) fn set_socket_option<T>(
    fd: RawFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is valid for reads of `len` bytes.
    check(unsafe { libc::setsockopt(fd, level, option, value, len) })?;
    Ok(())
}

/// A socket to connect to `target` with, bound to the address `source` if one is given. The port is
/// chosen at connect time: any port that is free towards that target.
pub(crate) fn client(
    target: SocketAddr,
    source: Option<std::net::IpAddr>,
    nonblocking: bool,
) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | flags, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // A request is sent whole: its last segment must not wait for the acknowledgement of the first.
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    if let Some(source) = source {
        // Without it, a bound socket takes its port for all targets, and ports are few.
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)?;
        bind(&fd, SocketAddr::new(source, 0))?;
    }
    Ok(fd)
}

/// Begins to connect; `EINPROGRESS` means that it continues in the background.
pub(crate) fn connect(fd: RawFd, target: SocketAddr) -> io::Result<()> {
    let mut addr = RawAddr::encode(target);
    let (raw, len) = (addr.as_mut_ptr(), addr.len);
    // SAFETY: `raw` is valid for reads of `len` bytes.
    check(unsafe { libc::connect(fd, raw, len) })?;
    Ok(())
}

/// The pending error of a socket, as a number; 0 if there is none. Reading it clears it.
pub(crate) fn take_error(fd: RawFd) -> i32 {
    option(fd, libc::SO_ERROR).unwrap_or(libc::EBADF)
}

/// An option at the level of sockets whose value is a number.
pub(crate) fn option(fd: RawFd, option: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: both are valid for writes, and `len` says how much there is room for.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, place, &raw mut len) })?;
    Ok(value)
}

/// After this, closing the connection sends a reset and frees it at once.
pub(crate) fn reset_on_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // Fails only if the connection is already gone, which is the wanted result.
    let _ = set_socket_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

/// Sets whether calls return at once where they would wait.
pub(crate) fn set_nonblocking(fd: RawFd, nonblocking: bool) -> io::Result<()> {
    let on = i32::from(nonblocking);
    // SAFETY: FIONBIO reads one int, which lives until the call returns.
    check(unsafe { libc::ioctl(fd, libc::FIONBIO, &raw const on) })?;
    Ok(())
}

/// Sends FIN and continues reading.
pub(crate) fn finish_sending(fd: RawFd) {
    // SAFETY: takes no pointers. Fails only if the connection is gone, which reading will report.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Whether the peer has finished sending or is gone. Unlike peeking at what there is to receive, this
/// sees past bytes that are still unread.
pub(crate) fn is_hung_up(fd: RawFd) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `asked` is one entry, valid for reads and writes until the call returns.
    let answered = unsafe { libc::poll(&raw mut asked, 1, 0) };
    answered == 1 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// The peer's address; `None` if the connection is gone already.
pub(crate) fn peer_addr(fd: RawFd) -> Option<SocketAddr> {
    let mut addr = RawAddr::empty();
    let (raw, len) = (addr.as_mut_ptr(), addr.len_mut());
    // SAFETY: both pointers are valid for writes, and `len` says how much there is room for.
    check(unsafe { libc::getpeername(fd, raw, len) }).ok()?;
    addr.decode()
}

/// A socket address as the kernel writes it.
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    pub(crate) fn empty() -> RawAddr {
        // SAFETY: `sockaddr_storage` is plain integers, for which all zero bits are valid.
        let storage = unsafe { mem::zeroed() };
        RawAddr { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    pub(crate) fn len_mut(&mut self) -> *mut libc::socklen_t {
        &raw mut self.len
    }

    pub(crate) fn encode(addr: SocketAddr) -> RawAddr {
        let mut raw = RawAddr::empty();
        match addr {
            SocketAddr::V4(v4) => {
                let inner = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than, and aligned for, every socket address.
                unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in>().write(inner) };
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                let inner = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: the storage is larger than, and aligned for, every socket address.
                unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in6>().write(inner) };
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }

    /// The address of a Unix socket with this name in the file system. `None` if the name is too long, or
    /// contains a zero.
    pub(crate) fn of_path(path: &Path) -> Option<RawAddr> {
        let mut raw = RawAddr::empty();
        let name = path.as_os_str().as_bytes();
        // SAFETY: `sockaddr_un` is plain integers, for which all zero bits are valid.
        let mut inner: libc::sockaddr_un = unsafe { mem::zeroed() };
        // A zero ends the name.
        if name.len() >= inner.sun_path.len() || name.is_empty() || name.contains(&0) {
            return None;
        }
        inner.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (place, &byte) in inner.sun_path.iter_mut().zip(name) {
            *place = byte as libc::c_char;
        }
        // SAFETY: the storage is larger than, and aligned for, every socket address.
        unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_un>().write(inner) };
        raw.len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        Some(raw)
    }

    pub(crate) fn decode(&mut self) -> Option<SocketAddr> {
        let storage = self.as_mut_ptr();
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says so, and the storage is large enough and aligned.
                let inner = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(inner.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(inner.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the family says so, and the storage is large enough and aligned.
                let inner = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(inner.sin6_addr.s6_addr);
                let (port, flow) = (u16::from_be(inner.sin6_port), inner.sin6_flowinfo);
                Some(SocketAddrV6::new(ip, port, flow, inner.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Why accepting has to stop, or `None` if only the connection being accepted failed.
pub(crate) fn accept_failure(errno: i32) -> Option<AcceptError> {
    match errno {
        libc::EMFILE | libc::ENFILE => Some(AcceptError::Descriptors),
        libc::ENOBUFS | libc::ENOMEM => Some(AcceptError::Memory),
        // Cancelled by us, interrupted, or the client has disconnected.
        libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ECONNABORTED => None,
        // Errors of the new connection that Linux reports here; accept(2) says to try again. EPERM
        // is a firewall's.
        libc::ENETDOWN
        | libc::EPROTO
        | libc::ENOPROTOOPT
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EHOSTUNREACH
        | libc::EOPNOTSUPP
        | libc::ENETUNREACH
        | libc::ETIMEDOUT
        | libc::EPERM => None,
        other => Some(AcceptError::Other(other)),
    }
}
