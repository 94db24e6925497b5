//! The fallback of a nested router, where an outer router has a route for everything.

use highwater_core::route::{InsertErrorKind, Router};

use super::Build;
use crate::app::path_routes::PathRoutes;

impl Build {
    /// A route such as `/{*path}` of an outer router, for files or a service, would also take every path below a nested router
    /// with a fallback of its own. So this fallback gets routes, which are more specific.
    pub(super) fn route_fallbacks(&mut self) {
        for (prefix, scope) in std::mem::take(&mut self.own_fallbacks) {
            let Some(endpoint) = self.fallbacks[usize::from(scope)] else { continue };
            if !self.paths.iter().any(|path| takes_all(&path.pattern, &prefix)) {
                continue;
            }
            let mut known = Router::new();
            for path in &self.paths {
                let _ = known.insert(&path.pattern, ()); // One that is wrong is reported with the others.
            }
            for end in ["", "/", "/{*rest}"] {
                let pattern = format!("{prefix}{end}");
                let has_route = known
                    .insert(&pattern, ())
                    .is_err_and(|error| matches!(error.kind(), InsertErrorKind::Conflict { .. }));
                if !has_route {
                    let any = Some(endpoint);
                    self.paths.push(PathRoutes { pattern, scope, by_method: Vec::new(), any });
                }
            }
        }
    }
}

/// Whether a pattern matches every path below `prefix`, and others.
fn takes_all(pattern: &str, prefix: &str) -> bool {
    let Some((outer, _)) = pattern.rsplit_once("/{*") else { return false };
    let is_like = |(a, b): (&str, &str)| a == b || a.contains('{') || b.contains('{');
    outer.split('/').count() < prefix.split('/').count()
        && outer.split('/').zip(prefix.split('/')).all(is_like)
}
