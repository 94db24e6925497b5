//! Where does a request go?

/// The target of a request, found by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An endpoint, as an index into [`App::endpoints`](super::App::endpoints).
    Endpoint(u16),
    /// No route has this path; the index is the scope that answers 404.
    NotFound(ScopeId),
    /// The path exists, the method does not.
    NotAllowed(PathId),
    /// The path exists, and the method is none we know of.
    NotImplemented(ScopeId),
    /// The path exists with a slash at its end, or without the one that was sent; the client is sent there.
    Moved(PathId),
    /// A rewrite has made no path of the one that was sent.
    Unrewritten,
    /// `OPTIONS` of a path.
    Options(PathId),
    /// `OPTIONS *`.
    OptionsAll,
}

impl Target {
    /// The endpoint, if there is one.
    #[inline]
    pub(crate) fn endpoint(self) -> Option<u16> {
        match self {
            Target::Endpoint(endpoint) => Some(endpoint),
            _ => None,
        }
    }
}

/// A path's index: that of its `route::RouteId`.
pub(super) type PathId = u16;

/// The index of a router's scope. The outermost router's is 0.
pub(super) type ScopeId = u16;
