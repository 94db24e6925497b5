//! Times of creation, which determine each todo's place in a snapshot.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use uuid::Uuid;

use crate::todo::Key;

/// Into how many parts it is divided, each with a lock, so that a reader seldom meets the writer.
const SHARDS: usize = 64;

/// Times of creation by id. It says where in the snapshot to look.
pub(super) struct Index {
    hasher: RandomState,
    shards: [RwLock<HashMap<Uuid, i64>>; SHARDS],
}

impl Default for Index {
    fn default() -> Index {
        let shards = std::array::from_fn(|_| RwLock::default());
        Index { hasher: RandomState::new(), shards }
    }
}

impl Index {
    pub(super) fn get(&self, id: Uuid) -> Option<i64> {
        self.read(id).get(&id).copied()
    }

    /// What it said before.
    pub(super) fn insert(&self, key: Key) -> Option<i64> {
        self.write(key.id).insert(key.id, key.created_us)
    }

    pub(super) fn remove(&self, id: Uuid) {
        self.write(id).remove(&id);
    }

    fn shard(&self, id: Uuid) -> &RwLock<HashMap<Uuid, i64>> {
        &self.shards[self.hasher.hash_one(id) as usize % SHARDS]
    }

    fn read(&self, id: Uuid) -> RwLockReadGuard<'_, HashMap<Uuid, i64>> {
        self.shard(id).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: Uuid) -> RwLockWriteGuard<'_, HashMap<Uuid, i64>> {
        self.shard(id).write().unwrap_or_else(PoisonError::into_inner)
    }
}
