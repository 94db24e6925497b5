//! Has the same been answered a moment ago?

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use crate::app::{Layer, Request, Response};

/// The largest content that is kept, in bytes.
const CONTENT_BYTES_MAX: usize = 1 << 20;

/// How long one request may take to renew an answer before another one tries.
const RENEWAL_MAX: Duration = Duration::from_secs(5);

/// Keeps answers for `lifetime`, and gives them to everybody who asks for the same host, path and query: with `Age`, and without
/// its handler.
///
/// What is kept is the whole answer 200 to a `GET`, of at most 1 MiB, and `HEAD` is answered by it. Left alone are requests with
/// `Authorization`, `Cookie`, `Range`, or `Cache-Control: no-cache` or `no-store`, and answers with `Set-Cookie`, `Vary`, or `Cache-Control:
/// private`, `no-store` or `no-cache`: they are not for everybody. An answer that depends on anything else of the request
/// has to say so in `Vary`.
///
/// At most 1024 answers and 64 MiB are kept, in one process; those that nobody asks for go first. Layers around this one see
/// each answer, those within only what handlers make: so compression belongs around it.
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
    ResponseCache { lifetime, stale: Duration::ZERO, entries_max: 1024, bytes_max: 64 << 20 }
}

/// A layer that keeps answers; made by [`response_cache`].
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::layer`"]
pub struct ResponseCache {
    lifetime: Duration,
    stale: Duration,
    entries_max: usize,
    bytes_max: usize,
}

impl ResponseCache {
    /// Goes on giving an answer for this long after its lifetime while one request renews it, so that nobody else waits for
    /// its handler (RFC 5861 §3).
    pub fn stale_while_revalidate(mut self, stale: Duration) -> Self {
        self.stale = stale;
        self
    }

    /// How many answers are kept, 1024 unless it is said.
    pub fn entries_max(mut self, entries: usize) -> Self {
        self.entries_max = entries;
        self
    }

    /// How many bytes of content are kept, 64 MiB unless it is said.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
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

/// A kept answer.
struct Kept {
    fields: Vec<(HeaderName, HeaderValue)>,
    content: Bytes,
    stored: Instant,
    /// When a request began to renew it.
    renewing: Option<Instant>,
}

impl Kept {
    fn response(&self, age: Duration) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.content.clone());
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        response.set_header(header::AGE, HeaderValue::from(age.as_secs()));
        response
    }
}

/// Kept answers, in two halves: when the young one is full, it becomes the old one, whose entries are dropped. An answer that is
/// asked for moves back to the young one.
#[derive(Default)]
struct Store {
    young: HashMap<Box<str>, Kept>,
    old: HashMap<Box<str>, Kept>,
    young_bytes: usize,
}

impl Store {
    fn find(&mut self, key: &str, limits: &ResponseCache) -> Option<&mut Kept> {
        if let Some((key, kept)) = self.old.remove_entry(key) {
            self.put(key, kept, limits);
        }
        self.young.get_mut(key)
    }

    fn put(&mut self, key: Box<str>, kept: Kept, limits: &ResponseCache) {
        let size = kept.content.len();
        if self.young.len() >= limits.entries_max / 2
            || self.young_bytes + size > limits.bytes_max / 2
        {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if size <= limits.bytes_max / 2 {
            self.old.remove(&key);
            self.young_bytes += size;
            let before = self.young.insert(key, kept);
            self.young_bytes -= before.map_or(0, |before| before.content.len());
        }
    }
}

/// What runs for each request.
struct Cache {
    settings: ResponseCache,
    store: Mutex<Store>,
}

impl Cache {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let Some(key) = key(request) else { return ControlFlow::Continue(()) };
        let mut store = self.store();
        let Some(kept) = store.find(&key, &self.settings) else { return ControlFlow::Continue(()) };
        let now = Instant::now();
        let age = now.duration_since(kept.stored);
        if age < self.settings.lifetime {
            return ControlFlow::Break(kept.response(age));
        }
        let is_renewed = kept.renewing.is_some_and(|since| now.duration_since(since) < RENEWAL_MAX);
        if age < self.settings.lifetime + self.settings.stale && is_renewed {
            return ControlFlow::Break(kept.response(age));
        }
        kept.renewing = Some(now);
        ControlFlow::Continue(())
    }

    fn on_response(&self, request: &Request<'_>, response: &Response) {
        let Some(key) = key(request).filter(|_| request.method() == Method::GET) else { return };
        let Some(content) = for_everybody(response) else { return };
        let field = |(name, value): (&str, &[u8])| {
            HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
        };
        let fields = response.headers().filter_map(field).collect();
        let content = Bytes::copy_from_slice(content);
        let kept = Kept { fields, content, stored: Instant::now(), renewing: None };
        self.store().put(key.into(), kept, &self.settings);
    }
}

/// What a request asks for, if the answer may be the same for everybody.
fn key(request: &Request<'_>) -> Option<String> {
    let fields = request.headers();
    let is_own = ["authorization", "cookie", "range"].iter().any(|name| fields.get(name).is_some());
    let is_fresh = request
        .header("cache-control")
        .is_some_and(|value| names(value, &["no-cache", "no-store"]));
    if is_own || is_fresh || !matches!(request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let (host, target) = (request.header("host").unwrap_or_default(), request.target());
    Some(match request.original_target() {
        sent if sent == target => format!("{host}\n{target}"),
        // What was sent may be a part of the answer, in its links.
        sent => format!("{host}\n{target}\n{sent}"),
    })
}

/// The content of an answer that may be given to others.
fn for_everybody(response: &Response) -> Option<&[u8]> {
    let content =
        response.body().as_bytes().filter(|content| content.len() <= CONTENT_BYTES_MAX)?;
    let control =
        response.header("cache-control").and_then(|value| std::str::from_utf8(value).ok());
    let is_own = response.header("set-cookie").is_some()
        || response.header("vary").is_some()
        || control.is_some_and(|value| names(value, &["private", "no-store", "no-cache"]));
    (response.status() == StatusCode::OK && !is_own).then_some(content)
}

/// Whether one of these directives is in `Cache-Control`.
fn names(value: &str, directives: &[&str]) -> bool {
    let mut given = value.split(',').map(|one| one.split('=').next().unwrap_or_default().trim());
    given.any(|one| directives.iter().any(|directive| one.eq_ignore_ascii_case(directive)))
}

impl From<ResponseCache> for Layer {
    fn from(settings: ResponseCache) -> Layer {
        let problems = settings.problems();
        let cache = Arc::new(Cache { settings, store: Mutex::default() });
        let asked = Arc::clone(&cache);
        let layer = Layer::new()
            .keeps_time()
            .on_request(move |request: &Request<'_>| asked.on_request(request))
            .on_response(move |request: &Request<'_>, response: &mut Response| {
                cache.on_response(request, response);
            });
        problems.into_iter().fold(layer, Layer::problem)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("settings", &self.settings).finish_non_exhaustive()
    }
}
