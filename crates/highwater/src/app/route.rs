//! A route as it was registered.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;

use super::handler::{Description, Dispatch, Handler, Kind};
use super::outcome::Outcome;
use super::request::Request;
use crate::admission::route_limit::RouteLimit;

/// A route as it was registered.
pub(super) struct Route {
    /// `None` for all.
    pub(super) methods: Option<Vec<Method>>,
    pub(super) path: String,
    pub(super) handler: Box<dyn Dispatch>,
    pub(super) description: Description,
    /// It answers what no other route of its router does.
    pub(super) is_fallback: bool,
    /// The limit of its own, once it is made: copies of a fallback share it.
    pub(super) limit: SharedLimit,
}

/// A limit that several routes have in common, made for the first of them.
type SharedLimit = Arc<OnceLock<Arc<RouteLimit>>>;

impl Route {
    /// Every method, without a path. An application compiles this for each handler: so it is all that knows the handler's type.
    pub(super) fn of<M: 'static>(handler: impl Handler<M>) -> Self {
        let mut description = Description::new();
        handler.describe(&mut description);
        Route::described(handler.erase(), description)
    }

    fn described(handler: Box<dyn Dispatch>, description: Description) -> Self {
        Route {
            methods: None,
            path: String::new(),
            handler,
            description,
            is_fallback: false,
            limit: SharedLimit::default(),
        }
    }

    /// It, for these methods.
    pub(super) fn on(self, methods: &[Method]) -> Self {
        Route { methods: Some(methods.to_vec()), ..self }
    }

    /// It, at this path.
    pub(super) fn at(self, path: &str) -> Self {
        Route { path: path.to_owned(), ..self }
    }

    /// Gives it the timeout of its router, unless it has one.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>) {
        let own = &mut self.description.options.timeout;
        *own = own.or(timeout);
    }

    /// Whether a form can be posted to its handler.
    pub(super) fn takes_forms(&self) -> bool {
        let may_change = self.methods.as_ref().is_none_or(|of| of.iter().any(|one| !one.is_safe()));
        may_change && self.description.kind != Kind::Fixed && !self.description.takes_connect
    }

    /// The methods as they are shown: separated by commas, or `*`.
    pub(super) fn methods_text(&self) -> String {
        match &self.methods {
            None => String::from("*"),
            Some(methods) => methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
        }
    }
}

/// The handler of what no route of a router answers. Routers within share it.
#[derive(Clone)]
pub(super) struct Fallback {
    handler: Arc<dyn Dispatch>,
    description: Description,
    limit: SharedLimit,
}

impl Fallback {
    pub(super) fn new<M: 'static>(handler: impl Handler<M>) -> Self {
        let description = Description::of(&handler);
        Fallback { handler: handler.erase().into(), description, limit: SharedLimit::default() }
    }

    /// It, for everything below `prefix`.
    pub(super) fn below(&self, prefix: &str) -> Route {
        Route {
            methods: None,
            path: format!("{prefix}/{{*rest}}"),
            handler: Box::new(Arc::clone(&self.handler)),
            description: self.description.clone(),
            is_fallback: true,
            limit: Arc::clone(&self.limit),
        }
    }
}

impl Dispatch for Arc<dyn Dispatch> {
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        (**self).dispatch(request)
    }
}
