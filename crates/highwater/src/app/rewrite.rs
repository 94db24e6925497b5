//! Paths that are rewritten before their route is found.

use super::rewrite_rules::{Rewrite, Rewriting};
use super::router::Router;

impl Router {
    /// Looks up the route of each path at or below `from` with `to` in place of `from`: with `rewrite_prefix("/v1",
    /// "/api")`, `/v1/todos` is answered by the route for `/api/todos`, and `/v1` by that for `/api`; `/v12` is another
    /// path. With `/` as `from` it puts `to` in front of every path, and with `/` as `to` it takes `from` away. The query
    /// stays.
    ///
    /// Prefixes are compared as they arrive: `/%761` is not `/v1`. Everything else is as with [`rewrite`](Router::rewrite).
    /// A prefix that is rewritten to itself is an exception to the rules that follow.
    ///
    /// ```
    /// use highwater::{Path, Router};
    ///
    /// let app = Router::new()
    ///     .rewrite_prefix("/v1", "/api")
    ///     .get("/api/todos/{id}", |Path(id): Path<u64>| id.to_string()); // also `/v1/todos/7`
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn rewrite_prefix(mut self, from: &str, to: &str) -> Self {
        self.rewrites.push(Rewrite::Prefix(from.into(), to.into()));
        self
    }

    /// Looks up the route of a request by the path that `function` returns, instead of the path that was sent; with `None`,
    /// the next rule is tried. The first rule that applies decides, and its path is not rewritten again.
    ///
    /// The path is percent-encoded, and the query that was sent is kept unless the path has its own, after a `?`. If the
    /// path could not have been sent by a client (it does not begin with a slash, it contains a space, a `#` or a
    /// backslash, or it has more than 64 KiB), the request is answered 400. If the function panics, the request is answered
    /// 500. It is called on the worker for every request with a path, including requests that are then refused or answered
    ///    404, so it should be quick.
    ///
    /// Layers, extractors and services of tower see the new target: [`Request::path`](super::Request::path), `Uri`,
    /// parameters. [`OriginalUri`](super::OriginalUri) and [`Request::original_target`](super::Request::original_target)
    /// are the target that was sent; the access log and spans show it as well. Metrics count by the route that was found.
    /// Rules are for the outermost router, and apply to the whole application.
    ///
    /// ```
    /// use highwater::{OriginalUri, Rewriting, Router, Uri};
    ///
    /// /// One site for each host.
    /// fn by_host(asked: &Rewriting<'_>) -> Option<String> {
    ///     match asked.hostname()? {
    ///         "shop.example" => Some(format!("/shop{}", asked.path())),
    ///         _ => None,
    ///     }
    /// }
    ///
    /// let app = Router::new()
    ///     .rewrite(by_host)
    ///     .get("/shop/", |OriginalUri(sent): OriginalUri, uri: Uri| format!("{sent} is {uri}"));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn rewrite<F>(mut self, function: F) -> Self
    where
        F: Fn(&Rewriting<'_>) -> Option<String> + Send + Sync + 'static,
    {
        self.rewrites.push(Rewrite::Function(Box::new(function)));
        self
    }
}
