//! Is an answer made for one client alone?
//!
//! A layer that gives the answer of one request to others asks ([`Personal::watch`]); extractors that hand out what belongs to one
//! client say so ([`Personal::note`]). That works where fields of the answer cannot tell, since a layer further out sets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::request::Request;

/// Whether something of its client's own was taken out of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Personal(Arc<AtomicBool>);

impl Personal {
    /// Begins to watch, before handlers and inner layers see the request.
    pub(crate) fn watch(request: &Request<'_>) -> Personal {
        request.extension().unwrap_or_else(|| {
            let personal = Personal::default();
            request.insert(personal.clone());
            personal
        })
    }

    /// Says so, if a layer watches.
    pub(crate) fn note(request: &Request<'_>) {
        if let Some(Personal(is_noted)) = request.extension() {
            is_noted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was said about a request that is watched.
    pub(crate) fn is_noted(request: &Request<'_>) -> bool {
        request.extension::<Personal>().is_some_and(|personal| personal.is_set())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
