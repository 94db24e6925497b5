//! How many workers should this process start? Threads are not pinned here: the system moves them as it likes.

use std::io;

use super::needs_linux;

/// How many workers to start by default: the cores that the system reports. At least 1.
pub fn suggested_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores this thread may run on.
///
/// # Errors
/// Always: they are known only on Linux.
pub fn allowed() -> io::Result<Vec<usize>> {
    Err(needs_linux("to know the cores of a process"))
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// Always.
pub fn pin_thread(_: usize) -> io::Result<()> {
    Err(needs_linux("to keep a thread on a core"))
}

/// Keeps the calling thread on these cores.
///
/// # Errors
/// Always.
pub fn pin_thread_to(_: &[usize]) -> io::Result<()> {
    Err(needs_linux("to keep a thread on cores"))
}
