//! Converts the result of a system call: a negative result means that `errno` has the cause.

use std::ffi::c_int;
use std::fmt;
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
    io::Error::new(error.kind(), Context { what: what.to_owned(), error })
}

/// The number that the system gave this error, whatever was put in front of it.
pub(crate) fn number(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| number(&error.get_ref()?.downcast_ref::<Context>()?.error))
}

#[derive(Debug)]
struct Context {
    what: String,
    error: io::Error,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

// The text has all of it, so there is no `source`.
impl std::error::Error for Context {}
