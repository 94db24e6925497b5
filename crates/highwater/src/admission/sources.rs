//! Where do the connections come from that a worker accepts while a queue is long?
//!
//! Counted for a server whose gate is accepting: no program in the kernel counts attempts for it. The worker counts a connection
//! when it looks up whose it is, to put the queue in order, and so nothing is counted, and nothing looked up, before a queue
//! is long.
//!
//! Sources share [`BUCKETS`] by a hash with a secret. Each bucket knows the two sources that most of its connections came from,
//! and counts each of them (J. Misra and D. Gries, *Finding Repeated Elements*, 1982): these can be held back. With one name for
//! each bucket, the second of two busy sources passed freely, and its connections looked like so many more of the first's that all
//! others were let go. The memory is fixed, 32 KiB per worker, for any number of sources.
//!
//! Never here: waiting. If the controller reads the counts just then, a connection goes uncounted.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use highwater_sys::Source;

use super::client::{Network, network};

/// With a hundred sources, one in six shares its bucket with another. With fifty busy ones, a bucket in a thousand has three.
const BUCKETS: usize = 512;

/// The sources that a bucket can name.
const NAMED: usize = 2;

/// The counts of one worker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AcceptedSources {
    secret: RandomState,
    buckets: Arc<Mutex<Box<[Bucket]>>>,
}

/// The connections of the sources of one hash.
#[derive(Clone, Copy, Default)]
struct Bucket([Named; NAMED]);

/// One of the sources that most of them came from.
#[derive(Clone, Copy, Default)]
struct Named {
    source: Network,
    /// How many more connections came from it than from sources without a name.
    lead: u32,
    /// Connections counted here. Those of sources without a name are counted for one that has one.
    accepted: u64,
}

impl Bucket {
    /// So many connections came from `source`.
    fn add(&mut self, source: Network, count: u32) {
        let Bucket(named) = self;
        let mut left = count;
        let mut place = named.iter().position(|named| named.source == source);
        if place.is_none() {
            // Each connection of a source without a name takes one away from the lead of those that have one.
            let least = named.iter().map(|named| named.lead).min().unwrap_or_default().min(count);
            named.iter_mut().for_each(|named| named.lead -= least);
            left -= least;
            place = named.iter().position(|named| named.lead == 0).filter(|_| left > 0);
            if let Some(place) = place {
                named[place].source = source;
            }
        }
        let named = &mut named[place.unwrap_or(NAMED - 1)];
        named.lead = named.lead.saturating_add(if place.is_some() { left } else { 0 });
        named.accepted += u64::from(count);
    }
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
        buckets[self.secret.hash_one(source) as usize % BUCKETS].add(source, 1);
    }
}

/// The counts of all workers, read together.
#[derive(Debug)]
pub(super) struct AllSources {
    workers: Vec<AcceptedSources>,
    buckets: Box<[Bucket]>,
}

impl AllSources {
    pub(super) fn of(workers: Vec<AcceptedSources>) -> AllSources {
        AllSources { workers, buckets: vec![Bucket::default(); BUCKETS].into_boxed_slice() }
    }

    /// Takes what the workers have counted, and lets what was counted before weigh less.
    pub(super) fn read(&mut self) {
        for Named { lead, .. } in self.buckets.iter_mut().flat_map(|bucket| &mut bucket.0) {
            *lead = lead.div_ceil(2);
        }
        for worker in &self.workers {
            let mut buckets = worker.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            for (bucket, all) in buckets.iter_mut().zip(&mut self.buckets) {
                for Named { source, accepted, .. } in std::mem::take(bucket).0 {
                    if accepted > 0 {
                        all.add(source, u32::try_from(accepted).unwrap_or(u32::MAX));
                    }
                }
            }
        }
    }

    /// How many connections were accepted, for each source that has a name.
    pub(super) fn accepted(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().flat_map(|bucket| bucket.0).map(|named| named.accepted)
    }

    /// Whose connections the one at `index` of these counts.
    pub(super) fn source(&self, index: usize) -> Source {
        match self.buckets[index / NAMED].0[index % NAMED].source {
            (true, network) => Source::Ipv6Network(network),
            (false, address) => Source::Ipv4(address as u32),
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.map(|Named { source, accepted, .. }| (source, accepted)))
            .finish()
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

    /// What is counted for each source that was seen, the most first.
    fn counted(all: &AllSources) -> Vec<(u64, Source)> {
        let mut found: Vec<_> =
            all.accepted().zip(0..).map(|(count, at)| (count, all.source(at))).collect();
        found.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
        found
    }

    /// Addresses that share a bucket.
    fn neighbours(worker: &AcceptedSources, count: usize) -> Vec<IpAddr> {
        let bucket = |ip| worker.secret.hash_one(network(ip)) as usize % BUCKETS;
        let all = (1..u32::MAX).map(|n| IpAddr::from(n.to_be_bytes()));
        all.filter(|&ip| bucket(ip) == 7).take(count).collect()
    }

    /// Purpose: connections are counted over all workers, and the busiest sources are named, of either kind.
    #[test]
    fn the_busiest_are_named() {
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
        let mut named = [counted(&all)[0].1, counted(&all)[1].1];
        named.sort_by_key(|source| matches!(source, Source::Ipv6Network(_)));
        assert_eq!(named, [Source::Ipv4(0xc000_0201), Source::Ipv6Network(0x2001_0db8_0000_0000)]);
    }

    /// Purpose: two busy sources of one bucket are both named, and each is counted for itself, whichever of them a worker has seen
    /// first, beside others of the bucket that connect now and then. Only one of them was named once: of thirty busy sources, two
    /// share a bucket more often than not, and then hardly any source was held back.
    #[test]
    fn two_of_one_bucket() {
        let workers = AcceptedSources::of_workers(2);
        let mut all = AllSources::of(workers.clone());
        let ips = neighbours(&workers[0], 12);
        for _look in 0..5 {
            for (worker, order) in workers.iter().zip([[0, 1], [1, 0]]) {
                for round in 0..100 {
                    worker.count(ips[order[0]]);
                    worker.count(ips[order[1]]);
                    if round % 10 == 9 {
                        worker.count(ips[2 + round / 10]);
                    }
                }
            }
            all.read();
        }
        let found = counted(&all);
        let mut named = [found[0].1, found[1].1];
        let expected = [0, 1].map(|at| Source::Ipv4(network(ips[at]).1 as u32));
        named.sort_by_key(|source| *source != expected[0]);
        assert_eq!(named, expected);
        assert!(found[..2].iter().all(|(count, _)| (1000..=1100).contains(count)), "{found:?}");
        assert_eq!(found[2].0, 0, "nothing is counted elsewhere");
    }

    /// Purpose: sources that have left are forgotten within a few readings, however many connections they had.
    #[test]
    fn what_was_counted_grows_old() {
        let worker = AcceptedSources::of_workers(1).remove(0);
        let mut all = AllSources::of(vec![worker.clone()]);
        let ips = neighbours(&worker, 3);
        for _ in 0..100_000 {
            worker.count(ips[0]);
            worker.count(ips[1]);
        }
        all.read();
        let new = Source::Ipv4(network(ips[2]).1 as u32);
        let is_named = |all: &AllSources| counted(all)[..2].iter().any(|(_, named)| *named == new);
        assert!(!is_named(&all));
        let mut looks = 0;
        while !is_named(&all) {
            (0..50).for_each(|_| worker.count(ips[2]));
            all.read();
            looks += 1;
            assert!(looks < 20, "it is still held back");
        }
    }
}
