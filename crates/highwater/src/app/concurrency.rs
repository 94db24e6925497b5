//! How many requests of one route are being answered at once?
//!
//! Counted over all workers, by whoever is being answered: a permit is given back when the response's
//! head is made, or when the work on it is dropped. Routes without a limit never come here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use highwater_core::time::Instant;

use super::dispatch::Outcome;
use super::guard::{GuardedFuture, Job};
use super::scarcity::Scarcity;

/// A route's limit, and how many hold a permit.
#[derive(Debug)]
pub(super) struct Concurrency {
    held: AtomicU32,
    max: u32,
    /// Who was refused lately.
    pub(super) scarcity: Scarcity,
}

/// Leave to answer one request. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Concurrency>);

impl Concurrency {
    pub(super) fn new(max: u32) -> Arc<Self> {
        Arc::new(Concurrency { held: AtomicU32::new(0), max, scarcity: Scarcity::default() })
    }

    /// A permit, if there is one left; if not, whoever holds one learns that others want it.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Option<Permit> {
        let below = |held: u32| (held < self.max).then_some(held + 1);
        if self.held.fetch_update(Relaxed, Relaxed, below).is_err() {
            self.scarcity.note(now);
            return None;
        }
        Some(Permit(Arc::clone(self)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Relaxed);
    }
}

impl Permit {
    /// Keeps the permit until `outcome` is a response.
    pub(crate) fn hold_for(self, outcome: Outcome<'_>) -> Outcome<'_> {
        match outcome {
            Outcome::Later(future) => Outcome::Later(GuardedFuture::new(async move {
                let _permit = self;
                future.into_inner().await
            })),
            Outcome::Offload(job) => Outcome::Offload(Job::new(move || {
                let _permit = self;
                job.into_inner()()
            })),
            at_once => at_once,
        }
    }
}
