//! How many descriptors may this process have, and how much freed memory does its allocator keep? The system is not asked:
//! without `unsafe`, the standard library cannot.

use std::io;

/// How many sockets and files this process may open, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The limit in force.
    pub soft: u64,
    /// The highest soft limit that the process may set without a privilege.
    pub hard: u64,
}

/// Enough for development. If the system allows fewer (macOS: 256, unless `ulimit -n` says otherwise), accepting stops
/// when it says so, and goes on when a connection has ended.
const ASSUMED: u64 = 4096;

/// The limit that is assumed.
///
/// # Errors
/// None.
pub fn descriptors() -> io::Result<DescriptorLimit> {
    Ok(DescriptorLimit { soft: ASSUMED, hard: ASSUMED })
}

/// Nothing is known that helps.
pub fn start_remedy(_error: &io::Error) -> &'static str {
    ""
}

/// Changes nothing. Returns the limit that is assumed.
///
/// # Errors
/// None.
pub fn raise_descriptors() -> io::Result<DescriptorLimit> {
    descriptors()
}

/// Changes nothing: the allocator keeps what it keeps.
pub fn keep_freed_memory() {}
