//! Builds an application from its description: nested routers become one table, with the layers of each, and
//! all errors are collected.

mod check;
#[cfg(feature = "openapi")]
mod document;
mod limits;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use highwater_core::route;

use crate::admission::route_limit::RouteLimit;
use crate::app::application::{App, Before, Endpoint, Methods, Shared};
use crate::app::build_error::BuildError;
use crate::app::client_keys::ClientKeys;
use crate::app::endpoint::EndpointInfo;
use crate::app::extract::BodyUse;
use crate::app::facts::{Allowed, EndpointFacts, Facts, States};
use crate::app::handler::Description;
use crate::app::path_routes::{PathRoutes, allow};
use crate::app::prepared::Covered;
use crate::app::refusal::Refusals;
use crate::app::rewrite_rules::{Rewrite, checked};
use crate::app::route::{Fallback, Route};
use crate::app::router::Router;
use crate::app::scope::Scope;
use crate::app::sites::Sites;
use crate::app::stack::{Effect, Stack};
use crate::app::target::{PathId, ScopeId};
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

    /// Applies the layers to the fixed answers that they cover.
    fn cover_fixed(&mut self) -> Vec<Covered> {
        let Build { endpoints, scopes, problems, .. } = self;
        let cover = |(route, scope): &(Route, ScopeId)| {
            let scope = &scopes[usize::from(*scope)];
            let Some(template) = &route.description.fixed else { return Covered::Not };
            match scope.stack.effect_on_fixed() {
                Effect::None => Covered::Not,
                Effect::OfRequest => Covered::PerRequest(template.clone()),
                Effect::Constant => {
                    let place = format!("{} {}", route.methods_text(), route.path);
                    let mut tell = |problem: &dyn fmt::Display| {
                        problems.push(format!("{place}: behind its layers, {problem}"));
                        Covered::Not
                    };
                    let mut response = match scope.stack.amend_once(template.make()) {
                        Ok(response) => response,
                        Err(panic) => return tell(&panic),
                    };
                    match response.problem(false) {
                        Some(problem) => tell(&problem),
                        None => Covered::Prepared(template.prepare(response)),
                    }
                }
            }
        };
        endpoints.iter().map(cover).collect()
    }

    /// The refusals of each scope under overload.
    fn make_refusals(&mut self) -> Vec<Refusals> {
        let mut refusals = Vec::new();
        for scope in &self.scopes {
            match Refusals::new(scope) {
                Ok(made) => refusals.push(made),
                // A nested router repeats the layers of its parents, and so their problems.
                Err(problem) if self.problems.contains(&problem) => {}
                Err(problem) => self.problems.push(problem),
            }
        }
        refusals
    }

    fn finish(mut self) -> Result<App, BuildError> {
        let counts = [self.endpoints.len(), self.paths.len(), self.scopes.len()];
        if counts.into_iter().any(|count| count > COUNT_MAX) {
            let problem = format!("there are more than {COUNT_MAX} endpoints, paths or routers");
            return Err(BuildError { problems: vec![problem] });
        }
        let mut paths = route::Router::new();
        let mut route_of = HashMap::new();
        let mut allowed = Vec::new();
        let mut anywhere = Vec::new();
        for path in &self.paths {
            let takes = |index: u16| self.endpoints[usize::from(index)].0.description.takes_connect;
            let methods = path.methods(allowed.len() as PathId, takes);
            match paths.insert(&path.pattern, methods) {
                Ok(route) => {
                    let methods = path.allowed_methods();
                    allowed.push(Allowed { methods: allow(&methods), scope: path.scope });
                    anywhere.extend(methods);
                    route_of.insert(path.pattern.clone(), route);
                }
                Err(error) => self.problems.push(error.to_string()),
            }
        }
        self.check_worker_locals();
        #[cfg(feature = "json")]
        self.check_paths(&paths, &route_of);
        #[cfg(feature = "openapi")]
        self.make_documents(&paths, &route_of);
        let covered = self.cover_fixed();
        let refusals = self.make_refusals();
        if !self.problems.is_empty() {
            return Err(BuildError { problems: self.problems });
        }
        let infos: Vec<_> = self.endpoints.iter().map(|(route, _)| info(route)).collect();
        let wants_peer =
            self.wants_peer || self.endpoints.iter().any(|(r, _)| r.description.wants_peer);
        let is_any = |of: fn(&Description) -> bool| {
            self.endpoints.iter().any(|(route, _)| of(&route.description))
        };
        let takes_connect = is_any(|it| it.takes_connect) && !is_any(|it| it.is_service);
        let endpoints = std::mem::take(&mut self.endpoints);
        let limits: Vec<_> =
            endpoints.iter().map(|(route, scope)| self.limit_of(route, *scope)).collect();
        let has_limits = limits.iter().any(Option::is_some);
        let facts = Facts {
            endpoints: endpoints
                .iter()
                .map(|(route, scope)| {
                    let id = (!route.is_fallback).then(|| route_of[&route.path]);
                    endpoint_facts(&paths, id, route, *scope)
                })
                .collect(),
            allowed,
            allowed_anywhere: allow(&anywhere),
            states: self.states,
            drain: Arc::default(),
            #[cfg(feature = "tower")]
            body_max: Default::default(),
        };
        let gives_ids = self.scopes.iter().any(|scope| scope.stack.request_ids().is_some());
        let before = (gives_ids || !self.rewrites.is_empty())
            .then_some(Before { rewrites: self.rewrites, gives_ids });
        let made = endpoints.into_iter().zip(limits).zip(covered);
        let endpoints = made.map(|(((route, scope), limit), covered)| Endpoint {
            is_covered: !self.scopes[usize::from(scope)].stack.is_empty(),
            covered,
            kind: route.description.kind,
            body: body_for(&self.scopes[usize::from(scope)].stack, &route),
            takes_connect: route.description.takes_connect,
            body_max: route.description.options.body_max,
            priority: route.description.options.priority.unwrap_or_default(),
            is_never_shed: route.description.options.is_never_shed,
            concurrency: limit,
            handler: route.handler,
        });
        Ok(App::new(Shared {
            sites: Sites::of_endpoints(infos.len()),
            endpoints: endpoints.collect(),
            paths,
            prefixes: self.prefixes,
            before,
            fallbacks: self.fallbacks,
            trailing_slash: self.trailing_slash,
            infos,
            facts,
            refusals,
            retains: self.scopes.iter().any(Scope::retains),
            panics: Arc::default(),
            scopes: self.scopes,
            wants_peer,
            wants_runtime: self.wants_runtime,
            takes_connect,
            has_limits,
            found_limits: self.found_limits,
            priority_field: self.priority_field,
            clients: self.clients,
            worker_locals: self.worker_locals,
            documentation: self.documentation,
        }))
    }
}

/// The path of a route below `prefix`, where `/` is the prefix itself.
fn full_path(prefix: &str, path: &str) -> String {
    if !prefix.is_empty() && path == "/" { prefix.into() } else { format!("{prefix}{path}") }
}

fn endpoint_facts(
    paths: &route::Router<Methods>,
    id: Option<route::RouteId>,
    route: &Route,
    scope: ScopeId,
) -> EndpointFacts {
    EndpointFacts {
        pattern: route.path.as_str().into(),
        params: id.map(|id| paths.param_names(id).into()).unwrap_or_default(),
        path: id.map(|id| id.index() as PathId),
        scope,
        takes_stream: body_use(route) == BodyUse::Streamed,
        #[cfg(feature = "tower")]
        body_max: route.description.options.body_max,
    }
}

fn body_use(route: &Route) -> BodyUse {
    route.description.bodies.first().map_or(BodyUse::None, |(_, body)| *body)
}

/// How the content is read for the handler of a route and for its layers.
fn body_for(layers: &Stack, route: &Route) -> BodyUse {
    match body_use(route) {
        BodyUse::None if layers.wants_content() && route.takes_forms() => BodyUse::Whole,
        own => own,
    }
}

fn info(route: &Route) -> EndpointInfo {
    let options = &route.description.options;
    EndpointInfo {
        methods: route.methods_text().into(),
        pattern: route.path.as_str().into(),
        name: options.name.as_deref().unwrap_or(&route.path).into(),
        kind: route.description.kind,
        timeout: options.timeout,
        detached: options.detached,
        body: body_use(route),
        priority: options.priority.unwrap_or_default(),
        concurrency: options.concurrency,
        is_never_shed: options.is_never_shed,
    }
}
