//! Which driver works here? The portable one: the others are Linux's.

use super::needs_linux;

/// The result of [`probe`].
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Whether the io_uring driver works: not here, and why.
    pub uring: Result<(), String>,
    /// The name of the system.
    pub kernel: String,
}

/// What works here.
pub fn probe() -> Capabilities {
    Capabilities {
        uring: Err(needs_linux("io_uring").to_string()),
        kernel: std::env::consts::OS.to_owned(),
    }
}
