//! A finished application: what [`Router::build`](super::Router::build) makes, and workers share.
//!
//! Requests know it only as an [`Application`] (`request.rs`); everything else depends on requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use highwater_core::http::Method;
use highwater_core::route;

use super::client_keys::ClientKeys;
use super::endpoint::EndpointInfo;
use super::extract::BodyUse;
use super::facts::Facts;
use super::handler::{Dispatch, Kind};
use super::prepared::Covered;
use super::refusal::Refusals;
use super::request::Application;
use super::rewrite_rules::Rewrite;
use super::scope::Scope;
use super::sites::Sites;
use super::target::{PathId, ScopeId, Target};
use super::trailing_slash::TrailingSlash;
use super::worker_local::GivenLocal;
use crate::admission::priority::Priority;
use crate::admission::route_limit::RouteLimit;

/// A finished application: routes, handlers, layers and states, ready to be served. Made by
/// [`Router::build`](super::Router::build); cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct App {
    pub(super) shared: Arc<Shared>,
    /// The same, as its requests see it.
    pub(super) seen: Arc<dyn Application>,
}

/// Everything of an application.
pub(crate) struct Shared {
    pub(super) paths: route::Router<Methods>,
    /// Prefixes of nested routers, to find the scope that answers 404 below them.
    pub(super) prefixes: route::Router<ScopeId>,
    /// What is done before a route is found, and as soon as it is; mostly nothing.
    pub(super) before: Option<Before>,
    /// By scope: the endpoint that answers instead of 404.
    pub(super) fallbacks: Vec<Option<u16>>,
    pub(super) trailing_slash: TrailingSlash,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) infos: Vec<EndpointInfo>,
    pub(super) facts: Facts,
    pub(super) scopes: Vec<Scope>,
    pub(super) wants_peer: bool,
    pub(super) wants_runtime: bool,
    /// Some endpoint takes an extended CONNECT, and none is a service: a browser that may send one opens all WebSockets so,
    /// those of a service, too.
    pub(super) takes_connect: bool,
    /// Some endpoint has a limit of its own, or of its group.
    pub(super) has_limits: bool,
    /// The automatic limits, and their names in metrics.
    pub(super) found_limits: Vec<(String, Arc<RouteLimit>)>,
    /// Some layer needs requests after their bytes are dropped.
    pub(super) retains: bool,
    /// By scope.
    pub(super) refusals: Vec<Refusals>,
    /// How often failures were logged lately: one for each endpoint, the last for everything else.
    pub(super) sites: Vec<Sites>,
    /// How many panics were reported.
    pub(super) panics: Arc<AtomicU64>,
    /// The field in which clients send the priority of their requests.
    pub(super) priority_field: Option<Box<str>>,
    /// Says whose a request is.
    pub(super) clients: Option<Box<ClientKeys>>,
    /// The values per worker.
    pub(super) worker_locals: Vec<GivenLocal>,
    /// Where the first document's page is.
    pub(super) documentation: Option<String>,
}

/// What replaces parts of requests' heads.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) rewrites: Vec<Rewrite>,
    /// Some layer gives each request an id.
    pub(super) gives_ids: bool,
}

/// An endpoint as built.
pub(super) struct Endpoint {
    pub(super) handler: Box<dyn Dispatch>,
    /// Some layer covers it: known here, it need not be looked for with each request.
    pub(super) is_covered: bool,
    pub(super) kind: Kind,
    pub(super) body: BodyUse,
    /// It is called for an extended CONNECT.
    pub(super) takes_connect: bool,
    pub(super) body_max: Option<u64>,
    pub(super) priority: Priority,
    /// Always served.
    pub(super) is_never_shed: bool,
    pub(super) concurrency: Option<Arc<RouteLimit>>,
    /// A fixed answer after its layers.
    pub(super) covered: Covered,
}

/// The endpoints of a path by method.
#[derive(Debug)]
pub(super) struct Methods {
    /// By the discriminant of [`Method`]; fallbacks to another method are filled in.
    pub(super) named: [Option<u16>; Method::NAMED.len() + 1],
    /// Methods without a name here.
    pub(super) others: Vec<(Box<str>, u16)>,
    pub(super) path: PathId,
}

impl Shared {
    pub(super) fn endpoint(&self, target: Target) -> Option<&Endpoint> {
        match target {
            Target::Endpoint(index) => Some(&self.endpoints[usize::from(index)]),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn scope(&self, target: Target) -> &Scope {
        &self.scopes[usize::from(self.facts.scope_id(target))]
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.infos).finish()
    }
}
