//! Answers that are kept in this process.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::kept::{Kept, changed_keys, has_changed, key, wants_fresh};
use super::{RENEWAL_MAX, ResponseCache, watch};
use crate::app::{Layer, Personal, Request, Response};

/// What an entry takes besides its bytes, about: the places in the map, and the beginnings of its parts.
const OVERHEAD_BYTES: usize = 256;

/// How many changed targets are remembered. A guess: they matter only to requests that are under way meanwhile.
const CHANGES_MAX: u64 = 1024;

struct Entry {
    kept: Kept,
    /// When the request began whose answer it is, or which renewed it. Its handler may have read the data at once, so a later
    /// answer is not always a newer one.
    begun: Instant,
    /// When a request began to renew it.
    renewing: Option<Instant>,
}

impl Entry {
    fn new(kept: Kept, begun: Instant) -> Self {
        Entry { kept, begun, renewing: None }
    }

    fn bytes(&self, key: &str) -> usize {
        OVERHEAD_BYTES + key.len() + self.kept.bytes()
    }
}

/// Kept answers, in two halves: when the young one is full, it becomes the old one, whose entries are dropped. An answer that is
/// asked for moves back to the young one.
#[derive(Default)]
struct Store {
    young: HashMap<Box<str>, Entry>,
    old: HashMap<Box<str>, Entry>,
    young_bytes: usize,
    /// The targets that were changed last, as the hash of their key, and when; of those that share a place, the last.
    changes: HashMap<u64, (u64, Instant)>,
    hasher: RandomState,
}

impl Store {
    fn find(&mut self, key: &str, limits: &ResponseCache) -> Option<&mut Entry> {
        if let Some((key, entry)) = self.old.remove_entry(key) {
            self.put(key, entry, limits);
        }
        self.young.get_mut(key)
    }

    /// Keeps an answer, unless a request that began later has been answered or has changed its target.
    fn keep(&mut self, key: &str, entry: Entry, limits: &ResponseCache) {
        let known = self.young.get(key).or_else(|| self.old.get(key));
        let is_older = known.is_some_and(|known| known.begun > entry.begun);
        let hash = self.hasher.hash_one(key);
        let change = self.changes.get(&(hash % CHANGES_MAX));
        let is_changed = change.is_some_and(|(other, at)| *other == hash && *at > entry.begun);
        if !is_older && !is_changed {
            self.put(key.into(), entry, limits);
        }
    }

    /// A request that began at `begun` was answered 304: if that confirms the kept answer, it is new again; otherwise the next
    /// request may renew it.
    fn confirm(&mut self, key: &str, begun: Instant, response: &Response, limits: &ResponseCache) {
        let Some(mut entry) = self.remove(key) else { return };
        entry.renewing = None;
        if entry.begun <= begun && entry.kept.renew(response, limits.times()) {
            entry.begun = begun;
        }
        self.put(key.into(), entry, limits);
    }

    /// The target was changed.
    fn forget(&mut self, key: &str, now: Instant) {
        self.remove(key);
        let hash = self.hasher.hash_one(key);
        self.changes.insert(hash % CHANGES_MAX, (hash, now));
    }

    fn remove(&mut self, key: &str) -> Option<Entry> {
        let Some(entry) = self.young.remove(key) else { return self.old.remove(key) };
        self.young_bytes -= entry.bytes(key);
        Some(entry)
    }

    fn put(&mut self, key: Box<str>, entry: Entry, limits: &ResponseCache) {
        self.remove(&key);
        let bytes = entry.bytes(&key);
        if bytes > limits.bytes_max / 2 {
            return;
        }
        if self.young.len() >= limits.entries_max / 2
            || self.young_bytes + bytes > limits.bytes_max / 2
        {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(key, entry);
    }
}

/// What runs for each request.
struct Cache {
    settings: ResponseCache,
    store: Mutex<Store>,
}

impl Cache {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let Some(key) = key(request) else { return ControlFlow::Continue(()) };
        if !wants_fresh(request)
            && let Some(answer) = self.find(&key, request)
        {
            return ControlFlow::Break(answer);
        }
        watch(request);
        ControlFlow::Continue(())
    }

    /// The kept answer to `request`; `None` if its handler has to run.
    fn find(&self, key: &str, request: &Request<'_>) -> Option<Response> {
        let mut store = self.store();
        let entry = store.find(key, &self.settings)?;
        let now = Instant::now();
        let age = now.duration_since(entry.begun);
        let times = entry.kept.times;
        let is_renewed =
            entry.renewing.is_some_and(|since| now.duration_since(since) < RENEWAL_MAX);
        if age < times.lifetime || age < times.whole() && is_renewed {
            return Some(entry.kept.answer(request, age));
        }
        // The answer to a HEAD has no content to keep.
        if request.method() == Method::GET {
            entry.renewing = Some(now);
        }
        None
    }

    fn on_response(&self, request: &Request<'_>, response: &Response) {
        if let Some(keys) = changed_keys(request).filter(|_| has_changed(response)) {
            let (mut store, now) = (self.store(), Instant::now());
            return keys.iter().for_each(|key| store.forget(key, now));
        }
        let Some(key) = key(request).filter(|_| request.method() == Method::GET) else { return };
        let Some(personal) = request.extension().filter(|personal: &Personal| !personal.is_set())
        else {
            return;
        };
        let (begun, limits) = (personal.since, &self.settings);
        if response.status() == StatusCode::NOT_MODIFIED {
            return self.store().confirm(&key, begun, response, limits);
        }
        if let Some(kept) = Kept::of(response, limits.times()) {
            self.store().keep(&key, Entry::new(kept, begun), limits);
        }
    }
}

/// The parts of a layer that keeps answers in this process.
pub(super) fn layer(settings: ResponseCache) -> Layer {
    let cache = Arc::new(Cache { settings, store: Mutex::default() });
    let asked = Arc::clone(&cache);
    Layer::new()
        .keeps_time()
        .on_request(move |request: &Request<'_>| asked.on_request(request))
        .on_response(move |request: &Request<'_>, response: &mut Response| {
            cache.on_response(request, response);
        })
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("settings", &self.settings).finish_non_exhaustive()
    }
}
