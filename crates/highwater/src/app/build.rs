//! Builds an application from its description: nested routers become one table, with the layers of each, and
//! all errors are collected.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use highwater_core::http::Method as CoreMethod;
use highwater_core::route;
use http::{HeaderValue, Method};

use super::build_error::BuildError;
use super::dispatch::{App, ClientKeys, Endpoint, PathId, ScopeId, Shared};
use super::endpoint::EndpointInfo;
use super::extract::BodyUse;
use super::find::{Allowed, Methods};
use super::fixed::Covered;
use super::handler::Kind;
use super::refusal::Refusals;
use super::router::{Route, Router};
use super::scope::Scope;
use super::sites::Sites;
use super::stack::Effect;
use super::worker_local::GivenLocal;
use crate::admission::route_limit::{Concurrency, RouteLimit};

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
        build.add_router(self, "", &Scope::default());
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
    endpoints: Vec<(Route, ScopeId)>,
    wants_peer: bool,
    wants_runtime: bool,
    priority_field: Option<Box<str>>,
    clients: Option<Box<ClientKeys>>,
    found_limits: Vec<(String, Arc<RouteLimit>)>,
    worker_locals: Vec<GivenLocal>,
    problems: Vec<String>,
}

/// The routes registered for one pattern.
struct PathRoutes {
    pattern: String,
    scope: ScopeId,
    by_method: Vec<(Method, u16)>,
    any: Option<u16>,
}

impl Build {
    /// Adds a router below `prefix`, within `outer`.
    fn add_router(&mut self, router: Router, prefix: &str, outer: &Scope) {
        self.wants_peer |= router.wants_peer;
        self.wants_runtime |= router.wants_runtime;
        self.add_worker_locals(router.worker_locals);
        let Router { routes, nested, states, layers, fallbacks, .. } = router;
        let (renderer, concurrency) = (router.renderer, router.concurrency);
        let mut scope = outer.clone();
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
            scope.states.retain(|(id, _)| *id != state.id);
            scope.states.push((state.id, state.value));
        }
        for problem in layers.iter().flat_map(|layer| layer.problems()) {
            self.problems.push(format!("{place}: {problem}"));
        }
        scope.stack = outer.stack.with(layers);
        scope.renderer = renderer.or(scope.renderer);
        let id = self.scopes.len().min(COUNT_MAX) as ScopeId;
        self.scopes.push(scope.clone());
        self.claim_prefix(prefix, id);
        for route in routes {
            self.add_route(route, prefix, id);
        }
        for (below, router) in nested {
            if !below.is_empty() && (!below.starts_with('/') || below.ends_with('/')) {
                self.problems.push(format!(
                    "nest(\"{below}\"): a prefix begins with a slash and does not end with one; \
                     write `/{}`, or use `merge` to add routes without a prefix",
                    below.trim_matches('/')
                ));
                continue;
            }
            self.add_router(router, &format!("{prefix}{below}"), &scope);
        }
        // A path that has routes of its own answers 405 for other methods, like any other.
        let is_free = |route: &Route| !self.places.contains_key(&full_path(prefix, &route.path));
        let fallbacks: Vec<Route> = fallbacks.into_iter().filter(is_free).collect();
        for fallback in fallbacks {
            self.add_route(fallback, prefix, id);
        }
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

    /// Checks that the values per worker that handlers take are provided.
    fn check_worker_locals(&mut self) {
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
    fn check_paths(
        &mut self,
        paths: &route::Router<Methods>,
        route_of: &HashMap<String, route::RouteId>,
    ) {
        for (route, _) in &self.endpoints {
            // A pattern that could not be added has already been reported.
            let Some(id) = route_of.get(&route.path) else { continue };
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

    /// Makes a scope responsible for 404s below `prefix`. If two share a prefix, the first one is; errors in
    /// a prefix are found in the routes below it.
    fn claim_prefix(&mut self, prefix: &str, scope: ScopeId) {
        if !prefix.is_empty() {
            for pattern in [prefix, &format!("{prefix}/"), &format!("{prefix}/{{*below}}")] {
                let _ = self.prefixes.insert(pattern, scope);
            }
        }
    }

    fn add_route(&mut self, mut route: Route, prefix: &str, scope: ScopeId) {
        route.path = full_path(prefix, &route.path);
        self.check_route(&route, scope);
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

    /// Checks that everything a handler needs is provided.
    fn check_route(&mut self, route: &Route, scope: ScopeId) {
        let place = format!("{} {}", route.methods_text(), route.path);
        let description = &route.description;
        let states = &self.scopes[usize::from(scope)].states;
        for (id, name) in &description.requirements.states {
            if !states.iter().any(|(given, _)| given == id) {
                self.problems.push(format!(
                    "{place}: its handler takes a state of type `{name}`, and there is none; \
                     add `.state(…)` with one to this router or one around it"
                ));
            }
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
        let own = description.problems.iter().map(|problem| format!("{place}: {problem}"));
        self.problems.extend(own);
        if route.methods.as_ref().is_some_and(Vec::is_empty) {
            self.problems.push(format!("{}: it is routed for no method at all", route.path));
        }
    }

    fn check_concurrency(&mut self, place: &str, concurrency: Concurrency) {
        if concurrency == Concurrency::Fixed(0) {
            self.problems.push(format!(
                "{place}: concurrency_limit(0) would refuse every request; write 1 or more"
            ));
        }
    }

    /// A limit within `outer`; an automatic one appears in metrics as `name`.
    fn limit(
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

    /// The limit that covers a route: its own, within that of its group, or the group's.
    fn limit_of(&mut self, route: &Route, scope: ScopeId) -> Option<Arc<RouteLimit>> {
        let options = &route.description.options;
        let is_counted = route.description.kind != Kind::Fixed && !options.is_never_shed;
        let group = self.scopes[usize::from(scope)].concurrency.clone().filter(|_| is_counted);
        match options.concurrency {
            None => group,
            Some(own) => {
                let name = options.name.as_deref().unwrap_or(&route.path).to_owned();
                Some(self.limit(name, own, group))
            }
        }
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
            let methods = path.methods(allowed.len() as PathId);
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
        let covered = self.cover_fixed();
        let refusals = self.make_refusals();
        if !self.problems.is_empty() {
            return Err(BuildError { problems: self.problems });
        }
        let infos: Vec<_> = self.endpoints.iter().map(|(route, _)| info(route)).collect();
        let wants_peer =
            self.wants_peer || self.endpoints.iter().any(|(r, _)| r.description.wants_peer);
        let endpoints = std::mem::take(&mut self.endpoints);
        let limits: Vec<_> =
            endpoints.iter().map(|(route, scope)| self.limit_of(route, *scope)).collect();
        let has_limits = limits.iter().any(Option::is_some);
        let made = endpoints.into_iter().zip(limits).zip(covered);
        let endpoints = made.map(|(((route, scope), limit), covered)| Endpoint {
            covered,
            path: route_of[&route.path].index() as PathId,
            route: route_of[&route.path],
            scope,
            kind: route.description.kind,
            body: body_use(&route),
            body_max: route.description.options.body_max,
            priority: route.description.options.priority,
            is_never_shed: route.description.options.is_never_shed,
            concurrency: limit,
            handler: route.handler,
        });
        Ok(App::new(Shared {
            sites: Sites::of_endpoints(infos.len()),
            endpoints: endpoints.collect(),
            paths,
            prefixes: self.prefixes,
            infos,
            allowed,
            allowed_anywhere: allow(&anywhere),
            refusals,
            wants_known: self.scopes.iter().any(Scope::wants_known),
            panics: Arc::default(),
            scopes: self.scopes,
            wants_peer,
            wants_runtime: self.wants_runtime,
            drain: Arc::default(),
            has_limits,
            found_limits: self.found_limits,
            priority_field: self.priority_field,
            clients: self.clients,
            worker_locals: self.worker_locals,
        }))
    }
}

impl PathRoutes {
    /// The table of this path, with everything that falls back on another method written out.
    fn methods(&self, path: PathId) -> Methods {
        let of = |method: &str| {
            let own = self.by_method.iter().find(|(existing, _)| existing.as_str() == method);
            own.map(|(_, endpoint)| *endpoint)
        };
        let mut named = [self.any; CoreMethod::NAMED.len() + 1];
        for method in CoreMethod::NAMED {
            let fallback = if method == CoreMethod::Head { of("GET") } else { None };
            named[method as usize] = of(method.as_str()).or(fallback).or(self.any);
        }
        let others = self.by_method.iter().filter(|(method, _)| !has_name(method));
        let others = others.map(|(method, endpoint)| (method.as_str().into(), *endpoint));
        Methods { named, others: others.collect(), path }
    }

    /// The methods of `Allow` (RFC 9110 §10.2.1), in the order of registration.
    fn allowed_methods(&self) -> Vec<String> {
        if self.any.is_some() {
            // `Allow` cannot express "any method"; these are the methods that a peer may know.
            let all = CoreMethod::NAMED.iter().map(|method| method.as_str());
            return all.filter(|method| *method != "CONNECT").map(String::from).collect();
        }
        let mut methods = Vec::new();
        for (method, _) in &self.by_method {
            methods.push(method.to_string());
            if *method == Method::GET {
                methods.push(String::from("HEAD"));
            }
        }
        methods.push(String::from("OPTIONS"));
        methods
    }
}

/// The path of a route below `prefix`, where `/` is the prefix itself.
fn full_path(prefix: &str, path: &str) -> String {
    if !prefix.is_empty() && path == "/" { prefix.into() } else { format!("{prefix}{path}") }
}

/// Whether the core has a name for a method.
fn has_name(method: &Method) -> bool {
    CoreMethod::from_token(method.as_str().as_bytes()) != CoreMethod::Other
}

/// The value of `Allow`: each method once.
fn allow(methods: &[String]) -> HeaderValue {
    let mut unique: Vec<&str> = Vec::new();
    for method in methods {
        if !unique.contains(&method.as_str()) {
            unique.push(method);
        }
    }
    HeaderValue::try_from(unique.join(", ")).expect("methods are tokens")
}

fn body_use(route: &Route) -> BodyUse {
    route.description.bodies.first().map_or(BodyUse::None, |(_, body)| *body)
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
        priority: options.priority,
        concurrency: options.concurrency,
        is_never_shed: options.is_never_shed,
    }
}
