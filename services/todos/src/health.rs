//! Which part of the service is away?
//!
//! Each part that can be away says so here, as it finds out while it works; `/ready` only reads. So asking
//! whether the service is ready costs nothing and waits for nobody.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A part of the service, and whether it is there. Clones speak of the same part.
#[derive(Clone)]
pub struct Part {
    name: &'static str,
    away: Arc<Mutex<Option<String>>>,
}

impl Part {
    /// A part that is there, until it is said to be away.
    pub fn new(name: &'static str) -> Part {
        Part { name, away: Arc::default() }
    }

    /// What `/ready` calls it: `store`, `queue`, `cache`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// It does its work.
    pub fn is_up(&self) {
        *self.lock() = None;
    }

    /// It does not, and why.
    pub fn is_away(&self, reason: impl Into<String>) {
        *self.lock() = Some(reason.into());
    }

    /// Why it is away, if it is.
    pub fn away(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({}: {:?})", self.name, self.away())
    }
}
