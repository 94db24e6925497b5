//! Reading from a socket with a timeout.

use std::io::{self, ErrorKind, Read};

/// Reads what there is, and reads again if a signal interrupted that: the kernel does not where there is a timeout, and another
/// test of the process may have caused the signal.
///
/// # Errors
/// Those of the source, but [`ErrorKind::Interrupted`].
pub fn read_some(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
