//! From fields to a field block (RFC 7541 §6).

use alloc::vec::Vec;

use super::table::{Name, OVERHEAD, Table};
use super::{SIZE_DEFAULT, fixed, huffman, integer};

/// Whether a field is remembered for later blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It is: a later block has one or two bytes for it. For values that come again.
    Incremental,
    /// It is not: a table full of values that do not come again has no place for those that do.
    Without,
    /// It is not, and no proxy may do so: for secrets, which a table lets others guess (RFC 7541 §7.1).
    Never,
}

impl Indexing {
    /// The right choice for most fields of that name.
    ///
    /// ```
    /// use highwater_core::http2::hpack::Indexing;
    ///
    /// assert_eq!(Indexing::usual(b"content-type"), Indexing::Incremental);
    /// assert_eq!(Indexing::usual(b"content-length"), Indexing::Without);
    /// assert_eq!(Indexing::usual(b"authorization"), Indexing::Never);
    /// ```
    #[inline]
    pub fn usual(name: &[u8]) -> Indexing {
        match name {
            b"authorization" | b"proxy-authorization" | b"set-cookie" => Indexing::Never,
            b":path" | b"age" | b"content-length" | b"content-range" | b"etag"
            | b"if-modified-since" | b"if-none-match" | b"last-modified" | b"location"
            | b"range" => Indexing::Without,
            _ => Indexing::Incremental,
        }
    }
}

/// Where recent entries are found again, by hash. A place holds one, the latest: a collision costs bytes, no more.
const PLACES: usize = 64;

/// Writes field blocks. One for all blocks of a connection's direction.
///
/// Its memory is bounded: three times the table's size, and 512 bytes to find its entries.
///
/// ```
/// use highwater_core::http2::hpack::{Encoder, Indexing};
///
/// let mut encoder = Encoder::new();
/// let mut block = Vec::new();
/// encoder.begin(&mut block);
/// encoder.field(b":method", b"GET", Indexing::Incremental, &mut block);
/// encoder.field(b"x-page", b"7", Indexing::Incremental, &mut block);
/// assert_eq!(block[0], 0x82, "the second entry of the static table");
///
/// block.clear();
/// encoder.begin(&mut block);
/// encoder.field(b"x-page", b"7", Indexing::Incremental, &mut block);
/// assert_eq!(block, [0x80 | 62], "the newest entry of the dynamic table");
/// ```
#[derive(Clone, Debug)]
pub struct Encoder {
    table: Table,
    /// The numbers of entries: by name at first, then by name and value.
    places: Vec<u32>,
    /// Sizes to announce at the beginning of the next block: the smallest meanwhile, and the last.
    update: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder with a table of 4096 bytes, which every decoder has (RFC 9113 §6.5.2).
    pub fn new() -> Encoder {
        Encoder { table: Table::new(SIZE_DEFAULT), places: Vec::new(), update: None }
    }

    /// The table may have `size` bytes from the next block on: what the other side's `SETTINGS_HEADER_TABLE_SIZE`
    /// says. No more than 4096 are used, whatever it offers: memory of this side for the bytes of that one.
    pub fn set_limit(&mut self, size: usize) {
        let size = size.min(SIZE_DEFAULT);
        let pending = self.update.map(|(least, _)| least);
        if size != self.table.size_max() || pending.is_some() {
            self.update = Some((pending.map_or(size, |least| least.min(size)), size));
            self.table.set_size_max(size);
        }
    }

    /// Begins a block. The blocks must be sent in the order in which they were begun, and none may be left out.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, last)) = self.update.take() {
            if least < last {
                integer::push(least, 0x20, 5, out);
            }
            integer::push(last, 0x20, 5, out);
        }
    }

    /// Adds a field. The name is in lower case (RFC 9113 §8.2.1); this is not checked.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let mut name_index = match fixed::find(name, value) {
            fixed::Found::Field(index) if indexing != Indexing::Never => {
                return integer::push(index, 0x80, 7, out);
            }
            fixed::Found::Name(index) if indexing == Indexing::Without => {
                integer::push(index, 0x00, 4, out);
                return string(value, out);
            }
            fixed::Found::Field(index) | fixed::Found::Name(index) => index,
            fixed::Found::Nothing => 0,
        };
        let (name_hash, hash) = hashes(name, value);
        if indexing != Indexing::Never
            && let Some(index) =
                self.find(hash).filter(|index| self.table.get(*index) == Some((name, value)))
        {
            return integer::push(index + fixed::COUNT + 1, 0x80, 7, out);
        }
        let mut known = Name::Bytes(name);
        if name_index == 0
            && let Some(index) = self.find(name_hash)
            && self.table.get(index).is_some_and(|entry| entry.0 == name)
        {
            (name_index, known) = (index + fixed::COUNT + 1, Name::Of(index));
        }
        let fits = name.len() + value.len() + OVERHEAD <= self.table.size_max();
        let (first, prefix) = match indexing {
            Indexing::Incremental if fits => (0x40, 6),
            Indexing::Incremental | Indexing::Without => (0x00, 4),
            Indexing::Never => (0x10, 4),
        };
        integer::push(name_index, first, prefix, out);
        if name_index == 0 {
            string(name, out);
        }
        string(value, out);
        if indexing == Indexing::Incremental && fits {
            self.table.insert(known, value);
            self.places.resize(2 * PLACES, 0);
            let number = self.table.newest();
            self.places[name_hash] = number;
            self.places[hash] = number;
        }
    }

    /// Bytes of memory it has allocated on the heap.
    pub fn allocated(&self) -> usize {
        self.table.allocated() + self.places.capacity() * size_of::<u32>()
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The index, in the dynamic table, of the entry that may be meant.
    #[inline]
    fn find(&self, place: usize) -> Option<usize> {
        let number = *self.places.get(place)?;
        let index = self.table.newest().wrapping_sub(number) as usize;
        (index < self.table.len()).then_some(index)
    }
}

/// Adds a field of a block that refers to no dynamic table and changes none, so that it may be sent in any order. The
/// name is in lower case.
pub fn field_alone(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let name_index = match fixed::find(name, value) {
        fixed::Found::Field(index) => return integer::push(index, 0x80, 7, out),
        fixed::Found::Name(index) => index,
        fixed::Found::Nothing => 0,
    };
    let first = if Indexing::usual(name) == Indexing::Never { 0x10 } else { 0x00 };
    integer::push(name_index, first, 4, out);
    if name_index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// A string, in the shorter of its two forms (RFC 7541 §5.2).
#[inline]
fn string(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::push(len, 0x80, 7, out);
        huffman::encode(text, out);
    } else {
        integer::push(text.len(), 0, 7, out);
        out.extend_from_slice(text);
    }
}

/// The places of a name, and of a name with its value (FNV-1a, eight bytes at a time).
#[inline]
fn hashes(name: &[u8], value: &[u8]) -> (usize, usize) {
    const BITS: u32 = PLACES.trailing_zeros();
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The last bytes are taken as a whole, too: some of them twice, which does no harm.
    let add = |mut hash: u64, text: &[u8]| {
        hash = mix(hash.rotate_left(23), text.len() as u64);
        let mut rest = text;
        while let Some((word, behind)) = rest.split_first_chunk::<8>() {
            hash = mix(hash.rotate_left(23), u64::from_le_bytes(*word));
            rest = behind;
        }
        match (text.last_chunk::<8>(), text.first_chunk::<4>(), text.last_chunk::<4>()) {
            (Some(_), ..) if rest.is_empty() => hash,
            (Some(word), ..) => mix(hash.rotate_left(23), u64::from_le_bytes(*word)),
            (None, Some(first), Some(last)) => {
                let word = u64::from(u32::from_le_bytes(*first)) << 32;
                mix(hash.rotate_left(23), word | u64::from(u32::from_le_bytes(*last)))
            }
            _ => rest.iter().fold(hash, |hash, byte| mix(hash.rotate_left(5), u64::from(*byte))),
        }
    };
    let of_name = add(0, name);
    let of_field = add(of_name, value);
    let place = |hash: u64| (hash >> (64 - BITS)) as usize;
    (place(of_name), PLACES + place(of_field))
}
