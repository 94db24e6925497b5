//! The connection to Redis: one for the process, on a thread of its own, made again when it breaks.
//!
//! ```text
//!  down ──connect, CLIENT TRACKING ON BCAST──▶ up ──heartbeat──▶ up
//!   ▲                                           │
//!   └──────── error, silence, disconnection ────┘
//! ```
//!
//! Each arrow changes the generation, so that nothing learnt before it is used after it: without tracking, changes go
//! unnoticed.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use highwater::logging::rate_limited;
use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo as _, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::timeout;

use super::scripts::{self, Scripts};
use crate::health::Part;
use crate::store::Revision;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);

/// How often an idle connection is pinged, and how long it has to answer. Correctness does not depend on it: an
/// instance never shows an older state than the store has reported to it.
const HEARTBEAT: Duration = Duration::from_millis(250);
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// The pause after a connection that failed: the first, doubled up to the second.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The way to Redis.
pub struct Link {
    shared: Arc<Shared>,
    runtime: Handle,
    wanted: watch::Sender<Wanted>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: String,
    connection: ArcSwapOption<MultiplexedConnection>,
    generation: AtomicU64,
    part: Part,
    scripts: Scripts,
    /// The newest revision that Redis has received; `None` before its first answer.
    received: Mutex<Option<Revision>>,
    /// Whether lists of Redis may be used.
    is_confirmed: AtomicBool,
}

/// The store's state that Redis should know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    revision: Revision,
    stop: bool,
}

/// Whether it is a URL of Redis.
///
/// # Errors
///
/// What to write instead.
pub fn check_url(url: &str) -> Result<(), String> {
    url.into_connection_info().map(drop).map_err(wrong)
}

fn wrong(error: RedisError) -> String {
    format!("not a URL of Redis ({error}); write redis://host:port/0")
}

impl Link {
    /// Begins to connect; does not wait for the server.
    ///
    /// # Errors
    ///
    /// If `url` is not one of Redis, or there can be no thread.
    pub fn new(url: &str) -> Result<Link, String> {
        let info = url.into_connection_info().map_err(wrong)?;
        let server = format!("Redis at {}", info.addr());
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings)).map_err(wrong)?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime =
            runtime.map_err(|error| format!("cannot start a runtime for Redis: {error}"))?;
        let part = Part::new("cache");
        part.is_down(format!("{server}: not reached yet"));
        let shared = Arc::new(Shared {
            server,
            connection: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            part,
            scripts: Scripts::new(),
            received: Mutex::default(),
            is_confirmed: AtomicBool::new(true),
        });
        let (wanted, receiver) = watch::channel(Wanted::default());
        let handle = runtime.handle().clone();
        let kept = Arc::clone(&shared);
        let keep = move || runtime.block_on(keep(client, kept, receiver));
        let thread = thread::Builder::new().name("todos-redis".into()).spawn(keep);
        let thread = thread.map_err(|error| format!("cannot start a thread for Redis: {error}"))?;
        Ok(Link { shared, runtime: handle, wanted, thread: Some(thread) })
    }

    /// Announces this revision of the store: older lists are to be forgotten everywhere. Returns at once. If Redis is
    /// down, it learns of the revision when it is back: this is a state, which each heartbeat repeats.
    pub fn advance(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let is_news = wanted.revision < revision;
            wanted.revision = wanted.revision.max(revision);
            is_news
        });
    }

    /// Lists of Redis are not used before [`Link::confirm`]. Where the store was restored while no instance ran, they are
    /// of a time that is lost.
    pub(super) fn doubt(&self) {
        self.shared.is_confirmed.store(false, Ordering::Relaxed);
    }

    /// The store was compared with what Redis has [received](Link::received).
    pub(super) fn confirm(&self) {
        self.shared.is_confirmed.store(true, Ordering::Release);
    }

    /// The newest revision of the store that Redis has received from any process; `None` before its first answer.
    pub(super) fn received(&self) -> Option<Revision> {
        *self.shared.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether Redis works.
    pub fn part(&self) -> Part {
        self.shared.part.clone()
    }

    /// Counts how often the knowledge about Redis became uncertain. Answers requested under one generation must not be
    /// kept under another.
    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// A way to ask it, if there is one.
    pub(super) fn way(&self) -> Option<Way> {
        if !self.shared.is_confirmed.load(Ordering::Acquire) {
            return None;
        }
        let connection = self.shared.connection.load();
        let connection = connection.as_deref()?.clone();
        Some(Way { connection, shared: Arc::clone(&self.shared) })
    }

    /// Where its futures run.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wanted.send_modify(|wanted| wanted.stop = true);
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic was reported already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.shared.server)
    }
}

/// A connection to ask.
pub(super) struct Way {
    pub(super) connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

impl Way {
    pub(super) fn scripts(&self) -> &Scripts {
        &self.shared.scripts
    }

    /// It did not answer properly. The next heartbeat shows whether it is down.
    pub(super) fn failed(&self, why: &dyn fmt::Display) {
        rate_limited!(WARN, error = %why, "{} did not answer; the list comes from memory", self.shared.server);
    }
}

impl Shared {
    fn change_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Handles the server's pushes. The connection calls it as it reads, before it hands out any later answer.
    fn pushed(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Invalidate | PushKind::Disconnection => self.change_generation(),
            _ => {}
        }
    }

    async fn connect(self: &Arc<Self>, client: &Client) -> RedisResult<MultiplexedConnection> {
        let pushed = Arc::clone(self);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(SILENCE_MAX))
            .set_push_sender(move |push: PushInfo| {
                pushed.pushed(&push);
                Ok::<(), SendError>(())
            });
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(scripts::VERSION);
        tracking.query_async::<()>(&mut connection).await?;
        Ok(connection)
    }
}

/// Keeps a connection until it is stopped.
async fn keep(client: Client, shared: Arc<Shared>, mut receiver: watch::Receiver<Wanted>) {
    let mut pause = PAUSE[0];
    while !receiver.borrow().stop {
        let error = match shared.connect(&client).await {
            Ok(connection) => {
                pause = PAUSE[0];
                serve(connection, &shared, &mut receiver).await
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else { break };
        let error = explain(&error);
        let reason = format!("{}: {error}", shared.server);
        rate_limited!(WARN, error = %error, "{} is unavailable; lists come from memory", shared.server);
        shared.part.is_down(reason);
        // A stop does not wait for the pause.
        let _ = timeout(pause, receiver.wait_for(|wanted| wanted.stop)).await;
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// The error, and what to do about it where that is known.
pub(super) fn explain(error: &RedisError) -> String {
    let remedy = match error.code() {
        Some("OOM") => "; raise its maxmemory, or set maxmemory-policy to allkeys-lru",
        Some("NOPERM" | "NOAUTH" | "WRONGPASS") => {
            "; allow this user EVAL, EVALSHA, CLIENT TRACKING and the keys todos:*"
        }
        Some("READONLY") => "; give the URL of the primary",
        _ if error.to_string().contains("unknown command") => {
            "; this server must run scripts (EVAL, EVALSHA) and CLIENT TRACKING: Redis 6 or later"
        }
        _ => "",
    };
    format!("{error}{remedy}")
}

/// Uses a connection while it lives. `None`: stopped.
async fn serve(
    connection: MultiplexedConnection,
    shared: &Shared,
    receiver: &mut watch::Receiver<Wanted>,
) -> Option<RedisError> {
    let mut asked = connection.clone();
    // First it is tracked, then it is used: nothing that changes from here on is missed.
    shared.change_generation();
    shared.connection.store(Some(Arc::new(connection)));
    let error = announce(&mut asked, shared, receiver).await;
    shared.connection.store(None);
    shared.change_generation();
    error
}

async fn announce(
    connection: &mut MultiplexedConnection,
    shared: &Shared,
    receiver: &mut watch::Receiver<Wanted>,
) -> Option<RedisError> {
    loop {
        let wanted = *receiver.borrow_and_update();
        if wanted.stop {
            return None;
        }
        // Even if Redis has this revision: its answer proves that it works, and a server that has lost its data gets it back.
        match shared.scripts.advance(connection, wanted.revision).await {
            Ok(received) => {
                *shared.received.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
            }
            Err(error) => return Some(error),
        }
        shared.part.is_up();
        // Then it is asked again, whether or not there is anything new.
        let _ = timeout(HEARTBEAT, receiver.changed()).await;
    }
}
