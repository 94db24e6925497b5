//! Unix sockets, which a server listens on under Linux only.

use std::io;
use std::path::Path;

use super::needs_linux;
use crate::Listener;

/// The file of a Unix socket on which this process listens. There is none here.
#[derive(Debug)]
pub enum SocketFile {}

/// Listens on nothing.
///
/// # Errors
/// Always; it names the path and what to do.
pub fn bind_unix(path: &Path, _: Option<u32>, _: u32) -> io::Result<(Listener, SocketFile)> {
    let error = needs_linux("a Unix socket");
    let path = path.display();
    let text =
        format!("cannot listen on unix:{path}: {error}; use an IP address, such as 127.0.0.1:8080");
    Err(io::Error::new(error.kind(), text))
}
