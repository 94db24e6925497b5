//! The last step of a build: the endpoints that were collected become an application, or all problems an error.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use highwater_core::route;
use http::HeaderValue;

use super::{Build, COUNT_MAX};
use crate::admission::route_limit::RouteLimit;
use crate::app::application::{App, Before, Endpoint, Methods, Shared};
use crate::app::build_error::BuildError;
use crate::app::endpoint::EndpointInfo;
use crate::app::extract::BodyUse;
use crate::app::facts::{Allowed, EndpointFacts, Facts, States};
use crate::app::handler::Description;
use crate::app::path_routes::allow;
use crate::app::prepared::Covered;
use crate::app::refusal::Refusals;
use crate::app::route::Route;
use crate::app::scope::Scope;
use crate::app::sites::Sites;
use crate::app::stack::{Effect, Stack};
use crate::app::target::{PathId, ScopeId};

/// The routes by path, and the methods that they take.
struct Table {
    paths: route::Router<Methods>,
    /// By pattern.
    route_of: HashMap<String, route::RouteId>,
    /// By path.
    allowed: Vec<Allowed>,
    allowed_anywhere: HeaderValue,
}

impl Table {
    fn into_facts(
        self,
        endpoints: &[(Route, ScopeId)],
        states: Vec<States>,
    ) -> (route::Router<Methods>, Facts) {
        let facts = |(route, scope): &(Route, ScopeId)| {
            let id = (!route.is_fallback).then(|| self.route_of[&route.path]);
            endpoint_facts(&self.paths, id, route, *scope)
        };
        let facts = Facts {
            endpoints: endpoints.iter().map(facts).collect(),
            allowed: self.allowed,
            allowed_anywhere: self.allowed_anywhere,
            states,
            drain: Arc::default(),
            #[cfg(feature = "tower")]
            body_max: Default::default(),
        };
        (self.paths, facts)
    }
}

impl Build {
    pub(super) fn finish(mut self) -> Result<App, BuildError> {
        self.route_fallbacks();
        let counts = [self.endpoints.len(), self.paths.len(), self.scopes.len()];
        if counts.into_iter().any(|count| count > COUNT_MAX) {
            let problem = format!("there are more than {COUNT_MAX} endpoints, paths or routers");
            return Err(BuildError { problems: vec![problem] });
        }
        let table = self.make_table();
        self.check_worker_locals();
        #[cfg(feature = "json")]
        self.check_paths(&table.paths, &table.route_of);
        #[cfg(feature = "openapi")]
        self.make_documents(&table.paths, &table.route_of);
        let covered = self.cover_fixed();
        let refusals = self.make_refusals();
        if !self.problems.is_empty() {
            return Err(BuildError { problems: self.problems });
        }
        let endpoints = std::mem::take(&mut self.endpoints);
        let is_any = |of: fn(&Description) -> bool| {
            endpoints.iter().any(|(route, _)| of(&route.description))
        };
        let wants_peer = self.wants_peer || is_any(|it| it.wants_peer);
        let takes_connect = is_any(|it| it.takes_connect) && !is_any(|it| it.is_service);
        let limits: Vec<_> =
            endpoints.iter().map(|(route, scope)| self.limit_of(route, *scope)).collect();
        let has_limits = limits.iter().any(Option::is_some);
        let gives_ids = self.scopes.iter().any(|scope| scope.stack.request_ids().is_some());
        let before = (gives_ids || !self.rewrites.is_empty())
            .then_some(Before { rewrites: self.rewrites, gives_ids });
        let infos: Vec<_> = endpoints.iter().map(|(route, _)| info(route)).collect();
        let (paths, facts) = table.into_facts(&endpoints, self.states);
        let made = endpoints.into_iter().zip(limits).zip(covered);
        let endpoints = made.map(|(((route, scope), limit), covered)| {
            endpoint(route, &self.scopes[usize::from(scope)].stack, limit, covered)
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

    /// Puts all paths into one table. A path that it refuses is a problem.
    fn make_table(&mut self) -> Table {
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
        Table { paths, route_of, allowed, allowed_anywhere: allow(&anywhere) }
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
                    let mut report = |problem: &dyn fmt::Display| {
                        problems.push(format!("{place}: behind its layers, {problem}"));
                        Covered::Not
                    };
                    let mut response = match scope.stack.amend_once(template.make()) {
                        Ok(response) => response,
                        Err(panic) => return report(&panic),
                    };
                    match response.problem(false) {
                        Some(problem) => report(&problem),
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
}

fn endpoint(
    route: Route,
    layers: &Stack,
    concurrency: Option<Arc<RouteLimit>>,
    covered: Covered,
) -> Endpoint {
    Endpoint {
        is_covered: !layers.is_empty(),
        covered,
        kind: route.description.kind,
        body: body_for(layers, &route),
        takes_connect: route.description.takes_connect,
        body_max: route.description.options.body_max,
        priority: route.description.options.priority.unwrap_or_default(),
        is_never_shed: route.description.options.is_never_shed,
        concurrency,
        handler: route.handler,
    }
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
