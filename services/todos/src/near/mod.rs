//! Lists that instances share through Redis, with a near cache in each.
//!
//! ```text
//!  GET /todos ─▶ near cache of this process ──hit──▶ bytes       (lists of an unusual limit come from the model)
//!                  │ miss                                    (one lookup at a time for each list)
//!                  ├─▶ Redis: todos:all, todos:limit:N ──of this version or later──▶ bytes
//!                  └─▶ the model ──▶ bytes, and a fill for the other instances
//!
//!  applied ─▶ advance(version) ─▶ Redis forgets all lists ─▶ CLIENT TRACKING ─▶ every near cache is dropped
//! ```
//!
//! The near cache is valid under the sum of two counters: how often the model has changed, and how often Redis reported
//! a new version (or disconnected, or reconnected). Both only grow, and the sum is read before anything is looked up.
//! The hot path reads two atomics and this thread's own copy.
//!
//! What could go wrong, and why it does not:
//!
//! | race | answer |
//! |---|---|
//! | a list is built, the store changes, the old list is filled in | `fill.lua` refuses lists older than the version that `advance.lua` has set |
//! | two appliers advance in the wrong order | a version only rises |
//! | an applier dies between its commit and the advance | every instance advances as well, when it learns of the version from the store |
//! | Redis restarts, or evicts the state, between lookup and fill | the state has an epoch; a fill for another one is refused |
//! | lists survive the loss of the state | the state names the lists of its version; others are ignored |
//! | an answer overtakes the news that it is old | pushes are counted as they are read; an answer is kept only under the count read before it was asked for |
//! | the connection breaks, and notifications are lost | a new connection is tracked first, then the count changes, then it is used |
//! | Redis hangs | a lookup has 50 ms; then the model answers |
//! | Redis is behind the store: no process has advanced it yet | a list older than this instance's model is not used |
//! | Redis is ahead of this instance's model | its newer list is used; a fill from the model is refused, and not kept here either |
//! | the store was restored to an older version | it gets a new timeline, which counts as newer than all versions of the previous one; every heartbeat sends it to Redis, so Redis learns of it once it is back |
//! | an instance that has not noticed a restore repeats its old version | the version is of an older timeline: it is ignored |
//! | the store was restored while no instance ran | the first instance sees that Redis knows a later revision than the store has, and gives the store a new timeline; before that it uses no list of Redis |
//!
//! So an answer is never older than the last version that the store reported to this instance, even if Redis is down,
//! empty or late.

pub mod judge;
mod link;
mod scripts;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits, CacheStats};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use self::judge::{Shown, Verdict, judge, validity};
pub use self::link::{Link, check_url};
use self::link::{Way, explain};
use crate::feed::{Feed, News};
use crate::health::Part;
use crate::model::Model;
use crate::reads::{self, Limit, Read, Reads, Waiting};
use crate::store::{Revision, StoreError};

/// How many lists the near cache keeps, and how many bytes; the least used go first.
const CACHE_LIMITS: CacheLimits = CacheLimits { answers_max: 4096, bytes_max: 128 << 20 };

/// The largest list that Redis gets. With the few limits that are shared ([`Limit::is_shared`]) it bounds what Redis holds to
/// 200 MB; where todos are that large, each instance assembles its own lists.
const SHARED_BYTES_MAX: usize = 8 << 20;

/// How long Redis has to answer a lookup; then the model answers.
const LOOKUP: Duration = Duration::from_millis(50);

/// Reads whose lists come from the near cache, Redis or the model, whichever has them.
pub struct Near(Arc<Inner>);

struct Inner {
    model: Arc<Model>,
    link: Arc<Link>,
    lists: Cache<u32>,
    flights: Mutex<HashMap<u32, Flight>>,
    /// How long Redis keeps a list.
    keep: Duration,
}

/// A lookup in progress.
struct Flight {
    /// The version that it began at.
    version: u64,
    list: watch::Receiver<Option<Bytes>>,
}

impl Near {
    /// Lists of `model`, shared through `link`, where each is kept for at most `keep`.
    pub fn new(model: Arc<Model>, link: Arc<Link>, keep: Duration) -> Near {
        Near(Arc::new(Inner {
            model,
            link,
            lists: Cache::new(CACHE_LIMITS),
            flights: Mutex::default(),
            keep,
        }))
    }

    /// How the near cache is doing.
    pub fn cache(&self) -> CacheStats {
        self.0.lists.stats()
    }
}

impl Reads for Near {
    fn list(&self, limit: Limit) -> Read<Bytes> {
        if !limit.is_shared() {
            return self.0.model.list(limit);
        }
        let number = limit.get() as u32;
        let version = self.0.version();
        if let Some(list) = self.0.lists.find(&number, version) {
            return Read::Ready(list);
        }
        let Some(way) = self.0.link.way() else { return self.0.model.list(limit) };
        let mut list = self.0.join(limit, version, way);
        let inner = Arc::clone(&self.0);
        Read::Later(Box::pin(async move {
            let found = match list.wait_for(Option::is_some).await {
                Ok(list) => list.clone(),
                Err(_) => None,
            };
            match found {
                Some(list) => Ok(list),
                None => match inner.model.list(limit) {
                    Read::Ready(list) => Ok(list),
                    Read::Later(list) => list.await,
                },
            }
        }))
    }

    fn todo(&self, id: Uuid) -> Read<Option<reads::Shown>> {
        self.0.model.todo(id)
    }

    fn wait_for(&self, command: Uuid) -> Waiting {
        self.0.model.wait_for(command)
    }

    fn reserve(&self, command: Uuid, max: usize) -> bool {
        self.0.model.reserve(command, max)
    }

    fn release(&self, command: Uuid) {
        self.0.model.release(command);
    }

    fn is_in_memory(&self) -> bool {
        false
    }
}

/// Ends a flight when it is dropped, also by a panic: later requests begin another.
struct Landing {
    inner: Arc<Inner>,
    number: u32,
    version: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
        // A later one may have taken its place.
        if flights.get(&self.number).is_some_and(|flight| flight.version == self.version) {
            flights.remove(&self.number);
        }
    }
}

impl Inner {
    /// The version of the near cache. It must be read before any lookup.
    fn version(&self) -> u64 {
        validity(self.link.generation(), self.model.snapshot().number())
    }

    /// Joins the lookup of a list in progress, or begins a new one.
    fn join(
        self: &Arc<Self>,
        limit: Limit,
        version: u64,
        way: Way,
    ) -> watch::Receiver<Option<Bytes>> {
        let number = limit.get() as u32;
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&number).filter(|flight| flight.version >= version) {
            return flight.list.clone();
        }
        let (sender, list) = watch::channel(None);
        flights.insert(number, Flight { version, list: list.clone() });
        drop(flights);
        let inner = Arc::clone(self);
        let landing = Landing { inner: Arc::clone(self), number, version };
        self.link.runtime().spawn(async move {
            let found = inner.look_up(limit, way).await;
            if let Some((list, true)) = &found {
                inner.lists.get_or_build(&number, version, || list.clone());
            }
            let list = found.map(|(list, _)| list);
            drop(landing);
            // Those who wait may be gone; without a list they ask the model.
            let _ = sender.send(list);
        });
        list
    }

    /// A list from Redis, or from the model into Redis, and whether it may be kept. `None`: Redis does not answer.
    async fn look_up(self: &Arc<Self>, limit: Limit, mut way: Way) -> Option<(Bytes, bool)> {
        let before = self.model.snapshot();
        let before = Shown { revision: before.revision(), number: before.number() };
        let scripts = way.scripts().clone();
        let found = match timeout(LOOKUP, scripts.lookup(&mut way.connection, limit)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                way.failed(&explain(&error));
                return None;
            }
            Err(slow) => {
                way.failed(&slow);
                return None;
            }
        };
        if let Some(list) = &found.list
            && judge(found.revision, true, before, before.number) == Verdict::Theirs
        {
            return Some((list.clone(), true));
        }
        let Read::Ready(list) = self.model.list(limit) else { return None };
        let number = self.model.snapshot().number();
        let Verdict::Ours { fill, keep } = judge(found.revision, false, before, number) else {
            return None;
        };
        if fill && list.len() <= SHARED_BYTES_MAX {
            // Others wait for Redis, not for this.
            let (inner, list) = (Arc::clone(self), list.clone());
            let of = (found.epoch, before.revision);
            self.link.runtime().spawn(async move { inner.fill(limit, of, &list, way).await });
        }
        Some((list, keep))
    }

    async fn fill(
        &self,
        limit: Limit,
        (epoch, revision): (String, Revision),
        list: &[u8],
        mut way: Way,
    ) {
        let keep_ms = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        let scripts = way.scripts().clone();
        let of = (epoch.as_str(), revision);
        if let Err(error) = scripts.fill(&mut way.connection, limit, of, keep_ms, list).await {
            way.failed(&explain(&error));
        }
    }
}

impl fmt::Debug for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Near").field("link", &self.0.link).finish_non_exhaustive()
    }
}

/// A feed that forwards its reports to Redis, and learns which revision Redis knows.
#[derive(Debug)]
pub struct Forwarded<F> {
    feed: F,
    link: Arc<Link>,
}

impl<F: Feed> Forwarded<F> {
    /// Forwards `feed`'s reports to the Redis behind `link`.
    pub fn new(feed: F, link: Arc<Link>) -> Forwarded<F> {
        link.doubt();
        Forwarded { feed, link }
    }
}

impl<F: Feed> Feed for Forwarded<F> {
    fn next(&mut self, wait: Duration) -> Result<News, StoreError> {
        // Redis receives a revision after its commit, so what the store returns from now on is not older.
        let received = self.link.received();
        received.into_iter().for_each(|received| self.feed.was_seen(received));
        let news = self.feed.next(wait)?;
        if received.is_some() {
            self.link.confirm();
        }
        match &news {
            News::Changes(changes) if !changes.todos.is_empty() => {
                self.link.advance(changes.revision);
            }
            News::Everything(loaded) => self.link.advance(loaded.revision),
            _ => {}
        }
        Ok(news)
    }

    fn was_seen(&mut self, revision: Revision) {
        self.feed.was_seen(revision);
    }

    fn again(&mut self) {
        self.feed.again();
    }

    fn part(&self) -> Part {
        self.feed.part()
    }
}
