//! The mistakes in an application, and what to write instead.

#[cfg(feature = "json")]
use std::collections::HashMap;
use std::time::Duration;

#[cfg(feature = "json")]
use highwater_core::route;

use super::Build;
use crate::admission::route_limit::Concurrency;
#[cfg(feature = "json")]
use crate::app::application::Methods;
use crate::app::route::Route;
use crate::app::router::Router;
use crate::app::target::ScopeId;

impl Build {
    /// Checks what only some routers may have.
    pub(super) fn check_nested(&mut self, below: &str, router: &Router) {
        if router.trailing_slash.is_some() {
            self.problems.push(format!(
                "nest(\"{below}\"): `trailing_slash` is for the whole application; give it to the outermost router"
            ));
        }
        if let Some(rule) = router.rewrites.first() {
            self.problems.push(format!(
                "nest(\"{below}\"): a rewrite ({rule:?}) comes before any route is found, so it is for the whole \
                 application; give it to the outermost router"
            ));
        }
        if below.is_empty() && router.fallback.is_some() {
            self.problems.push(String::from(
                "merge: there is one fallback below each prefix, and that of a merged router would never be used; \
                 give it to the router that it is merged into",
            ));
        }
    }

    /// Whether `below` can be a prefix.
    pub(super) fn check_prefix(&mut self, call: &str, below: &str) -> bool {
        let is_one = below.is_empty() || below.starts_with('/') && !below.ends_with('/');
        if !is_one {
            let instead =
                if call == "nest" { ", or use `merge` to add routes without a prefix" } else { "" };
            self.problems.push(format!(
                "{call}(\"{below}\"): a prefix begins with a slash and does not end with one; \
                 write `/{}`{instead}",
                below.trim_matches('/')
            ));
        }
        is_one
    }

    pub(super) fn check_timeout(&mut self, place: &str, timeout: Option<Duration>) {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.problems.push(format!(
                "{place}: timeout(0) would refuse every request that waits; write a longer time, or leave it out"
            ));
        }
    }

    /// Checks that the values per worker that handlers take are provided.
    pub(super) fn check_worker_locals(&mut self) {
        for (route, _) in &self.endpoints {
            for (id, name) in &route.description.requirements.worker_locals {
                if !self.worker_locals.iter().any(|given| given.id == *id) {
                    self.problems.push(format!(
                        "{} {}: its handler takes a value per worker of type `{name}`, and there is none; \
                         add `.per_worker(…)` with one to a router",
                        route.methods_text(),
                        route.path
                    ));
                }
            }
        }
    }

    /// Checks that routes have the parameters that their handlers take.
    #[cfg(feature = "json")]
    pub(super) fn check_paths(
        &mut self,
        paths: &route::Router<Methods>,
        route_of: &HashMap<String, route::RouteId>,
    ) {
        for (route, _) in &self.endpoints {
            // A pattern that could not be added has already been reported.
            let Some(id) = route_of.get(&route.path).filter(|_| !route.is_fallback) else {
                continue;
            };
            let names = paths.param_names(*id);
            for check in &route.description.requirements.paths {
                if let Some(problem) = check.problem(&route.path, names) {
                    self.problems.push(format!(
                        "{} {}: {problem}",
                        route.methods_text(),
                        route.path
                    ));
                }
            }
        }
    }

    /// Checks that everything a handler needs is provided.
    pub(super) fn check_route(&mut self, route: &Route, scope: ScopeId) {
        let place = format!("{} {}", route.methods_text(), route.path);
        let description = &route.description;
        let states = &self.states[usize::from(scope)];
        for (id, name) in &description.requirements.states {
            if !states.iter().any(|(given, _)| given == id) {
                self.problems.push(format!(
                    "{place}: its handler takes a state of type `{name}`, and there is none; \
                     add `.state(…)` with one to this router or one around it"
                ));
            }
        }
        let has_ids = self.scopes[usize::from(scope)].stack.request_ids().is_some();
        if description.requirements.id && !has_ids {
            self.problems.push(format!(
                "{place}: its handler takes the id of a request, and no layer gives it one; add \
                 `.layer(layers::request_id())` to this router or one around it"
            ));
        }
        if let [(first, _), (second, _), ..] = description.bodies[..] {
            self.problems.push(format!(
                "{place}: both `{first}` and `{second}` take the body, which is there only once; \
                 take it in one argument"
            ));
        }
        if let Some(concurrency) = description.options.concurrency {
            self.check_concurrency(&place, concurrency);
        }
        self.check_timeout(&place, description.options.timeout);
        let own = description.problems.iter().map(|problem| format!("{place}: {problem}"));
        self.problems.extend(own);
        if route.methods.as_ref().is_some_and(Vec::is_empty) {
            self.problems.push(format!("{}: it is routed for no method at all", route.path));
        }
    }

    pub(super) fn check_concurrency(&mut self, place: &str, concurrency: Concurrency) {
        if concurrency == Concurrency::Fixed(0) {
            self.problems.push(format!(
                "{place}: concurrency_limit(0) would refuse every request; write 1 or more"
            ));
        }
    }
}
