//! The health of the service's parts.
//!
//! Each part that can become unavailable reports that here as it finds out; `/ready` only reads. So a readiness check
//! costs nothing and never waits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A part of the service, and whether it is available. Clones share the state.
#[derive(Clone)]
pub struct Part {
    name: &'static str,
    down: Arc<Mutex<Option<String>>>,
}

impl Part {
    /// A part that is available until marked otherwise.
    pub fn new(name: &'static str) -> Part {
        Part { name, down: Arc::default() }
    }

    /// Its name in `/ready`: `store`, `queue`, `reader`, `cache`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Marks it available.
    pub fn is_up(&self) {
        *self.lock() = None;
    }

    /// Marks it unavailable, with the reason.
    pub fn is_down(&self, reason: impl Into<String>) {
        *self.lock() = Some(reason.into());
    }

    /// Why it is unavailable, if it is.
    pub fn down(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({}: {:?})", self.name, self.down())
    }
}
