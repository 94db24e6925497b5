//! What a worker asks about a request before it is served: how important is it, may it be served at
//! all, and what is it told if not?

use highwater_core::http1::Head;
use highwater_core::time::Instant;

use super::concurrency::Permit;
use super::dispatch::{App, Target};
use super::fixed::FixedResponse;
use super::priority::Priority;

impl App {
    /// Whether the target is served whatever happens.
    #[inline]
    pub(crate) fn is_vital(&self, target: Target) -> bool {
        self.shared.endpoint(target).is_some_and(|endpoint| endpoint.is_vital)
    }

    /// How important the request is.
    pub(crate) fn priority(&self, target: Target, head: &Head<'_>) -> Priority {
        let field = self.shared.priority_field.as_deref();
        let said = field.and_then(|field| Priority::of_field(head, field));
        let routed = || self.shared.endpoint(target).map(|endpoint| endpoint.priority);
        said.or_else(routed).unwrap_or_default()
    }

    /// Whether the target has a limit of its own.
    #[inline]
    pub(crate) fn is_limited(&self, target: Target) -> bool {
        self.shared.has_limits
            && self.shared.endpoint(target).is_some_and(|endpoint| endpoint.concurrency.is_some())
    }

    /// A permit for one more request to the target; `None` if it is at its limit. Only for targets that
    /// have one.
    pub(crate) fn enter(&self, target: Target, now: Instant) -> Option<Permit> {
        let limited =
            self.shared.endpoint(target).and_then(|endpoint| endpoint.concurrency.as_ref());
        limited.expect("it was asked whether there is a limit").enter(now)
    }

    /// How much faster than at other times an upload to the target must be to keep its place there; 0 if
    /// nobody else wants it.
    pub(crate) fn scarcity(&self, target: Target, now: Instant) -> u32 {
        let limited =
            self.shared.endpoint(target).and_then(|endpoint| endpoint.concurrency.as_ref());
        limited.map_or(0, |concurrency| concurrency.scarcity.factor(now))
    }

    /// Refusal number `n`, in the shape of the target's errors.
    pub(crate) fn refusal(&self, target: Target, n: u32) -> &FixedResponse {
        self.shared.refusals[usize::from(self.shared.scope_id(target))].get(n)
    }
}
