//! A segment's header: its place among the others, its salt, and how much of the previous segment
//! is valid.

use core::fmt;

use super::{ALIGN, crc32c, get, put};

/// The format version that this code writes.
pub const VERSION: u32 = 1;

/// Position of the header's second copy: in another sector and another page than the first, so that
/// the loss of one loses no record.
pub const COPY_AT: usize = 4096;

/// Position of the first frame. Before it, every byte outside the copies of the header is zero.
pub const FRAMES_AT: usize = 8192;

const MAGIC: [u8; 8] = *b"HWJOURNL";

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its place among the segments; later ones have higher numbers, and none is given twice.
    pub sequence: u64,
    /// The number with which the checksums of its frames' headers begin.
    pub salt: u64,
    /// No record in it has a lower offset.
    pub base_offset: u64,
    /// When it was made, in microseconds since 1970.
    pub created_us: u64,
    /// The segment before it.
    pub previous: Option<Previous>,
}

/// The previous segment, as a segment's header records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Its number.
    pub sequence: u64,
    /// How many of its bytes are durable. Records after them were never acknowledged.
    pub end: u64,
}

/// Why bytes are not a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSegmentHeader {
    /// A checksum is wrong, or the bytes are something else.
    Damaged,
    /// A version that this program does not know.
    Version(u32),
}

impl fmt::Display for BadSegmentHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSegmentHeader::Damaged => f.write_str("no intact segment header"),
            BadSegmentHeader::Version(version) => {
                write!(
                    f,
                    "format version {version}; this program knows {VERSION}: run the version that wrote it"
                )
            }
        }
    }
}

impl core::error::Error for BadSegmentHeader {}

impl SegmentHeader {
    /// Length of one copy.
    pub const BYTES: usize = 64;

    /// All bytes before the frames: both copies, and zeros.
    pub fn encode(&self) -> [u8; FRAMES_AT] {
        let (previous, end) = match self.previous {
            Some(Previous { sequence, end }) => (sequence, end),
            None => (u64::MAX, 0),
        };
        let mut copy = [0; SegmentHeader::BYTES];
        put(&mut copy, 0, &MAGIC);
        put(&mut copy, 8, &VERSION.to_le_bytes());
        for (at, field) in [
            (16, self.sequence),
            (24, self.salt),
            (32, self.base_offset),
            (40, self.created_us),
            (48, previous),
            (56, end),
        ] {
            put(&mut copy, at, &field.to_le_bytes());
        }
        let crc = copy_crc(&copy);
        put(&mut copy, 12, &crc.to_le_bytes());
        let mut block = [0; FRAMES_AT];
        put(&mut block, 0, &copy);
        put(&mut block, COPY_AT, &copy);
        block
    }

    /// Reads the header from the start of a segment, from either copy that is intact.
    pub fn decode(block: &[u8]) -> Result<SegmentHeader, BadSegmentHeader> {
        let copies = [0, COPY_AT].map(|at| match block.get(at..at + SegmentHeader::BYTES) {
            Some(copy) => decode_copy(copy),
            None => Err(BadSegmentHeader::Damaged),
        });
        match copies {
            [Ok(header), _] | [_, Ok(header)] => Ok(header),
            [Err(BadSegmentHeader::Damaged), Err(other)] | [Err(other), _] => Err(other),
        }
    }

    /// Position of the first byte before the frames that differs from what [`encode`] wrote.
    ///
    /// [`encode`]: SegmentHeader::encode
    pub fn first_damage(&self, block: &[u8]) -> Option<usize> {
        let intact = self.encode();
        (0..FRAMES_AT).find(|&at| block.get(at) != Some(&intact[at]))
    }
}

fn decode_copy(copy: &[u8]) -> Result<SegmentHeader, BadSegmentHeader> {
    if get::<8>(copy, 0) != MAGIC || u32::from_le_bytes(get(copy, 12)) != copy_crc(copy) {
        return Err(BadSegmentHeader::Damaged);
    }
    let version = u32::from_le_bytes(get(copy, 8));
    if version != VERSION {
        return Err(BadSegmentHeader::Version(version));
    }
    let field = |at| u64::from_le_bytes(get(copy, at));
    let previous = Previous { sequence: field(48), end: field(56) };
    // Frames end at a multiple of their alignment. A checksum that matches by chance must not yield
    // another position.
    if !previous.end.is_multiple_of(ALIGN as u64) {
        return Err(BadSegmentHeader::Damaged);
    }
    Ok(SegmentHeader {
        sequence: field(16),
        salt: field(24),
        base_offset: field(32),
        created_us: field(40),
        previous: (previous.sequence != u64::MAX).then_some(previous),
    })
}

/// The checksum of a copy: of all its bytes, with the checksum itself as zero.
fn copy_crc(copy: &[u8]) -> u32 {
    let mut bytes: [u8; SegmentHeader::BYTES] = get(copy, 0);
    put(&mut bytes, 12, &[0; 4]);
    crc32c(&bytes)
}
