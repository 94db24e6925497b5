//! Polls the provider's feed, on a thread of its own.
//!
//! No failure of the provider reaches a client: a poll either adds to the catalog or leaves it
//! unchanged. Every poll is reported. After a failure the next poll comes sooner than the interval,
//! with growing pauses ([`delay::next_delay`]).
//!
//! [`Poller::stop`] is prompt: it closes the connection that a download waits for. It may have to
//! wait for a name lookup or a TCP connect ([`Settings::connect_timeout`] bounds each), or for the
//! store's current transaction.

pub mod delay;
mod download;
mod report;
mod stats;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use self::delay::next_delay;
pub use self::download::parse_url;
use self::download::{Download, Validators};
pub use self::report::Report;
pub use self::stats::PollStats;
use crate::catalog::{Applied, Catalog};
use crate::feed::{Feed, Limits, Stats};

/// How the provider is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the feed is: `http://` or `https://`.
    pub url: String,
    /// Certificate authorities to trust instead of the public ones, in PEM; `None` for the public
    /// ones, which are compiled in (webpki-roots), so that a machine without any works too.
    pub authorities: Option<Vec<u8>>,
    /// From the start of one successful poll to the start of the next.
    pub interval: Duration,
    /// The first failure's longest pause; it doubles with each further failure, up to `interval`.
    pub retry_base: Duration,
    /// For looking the name up, and again for connecting (TLS included).
    pub connect_timeout: Duration,
    /// Without a byte from the provider.
    pub read_timeout: Duration,
    /// For one whole poll's download, redirects included.
    pub total_timeout: Duration,
    /// Bytes of a feed, both as sent and after decompression.
    pub body_bytes_max: u64,
    /// What the feed's contents are held to.
    pub limits: Limits,
}

impl Settings {
    /// The defaults for this URL: every 5 minutes; 1 s, 5 s, 10 s and 60 s; 64 MiB.
    pub fn new(url: impl Into<String>) -> Settings {
        Settings {
            url: url.into(),
            authorities: None,
            interval: Duration::from_secs(300),
            retry_base: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(10),
            total_timeout: Duration::from_secs(60),
            body_bytes_max: 64 << 20,
            limits: Limits::default(),
        }
    }
}

/// Called after every poll, on the poller's thread.
pub type Listener = Box<dyn FnMut(&Report<'_>) + Send>;

/// How one poll went.
#[derive(Debug)]
pub enum Outcome {
    /// A whole feed was read and applied.
    Fetched {
        /// Bytes of the feed, decompressed.
        bytes: u64,
        /// What it contained.
        feed: Stats,
        /// What that changed.
        applied: Applied,
    },
    /// The provider says that nothing changed since the last whole feed.
    NotModified,
    /// Something went wrong. What was complete before it has been applied.
    Failed {
        /// A word for it.
        reason: &'static str,
        /// A sentence about it.
        detail: String,
        /// How long the provider asked clients to wait (`Retry-After`), if it did.
        retry_after: Option<Duration>,
        /// What the part before the failure contained.
        feed: Stats,
        /// What that changed.
        applied: Applied,
    },
}

impl Outcome {
    fn failed(reason: &'static str, detail: impl fmt::Display) -> Outcome {
        Outcome::Failed {
            reason,
            detail: detail.to_string(),
            retry_after: None,
            feed: Stats::default(),
            applied: Applied::default(),
        }
    }

    /// Its name in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Fetched { .. } => "ok",
            Outcome::NotModified => "not_modified",
            Outcome::Failed { .. } => "failed",
        }
    }

    /// What was read of the feed.
    pub fn feed(&self) -> Option<&Stats> {
        match self {
            Outcome::Fetched { feed, .. } | Outcome::Failed { feed, .. } => Some(feed),
            Outcome::NotModified => None,
        }
    }

    /// What that changed.
    pub fn applied(&self) -> Option<&Applied> {
        match self {
            Outcome::Fetched { applied, .. } | Outcome::Failed { applied, .. } => Some(applied),
            Outcome::NotModified => None,
        }
    }
}

/// Fetches one feed after the other from one provider: a poll without the waiting.
pub struct Source {
    download: Download,
    limits: Limits,
}

impl Source {
    /// A source that remembers nothing yet.
    pub fn new(settings: &Settings) -> Result<Source, InvalidSetting> {
        Ok(Source { download: Download::new(settings)?, limits: settings.limits.clone() })
    }

    /// The next poll reads a whole feed.
    fn forget(&mut self) {
        self.download.remember(Validators::default());
    }

    /// Polls once and applies what came. `seen_at`: seconds since 1970-01-01T00:00:00Z.
    pub fn poll(&mut self, catalog: &Catalog, seen_at: i64) -> Outcome {
        let (mut body, validators) = match self.download.begin() {
            Ok(Some(begun)) => begun,
            Ok(None) => return Outcome::NotModified,
            Err(outcome) => {
                catalog.lost_sight();
                return *outcome;
            }
        };
        let Feed { events, stats: feed, end } = Feed::read(&mut body, &self.limits);
        let applied = match catalog.apply(events, seen_at) {
            Ok(applied) => applied,
            Err(e) => return Outcome::failed("store", e),
        };
        match end {
            Ok(()) => {
                self.download.remember(validators);
                Outcome::Fetched { bytes: body.decoded_bytes(), feed, applied }
            }
            Err(e) => {
                let (reason, detail) = (download::reason(&e), e.to_string());
                Outcome::Failed { reason, detail, retry_after: None, feed, applied }
            }
        }
    }
}

/// Settings that cannot work. Its display form says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidSetting {
    /// This URL cannot be polled.
    Url(String),
    /// The authorities are not certificates.
    Authorities,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidSetting::Url(url) => {
                write!(f, "the provider's URL must be http://host… or https://host…, not {url:?}")
            }
            InvalidSetting::Authorities => {
                f.write_str("the authorities must be certificates in PEM, at least one")
            }
        }
    }
}

impl std::error::Error for InvalidSetting {}

/// The running thread.
pub struct Poller {
    stopping: Arc<Stopping>,
    agent: ureq::Agent,
    thread: JoinHandle<()>,
    stats: Arc<PollStats>,
}

#[derive(Default)]
struct Stopping {
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    /// Waits for `delay`, or until the end begins. True if it has begun.
    fn wait(&self, delay: Duration) -> bool {
        let is_stopping = self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.changed.wait_timeout_while(is_stopping, delay, |is_stopping| !*is_stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn begin(&self) {
        *self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

impl Poller {
    /// Starts polling at once. Fails on an [`InvalidSetting`], or without a thread to run on.
    pub fn start(
        settings: Settings,
        catalog: Arc<Catalog>,
        listener: Listener,
    ) -> io::Result<Poller> {
        let source =
            Source::new(&settings).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let (stopping, stats) = (Arc::new(Stopping::default()), Arc::new(PollStats::default()));
        let agent = source.download.agent();
        let run = Run {
            settings,
            source,
            catalog,
            listener,
            stats: Arc::clone(&stats),
            stopping: Arc::clone(&stopping),
        };
        let thread =
            thread::Builder::new().name("poller".to_owned()).spawn(move || run.until_stopped())?;
        Ok(Poller { stopping, agent, thread, stats })
    }

    /// What has happened so far, for metrics.
    pub fn stats(&self) -> Arc<PollStats> {
        Arc::clone(&self.stats)
    }

    /// Stops the thread and waits for it. See the module's notes on how long that can take.
    pub fn stop(self) {
        self.stopping.begin();
        self.agent.shutdown();
        // A panic inside a poll is caught there; one outside has been reported by the runtime, and
        // at this point there is nothing left to save.
        let _ = self.thread.join();
    }
}

struct Run {
    settings: Settings,
    source: Source,
    catalog: Arc<Catalog>,
    listener: Listener,
    stats: Arc<PollStats>,
    stopping: Arc<Stopping>,
}

impl Run {
    fn until_stopped(mut self) {
        let mut rng = fastrand::Rng::new();
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let seen_at = unix_seconds();
            // If the parser or the store panics, the next feed may not trigger the bug, and clients
            // must not notice it. Neither leaves unfinished changes behind.
            let poll = || {
                let outcome = self.source.poll(&self.catalog, seen_at);
                // Also after a failure: another instance may have had more luck.
                match self.catalog.catch_up(unix_seconds()) {
                    // Where clocks differ, that may be older than what the validators stand for; and after a failure an answer that
                    // nothing has changed does not bring the newer one back.
                    Ok(changed) if changed > 0 && !matches!(outcome, Outcome::Fetched { .. }) => {
                        self.source.forget();
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "what other instances have seen is not known");
                    }
                }
                outcome
            };
            let outcome = catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| {
                Outcome::failed("panic", "a bug in this service; please report the panic above")
            });
            if self.stopping.wait(Duration::ZERO) {
                return;
            }
            failures = if matches!(outcome, Outcome::Failed { .. }) { failures + 1 } else { 0 };
            let took = begun.elapsed();
            let delay = next_delay(&self.settings, &outcome, failures, took, &mut rng);
            self.report(&outcome, seen_at, took, delay);
            if self.stopping.wait(delay) {
                return;
            }
        }
    }

    fn report(&mut self, outcome: &Outcome, seen_at: i64, took: Duration, next: Duration) {
        self.stats.count(outcome, seen_at);
        let snapshot = self.catalog.snapshot();
        let (version, events) = (snapshot.version(), snapshot.len());
        drop(snapshot);
        (self.listener)(&Report { outcome, took, next, version, events });
    }
}

/// The wall clock, in seconds since 1970-01-01T00:00:00Z; 0 on a machine that believes it is earlier.
fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
