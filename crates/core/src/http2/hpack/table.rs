//! HPACK's dynamic table (RFC 7541 §2.3.2, §4): the fields that both sides remember, the newest first.
//!
//! All names and values stand one after another in one buffer, so a field costs no allocation of its own. Evicted ones
//! stay at its beginning until they are half of it. Invariants: `size` is the sum of the entries' sizes and at most
//! `size_max`; the buffer holds at most three times `size_max`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// What an entry counts beside its bytes (RFC 7541 §4.1).
pub(super) const OVERHEAD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    name_len: u32,
    value_len: u32,
}

impl Entry {
    fn size(&self) -> usize {
        self.name_len as usize + self.value_len as usize + OVERHEAD
    }

    #[inline]
    fn name(&self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.name_len as usize
    }

    #[inline]
    fn value(&self) -> Range<usize> {
        let at = self.name().end;
        at..at + self.value_len as usize
    }
}

/// Where the name of a new entry comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    Bytes(&'a [u8]),
    /// The name of the entry with this index, which may be evicted for the new one.
    Of(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The oldest first.
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    size: usize,
    size_max: usize,
    /// All entries that ever were, modulo 2³².
    inserted: u32,
}

impl Table {
    pub(super) fn new(size_max: usize) -> Table {
        Table { entries: VecDeque::new(), bytes: Vec::new(), size: 0, size_max, inserted: 0 }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory it has allocated on the heap.
    pub(super) fn allocated(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Name and value of an entry, from 0, the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        Some((&self.bytes[entry.name()], &self.bytes[entry.value()]))
    }

    /// The number of the newest entry among all that ever were, from 1; later ones have higher numbers.
    #[inline]
    pub(super) fn newest(&self) -> u32 {
        self.inserted
    }

    /// Evicts what does not fit any more.
    pub(super) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
        self.compact();
        if self.entries.is_empty() {
            (self.bytes, self.entries) = (Vec::new(), VecDeque::new());
        }
    }

    /// Adds an entry; one that is larger than the table empties it instead (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: Name<'_>, value: &[u8]) {
        let referenced = match name {
            Name::Bytes(_) => 0..0,
            Name::Of(index) => self.entries[self.entries.len() - index - 1].name(),
        };
        let name_len = match name {
            Name::Bytes(bytes) => bytes.len(),
            Name::Of(_) => referenced.len(),
        };
        let needed = name_len + value.len() + OVERHEAD;
        self.evict(needed);
        if needed > self.size_max {
            return self.compact();
        }
        // Evicted entries leave their bytes until `compact`, so the name is still there.
        let at = self.bytes.len();
        match name {
            Name::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Name::Of(_) => self.bytes.extend_from_within(referenced),
        }
        self.bytes.extend_from_slice(value);
        let (at, name_len, value_len) = (at as u32, name_len as u32, value.len() as u32);
        self.entries.push_back(Entry { at, name_len, value_len });
        self.size += needed;
        self.inserted = self.inserted.wrapping_add(1);
        self.compact();
    }

    /// Makes room for `needed`, or empties the table.
    fn evict(&mut self, needed: usize) {
        while self.size + needed > self.size_max
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
    }

    /// Drops the bytes of evicted entries, once they are as many as a full table's.
    fn compact(&mut self) {
        let start = self.entries.front().map_or(self.bytes.len(), |entry| entry.at as usize);
        if start > self.size_max || self.entries.is_empty() {
            self.bytes.drain(..start);
            self.entries.iter_mut().for_each(|entry| entry.at -= start as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Purpose: a new entry may take its name from the entry that is evicted for it (RFC 7541 §4.4).
    #[test]
    fn a_name_outlives_its_entry() {
        let mut table = Table::new(2 * (OVERHEAD + 8));
        table.insert(Name::Bytes(b"name"), b"1111");
        table.insert(Name::Of(0), b"22222222");
        assert_eq!(table.len(), 1);
        assert_eq!(table.get(0), Some((&b"name"[..], &b"22222222"[..])));
        table.insert(Name::Bytes(b"other"), &[b'x'; 2 * OVERHEAD]);
        assert_eq!((table.len(), table.size()), (0, 0), "larger than the table");
    }

    proptest! {
        /// Purpose: the table is a list that is cut where it exceeds its size, whatever was inserted and evicted, and
        /// its memory stays bounded.
        #[test]
        fn as_a_list(steps in proptest::collection::vec((0_usize..60, 0_usize..200, 0_usize..3), 1..200), size_max in 0_usize..400) {
            let mut table = Table::new(size_max);
            let (mut model, mut limit) = (Vec::<(Vec<u8>, Vec<u8>)>::new(), size_max);
            for (number, (name, value, kind)) in steps.into_iter().enumerate() {
                let value_bytes = vec![number as u8; value];
                let name_bytes = match kind {
                    2 => { limit = value * 2; table.set_size_max(limit); None }
                    1 if !model.is_empty() => {
                        let index = name % model.len();
                        table.insert(Name::Of(index), &value_bytes);
                        Some(model[index].0.clone())
                    }
                    _ => {
                        let bytes = vec![b'a' + number as u8 % 26; name];
                        table.insert(Name::Bytes(&bytes), &value_bytes);
                        Some(bytes)
                    }
                };
                if let Some(name_bytes) = name_bytes {
                    model.insert(0, (name_bytes, value_bytes));
                }
                let size = |entry: &(Vec<u8>, Vec<u8>)| entry.0.len() + entry.1.len() + OVERHEAD;
                let mut total = 0;
                let kept = model.iter().take_while(|entry| { total += size(entry); total <= limit }).count();
                // An entry that does not fit empties the table.
                model.truncate(kept);
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.size(), model.iter().map(size).sum::<usize>());
                for (index, (name, value)) in model.iter().enumerate() {
                    prop_assert_eq!(table.get(index), Some((&name[..], &value[..])));
                }
                prop_assert_eq!(table.get(model.len()), None);
                prop_assert!(table.bytes.len() <= 3 * limit, "{} of {}", table.bytes.len(), limit);
            }
        }
    }
}
