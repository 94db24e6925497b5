//! What bounds all connections of a server together, beside their number: see `memory.rs` and `crowd.rs`.

use super::memory::BodyMemory;

/// The bounds that a worker shares with others, or that are its own policy. By default there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Memory for the bodies of requests.
    pub(crate) body_memory: BodyMemory,
    /// Whoever comes when there is no room takes the place of whoever came first.
    pub(crate) newest_win: bool,
}
