//! How many requests may one client make?

mod gcra;
mod table;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::Instant;

use self::gcra::{Decision, Rate};
use self::table::Table;
use crate::app::{Error, IntoResponse, Layer, Request, Response};
use crate::proxies::TrustedProxies;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// Returns the hash of a request's key; `None` if it is not limited.
type Key = dyn Fn(&Request<'_>, &RandomState) -> Option<u64> + Send + Sync;

/// Lets each client make `requests` requests in `period`, all at once or spread over it; further requests are answered 429.
///
/// It counts with the generic cell rate algorithm: after a burst of `requests`, one more may come each `period ÷ requests`. A
/// refused request costs its client nothing.
///
/// A client is the address that its connection comes from, or the network of 64 bits for IPv6. Behind a proxy it is the client
/// that [`trusted_proxies`](RateLimit::trusted_proxies) name, or the key that [`by`](RateLimit::by) returns. The peers of Unix
/// sockets have no address, and are limited only in these two ways.
///
/// Every answer has `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10): `"default";q=5;w=10`, and
/// `"default";r=4;t=2` for four more requests now and the full number again in 2 s. A 429 also has `Retry-After`.
///
/// The counters of at most [65 536 clients](RateLimit::keys_max) are kept, in one process. Beyond that, the client that has
/// used the least is forgotten.
///
/// ```
/// use std::time::Duration;
///
/// use highwater::layers::rate_limit;
/// use highwater::testing::Client;
/// use highwater::Router;
///
/// let limit = rate_limit(5, Duration::from_secs(10));
/// let client = Client::new(Router::new().layer(limit).get("/", || "Hello"));
/// let statuses: Vec<_> = (0..6).map(|_| client.get("/").status.as_u16()).collect();
/// assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
/// ```
pub fn rate_limit(requests: u32, period: Duration) -> RateLimit {
    RateLimit {
        requests,
        period,
        name: String::from("default"),
        keys_max: 65_536,
        proxies: TrustedProxies::default(),
        key: None,
    }
}

/// A layer that limits how many requests each client makes; made by [`rate_limit`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct RateLimit {
    requests: u32,
    period: Duration,
    name: String,
    keys_max: usize,
    proxies: TrustedProxies,
    key: Option<Arc<Key>>,
}

impl RateLimit {
    /// Limits by another key than the client's address; requests for which it is `None` are not limited. Return a value
    /// that a client cannot choose freely: with an unchecked field, it gets a new limit for each value.
    ///
    /// ```
    /// use std::time::Duration;
    /// use highwater::layers::rate_limit;
    ///
    /// #[derive(Clone, Hash)]
    /// struct User(u64); // Attached by a layer around this one, which has checked a token.
    ///
    /// let limit = rate_limit(100, Duration::from_secs(60)).by(|request| request.extension::<User>());
    /// ```
    pub fn by<K: Hash>(
        mut self,
        key: impl Fn(&Request<'_>) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.key = Some(Arc::new(move |request, secret| Some(secret.hash_one(key(request)?))));
        self
    }

    /// For requests that come from one of these proxies, limits the client that the proxy names (`X-Forwarded-For`,
    /// `Forwarded`).
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Names the policy in the fields of answers, where a client sees several.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// How many clients are counted, 65 536 by default. Each takes 16 bytes, which are allocated at the start.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.requests == 0 || self.period.is_zero() {
            problems.push(format!(
                "rate_limit({}, {:?}) lets no request pass; write at least 1 request, and a time",
                self.requests, self.period
            ));
        }
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            problems.push(format!(
                "rate_limit(…).name(\"{}\"): a name is visible ASCII without quotes",
                self.name.escape_debug()
            ));
        }
        if self.keys_max == 0 {
            problems.push(String::from(
                "rate_limit(…).keys_max(0) counts nobody; write how many clients there are at once",
            ));
        }
        problems
    }
}

/// What runs for each request.
struct Limiter {
    id: Id,
    settings: RateLimit,
    rate: Rate,
    table: Table,
    secret: RandomState,
    began: Instant,
    policy: HeaderValue,
}

/// What a request was told, for the fields of its answer: the state of each limit that covers its route.
#[derive(Clone, Default)]
struct States(Vec<(Id, HeaderValue)>);

/// Tells limits apart, whose policies may have the same text.
type Id = u64;

/// The id of the next limit.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Limiter {
    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let Some(key) = self.key(request) else { return ControlFlow::Continue(()) };
        let now = self.began.elapsed().as_nanos() as u64;
        let decision = self.table.update(key, |until| {
            let decision = self.rate.decide(until, now);
            (decision.until, decision)
        });
        let state = self.state(&decision);
        if decision.is_allowed {
            let mut states = request.extension::<States>().unwrap_or_default();
            states.0.push((self.id, state));
            request.insert(states);
            return ControlFlow::Continue(());
        }
        let seconds = seconds(decision.retry_after).max(1);
        let message = format!("too many requests; one more may come in {seconds} s");
        let error = Error::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
            .with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
            .with_header(POLICY, self.policy.clone())
            .with_header(STATE, state);
        ControlFlow::Break(error.into_response())
    }

    fn key(&self, request: &Request<'_>) -> Option<u64> {
        match &self.settings.key {
            Some(key) => key(request, &self.secret),
            None => {
                let fields = request.headers();
                let peer = request.peer_unnoted().map(|peer| peer.ip());
                let client = self.settings.proxies.client_by(peer, |name| fields.get_all(name))?;
                Some(self.secret.hash_one(network(client)))
            }
        }
    }

    fn state(&self, decision: &Decision) -> HeaderValue {
        let Decision { remaining, reset_after, .. } = *decision;
        let name = &self.settings.name;
        let state = format!("\"{name}\";r={remaining};t={}", seconds(reset_after));
        HeaderValue::try_from(state).expect("the name was checked")
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        let States(states) = request.extension().unwrap_or_default();
        for (_, state) in states.into_iter().filter(|(id, _)| *id == self.id) {
            response.append_header(POLICY, self.policy.clone());
            response.append_header(STATE, state);
        }
    }
}

/// The part of an address that one client has: it may choose the rest of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

/// In whole seconds, rounded up.
fn seconds(nanoseconds: u64) -> u64 {
    nanoseconds.div_ceil(1_000_000_000)
}

impl From<RateLimit> for Layer {
    fn from(limit: RateLimit) -> Layer {
        let problems = limit.problems();
        if !problems.is_empty() {
            return problems.into_iter().fold(Layer::new(), Layer::problem);
        }
        let period = u64::try_from(limit.period.as_nanos()).unwrap_or(u64::MAX);
        let (requests, window) = (u64::from(limit.requests), seconds(period));
        let policy = format!("\"{}\";q={requests};w={window}", limit.name);
        let limiter = Arc::new(Limiter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            rate: Rate { interval: (period / requests).max(1), burst: requests },
            table: Table::new(limit.keys_max),
            secret: RandomState::new(),
            began: Instant::now(),
            policy: HeaderValue::try_from(policy).expect("the name was checked"),
            settings: limit,
        });
        let asked = Arc::clone(&limiter);
        let layer = Layer::new();
        #[cfg(feature = "openapi")]
        let layer = layer.documents(document);
        layer
            .keeps_time()
            .peer_addresses()
            .on_request(move |request: &Request<'_>| asked.on_request(request))
            .on_response(move |request: &Request<'_>, response: &mut Response| {
                limiter.on_response(request, response);
            })
    }
}

/// What it adds to the document of an operation.
#[cfg(feature = "openapi")]
fn document(operation: &mut crate::app::openapi::Operation<'_>) {
    let status = StatusCode::TOO_MANY_REQUESTS;
    operation.error(status, "The client makes too many requests (`rate_limited`).");
    operation.error_header(status, "Retry-After", "In how many seconds one more may come.");
    for (name, about) in [("RateLimit-Policy", "The limit."), ("RateLimit", "What is left of it.")]
    {
        operation.error_header(status, name, about);
        operation.answer_header(name, about);
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("requests", &self.requests)
            .field("period", &self.period)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
