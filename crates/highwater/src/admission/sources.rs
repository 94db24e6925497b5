//! Where do the connections come from that a worker accepts while a queue is long?
//!
//! Counted for a server whose gate is accepting: no program in the kernel counts attempts for it. The worker counts a connection
//! when it looks up whose it is, to put the queue in order, and so nothing is counted, and nothing looked up, before a queue
//! is long.
//!
//! Sources share [`BUCKETS`] counts by a hash with a secret. Each bucket knows the source that most of its connections
//! came from (R. S. Boyer and J. S. Moore, *MJRTY: A Fast Majority Vote Algorithm*), which is the one to hold back if the
//! bucket's rate is above the level. The memory is fixed, 16 KiB per worker, for any number of sources.
//!
//! Never here: waiting. If the controller reads the counts just then, a connection goes uncounted.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_sys::Source;

use super::client::{Network, network};

/// With a hundred sources, one in six shares its bucket with another.
pub(super) const BUCKETS: usize = 512;

/// The counts of one worker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AcceptedSources {
    secret: RandomState,
    buckets: Arc<Mutex<Box<[Bucket]>>>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    accepted: u64,
    majority: Network,
    /// How many more connections came from the majority than from others.
    lead: u32,
}

impl AcceptedSources {
    /// The counts of so many workers.
    pub(super) fn of_workers(workers: usize) -> Vec<AcceptedSources> {
        let secret = RandomState::new();
        let new = || vec![Bucket::default(); BUCKETS].into_boxed_slice();
        let one =
            || AcceptedSources { secret: secret.clone(), buckets: Arc::new(Mutex::new(new())) };
        (0..workers).map(|_| one()).collect()
    }

    /// A connection from `ip` was accepted.
    pub(crate) fn count(&self, ip: IpAddr) {
        let Ok(mut buckets) = self.buckets.try_lock() else { return };
        let source = network(ip);
        let bucket = &mut buckets[self.secret.hash_one(source) as usize % BUCKETS];
        bucket.accepted += 1;
        if bucket.majority == source {
            bucket.lead = bucket.lead.saturating_add(1);
        } else if bucket.lead > 0 {
            bucket.lead -= 1;
        } else {
            (bucket.majority, bucket.lead) = (source, 1);
        }
    }
}

/// The counts of all workers, read together.
#[derive(Debug)]
pub(super) struct AllSources {
    workers: Vec<AcceptedSources>,
    accepted: Vec<u64>,
    /// The majority of each bucket: that of the worker where it leads by most.
    majority: Vec<(Network, u32)>,
}

impl AllSources {
    pub(super) fn of(workers: Vec<AcceptedSources>) -> AllSources {
        AllSources {
            workers,
            accepted: vec![0; BUCKETS],
            majority: vec![Default::default(); BUCKETS],
        }
    }

    /// Reads the counts, and lets old votes count for less.
    pub(super) fn read(&mut self) {
        self.accepted.fill(0);
        self.majority.fill(Default::default());
        for worker in &self.workers {
            let mut buckets = worker.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let all = self.accepted.iter_mut().zip(&mut self.majority);
            for (bucket, (accepted, majority)) in buckets.iter_mut().zip(all) {
                *accepted += bucket.accepted;
                if bucket.lead >= majority.1 {
                    *majority = (bucket.majority, bucket.lead);
                }
                bucket.lead = bucket.lead.div_ceil(2);
            }
        }
    }

    /// How many connections of each bucket were accepted.
    pub(super) fn accepted(&self) -> impl Iterator<Item = u64> {
        self.accepted.iter().copied()
    }

    /// The source that most connections of a bucket came from.
    pub(super) fn source(&self, bucket: usize) -> Source {
        match self.majority[bucket].0 {
            (true, network) => Source::Ipv6Network(network),
            (false, address) => Source::Ipv4(address as u32),
        }
    }
}

impl fmt::Debug for AcceptedSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedSources").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Purpose: connections are counted over all workers, and a bucket names the source that leads in it, of either kind.
    #[test]
    fn the_majority_is_named() {
        let workers = AcceptedSources::of_workers(2);
        let mut all = AllSources::of(workers.clone());
        for n in 0..2000_u32 {
            let worker = &workers[n as usize % 2];
            worker.count(IpAddr::from(n.to_be_bytes()));
            worker.count(ip("192.0.2.1"));
            worker.count(ip(&format!("2001:db8::{n:x}")));
        }
        all.read();
        assert_eq!(all.accepted().sum::<u64>(), 6000);
        let busiest = |rank: usize| {
            let mut counts: Vec<(u64, usize)> = all.accepted().zip(0..).collect();
            counts.sort_unstable();
            all.source(counts[BUCKETS - 1 - rank].1)
        };
        let mut named = [busiest(0), busiest(1)];
        named.sort_by_key(|source| matches!(source, Source::Ipv6Network(_)));
        assert_eq!(named, [Source::Ipv4(0xc000_0201), Source::Ipv6Network(0x2001_0db8_0000_0000)]);
    }

    /// Purpose: a source that has left is forgotten within a few readings, however many connections it had.
    #[test]
    fn votes_grow_old() {
        let worker = AcceptedSources::of_workers(1).remove(0);
        let mut all = AllSources::of(vec![worker.clone()]);
        let bucket = |worker: &AcceptedSources, ip: &str| {
            worker.secret.hash_one(network(self::ip(ip))) as usize % BUCKETS
        };
        let first = "192.0.2.1";
        let same = (0..u32::MAX)
            .map(|n| IpAddr::from(n.to_be_bytes()).to_string())
            .find(|other| bucket(&worker, other) == bucket(&worker, first))
            .expect("one in 512");
        (0..100_000).for_each(|_| worker.count(ip(first)));
        let at = bucket(&worker, first);
        let named = |all: &mut AllSources| {
            all.read();
            all.source(at)
        };
        assert_eq!(named(&mut all), Source::Ipv4(0xc000_0201));
        let mut looks = 0;
        while named(&mut all) == Source::Ipv4(0xc000_0201) {
            (0..50).for_each(|_| worker.count(ip(&same)));
            looks += 1;
            assert!(looks < 20, "it is still held back");
        }
    }
}
