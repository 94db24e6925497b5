//! The application's part in admission: a request's priority, its route's rules, and the response of a
//! refusal.

use highwater_core::http::Head;
use highwater_core::time::Instant;

use super::application::App;
use super::prepared::FixedResponse;
use super::target::Target;
use crate::admission::priority::Priority;
use crate::admission::worker::Rules;

impl App {
    /// Whether the target is always served.
    #[inline]
    pub(crate) fn is_never_shed(&self, target: Target) -> bool {
        self.shared.endpoint(target).is_some_and(|endpoint| endpoint.is_never_shed)
    }

    /// The request's priority.
    pub(crate) fn priority(&self, target: Target, head: &Head<'_>) -> Priority {
        let field = self.shared.priority_field.as_deref();
        let requested = field.and_then(|field| Priority::of_field(head, field));
        let routed = || self.shared.endpoint(target).map(|endpoint| endpoint.priority);
        requested.or_else(routed).unwrap_or_default()
    }

    /// Whether the target has a limit of its own.
    #[inline]
    pub(crate) fn is_limited(&self, target: Target) -> bool {
        self.shared.has_limits
            && self.shared.endpoint(target).is_some_and(|endpoint| endpoint.concurrency.is_some())
    }

    /// The admission rules of the target's route, at `now` by the clock that the workers share.
    pub(crate) fn rules(&self, target: Target, now: Instant) -> Rules<'_> {
        match self.shared.endpoint(target) {
            Some(endpoint) => {
                let (is_never_shed, limit) =
                    (endpoint.is_never_shed, endpoint.concurrency.as_ref());
                Rules { is_never_shed, limit, now }
            }
            None => Rules { is_never_shed: false, limit: None, now },
        }
    }

    /// Called when a worker's turn ends, with the time by the clock that the workers share: automatic limits may change.
    #[inline(always)]
    pub(crate) fn on_turn(&self, now: Instant) {
        for (_, limit) in &self.shared.found_limits {
            limit.on_turn(now);
        }
    }

    /// A worker was kept from running: what its automatic limits have measured since the last sample is not what the
    /// back end did.
    #[cold]
    pub(crate) fn forget_samples(&self) {
        for (_, limit) in &self.shared.found_limits {
            limit.forget_sample();
        }
    }

    /// Refusal number `n`, in the shape of the target's errors.
    pub(crate) fn refusal(&self, target: Target, n: u32) -> &FixedResponse {
        self.shared.refusals[usize::from(self.shared.facts.scope_id(target))].get(n)
    }
}
