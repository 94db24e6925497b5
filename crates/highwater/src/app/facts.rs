//! What may a request know about its application?
//!
//! Patterns, parameters, methods, states, whether the server drains: data that requests depend on, whereas handlers and
//! layers depend on requests.

use std::any::{Any, TypeId};
use std::sync::Arc;
#[cfg(feature = "tower")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::HeaderValue;

use super::draining::Drain;
use super::target::{PathId, ScopeId, Target};
#[cfg(feature = "tower")]
use highwater_core::http::Limits;

/// States by their type.
pub(super) type States = Vec<(TypeId, Arc<dyn Any + Send + Sync>)>;

/// What requests may know about their application.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) endpoints: Vec<EndpointFacts>,
    pub(super) allowed: Vec<Allowed>,
    /// Every method that some route takes.
    pub(super) allowed_anywhere: HeaderValue,
    /// By scope: those of its router and of the routers around it.
    pub(super) states: Vec<States>,
    /// Whether the server drains.
    pub(super) drain: Arc<Drain>,
    /// How many bytes of content the server takes: for what collects content before a handler. 0 until one serves the
    /// application; of several, the largest.
    #[cfg(feature = "tower")]
    pub(super) body_max: AtomicU64,
}

/// What requests may know about their endpoint.
#[derive(Debug)]
pub(super) struct EndpointFacts {
    /// The path as it was registered, prefixes included.
    pub(super) pattern: Box<str>,
    /// The names of the path's parameters.
    pub(super) params: Box<[Box<str>]>,
    /// `None` for a fallback.
    pub(super) path: Option<PathId>,
    pub(super) scope: ScopeId,
    /// Whether it takes content as it comes.
    pub(super) takes_stream: bool,
    /// How many bytes of content it takes, if it says so itself: for what collects content before it.
    #[cfg(feature = "tower")]
    pub(super) body_max: Option<u64>,
}

/// The `Allow` of a path, and the scope that answers.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) methods: HeaderValue,
    pub(super) scope: ScopeId,
}

impl Facts {
    /// How many bytes of content a target takes whose endpoint sets no limit.
    #[cfg(feature = "tower")]
    pub(super) fn body_max(&self) -> u64 {
        match self.body_max.load(Relaxed) {
            0 => Limits::default().body_max,
            max => max,
        }
    }

    #[inline]
    pub(super) fn endpoint(&self, target: Target) -> Option<&EndpointFacts> {
        match target {
            Target::Endpoint(index) => Some(&self.endpoints[usize::from(index)]),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn scope_id(&self, target: Target) -> ScopeId {
        match target {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].scope,
            Target::NotFound(scope) | Target::NotImplemented(scope) => scope,
            Target::NotAllowed(path) | Target::Options(path) | Target::Moved(path) => {
                self.allowed[usize::from(path)].scope
            }
            Target::OptionsAll | Target::Unrewritten => 0,
        }
    }

    pub(super) fn pattern(&self, target: Target) -> Option<&str> {
        self.endpoint(target).map(|endpoint| &*endpoint.pattern)
    }

    pub(super) fn param_names(&self, target: Target) -> &[Box<str>] {
        self.endpoint(target).map_or(&[], |endpoint| &endpoint.params)
    }

    pub(super) fn state<T: Send + Sync + 'static>(&self, target: Target) -> Option<&T> {
        let wanted = TypeId::of::<T>();
        let states = &self.states[usize::from(self.scope_id(target))];
        states.iter().find(|(id, _)| *id == wanted)?.1.downcast_ref()
    }

    /// The methods that the target's path has routes for, in the form of `Allow`.
    pub(super) fn allowed_methods(&self, target: Target) -> Option<&HeaderValue> {
        let path = match target {
            Target::Endpoint(index) => self.endpoints[usize::from(index)].path?,
            Target::NotAllowed(path) | Target::Options(path) | Target::Moved(path) => path,
            Target::OptionsAll => return Some(&self.allowed_anywhere),
            Target::NotFound(_) | Target::NotImplemented(_) | Target::Unrewritten => return None,
        };
        Some(&self.allowed[usize::from(path)].methods)
    }
}
