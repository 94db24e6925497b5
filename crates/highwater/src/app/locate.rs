//! From a head as it was sent to the route that it takes, where the application replaces parts of heads.

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_core::http::Head;

use super::application::{App, Before};
use super::find::other_slash;
use super::rewrite_rules::{Failed, rewritten};
use super::routed::{NewTarget, Replaced, Routed};
use super::target::Target;

impl App {
    /// Whether it replaces parts of heads. If not, [`App::find`] is all there is to do.
    #[inline]
    pub(crate) fn replaces(&self) -> bool {
        self.shared.before.is_some()
    }

    /// The target of `head`, which `peer` has sent, and what is replaced in it. Called once for each request.
    #[inline(never)]
    pub(crate) fn locate(
        &self,
        head: &Head<'_>,
        peer: Option<SocketAddr>,
        routed: &mut Routed,
    ) -> Target {
        let Some(before) = &self.shared.before else { return self.find(head, &mut routed.params) };
        let mut replaced = Replaced::default();
        let target = self.look(before, head, &mut replaced, routed);
        if before.gives_ids
            && let Some(ids) = self.shared.scope(target).stack.request_ids()
        {
            replaced.id = Some(ids.choose(head, peer).into());
        }
        if replaced.panic.is_some() {
            let id = replaced.id.as_deref().map(str::as_bytes);
            self.report_panics(Some(target), id.or(head.request_id()));
        }
        let is_anything =
            replaced.target.is_some() || replaced.id.is_some() || replaced.panic.is_some();
        routed.replaced = is_anything.then(|| Arc::new(replaced));
        target
    }

    /// Finds the parameters once more, for a head that went to `found` with these parts replaced: its bytes have moved.
    #[inline(never)]
    pub(crate) fn locate_again(
        &self,
        head: &Head<'_>,
        found: Target,
        replaced: Option<Arc<Replaced>>,
        routed: &mut Routed,
    ) -> Target {
        match &replaced {
            Some(replaced) => self.find(&replaced.view(head), &mut routed.params),
            None => self.find(head, &mut routed.params),
        };
        routed.replaced = replaced;
        found
    }

    fn look(
        &self,
        before: &Before,
        head: &Head<'_>,
        replaced: &mut Replaced,
        routed: &mut Routed,
    ) -> Target {
        match rewritten(&before.rewrites, head) {
            None => self.find(head, &mut routed.params),
            Some(Ok(text)) => {
                replaced.target = Some(NewTarget {
                    text: text.into(),
                    sent: head.target().into(),
                    sent_path: head.path().into(),
                });
                let new = replaced.view(head);
                match self.find(&new, &mut routed.params) {
                    // The client cannot know the new path: it is sent to another one only if that leads there.
                    moved @ Target::Moved(_) if !leads_beside(before, head, &new) => {
                        let beside = self.shared.find_beside(&new, &mut routed.params);
                        beside.unwrap_or(moved)
                    }
                    target => target,
                }
            }
            Some(Err(failed)) => {
                if let Failed::Panicked(panic) = failed {
                    replaced.panic = Some(panic);
                }
                Target::Unrewritten
            }
        }
    }
}

/// Whether the path of `sent`, with another slash at its end, becomes that of `new` with another slash at its end.
fn leads_beside(before: &Before, sent: &Head<'_>, new: &Head<'_>) -> bool {
    let Some(mut target) = other_slash(sent.path()) else { return false };
    if let Some(query) = sent.query() {
        target.push('?');
        target.push_str(query);
    }
    let beside = sent.with_target(&target);
    match beside.as_ref().map(|beside| rewritten(&before.rewrites, beside)) {
        Some(Some(Ok(target))) => {
            let path = target.split('?').next();
            path.is_some() && path == other_slash(new.path()).as_deref()
        }
        _ => false,
    }
}
