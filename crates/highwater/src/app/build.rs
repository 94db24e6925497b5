//! From a description to an application: nested routers become one table, what covers them is spelled
//! out for each, and everything that cannot work is found.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use highwater_core::http1;
use highwater_core::route;
use http::{HeaderValue, Method};

use super::concurrency::Concurrency;
use super::dispatch::{Allowed, App, Endpoint, Methods, PathId, Scope, ScopeId, Shared};
use super::endpoint::EndpointInfo;
use super::extract::BodyUse;
use super::refusal::Refusals;
use super::router::{Route, Router};

/// How many endpoints, paths and nested routers an application can have, each: what fits in 16 bits,
/// so that a target is small.
const COUNT_MAX: usize = u16::MAX as usize;

/// What is wrong with an application: all of it, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    problems: Vec<String>,
}

impl BuildError {
    /// What is wrong: where, and what to write instead.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the application cannot be built")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl StdError for BuildError {}

pub(super) fn build(router: Router) -> Result<App, BuildError> {
    let priority_field = router.priority_field.as_deref().map(Box::from);
    let mut build = Build { priority_field, ..Build::default() };
    build.add_router(router, "", &Scope::default());
    build.finish()
}

#[derive(Default)]
struct Build {
    /// Where each pattern is in `paths`, in the order they came.
    places: HashMap<String, usize>,
    paths: Vec<PathRoutes>,
    prefixes: route::Router<ScopeId>,
    scopes: Vec<Scope>,
    endpoints: Vec<(Route, ScopeId)>,
    wants_peer: bool,
    wants_runtime: bool,
    priority_field: Option<Box<str>>,
    problems: Vec<String>,
}

/// What is registered for one pattern.
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
        let Router { routes, nested, states, before, after, middleware, renderer, .. } = router;
        let mut scope = outer.clone();
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
        scope.before.extend(before);
        scope.after.extend(after);
        scope.middleware.extend(middleware);
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
    }

    /// Makes a scope responsible for what is not found below `prefix`. Where two share a prefix, the
    /// first is; errors in a prefix show up in the routes below it.
    fn claim_prefix(&mut self, prefix: &str, scope: ScopeId) {
        if !prefix.is_empty() {
            for pattern in [prefix, &format!("{prefix}/"), &format!("{prefix}/{{*below}}")] {
                let _ = self.prefixes.insert(pattern, scope);
            }
        }
    }

    fn add_route(&mut self, mut route: Route, prefix: &str, scope: ScopeId) {
        if !prefix.is_empty() {
            // Below a prefix, `/` is the prefix itself.
            let path = if route.path == "/" { "" } else { &route.path };
            route.path = format!("{prefix}{path}");
        }
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

    /// What a handler needs has to be there.
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
        if description.options.concurrency_max == Some(0) {
            self.problems.push(format!(
                "{place}: concurrency_limit(0) would refuse every request; write 1 or more"
            ));
        }
        let own = description.problems.iter().map(|problem| format!("{place}: {problem}"));
        self.problems.extend(own);
        if route.methods.as_ref().is_some_and(Vec::is_empty) {
            self.problems.push(format!("{}: it is routed for no method at all", route.path));
        }
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
        if !self.problems.is_empty() {
            return Err(BuildError { problems: self.problems });
        }
        let infos = self.endpoints.iter().map(|(route, _)| info(route)).collect();
        let wants_peer =
            self.wants_peer || self.endpoints.iter().any(|(r, _)| r.description.wants_peer);
        let has_limits =
            self.endpoints.iter().any(|(r, _)| r.description.options.concurrency_max.is_some());
        let endpoints = self.endpoints.into_iter().map(|(route, scope)| Endpoint {
            route: route_of[&route.path],
            scope,
            kind: route.description.kind,
            body: body_use(&route),
            body_max: route.description.options.body_max,
            priority: route.description.options.priority,
            is_vital: route.description.options.is_vital,
            concurrency: route.description.options.concurrency_max.map(Concurrency::new),
            handler: route.handler,
        });
        Ok(App::new(Shared {
            endpoints: endpoints.collect(),
            paths,
            prefixes: self.prefixes,
            infos,
            allowed,
            allowed_anywhere: allow(&anywhere),
            refusals: self.scopes.iter().map(Refusals::new).collect(),
            panics: Arc::default(),
            scopes: self.scopes,
            wants_peer,
            wants_runtime: self.wants_runtime,
            drain: Arc::default(),
            has_limits,
            priority_field: self.priority_field,
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
        let mut named = [self.any; http1::Method::NAMED.len() + 1];
        for method in http1::Method::NAMED {
            let fallback = if method == http1::Method::Head { of("GET") } else { None };
            named[method as usize] = of(method.as_str()).or(fallback).or(self.any);
        }
        let others = self.by_method.iter().filter(|(method, _)| !has_name(method));
        let others = others.map(|(method, endpoint)| (method.as_str().into(), *endpoint));
        Methods { named, others: others.collect(), path }
    }

    /// What `Allow` has to say (RFC 9110 §10.2.1), in the order of registration.
    fn allowed_methods(&self) -> Vec<String> {
        if self.any.is_some() {
            // Any method at all cannot be said; these are the ones a peer may know.
            let all = http1::Method::NAMED.iter().map(|method| method.as_str());
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

/// Whether the core has a name for a method.
fn has_name(method: &Method) -> bool {
    http1::Method::from_token(method.as_str().as_bytes()) != http1::Method::Other
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
        concurrency_max: options.concurrency_max,
        is_vital: options.is_vital,
    }
}
