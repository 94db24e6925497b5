//! Which records do these bytes hold, and which bytes are damaged?
//!
//! The format of the journal's files, as functions over bytes: a segment begins with a
//! [`SegmentHeader`], twice, and then holds frames. A frame is a header, a body, and zeros up to the
//! next multiple of eight. `docs/journal.md` draws it.
//!
//! A frame's header has two checksums: one of the header, one of the body. So the length of a frame is valid
//! even if its body is damaged, and a damaged body loses exactly one record. The header's checksum begins
//! with the segment's salt, a number that no client knows: neither bytes that a client sent as a body, nor
//! bytes that an older file left on the disk, can pass for frames.
//!
//! [`Walk`] goes through a segment window by window. It distinguishes a **hole** (bad bytes followed by an
//! intact frame) from a **tail** (bad bytes up to the end). A frame's `mark` says how much of the segment was
//! durable when the frame was written. So a hole before a later frame's mark is damage to durable records;
//! any other hole may be a write that a crash interrupted.
//!
//! It uses no files, clocks or randomness. Invariants: no bytes make it panic; a walk ends, and its frames,
//! holes and tail cover every byte once.

mod crc32c;
mod segment;
mod walk;

use alloc::vec::Vec;

pub use crc32c::{crc32c, crc32c_append};
pub use segment::{BadSegmentHeader, COPY_AT, FRAMES_AT, Previous, SegmentHeader, VERSION};
pub use walk::{Step, Walk};

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 56;

/// Every frame begins at a multiple of this.
pub const ALIGN: usize = 8;

/// The longest body that the format allows. A header with a longer length is invalid.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// A frame of each kind begins with these bytes.
const RECORD: [u8; 4] = *b"HWFR";
const SEAL: [u8; 4] = *b"HWFS";

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A record of the application.
    Record,
    /// The end of a cleanly finished segment: the number, offsets and time of its records.
    Seal,
}

/// The header before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the body.
    pub kind: Kind,
    /// Its length.
    pub body_bytes: u32,
    /// Its checksum.
    pub body_crc: u32,
    /// The record's number in the journal.
    pub offset: u64,
    /// When the record was accepted, in microseconds since 1970.
    pub time_us: u64,
    /// The record's id, chosen by the caller who appended it.
    pub id: u128,
    /// The record's partition, also chosen by the caller.
    pub partition: u32,
    /// How many bytes of the segment were durable when this frame was written; a multiple of eight.
    pub mark: u64,
}

impl Header {
    /// The header of a record with `body`, not yet placed in a segment (see [`stamp`]).
    fn of(partition: u32, time_us: u64, id: u128, body: &[u8]) -> Header {
        debug_assert!(body.len() <= BODY_BYTES_MAX);
        Header {
            kind: Kind::Record,
            body_bytes: body.len() as u32,
            body_crc: crc32c(body),
            offset: 0,
            time_us,
            id,
            partition,
            mark: 0,
        }
    }

    /// Length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        frame_bytes(self.body_bytes as usize)
    }

    /// The header's bytes in a segment with `salt`.
    pub fn encode(&self, salt: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = self.encode_without_crc();
        let crc = header_crc(&bytes, salt);
        put(&mut bytes, 4, &crc.to_le_bytes());
        bytes
    }

    /// The header's bytes without the checksum.
    fn encode_without_crc(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let kind = match self.kind {
            Kind::Record => RECORD,
            Kind::Seal => SEAL,
        };
        put(&mut bytes, 0, &kind);
        put(&mut bytes, 8, &self.body_bytes.to_le_bytes());
        put(&mut bytes, 12, &self.body_crc.to_le_bytes());
        put(&mut bytes, 16, &self.offset.to_le_bytes());
        put(&mut bytes, 24, &self.time_us.to_le_bytes());
        put(&mut bytes, 32, &self.id.to_le_bytes());
        put(&mut bytes, 48, &self.partition.to_le_bytes());
        put(&mut bytes, 52, &((self.mark / ALIGN as u64) as u32).to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`; `None` if it is not one of a segment with `salt`.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let kind = match get::<4>(bytes, 0) {
            RECORD => Kind::Record,
            SEAL => Kind::Seal,
            _ => return None,
        };
        if u32::from_le_bytes(get(bytes, 4)) != header_crc(bytes, salt) {
            return None;
        }
        let header = Header {
            kind,
            body_bytes: u32::from_le_bytes(get(bytes, 8)),
            body_crc: u32::from_le_bytes(get(bytes, 12)),
            offset: u64::from_le_bytes(get(bytes, 16)),
            time_us: u64::from_le_bytes(get(bytes, 24)),
            id: u128::from_le_bytes(get(bytes, 32)),
            partition: u32::from_le_bytes(get(bytes, 48)),
            mark: u64::from(u32::from_le_bytes(get(bytes, 52))) * ALIGN as u64,
        };
        (header.body_bytes as usize <= BODY_BYTES_MAX).then_some(header)
    }
}

/// The checksum of a header: of the salt, and of all its bytes except the checksum.
fn header_crc(bytes: &[u8; HEADER_BYTES], salt: u64) -> u32 {
    let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &bytes[..4]);
    crc32c_append(crc, &bytes[8..])
}

/// Length of a frame whose body has this length.
pub const fn frame_bytes(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(ALIGN)
}

/// Appends the frame of a record to `frames`. [`stamp`] must then place it in a segment.
pub fn push(frames: &mut Vec<u8>, partition: u32, time_us: u64, id: u128, body: &[u8]) {
    let header = Header::of(partition, time_us, id, body);
    push_frame(frames, &header.encode_without_crc(), body);
}

/// The summary in the last frame of a finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// How many records there are.
    pub records: u64,
    /// The offset of the first, if there are any.
    pub first_offset: u64,
    /// The offset of the last, if there are any.
    pub last_offset: u64,
    /// No later segment's record has a lower offset.
    pub next_offset: u64,
    /// The newest record's time.
    pub time_us: u64,
}

/// Length of a seal's frame.
pub const SEAL_BYTES: usize = frame_bytes(24);

impl Seal {
    /// Appends the seal's frame to `frames`, for a segment with `salt` and `mark` durable bytes.
    pub fn push(&self, frames: &mut Vec<u8>, salt: u64, mark: u64) {
        let mut body = [0; 24];
        put(&mut body, 0, &self.records.to_le_bytes());
        put(&mut body, 8, &self.first_offset.to_le_bytes());
        put(&mut body, 16, &self.last_offset.to_le_bytes());
        let header = Header::of(0, self.time_us, 0, &body);
        let header = Header { kind: Kind::Seal, offset: self.next_offset, mark, ..header };
        push_frame(frames, &header.encode(salt), &body);
    }

    /// Decodes a frame of [`Kind::Seal`].
    pub fn decode(header: &Header, body: &[u8]) -> Option<Seal> {
        let body: &[u8; 24] = body.try_into().ok()?;
        let field = |at| u64::from_le_bytes(get(body, at));
        Some(Seal {
            records: field(0),
            first_offset: field(8),
            last_offset: field(16),
            next_offset: header.offset,
            time_us: header.time_us,
        })
    }
}

fn push_frame(frames: &mut Vec<u8>, header: &[u8; HEADER_BYTES], body: &[u8]) {
    let end = frames.len() + frame_bytes(body.len());
    frames.extend_from_slice(header);
    frames.extend_from_slice(body);
    frames.resize(end, 0);
}

/// Places the frames that [`push`] appended to `frames` in a segment with `salt`, with offsets from `offset`
/// on. May be repeated for another segment.
pub fn stamp(frames: &mut [u8], salt: u64, offset: u64, mark: u64) {
    let (mut at, mut offset) = (0, offset);
    // All frames are records, so their checksums begin with the same bytes.
    let first = crc32c_append(crc32c(&salt.to_le_bytes()), &RECORD);
    while let Some(bytes) =
        frames.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<HEADER_BYTES>())
    {
        put(bytes, 16, &offset.to_le_bytes());
        put(bytes, 52, &((mark / ALIGN as u64) as u32).to_le_bytes());
        let crc = crc32c_append(first, &bytes[8..]);
        put(bytes, 4, &crc.to_le_bytes());
        at += frame_bytes(u32::from_le_bytes(get(bytes, 8)) as usize);
        offset += 1;
    }
}

/// Length of the first frame in `frames`, which [`push`] made. `None` at their end.
pub fn stamped_bytes(frames: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_BYTES] = frames.first_chunk()?;
    Some(frame_bytes(u32::from_le_bytes(get(header, 8)) as usize))
}

/// The content of a segment at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// An intact frame.
    Frame(Header, &'a [u8]),
    /// Perhaps a frame, of this many bytes, which is more than there are; its header if that is complete.
    Incomplete(usize, Option<Header>),
    /// An intact header with a damaged body.
    BadBody(Header),
    /// No header.
    Nothing,
}

/// Parses the start of `bytes`.
pub fn parse(bytes: &[u8], salt: u64) -> Parsed<'_> {
    if bytes.len() < HEADER_BYTES {
        return Parsed::Incomplete(HEADER_BYTES, None);
    }
    let Some(header) = Header::decode(bytes, salt) else { return Parsed::Nothing };
    let Some(frame) = bytes.get(..header.frame_bytes()) else {
        return Parsed::Incomplete(header.frame_bytes(), Some(header));
    };
    let (body, padding) = frame[HEADER_BYTES..].split_at(header.body_bytes as usize);
    if crc32c(body) == header.body_crc && padding.iter().all(|byte| *byte == 0) {
        Parsed::Frame(header, body)
    } else {
        Parsed::BadBody(header)
    }
}

fn put<const N: usize>(bytes: &mut [u8; N], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests;
