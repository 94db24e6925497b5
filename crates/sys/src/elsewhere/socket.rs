//! Why accepting stops, as these systems number their errors.

use highwater_core::driver::AcceptError;

/// Why accepting has to stop, or `None` if only the connection being accepted failed.
pub(crate) fn accept_failure(number: i32) -> Option<AcceptError> {
    match number {
        DESCRIPTORS | DESCRIPTORS_OF_ALL => Some(AcceptError::Descriptors),
        MEMORY | BUFFERS => Some(AcceptError::Memory),
        // The others are errors of the new connection, which is gone.
        _ => None,
    }
}

/// EMFILE, ENFILE, ENOMEM, ENOBUFS.
#[cfg(unix)]
const DESCRIPTORS: i32 = libc::EMFILE;
#[cfg(unix)]
const DESCRIPTORS_OF_ALL: i32 = libc::ENFILE;
#[cfg(unix)]
const MEMORY: i32 = libc::ENOMEM;
#[cfg(unix)]
const BUFFERS: i32 = libc::ENOBUFS;

/// WSAEMFILE, ERROR_TOO_MANY_OPEN_FILES, ERROR_NOT_ENOUGH_MEMORY, WSAENOBUFS.
#[cfg(not(unix))]
const DESCRIPTORS: i32 = 10_024;
#[cfg(not(unix))]
const DESCRIPTORS_OF_ALL: i32 = 4;
#[cfg(not(unix))]
const MEMORY: i32 = 8;
#[cfg(not(unix))]
const BUFFERS: i32 = 10_055;
