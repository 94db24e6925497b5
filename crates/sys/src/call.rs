//! Converts the result of a system call: a negative result means that `errno` has the cause.

use std::ffi::c_int;
use std::io;

/// The result of a system call that reports failure as −1.
#[inline]
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a size.
#[inline]
pub(crate) fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The same error, with the name of the failed operation in front.
pub(crate) fn context(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
