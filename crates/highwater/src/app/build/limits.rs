//! Which limit covers a route: its own, or that of its group?

use std::sync::Arc;

use super::Build;
use crate::admission::route_limit::{Concurrency, RouteLimit};
use crate::app::handler::Kind;
use crate::app::route::Route;
use crate::app::target::ScopeId;

impl Build {
    /// A limit within `outer`; an automatic one appears in metrics as `name`.
    pub(super) fn limit(
        &mut self,
        name: String,
        concurrency: Concurrency,
        outer: Option<Arc<RouteLimit>>,
    ) -> Arc<RouteLimit> {
        let limit = RouteLimit::new(concurrency, outer);
        if concurrency == Concurrency::Auto {
            self.found_limits.push((name, Arc::clone(&limit)));
        }
        limit
    }

    /// The limit that covers a route: its own, within that of its group, or the group's. Copies of a fallback count together,
    /// each within its own group.
    pub(super) fn limit_of(&mut self, route: &Route, scope: ScopeId) -> Option<Arc<RouteLimit>> {
        let options = &route.description.options;
        let is_counted = route.description.kind != Kind::Fixed && !options.is_never_shed;
        let group = self.scopes[usize::from(scope)].concurrency.clone().filter(|_| is_counted);
        match options.concurrency {
            None => group,
            Some(own) => Some(match route.limit.get() {
                Some(limit) => limit.within(group),
                None => {
                    let name = options.name.as_deref().unwrap_or(&route.path).to_owned();
                    let limit = self.limit(name, own, group);
                    route.limit.get_or_init(|| limit).clone()
                }
            }),
        }
    }
}
