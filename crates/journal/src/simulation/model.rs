//! A model of the journal: which records were appended, acknowledged and seen. It knows nothing of segments, syncs or
//! queues.

use std::collections::{BTreeMap, BTreeSet};

use super::parser::{Found, Parsed};
use crate::{Damage, DamageKind, Report};

/// A record as it was appended.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) producer: u32,
    pub(crate) time_us: u64,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// By id: ids rise with time, so each producer's do.
    appended: BTreeMap<u128, Appended>,
    /// Refused at once: must never appear.
    refused: BTreeSet<u128>,
    /// Promised to be there, by offset: acknowledged, or shown to a reader.
    promised: BTreeMap<u64, u128>,
    /// The same, and never forgotten: an offset is never reused.
    given: BTreeMap<u64, u128>,
    /// Retention may have removed records below this offset.
    pub(crate) removable_below: u64,
    /// Acknowledgements, for the statistics.
    pub(crate) acknowledged: u64,
}

impl Model {
    pub(crate) fn append(&mut self, id: u128, record: Appended) {
        self.appended.insert(id, record);
    }

    pub(crate) fn refuse(&mut self, ids: &[u128]) {
        self.refused.extend(ids);
    }

    /// No record that was promised has this offset or a higher one.
    pub(crate) fn end(&self) -> u64 {
        self.given.keys().next_back().map_or(0, |last| last + 1)
    }

    /// A receipt acknowledged these records.
    pub(crate) fn acknowledge(&mut self, first_offset: u64, ids: &[u128]) {
        for (offset, id) in (first_offset..).zip(ids) {
            self.promise(offset, *id);
            self.acknowledged += 1;
        }
    }

    fn promise(&mut self, offset: u64, id: u128) {
        self.promised.insert(offset, id);
        let other = self.given.insert(offset, id);
        assert!(other.is_none_or(|other| other == id), "offset {offset} has two records");
    }

    /// The record with this offset is gone, and the offset may be given again.
    pub(crate) fn forget(&mut self, offset: u64) {
        self.given.remove(&offset);
    }

    /// A reader showed it: it must be what was appended, and stay.
    pub(crate) fn shown(
        &mut self,
        offset: u64,
        partition: u32,
        time_us: u64,
        id: u128,
        body: &[u8],
    ) {
        assert!(!self.refused.contains(&id), "record {id} was refused, and is there");
        let appended = self.appended.get(&id).unwrap_or_else(|| panic!("nobody appended {id}"));
        assert_eq!(appended.body, body, "the body of {id}");
        assert_eq!((appended.producer, appended.time_us), (partition, time_us), "the head of {id}");
        self.promise(offset, id);
    }

    /// Checks the disk after a crash, before the journal is opened: no promised record may be missing, except those
    /// lost to rot (`excused`). Any further record must have been appended, appear once, and be in its producer's
    /// order.
    pub(crate) fn check_disk(&mut self, parsed: &Parsed, excused: &BTreeSet<u64>) {
        let there: BTreeMap<u64, &Found> =
            parsed.records.iter().map(|record| (record.offset, record)).collect();
        assert_eq!(there.len(), parsed.records.len(), "an offset stands twice on the disk");
        let begins = there.keys().next().copied().unwrap_or(u64::MAX).min(self.removable_below);
        self.promised.retain(|offset, _| *offset >= begins && !excused.contains(offset));
        for (offset, id) in &self.promised {
            let found = there.get(offset).unwrap_or_else(|| panic!("record {offset} is lost"));
            assert_eq!(found.id, *id, "offset {offset} has become another record");
        }
        let mut ids = BTreeSet::new();
        let mut last: BTreeMap<u32, u128> = BTreeMap::new();
        let mut last_offset = None;
        for found in &parsed.records {
            assert!(Some(found.offset) > last_offset, "offsets do not rise at {}", found.offset);
            last_offset = Some(found.offset);
            assert!(ids.insert(found.id), "record {} is there twice", found.id);
            let before = last.insert(found.partition, found.id);
            assert!(before.is_none_or(|before| before < found.id), "order of {}", found.partition);
        }
    }

    /// The open journal serves exactly what is on the disk.
    pub(crate) fn check_served(&mut self, served: &[Found], parsed: &Parsed) {
        let list = |found: &[Found]| -> Vec<(u64, u128)> {
            found.iter().map(|found| (found.offset, found.id)).collect()
        };
        assert_eq!(list(served), list(&parsed.records), "what is served, and what is there");
        for found in served {
            self.shown(found.offset, found.partition, found.time_us, found.id, &found.body);
        }
    }
}

/// Damage must be reported where it is, and only there.
pub(crate) fn check_report(report: &Report, parsed: &Parsed, rot: &[(String, usize)]) {
    for damage in &report.damage {
        let Damage { kind, file, at, bytes, .. } = damage;
        let rotten = rot.iter().any(|(rotten, _)| rotten == file);
        assert!(rotten || *kind == DamageKind::Torn, "damage where there is none: {damage}");
        let end = at + bytes;
        let inside =
            |found: &&Found| found.file == *file && (*at..end).contains(&(found.at as u64));
        let found = parsed.records.iter().find(inside);
        assert!(found.is_none() || *kind == DamageKind::Header, "an intact record: {damage}");
    }
    if let Some(tail) = &report.tail {
        let before = parsed.records.iter().filter(|found| found.file == tail.file);
        assert_eq!(tail.records_kept, before.clone().count() as u64, "{tail}");
        assert!(before.clone().all(|found| (found.at as u64) < tail.at), "{tail}");
    }
    for (file, at) in rot {
        // For a damaged header only the first byte is reported.
        let header = |damage: &Damage| damage.kind == DamageKind::Header && *at < 8192;
        let at = *at as u64;
        let is_reported = report.damage.iter().any(|damage| {
            let inside = (damage.at..damage.at + damage.bytes).contains(&at);
            damage.file == *file && (damage.kind == DamageKind::File || inside || header(damage))
        });
        let cut = report.tail.as_ref().is_some_and(|tail| tail.file == *file && tail.at <= at);
        let removed = report.unfinished.contains(file);
        assert!(is_reported || cut || removed, "rot at {at} of {file} is not reported: {report:?}");
    }
}
