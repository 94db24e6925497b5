//! Builds an application from its description: nested routers become one table, with the layers of each, and
//! all errors are collected.

mod check;
#[cfg(feature = "openapi")]
mod document;
mod fallbacks;
mod finish;
mod limits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::route;

use crate::admission::route_limit::RouteLimit;
use crate::app::application::App;
use crate::app::build_error::BuildError;
use crate::app::client_keys::ClientKeys;
use crate::app::facts::States;
use crate::app::path_routes::PathRoutes;
use crate::app::rewrite_rules::{Rewrite, checked};
use crate::app::route::{Fallback, Route};
use crate::app::router::{GivenState, Router};
use crate::app::scope::Scope;
use crate::app::target::ScopeId;
use crate::app::trailing_slash::TrailingSlash;
use crate::app::worker_local::GivenLocal;

/// The most endpoints, paths and nested routers that an application can have, of each: their indices fit in
/// 16 bits, so that a target is small.
const COUNT_MAX: usize = u16::MAX as usize;

impl Router {
    /// Builds the application.
    ///
    /// # Errors
    /// All problems that were found: malformed and conflicting paths, methods routed twice, states that
    /// handlers need and no router provides, bodies taken twice, layers that were set up wrongly.
    pub fn build(mut self) -> Result<App, BuildError> {
        let priority_field = self.priority_field.as_deref().map(Box::from);
        let clients = self.clients.take();
        let mut build = Build { priority_field, clients, ..Build::default() };
        build.trailing_slash = self.trailing_slash.unwrap_or_default();
        (build.rewrites, build.problems) = checked(std::mem::take(&mut self.rewrites));
        build.add_router(self, "", &Around::default());
        build.finish()
    }
}

#[derive(Default)]
struct Build {
    /// The index of each pattern in `paths`, in the order of registration.
    places: HashMap<String, usize>,
    paths: Vec<PathRoutes>,
    prefixes: route::Router<ScopeId>,
    scopes: Vec<Scope>,
    /// By scope.
    states: Vec<States>,
    endpoints: Vec<(Route, ScopeId)>,
    /// By scope.
    fallbacks: Vec<Option<u16>>,
    /// The prefixes of nested routers that have a fallback of their own.
    own_fallbacks: Vec<(String, ScopeId)>,
    trailing_slash: TrailingSlash,
    rewrites: Vec<Rewrite>,
    wants_peer: bool,
    wants_runtime: bool,
    priority_field: Option<Box<str>>,
    clients: Option<Box<ClientKeys>>,
    found_limits: Vec<(String, Arc<RouteLimit>)>,
    worker_locals: Vec<GivenLocal>,
    #[cfg(feature = "openapi")]
    documents: Vec<crate::app::openapi::Document>,
    documentation: Option<String>,
    problems: Vec<String>,
}

/// What a router gives to those within it.
#[derive(Clone, Default)]
struct Around {
    scope: Scope,
    states: States,
    fallback: Option<Fallback>,
    timeout: Option<Duration>,
}

impl Build {
    /// Adds a router below `prefix`, within those `around` it.
    fn add_router(&mut self, router: Router, prefix: &str, around: &Around) {
        self.wants_peer |= router.wants_peer;
        self.wants_runtime |= router.wants_runtime;
        self.add_worker_locals(router.worker_locals);
        #[cfg(feature = "openapi")]
        let (openapi, renders) = (router.openapi, router.renders);
        let Router { routes, nested, states, layers, fallbacks, .. } = router;
        let (renderer, concurrency) = (router.renderer, router.concurrency);
        let Around { scope: outer, states: known, .. } = around;
        let (mut scope, mut known) = (outer.clone(), known.clone());
        let place = if prefix.is_empty() { "/" } else { prefix };
        if let Some(concurrency) = concurrency {
            self.check_concurrency(place, concurrency);
            let name = format!("{place} (group)");
            scope.concurrency = Some(self.limit(name, concurrency, outer.concurrency.clone()));
        }
        self.add_states(states, &mut known);
        self.wants_peer |= layers.iter().any(|layer| layer.wants_peer);
        for problem in layers.iter().flat_map(|layer| layer.problems()) {
            self.problems.push(format!("{place}: {problem}"));
        }
        scope.stack = outer.stack.with(layers);
        scope.renderer = renderer.or(scope.renderer);
        #[cfg(feature = "openapi")]
        {
            scope.renders = renders.or(scope.renders);
        }
        let id = self.scopes.len().min(COUNT_MAX) as ScopeId;
        self.scopes.push(scope.clone());
        self.states.push(known.clone());
        self.claim_prefix(prefix, id);
        if router.fallback.is_some() && !prefix.is_empty() {
            self.own_fallbacks.push((prefix.to_owned(), id));
        }
        let fallback = router.fallback.or_else(|| around.fallback.clone());
        let timeout = router.timeout.or(around.timeout);
        self.check_timeout(place, router.timeout);
        let added =
            fallback.as_ref().map(|fallback| self.add_fallback(fallback, prefix, id, timeout));
        self.fallbacks.push(added);
        #[cfg(feature = "openapi")]
        let document = openapi.map(|openapi| self.begin_document(*openapi, prefix, id));
        for route in routes {
            self.add_route(route, prefix, id, timeout);
        }
        for (below, routes) in router.mounts {
            self.add_mount(routes, prefix, &below, id, timeout);
        }
        let around = Around { scope, states: known, fallback, timeout };
        for (below, router) in nested {
            self.check_nested(&below, &router);
            if !self.check_prefix("nest", &below) {
                continue;
            }
            self.add_router(router, &format!("{prefix}{below}"), &around);
        }
        // A path that has routes of its own answers 405 for other methods, like any other.
        let is_free = |route: &Route| !self.places.contains_key(&full_path(prefix, &route.path));
        let fallbacks: Vec<Route> = fallbacks.into_iter().filter(is_free).collect();
        for fallback in fallbacks {
            self.add_route(fallback, prefix, id, timeout);
        }
        #[cfg(feature = "openapi")]
        self.documents.extend(document.map(|document| document.until(self.endpoints.len())));
    }

    /// Adds the states of a router to `known`, those of the routers around it, which they replace.
    fn add_states(&mut self, states: Vec<GivenState>, known: &mut States) {
        let mut given = Vec::new();
        for state in states {
            if given.contains(&state.id) {
                self.problems.push(format!(
                    "there are two states of type `{}`; wrap one of them in a type of its own",
                    state.name
                ));
            }
            given.push(state.id);
            known.retain(|(id, _)| *id != state.id);
            known.push((state.id, state.value));
        }
    }

    /// Adds the routes of everything at and below a place.
    fn add_mount(
        &mut self,
        routes: [Route; 3],
        prefix: &str,
        below: &str,
        scope: ScopeId,
        timeout: Option<Duration>,
    ) {
        let below = if below == "/" { "" } else { below };
        self.check_prefix("files", below);
        let place = format!("{prefix}{below}");
        let paths = [place.clone(), format!("{place}/"), format!("{place}/{{*path}}")];
        for (mut route, path) in routes.into_iter().zip(paths) {
            if path.is_empty() {
                continue; // It is `/`, which comes next.
            }
            if !path.ends_with('}') {
                route.description.problems.clear(); // Those of one handler, three times.
            }
            route.description.options.name = Some(format!("{place}/{{*path}}"));
            route.path = path;
            self.add_route(route, "", scope, timeout);
        }
    }

    /// Adds the endpoint that answers what no route of a router does, and returns its index.
    fn add_fallback(
        &mut self,
        fallback: &Fallback,
        prefix: &str,
        scope: ScopeId,
        timeout: Option<Duration>,
    ) -> u16 {
        let mut route = fallback.below(prefix);
        self.check_route(&route, scope);
        route.set_timeout(timeout);
        #[cfg(feature = "json")]
        if !route.description.requirements.paths.is_empty() {
            self.problems.push(format!(
                "fallback of {}: a path without a route has no parameters; take `http::Uri` for the path",
                if prefix.is_empty() { "/" } else { prefix }
            ));
        }
        self.endpoints.push((route, scope));
        (self.endpoints.len() - 1).min(COUNT_MAX) as u16
    }

    /// Each worker has one value of a type, whichever router provides it.
    fn add_worker_locals(&mut self, given: Vec<GivenLocal>) {
        for local in given {
            self.wants_runtime |= local.is_async;
            if self.worker_locals.iter().any(|other| other.id == local.id) {
                self.problems.push(format!(
                    "there are two values per worker of type `{}`; wrap one of them in a type of its own",
                    local.name
                ));
            }
            self.worker_locals.push(local);
        }
    }

    /// Makes a scope responsible for 404s below `prefix`. If two share a prefix, the first one is; errors in
    /// a prefix are found in the routes below it.
    fn claim_prefix(&mut self, prefix: &str, scope: ScopeId) {
        if !prefix.is_empty() {
            for pattern in [prefix, &format!("{prefix}/"), &format!("{prefix}/{{*below}}")] {
                let _ = self.prefixes.insert(pattern, scope);
            }
        }
    }

    fn add_route(
        &mut self,
        mut route: Route,
        prefix: &str,
        scope: ScopeId,
        timeout: Option<Duration>,
    ) {
        route.path = full_path(prefix, &route.path);
        self.check_route(&route, scope);
        route.set_timeout(timeout);
        let index = self.endpoints.len().min(COUNT_MAX) as u16;
        let place = *self.places.entry(route.path.clone()).or_insert_with(|| {
            let pattern = route.path.clone();
            self.paths.push(PathRoutes { pattern, scope, by_method: Vec::new(), any: None });
            self.paths.len() - 1
        });
        let path = &mut self.paths[place];
        let mut twice = Vec::new();
        match &route.methods {
            None => {
                if path.any.replace(index).is_some() {
                    twice.push("every method");
                }
            }
            Some(methods) => {
                for method in methods {
                    if path.by_method.iter().any(|(existing, _)| existing == method) {
                        twice.push(method.as_str());
                    }
                    path.by_method.push((method.clone(), index));
                }
            }
        }
        for method in twice {
            let path = &route.path;
            self.problems.push(format!("{method} {path}: it is routed twice; remove one of them"));
        }
        self.endpoints.push((route, scope));
    }
}

/// The path of a route below `prefix`, where `/` is the prefix itself.
fn full_path(prefix: &str, path: &str) -> String {
    if !prefix.is_empty() && path == "/" { prefix.into() } else { format!("{prefix}{path}") }
}
