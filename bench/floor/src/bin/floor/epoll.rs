//! The epoll floor. Edge-triggered; receive, then send; no second receive to see `EAGAIN` when the
//! first did not fill the buffer. A new connection is tried at once: its request has usually
//! arrived with it, which saves a short connection a turn through `epoll_wait` (8 % of its cost).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use highwater_floor::epoll::{Epoll, Events};
use highwater_floor::socket;

use crate::protocol::{BATCH_MAX, Matched, Protocol};

struct Connection {
    stream: TcpStream,
    matched: Matched,
}

/// Whether a connection goes on.
#[derive(PartialEq)]
enum Next {
    Open,
    Close,
}

struct Loop {
    epoll: Epoll,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    protocol: Protocol,
    buffer: Vec<u8>,
    churn: bool,
}

/// Serves until the process is killed; receives up to `buffer` bytes at once.
///
/// # Errors
/// epoll cannot be set up, or the kernel refuses to go on.
pub(crate) fn serve(listener: TcpListener, buffer: usize, churn: bool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut state = Loop {
        epoll: Epoll::new()?,
        connections: Vec::new(),
        protocol: Protocol::new(),
        buffer: vec![0; buffer],
        churn,
    };
    state.epoll.add(&listener, libc::EPOLLIN)?;
    let listening = listener.as_raw_fd() as usize;
    let mut events = Events::new();
    loop {
        state.epoll.wait(&mut events, -1)?;
        for (fd, ready) in events.iter() {
            if fd == listening {
                state.accept(&listener)?;
            } else if let Some(connection) = &mut state.connections[fd] {
                let next = connection.serve(&state.protocol, &mut state.buffer, churn);
                // The edge of an end that came with the last bytes is not reported again.
                if next == Next::Close || ready & libc::EPOLLRDHUP != 0 {
                    state.connections[fd] = None;
                }
            }
        }
    }
}

impl Loop {
    /// Accepts every connection that waits, and serves what each already has to say.
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        while let Some(stream) = socket::accept(listener)? {
            let matched = Matched::default();
            let mut connection = Connection { stream, matched };
            if connection.serve(&self.protocol, &mut self.buffer, self.churn) == Next::Open {
                let edges = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
                self.epoll.add(&connection.stream, edges)?;
                self.keep(connection);
            }
        }
        Ok(())
    }

    fn keep(&mut self, connection: Connection) {
        let fd = connection.stream.as_raw_fd() as usize;
        if fd >= self.connections.len() {
            self.connections.resize_with(fd + 1, || None);
        }
        self.connections[fd] = Some(connection);
    }
}

impl Connection {
    /// Receives until the socket is empty and answers every request that ended.
    fn serve(&mut self, protocol: &Protocol, buffer: &mut [u8], churn: bool) -> Next {
        loop {
            let len = match self.stream.read(buffer) {
                Ok(0) => return Next::Close,
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Open,
                Err(_) => return Next::Close,
            };
            let requests = protocol.count(&mut self.matched, &buffer[..len]);
            if requests > BATCH_MAX {
                return Next::Close;
            }
            if requests > 0 {
                // A client that lets its receive window fill up is not measured here: it is let go.
                let responses = protocol.responses(requests);
                let sent = self.stream.write(responses);
                if churn || sent.is_err() || sent.is_ok_and(|sent| sent < responses.len()) {
                    return Next::Close;
                }
            }
            if len < buffer.len() {
                return Next::Open;
            }
        }
    }
}
