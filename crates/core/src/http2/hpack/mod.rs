//! HPACK: the compression of fields in HTTP/2 (RFC 7541).
//!
//! A [`Decoder`] and an [`Encoder`] each keep the table of one direction of a connection. The table's size, which this side
//! announces, bounds the memory that the other side can make them use. Beyond that, a block of any length allocates only
//! one buffer for a Huffman-coded field, which is kept.
//!
//! Whether names and values are allowed in HTTP/2 is not decided here.

mod decoder;
mod encoder;
mod fixed;
mod huffman;
mod integer;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;

pub use decoder::{Decoded, Decoder};
pub use encoder::{Encoder, Indexing, field_alone};

/// The size of a table until the other side says otherwise (RFC 9113 §6.5.2).
pub const SIZE_DEFAULT: usize = 4096;

/// A decoded field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// As sent: in HTTP/2 it must be in lower case, and pseudo-fields begin with a colon.
    pub name: &'a [u8],
    /// As sent.
    pub value: &'a [u8],
    /// It must not be put into a table by anyone who passes it on (RFC 7541 §7.1.3).
    pub is_sensitive: bool,
}

/// The error in a field block. Each is a connection error: `COMPRESSION_ERROR` (RFC 9113 §4.3), except [`Error::Names`],
/// which is `ENHANCE_YOUR_CALM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It ends within a field.
    Truncated,
    /// An integer of more than 28 bits.
    IntegerTooLarge,
    /// An index that is in neither table.
    Index,
    /// A string with EOS in it, or with padding that is too long or not of ones.
    Huffman,
    /// An update of the table's size behind a field, or a third one before.
    UpdateMisplaced,
    /// An update beyond the size that was announced.
    UpdateTooLarge,
    /// No update, although the announced size is below the table's.
    UpdateMissing,
    /// It is too large, and keeps inserting names of the table again, which costs much more than its length.
    Names,
}

impl Error {
    /// The error in plain words, for a log.
    pub fn reason(self) -> &'static str {
        match self {
            Error::Truncated => "a field block ends within a field",
            Error::IntegerTooLarge => "an integer of a field block has more than 28 bits",
            Error::Index => "a field block names an entry that no table has",
            Error::Huffman => "a string of a field block is not Huffman code",
            Error::UpdateMisplaced => {
                "a table size update is not at the beginning of its field block"
            }
            Error::UpdateTooLarge => "a table size update exceeds the announced size",
            Error::UpdateMissing => {
                "a field block does not begin with the table size update that is due"
            }
            Error::Names => "a field block that is too large repeats long names",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for Error {}
