//! Answers that several instances of a service keep together, in Redis.
//!
//! ```text
//!  request ─▶ link.rs, at most a deadline ┬▶ fresh                    ─▶ the kept answer
//!                                         ├▶ stale, somebody renews it ─▶ the kept answer
//!                                         └▶ nothing, late or down     ─▶ the handler ─▶ entry.rs ─▶ kept, behind the answer
//! ```
//!
//! No request fails because of Redis: without it, handlers run.

mod entry;
mod link;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, StatusCode};

use self::link::{Found, Link};
use super::kept::{Kept, Times, changed_keys, has_changed, key, wants_fresh};
use super::{ResponseCache, watch};
use crate::app::{Layer, Next, OwnedRequest, Response};
use crate::metrics::Metrics;

/// How long a request waits for Redis by default. A guess: a network's round trip is below a millisecond, and a
/// handler that is worth a cache takes longer than this.
const DEADLINE: Duration = Duration::from_millis(50);
/// The longest deadline: a longer wait defeats the purpose of a cache.
const DEADLINE_MAX: Duration = Duration::from_secs(5);

/// The longest version, in bytes: it stands in every key.
const VERSION_BYTES_MAX: usize = 64;

/// Redis as the storage of [`response_cache`](super::response_cache), for all instances of a service with the same server
/// and version. For `response_cache(…).redis(…)`; needs the feature `redis`.
///
/// Each process has one connection for a store and its clones, on a thread of its own; a broken connection is replaced. A
/// request waits for Redis at most 50 ms ([`deadline`](RedisStore::deadline)), and no request fails because of it: if Redis
/// is down, hangs or answers with an error, handlers run, and once a deadline has passed, no request waits until Redis
/// answers again. The start and the end of an outage are logged once each; [`metrics`](RedisStore::metrics) counts
/// requests.
///
/// When a request has changed its target, the kept answer is removed before the client is answered; if Redis does not do that
/// within the deadline, the old answer stays until its time is over. An answer is stored after it was given to its client,
/// unless the answer to a later request was stored, or its target was changed while its handler ran, within the last minute.
/// Redis removes it when its lifetime and the time for which it may be stale are over, by its own clock. Answers of more than 1
/// MiB, or with more than 64 KiB of fields, are not kept, at most 64 writes of a process are in progress, and while 1024
/// requests wait for Redis, further ones do not use it. Give Redis a `maxmemory` and the policy `allkeys-lru` or
/// `volatile-ttl`.
///
/// Anyone who can write to this Redis decides what clients get: let the service alone use it, or set a password.
///
/// ```no_run
/// use std::time::Duration;
///
/// use highwater::Router;
/// use highwater::layers::{RedisStore, response_cache};
/// use highwater::metrics::Metrics;
///
/// let metrics = Metrics::new();
/// let store = RedisStore::new("redis://cache.internal:6379/0").version("shop-7").metrics(&metrics);
/// let cache = response_cache(Duration::from_secs(60))
///     .stale_while_revalidate(Duration::from_secs(30))
///     .redis(store);
/// let app = Router::new().layer(cache).get("/articles", || "all of them");
/// # app.build().unwrap();
/// ```
#[derive(Clone)]
#[must_use = "give it to `ResponseCache::redis`"]
pub struct RedisStore {
    url: String,
    version: String,
    deadline: Duration,
    metrics: Option<Metrics>,
    /// Made when it is first given to a router; clones share it.
    link: Arc<OnceLock<Result<Link, String>>>,
}

impl RedisStore {
    /// Redis at `url`: `redis://user:password@host:port/database`. It need not be reachable yet. An invalid URL is refused
    /// when the application is built.
    pub fn new(url: impl Into<String>) -> Self {
        RedisStore {
            url: url.into(),
            version: String::from("1"),
            deadline: DEADLINE,
            metrics: None,
            link: Arc::default(),
        }
    }

    /// The prefix of all keys; `1` by default. Instances with the same version share answers. Use the application's name,
    /// and change the version with a release whose answers differ, so that no old answer is served. At most 64 bytes,
    /// without spaces.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// How long a request waits for Redis before its handler runs: 50 ms by default, at most 5 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Counts requests on the metrics page (`response_cache_requests_total`, with the `result` `hit`, `stale`,
    /// `miss` or `failed`) and answers to be stored (`response_cache_writes_total`: `stored`, `failed`,
    /// `dropped`, as those that are older than what is there). A store and its clones count together; give them to all layers of the application.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let is_fine = |byte: u8| byte.is_ascii_graphic();
        if self.version.is_empty()
            || self.version.len() > VERSION_BYTES_MAX
            || !self.version.bytes().all(is_fine)
        {
            problems.push(format!(
                "RedisStore::version(\"{}\"): write 1 to {VERSION_BYTES_MAX} visible ASCII characters, such as `shop-7`",
                self.version.escape_debug()
            ));
        }
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            problems.push(format!(
                "RedisStore::deadline({:?}): write more than nothing, and at most {DEADLINE_MAX:?}",
                self.deadline
            ));
        }
        problems
    }

    /// The way to Redis, which begins to connect.
    fn link(&self) -> Result<&Link, String> {
        let made = || Link::new(&self.url, self.deadline, self.metrics.as_ref());
        self.link.get_or_init(made).as_ref().map_err(Clone::clone)
    }
}

/// What runs for each request.
struct Cache {
    store: RedisStore,
    times: Times,
}

impl Cache {
    /// The key of an answer. Its own format has a version, too: instances of two releases of Highwater may run side by side.
    fn key(&self, asked: &str) -> String {
        format!("highwater:answer:{}:{}:{asked}", entry::FORMAT, self.store.version)
    }

    async fn answer(self: Arc<Self>, request: OwnedRequest, next: Next) -> Response {
        let Some(link) = self.store.link().ok() else { return next.run(request).await };
        let Some(asked) = key(&request) else {
            return self.change(link, request, next).await;
        };
        let key = self.key(&asked);
        let is_get = request.method() == Method::GET;
        let (found, begun) = match wants_fresh(&request) {
            true => (Found::Nothing, link.now().await),
            false => link.find(&key, self.times, is_get).await,
        };
        let stale = match found {
            Found::Kept(kept, age) => return kept.answer(&request, age),
            Found::Stale(kept) => Some(kept),
            Found::Nothing => None,
        };
        let personal = watch(&request);
        let response = next.run(request).await;
        // Where Redis has not said when the request came, nobody knows what its answer is newer than.
        let Some(begun) = begun.filter(|_| is_get && !personal.is_set()) else { return response };
        match (stale, response.status()) {
            (Some(mut stale), StatusCode::NOT_MODIFIED) => {
                match stale.renew(&response, self.times) {
                    true => link.keep(key, &stale, begun),
                    false => link.end_turn(&key).await,
                }
            }
            _ => {
                if let Some(kept) = Kept::of(&response, self.times) {
                    link.keep(key, &kept, begun);
                }
            }
        }
        response
    }

    /// Answers a request that gets no kept answer. Those that it makes outdated are removed before its client learns of the change.
    async fn change(&self, link: &Link, request: OwnedRequest, next: Next) -> Response {
        let changed = changed_keys(&request);
        let response = next.run(request).await;
        if let Some(changed) = changed.filter(|_| has_changed(&response)) {
            link.forget(&changed.map(|asked| self.key(&asked)), self.times).await;
        }
        response
    }
}

/// The parts of a layer that keeps answers in Redis.
pub(super) fn layer(settings: &ResponseCache, store: &RedisStore) -> Layer {
    let mut problems = store.problems();
    if problems.is_empty() {
        problems.extend(store.link().err());
    }
    let cache = Arc::new(Cache { store: store.clone(), times: settings.times() });
    let layer = Layer::new().around(move |request, next| Arc::clone(&cache).answer(request, next));
    problems.into_iter().fold(layer, Layer::problem)
}

impl fmt::Debug for RedisStore {
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("version", &self.version)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
