//! Records that Kafka refused, individually or together with others.
//!
//! Kafka refuses whole requests. Sending their records one by one finds the culprit.

use std::collections::{BTreeMap, BTreeSet};

use super::window::Entry;

/// Offsets, by partition.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<u32, BTreeSet<u64>>);

impl Suspects {
    pub(super) fn insert(&mut self, entry: Entry) {
        self.0.entry(entry.partition).or_default().insert(entry.offset);
    }

    /// It was accepted, or buried.
    pub(super) fn remove(&mut self, entry: Entry) {
        if let Some(offsets) = self.0.get_mut(&entry.partition) {
            offsets.remove(&entry.offset);
            if offsets.is_empty() {
                self.0.remove(&entry.partition);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has_partition(&self, partition: u32) -> bool {
        self.0.contains_key(&partition)
    }
}
