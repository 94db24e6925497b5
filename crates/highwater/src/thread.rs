//! How does a thread of ours begin?

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread was started here.
pub(crate) fn is_ours() -> bool {
    IS_OURS.try_with(Cell::get).unwrap_or(false)
}

/// Starts a thread, of whose name Linux keeps 15 bytes.
///
/// The body is in a box because the standard library's part would otherwise be compiled once for each body.
///
/// # Errors
/// The system cannot start another thread.
pub(crate) fn start(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        IS_OURS.set(true);
        body();
    })
}
