//! How far does a run of allowed bytes go?
//!
//! The table of `syntax.rs` says which bytes are allowed. So as not to look up each byte, sixteen are asked at once for
//! *candidates*: all bytes that end the run, and perhaps some that do not. The table decides about these, one by one.

use super::syntax::{CLASS, HOST, LOWER, PATH, TARGET, TOKEN, UNMARKED, VALUE};
#[cfg(target_feature = "sse2")]
use vector::Block;
#[cfg(not(target_feature = "sse2"))]
use words::Block;

/// The index of the first byte from `from` on that is neither a letter nor `-`: usually the end of a field name.
/// 0 with fewer than sixteen bytes in all.
#[inline(always)]
pub(crate) fn letters_end(bytes: &[u8], from: usize) -> usize {
    first(bytes, from, not_of_names, |_| true)
}

/// The index of the first control character (a tab is one) from `from` on: usually the end of a field value.
/// 0 with fewer than sixteen bytes in all.
#[inline(always)]
pub(crate) fn text_end(bytes: &[u8], from: usize) -> usize {
    first(bytes, from, controls, |_| true)
}

/// Where the run of token bytes from `from` on ends. Names of fields are letters and `-`, mostly.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, TOKEN, not_of_names)
}

/// Where the run of bytes that a field's value may have ends.
#[inline]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, VALUE, controls)
}

/// Where the run of bytes that the path of a request target may have ends: it has neither `?` nor a backslash.
#[inline(always)]
pub(crate) fn path_run_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, PATH, |block| {
        // All up to `#`: what no path has, and `!` and `"`, which few have. `?` and 0x7f differ in one bit.
        let low = block.up_to(b'#');
        low | block.or(0x40).equal(0x7f) | block.equal(b'\\') | block.beyond_ascii()
    })
}

/// Where the run of bytes that a request target may have ends.
#[inline]
pub(crate) fn target_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, TARGET, |block| block.up_to(b'#') | block.equal(0x7f) | block.beyond_ascii())
}

/// Length of the leading run of bytes that the name of a host may have.
#[inline]
pub(super) fn host_run(bytes: &[u8]) -> usize {
    end(bytes, 0, HOST, |block| {
        !(letters(block) | block.between(b'0', b'9') | block.between(b'-', b'.'))
    })
}

/// Length of the leading run of token bytes.
#[inline]
pub(crate) fn token_run(bytes: &[u8]) -> usize {
    token_end(bytes, 0)
}

/// Length of the leading run of field-value bytes.
#[inline]
pub(crate) fn value_run(bytes: &[u8]) -> usize {
    value_end(bytes, 0)
}

/// Length of the leading run of bytes that a request target may have.
#[inline]
pub(crate) fn target_run(bytes: &[u8]) -> usize {
    target_end(bytes, 0)
}

/// Whether `name` is a token in lower case, as all names of fields are in HTTP/2 (RFC 9113 §8.2.1).
#[inline]
pub(crate) fn is_lower_token(name: &[u8]) -> bool {
    let common = |block: Block| !(block.between(b'a', b'z') | block.equal(b'-'));
    !name.is_empty() && end(name, 0, LOWER, common) == name.len()
}

/// The index of the first `?` or backslash in a target, if there is one.
#[inline]
pub(crate) fn path_end(target: &[u8]) -> Option<usize> {
    let at = end(target, 0, UNMARKED, |block| block.equal(b'?') | block.equal(b'\\'));
    (at < target.len()).then_some(at)
}

/// Bytes that are neither letters nor `-`: few field names contain any.
#[inline(always)]
fn not_of_names(block: Block) -> u32 {
    !(letters(block) | block.equal(b'-'))
}

/// Letters, in any case.
#[inline(always)]
fn letters(block: Block) -> u32 {
    block.or(0x20).between(b'a', b'z')
}

#[inline(always)]
fn controls(block: Block) -> u32 {
    block.up_to(b' ' - 1) | block.equal(0x7f)
}

/// The index of the first byte from `from` on that is not of the class; the length if all are. `candidates` finds, as the
/// bits of a number, all bytes of a block that are not of the class, and perhaps others.
#[inline(always)]
fn end(bytes: &[u8], from: usize, class: u8, candidates: impl Fn(Block) -> u32) -> usize {
    let ends = |byte: u8| CLASS[byte as usize] & class == 0;
    match bytes.len() < 16 {
        true => short_end(bytes, from, class),
        false => first(bytes, from, candidates, ends),
    }
}

/// As [`end`], of fewer than sixteen bytes. Where eight are of the class, they are looked up without a branch. A copy in sixteen
/// bytes would cost more: reading what was just written in parts waits for the CPU's store buffer.
#[inline]
fn short_end(bytes: &[u8], from: usize, class: u8) -> usize {
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        if chunk.iter().fold(class, |all, &byte| all & CLASS[byte as usize]) == 0 {
            break;
        }
        rest = behind;
    }
    let more = rest.iter().position(|&byte| CLASS[byte as usize] & class == 0);
    bytes.len() - rest.len() + more.unwrap_or(rest.len())
}

/// The index of the first candidate from `from` on that `ends` is true for; the length if there is none. Of fewer than
/// sixteen bytes it is 0.
#[inline(always)]
fn first(
    bytes: &[u8],
    from: usize,
    candidates: impl Fn(Block) -> u32,
    ends: impl Fn(u8) -> bool,
) -> usize {
    let Some(last) = bytes.len().checked_sub(16) else { return 0 };
    let place = |block: &[u8; 16], mut found: u32| {
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            if ends(block[place % 16]) {
                return Some(place);
            }
            found &= found - 1;
        }
        None
    };
    let mut at = from;
    while at <= last {
        let Some(block) = bytes[at..].first_chunk() else { return 0 };
        if let Some(place) = place(block, candidates(Block::of(block)) & 0xffff) {
            return at + place;
        }
        at += 16;
    }
    if at < bytes.len() {
        // Fewer are left: the last sixteen, of which the first are known.
        let Some(block) = bytes[last..].first_chunk() else { return 0 };
        let new = 0xffff << (at - last);
        if let Some(place) = place(block, candidates(Block::of(block)) & new & 0xffff) {
            return last + place;
        }
    }
    bytes.len()
}

/// Sixteen bytes as a vector, which every x86-64 processor has. A question about all bytes is answered by a number: its
/// lowest bit is the answer for the first byte. Bits from 16 on mean nothing.
#[cfg(target_feature = "sse2")]
mod vector {
    use safe_arch::{
        bitor_m128i, cmp_eq_mask_i8_m128i, load_unaligned_m128i, m128i, min_u8_m128i,
        move_mask_i8_m128i, set_splat_i8_m128i, sub_i8_m128i,
    };

    #[derive(Clone, Copy)]
    pub(super) struct Block(m128i);

    impl Block {
        #[inline(always)]
        pub(super) fn of(bytes: &[u8; 16]) -> Self {
            Block(load_unaligned_m128i(bytes))
        }

        #[inline(always)]
        pub(super) fn or(self, bits: u8) -> Self {
            Block(bitor_m128i(self.0, all(bits)))
        }

        #[inline(always)]
        pub(super) fn equal(self, byte: u8) -> u32 {
            mask(cmp_eq_mask_i8_m128i(self.0, all(byte)))
        }

        #[inline(always)]
        pub(super) fn up_to(self, last: u8) -> u32 {
            mask(cmp_eq_mask_i8_m128i(min_u8_m128i(self.0, all(last)), self.0))
        }

        #[inline(always)]
        pub(super) fn between(self, first: u8, last: u8) -> u32 {
            Block(sub_i8_m128i(self.0, all(first))).up_to(last - first)
        }

        #[inline(always)]
        pub(super) fn beyond_ascii(self) -> u32 {
            mask(self.0)
        }
    }

    #[inline(always)]
    fn all(byte: u8) -> m128i {
        set_splat_i8_m128i(byte as i8)
    }

    #[inline(always)]
    fn mask(vector: m128i) -> u32 {
        move_mask_i8_m128i(vector) as u32
    }
}

/// Sixteen bytes as two numbers, for all other processors ("Bit Twiddling Hacks": haszero, hasless). No sum carries into the
/// next byte, so each answer is exact.
#[cfg(any(test, not(target_feature = "sse2")))]
mod words {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;

    /// The first eight bytes are the first number, and of that the lowest byte is the first.
    #[derive(Clone, Copy)]
    pub(super) struct Block([u64; 2]);

    impl Block {
        #[inline(always)]
        pub(super) fn of(bytes: &[u8; 16]) -> Self {
            let both = u128::from_le_bytes(*bytes);
            Block([both as u64, (both >> 64) as u64])
        }

        #[inline(always)]
        pub(super) fn or(self, bits: u8) -> Self {
            Block(self.0.map(|word| word | all(bits)))
        }

        #[inline(always)]
        pub(super) fn equal(self, byte: u8) -> u32 {
            Block(self.0.map(|word| word ^ all(byte))).up_to(0)
        }

        #[inline(always)]
        pub(super) fn up_to(self, last: u8) -> u32 {
            mask(self.0.map(|word| !(beyond(word, last) | word)))
        }

        #[inline(always)]
        pub(super) fn between(self, first: u8, last: u8) -> u32 {
            mask(self.0.map(|word| beyond(word, first - 1) & !(beyond(word, last) | word)))
        }

        #[inline(always)]
        pub(super) fn beyond_ascii(self) -> u32 {
            mask(self.0)
        }
    }

    #[inline(always)]
    const fn all(byte: u8) -> u64 {
        ONES * byte as u64
    }

    /// The high bits of the bytes that are greater than `bound`, but for their own high bits.
    #[inline(always)]
    const fn beyond(word: u64, bound: u8) -> u64 {
        (word & !HIGHS) + all(0x7f - bound)
    }

    /// The high bits of all bytes, next to each other.
    #[inline(always)]
    fn mask(words: [u64; 2]) -> u32 {
        let [low, high] =
            words.map(|word| ((word & HIGHS) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56);
        (low | high << 8) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn check(bytes: &[u8]) {
        let by_table = |class: u8| {
            bytes.iter().position(|&b| CLASS[b as usize] & class == 0).unwrap_or(bytes.len())
        };
        for (name, found, class) in [
            ("value", value_run(bytes), VALUE),
            ("target", target_run(bytes), TARGET),
            ("path", path_run_end(bytes, 0), PATH),
            ("token", token_run(bytes), TOKEN),
            ("host", host_run(bytes), HOST),
            ("mark", path_end(bytes).unwrap_or(bytes.len()), UNMARKED),
        ] {
            assert_eq!(found, by_table(class), "{name}: {}", bytes.escape_ascii());
        }
        let is_lower = !bytes.is_empty() && by_table(LOWER) == bytes.len();
        assert_eq!(is_lower_token(bytes), is_lower, "{}", bytes.escape_ascii());
        for from in 0..=bytes.len() {
            let rest = &bytes[from..];
            assert_eq!(value_end(bytes, from), from + value_run(rest), "{}", rest.escape_ascii());
        }
    }

    /// Purpose: sixteen bytes at a time find the same end as one at a time: every byte at every place, beside every other.
    #[test]
    fn every_byte_at_every_place() {
        for byte in 0..=255u8 {
            for (at, before) in (0..36).flat_map(|at| (0..=255u8).map(move |before| (at, before))) {
                let mut text = [b'x'; 36];
                text[at] = byte;
                if let Some(place) = at.checked_sub(1) {
                    text[place] = before;
                }
                let by_table = |class| {
                    text.iter().position(|&b| CLASS[b as usize] & class == 0).unwrap_or(text.len())
                };
                assert_eq!(value_run(&text), by_table(VALUE));
                assert_eq!(target_run(&text), by_table(TARGET));
                assert_eq!(path_run_end(&text, 0), by_table(PATH));
                assert_eq!(token_run(&text), by_table(TOKEN));
                assert_eq!(host_run(&text), by_table(HOST));
            }
        }
    }

    /// Purpose: each length, from where on there is a vector to ask, and from where on there are two.
    #[test]
    fn every_length() {
        for len in 0..40 {
            for byte in *b"a:-?\\ \t\r#%\x7f\xff@[`{/09" {
                for at in 0..len {
                    let mut text = [b'a'; 40];
                    text[at] = byte;
                    check(&text[..len]);
                }
            }
            check(&[b'a'; 40][..len]);
        }
    }

    macro_rules! answers {
        ($implementation:ident, $bytes:expr) => {{
            let block = $implementation::Block::of($bytes);
            [
                block.equal(b'?'),
                block.equal(0),
                block.up_to(b'#'),
                block.up_to(0),
                block.between(b'0', b'9'),
                block.or(0x20).between(b'a', b'z'),
                block.beyond_ascii(),
                block.or(0x40).equal(0x7f),
            ]
            .map(|answer| answer & 0xffff)
        }};
    }

    proptest! {
        /// Purpose: several odd bytes in one block do not hide each other.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..70), mask in any::<u8>()) {
            check(&bytes);
            let mostly_text: Vec<u8> = bytes.iter().map(|byte| byte & mask | 0x20).collect();
            check(&mostly_text);
        }

        /// Purpose: vectors and numbers answer each question exactly.
        #[test]
        fn answers_are_exact(bytes in any::<[u8; 16]>()) {
            let of = |question: fn(u8) -> bool| {
                (0..16).fold(0u32, |all, at| all | u32::from(question(bytes[at])) << at)
            };
            let expected = [
                of(|b| b == b'?'),
                of(|b| b == 0),
                of(|b| b <= b'#'),
                of(|b| b == 0),
                of(|b| b.is_ascii_digit()),
                of(|b| b.is_ascii_alphabetic()),
                of(|b| !b.is_ascii()),
                of(|b| b | 0x40 == 0x7f),
            ];
            assert_eq!(answers!(words, &bytes), expected);
            #[cfg(target_feature = "sse2")]
            assert_eq!(answers!(vector, &bytes), expected);
        }
    }
}
