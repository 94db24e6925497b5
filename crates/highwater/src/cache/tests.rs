//! The whole cache, with threads and under attack. `tests/cache_model.rs` runs its shared part in
//! every possible order; `tests/cache_hit.rs` counts the allocations of a hit.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use super::s3fifo::S3Fifo;
use super::*;

fn cache(answers_max: usize, bytes_max: usize) -> Cache<String> {
    Cache::new(CacheLimits { answers_max, bytes_max })
}

fn never() -> Bytes {
    panic!("must have been in the cache")
}

/// A store of one number. `content` is written before `version`, as `Version` demands, so at every
/// moment it is at least `version`.
#[derive(Default)]
struct Store {
    content: AtomicU64,
    version: AtomicU64,
}

impl Version for Store {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

impl Store {
    fn change(&self) {
        self.content.fetch_add(1, Ordering::AcqRel);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn encode(&self, key: &str) -> Bytes {
        let content = self.content.load(Ordering::Acquire);
        // Here a builder is slow, with old content in its hands.
        thread::yield_now();
        Bytes::from(format!("{key}={content}"))
    }
}

/// Purpose: the cache must never return the answer of another key, or one older than the store was
/// at the request's start. The checker knows nothing of the cache: it reads the number in the
/// answer.
#[test]
fn no_answer_is_older_than_its_request() {
    const REQUESTS: u64 = 20_000;
    let (store, cache) = (Store::default(), cache(64, 1 << 20));
    thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread| {
            let (store, cache) = (&store, &cache);
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let key = format!("k{}", (request * (thread + 3)) % 100);
                    let began_at = store.version();
                    let answer = cache.get_or_build_from(&*key, store, |store| store.encode(&key));
                    let answer = String::from_utf8(answer.to_vec()).expect("we wrote it");
                    let (of, content) = answer.split_once('=').expect("we wrote it");
                    assert_eq!(of, key);
                    let content: u64 = content.parse().expect("we wrote it");
                    assert!(content >= began_at, "{answer} in a request begun at {began_at}");
                }
            })
        });
        while threads.iter().any(|thread| !thread.is_finished()) {
            store.change();
            thread::yield_now();
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, 4 * REQUESTS, "each request is one or the other");
    assert!(stats.answers <= 64 && stats.bytes <= 1 << 20);
}

/// Purpose: a race that some caches lose. A slow thread holds a body of version 1 while the store
/// goes on to version 2 and others publish that; then the slow one publishes.
#[test]
fn a_slow_builder_does_not_overwrite_what_came_after_it() {
    let cache = cache(8, 1 << 20);
    let (has_read, read) = mpsc::channel();
    let (may_publish, publish) = mpsc::channel();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            cache.get_or_build("key", 1, move || {
                has_read.send(()).expect("the test listens");
                publish.recv().expect("the test speaks");
                Bytes::from_static(b"old")
            })
        });
        read.recv().expect("the slow thread speaks");
        assert_eq!(
            cache.get_or_build("key", 2, || "new".into()),
            "new",
            "does not wait for the old"
        );
        may_publish.send(()).expect("the slow thread listens");
        assert_eq!(slow.join().expect("it does not panic"), "old", "right for a request at 1");
    });
    assert_eq!(cache.get_or_build("key", 2, never), "new");
    assert_eq!(cache.get_or_build("key", 1, never), "new", "newer is right for an older request");
}

/// Purpose: a thousand clients at once after a change must cost one build, not a thousand.
#[test]
fn one_builds_and_the_others_wait() {
    let cache = cache(8, 1 << 20);
    let builds = AtomicU64::new(0);
    for version in 0..200 {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let build = || {
                        builds.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        Bytes::from_static(b"answer")
                    };
                    assert_eq!(cache.get_or_build("key", version, build), "answer");
                });
            }
        });
        assert_eq!(builds.load(Ordering::Relaxed), version + 1);
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (600, 200), "counts of threads that have ended stay");
}

/// Purpose: a handler that panics must not leave waiting threads blocked, nor its key broken.
#[test]
fn a_build_that_panics_is_taken_over() {
    let cache = cache(8, 1 << 20);
    let (is_building, building) = mpsc::channel();
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let fails = scope.spawn(|| {
            let build = || {
                is_building.send(()).expect("the test listens");
                while !waits.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                panic!("a build that fails")
            };
            panic::catch_unwind(AssertUnwindSafe(|| cache.get_or_build("key", 1, build)))
        });
        building.recv().expect("the builder speaks");
        waits.store(true, Ordering::Release);
        assert_eq!(cache.get_or_build("key", 1, || "second".into()), "second");
        assert!(fails.join().expect("caught").is_err());
    });
    assert_eq!(cache.get_or_build("key", 1, never), "second");
}

/// Purpose: answers assembled from cached answers must not deadlock, not even from themselves.
#[test]
fn a_build_may_ask_the_cache() {
    let cache = cache(8, 1 << 20);
    let part = || cache.get_or_build("part", 1, || "part".into());
    assert_eq!(cache.get_or_build("whole", 1, part), "part");
    assert_eq!(cache.get_or_build("part", 1, never), "part");
    let again = || cache.get_or_build("self", 1, || "inner".into());
    assert_eq!(cache.get_or_build("self", 1, again), "inner");
    assert_eq!(cache.get_or_build("self", 1, never), "inner");
}

/// Purpose: two threads whose builds need each other's key must both come back.
#[test]
fn builds_that_cross_do_not_deadlock() {
    let cache = cache(64, 1 << 20);
    for version in 0..200 {
        thread::scope(|scope| {
            for (outer, inner) in [("a", "b"), ("b", "a")] {
                let cache = &cache;
                scope.spawn(move || {
                    cache.get_or_build(outer, version, || {
                        thread::yield_now();
                        cache.get_or_build(inner, version, || inner.into());
                        outer.into()
                    })
                });
            }
        });
    }
}

/// Purpose: the limits hold one below, at, and one above; in bytes as in answers.
#[test]
fn limits_hold_exactly() {
    let mut table = S3Fifo::<String>::new(10, 1 << 20);
    for (inserted, kept) in [(9, 9), (10, 10), (11, 10)] {
        (0..inserted).for_each(|n| table.insert(n, &*format!("{n}"), 1, Bytes::from_static(b"x")));
        assert_eq!(table.size().0, kept);
    }

    let (_, one) = size_after(&[100]);
    let mut table = S3Fifo::<String>::new(100, one);
    table.insert(1, "1", 1, Bytes::from(vec![0; 100]));
    assert_eq!(table.size(), (1, one), "as large as allowed");
    table.insert(2, "2", 1, Bytes::from(vec![0; 101]));
    assert_eq!(table.size(), (1, one), "one byte more is not kept, and displaces nothing");
    table.insert(1, "1", 2, Bytes::from(vec![0; 99]));
    assert_eq!(table.size(), (1, one - 1), "a new version is charged in place of the old");

    let mut table = S3Fifo::<String>::new(100, one * 3);
    (0..10).for_each(|n| table.insert(n, &*n.to_string(), 1, Bytes::from(vec![0; 100])));
    assert_eq!(table.size(), (3, one * 3));
}

fn size_after(sizes: &[usize]) -> (usize, usize) {
    let mut table = S3Fifo::<String>::new(100, 1 << 20);
    for (n, size) in sizes.iter().enumerate() {
        table.insert(n as u64, &*n.to_string(), 1, Bytes::from(vec![0; *size]));
    }
    table.size()
}

/// Purpose: a client that requests ever new keys must neither fill the memory nor displace the
/// answers that other clients request, whether the number of answers is exhausted or their bytes.
#[test]
fn a_flood_of_keys_displaces_only_itself() {
    for limits in [(100, usize::MAX / 2), (usize::MAX / 2, 100 * 400)] {
        let (answers_max, bytes_max) = limits;
        let mut table = S3Fifo::<String>::new(answers_max, bytes_max);
        let answer = || Bytes::from(vec![0; 200]);
        let popular: Vec<(u64, String)> = (0..20).map(|n| (n, format!("popular{n}"))).collect();
        for (hash, key) in &popular {
            table.insert(*hash, key.as_str(), 1, answer());
            assert!(table.find(*hash, key.as_str(), 1).is_some());
        }
        for n in 1_000..50_000 {
            table.insert(n, &*format!("flood{n}"), 1, answer());
            assert!(table.size().0 <= answers_max && table.size().1 <= bytes_max);
        }
        let kept =
            popular.iter().filter(|(hash, key)| table.find(*hash, key.as_str(), 1).is_some());
        assert_eq!(kept.count(), 20, "with the limits {limits:?}");
    }
}

/// Purpose: an answer that is popular now must be able to replace one that was popular before.
#[test]
fn answers_without_requests_are_displaced() {
    let mut table = S3Fifo::<String>::new(100, 1 << 20);
    for generation in 0..5 {
        let keys = || (0..100).map(move |n| (generation * 1000 + n, format!("{generation}/{n}")));
        for _ in 0..20 {
            for (hash, key) in keys() {
                if table.find(hash, key.as_str(), 1).is_none() {
                    table.insert(hash, key.as_str(), 1, Bytes::from_static(b"x"));
                }
            }
        }
        let kept =
            keys().filter(|(hash, key)| table.find(*hash, key.as_str(), 1).is_some()).count();
        assert!(kept >= 80, "only {kept} of generation {generation}");
    }
}

/// Purpose: two keys with the same hash, though that hardly occurs, must not get each other's
/// answer.
#[test]
fn keys_that_share_a_hash_displace_each_other() {
    let mut table = S3Fifo::<String>::new(10, 1 << 20);
    table.insert(7, "a", 5, "answer a".into());
    assert!(table.find(7, "b", 1).is_none());
    table.insert(7, "b", 1, "answer b".into());
    assert!(table.find(7, "a", 1).is_none());
    assert_eq!(table.find(7, "b", 1).map(|answer| answer.bytes), Some("answer b".into()));
    assert_eq!(table.size().0, 1);

    let shared = Shared::<String>::new(10, 1 << 20);
    let Lookup::Build(ticket) = shared.find(7, "a", 1, true) else { panic!("nothing is there") };
    assert!(matches!(shared.find(7, "b", 1, true), Lookup::BuildAlone), "does not wait for a");
    ticket.publish::<str>("answer a".into());
}

/// Purpose: threads' own copies must follow the version like everything else, be limited in number,
/// and end with their cache.
#[test]
fn copies_of_a_thread_are_bounded_and_follow_the_version() {
    let cache = cache(1024, 1 << 20);
    let shared_answer = Bytes::from_static(b"answer");
    let keys: Vec<String> = (0..10 * NEAR_ANSWERS_MAX).map(|n| n.to_string()).collect();
    for version in 1..=2 {
        for key in &keys {
            let first = cache.get_or_build(key.as_str(), version, || shared_answer.clone());
            assert_eq!(first.as_ptr(), shared_answer.as_ptr(), "built: no copy yet");
            cache.get_or_build(key.as_str(), version, never);
        }
        let hash = |key: &String| cache.hasher.hash_one(key.as_str());
        let copy = |key: &&String| {
            near::find::<String, str>(&cache.registry, hash(key), key, version).is_some()
        };
        let copies = keys.iter().filter(copy).count();
        assert!((1..=NEAR_ANSWERS_MAX).contains(&copies), "{copies} copies");
    }
}

/// Purpose: an answer at the size up to which threads keep copies is copied, one above it is shared.
#[test]
fn large_answers_are_not_copied() {
    for (size, copied) in [(NEAR_ANSWER_BYTES_MAX, true), (NEAR_ANSWER_BYTES_MAX + 1, false)] {
        let cache = cache(8, 1 << 20);
        let built = Bytes::from(vec![b'x'; size]);
        cache.get_or_build("key", 1, || built.clone());
        cache.get_or_build("key", 1, never);
        let served = cache.get_or_build("key", 1, never);
        assert_eq!(served.as_ptr() != built.as_ptr(), copied);
        assert_eq!(served, built);
    }
}

/// Purpose: a scrape must show what happened.
#[test]
fn stats_count_hits_misses_and_size() {
    let cache = cache(8, 1 << 20);
    assert_eq!(cache.stats(), CacheStats::default());
    cache.get_or_build("key", 1, || "answer".into());
    for hits in 1..=3 {
        cache.get_or_build("key", 1, never);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.answers), (hits, 1, 1));
        assert!(stats.bytes >= "key".len() + "answer".len());
    }
}

/// Purpose: keys need not be strings.
#[test]
fn keys_of_other_types() {
    let cache = Cache::<u64>::new(CacheLimits::default());
    assert_eq!(cache.get_or_build(&7, 1, || "seven".into()), "seven");
    assert_eq!(cache.get_or_build(&7, 1, never), "seven");
}

/// Purpose: a long key counts with its full length, whatever type it is requested as, so that many
/// of them do not take more memory than the cache was given.
#[test]
fn long_keys_count_as_long() {
    let long = "k".repeat(10_000);
    let charged = |ask: &dyn Fn(&Cache<String>)| {
        let cache = Cache::<String>::new(CacheLimits::default());
        ask(&cache);
        cache.stats().bytes
    };
    let as_str = charged(&|cache| {
        cache.get_or_build(long.as_str(), 1, || Bytes::from_static(b"x"));
    });
    let as_string = charged(&|cache| {
        cache.get_or_build(&long, 1, || Bytes::from_static(b"x"));
    });
    assert!(as_str >= long.len());
    assert_eq!(as_string, as_str);
    let cache = Cache::<(String, u64)>::new(CacheLimits::default());
    cache.get_or_build(&(long.clone(), 7), 1, || Bytes::from_static(b"x"));
    assert!(cache.stats().bytes >= long.len());
    let cache = Cache::<String>::new(CacheLimits { answers_max: 32, bytes_max: 100_000 });
    for n in 0..100 {
        cache.get_or_build(&format!("{n}{long}"), 1, || Bytes::from_static(b"x"));
    }
    assert!(cache.stats().answers < 10, "{:?}", cache.stats());
}

/// Purpose: an answer that is built in a task is found under its version and later ones' requests miss;
/// asking for one that is not there neither builds nor keeps another from building.
#[test]
fn what_is_not_there_is_not_found() {
    let cache = cache(10, 1000);
    assert_eq!(cache.find("a", 1), None);
    assert_eq!(cache.get_or_build("a", 1, || "one".into()), "one");
    for _ in 0..2 {
        assert_eq!(cache.find("a", 1).expect("it was put in"), "one");
    }
    assert_eq!((cache.find("a", 2), cache.find("b", 1)), (None, None));
    assert_eq!(cache.get_or_build("a", 2, || "two".into()), "two");
    assert_eq!(cache.find("a", 1).expect("a later one will do"), "two");
}
