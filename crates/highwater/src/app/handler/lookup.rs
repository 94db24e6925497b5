//! Handlers that answer at once if they can, and otherwise look the answer up on the pool.

use std::sync::Arc;

use super::{Description, Handler, Kind};
use crate::app::finisher::{ResponseFinisher, guarded};
use crate::app::job::Job;
use crate::app::outcome::Outcome;
use crate::app::request::Request;
use crate::app::response::Response;

/// What a request asks for may be known, or has to be looked up by calls that may block.
pub(crate) trait Lookup: Send + Sync + 'static {
    /// The answer, on the worker; `None` if it has to be looked up.
    fn known(&self, request: &Request<'_>) -> Option<Response>;

    /// The answer, on the pool.
    fn look_up(&self, request: &Request<'_>) -> Response;

    /// What is wrong with its set-up, when the application is built.
    fn problems(&self) -> Vec<String>;
}

/// A [`Lookup`] as a handler.
pub(crate) struct LookedUp<L>(pub(crate) Arc<L>);

impl<L> Clone for LookedUp<L> {
    fn clone(&self) -> Self {
        LookedUp(Arc::clone(&self.0))
    }
}

/// Marks [`LookedUp`] as a handler.
pub(crate) struct ViaLookup;

impl<L: Lookup> Handler<ViaLookup> for LookedUp<L> {
    fn describe(&self, description: &mut Description) {
        description.kind = Kind::Blocking;
        #[cfg(feature = "openapi")]
        {
            description.documentation = crate::app::described::Documentation::Hidden;
        }
        description.problems.extend(self.0.problems());
    }

    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        if let Some(response) = self.0.known(request) {
            return Outcome::Ready(response);
        }
        let (lookup, kept) = (Arc::clone(&self.0), request.keep());
        let finisher = ResponseFinisher::of(request);
        Outcome::Offload(Job::new(move || finisher.finish(guarded(|| lookup.look_up(&kept)))))
    }
}
