//! Listening sockets: binding them, and what workers do with them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::call::check;
use crate::direct;
use crate::limits::DESCRIPTORS_REMEDY;
use crate::listen_queue::ListenQueue;
use crate::portable::{Plain, Stream};
use crate::socket::{
    RawAddr, bind, listen, set_for_connections, set_nonblocking, set_option, set_socket_option,
    socket,
};

/// A listening socket: TCP, or a Unix stream socket.
///
/// Over TCP each worker has its own on the same address ([`another`](Listener::another)); the kernel spreads
/// connections over them (`SO_REUSEPORT`). Connections inherit their options from it. Unix sockets, and
/// sockets that another process may accept from as well, are [shared](Listener::share).
#[derive(Debug)]
pub struct Listener {
    /// Shared only with [`ListenQueue`], and for no longer than a system call takes.
    fd: Arc<OwnedFd>,
    backlog: u32,
    keep_alive: Option<KeepAlive>,
    /// A gate's program is attached here, and accepted connections inherit it.
    filtered: AtomicBool,
    /// Others accept from the same socket.
    shared: AtomicBool,
    /// Another process keeps it open.
    is_kept: bool,
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

    pub(crate) fn of(fd: OwnedFd, backlog: u32) -> Listener {
        let (filtered, shared) = (AtomicBool::new(false), AtomicBool::new(false));
        Listener { fd: Arc::new(fd), backlog, keep_alive: None, filtered, shared, is_kept: false }
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
        set_for_connections(&listener.fd)?;
        if let Some(backlog) = listener.queue().room_max() {
            listener.backlog = backlog;
        }
        Ok(listener)
    }

    /// The same socket for another worker, which accepts from the same queue. For Unix sockets, for sockets of a service
    /// manager, and where [`another`](Listener::another) fails. Call it before a driver has this listener, because drivers
    /// wait differently at shared sockets.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<Listener> {
        self.shared.store(true, Relaxed);
        let mut listener = Listener::of(self.fd.try_clone()?, self.backlog);
        listener.keep_alive = self.keep_alive;
        *listener.filtered.get_mut() = self.filtered.load(Relaxed);
        *listener.shared.get_mut() = true;
        listener.is_kept = self.is_kept;
        Ok(listener)
    }

    /// Others may accept from the same socket, in this process or another.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    /// Others will accept from the same socket.
    pub(crate) fn set_shared(&mut self) {
        *self.shared.get_mut() = true;
    }

    /// Another process keeps the socket open, and may accept from it. Connections that wait there when a driver closes it
    /// are left to that process: the driver accepts a few dozen at most, and does not empty the queue.
    pub fn set_kept(&mut self) {
        self.set_shared();
        self.is_kept = true;
    }

    /// Whether another process keeps the socket open.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The address listened on, with the port the kernel chose if it was asked to.
    ///
    /// # Errors
    /// Whatever `getsockname(2)` reports; a Unix socket has no such address.
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
        let fd = unsafe { direct::accept(self.fd.as_raw_fd(), raw, len, flags) }?;
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

    /// The socket, for as long as this listener is open.
    pub(crate) fn downgrade(&self) -> Weak<OwnedFd> {
        Arc::downgrade(&self.fd)
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

    /// The same for a connection that the portable driver accepted.
    pub(crate) fn unfilter_stream(&self, connection: &Stream) {
        self.unfilter(connection.as_raw_fd());
    }

    /// The same socket as the standard library has it.
    pub(crate) fn plain(&self) -> io::Result<Plain> {
        let fd = self.fd.try_clone()?;
        Ok(match self.local_addr() {
            Ok(_) => Plain::Tcp(fd.into()),
            Err(_) => Plain::Unix(fd.into()),
        })
    }

    /// Sets whether accepting returns at once if no connection waits.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        set_nonblocking(self.fd.as_raw_fd(), nonblocking)
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

/// What to do about an error of `bind(2)`, or of what comes before it, to be put behind its text; empty where that is all
/// there is to say.
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
        Some(libc::EMFILE) => DESCRIPTORS_REMEDY,
        _ => "",
    }
}

/// The address on which listening failed, and what to do about it.
fn explain(addr: SocketAddr, error: &io::Error) -> io::Error {
    let remedy = bind_remedy(error);
    io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}{remedy}"))
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
