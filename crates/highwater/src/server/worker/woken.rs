//! Is a task in the mail already?
//!
//! A task that is woken a thousand times before its worker polls it is polled once: only the first
//! wake-up puts it into the mail.
//!
//! ```text
//!               wake: put it into the mail
//!        IDLE ─────────────────────────────▶ WOKEN ◀─┐
//!          ▲                                   │  └──┘ wake: nothing to do
//!          └───────────────────────────────────┘
//!                begin, just before it is polled
//! ```
//!
//! The flag is cleared before the poll, not after it. So if a wake-up comes during the poll, either the poll sees its
//! cause, or the task is in the mail again. Both steps read and write the flag at once, so all threads agree on their
//! order.

use std::sync::atomic::Ordering::AcqRel;

use super::sync::AtomicBool;

/// Whether one task is in the mail.
#[derive(Debug)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    /// Not in the mail.
    pub(crate) fn new() -> Self {
        Woken(AtomicBool::new(false))
    }

    /// The task is woken. Returns whether the caller must put it into the mail.
    pub(crate) fn wake(&self) -> bool {
        !self.0.swap(true, AcqRel)
    }

    /// The task was taken out of the mail and is polled next.
    pub(crate) fn begin(&self) {
        self.0.swap(false, AcqRel);
    }
}
