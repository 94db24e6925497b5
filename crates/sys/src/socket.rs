//! Listening sockets, and the few things done to a connected one.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use highwater_core::driver::AcceptError;

use crate::call::check;

/// A listening TCP socket.
///
/// Each worker has its own on the same address ([`another`](Listener::another)); the kernel spreads
/// connections over them (`SO_REUSEPORT`). Connections inherit `TCP_NODELAY` from it.
#[derive(Debug)]
pub struct Listener {
    /// Shared with nobody for longer than a system call takes ([`ListenQueue`]).
    fd: Arc<OwnedFd>,
    backlog: u32,
    keep_alive: Option<KeepAlive>,
    /// A gate's program looks at what arrives here, and connections inherit it.
    filtered: AtomicBool,
}

impl Listener {
    /// Listens on `addr`; port 0 lets the kernel choose. An IPv6 wildcard takes IPv4 too.
    ///
    /// `backlog` is how many accepted-by-nobody connections may wait; the kernel silently caps it
    /// at the sysctl `net.core.somaxconn`.
    ///
    /// # Errors
    /// Naming the address and what to do about it. `AddrInUse` also when another process shares
    /// its listeners on this address: two servers must not split their clients by accident.
    pub fn bind(addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let listen = || {
            let fd = socket(addr)?;
            bind(&fd, addr)?;
            // Only now: the first listener must not join somebody else's, the next ones join it.
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

    /// Has the kernel look after the peers of connections accepted from now on, here and at what
    /// [`another`](Listener::another) makes of this. They inherit it: it costs no system call each.
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
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok((fd, addr.decode()))
    }

    /// How many connections may wait from now on, capped as for [`bind`](Listener::bind). Those that
    /// wait already stay, however many they are.
    ///
    /// # Errors
    /// Whatever `listen(2)` reports.
    pub fn set_backlog(&mut self, backlog: u32) -> io::Result<()> {
        self.backlog = backlog;
        listen(&self.fd, backlog)
    }

    /// What tells who waits here, and who found no room.
    pub fn queue(&self) -> ListenQueue {
        ListenQueue(Arc::downgrade(&self.fd))
    }

    /// Has `program` look at every packet that arrives here, and decide.
    pub(crate) fn attach_filter(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program = program.as_raw_fd();
        let fd = self.fd.as_raw_fd();
        set_socket_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program)?;
        self.filtered.store(true, Relaxed);
        Ok(())
    }

    /// Takes from a connection accepted here what is meant for listeners only: a filter would cost
    /// each of its packets time.
    #[inline]
    pub(crate) fn unfilter(&self, connection: RawFd) {
        if self.filtered.load(Relaxed) {
            // Fails only if there is none any more.
            let _ = set_socket_option(connection, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32);
        }
    }

    /// Whether accepting waits for a connection.
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

/// How the kernel finds out that a peer is gone without a word: it lost its power, or its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without a word from the peer it is probed. Whole seconds count, at least one.
    pub idle: Duration,
    /// Data that the peer does not acknowledge for so long, or does not take, ends the connection;
    /// never less than twice `idle`, which is how long a silent peer has.
    pub unacknowledged_max: Duration,
}

impl KeepAlive {
    /// Probes before a peer is given up. They take as long as the silence before them.
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

/// The connections that wait at a listener to be accepted. Does not keep it open.
#[derive(Clone, Debug)]
pub struct ListenQueue(Weak<OwnedFd>);

impl ListenQueue {
    /// How many attempts to connect found no room in it since the listener was made, counted round at
    /// 2³²: the kernel drops them and tells nobody else. An attempt that is repeated, by default after a
    /// second, counts again, and so does what a gate's program dropped. `None` once the listener is
    /// closed, or if the kernel does not say.
    pub fn overflows(&self) -> Option<u32> {
        // `SK_MEMINFO_DROPS` of `linux/sock_diag.h`, the last that there is.
        const DROPS: usize = 8;
        let memory: [u32; DROPS + 1] = self.option(libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        Some(memory[DROPS])
    }

    /// How many wait now: their handshake is complete, and nobody has accepted them. `None` as for
    /// [`overflows`](ListenQueue::overflows).
    pub fn waiting(&self) -> Option<u32> {
        // `tcpi_unacked` of `linux/tcp.h`, which of a listener says this: the fifth word after the eight
        // bytes at the beginning. The structure grows with the kernel, at its end.
        const UNACKED: usize = 6;
        let info: [u32; UNACKED + 1] = self.option(libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Some(info[UNACKED])
    }

    /// The beginning of an option that is made of words.
    fn option<const N: usize>(&self, level: i32, option: i32) -> Option<[u32; N]> {
        let fd = self.0.upgrade()?;
        let mut words = [0_u32; N];
        let mut len = mem::size_of_val(&words) as libc::socklen_t;
        let place = words.as_mut_ptr().cast();
        // SAFETY: `words` and `len` are valid for writes, and `len` says how much there is room for.
        let result =
            unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, place, &raw mut len) };
        check(result).ok()?;
        (len as usize == mem::size_of_val(&words)).then_some(words)
    }
}

/// Adopts a listening socket that somebody else made, for example a service manager.
///
/// It needs `SO_REUSEPORT` for [`another`](Listener::another) to work.
impl From<std::net::TcpListener> for Listener {
    fn from(listener: std::net::TcpListener) -> Self {
        // std listens with 128 at least; `another` can only repeat what a caller would pass.
        Listener::of(listener.into(), 4096)
    }
}

/// What failed to listen, and what to do about it.
fn explain(addr: SocketAddr, error: &io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "; another process listens there: stop it, or choose another port"
        }
        Some(libc::EACCES) => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        Some(libc::EADDRNOTAVAIL) => "; this machine has no such address",
        Some(libc::EAFNOSUPPORT) => "; this machine has no IPv6",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}{remedy}"))
}

fn socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Connections of the last run may still be in TIME_WAIT on this port.
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    // Inherited by accepted connections: answers are written whole, so nothing is worth waiting for.
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    if addr.is_ipv6() {
        // What the wildcard means must not depend on the sysctl net.ipv6.bindv6only.
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

/// A socket to connect to `target` with, bound to the address `source` if one is given, on whatever
/// port is free towards that target when it connects.
pub(crate) fn client(
    target: SocketAddr,
    source: Option<std::net::IpAddr>,
    nonblocking: bool,
) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | flags, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // A request is sent whole: its last segment is not to wait for the acknowledgement of the first.
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    if let Some(source) = source {
        // Without it a bound socket takes a port away from all targets, and there are few.
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)?;
        bind(&fd, SocketAddr::new(source, 0))?;
    }
    Ok(fd)
}

/// Begins to connect; `EINPROGRESS` says that it goes on.
pub(crate) fn connect(fd: RawFd, target: SocketAddr) -> io::Result<()> {
    let mut addr = RawAddr::encode(target);
    let (raw, len) = (addr.as_mut_ptr(), addr.len);
    // SAFETY: `raw` is valid for reads of `len` bytes.
    check(unsafe { libc::connect(fd, raw, len) })?;
    Ok(())
}

/// The error that waits on a socket, as a number; 0 if there is none. It is taken by asking.
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

/// Makes the coming close of a connection send a reset and forget the connection at once.
pub(crate) fn reset_on_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // Fails only if the connection is gone already, which is what is wanted.
    let _ = set_socket_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

/// Sends FIN and goes on reading.
pub(crate) fn finish_sending(fd: RawFd) {
    // SAFETY: takes no pointers. Fails only if the connection is gone, which reading will tell.
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

/// Closes a descriptor that `fd`'s owner keeps as a number.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller owns `fd` and forgets it. Linux frees the descriptor whatever it returns.
    unsafe { libc::close(fd) };
}

/// Who is at the other end; `None` if it is gone already.
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
        // Cancelled by us, interrupted, or nobody there any more.
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
