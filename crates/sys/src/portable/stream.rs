//! Sockets of both families behind one type: TCP, and Unix sockets on Linux.

use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
use std::os::unix::net as unix;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::SockRef;

/// How many bytes one call sends, at most: macOS refuses calls with 2 GiB, and Windows' numbers end at 4 GiB.
const SEND_MAX: usize = 1 << 30;

/// A listening socket of the standard library.
pub(crate) enum Plain {
    Tcp(net::TcpListener),
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    Unix(unix::UnixListener),
}

/// A listening socket that a selector can watch.
pub(super) enum Acceptor {
    Tcp(mio::net::TcpListener),
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    Unix(mio::net::UnixListener),
}

impl Acceptor {
    /// Makes the socket nonblocking, for everybody who has it.
    pub(super) fn new(plain: Plain) -> io::Result<Acceptor> {
        Ok(match plain {
            Plain::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Acceptor::Tcp(mio::net::TcpListener::from_std(listener))
            }
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Plain::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Acceptor::Unix(mio::net::UnixListener::from_std(listener))
            }
        })
    }

    /// Accepts one connection if one waits.
    pub(super) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok((Stream::Tcp(stream), Some(peer)))
            }
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Acceptor::Unix(listener) => Ok((Stream::Unix(listener.accept()?.0), None)),
        }
    }

    pub(super) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Acceptor::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Acceptor::Unix(listener) => listener.register(registry, token, Interest::READABLE),
        }
    }
}

/// A connection. Closed when dropped.
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    Unix(mio::net::UnixStream),
}

impl Stream {
    pub(super) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    /// Sends both parts, or as much of them as there is room for.
    pub(super) fn send(&mut self, parts: [&[u8]; 2]) -> io::Result<usize> {
        let parts = first(parts, SEND_MAX).map(IoSlice::new);
        match self {
            Stream::Tcp(stream) => stream.write_vectored(&parts),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(stream) => stream.write_vectored(&parts),
        }
    }

    /// Sends a FIN. Fails only if the connection is gone, which reading will report.
    pub(super) fn finish_sending(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// After this, closing the connection sends a reset and frees it at once. Fails only if the connection is gone
    /// already.
    pub(super) fn reset_on_close(&self) {
        match self {
            Stream::Tcp(stream) => drop(SockRef::from(stream).set_linger(Some(Duration::ZERO))),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(_) => {}
        }
    }

    /// Not every system lets connections inherit this from their listener. Answers are written whole, so waiting
    /// for more bytes gains nothing. Fails only if the connection is gone already.
    pub(super) fn send_without_delay(&self) {
        match self {
            Stream::Tcp(stream) => drop(stream.set_nodelay(true)),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(_) => {}
        }
    }

    /// Whether the connection has failed. Asking clears that.
    pub(super) fn has_failed(&self) -> bool {
        let error = match self {
            Stream::Tcp(stream) => stream.take_error(),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(stream) => stream.take_error(),
        };
        !matches!(error, Ok(None))
    }

    /// The peer's address; `None` if it has none, or if the connection is gone already.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
            Stream::Unix(_) => None,
        }
    }
}

#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
impl std::os::fd::AsRawFd for Stream {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// The first `max` bytes of both parts.
fn first([a, b]: [&[u8]; 2], max: usize) -> [&[u8]; 2] {
    let a = &a[..a.len().min(max)];
    [a, &b[..b.len().min(max - a.len())]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a large send is cut at its bound, and never skips the end of its first part.
    #[test]
    fn sends_are_bounded() {
        for (max, expected) in [
            (0, ["", ""]),
            (3, ["hea", ""]),
            (4, ["head", ""]),
            (6, ["head", "ta"]),
            (9, ["head", "tail"]),
        ] {
            assert_eq!(first([b"head", b"tail"], max), expected.map(str::as_bytes), "{max}");
        }
    }
}
