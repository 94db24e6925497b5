//! A plain parser of the format in `docs/journal.md`: all in memory, one position after the other. It shares no code
//! with the journal.

use std::collections::BTreeMap;

/// A record found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) file: String,
    pub(crate) at: usize,
    pub(crate) offset: u64,
    pub(crate) partition: u32,
    pub(crate) time_us: u64,
    pub(crate) id: u128,
    pub(crate) body: Vec<u8>,
}

impl Found {
    /// Its file and its offset.
    pub(crate) fn place(&self) -> (&str, u64) {
        (&self.file, self.offset)
    }
}

/// All records, in order, and each file's valid length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) records: Vec<Found>,
    pub(crate) valid: BTreeMap<String, usize>,
}

struct File<'a> {
    name: &'a str,
    bytes: &'a [u8],
    /// Sequence, salt, base, previous sequence, previous end.
    header: Option<[u64; 5]>,
}

pub(crate) fn parse(files: &BTreeMap<String, Vec<u8>>) -> Parsed {
    let table = table();
    let mut segments: Vec<File<'_>> = files
        .iter()
        .filter(|(name, _)| name.ends_with(".hwj"))
        .map(|(name, bytes)| File { name, bytes, header: header(bytes, name, &table) })
        .collect();
    segments.sort_by_key(|file| file.name.to_owned());
    // Without frames, a file counts if the next one names it, or if it is the newest and whole.
    for index in (0..segments.len()).rev() {
        let Some([sequence, ..]) = segments[index].header else { continue };
        let next = segments[index + 1..].iter().find_map(|later| later.header);
        let counts = match next {
            Some([.., previous, _]) if previous == sequence => true,
            Some([.., previous, _]) if previous < sequence => false,
            _ => is_whole(segments[index].bytes),
        };
        if segments[index].bytes.len() <= 8192 && !counts {
            segments[index].header = None;
        }
    }
    let mut parsed = Parsed::default();
    for (index, file) in segments.iter().enumerate() {
        let Some([sequence, salt, base, ..]) = file.header else { continue };
        let next = segments[index + 1..].iter().find_map(|later| later.header);
        let end = match next {
            Some([.., previous, end]) if previous == sequence => end as usize,
            _ => file.bytes.len(),
        };
        let end = end.min(file.bytes.len());
        let first = parsed.records.len();
        records(file, &file.bytes[..end], salt, base, &table, &mut parsed.records);
        // Offsets from the next one's base on are the next one's.
        let others = |found: &Found| next.is_some_and(|[_, _, base, ..]| found.offset >= base);
        let own = first + parsed.records[first..].iter().take_while(|found| !others(found)).count();
        let end = parsed.records.get(own).map_or(end, |found| found.at);
        parsed.records.truncate(own);
        parsed.valid.insert(file.name.to_owned(), end);
    }
    parsed
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() == 8192
        && bytes[..64] == bytes[4096..4160]
        && bytes[64..4096].iter().chain(&bytes[4160..]).all(|byte| *byte == 0)
}

fn header(bytes: &[u8], name: &str, table: &[u32; 256]) -> Option<[u64; 5]> {
    [0, 4096].into_iter().find_map(|at| {
        let copy = bytes.get(at..at + 64)?;
        let mut blank = copy.to_vec();
        blank[12..16].fill(0);
        let is_good = copy.starts_with(b"HWJOURNL")
            && u32_at(copy, 8) == 1
            && u32_at(copy, 12) == crc(0, &blank, table);
        let [sequence, salt, base] = [16, 24, 32].map(|at| u64_at(copy, at));
        let is_named = name == format!("{sequence:010}-{base:020}.hwj");
        let [previous, end] = [48, 56].map(|at| u64_at(copy, at));
        (is_good && is_named).then_some([sequence, salt, base, previous, end])
    })
}

fn records(
    file: &File<'_>,
    bytes: &[u8],
    salt: u64,
    base: u64,
    table: &[u32; 256],
    found: &mut Vec<Found>,
) {
    let (mut at, mut lowest) = (8192, base);
    while at + 56 <= bytes.len() {
        let head = &bytes[at..at + 56];
        let crc_of_salt = crc(0, &salt.to_le_bytes(), table);
        let head_crc = crc(crc(crc_of_salt, &head[..4], table), &head[8..], table);
        let is_record = head.starts_with(b"HWFR");
        let length = u32_at(head, 8) as usize;
        let offset = u64_at(head, 16);
        let is_header = (is_record || head.starts_with(b"HWFS"))
            && u32_at(head, 4) == head_crc
            && length <= 64 << 20
            && offset >= lowest
            && u64::from(u32_at(head, 52)) * 8 <= at as u64;
        if !is_header {
            at += 8;
            continue;
        }
        let end = (at + 56 + length).div_ceil(8) * 8;
        let Some(frame) = bytes.get(at..end) else { break };
        let (body, padding) = frame[56..].split_at(length);
        if crc(0, body, table) == u32_at(head, 12) && padding.iter().all(|byte| *byte == 0) {
            lowest = if is_record { offset + 1 } else { offset };
            if is_record {
                found.push(Found {
                    file: file.name.to_owned(),
                    at,
                    offset,
                    partition: u32_at(head, 48),
                    time_us: u64_at(head, 24),
                    id: u128::from(u64_at(head, 32)) | u128::from(u64_at(head, 40)) << 64,
                    body: body.to_vec(),
                });
            }
        }
        at = end;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    (0..4).map(|index| u32::from(bytes[at + index]) << (8 * index)).sum()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// One byte a step.
fn crc(before: u32, bytes: &[u8], table: &[u32; 256]) -> u32 {
    !bytes
        .iter()
        .fold(!before, |crc, byte| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 255) as usize])
}

fn table() -> [u32; 256] {
    std::array::from_fn(|byte| {
        (0..8).fold(
            byte as u32,
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 },
        )
    })
}
