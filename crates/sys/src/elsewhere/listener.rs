//! Listening sockets: binding them, and what workers do with them. There is one socket per address, and all workers accept
//! from it: other systems have no `SO_REUSEPORT` that spreads connections.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::ListenQueue;
use crate::portable::{Plain, Stream};

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    is_kept: bool,
}

impl Listener {
    /// Listens on `addr`; port 0 lets the system choose. An IPv6 wildcard takes IPv4 too. `backlog` is how many
    /// connections may wait to be accepted.
    ///
    /// # Errors
    /// The error names the address and what to do.
    pub fn bind(addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let listen = || -> io::Result<Listener> {
            let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
            if cfg!(unix) {
                // Connections of the last run may still be in TIME_WAIT on this port. On Windows they do not matter,
                // and with this option a second server would take the port from the first.
                socket.set_reuse_address(true)?;
            }
            if addr.is_ipv6() {
                socket.set_only_v6(!addr.ip().is_unspecified())?;
            }
            socket.bind(&addr.into())?;
            socket.listen(backlog_of(backlog))?;
            Ok(Listener::from(TcpListener::from(socket)))
        };
        listen().map_err(|error| {
            let remedy = bind_remedy(&error);
            io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}{remedy}"))
        })
    }

    /// Lets the system probe the peers of connections accepted from now on, where they inherit that.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn keep_alive(&mut self, keep_alive: KeepAlive) -> io::Result<()> {
        let idle = keep_alive.idle.max(Duration::from_secs(1));
        let probes = TcpKeepalive::new().with_time(idle).with_interval(idle / KeepAlive::PROBES);
        SockRef::from(&self.socket).set_tcp_keepalive(&probes)
    }

    /// The same socket for another worker.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn another(&self) -> io::Result<Listener> {
        self.share()
    }

    /// Takes over a socket that other code bound and made listen.
    ///
    /// # Errors
    /// None.
    pub fn adopt(listener: TcpListener) -> io::Result<Listener> {
        Ok(Listener::from(listener))
    }

    /// The same socket for another worker, which accepts from the same queue.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> io::Result<Listener> {
        Ok(Listener { socket: self.socket.try_clone()?, is_kept: self.is_kept })
    }

    /// Another process keeps the socket open, and may accept from it. Connections that wait there when a driver closes it
    /// are left to that process.
    pub fn set_kept(&mut self) {
        self.is_kept = true;
    }

    /// Whether another process keeps the socket open.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The address listened on, with the port the system chose if it was asked to.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How many connections may wait from now on. Connections that already wait stay.
    ///
    /// # Errors
    /// Whatever the system reports. Windows keeps the first value, without an error.
    pub fn set_backlog(&mut self, backlog: u32) -> io::Result<()> {
        match SockRef::from(&self.socket).listen(backlog_of(backlog)) {
            Err(_) if cfg!(windows) => Ok(()),
            listened => listened,
        }
    }

    /// The queue of this listener.
    pub fn queue(&self) -> ListenQueue {
        ListenQueue(())
    }

    /// No gate has a program here that accepted connections would inherit.
    pub(crate) fn unfilter_stream(&self, _: &Stream) {}

    /// The same socket as the standard library has it.
    pub(crate) fn plain(&self) -> io::Result<Plain> {
        Ok(Plain::Tcp(self.socket.try_clone()?))
    }
}

fn backlog_of(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Listener { socket, is_kept: false }
    }
}

/// How the system notices that a peer has disappeared without closing: it lost its power, or its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// A peer that has sent nothing for this long is probed. At least a second.
    pub idle: Duration,
    /// Has no effect here.
    pub unacknowledged_max: Duration,
}

impl KeepAlive {
    /// Unanswered probes in the time of `idle`.
    const PROBES: u32 = 6;
}

/// The remedy for an error of binding, to be appended to its text; empty if none is known.
pub fn bind_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; another process listens there: stop it, or choose another port",
        ErrorKind::PermissionDenied => "; this port needs a privilege: choose one above 1023",
        ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}
