//! Listening sockets, and the few operations on connected ones.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use highwater_core::driver::AcceptError;

use crate::call::check;
use crate::listen_queue::ListenQueue;

/// A listening TCP socket.
///
/// Each worker has its own on the same address ([`another`](Listener::another)); the kernel spreads
/// connections over them (`SO_REUSEPORT`). Connections inherit `TCP_NODELAY` from it.
#[derive(Debug)]
pub struct Listener {
    /// Shared only with [`ListenQueue`], and for no longer than a system call takes.
    fd: Arc<OwnedFd>,
    backlog: u32,
    keep_alive: Option<KeepAlive>,
    /// A gate's program is attached here, and accepted connections inherit it.
    filtered: AtomicBool,
}

impl Listener {
    /// Listens on `addr`; port 0 lets the kernel choose. An IPv6 wildcard takes IPv4 too.
    ///
    /// `backlog` is how many connections may wait to be accepted; the kernel silently caps it at
    /// the sysctl `net.core.somaxconn`.
    ///
    /// # Errors
    /// The error names the address and what to do. `AddrInUse` also when another process shares its
    /// listeners on this address: two servers must not split their clients by accident.
    pub fn bind(addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let listen = || {
            let fd = socket(addr)?;
            bind(&fd, addr)?;
            // Only now: the first listener must not join another process's listeners; the next ones
            // join it.
            set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
            listen(&fd, backlog)?;
            Ok(Listener::of(fd, backlog))
        };
        listen().map_err(|error| explain(addr, &error))
    }

    fn of(fd: OwnedFd, backlog: u32) -> Listener {
        let (fd, filtered) = (Arc::new(fd), AtomicBool::new(false));
        Listener { fd, backlog, keep_alive: None, filtered }
    }

    /// Lets the kernel probe the peers of connections accepted from now on, here and at listeners
    /// made by [`another`](Listener::another). Connections inherit the setting, so it costs no
    /// system call each.
    ///
    /// # Errors
    /// Whatever `setsockopt(2)` reports.
    pub fn keep_alive(&mut self, keep_alive: KeepAlive) -> io::Result<()> {
        keep_alive.set(&self.fd)?;
        self.keep_alive = Some(keep_alive);
        Ok(())
    }

    /// A second listener on the same address, sharing its connections with this one.
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind).
    pub fn another(&self) -> io::Result<Listener> {
        let addr = self.local_addr()?;
        let listen = || {
            let fd = socket(addr)?;
            set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
            bind(&fd, addr)?;
            listen(&fd, self.backlog)?;
            let mut another = Listener::of(fd, self.backlog);
            if let Some(keep_alive) = self.keep_alive {
                another.keep_alive(keep_alive)?;
            }
            Ok(another)
        };
        listen().map_err(|error| explain(addr, &error))
    }

    /// Takes over a socket that other code bound and made listen. Others may then listen beside it
    /// ([`another`](Listener::another)), with the same backlog.
    ///
    /// # Errors
    /// Whatever `setsockopt(2)` and `getsockopt(2)` report: for example, it is not a TCP socket.
    pub fn adopt(listener: std::net::TcpListener) -> io::Result<Listener> {
        let mut listener = Listener::from(listener);
        set_option(&listener.fd, libc::SOL_SOCKET, libc::SO_REUSEPORT)?;
        // As for a listener of this module: accepted connections inherit it.
        set_option(&listener.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
        if let Some(backlog) = listener.queue().room_max() {
            listener.backlog = backlog;
        }
        Ok(listener)
    }

    /// The same socket for another worker, which accepts from the same queue. For listeners on
    /// which [`another`](Listener::another) fails.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<Listener> {
        let fd = Arc::new(self.fd.try_clone()?);
        let filtered = AtomicBool::new(self.filtered.load(Relaxed));
        Ok(Listener { fd, backlog: self.backlog, keep_alive: self.keep_alive, filtered })
    }

    /// The address listened on, with the port the kernel chose if it was asked to.
    ///
    /// # Errors
    /// Whatever `getsockname(2)` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let mut addr = RawAddr::empty();
        // SAFETY: both pointers are valid for writes, and `len` says how much there is room for.
        check(unsafe {
            libc::getsockname(self.fd.as_raw_fd(), addr.as_mut_ptr(), addr.len_mut())
        })?;
        addr.decode().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// Accepts one connection if one waits, with `flags` for its descriptor. The listener must have
    /// been made nonblocking.
    pub(crate) fn accept(&self, flags: i32) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        let mut addr = RawAddr::empty();
        let (raw, len) = (addr.as_mut_ptr(), addr.len_mut());
        // SAFETY: both pointers are valid for writes, and `len` says how much there is room for.
        let fd = check(unsafe { libc::accept4(self.fd.as_raw_fd(), raw, len, flags) })?;
        // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok((fd, addr.decode()))
    }

    /// How many connections may wait from now on, capped as for [`bind`](Listener::bind).
    /// Connections that already wait stay, however many they are.
    ///
    /// # Errors
    /// Whatever `listen(2)` reports.
    pub fn set_backlog(&mut self, backlog: u32) -> io::Result<()> {
        self.backlog = backlog;
        listen(&self.fd, backlog)
    }

    /// The queue of this listener: how many wait, and how many found no room.
    pub fn queue(&self) -> ListenQueue {
        ListenQueue::of(&self.fd)
    }

    /// Attaches `program`: it sees every packet that arrives here, and may drop it.
    pub(crate) fn attach_filter(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program = program.as_raw_fd();
        let fd = self.fd.as_raw_fd();
        set_socket_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program)?;
        self.filtered.store(true, Relaxed);
        Ok(())
    }

    /// Removes the listener's filter from a connection accepted here. It is meant for listeners,
    /// and would cost time for each packet of the connection.
    #[inline]
    pub(crate) fn unfilter(&self, connection: RawFd) {
        if self.filtered.load(Relaxed) {
            // Fails only if there is no filter any more.
            let _ = set_socket_option(connection, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32);
        }
    }

    /// Sets whether accepting returns at once if no connection waits.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let on = i32::from(nonblocking);
        // SAFETY: FIONBIO reads one int, which lives until the call returns.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::FIONBIO, &raw const on) })?;
        Ok(())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How the kernel notices that a peer has disappeared without closing: it lost its power, or its
/// network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// A peer that has sent nothing for this long is probed. Whole seconds, at least one.
    pub idle: Duration,
    /// If the peer does not acknowledge or accept data for this long, the connection ends. Never
    /// less than twice `idle`, which is the time that a silent peer has.
    pub unacknowledged_max: Duration,
}

impl KeepAlive {
    /// Unanswered probes before the connection ends. Together they take as long as `idle`.
    const PROBES: i32 = 6;

    fn set(self, fd: &OwnedFd) -> io::Result<()> {
        let idle = i32::try_from(self.idle.as_secs()).unwrap_or(i32::MAX).clamp(1, 32_767);
        let interval = (idle / Self::PROBES).max(1);
        let patience = self.unacknowledged_max.max(self.idle * 2).as_millis();
        let patience = u32::try_from(patience).unwrap_or(u32::MAX >> 1);
        let raw = fd.as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)?;
        set_socket_option(raw, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &idle)?;
        set_socket_option(raw, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, &interval)?;
        set_socket_option(raw, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &Self::PROBES)?;
        set_socket_option(raw, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &patience)
    }
}

/// Takes over a listening socket that other code made, for example a service manager.
///
/// It needs `SO_REUSEPORT` for [`another`](Listener::another) to work.
impl From<std::net::TcpListener> for Listener {
    fn from(listener: std::net::TcpListener) -> Self {
        // std listens with at least 128; `another` repeats this value.
        Listener::of(listener.into(), 4096)
    }
}

/// What to do about an error of `bind(2)`, to be put behind its text; empty where that is all there is to say.
pub fn bind_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "; another process listens there: stop it, or choose another port"
        }
        Some(libc::EACCES) => {
            "; to listen on a port below 1024, a process needs CAP_NET_BIND_SERVICE: without it, choose a higher port"
        }
        Some(libc::EADDRNOTAVAIL) => "; this machine has no such address",
        Some(libc::EAFNOSUPPORT) => "; this machine has no IPv6",
        _ => "",
    }
}

/// The address on which listening failed, and what to do about it.
fn explain(addr: SocketAddr, error: &io::Error) -> io::Error {
    let remedy = bind_remedy(error);
    io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}{remedy}"))
}

fn socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Connections of the last run may still be in TIME_WAIT on this port.
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    // Accepted connections inherit it. Answers are written whole, so waiting for more bytes gains
    // nothing.
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    if addr.is_ipv6() {
        // The meaning of the wildcard must not depend on the sysctl net.ipv6.bindv6only.
        let only = i32::from(!addr.ip().is_unspecified());
        set_socket_option(fd.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &only)?;
    }
    Ok(fd)
}

fn bind(fd: &OwnedFd, addr: SocketAddr) -> io::Result<()> {
    let mut addr = RawAddr::encode(addr);
    let (raw, len) = (addr.as_mut_ptr(), addr.len);
    // SAFETY: `raw` is valid for reads of `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw, len) })?;
    Ok(())
}

fn listen(fd: &OwnedFd, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(())
}

fn set_option(fd: &OwnedFd, level: i32, option: i32) -> io::Result<()> {
    set_socket_option(fd.as_raw_fd(), level, option, &1_i32)
}

fn set_socket_option<T>(fd: RawFd, level: i32, option: i32, value: &T) -> io::Result<()> {
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
    let mut errno = 0_i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both are valid for writes, and `len` says how much there is room for.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut errno).cast(),
            &raw mut len,
        )
    };
    if result < 0 { libc::EBADF } else { errno }
}

/// After this, closing the connection sends a reset and frees it at once.
pub(crate) fn reset_on_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // Fails only if the connection is already gone, which is the wanted result.
    let _ = set_socket_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
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

/// Closes a descriptor that its owner keeps as a number.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller owns `fd` and forgets it. Linux frees the descriptor whatever it returns.
    unsafe { libc::close(fd) };
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
    fn empty() -> RawAddr {
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

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    fn len_mut(&mut self) -> *mut libc::socklen_t {
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

    fn decode(&mut self) -> Option<SocketAddr> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an adopted socket keeps its backlog, and listeners made from it have the same.
    #[test]
    fn adopted_backlog() {
        let theirs = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 37).unwrap();
        let theirs = std::net::TcpListener::from(theirs.fd.try_clone().unwrap());
        let ours = Listener::adopt(theirs).unwrap();
        assert_eq!(ours.backlog, 37);
        assert_eq!(ours.share().unwrap().backlog, 37);
        assert_eq!(ours.another().unwrap().queue().room_max(), Some(37));
    }
}
