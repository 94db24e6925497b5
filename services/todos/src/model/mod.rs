//! What is visible: all todos in memory, each encoded once.
//!
//! ```text
//!  Changes ─▶ apply ─▶ next Snapshot ──publish──▶ list, todo
//!              │          chunks of fragments,       │
//!              │          most shared with the last  └─▶ cache of lists, under the snapshot's number
//!              └─▶ waiters: whoever asked with ?wait=applied
//! ```
//!
//! Invariants: a request reads one snapshot, and a later request never an earlier one; a todo is encoded
//! when it has changed, never when it is read; who waits for a command is woken after its effect is visible.

mod chunk;
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

use self::index::Index;
pub use self::reserved::Reserved;
pub use self::snapshot::Snapshot;
pub use self::waiters::Waiters;
use crate::reads::{Limit, Read, Reads, Shown, Waiting};
use crate::store::{Change, Changes, Loaded, Revision};
use crate::todo::{Key, Todo};

/// How many lists are cached, and how many bytes; the least used go first.
const CACHE_LIMITS: CacheLimits = CacheLimits { answers_max: 4096, bytes_max: 256 << 20 };

/// All todos, as clients see them.
pub struct Model {
    shown: ArcSwap<Snapshot>,
    lists: Cache<u32>,
    /// Held by whoever makes the next snapshot. It knows where in the snapshot a todo is.
    index: Index,
    writer: Mutex<()>,
    waiters: Arc<Waiters>,
    reserved: Reserved,
}

impl Model {
    /// Shows what a store held.
    pub fn new(loaded: Loaded) -> Model {
        let model = Model {
            shown: ArcSwap::from_pointee(Snapshot::default()),
            lists: Cache::new(CACHE_LIMITS),
            index: Index::default(),
            writer: Mutex::default(),
            waiters: Arc::default(),
            reserved: Reserved::default(),
        };
        model.replace(loaded);
        model
    }

    /// Shows what has changed, then wakes those who wait for it.
    pub fn apply(&self, changes: Changes) {
        let Changes { revision, todos, commands } = changes;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if !todos.is_empty() {
            self.publish(revision, todos);
        }
        drop(writer);
        self.reserved.settle(&commands);
        self.waiters.tell(commands);
    }

    /// Shows this instead of what was shown.
    pub fn replace(&self, loaded: Loaded) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Loaded { revision, todos } = loaded;
        let before = self.shown.load();
        let stays: std::collections::HashSet<Uuid> = todos.iter().map(|todo| todo.id).collect();
        let gone =
            before.keys().map(|key| key.id).filter(|id| !stays.contains(id)).map(Change::Gone);
        let changes = gone.chain(todos.into_iter().map(Change::Is)).collect();
        self.publish(revision, changes);
        self.reserved.forget();
    }

    /// Makes the next snapshot and shows it. A key is in the index before it is shown, and until it is not
    /// shown any more.
    fn publish(&self, revision: Revision, changes: Vec<Change>) {
        let (mut rows, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            match change {
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
        let next = self.shown.load().with(revision, &rows);
        self.shown.store(Arc::new(next));
        gone.into_iter().for_each(|id| self.index.remove(id));
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
        Read::Ready(
            self.lists.get_or_build(&shown, snapshot.number(), || snapshot.list(shown as usize)),
        )
    }

    #[inline]
    fn todo(&self, id: Uuid) -> Read<Option<Shown>> {
        let Some(created_us) = self.index.get(id) else { return Read::Ready(None) };
        Read::Ready(self.shown.load().find(Key { created_us, id }))
    }

    fn wait_for(&self, command: Uuid) -> Waiting {
        self.waiters.wait_for(command)
    }

    fn reserve(&self, command: Uuid, max: usize) -> bool {
        self.reserved.reserve(command, || self.shown.load().len(), max)
    }

    fn release(&self, command: Uuid) {
        self.reserved.release(command);
    }

    fn is_in_memory(&self) -> bool {
        true
    }
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
