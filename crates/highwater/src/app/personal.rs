//! Is an answer made for one client alone?
//!
//! A layer that gives the answer of one request to others attaches a [`Personal`] to it; when a request gives a handler data of
//! a single client, this is noted ([`Personal::note`]). That also works if an outer layer sets the fields of the answer that
//! would show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;
use tokio::time::Instant;

/// Whether something of its client's own was taken out of a request.
#[derive(Clone, Debug)]
pub(crate) struct Personal {
    is_noted: Arc<AtomicBool>,
    /// When the watching began: the answer is at least as old.
    pub(crate) since: Instant,
}

impl Personal {
    /// Begins now.
    pub(crate) fn new() -> Personal {
        Personal { is_noted: Arc::default(), since: Instant::now() }
    }

    /// Notes it, if a layer watches the request with these extensions.
    pub(super) fn note(extensions: &Extensions) {
        if let Some(Personal { is_noted, .. }) = extensions.get() {
            is_noted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was noted.
    pub(crate) fn is_set(&self) -> bool {
        self.is_noted.load(Ordering::Relaxed)
    }
}
