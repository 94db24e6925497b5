//! Todos that were read from the store lately, because they are not in the snapshot.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::reads::Shown;

/// Into how many parts it is divided, each with a lock.
const SHARDS: usize = 16;

/// What a todo takes beside its JSON: the map's entry, and the owner's name.
const ENTRY_BYTES: usize = 160;

/// A bounded cache of single todos. Each part has two halves: when the young one is full it becomes the old one, whose
/// entries are dropped. Used entries move back to the young one.
///
/// It is exact: a changed todo is removed before the change is shown, and answers that the store gave before it are not
/// kept.
pub(super) struct Found {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    half_bytes_max: usize,
}

#[derive(Default)]
struct Shard {
    young: HashMap<Uuid, Shown>,
    old: HashMap<Uuid, Shown>,
    young_bytes: usize,
    /// The snapshot with the last change of any todo of this part.
    changed: u64,
}

impl Found {
    /// Keeps about `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Found {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Found { hasher: RandomState::new(), shards, half_bytes_max: bytes_max / SHARDS / 2 }
    }

    pub(super) fn get(&self, id: Uuid) -> Option<Shown> {
        let mut shard = self.shard(id);
        if let Some(shown) = shard.young.get(&id) {
            return Some(shown.clone());
        }
        let shown = shard.old.remove(&id)?;
        self.put(&mut shard, id, shown.clone());
        Some(shown)
    }

    /// Keeps a todo read from the store while the snapshot of this number was shown, unless it may have changed since.
    pub(super) fn keep(&self, id: Uuid, shown: Shown, number: u64) {
        let mut shard = self.shard(id);
        if shard.changed <= number {
            self.put(&mut shard, id, shown);
        }
    }

    /// These have changed; the snapshot of this number, which is not shown yet, is the first to show it.
    pub(super) fn forget(&self, ids: impl Iterator<Item = Uuid>, number: u64) {
        for id in ids {
            let mut shard = self.shard(id);
            shard.changed = shard.changed.max(number);
            shard.young.remove(&id);
            shard.old.remove(&id);
        }
    }

    /// Everything may have changed.
    pub(super) fn clear(&self, number: u64) {
        for shard in &self.shards {
            *lock(shard) = Shard { changed: number, ..Shard::default() };
        }
    }

    fn put(&self, shard: &mut Shard, id: Uuid, shown: Shown) {
        let bytes = shown.json.len() + ENTRY_BYTES;
        if shard.young_bytes + bytes > self.half_bytes_max {
            shard.old = std::mem::take(&mut shard.young);
            shard.young_bytes = 0;
        }
        if bytes <= self.half_bytes_max {
            shard.young_bytes += bytes;
            shard.young.insert(id, shown);
        }
    }

    fn shard(&self, id: Uuid) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(id) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Shown {
        Shown { json: text.to_owned().into(), user_id: "u".into() }
    }

    /// Purpose: what was asked before a change is not kept after it, whenever the answer comes; what was asked after it is.
    #[test]
    fn a_late_answer_is_not_kept() {
        let found = Found::new(1 << 20);
        let id = Uuid::from_u128(1);
        found.keep(id, shown("old"), 4);
        assert_eq!(found.get(id), Some(shown("old")));
        found.forget([id].into_iter(), 5);
        assert_eq!(found.get(id), None);
        found.keep(id, shown("old"), 4);
        assert_eq!(found.get(id), None);
        found.keep(id, shown("new"), 5);
        assert_eq!(found.get(id), Some(shown("new")));
        found.clear(6);
        found.keep(id, shown("new"), 5);
        assert_eq!(found.get(id), None);
    }

    /// Purpose: it has a bound, whatever is asked for, and keeps what is used.
    #[test]
    fn it_is_bounded() {
        let found = Found::new(SHARDS * 20 * ENTRY_BYTES);
        let hot = Uuid::from_u128(0);
        found.keep(hot, shown("hot"), 0);
        for number in 1..10_000 {
            found.keep(Uuid::from_u128(number), shown("cold"), 0);
            assert_eq!(found.get(hot), Some(shown("hot")), "{number}");
        }
        let of = |shard: &Shard| shard.young.len() + shard.old.len();
        let kept: usize = found.shards.iter().map(|shard| of(&lock(shard))).sum();
        assert!(kept <= SHARDS * 20, "{kept}");
        found.keep(Uuid::from_u128(1), shown(&"x".repeat(100_000)), 0);
        assert_eq!(found.get(Uuid::from_u128(1)), None, "too large to be kept");
    }
}
