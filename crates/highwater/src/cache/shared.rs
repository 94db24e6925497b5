//! The part of the cache that all threads share: shards of answers, and the builds in progress.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;

use super::flight::{Flight, lock};
use super::s3fifo::{Answer, S3Fifo};
use super::sync::{Arc, Mutex};

/// Into how many shards a cache is divided, each with its part of the limits; a small cache has
/// fewer.
pub const SHARDS_MAX: usize = 8;

/// The smallest shard. With fewer answers, uneven hashes would displace too many of them.
const SHARD_ANSWERS_MIN: usize = 32;

pub(super) struct Shared<K> {
    shards: Box<[Mutex<Shard<K>>]>,
}

struct Shard<K> {
    answers: S3Fifo<K>,
    /// The builds in progress by the hash of their key; only the latest version of each. At most as
    /// many as there are threads.
    flights: HashMap<u64, Arc<Flight<K>>>,
}

/// How to serve a request.
pub(super) enum Lookup<'a, K> {
    /// Nothing: here is the answer.
    Found(Answer),
    /// Nothing: another thread has built it meanwhile.
    Joined(Bytes),
    /// Build it and publish it; others wait.
    Build(Ticket<'a, K>),
    /// Build it alone: another thread is building it, or a key with the same hash, and this thread
    /// must not wait.
    BuildAlone,
}

impl<K> Shared<K> {
    pub(super) fn new(answers_max: usize, bytes_max: usize) -> Self {
        let count = (answers_max / SHARD_ANSWERS_MIN).clamp(1, SHARDS_MAX);
        let shard = || {
            let answers = S3Fifo::new(answers_max / count, bytes_max / count);
            Mutex::new(Shard { answers, flights: HashMap::new() })
        };
        Shared { shards: (0..count).map(|_| shard()).collect() }
    }

    /// Finds the answer for `key` at `version` or later, or decides who builds it. Waits for a
    /// suitable build if `may_wait`.
    pub(super) fn find<Q>(&self, hash: u64, key: &Q, version: u64, may_wait: bool) -> Lookup<'_, K>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let shard = &self.shards[shard_index(hash, self.shards.len())];
        loop {
            let mut guard = lock(shard);
            if let Some(answer) = guard.answers.find(hash, key, version) {
                return Lookup::Found(answer);
            }
            let under_way = match guard.flights.get(&hash) {
                Some(flight) if flight.key.borrow() != key => return Lookup::BuildAlone,
                // A build of an older version does not help. This one takes its place.
                Some(flight) if flight.version < version => None,
                Some(flight) => Some(Arc::clone(flight)),
                None => None,
            };
            let Some(flight) = under_way else {
                let flight = Flight::new(key.to_owned(), version);
                guard.flights.insert(hash, Arc::clone(&flight));
                return Lookup::Build(Ticket { shard, hash, flight, built: None });
            };
            drop(guard);
            if !may_wait {
                return Lookup::BuildAlone;
            }
            if let Some(bytes) = flight.wait() {
                return Lookup::Joined(bytes);
            }
            // Its builder panicked. Try again; perhaps this thread has to build now.
        }
    }

    /// The answer for `key` at `version` or later, if it is here.
    pub(super) fn peek<Q>(&self, hash: u64, key: &Q, version: u64) -> Option<Answer>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let shard = &self.shards[shard_index(hash, self.shards.len())];
        lock(shard).answers.find(hash, key, version)
    }

    /// How many answers there are, and their total charge in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.shards.iter().map(|shard| lock(shard).answers.size()).fold(
            (0, 0),
            |(answers, bytes), (more_answers, more_bytes)| {
                (answers + more_answers, bytes + more_bytes)
            },
        )
    }
}

/// The upper bits choose the shard, since the shard's own table is indexed by the lower ones.
fn shard_index(hash: u64, count: usize) -> usize {
    (hash >> 32) as usize % count
}

/// The right and the duty to build an answer. If it is dropped without [`Ticket::publish`], because
/// the builder panicked, it passes to one of the waiting threads.
pub(super) struct Ticket<'a, K> {
    shard: &'a Mutex<Shard<K>>,
    hash: u64,
    flight: Arc<Flight<K>>,
    built: Option<Bytes>,
}

impl<K> Ticket<'_, K> {
    /// Stores the result under the requested version, and hands it to the waiting threads.
    pub(super) fn publish<Q>(mut self, bytes: Bytes) -> Bytes
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Flight { key, version, .. } = &*self.flight;
        lock(self.shard).answers.insert(self.hash, key.borrow(), *version, bytes.clone());
        self.built = Some(bytes.clone());
        bytes
    }
}

impl<K> Drop for Ticket<'_, K> {
    fn drop(&mut self) {
        let mut shard = lock(self.shard);
        // A build of a later version may have taken the place in the meantime.
        if shard.flights.get(&self.hash).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            shard.flights.remove(&self.hash);
        }
        drop(shard);
        self.flight.end(self.built.take());
    }
}
