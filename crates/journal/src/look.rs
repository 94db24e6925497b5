//! Inspects a journal's directory.
//!
//! Nothing is changed here: opening for writing, `verify`, `stat` and the command all use the same inspection.
//!
//! A segment is valid up to the length in the next one's header (`previous.end`): later bytes were never acknowledged.
//! The newest segment is valid as far as it is intact. Invalid bytes followed by intact frames are damage; invalid
//! bytes at the very end of the newest file are a tail.

use std::io;

use highwater_core::frame::{
    BadSegmentHeader, FRAMES_AT, HEADER_BYTES, Parsed, Previous, SEAL_BYTES, Seal, SegmentHeader,
    parse,
};

use crate::damage::{Damage, DamageKind, Report, Tail};
use crate::error::{Error, ErrorKind};
use crate::frames::{Frames, Next, is_record};
use crate::mark::{self, Mark};
use crate::segment::{Segment, file_name, parse_name};
use crate::storage::Storage;

/// The result of the inspection.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The segments that can be read, oldest first.
    pub(crate) segments: Vec<Segment>,
    pub(crate) report: Report,
    /// No file has this number or a higher one.
    pub(crate) next_sequence: u64,
    /// What the next segment's header is to record about the one before it.
    pub(crate) previous: Option<Previous>,
    /// The first position of the newest segment that the disk could not read.
    pub(crate) unreadable: Option<(u64, io::ErrorKind)>,
}

/// A file named as a segment.
struct Candidate {
    sequence: u64,
    name: String,
    bytes: u64,
    header: Result<SegmentHeader, BadSegmentHeader>,
    first_damage: Option<usize>,
}

/// The role of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Segment,
    /// Its creation was interrupted; it never had a record.
    Unfinished,
    /// Its header is gone.
    Lost,
}

/// Inspects all segments. The newest ones, up to `scan_bytes_max`, are read completely; of older ones that have a seal,
/// only the seal is read.
pub(crate) fn look(storage: &dyn Storage, scan_bytes_max: u64) -> Result<Found, Error> {
    let failed = |error| Error::disk(format!("listing {}", storage.place()), &error);
    // Before the files: whatever has been written by now is in one of them.
    let written = Mark::look(storage, mark::WRITTEN).map_err(failed)?;
    let mut named: Vec<(u64, String)> = storage
        .list()
        .map_err(failed)?
        .into_iter()
        .filter_map(|name| Some((parse_name(&name)?.0, name)))
        .collect();
    named.sort();
    let mut candidates = Vec::with_capacity(named.len());
    // Another process may be writing. A segment with a successor in the list no longer grows, so the successor's header
    // has its length; and segments are removed oldest first, so none disappears from the middle.
    for (sequence, name) in named {
        candidates.extend(candidate(storage, sequence, name)?);
    }
    // After the files: retention raises it before it removes one.
    let floor = Mark::look(storage, mark::FLOOR).map_err(failed)?;
    let roles = roles(&candidates);
    let mut look = Look { storage, found: Found::default(), scan_from: 0, floor, written };
    look.scan_from = scan_from(&candidates, scan_bytes_max);
    for index in 0..candidates.len() {
        look.add(&candidates, &roles, index)?;
    }
    look.all_missing(&roles);
    look.finish(&candidates, &roles);
    Ok(look.found)
}

/// Reads the beginning of a file; `None` if it has gone since it was listed.
fn candidate(
    storage: &dyn Storage,
    sequence: u64,
    name: String,
) -> Result<Option<Candidate>, Error> {
    let failed = |error| Error::disk(format!("{}/{name}", storage.place()), &error);
    let file = match storage.open(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let bytes = file.bytes().map_err(failed)?;
    let mut block = vec![0; FRAMES_AT];
    let filled = file.read_at(0, &mut block).map_err(failed)?;
    let mut header = SegmentHeader::decode(&block);
    if let Err(version @ BadSegmentHeader::Version(_)) = header {
        let text = format!("{}/{name}: {version}", storage.place());
        return Err(Error::new(ErrorKind::Version, text));
    }
    // A misnamed file would be served under another file's offsets.
    if header.is_ok_and(|header| file_name(header.sequence, header.base_offset) != name) {
        header = Err(BadSegmentHeader::Damaged);
    }
    let first_damage = header.ok().and_then(|header| header.first_damage(&block[..filled]));
    Ok(Some(Candidate { sequence, name, bytes, header, first_damage }))
}

/// The role of each file. The newest comes first, because an unfinished file says nothing about the one before it.
fn roles(candidates: &[Candidate]) -> Vec<Role> {
    let mut roles = vec![Role::Segment; candidates.len()];
    let mut next = None;
    for (this, role_of_this) in candidates.iter().zip(&mut roles).rev() {
        *role_of_this = role(this, next);
        if let (Role::Segment, Ok(header)) = (*role_of_this, this.header) {
            next = Some(header);
        }
    }
    roles
}

/// The role of a file that `next` follows.
fn role(this: &Candidate, next: Option<SegmentHeader>) -> Role {
    let next = next.and_then(|next| next.previous);
    // A header and a name are durable before the first frame is written, and before a later segment
    // names this one. So what has no frames and no later one that names it may be a crash during
    // creation; all others were finished once.
    let named = next.filter(|previous| previous.sequence == this.sequence);
    let had_frames = match named {
        Some(previous) => previous.end > FRAMES_AT as u64,
        None => this.bytes > FRAMES_AT as u64,
    };
    let is_skipped = next.is_some_and(|previous| previous.sequence < this.sequence);
    let is_torn = this.first_damage.is_some();
    match this.header {
        Ok(_) if had_frames || named.is_some() => Role::Segment,
        Ok(_) if is_skipped || is_torn => Role::Unfinished,
        Ok(_) => Role::Segment,
        Err(_) if had_frames => Role::Lost,
        Err(_) => Role::Unfinished,
    }
}

/// The index from which on segments are read whole: the newest, and before it as many as fit.
fn scan_from(candidates: &[Candidate], scan_bytes_max: u64) -> usize {
    let mut bytes = 0u64;
    let fits = |candidate: &&Candidate| {
        let first = bytes == 0;
        bytes = bytes.saturating_add(candidate.bytes);
        first || bytes <= scan_bytes_max
    };
    candidates.len() - candidates.iter().rev().take_while(fits).count()
}

struct Look<'a> {
    storage: &'a dyn Storage,
    found: Found,
    scan_from: usize,
    /// Below this offset, retention has removed everything. `None`: it is not known.
    floor: Option<u64>,
    /// There have been records up to this offset. `None`: it is not known.
    written: Option<u64>,
}

impl Look<'_> {
    fn add(&mut self, candidates: &[Candidate], roles: &[Role], index: usize) -> Result<(), Error> {
        let this = &candidates[index];
        self.found.next_sequence = this.sequence.saturating_add(1);
        match (roles[index], this.header) {
            (Role::Segment, Ok(header)) => {
                self.missing_before(candidates, &header);
                let is_last = roles[index + 1..].iter().all(|role| *role == Role::Unfinished);
                let next = (index + 1..candidates.len())
                    .filter(|later| roles[*later] == Role::Segment)
                    .find_map(|later| candidates[later].header.ok());
                self.segment(this, header, next, is_last, index >= self.scan_from)
            }
            (Role::Unfinished, _) => {
                self.found.report.unfinished.push(this.name.clone());
                Ok(())
            }
            _ => {
                self.lost(this);
                Ok(())
            }
        }
    }

    /// Reports a segment that a header names as its predecessor and that is missing.
    fn missing_before(&mut self, candidates: &[Candidate], header: &SegmentHeader) {
        let Some(previous) = header.previous else { return };
        let there = candidates.iter().any(|candidate| candidate.sequence == previous.sequence);
        // Retention removes the oldest: segments before the first one are missing if it has not removed their records.
        let (first_offset, is_known) = match (self.found.segments.last(), self.floor) {
            (Some(last), _) => (last.next_offset, previous.sequence <= last.sequence),
            (None, Some(floor)) => {
                let first_offset = floor.max(self.found.report.next_offset);
                (first_offset, first_offset >= header.base_offset)
            }
            (None, None) => return,
        };
        if there || is_known || previous.end <= FRAMES_AT as u64 {
            return;
        }
        let file = format!("{:010}-*.hwj", previous.sequence);
        let next_offset = header.base_offset;
        let (at, bytes, kind) = (0, previous.end, DamageKind::Missing);
        self.found.report.push(Damage { kind, file, at, bytes, first_offset, next_offset });
    }

    /// Reports that no segment is left where there have been records: retention keeps the newest.
    fn all_missing(&mut self, roles: &[Role]) {
        let is_left = roles.iter().any(|role| *role != Role::Unfinished);
        let floor = self.floor.unwrap_or(0);
        let least = floor.saturating_add(u64::from(floor > 0)); // The newest segment that has records is kept.
        let next_offset = self.written.unwrap_or(least);
        if is_left || next_offset <= floor {
            return;
        }
        self.found.report.push(Damage {
            kind: DamageKind::NoSegments,
            file: "*.hwj".into(),
            at: 0,
            bytes: 0,
            first_offset: floor,
            next_offset,
        });
        self.found.report.next_offset = next_offset;
    }

    /// A file without a header. Its offsets follow from its neighbours.
    fn lost(&mut self, this: &Candidate) {
        let (name_sequence, base) = parse_name(&this.name).unwrap_or((this.sequence, 0));
        debug_assert_eq!(name_sequence, this.sequence);
        let before = self.found.report.next_offset;
        let next_offset = base
            .max(before)
            .saturating_add(records_max(this.bytes.saturating_sub(FRAMES_AT as u64)));
        self.found.report.push(Damage {
            kind: DamageKind::File,
            file: this.name.clone(),
            at: 0,
            bytes: this.bytes,
            first_offset: base.max(before),
            next_offset,
        });
        self.found.report.next_offset = next_offset;
        self.found.report.bytes += this.bytes;
        let end = this.bytes - this.bytes % highwater_core::frame::ALIGN as u64;
        self.found.previous = Some(Previous { sequence: this.sequence, end });
    }

    fn segment(
        &mut self,
        this: &Candidate,
        header: SegmentHeader,
        next: Option<SegmentHeader>,
        is_last: bool,
        whole: bool,
    ) -> Result<(), Error> {
        let failed = |error| Error::disk(format!("{}/{}", self.storage.place(), this.name), &error);
        // A damaged neighbour has offsets of its own; the header's base may be before them.
        let before = self.found.previous.map(|previous| previous.sequence);
        if header.base_offset > 0
            && let Some(damage) = self.found.report.damage.last_mut()
            && damage.kind == DamageKind::File
            && (damage.next_offset > header.base_offset
                || parse_name(&damage.file).map(|(sequence, _)| sequence) == before)
        {
            damage.next_offset = header.base_offset;
            // That was a guess; the header of the following segment is exact.
            self.found.report.next_offset = header.base_offset;
        }
        let named = next.and_then(|next| next.previous);
        let named = named.filter(|previous| previous.sequence == header.sequence);
        let limit = named.map_or(this.bytes, |previous| previous.end.min(this.bytes));
        let mut segment = Segment::new(this.name.clone(), &header, limit);
        segment.is_unnamed = named.is_none() && next.is_some();
        if let Some(at) = this.first_damage {
            let damage = segment.damage(DamageKind::Header, at as u64, 1);
            self.found.report.push(damage);
        }
        let file = match self.storage.open(&this.name) {
            // Retention, of a process that writes meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        let seal = if whole { None } else { seal(&*file, header.salt, limit).map_err(failed)? };
        if let Some(seal) = seal {
            segment.take_seal(&seal);
            self.found.report.unscanned_bytes += limit;
        } else {
            let frames = Frames::new(file, header.salt, 0, limit, header.base_offset);
            let end_offset = next.map_or(u64::MAX, |next| next.base_offset);
            let scan = scan(frames, &mut segment, end_offset).map_err(failed)?;
            self.take_scan(scan, &mut segment, is_last && named.is_none());
        }
        if let Some(previous) = named.filter(|previous| previous.end > this.bytes) {
            let missing = previous.end - this.bytes.max(FRAMES_AT as u64).min(previous.end);
            let mut damage = segment.damage(DamageKind::Changed, this.bytes, missing);
            damage.next_offset = next.map_or(damage.next_offset, |next| next.base_offset);
            // So that readers report the missing records as well.
            segment.next_offset = segment.next_offset.max(damage.next_offset);
            (segment.end, segment.proven) = (previous.end, previous.end);
            self.found.report.push(damage);
        }
        let report = &mut self.found.report;
        report.records += segment.records;
        report.segments += 1;
        report.bytes += this.bytes;
        report.first_offset = report.first_offset.or(segment.first_offset);
        report.last_offset = segment.last_offset.or(report.last_offset);
        report.next_offset = report.next_offset.max(segment.next_offset);
        self.found.previous = Some(Previous { sequence: segment.sequence, end: segment.end });
        self.found.segments.push(segment);
        Ok(())
    }

    fn take_scan(&mut self, scan: Scan, segment: &mut Segment, is_tail: bool) {
        // No mark follows the last group, except the seal's; the valid length that the next segment's header records may
        // include a write that a crash has torn.
        segment.proven = segment.mark;
        for (at, end, first_offset, next_offset) in scan.holes {
            let kind = segment.kind_of_damage(at);
            let (file, bytes) = (segment.name.clone(), end - at);
            self.found.report.push(Damage { kind, file, at, bytes, first_offset, next_offset });
        }
        self.found.report.damage_omitted += scan.holes_omitted;
        let Some((at, end)) = scan.tail else { return };
        if is_tail {
            self.found.report.tail = Some(Tail {
                file: segment.name.clone(),
                at,
                bytes: end - at,
                records_kept: segment.records,
            });
            self.found.unreadable = scan.unreadable;
            segment.end = at;
        } else {
            let mut damage = segment.damage(segment.kind_of_damage(at), at, end - at);
            damage.next_offset = damage.first_offset.saturating_add(records_max(end - at));
            self.found.report.push(damage);
        }
        // Readers may have seen records there: their offsets are not reused.
        segment.next_offset = segment.next_offset.saturating_add(records_max(end - at));
    }

    fn finish(&mut self, candidates: &[Candidate], roles: &[Role]) {
        let report = &mut self.found.report;
        // What a tail in the middle may have held ends where the next segment begins.
        for damage in &mut report.damage {
            let index = candidates.iter().position(|candidate| candidate.name == damage.file);
            let next = index.and_then(|index| {
                let later = candidates[index + 1..].iter().zip(&roles[index + 1..]);
                let mut readable = later.filter(|(_, role)| **role == Role::Segment);
                readable.find_map(|(candidate, _)| candidate.header.ok())
            });
            if let Some(next) = next {
                damage.next_offset =
                    damage.next_offset.min(next.base_offset.max(damage.first_offset));
            }
        }
        self.newest_missing();
    }

    /// Reports that there have been records behind those that are left.
    fn newest_missing(&mut self) {
        let report = &mut self.found.report;
        let (first_offset, next_offset) = (report.next_offset, self.written.unwrap_or(0));
        if next_offset <= first_offset {
            return;
        }
        report.next_offset = next_offset; // No offset is given twice.
        // Retention empties the newest segment where it needs the room, and may have been interrupted.
        let first_offset = match self.floor {
            Some(floor) if floor < next_offset => first_offset.max(floor),
            _ => return,
        };
        // How many records a file without a header had is only a guess.
        if let Some(lost) = report
            .damage
            .last_mut()
            .filter(|damage| damage.kind == DamageKind::File && damage.next_offset >= first_offset)
        {
            lost.next_offset = next_offset;
            return;
        }
        let newest = self.found.segments.last();
        let file = newest.map_or_else(|| "*.hwj".into(), |newest| newest.name.clone());
        let (at, kind) = (newest.map_or(0, |newest| newest.end), DamageKind::Newest);
        report.push(Damage { kind, file, at, bytes: 0, first_offset, next_offset });
    }
}

/// The most records that fit into `bytes`.
fn records_max(bytes: u64) -> u64 {
    bytes.div_ceil(HEADER_BYTES as u64)
}

/// Reads the seal at the end of a segment, if it has one.
fn seal(file: &dyn crate::storage::File, salt: u64, limit: u64) -> io::Result<Option<Seal>> {
    let Some(at) = limit.checked_sub(SEAL_BYTES as u64) else { return Ok(None) };
    let mut bytes = [0; SEAL_BYTES];
    if file.read_at(at, &mut bytes)? < SEAL_BYTES {
        return Ok(None);
    }
    match parse(&bytes, salt) {
        Parsed::Frame(header, body) if !is_record(&header) => Ok(Seal::decode(&header, body)),
        _ => Ok(None),
    }
}

/// The findings of reading a whole segment, besides its records.
#[derive(Default)]
struct Scan {
    /// Start, end, the first offset that may be missing, and the next that is not.
    holes: Vec<(u64, u64, u64, u64)>,
    holes_omitted: u64,
    tail: Option<(u64, u64)>,
    unreadable: Option<(u64, io::ErrorKind)>,
}

/// Reads a segment up to a record with `end_offset` or a later one: those are the next segment's. Such a
/// record was not durable here and was written again there. The headers in between say so, too, unless
/// they are lost.
fn scan(mut frames: Frames, segment: &mut Segment, end_offset: u64) -> io::Result<Scan> {
    let mut scan = Scan::default();
    loop {
        match frames.next()? {
            Next::Frame(at, header, body) => {
                if is_record(&header) && header.offset >= end_offset {
                    segment.end = at;
                    break;
                }
                segment.mark = segment.mark.max(header.mark);
                let next_offset = header.offset;
                if let Some(hole) = scan.holes.last_mut().filter(|hole| hole.1 == at) {
                    hole.3 = next_offset;
                }
                if is_record(&header) {
                    segment.add(at, header.offset, header.time_us);
                } else if let Some(seal) = Seal::decode(&header, body) {
                    segment.sealed = true;
                    segment.next_offset = segment.next_offset.max(seal.next_offset);
                }
            }
            Next::Hole(from, to) => {
                if scan.holes.len() < crate::damage::DAMAGE_MAX {
                    scan.holes.push((from, to, segment.next_offset, segment.next_offset));
                } else {
                    scan.holes_omitted += 1;
                }
            }
            Next::Tail(from, to) => scan.tail = Some((from, to)),
            Next::End => break,
        }
    }
    scan.unreadable = frames.unreadable();
    Ok(scan)
}
