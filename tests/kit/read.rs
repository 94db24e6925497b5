//! Reading from a socket with a timeout.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

/// Reads what there is, and reads again if a signal interrupted that: the kernel does not where there is a timeout, and another
/// test of the process may have caused the signal.
///
/// # Errors
/// Those of the source, but [`ErrorKind::Interrupted`].
pub fn read_some(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    uninterrupted(|| source.read(into))
}

/// Waits until there is something to read, or the end. Nothing is read.
///
/// # Errors
/// As [`read_some`].
pub fn until_readable(stream: &TcpStream) -> io::Result<()> {
    uninterrupted(|| stream.peek(&mut [0])).map(drop)
}

fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
