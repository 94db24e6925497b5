//! The fields of an answer, on their way into a field block.

use alloc::vec::Vec;

use super::super::hpack::{self, Indexing};
use crate::http::FieldWriter;

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
