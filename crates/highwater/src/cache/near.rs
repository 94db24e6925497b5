//! Each thread's own copies of the answers it serves most: a hit here takes no lock, allocates
//! nothing and writes to no memory that another thread reads.
//!
//! This includes the answer's reference count, which is why a copy is a real copy and not another
//! reference to the shared bytes. Only answers of up to [`NEAR_ANSWER_BYTES_MAX`] are copied; for a
//! larger one the shared lock costs little beside sending it.
//!
//! A copy is made when an answer is found in the shared part, not when it is built: an answer
//! requested once gets no copy. A copy serves requests up to its version; a newer version makes it
//! useless, and the next copy replaces it.

use std::any::Any;
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::s3fifo::{Answer, Heat};
use super::stats::{Counters, Registry};

/// How many copies one thread keeps of one cache's answers.
pub const NEAR_ANSWERS_MAX: usize = WAYS * SETS;

/// The largest answer, in bytes, of which threads keep copies. At about this size, sending the
/// answer costs some hundred times as much as the lock.
pub const NEAR_ANSWER_BYTES_MAX: usize = 64 << 10;

/// A key's copy is in one of this many places, which are searched one after the other.
const WAYS: usize = 4;
const SETS: usize = 16;

/// The table of one cache: a `Table<K>`, of a key type that differs from cache to cache.
type Entry = (Weak<Registry>, Box<dyn Any>);

thread_local! {
    /// One table for each cache this thread has used.
    static TABLES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };

    /// Whether this thread is inside a `build`.
    static BUILDING: Cell<bool> = const { Cell::new(false) };
}

/// A thread's copies of one cache's answers.
struct Table<K> {
    registry: Weak<Registry>,
    counters: Arc<Counters>,
    sets: Box<[[Option<Near<K>>; WAYS]; SETS]>,
}

struct Near<K> {
    hash: u64,
    key: K,
    version: u64,
    bytes: Bytes,
    heat: Heat,
    /// Requested since the last search for room in its set.
    used: bool,
}

/// This thread's copy of the answer for `key` at `version` or later. Counts a hit if there is one.
#[inline]
pub(super) fn find<K, Q>(
    registry: &Arc<Registry>,
    hash: u64,
    key: &Q,
    version: u64,
) -> Option<Bytes>
where
    K: Borrow<Q> + 'static,
    Q: Eq + ?Sized,
{
    with_table(registry, |table: &mut Table<K>| {
        let near = table.set(hash).iter_mut().flatten().find(|near| {
            near.hash == hash && near.version >= version && near.key.borrow() == key
        })?;
        near.used = true;
        near.heat.warm();
        let bytes = near.bytes.clone();
        table.counters.count_hit();
        Some(bytes)
    })
    .flatten()
}

/// Copies an answer found in the shared part, if it is small enough, and counts the hit.
pub(super) fn admit<K, Q>(registry: &Arc<Registry>, hash: u64, key: &Q, answer: &Answer)
where
    K: Borrow<Q> + 'static,
    Q: ToOwned<Owned = K> + ?Sized,
{
    with_table(registry, |table: &mut Table<K>| {
        table.counters.count_hit();
        if answer.bytes.len() > NEAR_ANSWER_BYTES_MAX {
            return;
        }
        let bytes = Bytes::copy_from_slice(&answer.bytes);
        // The first clone allocates the reference count: do it here, not in a hit.
        drop(bytes.clone());
        let (version, heat) = (answer.version, answer.heat.clone());
        *place(table.set(hash), hash) =
            Some(Near { hash, key: key.to_owned(), version, bytes, heat, used: false });
    });
}

/// Counts a request that was neither found here nor admitted.
pub(super) fn count<K: 'static>(registry: &Arc<Registry>, count: impl FnOnce(&Counters)) {
    with_table(registry, |table: &mut Table<K>| count(&table.counters));
}

/// Whether this thread may wait for another: not while other threads may wait for what it builds.
pub(super) fn may_wait() -> bool {
    !BUILDING.get()
}

/// Calls `build`, during which this thread may not wait.
pub(super) fn building(build: impl FnOnce() -> Bytes) -> Bytes {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            BUILDING.set(self.0);
        }
    }
    let _restore = Restore(BUILDING.replace(true));
    build()
}

impl<K> Table<K> {
    fn set(&mut self, hash: u64) -> &mut [Option<Near<K>>; WAYS] {
        &mut self.sets[hash as usize % SETS]
    }
}

impl<K> Drop for Table<K> {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.retire(&self.counters);
        }
    }
}

/// Where a copy goes in its set: the place of its key's last copy, else an empty one, else that of
/// a copy that was not requested lately.
fn place<K>(set: &mut [Option<Near<K>>; WAYS], hash: u64) -> &mut Option<Near<K>> {
    let same = |near: &Option<Near<K>>| near.as_ref().is_some_and(|near| near.hash == hash);
    let unused = |near: &Option<Near<K>>| near.as_ref().is_none_or(|near| !near.used);
    let way = set.iter().position(same).or_else(|| set.iter().position(unused));
    if way.is_none() {
        set.iter_mut().flatten().for_each(|near| near.used = false);
    }
    &mut set[way.unwrap_or(0)]
}

/// Runs `with` on this thread's table for a cache, and makes the table if necessary. `None` if
/// there can be no table: while the thread ends, or in a key's own `Eq` or `Drop`.
#[inline]
fn with_table<K: 'static, T>(
    registry: &Arc<Registry>,
    with: impl FnOnce(&mut Table<K>) -> T,
) -> Option<T> {
    let found = TABLES.try_with(|tables| {
        let mut tables = tables.try_borrow_mut().ok()?;
        // No other cache gets this address while the table holds its weak reference.
        let is_ours = |(of, _): &Entry| of.as_ptr() == Arc::as_ptr(registry);
        let index = match tables.iter().position(is_ours) {
            Some(index) => index,
            None => add_table::<K>(&mut tables, registry),
        };
        tables[index].1.downcast_mut().map(with)
    });
    found.ok().flatten()
}

#[cold]
fn add_table<K: 'static>(tables: &mut Vec<Entry>, registry: &Arc<Registry>) -> usize {
    // Drop the tables of caches that are gone: a thread has no more tables than there are caches.
    tables.retain(|(of, _)| of.strong_count() > 0);
    let table: Table<K> = Table {
        registry: Arc::downgrade(registry),
        counters: registry.enlist(),
        sets: Box::new(std::array::from_fn(|_| std::array::from_fn(|_| None))),
    };
    tables.push((Arc::downgrade(registry), Box::new(table)));
    tables.len() - 1
}
