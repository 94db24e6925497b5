//! Which answers are encoded already, and are they still valid?
//!
//! A cache of encoded answers under the version of the store they were encoded from:
//! `(version, bytes)` is one value, never two that could be paired wrongly.
//!
//! ```text
//!  get_or_build(key, version, build)
//!      │
//!      ├─ near.rs     this thread's own copies: no lock, no shared write, no allocation
//!      ├─ shared.rs   all threads' answers, in shards, each behind a lock held for nanoseconds
//!      │    ├─ s3fifo.rs  which answers to keep
//!      │    └─ flight.rs  one thread builds, the others wait for its result
//!      └─ build()     without any lock
//! ```
//!
//! Invariants:
//!
//! * An answer is never older than the store was when the request began. The caller reads the
//!   version *before* anything is built, and the answer is stored under that version. So a builder
//!   that is overtaken by a change publishes old bytes under the old version, which no later
//!   request uses.
//! * An older answer never replaces a newer one.
//! * At most one thread builds a key at a version. Other threads that ask for it block until it is
//!   built. For builds of microseconds to milliseconds, that costs a worker less than building the
//!   same answer again. Put longer work into a task, not into `build`.
//! * A thread that is building never waits for another, so builds that use a cache cannot deadlock.
//! * Entries and bytes are bounded for any requests, and keys requested once do not displace keys
//!   requested often.
//!
//! It never reads a clock: answers do not expire, newer versions replace them.

mod flight;
mod near;
mod s3fifo;
mod shared;
mod stats;
mod sync;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use bytes::Bytes;

use self::shared::{Lookup, Shared};
use self::stats::{Counters, Registry};

pub use self::near::{NEAR_ANSWER_BYTES_MAX, NEAR_ANSWERS_MAX};
pub use self::shared::SHARDS_MAX;
pub use self::stats::CacheStats;

/// A store that knows which version of its content it shows.
///
/// The contract: content read after `version()` has returned `v` is that of `v` or later; and the
/// version changes with every change that a reader could notice. It should not change otherwise, or
/// cached answers are discarded needlessly.
pub trait Version {
    /// The version shown now. Never decreases.
    fn version(&self) -> u64;
}

/// How much a [`Cache`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Answers kept, at least 1. Beyond it the least used one is removed. Default: 1024.
    pub answers_max: usize,
    /// Bytes of keys and answers kept. An answer of more than an eighth of it (see [`SHARDS_MAX`])
    /// is returned but not kept. Default: 64 MiB.
    ///
    /// Not counted: the copies that each thread keeps of the answers it serves most, at most
    /// [`NEAR_ANSWERS_MAX`] of at most [`NEAR_ANSWER_BYTES_MAX`] bytes, 4 MiB.
    pub bytes_max: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        CacheLimits { answers_max: 1024, bytes_max: 64 << 20 }
    }
}

/// A bounded cache of encoded answers that cannot be stale. See the [module](self).
///
/// All its keys share one sequence of versions: one cache for one store.
///
/// ```
/// use bytes::Bytes;
/// use highwater::cache::{Cache, CacheLimits, Version};
///
/// struct Catalog(Vec<&'static str>);
///
/// impl Version for Catalog {
///     fn version(&self) -> u64 {
///         self.0.len() as u64 // it only ever grows
///     }
/// }
///
/// let cache = Cache::<String>::new(CacheLimits::default());
/// let mut catalog = Catalog(vec!["apple"]);
/// let list = |catalog: &Catalog| Bytes::from(catalog.0.join(","));
///
/// assert_eq!(cache.get_or_build_from("all", &catalog, list), "apple");
/// catalog.0.push("pear");
/// assert_eq!(cache.get_or_build_from("all", &catalog, list), "apple,pear");
/// assert_eq!(cache.get_or_build_from("all", &catalog, |_| unreachable!()), "apple,pear");
/// ```
pub struct Cache<K> {
    /// Keyed at random, so that clients cannot choose keys that collide.
    hasher: RandomState,
    shared: Shared<K>,
    /// Its address identifies the cache in the threads' own tables.
    registry: Arc<Registry>,
}

impl<K: 'static> Cache<K> {
    /// An empty cache. It allocates as it fills.
    ///
    /// # Panics
    ///
    /// If `limits.answers_max` is 0.
    pub fn new(limits: CacheLimits) -> Self {
        assert!(
            limits.answers_max > 0,
            "a cache of no answers is no cache: answers_max must be > 0"
        );
        Cache {
            hasher: RandomState::new(),
            shared: Shared::new(limits.answers_max, limits.bytes_max),
            registry: Arc::default(),
        }
    }

    /// The answer for `key` at `version` or later: from the cache, or built by `build`.
    ///
    /// Read `version` from the store before the content that `build` encodes: best when the request
    /// begins, or from the same snapshot. [`Cache::get_or_build_from`] does that.
    ///
    /// Blocks while another thread builds the same answer. `build` runs without a lock and may
    /// panic: then nothing is stored, and one of the waiting threads builds instead.
    pub fn get_or_build<Q>(&self, key: &Q, version: u64, build: impl FnOnce() -> Bytes) -> Bytes
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        if let Some(bytes) = near::find::<K, Q>(&self.registry, hash, key, version) {
            return bytes;
        }
        match self.shared.find(hash, key, version, near::may_wait()) {
            Lookup::Found(answer) => {
                near::admit(&self.registry, hash, key, &answer);
                answer.bytes
            }
            Lookup::Joined(bytes) => {
                near::count::<K>(&self.registry, Counters::count_hit);
                bytes
            }
            Lookup::Build(ticket) => {
                near::count::<K>(&self.registry, Counters::count_miss);
                ticket.publish::<Q>(near::building(build))
            }
            Lookup::BuildAlone => {
                near::count::<K>(&self.registry, Counters::count_miss);
                near::building(build)
            }
        }
    }

    /// The answer for `key` at `version` or later, if it is in the cache. Never blocks.
    ///
    /// For answers that are built elsewhere, in a task: store the result with
    /// [`Cache::get_or_build`], under the version read before the task began. Whether several tasks
    /// build the same answer is then up to the caller.
    pub fn find<Q>(&self, key: &Q, version: u64) -> Option<Bytes>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        if let Some(bytes) = near::find::<K, Q>(&self.registry, hash, key, version) {
            return Some(bytes);
        }
        let answer = self.shared.peek(hash, key, version)?;
        near::admit(&self.registry, hash, key, &answer);
        Some(answer.bytes)
    }

    /// [`Cache::get_or_build`] that reads the version itself, at the right moment.
    pub fn get_or_build_from<Q, S>(
        &self,
        key: &Q,
        store: &S,
        build: impl FnOnce(&S) -> Bytes,
    ) -> Bytes
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        S: Version + ?Sized,
    {
        let version = store.version();
        self.get_or_build(key, version, || build(store))
    }

    /// The cache's statistics. Takes each shard's lock once: use it for a scrape, not for a
    /// request.
    pub fn stats(&self) -> CacheStats {
        let (hits, misses) = self.registry.totals();
        let (answers, bytes) = self.shared.size();
        CacheStats { hits, misses, answers, bytes }
    }
}

impl<K: 'static> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
