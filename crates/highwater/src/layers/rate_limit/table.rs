//! The numbers of keys, in a table that never grows.
//!
//! Each key has a bucket, chosen by its hash, and each bucket a few places. If all are taken, the key that has used least loses
//! its place, and starts with a full allowance. So a flood of new keys affects only keys with little use, and a key that has used up its
//! allowance is not freed. Keys are hashed with a secret, so a client cannot aim at another's bucket.

use std::sync::{Mutex, PoisonError};

/// The places of a bucket. More are a longer search; fewer lose more keys before the table is full.
const WAYS: usize = 8;

/// Buckets behind one lock.
const BUCKETS_PER_LOCK: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// 0 if it is free.
    key: u64,
    until: u64,
}

type Bucket = [Place; WAYS];

/// A number for each of the keys that fit.
#[derive(Debug)]
pub(super) struct Table {
    locks: Vec<Mutex<Vec<Bucket>>>,
    buckets: usize,
}

impl Table {
    /// A table for at least `keys` keys.
    pub(super) fn new(keys: usize) -> Self {
        let buckets = keys.div_ceil(WAYS).max(1);
        let lock = |index: usize| {
            let count = BUCKETS_PER_LOCK.min(buckets - index * BUCKETS_PER_LOCK);
            Mutex::new(vec![Bucket::default(); count])
        };
        Table { locks: (0..buckets.div_ceil(BUCKETS_PER_LOCK)).map(lock).collect(), buckets }
    }

    /// Replaces the number of a key, 0 if it is not there, by the first part of what `change` returns; returns the second.
    pub(super) fn update<R>(&self, key: u64, change: impl FnOnce(u64) -> (u64, R)) -> R {
        let key = key.max(1);
        let index = ((u128::from(key) * self.buckets as u128) >> 64) as usize;
        let lock = &self.locks[index / BUCKETS_PER_LOCK];
        let mut buckets = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = &mut buckets[index % BUCKETS_PER_LOCK];
        let known = bucket.iter().position(|place| place.key == key);
        let least = || (0..WAYS).min_by_key(|place| bucket[*place].until).expect("it has places");
        let (place, until) = match known {
            Some(place) => (place, bucket[place].until),
            None => (least(), 0),
        };
        let (until, result) = change(until);
        bucket[place] = Place { key, until };
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Purpose: keys have numbers of their own; beyond what fits, those who have spent most keep theirs.
    #[test]
    fn bounded() {
        let table = Table::new(1000);
        let get = |n: u64| table.update(hash(n), |until| (until, until));
        for n in 0..100 {
            table.update(hash(n), |_| (1_000_000 + n, ()));
        }
        assert!((0..100).all(|n| get(n) == 1_000_000 + n));
        for n in 1000..100_000 {
            table.update(hash(n), |_| (n, ()));
        }
        assert!(
            (0..100).all(|n| get(n) == 1_000_000 + n),
            "a flood frees nobody who has spent more"
        );
        let places: usize =
            table.locks.iter().map(|lock| lock.lock().expect("it is free").len() * WAYS).sum();
        assert_eq!(places, 1000);
        Table::new(0).update(0, |until| (until, ()));
    }
}
