//! The todos at one moment.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::Row;
use super::chunk::{Chunk, merge, push};
use crate::reads::Shown;
use crate::store::Revision;
use crate::todo::Key;

/// A snapshot's revision of the store, and how much of it the snapshot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) revision: Revision,
    /// How many todos the store has.
    pub(super) count: u64,
    /// No todo that stands behind this one is in memory; `None`: all are.
    pub(super) floor: Option<Key>,
}

/// The todos at one moment, newest first: all, or all down to a floor.
#[derive(Default)]
pub struct Snapshot {
    number: u64,
    about: About,
    len: usize,
    bytes: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl Snapshot {
    /// The number of earlier snapshots in this process. Answers cached under it cannot be stale.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The store's revision that it shows.
    pub fn revision(&self) -> Revision {
        self.about.revision
    }

    /// How many todos the store has.
    pub fn count(&self) -> u64 {
        self.about.count
    }

    /// Whether it shows all of them.
    pub fn is_whole(&self) -> bool {
        self.about.floor.is_none()
    }

    /// The oldest place that it shows, if it does not show everything.
    pub(super) fn floor(&self) -> Option<Key> {
        self.about.floor
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many todos it shows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it shows none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The newest `count` as a JSON list, newest first.
    pub fn list(&self, count: usize) -> Bytes {
        let slices = || {
            let mut left = count;
            self.chunks.iter().map_while(move |chunk| {
                let slice = chunk.newest(left);
                left -= left.min(chunk.len());
                (!slice.is_empty()).then_some(slice)
            })
        };
        let bytes: usize = slices().map(<[u8]>::len).sum();
        let mut list = Vec::with_capacity(bytes + 2);
        list.push(b'[');
        slices().for_each(|slice| list.extend_from_slice(slice));
        // The last comma, if there is one.
        list.truncate(bytes.max(1));
        list.push(b']');
        list.into()
    }

    /// The todo that stands there.
    pub fn find(&self, key: Key) -> Option<Shown> {
        let at = self.chunks.partition_point(|chunk| chunk.last() > key);
        self.chunks.get(at)?.find(key)
    }

    /// All keys, newest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.chunks.iter().flat_map(|chunk| chunk.keys())
    }

    /// The next snapshot: with these rows, sorted newest first, each key once.
    pub(super) fn with(&self, about: About, rows: &[Row]) -> Snapshot {
        let mut chunks = Vec::with_capacity(self.chunks.len() + rows.len() / 64 + 2);
        let mut rest = rows;
        if self.chunks.is_empty() {
            merge(None, rest, &mut chunks);
        }
        for (at, chunk) in self.chunks.iter().enumerate() {
            if rest.is_empty() {
                push(Arc::clone(chunk), &mut chunks);
                chunks.extend_from_slice(&self.chunks[at + 1..]);
                break;
            }
            let next = self.chunks.get(at + 1).map(|next| next.first());
            let count = next.map_or(rest.len(), |next| rest.partition_point(|row| row.0 > next));
            let (here, later) = rest.split_at(count);
            match here {
                [] => push(Arc::clone(chunk), &mut chunks),
                _ => merge(Some(chunk), here, &mut chunks),
            }
            rest = later;
        }
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        let bytes = chunks.iter().map(|chunk| chunk.memory()).sum();
        Snapshot { number: self.number + 1, about, len, bytes, chunks }
    }

    /// Drops its oldest todos until it takes at most `bytes_max`; returns their ids.
    pub(super) fn trim(&mut self, bytes_max: usize) -> Vec<Uuid> {
        let mut dropped = Vec::new();
        while self.bytes > bytes_max
            && let Some(chunk) = self.chunks.pop_if(|_| self.len > 0)
        {
            self.bytes -= chunk.memory();
            self.len -= chunk.len();
            // Those before it stay.
            self.about.floor = Some(match self.chunks.last() {
                Some(last) => last.last(),
                None => Key { created_us: i64::MAX, id: Uuid::max() },
            });
            dropped.extend(chunk.keys().map(|key| key.id));
        }
        dropped
    }

    #[cfg(test)]
    pub(super) fn chunk_lengths(&self) -> Vec<usize> {
        self.chunks.iter().map(|chunk| chunk.len()).collect()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot {} of {:?}: {} todos", self.number, self.about, self.len)
    }
}
