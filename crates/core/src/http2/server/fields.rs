//! The fields of an answer, on their way into a field block.

use alloc::vec::Vec;

use super::super::hpack::{self, Indexing};
use crate::http::{FieldWriter, digits};

/// The longest name in capitals that is sent; none that is registered comes near.
const NAME_MAX: usize = 128;

/// Writes header or trailer fields into a field block.
#[derive(Debug)]
pub struct FieldBlock<'f> {
    /// `None`: the block is sent later, so that it must not depend on the table.
    pub(super) encoder: Option<&'f mut hpack::Encoder>,
    pub(super) out: &'f mut Vec<u8>,
}

impl FieldBlock<'_> {
    /// The same block, for another writer.
    pub(crate) fn reborrow(&mut self) -> FieldBlock<'_> {
        FieldBlock { encoder: self.encoder.as_deref_mut(), out: self.out }
    }

    #[inline]
    pub(super) fn add(&mut self, name: &[u8], value: &[u8], indexing: Indexing) {
        match &mut self.encoder {
            Some(encoder) => encoder.field(name, value, indexing, self.out),
            None => hpack::field_alone(name, value, self.out),
        }
    }
}

impl FieldBlock<'_> {
    /// `:status`. The common ones stand in the static table.
    #[inline]
    pub(super) fn status(&mut self, status: u16) {
        let indexed = match status {
            200 => 0x88,
            204 => 0x89,
            206 => 0x8a,
            304 => 0x8b,
            400 => 0x8c,
            404 => 0x8d,
            500 => 0x8e,
            _ => {
                return self.add(
                    b":status",
                    digits(status.into(), &mut [0; 20]),
                    Indexing::Without,
                );
            }
        };
        self.out.push(indexed);
    }

    /// `content-length`: its name by the static table, its digits as they are, which is at most a few bytes longer than coded.
    #[inline]
    pub(super) fn content_length(&mut self, length: u64) {
        let mut buffer = [0; 20];
        let digits = digits(length, &mut buffer);
        self.out.extend_from_slice(&[0x0f, 28 - 15, digits.len() as u8]);
        self.out.extend_from_slice(digits);
    }
}

impl FieldWriter for FieldBlock<'_> {
    /// Fields about the connection do not exist in HTTP/2 (RFC 9113 §8.2.2), and are left out.
    #[inline]
    fn push(&mut self, name: &str, value: &[u8]) {
        let mut lower = [0; NAME_MAX];
        let mut name = name.as_bytes();
        if name.iter().any(u8::is_ascii_uppercase) {
            let Some(place) = lower.get_mut(..name.len()) else { return };
            place.copy_from_slice(name);
            place.make_ascii_lowercase();
            name = place;
        }
        if !is_of_connection(name) {
            self.add(name, value.trim_ascii(), Indexing::usual(name));
        }
    }
}

/// Whether a field is about the connection.
#[inline]
pub(super) fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade"
    )
}
