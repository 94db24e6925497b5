//! The content of small files, with the state that each was in when it was read.
//!
//! It does not know whether a file has changed since: the caller compares the states. So an answer is as new as the disk,
//! at the price of one `stat` per request.
//!
//! Content of some length moves to a sealed file in memory when it is requested again: from there the kernel sends it
//! without a copy. It stays the same `Bytes` to everything else. Content that is asked for once does not move, since that
//! takes a copy and a descriptor.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use highwater_sys::sealed::{SEALED_BYTES_MIN, seal};
use http::HeaderValue;

use super::disk::State;

/// Files that were asked for again are spared this often in a row when room is made. A guess; it bounds the walk.
const SPARED_MAX: usize = 16;

/// What an entry takes besides its content. An estimate.
const OVERHEAD_BYTES: usize = 256;

/// A small file, as it was read.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) state: State,
    pub(super) tag: HeaderValue,
    pub(super) modified: HeaderValue,
    pub(super) content: Bytes,
    /// Whether its content is in a sealed file, or could not be moved there.
    is_settled: AtomicBool,
}

impl Small {
    pub(super) fn new(
        state: State,
        [tag, modified]: [HeaderValue; 2],
        content: impl Into<Bytes>,
    ) -> Self {
        let content = content.into();
        let is_settled = AtomicBool::new(content.len() < SEALED_BYTES_MIN);
        Small { state, tag, modified, content, is_settled }
    }
}

/// What was found at a place.
#[derive(Clone, Debug)]
pub(super) enum Known {
    File(Arc<Small>),
    /// There was no such file: a compressed sibling that a file does not have.
    Absent,
}

/// Small files by their places, of at most so many bytes in all.
#[derive(Debug)]
pub(super) struct Cache {
    bytes_max: usize,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Arc<str>, Entry>,
    /// The places in `entries`, each once, those to be removed next at the front.
    queue: VecDeque<Arc<str>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    bytes: usize,
    is_used: AtomicBool,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Cache { bytes_max, inner: RwLock::default() }
    }

    pub(super) fn get(&self, place: &str) -> Option<Known> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let entry = inner.entries.get(place)?;
        if !entry.is_used.load(Ordering::Relaxed) {
            entry.is_used.store(true, Ordering::Relaxed);
        }
        Some(entry.known.clone())
    }

    /// The same file, which is asked for again: from now on with its content in a sealed file, if it is large enough, and
    /// there are memory and descriptors for that.
    pub(super) fn settle(&self, place: &str, small: Arc<Small>) -> Arc<Small> {
        if small.is_settled.load(Ordering::Relaxed)
            || small.is_settled.swap(true, Ordering::Relaxed)
        {
            return small;
        }
        let Ok(content) = seal(&small.content) else { return small };
        let is_settled = AtomicBool::new(true);
        let (state, tag, modified) = (small.state, small.tag.clone(), small.modified.clone());
        let small = Arc::new(Small { state, tag, modified, content, is_settled });
        self.put(place, Known::File(Arc::clone(&small)));
        small
    }

    /// Keeps that there is no such file. Most often that is known: each request says it whose file is too large for the cache.
    pub(super) fn put_absent(&self, place: &str) {
        if !matches!(self.get(place), Some(Known::Absent)) {
            self.put(place, Known::Absent);
        }
    }

    /// Keeps what was found, unless it is larger than all there is room for.
    pub(super) fn put(&self, place: &str, known: Known) {
        let content = match &known {
            Known::File(small) => small.content.len(),
            Known::Absent => 0,
        };
        let bytes = OVERHEAD_BYTES + place.len() + content;
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.remove(place);
        if bytes > self.bytes_max {
            return;
        }
        inner.make_room(self.bytes_max - bytes);
        let place: Arc<str> = place.into();
        inner.bytes += bytes;
        inner.queue.push_back(Arc::clone(&place));
        inner.entries.insert(place, Entry { known, bytes, is_used: AtomicBool::new(false) });
    }
}

impl Inner {
    fn remove(&mut self, place: &str) {
        if let Some(entry) = self.entries.remove(place) {
            self.bytes -= entry.bytes;
            self.queue.retain(|other| **other != *place);
        }
    }

    /// Removes files until at most `bytes` are left.
    fn make_room(&mut self, bytes: usize) {
        let mut spared = 0;
        while self.bytes > bytes {
            let place = self.queue.pop_front().expect("what takes room is in the queue");
            let entry = &self.entries[&place];
            if spared < SPARED_MAX && entry.is_used.swap(false, Ordering::Relaxed) {
                spared += 1;
                self.queue.push_back(place);
                continue;
            }
            spared = 0;
            self.bytes -= entry.bytes;
            self.entries.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::disk::{Found, Root};
    use super::*;

    fn file(size: usize) -> Known {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("f"), "").expect("a file");
        let Ok(Found::File(_, state)) = Root(folder.path().into()).open("f") else {
            panic!("a file")
        };
        let value = HeaderValue::from_static("x");
        let content = Bytes::from(vec![0; size]);
        Known::File(Arc::new(Small::new(state, [value.clone(), value], content)))
    }

    /// Purpose: files that are asked for stay while others pass through.
    #[test]
    fn used_files_stay() {
        let cache = Cache::new(10 * (OVERHEAD_BYTES + 100));
        let content = file(50);
        cache.put("hot", content.clone());
        for n in 0..1000 {
            assert!(cache.get("hot").is_some(), "after {n} others");
            cache.put(&format!("cold {n}"), content.clone());
        }
        assert!(cache.get("cold 999").is_some() && cache.get("cold 1").is_none());
    }

    /// Purpose: what is known to be absent does not move in the queue, for which the whole of it would be walked; what was there is replaced.
    #[test]
    fn absent_files_stay_where_they_are() {
        let cache = Cache::new(4096);
        cache.put_absent("f.br");
        cache.put("f", file(50));
        let queue = || Vec::from(cache.inner.read().expect("it is not poisoned").queue.clone());
        let before = queue();
        cache.put_absent("f.br");
        assert_eq!(queue(), before);
        cache.put_absent("f");
        assert!(matches!(cache.get("f"), Some(Known::Absent)));
    }

    /// The inode of the file that is mapped where `content` lies.
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    fn mapped_file(content: &Bytes) -> Option<u64> {
        let at = content.as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it is mounted");
        let line = maps.lines().find(|line| {
            let (start, rest) = line.split_once('-').expect("a range");
            let (end, _) = rest.split_once(' ').expect("more fields");
            let number = |text| usize::from_str_radix(text, 16).expect("an address");
            (number(start)..number(end)).contains(&at)
        })?;
        line.split_ascii_whitespace().nth(4)?.parse().ok().filter(|inode| *inode != 0)
    }

    /// How many descriptors of this process are of that file.
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    fn descriptors_of(inode: u64) -> usize {
        use std::os::unix::fs::MetadataExt;
        let entries = std::fs::read_dir("/proc/self/fd").expect("it is mounted");
        let inodes = entries.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
        inodes.filter(|metadata| metadata.ino() == inode).count()
    }

    /// Purpose: large content moves to a file in memory when it is asked for again, once; small content never does; and
    /// the descriptor comes back when neither the cache nor an answer has the content any more.
    #[test]
    #[cfg(all(target_os = "linux", not(highwater_portable_only)))]
    fn large_files_settle() {
        let cache = Cache::new(2 * SEALED_BYTES_MIN);
        let found = |place: &str| match cache.get(place) {
            Some(Known::File(small)) => small,
            other => panic!("{other:?}"),
        };
        for size in [SEALED_BYTES_MIN - 1, SEALED_BYTES_MIN] {
            cache.put("f", file(size));
            let first = found("f");
            assert_eq!(mapped_file(&first.content), None);
            let second = cache.settle("f", Arc::clone(&first));
            let inode = mapped_file(&second.content);
            assert_eq!(inode.is_some(), size == SEALED_BYTES_MIN, "{size}");
            assert!(second.content == first.content && second.state == first.state);
            let third = cache.settle("f", found("f"));
            assert!(Arc::ptr_eq(&second, &third), "it settles once");
            let Some(inode) = inode else { continue };
            let answer = third.content.slice(100..);
            drop((second, third));
            assert_eq!(descriptors_of(inode), 1);
            cache.put("other", file(2 * SEALED_BYTES_MIN - OVERHEAD_BYTES - "other".len()));
            assert!(cache.get("f").is_none(), "there is no room for both");
            assert_eq!(descriptors_of(inode), 1, "an answer is still being sent");
            drop(answer);
            assert_eq!(descriptors_of(inode), 0);
        }
    }

    proptest! {
        /// Purpose: the bytes are within their bound after any sequence of calls, and counted right.
        #[test]
        fn bounded(puts in proptest::collection::vec((0u8..20, 0usize..2000), 1..100)) {
            let cache = Cache::new(4096);
            let content = file(0);
            let Known::File(sample) = &content else { unreachable!() };
            for (name, size) in puts {
                let fields = [sample.tag.clone(), sample.modified.clone()];
                let small = Small::new(sample.state, fields, vec![0; size]);
                cache.get(&format!("{}", name / 2));
                cache.put(&format!("{name}"), Known::File(Arc::new(small)));
                let inner = cache.inner.read().expect("it is not poisoned");
                let sum: usize = inner.entries.values().map(|entry| entry.bytes).sum();
                prop_assert!(inner.bytes == sum && sum <= 4096);
                prop_assert_eq!(inner.queue.len(), inner.entries.len());
            }
        }
    }
}
