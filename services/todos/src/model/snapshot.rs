//! All todos at one moment.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Row;
use super::chunk::{Chunk, merge, push};
use crate::reads::Shown;
use crate::store::Revision;
use crate::todo::Key;

/// All todos at one moment, newest first.
#[derive(Default)]
pub struct Snapshot {
    number: u64,
    revision: Revision,
    len: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl Snapshot {
    /// How many snapshots were before it in this process. What is cached under it cannot be stale.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The store's revision that it shows.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many todos there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
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

    /// The next one: with these rows, which are sorted newest first, each key once.
    pub(super) fn with(&self, revision: Revision, rows: &[Row]) -> Snapshot {
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
        Snapshot { number: self.number + 1, revision, len, chunks }
    }

    #[cfg(test)]
    pub(super) fn chunk_lengths(&self) -> Vec<usize> {
        self.chunks.iter().map(|chunk| chunk.len()).collect()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot {} of {:?}: {} todos", self.number, self.revision, self.len)
    }
}
