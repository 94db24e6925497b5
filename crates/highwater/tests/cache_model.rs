//! The shared part of the cache, run in every order in which its threads can be interleaved.
//!
//! Loom does that, given its own locks and atomics in place of the standard ones. The modules under
//! test take theirs from `super::sync`, so they are compiled here once more, against the `sync` below.
#![forbid(unsafe_code)]
#![allow(dead_code, unreachable_pub)] // the modules serve more than this test

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU8;
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
}
#[path = "../src/cache/flight.rs"]
mod flight;
#[path = "../src/cache/s3fifo.rs"]
mod s3fifo;
#[path = "../src/cache/shared.rs"]
mod shared;

use bytes::Bytes;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use shared::{Lookup, Shared};
use sync::Arc;

/// Chosen here, since a hash keyed at random would make one run differ from the next.
const HASH: u64 = 7;

/// What `Cache::get_or_build` does, without a thread's own copies.
fn get(shared: &Shared<String>, version: u64, build: impl FnOnce() -> u64) -> u64 {
    let bytes = match shared.find(HASH, "key", version, true) {
        Lookup::Found(answer) => answer.bytes,
        Lookup::Joined(bytes) => bytes,
        Lookup::Build(ticket) => ticket.publish::<str>(number(build())),
        Lookup::BuildAlone => number(build()),
    };
    u64::from_le_bytes(bytes[..].try_into().expect("eight bytes were put in"))
}

fn number(content: u64) -> Bytes {
    Bytes::copy_from_slice(&content.to_le_bytes())
}

/// A store whose content is its version's number; the content changes first.
struct Store {
    content: AtomicU64,
    version: AtomicU64,
}

impl Store {
    fn new() -> Self {
        Store { content: AtomicU64::new(1), version: AtomicU64::new(1) }
    }

    fn change(&self) {
        self.content.store(2, Ordering::Release);
        self.version.store(2, Ordering::Release);
    }

    /// A request: reads the version, then asks. What it gets must not be older.
    fn request(&self, shared: &Shared<String>) {
        let began_at = self.version.load(Ordering::Acquire);
        let content = get(shared, began_at, || self.content.load(Ordering::Acquire));
        assert!(content >= began_at, "content {content} in a request begun at {began_at}");
    }
}

/// Purpose: no interleaving of two requests and a change lets either of them, or any that follows,
/// see what was before the change after it. In the cache this one learned from, a thread with an old
/// body could publish it under a newer version.
#[test]
fn a_change_is_never_missed() {
    let mut model = loom::model::Builder::new();
    // Beyond three preemptions the orders multiply and hardly ever show anything new.
    model.preemption_bound = Some(3);
    model.check(|| {
        let (store, shared) = (Arc::new(Store::new()), Arc::new(Shared::new(8, 1 << 20)));
        let request = || {
            let (store, shared) = (Arc::clone(&store), Arc::clone(&shared));
            thread::spawn(move || store.request(&shared))
        };
        let requests = [request(), request()];
        store.change();
        for request in requests {
            request.join().expect("its assertions held");
        }
        store.request(&shared);
    });
}

/// Purpose: two requests for the same key at once cost one build, and the waiting one is always woken.
#[test]
fn the_same_answer_is_built_once() {
    loom::model(|| {
        let (shared, builds) = (Arc::new(Shared::new(8, 1 << 20)), Arc::new(AtomicU64::new(0)));
        let request = || {
            let (shared, builds) = (Arc::clone(&shared), Arc::clone(&builds));
            thread::spawn(move || get(&shared, 1, || builds.fetch_add(1, Ordering::Relaxed)))
        };
        for request in [request(), request()] {
            assert_eq!(request.join().expect("it does not panic"), 0);
        }
        assert_eq!(builds.load(Ordering::Relaxed), 1);
    });
}

/// Purpose: if the builder fails, the waiting request builds instead of waiting for ever.
#[test]
fn an_abandoned_build_is_taken_over() {
    loom::model(|| {
        let shared = Arc::new(Shared::<String>::new(8, 1 << 20));
        let fails = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || drop(shared.find(HASH, "key", 1, true)))
        };
        assert_eq!(get(&shared, 1, || 5), 5);
        fails.join().expect("it does not panic");
    });
}
