//! Was the same request answered a moment ago?
//!
//! ```text
//!  request ─▶ kept.rs     may it have a kept answer, and which?
//!          ─▶ memory.rs   those of this process, at once
//!           │ redis/      those of all instances, if they come in time
//!          ─▶ its handler, whose answer is kept
//! ```

mod kept;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::time::Duration;

use self::kept::Times;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
use crate::app::{Layer, Personal, Request};

/// How long one request may take to renew an answer before another one tries.
const RENEWAL_MAX: Duration = Duration::from_secs(5);

/// Stores answers for `lifetime`, and serves them to everyone who requests the same host, path and query: with `Age`, and
/// without running the handler.
///
/// The cache keeps whole answers of at most 1 MiB, with status 200, to `GET`; they also answer `HEAD`. These are not cached,
/// because they may be private to one client:
///
/// - requests with content;
/// - requests with `Authorization`, `Cookie`, `Range`, `If-Match`, `If-Unmodified-Since`, or `Cache-Control: no-store`;
/// - answers with `Set-Cookie`, `Vary`, or `Cache-Control: private`, `no-store` or `no-cache`;
/// - answers of handlers that take a `CsrfToken`, [`PeerAddr`](crate::PeerAddr) or
///   [`PeerCertificates`](crate::PeerCertificates), or that call [`Request::peer`](crate::Request::peer) or
///   [`Request::client`](crate::Request::client), also in inner layers;
/// - answers of `tower` services, and of handlers in `tower` layers, to clients with certificates, which these may have read.
///
/// Clients with certificates share no answers with clients without.
///
/// An answer that depends on anything else, such as the scheme, or a value that a layer has attached for an
/// [`Extension`](crate::Extension), needs `Vary` or `Cache-Control: private`; otherwise all clients get it.
///
/// `lifetime` is a maximum. An answer with a shorter freshness (`Cache-Control: s-maxage`, `max-age`, `Expires`) is kept for
/// that time, and not at all with `max-age=0`. A client that already has the kept answer, by `If-None-Match` or
/// `If-Modified-Since`, is answered 304.
///
/// An answer is as old as its request: a slow answer does not replace the answer to a later request. A request with
/// `Cache-Control: no-cache` reaches the handler, and its answer is kept. A request that succeeds with another method than
/// `GET`, `HEAD`, `OPTIONS` or `TRACE` removes the answer of its own target (RFC 9111 §4.4), but no other.
///
/// At most 1024 answers and 64 MiB are kept, in one process; the least recently requested are removed first. With the feature
/// `redis`, `response_cache(…).redis(…)` keeps them for several instances. Outer layers see every answer, inner layers only the
/// answers of handlers; so compression belongs outside of this layer.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
///
/// use highwater::Router;
/// use highwater::layers::response_cache;
/// use highwater::testing::Client;
///
/// static CALLS: AtomicU32 = AtomicU32::new(0);
/// let count = || (CALLS.fetch_add(1, Ordering::Relaxed) + 1).to_string();
/// let cache = response_cache(Duration::from_secs(60));
/// let client = Client::new(Router::new().layer(cache).get("/", count));
/// assert_eq!(client.get("/").text(), "1");
/// let again = client.get("/");
/// assert_eq!((again.text(), again.header("age")), ("1", Some("0")));
/// ```
pub fn response_cache(lifetime: Duration) -> ResponseCache {
    ResponseCache {
        lifetime,
        stale: Duration::ZERO,
        entries_max: 1024,
        bytes_max: 64 << 20,
        #[cfg(feature = "redis")]
        redis: None,
    }
}

/// A layer that keeps answers; made by [`response_cache`].
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::layer`"]
pub struct ResponseCache {
    lifetime: Duration,
    stale: Duration,
    entries_max: usize,
    bytes_max: usize,
    #[cfg(feature = "redis")]
    redis: Option<RedisStore>,
}

impl ResponseCache {
    /// Keeps serving an answer for this long after its lifetime while one request renews it, so that no other request waits
    /// for its handler (RFC 5861 §3). Answers with `must-revalidate`, `proxy-revalidate` or `s-maxage` are never served
    /// stale.
    pub fn stale_while_revalidate(mut self, stale: Duration) -> Self {
        self.stale = stale;
        self
    }

    /// Keeps the answers in Redis, for all instances of a service, instead of in this process: see [`RedisStore`].
    ///
    /// `entries_max` and `bytes_max` have no effect then: Redis removes each answer when its time is over, and obeys its own
    /// `maxmemory`.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: RedisStore) -> Self {
        self.redis = Some(store);
        self
    }

    /// How many answers are kept: 1024 by default.
    pub fn entries_max(mut self, entries: usize) -> Self {
        self.entries_max = entries;
        self
    }

    /// How many bytes the answers may take, with their fields and targets: 64 MiB by default.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    fn times(&self) -> Times {
        Times { lifetime: self.lifetime, stale: self.stale }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.lifetime.is_zero() {
            problems.push(String::from(
                "response_cache(0) keeps nothing; write how long an answer may be old, or leave the layer out",
            ));
        }
        if self.entries_max < 2 || self.bytes_max < 2 {
            problems.push(String::from(
                "response_cache(…): `entries_max` and `bytes_max` are at least 2, or nothing is kept",
            ));
        }
        problems
    }
}

/// Begins to watch whether the request's answer is for its client alone, before handlers and inner layers see the request.
fn watch(request: &Request<'_>) -> Personal {
    request.extension().unwrap_or_else(|| {
        let personal = Personal::new();
        request.insert(personal.clone());
        personal
    })
}

impl From<ResponseCache> for Layer {
    fn from(settings: ResponseCache) -> Layer {
        let problems = settings.problems();
        #[cfg(feature = "redis")]
        if let Some(store) = &settings.redis {
            return problems.into_iter().fold(redis::layer(&settings, store), Layer::problem);
        }
        let layer = memory::layer(settings);
        problems.into_iter().fold(layer, Layer::problem)
    }
}
