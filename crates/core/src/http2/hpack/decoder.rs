//! From a field block to fields (RFC 7541 §3, §6).

use alloc::vec::Vec;
use core::ops::Range;

use super::table::{Name, OVERHEAD, Table};
use super::{Error, Field, SIZE_DEFAULT, fixed, huffman, integer};

/// What [`Decoder::trim`] keeps.
const SCRATCH_KEPT: usize = 512;

/// How often a full table's worth of names may be copied for one block beyond its limit. Within that, they count themselves.
const NAMES_FACTOR: usize = 16;

/// The result of decoding a field block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The size of its fields as RFC 9113 §6.5.2 counts it: names, values, and 32 for each field.
    pub size: usize,
    /// They exceeded the limit; the fields from there on were not reported. The table is intact, so that the
    /// connection can go on: a server answers 431.
    pub is_too_large: bool,
}

/// Decodes field blocks, and keeps the table that they build. One for all blocks of a connection's direction.
///
/// Its memory is bounded: three times the table's size, and a buffer for one decoded field, which is at most 8/5 of
/// its block.
///
/// ```
/// use highwater_core::http2::hpack::Decoder;
///
/// let mut decoder = Decoder::new(4096);
/// let mut fields = Vec::new();
/// // A field of the static table, then one with a value of its own, coded after Huffman.
/// let block = [0x82, 0x44, 0x84, 0x63, 0xcf, 0xaf, 0x61];
/// let done = decoder.decode(&block, 16 * 1024, &mut |field| {
///     fields.push((field.name.to_vec(), field.value.to_vec()));
/// });
/// assert!(!done.unwrap().is_too_large);
/// assert_eq!(fields[0], (b":method".to_vec(), b"GET".to_vec()));
/// assert_eq!(fields[1], (b":path".to_vec(), b"/xyz1".to_vec()));
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    table: Table,
    /// The largest table that the other side may use.
    limit: usize,
    /// It was lowered below the table's size: the next block must begin with an update (RFC 9113 §4.3.1).
    needs_update: bool,
    /// A decoded name, and the decoded value behind it.
    scratch: Vec<u8>,
}

/// Where a string of the block stands, once it is decoded.
enum Text {
    Block(Range<usize>),
    Scratch(Range<usize>),
}

/// Where a name comes from.
enum NameText {
    Static(&'static str),
    /// The name of this entry of the dynamic table.
    Entry(usize),
    Text(Text),
}

impl Decoder {
    /// A decoder that allows a table of `size` bytes: what `SETTINGS_HEADER_TABLE_SIZE` announced and the other side
    /// acknowledged. Until then it is 4096. Nothing is allocated before a block asks for it.
    pub fn new(size: usize) -> Decoder {
        let table = Table::new(size.min(SIZE_DEFAULT));
        Decoder { table, limit: size, needs_update: false, scratch: Vec::new() }
    }

    /// Another `size` was announced and acknowledged. If it is below the table's, the next block must begin with an
    /// update.
    pub fn set_limit(&mut self, size: usize) {
        self.limit = size;
        self.needs_update = size < self.table.size_max();
    }

    /// Reads a whole field block, all fragments of it. Reports its fields in order as long as they take no more than
    /// `size_max` bytes together, each counted with 32 more.
    ///
    /// # Errors
    /// The block is malformed: a connection error `COMPRESSION_ERROR` (RFC 9113 §4.3). The decoder is of no use any
    /// more.
    pub fn decode(
        &mut self,
        block: &[u8],
        size_max: usize,
        on_field: &mut impl FnMut(Field<'_>),
    ) -> Result<Decoded, Error> {
        let (mut rest, mut done) = (block, Decoded::default());
        self.updates(&mut rest)?;
        let mut copied = 0;
        while let Some(&first) = rest.first() {
            if first & 0x80 == 0 {
                let name = self.literal(first, block, &mut rest, &mut |field| {
                    done.report(field, size_max, on_field)
                })?;
                copied += if done.is_too_large { name } else { 0 };
                if copied > NAMES_FACTOR * self.table.size_max() {
                    return Err(Error::Names);
                }
                continue;
            }
            let (name, value) = self.entry(integer::take(&mut rest, 7)?)?;
            done.report(Field { name, value, is_sensitive: false }, size_max, on_field);
        }
        Ok(done)
    }

    /// Frees the buffer for decoded fields if it is larger than most fields need.
    pub fn trim(&mut self) {
        if self.scratch.capacity() > SCRATCH_KEPT {
            self.scratch = Vec::new();
        }
    }

    /// Bytes of memory it has allocated on the heap.
    pub fn allocated(&self) -> usize {
        self.table.allocated() + self.scratch.capacity()
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes the updates of the table's size with which a block may begin (RFC 7541 §4.2: two at most).
    fn updates(&mut self, rest: &mut &[u8]) -> Result<(), Error> {
        /// The smallest size between two blocks, and the last.
        const UPDATES_MAX: usize = 2;
        for _ in 0..UPDATES_MAX {
            if rest.first().is_none_or(|first| first & 0xe0 != 0x20) {
                break;
            }
            let size = integer::take(rest, 5)?;
            if size > self.limit {
                return Err(Error::UpdateTooLarge);
            }
            self.table.set_size_max(size);
            self.needs_update = false;
        }
        if self.needs_update { Err(Error::UpdateMissing) } else { Ok(()) }
    }

    /// Takes a field that is not, or not wholly, in a table. Returns how many bytes of its name were copied within the table.
    #[inline]
    fn literal(
        &mut self,
        first: u8,
        block: &[u8],
        rest: &mut &[u8],
        report: &mut impl FnMut(Field<'_>),
    ) -> Result<usize, Error> {
        let (prefix, is_indexed) = match first {
            0x40.. => (6, true),
            0x20.. => return Err(Error::UpdateMisplaced),
            _ => (4, false),
        };
        self.scratch.clear();
        let name = match integer::take(rest, prefix)? {
            0 => NameText::Text(self.string(block, rest)?),
            index @ 1..=fixed::COUNT => NameText::Static(fixed::ENTRIES[index - 1].0),
            index => {
                self.entry(index)?;
                NameText::Entry(index - fixed::COUNT - 1)
            }
        };
        let value = self.string(block, rest)?;
        let Decoder { table, scratch, .. } = self;
        let bytes = |text: Text| match text {
            Text::Block(range) => &block[range],
            Text::Scratch(range) => &scratch[range],
        };
        let (value, name) = (
            bytes(value),
            match name {
                NameText::Static(text) => Name::Bytes(text.as_bytes()),
                NameText::Entry(index) => Name::Of(index),
                NameText::Text(text) => Name::Bytes(bytes(text)),
            },
        );
        let name_bytes = match name {
            Name::Bytes(bytes) => bytes,
            Name::Of(index) => table.get(index).map_or(&[][..], |entry| entry.0),
        };
        let is_sensitive = !is_indexed && first & 0x10 != 0;
        let copied = if is_indexed && matches!(name, Name::Of(_)) { name_bytes.len() } else { 0 };
        report(Field { name: name_bytes, value, is_sensitive });
        if is_indexed {
            table.insert(name, value);
        }
        Ok(copied)
    }

    /// Name and value of an entry of either table.
    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Error> {
        match index {
            0 => Err(Error::Index),
            1..=fixed::COUNT => {
                let (name, value) = fixed::ENTRIES[index - 1];
                Ok((name.as_bytes(), value.as_bytes()))
            }
            _ => self.table.get(index - fixed::COUNT - 1).ok_or(Error::Index),
        }
    }

    /// Takes a string (RFC 7541 §5.2).
    #[inline]
    fn string(&mut self, block: &[u8], rest: &mut &[u8]) -> Result<Text, Error> {
        let is_coded = rest.first().is_some_and(|first| first & 0x80 != 0);
        let len = integer::take(rest, 7)?;
        let Some((text, behind)) = rest.split_at_checked(len) else { return Err(Error::Truncated) };
        *rest = behind;
        if is_coded {
            let from = self.scratch.len();
            huffman::decode(text, &mut self.scratch)?;
            return Ok(Text::Scratch(from..self.scratch.len()));
        }
        let to = block.len() - behind.len();
        Ok(Text::Block(to - len..to))
    }
}

impl Decoded {
    #[inline]
    fn report(&mut self, field: Field<'_>, size_max: usize, on_field: &mut impl FnMut(Field<'_>)) {
        self.size = self.size.saturating_add(field.name.len() + field.value.len() + OVERHEAD);
        self.is_too_large |= self.size > size_max;
        if !self.is_too_large {
            on_field(field);
        }
    }
}
