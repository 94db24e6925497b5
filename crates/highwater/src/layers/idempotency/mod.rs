//! Was this request applied already? Keys that clients choose make repetitions harmless.

mod fingerprint;
mod guard;
mod kept;
mod key;
#[cfg(feature = "journal")]
mod log;
#[cfg(not(feature = "journal"))]
#[path = "without_log.rs"]
mod log;
mod problems;
#[cfg(feature = "journal")]
mod record;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "journal")]
use highwater_journal::{Options, Storage};

use self::guard::{Guard, handle};
use self::log::Log;
use self::table::Limits;
use crate::app::{Layer, Request};

/// What a record and its key take beside an answer at most, in bytes.
#[cfg(feature = "journal")]
const RECORD_OVERHEAD: usize = 128 << 10;

/// Names the client of a request.
type Client = dyn Fn(&Request<'_>) -> Option<String> + Send + Sync;

/// Applies a `POST` or `PATCH` with an `Idempotency-Key` once, however often a client repeats it (draft-ietf-httpapi-idempotency-key-header-07).
///
/// The first answer to a key is kept for `lifetime` after it was given. A client that repeats the request gets this answer
/// again, with `Idempotent-Replayed: true`, and the handler does not run:
///
/// | a request | answer |
/// |---|---|
/// | with a new key | by its handler |
/// | with a known key, the same target, `Content-Type` and content | as the first time |
/// | with a known key, but otherwise different | 422 `idempotency_key_reused` |
/// | with a key whose handler still runs | 409 `idempotency_under_way`, with `Retry-After` |
/// | with a key whose handler was interrupted | 409 `idempotency_outcome_unknown` |
/// | with a key whose answer was a stream or [too large](Idempotency::answer_bytes_max) to be kept, or for which there was [no room](Idempotency::bytes_max) | 409 `idempotency_answer_not_kept` |
/// | with a key that is not a string of at most 255 characters | 400 `idempotency_key_invalid` |
/// | with a key, for a handler that takes its content as a stream | 400 `idempotency_key_unsupported` |
/// | without a key, where it is [required](Idempotency::required) | 400 `idempotency_key_missing` |
/// | with a new key, when the table or the journal is full, or its disk fails | 503 `idempotency_unavailable`, with `Retry-After` |
///
/// All but the last are problem details (RFC 9457). A key is valid for one route and one [client](Idempotency::by). Other
/// methods pass, because repeating them does no harm (RFC 9110 §9.2.2). The content is compared, so handlers have to take it
/// whole: a handler that takes a stream gets no request with a key, and no request at all where keys are required.
///
/// Every answer of a handler is kept, including errors, except 408, 425, 429 and 503: these say that nothing was applied, and
/// the key is free again.
///
/// # Guarantees
///
/// During its lifetime, a request with a key is never applied twice: keys are never forgotten to make room. If a handler is
/// dropped before its end, because its client has hung up or its timeout has passed, its request may or may not have been
/// applied. Its key is answered 409 from then on. Make such a handler [`detached`](crate::Handler::detached), so that a client
/// that hangs up does not end it, and give it a [`timeout`](crate::Handler::timeout) that is long enough, because a timeout
/// still ends it. Or allow it to run again, with [`retry_interrupted`](Idempotency::retry_interrupted).
///
/// In memory, keys last as long as the process. With the feature `journal`, `Idempotency::journal` keeps them on a disk, and
/// the guarantee survives `kill -9`.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
///
/// use highwater::layers::idempotency;
/// use highwater::testing::Client;
/// use highwater::{Method, Router};
///
/// static ORDERS: AtomicU32 = AtomicU32::new(0);
/// let order = || format!("order {}", ORDERS.fetch_add(1, Ordering::Relaxed) + 1);
/// let once = idempotency(Duration::from_secs(24 * 3600));
/// let client = Client::new(Router::new().layer(once).post("/orders", order));
/// for key in ["a", "a", "b"] {
///     let answer = client.request(Method::POST, "/orders").header("idempotency-key", key).send();
///     assert_eq!(answer.text(), if key == "a" { "order 1" } else { "order 2" });
/// }
/// ```
pub fn idempotency(lifetime: Duration) -> Idempotency {
    Idempotency {
        lifetime,
        is_required: false,
        retries_interrupted: false,
        keys_max: 65_536,
        bytes_max: 64 << 20,
        answer_bytes_max: 64 << 10,
        manual: None,
        client: None,
        log: None,
        problems: Vec::new(),
    }
}

/// A layer that applies requests once; made by [`idempotency`].
#[must_use = "give it to `Router::layer`"]
pub struct Idempotency {
    lifetime: Duration,
    is_required: bool,
    retries_interrupted: bool,
    keys_max: usize,
    bytes_max: usize,
    answer_bytes_max: usize,
    manual: Option<String>,
    client: Option<Arc<Client>>,
    log: Option<Log>,
    problems: Vec<String>,
}

/// The key of the request, as [`Extension<IdempotencyKey>`](crate::Extension), where [`idempotency`] covers the handler and the client has
/// sent one. A handler that writes it into its database, in the transaction that applies the request, can tell a
/// repetition even after a crash; then [`Idempotency::retry_interrupted`] is right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// The key, without quotes. Clients choose keys, so two of them may have chosen the same.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Idempotency {
    /// Refuses requests without a key.
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Names the client of a request, so that clients cannot get each other's answers: return a value that an outer layer has
    /// checked. The name must stay the same for as long as the client repeats requests, so do not use a token that changes.
    /// Requests with `None` share one set of keys. A name has at most 1024 bytes; a longer one is answered 500.
    ///
    /// Without it, a client that sends the key and the content of another client's request gets that client's answer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use highwater::layers::idempotency;
    ///
    /// #[derive(Clone)]
    /// struct User(u64); // Attached by a layer around this one, which has checked a token.
    ///
    /// let once = idempotency(Duration::from_secs(3600))
    ///     .by(|request| Some(request.extension::<User>()?.0.to_string()));
    /// ```
    pub fn by(
        mut self,
        client: impl Fn(&Request<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.client = Some(Arc::new(client));
        self
    }

    /// The URL of the page that tells clients how the operation uses keys: `type` and the field `Link` of refusals.
    pub fn documented_at(mut self, url: &str) -> Self {
        self.manual = Some(url.to_owned());
        self
    }

    /// Lets an interrupted handler run again, after a client hung up, a timeout passed or the process ended. It is for handlers
    /// that can tell whether they have applied a request, for example by [`IdempotencyKey`]. Otherwise the key of an
    /// interrupted handler is answered 409 until its lifetime ends, because running the handler again might apply the request
    /// twice.
    pub fn retry_interrupted(mut self) -> Self {
        self.retries_interrupted = true;
        self
    }

    /// How many keys are kept, 65 536 by default. Beyond it new keys are answered 503.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }

    /// How many bytes of memory keys and answers take, 64 MiB by default. Answers take at most half of it; of further answers
    /// only the status is kept, so that a repetition is answered 409. When keys have used up the rest, new keys are answered
    /// 503.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// The largest answer that is kept, in bytes, 64 KiB by default. Of a larger answer only the status is kept, and a
    /// repetition is answered 409.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Keeps keys in a journal, so that they survive the end of the process, even by `kill -9`. This opens the journal; give
    /// the layer a folder of its own. If the journal cannot be opened, that is reported when the application is built.
    ///
    /// A new key is durable before its handler begins, and its answer is durable before the client gets it. If the process was
    /// killed in between, it is unknown whether the handler has applied the request. The key is then answered 409 until its
    /// lifetime ends, unless [`retry_interrupted`](Idempotency::retry_interrupted) allows the handler to run again.
    ///
    /// Records are removed once they are older than the lifetime, a whole segment at a time; `options.bytes_max` limits the
    /// size of the journal; beyond it, new keys are answered 503. Each key waits for two syncs, which concurrent requests
    /// share.
    ///
    /// ```
    /// use std::time::Duration;
    /// use highwater::journal::{Directory, Options};
    /// use highwater::layers::idempotency;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("keys");
    /// let mut options = Options::default();
    /// options.bytes_max = Some(1 << 30);
    /// let once = idempotency(Duration::from_secs(24 * 3600)).journal(Directory::open(path)?, options);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "journal")]
    pub fn journal(mut self, storage: impl Storage, options: Options) -> Self {
        match Log::open(storage, options, self.lifetime) {
            Ok(log) => self.log = Some(log),
            Err(problem) => self.problems.push(problem),
        }
        self
    }

    fn limits(&self) -> Limits {
        let lifetime_us = u64::try_from(self.lifetime.as_micros()).unwrap_or(u64::MAX);
        Limits { lifetime_us, keys_max: self.keys_max, bytes_max: self.bytes_max }
    }

    fn find_problems(&mut self) {
        let mut found = |problem: String| self.problems.push(problem);
        if self.lifetime.is_zero() {
            found(String::from(
                "idempotency(0) keeps no key; write for how long clients repeat requests, such as a day",
            ));
        }
        if self.keys_max == 0 || self.bytes_max < 1024 {
            found(format!(
                "idempotency(…): keys_max is {} and bytes_max is {}, so no key is taken; write at least 1 key and 1024 bytes",
                self.keys_max, self.bytes_max
            ));
        }
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\<>".contains(&byte);
        if let Some(url) = self.manual.as_ref().filter(|url| !url.bytes().all(is_plain)) {
            found(format!(
                "idempotency(…).documented_at(\"{}\"): write a URL, in ASCII without spaces and quotes",
                url.escape_debug()
            ));
        }
        #[cfg(feature = "journal")]
        if let Some(log) = &self.log {
            let most = log.record_bytes_max().saturating_sub(RECORD_OVERHEAD);
            if self.answer_bytes_max > most {
                found(format!(
                    "idempotency(…): answer_bytes_max is {}, and a record of the journal has room for {most}; write less, or more in \
                     the journal's `batch_bytes_max`",
                    self.answer_bytes_max
                ));
            }
        }
    }
}

impl From<Idempotency> for Layer {
    fn from(mut settings: Idempotency) -> Layer {
        settings.find_problems();
        let mut problems = std::mem::take(&mut settings.problems);
        let guard = if problems.is_empty() {
            Guard::new(settings).map_err(|problem| problems.push(problem)).ok()
        } else {
            None
        };
        let Some(guard) = guard else {
            return problems.into_iter().fold(Layer::new(), Layer::problem);
        };
        #[cfg(feature = "openapi")]
        let is_required = guard.is_required();
        let guard = Arc::new(guard);
        let layer =
            Layer::new().around(move |request, next| handle(Arc::clone(&guard), request, next));
        #[cfg(feature = "openapi")]
        let layer = layer.documents(move |operation: &mut crate::app::openapi::Operation<'_>| {
            problems::document(operation, is_required);
        });
        layer
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("lifetime", &self.lifetime)
            .field("is_required", &self.is_required)
            .field("retries_interrupted", &self.retries_interrupted)
            .field("keys_max", &self.keys_max)
            .field("bytes_max", &self.bytes_max)
            .field("answer_bytes_max", &self.answer_bytes_max)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
