//! In-memory state of one segment.

use highwater_core::frame::{FRAMES_AT, Seal, SegmentHeader};

use crate::damage::{Damage, DamageKind};

/// The index has one entry per this many bytes.
const INDEX_STRIDE: u64 = 1 << 20;

/// The most index entries of one segment.
const INDEX_ENTRIES_MAX: usize = 1024;

const SUFFIX: &str = ".hwj";

/// The name of the segment with this number, whose first record may have this offset.
pub(crate) fn file_name(sequence: u64, base_offset: u64) -> String {
    format!("{sequence:010}-{base_offset:020}{SUFFIX}")
}

/// A segment's number and base offset, by its name. `None`: it is something else.
pub(crate) fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (sequence, base) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let parsed = (number(sequence)?, number(base)?);
    (file_name(parsed.0, parsed.1) == name).then_some(parsed)
}

/// A segment that can be read.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    pub(crate) name: String,
    pub(crate) salt: u64,
    pub(crate) base_offset: u64,
    /// Bytes up to here are durable and may be read.
    pub(crate) end: u64,
    pub(crate) records: u64,
    pub(crate) first_offset: Option<u64>,
    pub(crate) last_offset: Option<u64>,
    /// No later record has a lower offset.
    pub(crate) next_offset: u64,
    pub(crate) newest_us: u64,
    /// When it was begun, by the clock of then: no record of an earlier segment was written later.
    pub(crate) created_us: u64,
    pub(crate) sealed: bool,
    /// The highest mark among its frames: this much was durable while it was written.
    pub(crate) mark: u64,
    /// Bytes before this position were certainly durable.
    pub(crate) proven: u64,
    /// No later header says how much of it is durable, though there are later segments: one between them is gone.
    pub(crate) is_unnamed: bool,
    /// A sparse index of offsets and frame positions.
    index: Vec<(u64, u64)>,
}

impl Segment {
    pub(crate) fn new(name: String, header: &SegmentHeader, end: u64) -> Segment {
        Segment {
            sequence: header.sequence,
            name,
            salt: header.salt,
            base_offset: header.base_offset,
            end,
            records: 0,
            first_offset: None,
            last_offset: None,
            next_offset: header.base_offset,
            newest_us: 0,
            created_us: header.created_us,
            sealed: false,
            mark: FRAMES_AT as u64,
            proven: u64::MAX,
            is_unnamed: false,
            index: Vec::new(),
        }
    }

    /// Counts a record whose frame begins at `at`.
    pub(crate) fn add(&mut self, at: u64, offset: u64, time_us: u64) {
        self.records += 1;
        self.first_offset.get_or_insert(offset);
        self.last_offset = Some(offset);
        self.next_offset = offset.saturating_add(1);
        self.newest_us = self.newest_us.max(time_us);
        let due = self.index.last().map_or(FRAMES_AT as u64, |(_, at)| *at) + INDEX_STRIDE;
        if at >= due && self.index.len() < INDEX_ENTRIES_MAX {
            self.index.push((offset, at));
        }
    }

    /// Drops its records; its offsets are not reused.
    pub(crate) fn forget_records(&mut self) {
        self.records = 0;
        (self.first_offset, self.last_offset) = (None, None);
        self.end = FRAMES_AT as u64;
        self.index.clear();
    }

    pub(crate) fn take_seal(&mut self, seal: &Seal) {
        self.sealed = true;
        self.records = seal.records;
        self.first_offset = (seal.records > 0).then_some(seal.first_offset);
        self.last_offset = (seal.records > 0).then_some(seal.last_offset);
        self.next_offset = seal.next_offset;
        self.newest_us = self.newest_us.max(seal.time_us);
    }

    pub(crate) fn seal(&self) -> Seal {
        Seal {
            records: self.records,
            first_offset: self.first_offset.unwrap_or(0),
            last_offset: self.last_offset.unwrap_or(0),
            next_offset: self.next_offset,
            time_us: self.newest_us,
        }
    }

    /// Where to begin to read for the record `offset`, and the lowest offset from there on.
    pub(crate) fn find(&self, offset: u64) -> (u64, u64) {
        let after = self.index.partition_point(|(indexed, _)| *indexed <= offset);
        match after.checked_sub(1).map(|index| self.index[index]) {
            Some((offset, at)) => (at, offset),
            None => (FRAMES_AT as u64, self.base_offset),
        }
    }

    /// The kind of damage that bad bytes at this position mean.
    pub(crate) fn kind_of_damage(&self, at: u64) -> DamageKind {
        if at < self.proven { DamageKind::Changed } else { DamageKind::Torn }
    }

    /// Damage after the records counted so far.
    pub(crate) fn damage(&self, kind: DamageKind, at: u64, bytes: u64) -> Damage {
        let offset = self.next_offset;
        let file = self.name.clone();
        Damage { kind, file, at, bytes, first_offset: offset, next_offset: offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: only what is exactly a segment's name is taken for one; numbers beyond the padding are.
    #[test]
    fn names() {
        for (sequence, base) in [(0, 0), (7, 4711), (u64::MAX, u64::MAX)] {
            assert_eq!(parse_name(&file_name(sequence, base)), Some((sequence, base)));
        }
        let good = file_name(7, 4711);
        for bad in [&good[1..], &good[..good.len() - 1], "LOCK", "+000000007-0.hwj", "a-b.hwj", ""]
        {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }

    /// Purpose: the index finds a place at or before the record, wherever that is, and is bounded.
    #[test]
    fn the_index_is_before_what_is_sought() {
        let header =
            SegmentHeader { sequence: 0, salt: 0, base_offset: 5, created_us: 0, previous: None };
        let mut segment = Segment::new("a".into(), &header, 0);
        let frame = 3 * INDEX_STRIDE / 4;
        let count = 2 * INDEX_ENTRIES_MAX as u64 + 3;
        let place = |offset: u64| FRAMES_AT as u64 + (offset - 5) * frame;
        (5..5 + count).for_each(|offset| segment.add(place(offset), offset, 0));
        assert_eq!(segment.index.len(), INDEX_ENTRIES_MAX);
        assert_eq!(segment.find(5), (FRAMES_AT as u64, 5));
        for offset in 5..5 + count {
            let (at, lowest) = segment.find(offset);
            assert!(at <= place(offset) && lowest <= offset && at == place(lowest), "{offset}");
        }
    }
}
