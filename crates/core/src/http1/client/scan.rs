//! How long is a name or a value? Reads eight bytes at a time while they are common ones.
//!
//! The tables of `syntax.rs` define which bytes are allowed; these functions are only short cuts for them
//! ("Bit Twiddling Hacks": hasless, haszero, hasmore), each exact up to the first byte that it finds.

use crate::http::syntax::{is_token_byte, is_value_byte};

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const HIGH: u64 = each(0x80);

/// Length of the leading run of token bytes.
#[inline]
pub(super) fn token_run(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let odd = not_letters(u64::from_le_bytes(*chunk));
        if odd != 0 {
            rest = &rest[first_byte(odd)..];
            break;
        }
        rest = behind;
    }
    // Mostly this is the colon. The other token bytes are rare.
    let at = bytes.len() - rest.len();
    at + rest.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(rest.len())
}

/// Length of the leading run of field-value bytes.
#[inline]
pub(super) fn value_run(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let odd = controls(u64::from_le_bytes(*chunk));
        if odd == 0 {
            rest = behind;
            continue;
        }
        rest = &rest[first_byte(odd)..];
        match rest {
            [b'\t', behind @ ..] => rest = behind,
            _ => return bytes.len() - rest.len(),
        }
    }
    let at = bytes.len() - rest.len();
    at + rest.iter().position(|&byte| !is_value_byte(byte)).unwrap_or(rest.len())
}

/// The high bits of the bytes that are neither letters nor `-`.
#[inline]
const fn not_letters(word: u64) -> u64 {
    // Without their high bits, no sum of two bytes reaches into the next.
    let low = word & !HIGH;
    let lower = low | each(0x20);
    let from_a = lower + each(0x80 - b'a');
    let beyond_z = lower + each(0x7f - b'z');
    let is_letter = from_a & !beyond_z;
    let is_other = (low ^ each(b'-')) + each(0x7f);
    ((!is_letter & is_other) | word) & HIGH
}

/// The high bits of the bytes that are controls, of which the first is exact.
#[inline]
const fn controls(word: u64) -> u64 {
    let below = word.wrapping_sub(each(0x20)) & !word;
    let del = word ^ each(0x7f);
    let is_del = del.wrapping_sub(each(1)) & !del;
    (below | is_del) & HIGH
}

/// The place of the first byte whose high bit is set, in a word read with its first byte lowest.
#[inline]
const fn first_byte(high_bits: u64) -> usize {
    high_bits.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn by_table(bytes: &[u8], class: fn(u8) -> bool) -> usize {
        bytes.iter().position(|&byte| !class(byte)).unwrap_or(bytes.len())
    }

    fn check(bytes: &[u8]) {
        assert_eq!(token_run(bytes), by_table(bytes, is_token_byte), "{}", bytes.escape_ascii());
        assert_eq!(value_run(bytes), by_table(bytes, is_value_byte), "{}", bytes.escape_ascii());
    }

    /// Purpose: each byte, behind each number of plain ones, ends a run or not as the tables say.
    #[test]
    fn every_byte_at_every_place() {
        for plain in *b"a-Z" {
            for at in 0..20 {
                for byte in 0..=255 {
                    let mut bytes = [plain; 20];
                    bytes[at] = byte;
                    check(&bytes);
                    check(&bytes[..=at]);
                }
            }
        }
    }

    proptest! {
        /// Purpose: several odd bytes in one word do not hide each other.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), mask in any::<u8>()) {
            check(&bytes);
            let mostly_text: Vec<u8> = bytes.iter().map(|byte| byte & mask | 0x20).collect();
            check(&mostly_text);
        }
    }
}
