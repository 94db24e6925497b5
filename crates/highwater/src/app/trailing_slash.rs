//! Is a path with a slash at its end another path?

/// How to answer a path that has no route, but would have one with a slash at its end, or without the slash that it has.
/// For [`Router::trailing_slash`](super::Router::trailing_slash).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailingSlash {
    /// It is another path: 404, or the fallback.
    #[default]
    Strict,
    /// The client is redirected to the path that has a route, with the query: 308, so that method and content stay the
    /// same.
    Redirect,
    /// It is answered by that route.
    Ignore,
}
