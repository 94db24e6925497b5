//! How does a thread of ours begin?

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::logging::log_panics_here;

/// Starts a thread, of whose name Linux keeps 15 bytes.
///
/// The body is in a box because the standard library's part would otherwise be compiled once for each body.
///
/// # Errors
/// The system cannot start another thread.
pub(crate) fn start(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        log_panics_here();
        body();
    })
}
