//! Which records do these bytes hold, and which bytes hold none any more?
//!
//! The format of the journal's files, as functions over bytes: a segment begins with a
//! [`SegmentHeader`], twice, and then holds frames. A frame is a header, a body, and zeros up to the
//! next multiple of eight. `docs/journal.md` draws it.
//!
//! Two checksums stand in a frame's header: one of the header, one of the body. So the length of a
//! frame can be believed even if its body cannot, and exactly one record is lost with a bad body. The
//! header's checksum begins with the segment's salt, a number that no client knows: bytes that a
//! client sent as a body, and bytes that an older file left on the disk, cannot pass for frames.
//!
//! [`Walk`] goes through a segment window by window. It tells a **hole** (bad bytes with an intact
//! frame behind them) from a **tail** (bad bytes up to the end). A frame's `mark` says how much of the
//! segment was durable when the frame was written, so a hole before a later frame's mark is damage to
//! what was durable, and another may be what a crash has torn.
//!
//! Never here: files, clocks, randomness. Invariants: nothing panics, whatever the bytes; a walk ends,
//! and its frames, holes and tail cover every byte once.

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

/// The longest body the format has. A longer length in a header is not believed.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// A frame of each kind begins with these bytes.
const RECORD: [u8; 4] = *b"HWFR";
const SEAL: [u8; 4] = *b"HWFS";

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A record of the application.
    Record,
    /// The end of a segment that was finished in order: how many records it has, and of when.
    Seal,
}

/// What stands before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// Its length.
    pub body_bytes: u32,
    /// Its checksum.
    pub body_crc: u32,
    /// The record's number in the journal.
    pub offset: u64,
    /// When it was taken, in microseconds since 1970.
    pub time_us: u64,
    /// Its identity, as whoever appended it chose it.
    pub id: u128,
    /// Its partition, likewise.
    pub partition: u32,
    /// So many bytes of the segment were durable when this frame was written; a multiple of eight.
    pub mark: u64,
}

impl Header {
    /// The header of a record with `body` that has no place in a segment yet (see [`stamp`]).
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

    /// As it stands in a segment with `salt`.
    pub fn encode(&self, salt: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = self.encode_without_crc();
        let crc = header_crc(&bytes, salt);
        put(&mut bytes, 4, &crc.to_le_bytes());
        bytes
    }

    /// As it stands anywhere, but for its checksum.
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

    /// Reads the header that `bytes` begins with; `None` if there is none of a segment with `salt`.
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

/// The checksum of a header: of the salt, and of all its bytes but the checksum.
fn header_crc(bytes: &[u8; HEADER_BYTES], salt: u64) -> u32 {
    let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &bytes[..4]);
    crc32c_append(crc, &bytes[8..])
}

/// Length of a frame whose body is so long.
pub const fn frame_bytes(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(ALIGN)
}

/// Appends the frame of a record to `frames`. It still lacks its place, which [`stamp`] gives it.
pub fn push(frames: &mut Vec<u8>, partition: u32, time_us: u64, id: u128, body: &[u8]) {
    let header = Header::of(partition, time_us, id, body);
    push_frame(frames, &header.encode_without_crc(), body);
}

/// What the last frame of a finished segment says about the segment.
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
    /// Appends the seal's frame to `frames`, for a segment with `salt` of which `mark` bytes are durable.
    pub fn push(&self, frames: &mut Vec<u8>, salt: u64, mark: u64) {
        let mut body = [0; 24];
        put(&mut body, 0, &self.records.to_le_bytes());
        put(&mut body, 8, &self.first_offset.to_le_bytes());
        put(&mut body, 16, &self.last_offset.to_le_bytes());
        let header = Header::of(0, self.time_us, 0, &body);
        let header = Header { kind: Kind::Seal, offset: self.next_offset, mark, ..header };
        push_frame(frames, &header.encode(salt), &body);
    }

    /// Reads what a frame of [`Kind::Seal`] says.
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

/// Gives each frame of `frames`, which [`push`] has made, its place: in a segment with `salt`, with
/// offsets from `offset` on. It may be done again, for another segment.
pub fn stamp(frames: &mut [u8], salt: u64, offset: u64, mark: u64) {
    let (mut at, mut offset) = (0, offset);
    // All of them are records, so the checksum of what comes first is that of all.
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

/// Length of the frame that `frames`, which [`push`] has made, begins with. `None` at their end.
pub fn stamped_bytes(frames: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_BYTES] = frames.first_chunk()?;
    Some(frame_bytes(u32::from_le_bytes(get(header, 8)) as usize))
}

/// What a position in a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// An intact frame.
    Frame(Header, &'a [u8]),
    /// Perhaps a frame, of so many bytes: there are fewer here. Its header is given if that is whole.
    Incomplete(usize, Option<Header>),
    /// An intact header, with a body that is not what was written.
    BadBody(Header),
    /// No header.
    Nothing,
}

/// Reads what `bytes` begins with.
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
