//! The connection to Redis: one for the process, on a thread of its own, made again when it breaks.
//!
//! ```text
//!  down ──connect, PING──▶ up ──a PING each second──▶ up
//!   ▲                       │
//!   └─ an error, a deadline ┘
//! ```
//!
//! While it is down, no request waits for it: requests use it only if the connection answered the last time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError, RedisResult};
use bytes::Bytes;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::super::RENEWAL_MAX;
use super::super::kept::{Kept, Times};
use super::entry::{ENTRY_BYTES_MAX, decode, encode};
use crate::logging::{rate_limited, tracing};
use crate::metrics::{Counter, Metrics};

/// How long a connection may take, its first answer included.
const CONNECT: Duration = Duration::from_secs(1);
/// How often an idle connection is pinged, and how long it has to answer. Requests notice a server that hangs sooner.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a write may take, for which nobody waits.
const WRITE: Duration = Duration::from_secs(1);
/// The pause after a connection that failed: the first, doubled up to the second.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How long the mark of a change stays, against answers to requests that began before the change; at most as long as an answer
/// is kept. A guess: no handler whose answer is worth keeping takes longer. It bounds the memory of the marks.
const CHANGE_MS: u64 = 60_000;

/// Requests that wait for Redis; further ones do not ask. A guess: what one connection answers in the usual deadline is
/// more, so only a server that hangs has so many.
const READS_MAX: usize = 1024;
/// Writes under way, of at most 1 MiB each; further answers are not kept. A guess that bounds the memory.
const WRITES_MAX: usize = 64;

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum Found {
    /// An answer, and its age.
    Kept(Kept, Duration),
    /// The handler has to run, since it is this request's turn to renew this answer.
    Stale(Kept),
    /// The handler has to run: there is none, or Redis did not say in time.
    Nothing,
}

/// When a request came, by Redis' clock: milliseconds since 1970. What its handler reads is at least as new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(u64);

/// The way to Redis. Dropping it ends its thread.
pub(super) struct Link {
    shared: Arc<Shared>,
    runtime: Handle,
    deadline: Duration,
}

struct Shared {
    /// Its address, for the log.
    server: String,
    /// `None` while it is down.
    connection: Mutex<Option<Way>>,
    control: watch::Sender<Control>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    counters: Counters,
}

/// A connection to ask.
#[derive(Clone)]
struct Way {
    connection: MultiplexedConnection,
    /// The first one is 1.
    number: u64,
}

/// What the connection's thread is told.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// The last connection that did not answer.
    lost: u64,
    stop: bool,
}

struct Counters {
    hit: Counter,
    stale: Counter,
    miss: Counter,
    failed: Counter,
    stored: Counter,
    write_failed: Counter,
    dropped: Counter,
}

impl Counters {
    fn new(metrics: &Metrics) -> Result<Counters, String> {
        let asked = |result: &str| {
            let help = "Requests that asked Redis for a kept answer, by result.";
            metrics.counter_with("response_cache_requests_total", help, &[("result", result)])
        };
        let written = |result: &str| {
            let help = "Answers that were to be stored in Redis, by result.";
            metrics.counter_with("response_cache_writes_total", help, &[("result", result)])
        };
        let all = || {
            Ok(Counters {
                hit: asked("hit")?,
                stale: asked("stale")?,
                miss: asked("miss")?,
                failed: asked("failed")?,
                stored: written("stored")?,
                write_failed: written("failed")?,
                dropped: written("dropped")?,
            })
        };
        all().map_err(|error: crate::metrics::MetricError| format!("RedisStore::metrics: {error}"))
    }
}

impl Link {
    /// Begins to connect; does not wait for the server.
    ///
    /// # Errors
    /// If `url` is not one of Redis, the counters are registered already, or there can be no thread.
    pub(super) fn new(
        url: &str,
        deadline: Duration,
        metrics: Option<&Metrics>,
    ) -> Result<Link, String> {
        let wrong = |error: RedisError| {
            format!("RedisStore::new(…): not a URL of Redis ({error}); write redis://host:port/0")
        };
        let info = url.into_connection_info().map_err(wrong)?;
        let server = info.addr().to_string();
        let client = Client::open(info).map_err(wrong)?;
        let own = Metrics::new();
        let (control, receiver) = watch::channel(Control::default());
        let shared = Arc::new(Shared {
            server,
            connection: Mutex::default(),
            control,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            counters: Counters::new(metrics.unwrap_or(&own))?,
        });
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| format!("no runtime for Redis: {error}"))?;
        let handle = runtime.handle().clone();
        let kept = Arc::clone(&shared);
        thread::Builder::new()
            .name("hw-redis".to_owned())
            .spawn(move || runtime.block_on(kept.keep_connected(client, receiver)))
            .map_err(|error| format!("no thread for Redis: {error}"))?;
        Ok(Link { shared, runtime: handle, deadline })
    }

    /// Looks for an answer, at most until the deadline. `may_renew`: the request can renew it.
    pub(super) async fn find(
        &self,
        key: &str,
        times: Times,
        may_renew: bool,
    ) -> (Found, Option<Begun>) {
        let counters = &self.shared.counters;
        let key = key.to_owned();
        let found = self.ask(move |connection| find(connection, key, times, may_renew)).await;
        match &found {
            Some((Found::Kept(kept, age), _)) if *age < kept.times.lifetime => {
                counters.hit.increment();
            }
            Some((Found::Kept(..), _)) => counters.stale.increment(),
            Some((Found::Stale(_) | Found::Nothing, _)) => counters.miss.increment(),
            None => counters.failed.increment(),
        }
        found.map_or((Found::Nothing, None), |(found, begun)| (found, Some(begun)))
    }

    /// The present time by Redis' clock; `None` if it does not answer before the deadline.
    pub(super) async fn now(&self) -> Option<Begun> {
        let now = async |mut connection: MultiplexedConnection| {
            ::redis::cmd("TIME").query_async(&mut connection).await
        };
        self.ask(now).await.map(Begun::at)
    }

    /// Removes outdated answers. For a while, answers to requests that are in progress are refused, since they may be
    /// outdated as well. Waits for Redis until the deadline at most; if Redis does not do it, the answers stay until their
    /// lifetime is over.
    pub(super) async fn forget(&self, keys: &[String], times: Times) {
        let mark_ms = keep_ms(times).min(CHANGE_MS);
        let mut changed = ::redis::pipe();
        for key in keys {
            let mark = mark_ms.to_be_bytes();
            changed.cmd("SET").arg(key).arg(mark.as_slice()).arg("PX").arg(mark_ms).ignore();
            changed.cmd("DEL").arg(renewing(key)).ignore();
        }
        let change = async move |mut connection: MultiplexedConnection| {
            changed.query_async::<()>(&mut connection).await
        };
        self.ask(change).await;
    }

    /// Another request may renew the answer: this one could not.
    pub(super) async fn end_turn(&self, key: &str) {
        let mut removed = ::redis::cmd("DEL");
        removed.arg(renewing(key));
        let remove = async move |mut connection: MultiplexedConnection| {
            removed.query_async::<()>(&mut connection).await
        };
        self.ask(remove).await;
    }

    /// What Redis says to `question`, at most until the deadline; `None` if it did not say.
    async fn ask<T, F>(&self, question: impl FnOnce(MultiplexedConnection) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = RedisResult<T>> + Send + 'static,
    {
        let place = Arc::clone(&self.shared.reads).try_acquire_owned().ok()?;
        let way = self.shared.way()?;
        let (shared, deadline) = (Arc::clone(&self.shared), self.deadline);
        let asked = question(way.connection);
        // On the connection's thread, whose clock it is: a worker need not have one.
        let asked = self.runtime.spawn(async move {
            let answer = timeout(deadline, asked).await;
            // It goes on if the client hangs up, so the place is its own.
            drop(place);
            shared.judge(way.number, answer)
        });
        // It is cancelled only where the thread has ended.
        asked.await.ok().flatten()
    }

    /// Stores the answer to a request, unless there is one to a later request, or its target was changed since. Returns at once.
    pub(super) fn keep(&self, key: String, kept: &Kept, begun: Begun) {
        let dropped = &self.shared.counters.dropped;
        let keep_ms = keep_ms(kept.times);
        let place = Arc::clone(&self.shared.writes).try_acquire_owned();
        let (Ok(place), Some(way)) = (place, self.shared.way()) else {
            return dropped.increment();
        };
        let Some(entry) = encode(kept, keep_ms) else { return dropped.increment() };
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            let stored = store(way.connection, key, entry, begun, keep_ms);
            match shared.judge(way.number, timeout(WRITE, stored).await) {
                Some(true) => shared.counters.stored.increment(),
                Some(false) => shared.counters.dropped.increment(),
                None => shared.counters.write_failed.increment(),
            }
            drop(place);
        });
    }
}

impl Begun {
    /// At a time as `TIME` says it.
    fn at((seconds, micros): (u64, u64)) -> Begun {
        Begun(seconds.saturating_mul(1000).saturating_add(micros / 1000))
    }
}

/// After how many milliseconds Redis removes an answer.
fn keep_ms(times: Times) -> u64 {
    let keep = times.whole().as_millis();
    // Redis counts in signed numbers, from 1970.
    u64::try_from(keep).unwrap_or(u64::MAX).clamp(1, u64::MAX >> 8)
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.control.send_modify(|control| control.stop = true);
    }
}

async fn find(
    mut connection: MultiplexedConnection,
    key: String,
    times: Times,
    may_renew: bool,
) -> RedisResult<(Found, Begun)> {
    // A longer value is not one of ours, and its part is no entry. A missing one is an empty text.
    // All are of one moment, although others may write between two commands.
    let mut asked = ::redis::pipe();
    asked.atomic();
    asked.cmd("GETRANGE").arg(&key).arg(0).arg(ENTRY_BYTES_MAX).cmd("PTTL").arg(&key).cmd("TIME");
    let (bytes, left_ms, now) = asked.query_async(&mut connection).await?;
    let found = look(connection, key, (bytes, left_ms), times, may_renew).await?;
    Ok((found, Begun::at(now)))
}

/// What an entry means for a request: its bytes, and how long Redis still keeps it.
async fn look(
    mut connection: MultiplexedConnection,
    key: String,
    (bytes, left_ms): (Vec<u8>, i64),
    times: Times,
    may_renew: bool,
) -> RedisResult<Found> {
    let Some((mut kept, keep_ms)) = decode(Bytes::from(bytes)) else { return Ok(Found::Nothing) };
    // Another instance may have kept it for longer than this one gives it.
    kept.times = kept.times.min(times);
    let times = kept.times;
    // It may have been removed in between; then it was as old as it may be.
    let age = Duration::from_millis(keep_ms.saturating_sub(left_ms.max(0).unsigned_abs()));
    if age < times.lifetime {
        return Ok(Found::Kept(kept, age));
    }
    if times.stale.is_zero() {
        return Ok(Found::Nothing);
    }
    let turn = renewing(&key);
    let is_renewed = if may_renew {
        let mut taken = ::redis::cmd("SET");
        taken.arg(&turn).arg(1).arg("NX").arg("PX").arg(RENEWAL_MAX.as_millis() as u64);
        taken.query_async::<Option<String>>(&mut connection).await?.is_none()
    } else {
        let mut seen = ::redis::cmd("GETRANGE");
        seen.arg(&turn).arg(0).arg(0);
        !seen.query_async::<String>(&mut connection).await?.is_empty()
    };
    match is_renewed {
        true if age < times.whole() => Ok(Found::Kept(kept, age)),
        true => Ok(Found::Nothing),
        false => Ok(Found::Stale(kept)),
    }
}

/// Stores an entry, unless the stored one is newer. All times are those of Redis' clock, which each request has read when it
/// began, so an answer that was read before a change is older than the change. The first eight bytes of an entry are its
/// lifetime; the mark of a change has nothing else, and counts as newer than the answers of its millisecond.
const STORE: &str = "
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local begun, keep = tonumber(ARGV[2]), tonumber(ARGV[3])
local there, left = redis.call('GETRANGE', KEYS[1], 0, 8), redis.call('PTTL', KEYS[1])
if #there >= 8 and left > 0 then
  local whole = 0
  for at = 1, 8 do whole = whole * 256 + string.byte(there, at) end
  local at = now - (whole - left)
  if whole >= left and (at > begun or at == begun and #there == 8) then return 0 end
end
left = begun + keep - now
if left <= 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', left))
redis.call('DEL', KEYS[2])
return 1";

/// Whether the entry was stored.
async fn store(
    mut connection: MultiplexedConnection,
    key: String,
    entry: Vec<u8>,
    Begun(begun): Begun,
    keep_ms: u64,
) -> RedisResult<bool> {
    let mut written = ::redis::cmd("EVAL");
    written.arg(STORE).arg(2).arg(&key).arg(renewing(&key)).arg(entry).arg(begun).arg(keep_ms);
    written.query_async(&mut connection).await
}

/// Is there while somebody renews the answer of `key`.
fn renewing(key: &str) -> String {
    format!("{key}\nrenewing")
}

impl Shared {
    fn way(&self) -> Option<Way> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_way(&self, way: Option<Way>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// The result of asking connection `number`, if there is one. After a deadline or an error of the connection nobody asks
    /// until there is a new one.
    fn judge<T, E>(&self, number: u64, result: Result<RedisResult<T>, E>) -> Option<T> {
        match result {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) if !error.is_unrecoverable_error() => {
                let server = &self.server;
                rate_limited!(WARN, %error, "Redis at {server} refuses; handlers run{}", remedy(&error));
            }
            Ok(Err(_)) | Err(_) => {
                let mut way = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
                way.take_if(|way| way.number == number);
                drop(way);
                self.control.send_modify(|control| control.lost = control.lost.max(number));
            }
        }
        None
    }

    /// Keeps a connection until the link is dropped. Logs once that it is down, and once that it is up again.
    async fn keep_connected(
        self: Arc<Self>,
        client: Client,
        mut control: watch::Receiver<Control>,
    ) {
        let (mut pause, mut number, mut is_reported) = (PAUSE[0], 0, false);
        loop {
            let error = match connect(&client).await {
                Ok(connection) => {
                    if std::mem::take(&mut is_reported) {
                        tracing::info!("Redis at {} is back; it keeps answers", self.server);
                    }
                    pause = PAUSE[0];
                    number += 1;
                    self.serve(Way { connection, number }, &mut control).await
                }
                Err(error) => Some(error),
            };
            self.set_way(None);
            let Some(error) = error else { return };
            if !std::mem::replace(&mut is_reported, true) {
                let server = &self.server;
                tracing::warn!(
                    error,
                    "Redis at {server} is unavailable; handlers run without it until it is back"
                );
            }
            // The end does not wait for the pause.
            if timeout(pause, control.wait_for(|control| control.stop)).await.is_ok() {
                return;
            }
            pause = (pause * 2).min(PAUSE[1]);
        }
    }

    /// Lets requests ask a connection as long as it answers. Returns why it does not any more; `None` at the end.
    async fn serve(&self, way: Way, control: &mut watch::Receiver<Control>) -> Option<String> {
        let (mut pinged, number) = (way.connection.clone(), way.number);
        self.set_way(Some(way));
        loop {
            let receiver = control.wait_for(|control| control.stop || control.lost == number);
            match timeout(HEARTBEAT, receiver).await {
                Ok(Ok(control)) if !control.stop => {
                    return Some("it did not answer in time".to_owned());
                }
                Ok(_) => return None,
                Err(_) => {}
            }
            if let Err(error) = ping(&mut pinged).await {
                return Some(error);
            }
        }
    }
}

/// A connection that has answered once: a server that hangs accepts connections, too.
async fn connect(client: &Client) -> Result<MultiplexedConnection, String> {
    // The deadlines are ours.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let made = async {
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(|error| explained(&error))?;
        ping(&mut connection).await?;
        Ok(connection)
    };
    let late = |_| format!("it did not answer within {CONNECT:?}");
    timeout(CONNECT, made).await.map_err(late)?
}

async fn ping(connection: &mut MultiplexedConnection) -> Result<(), String> {
    let answer = timeout(HEARTBEAT, ::redis::cmd("PING").query_async::<()>(connection)).await;
    let answer = answer.map_err(|_| format!("it did not answer within {HEARTBEAT:?}"))?;
    answer.map_err(|error| explained(&error))
}

fn explained(error: &RedisError) -> String {
    format!("{error}{}", remedy(error))
}

/// What to do about an error, where that is known.
fn remedy(error: &RedisError) -> &'static str {
    match error.code() {
        Some("OOM") => "; raise its maxmemory, or set maxmemory-policy to allkeys-lru",
        Some("NOPERM" | "NOAUTH" | "WRONGPASS") => {
            "; allow this user GETRANGE, PTTL, SET, DEL, EVAL, TIME, MULTI, EXEC, PING and the keys highwater:answer:*"
        }
        Some("READONLY") => "; give the URL of the primary",
        _ => "",
    }
}
