//! The fallback of a nested router, where an outer router has a route for everything.

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
            for end in ["", "/", "/{*rest}"] {
                let pattern = format!("{prefix}{end}");
                let shape = shape(&pattern);
                if !self.paths.iter().any(|path| self::shape(&path.pattern) == shape) {
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

/// A pattern without the names of its parameters: two patterns of one shape match the same paths.
fn shape(pattern: &str) -> String {
    let mut is_name = false;
    let in_shape = |letter: &char| {
        is_name = is_name && *letter != '}' || *letter == '{';
        !is_name || matches!(letter, '{' | '*')
    };
    pattern.chars().filter(in_shape).collect()
}
