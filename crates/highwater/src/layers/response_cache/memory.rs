//! Answers that are kept in this process.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use tokio::time::Instant;

use super::kept::{Kept, key};
use super::{RENEWAL_MAX, ResponseCache, watch};
use crate::app::{Layer, Personal, Request, Response};

struct Entry {
    kept: Kept,
    stored: Instant,
    /// When a request began to renew it.
    renewing: Option<Instant>,
}

/// Kept answers, in two halves: when the young one is full, it becomes the old one, whose entries are dropped. An answer that is
/// asked for moves back to the young one.
#[derive(Default)]
struct Store {
    young: HashMap<Box<str>, Entry>,
    old: HashMap<Box<str>, Entry>,
    young_bytes: usize,
}

impl Store {
    fn find(&mut self, key: &str, limits: &ResponseCache) -> Option<&mut Entry> {
        if let Some((key, entry)) = self.old.remove_entry(key) {
            self.put(key, entry, limits);
        }
        self.young.get_mut(key)
    }

    fn put(&mut self, key: Box<str>, entry: Entry, limits: &ResponseCache) {
        let size = entry.kept.content.len();
        if self.young.len() >= limits.entries_max / 2
            || self.young_bytes + size > limits.bytes_max / 2
        {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if size <= limits.bytes_max / 2 {
            self.old.remove(&key);
            self.young_bytes += size;
            let before = self.young.insert(key, entry);
            self.young_bytes -= before.map_or(0, |before| before.kept.content.len());
        }
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
        let mut store = self.store();
        let Some(entry) = store.find(&key, &self.settings) else {
            drop(store);
            watch(request);
            return ControlFlow::Continue(());
        };
        let now = Instant::now();
        let age = now.duration_since(entry.stored);
        let times = entry.kept.times;
        let is_renewed =
            entry.renewing.is_some_and(|since| now.duration_since(since) < RENEWAL_MAX);
        if age < times.lifetime || age < times.whole() && is_renewed {
            return ControlFlow::Break(entry.kept.answer(request, age));
        }
        entry.renewing = Some(now);
        drop(store);
        watch(request);
        ControlFlow::Continue(())
    }

    fn on_response(&self, request: &Request<'_>, response: &Response) {
        let Some(key) = key(request).filter(|_| request.method() == Method::GET) else { return };
        if request.extension().is_some_and(|personal: Personal| personal.is_set()) {
            return;
        }
        let Some(kept) = Kept::of(response, self.settings.times()) else { return };
        let entry = Entry { kept, stored: Instant::now(), renewing: None };
        self.store().put(key.into(), entry, &self.settings);
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
