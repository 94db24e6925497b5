//! One event for each answer.

use std::sync::Arc;

use tracing::info;

use crate::app::layer::Ended;
use crate::app::{Layer, Request};

/// Whether a request is not logged.
type Skip = dyn Fn(&Request<'_>) -> bool + Send + Sync;

/// Emits an event for each answer when its last byte was given to the connection: level INFO, target `highwater::access`,
/// message `answered`.
///
/// | field | value |
/// |---|---|
/// | `method`, `path` | as sent, before [rewrites](crate::Router::rewrite); the query, which often holds secrets, only [if asked for](AccessLog::with_query) |
/// | `route` | the pattern of the route; empty if there is none |
/// | `status` | of the answer |
/// | `bytes` | of the answer, head included, that were given to the connection |
/// | `micros` | from when the request could have been started to the end |
/// | `complete` | whether all of it was given to the connection |
/// | `peer` | the address that the connection came from |
/// | `agent` | `User-Agent` |
/// | `request_id` | the id that the layer [`request_id`](super::request_id) assigned, if it is used |
///
/// It covers everything: refusals, 404s and [`fixed`](crate::fixed) answers, too. A value from the client cannot end its line.
/// Each event costs a copy of the request's head, and the time of the subscriber.
///
/// ```
/// use highwater::layers::access_log;
/// use highwater::Router;
///
/// let log = access_log().skip(|request| request.path() == "/health");
/// let app = Router::new().layer(log).get("/", || "Hello");
/// # app.build().unwrap();
/// ```
pub fn access_log() -> AccessLog {
    AccessLog { with_query: false, skip: None }
}

/// A layer that logs answers; made by [`access_log`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct AccessLog {
    with_query: bool,
    skip: Option<Arc<Skip>>,
}

impl AccessLog {
    /// Logs the whole target of a request, with its query.
    pub fn with_query(mut self) -> Self {
        self.with_query = true;
        self
    }

    /// Does not log requests for which `test` is true.
    pub fn skip(mut self, test: impl Fn(&Request<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.skip = Some(Arc::new(test));
        self
    }

    fn log(&self, request: &Request<'_>, ended: &Ended) {
        if self.skip.as_ref().is_some_and(|skip| skip(request)) {
            return;
        }
        let method = request.method();
        let path =
            if self.with_query { request.original_target() } else { request.original_path() };
        info!(
            target: "highwater::access",
            method = method.as_str(),
            path,
            route = request.matched_path().unwrap_or_default(),
            status = ended.status().as_u16(),
            bytes = ended.bytes(),
            micros = ended.duration().as_micros() as u64,
            complete = ended.is_complete(),
            peer = request.peer_unnoted().map(tracing::field::display),
            agent = request.header("user-agent").unwrap_or_default(),
            request_id = request.id(),
            "answered"
        );
    }
}

impl From<AccessLog> for Layer {
    fn from(log: AccessLog) -> Layer {
        Layer::new()
            .on_end(move |request: &Request<'_>, ended: &Ended| log.log(request, ended))
            .everywhere()
            .peer_addresses()
    }
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog").field("with_query", &self.with_query).finish_non_exhaustive()
    }
}
