//! The visible state: todos in memory, each encoded once. All of them, or as many of the newest as fit; the rest is
//! read from the store.
//!
//! ```text
//!  Changes ─▶ apply ─▶ next Snapshot ──publish──▶ list, todo
//!              │          chunks of fragments,       │
//!              │          most shared with the last  └─▶ cache of lists, under the snapshot's number
//!              └─▶ waiters: requests with ?wait=applied
//! ```
//!
//! Invariants: a request reads one snapshot, and a later request never an earlier one; a todo is encoded when it has
//! changed, never when it is read; a waiter for a command is woken after its effect is visible.

mod chunk;
mod flights;
mod found;
mod index;
mod reserved;
mod snapshot;
mod waiters;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits, CacheStats};
use uuid::Uuid;

use self::flights::Flights;
use self::found::Found;
use self::index::Index;
pub use self::reserved::Reserved;
use self::snapshot::About;
pub use self::snapshot::Snapshot;
pub use self::waiters::Waiters;
use crate::beyond::Beyond;
use crate::reads::{LIST_MAX, Limit, Read, Reads, Shown, Waiting};
use crate::store::{Change, Changes, Loaded, StoreError};
use crate::todo::{Key, Todo};

/// How many lists are cached, and how many bytes; the least used go first.
const CACHE_LIMITS: CacheLimits = CacheLimits { answers_max: 4096, bytes_max: 256 << 20 };

/// Todos, as clients see them.
pub struct Model {
    shown: ArcSwap<Snapshot>,
    lists: Arc<Cache<u32>>,
    /// Single todos that the snapshot does not have.
    found: Arc<Found>,
    /// Lists that are being read from the store.
    flights: Flights,
    /// The way to what the snapshot does not have; none if it has everything.
    beyond: Option<Beyond>,
    /// How much memory the snapshot may take.
    bytes_max: usize,
    /// Locked while the next snapshot is made. It knows each todo's place in the snapshot.
    index: Index,
    writer: Mutex<()>,
    waiters: Arc<Waiters>,
    reserved: Reserved,
}

impl Model {
    /// Shows what a store held, which is everything.
    pub fn new(loaded: Loaded) -> Model {
        Model::made(loaded, usize::MAX, None)
    }

    /// Shows what a store held; keeps about `bytes_max` of it in memory, of the newest, and reads the rest through
    /// `beyond`.
    pub fn bounded(loaded: Loaded, bytes_max: usize, beyond: Beyond) -> Model {
        // Lists and single todos have caches of their own.
        Model::made(loaded, bytes_max / 2, Some(beyond))
    }

    fn made(loaded: Loaded, bytes_max: usize, beyond: Option<Beyond>) -> Model {
        let mut limits = CACHE_LIMITS;
        limits.bytes_max = limits.bytes_max.min(bytes_max);
        let model = Model {
            shown: ArcSwap::from_pointee(Snapshot::default()),
            lists: Arc::new(Cache::new(limits)),
            found: Arc::new(Found::new(if beyond.is_some() { bytes_max / 2 } else { 0 })),
            flights: Flights::default(),
            beyond,
            bytes_max,
            index: Index::default(),
            writer: Mutex::default(),
            waiters: Arc::default(),
            reserved: Reserved::default(),
        };
        model.replace(loaded);
        model
    }

    /// Shows the changes, then wakes their waiters.
    pub fn apply(&self, changes: Changes) {
        let Changes { revision, count, todos, commands } = changes;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if !todos.is_empty() {
            let before = self.shown.load();
            if self.beyond.is_some() {
                let ids = todos.iter().map(|change| match change {
                    Change::Is(todo) => todo.id,
                    Change::Gone(id) => *id,
                });
                self.found.forget(ids, before.number() + 1);
            }
            self.publish(About { revision, count, floor: before.floor() }, todos);
        }
        drop(writer);
        self.reserved.settle(&commands);
        self.waiters.notify(commands);
    }

    /// Shows this instead of what was shown.
    pub fn replace(&self, loaded: Loaded) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Loaded { revision, count, todos } = loaded;
        let before = self.shown.load();
        let is_whole = todos.len() as u64 >= count;
        let floor = todos.last().filter(|_| !is_whole).map(Todo::key);
        let stays: std::collections::HashSet<Uuid> = todos.iter().map(|todo| todo.id).collect();
        let gone =
            before.keys().map(|key| key.id).filter(|id| !stays.contains(id)).map(Change::Gone);
        let changes = gone.chain(todos.into_iter().map(Change::Is)).collect();
        self.found.clear(before.number() + 1);
        self.publish(About { revision, count, floor }, changes);
        self.reserved.forget();
    }

    /// Makes the next snapshot and shows it. A key is in the index before it is shown, and until it is not
    /// shown any more.
    fn publish(&self, about: About, changes: Vec<Change>) {
        let (mut rows, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            match change {
                // It is older than what is in memory.
                Change::Is(todo) if about.floor.is_some_and(|floor| todo.key() < floor) => {}
                Change::Is(todo) => {
                    let key = todo.key();
                    if let Some(created_us) = self.index.insert(key)
                        && created_us != key.created_us
                    {
                        rows.push((Key { created_us, id: key.id }, None));
                    }
                    rows.push((key, Some(todo)));
                }
                Change::Gone(id) => {
                    if let Some(created_us) = self.index.get(id) {
                        rows.push((Key { created_us, id }, None));
                        gone.push(id);
                    }
                }
            }
        }
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.0));
        let mut next = self.shown.load().with(about, &rows);
        if self.beyond.is_some() {
            gone.extend(next.trim(self.bytes_max));
        }
        self.shown.store(Arc::new(next));
        gone.into_iter().for_each(|id| self.index.remove(id));
    }

    /// Whether less is in memory than could be, and than a list may show: much was deleted.
    pub fn is_short(&self) -> bool {
        let snapshot = self.shown.load();
        !snapshot.is_whole()
            && snapshot.len() < LIST_MAX as usize
            && snapshot.bytes() < self.bytes_max / 2
    }

    /// What is shown now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shown.load_full()
    }

    /// How the cache of lists is doing.
    pub fn cache(&self) -> CacheStats {
        self.lists.stats()
    }
}

impl Reads for Model {
    #[inline]
    fn list(&self, limit: Limit) -> Read<Bytes> {
        let snapshot = self.shown.load();
        // All limits that show everything share one answer. A list has at most 10 000, so this fits.
        let shown = snapshot.len().min(limit.get()) as u32;
        if shown as usize != limit.get() && !snapshot.is_whole() {
            return self.list_beyond(limit, snapshot.number());
        }
        Read::Ready(
            self.lists.get_or_build(&shown, snapshot.number(), || snapshot.list(shown as usize)),
        )
    }

    #[inline]
    fn todo(&self, id: Uuid) -> Read<Option<Shown>> {
        let created_us = self.index.get(id);
        let snapshot = self.shown.load();
        match created_us.and_then(|created_us| snapshot.find(Key { created_us, id })) {
            None if !snapshot.is_whole() => self.todo_beyond(id, snapshot.number()),
            shown => Read::Ready(shown),
        }
    }

    fn wait_for(&self, command: Uuid) -> Waiting {
        self.waiters.wait_for(command)
    }

    fn reserve(&self, command: Uuid, max: usize) -> bool {
        let count = || usize::try_from(self.shown.load().count()).unwrap_or(usize::MAX);
        self.reserved.reserve(command, count, max)
    }

    fn release(&self, command: Uuid) {
        self.reserved.release(command);
    }

    fn is_in_memory(&self) -> bool {
        self.beyond.is_none()
    }
}

/// Reads of todos that are not in memory.
impl Model {
    #[cold]
    fn list_beyond(&self, limit: Limit, number: u64) -> Read<Bytes> {
        let key = limit.get() as u32;
        if let Some(list) = self.lists.find(&key, number) {
            return Read::Ready(list);
        }
        let Some(beyond) = &self.beyond else { return missing() };
        let asked = self.flights.join(key, number, || beyond.list(limit));
        let lists = Arc::clone(&self.lists);
        Read::Later(Box::pin(async move {
            let mut answer = (*asked).clone();
            let list = match answer.wait_for(Option::is_some).await {
                Ok(answer) => answer.clone().unwrap_or_else(|| Err(ended()))?,
                Err(_) => return Err(ended()),
            };
            // It was asked for after the number was read, so it shows at least what that snapshot does.
            Ok(lists.get_or_build(&key, number, || list))
        }))
    }

    #[cold]
    fn todo_beyond(&self, id: Uuid, number: u64) -> Read<Option<Shown>> {
        if let Some(shown) = self.found.get(id) {
            return Read::Ready(Some(shown));
        }
        let Some(beyond) = &self.beyond else { return missing() };
        let (asked, found) = (beyond.todo(id), Arc::clone(&self.found));
        Read::Later(Box::pin(async move {
            let shown = asked.await.unwrap_or_else(|_| Err(ended()))?;
            if let Some(shown) = &shown {
                found.keep(id, shown.clone(), number);
            }
            Ok(shown)
        }))
    }
}

fn ended() -> StoreError {
    StoreError::new("the read was given up")
}

/// A snapshot is trimmed only where there is a way to what it does not show.
fn missing<T: 'static>() -> Read<T> {
    Read::Later(Box::pin(async { Err(ended()) }))
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.shown.load();
        write!(f, "Model({} todos, {:?})", snapshot.len(), snapshot.revision())
    }
}

/// A row of the next snapshot: a todo, or that there is none any more.
type Row = (Key, Option<Todo>);

#[cfg(test)]
mod tests;
