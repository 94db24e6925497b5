//! Where are a request's path parameters, and which parts of its head has the server replaced?
//!
//! Hardly any request has replaced parts: those of applications that rewrite paths, or give each request an id. The
//! worker makes a view of the head that shows them, and everything from there on sees that: routing, handlers,
//! layers, the log.

use std::sync::Arc;

use highwater_core::http::Head;
use highwater_core::route;

use super::guard::Panic;

/// A request's path parameters, and the replaced parts of its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routed {
    /// Where the parameters are, in the path that the route was found by.
    pub(crate) params: route::Params,
    pub(crate) replaced: Option<Arc<Replaced>>,
}

/// The parts of a head that the server has replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    pub(super) target: Option<NewTarget>,
    pub(super) id: Option<Box<str>>,
    /// What a rewrite has done instead of giving a path.
    pub(super) panic: Option<Panic>,
}

/// A target in place of the one that was sent.
#[derive(Clone, Debug)]
pub(super) struct NewTarget {
    pub(super) text: Box<str>,
    /// The target, and its path, as they were sent.
    pub(super) sent: Box<str>,
    pub(super) sent_path: Box<str>,
}

impl Routed {
    /// The head as it is seen from here on: `head` itself, or the view of it in `seen`.
    #[inline]
    pub(crate) fn view<'v>(
        &'v self,
        head: &'v Head<'v>,
        seen: &'v mut Option<Head<'v>>,
    ) -> &'v Head<'v> {
        match &self.replaced {
            None => head,
            Some(replaced) => seen.insert(replaced.view(head)),
        }
    }
}

impl Replaced {
    /// `head`, with these parts in place of its own.
    #[inline(never)]
    pub(super) fn view<'v>(&'v self, head: &Head<'v>) -> Head<'v> {
        let new = self.target.as_ref().and_then(|target| head.with_target(&target.text));
        let head = new.unwrap_or(*head);
        self.id.as_deref().map_or(head, |id| head.with_id(id))
    }
}
