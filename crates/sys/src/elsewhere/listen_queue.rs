//! How many connections wait at a listening socket? Only Linux tells.

/// The connections that wait at a listener to be accepted. Nothing is known of them here.
#[derive(Clone, Copy, Debug)]
pub struct ListenQueue(pub(crate) ());

impl ListenQueue {
    /// How many attempts to connect found no room: not known.
    pub fn overflows(&self) -> Option<u32> {
        None
    }

    /// How many wait now: not known.
    pub fn waiting(&self) -> Option<u32> {
        None
    }
}
