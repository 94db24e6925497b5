//! The blocking floor: a thread for each connection, which waits in `read`. What a server was before there was epoll,
//! and what many still are: the kernel's scheduler is the event loop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::protocol::{BATCH_MAX, Matched, Protocol};

/// A thread that only reads and writes needs little; the default of 2 MiB would be address space for nothing.
const STACK_SIZE: usize = 64 * 1024;

/// Serves until the process is killed; receives up to `buffer` bytes at once.
///
/// # Errors
/// No thread can be started.
pub(crate) fn serve(listener: TcpListener, buffer: usize, churn: bool) -> io::Result<()> {
    let protocol: &'static Protocol = Box::leak(Box::new(Protocol::new()));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The client has gone again.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        std::thread::Builder::new()
            .stack_size(STACK_SIZE)
            .spawn(move || talk(stream, protocol, buffer, churn))?;
    }
}

/// Answers one connection until it ends.
fn talk(mut stream: TcpStream, protocol: &Protocol, buffer: usize, churn: bool) {
    let (mut matched, mut buffer) = (Matched::default(), vec![0; buffer]);
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        let requests = protocol.count(&mut matched, &buffer[..len]);
        if requests > BATCH_MAX || stream.write_all(protocol.responses(requests)).is_err() {
            return;
        }
        if churn && requests > 0 {
            return;
        }
    }
}
