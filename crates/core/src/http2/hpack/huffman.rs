//! HPACK's Huffman code (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols. So the lengths are the
//! whole table, and the rest is computed at compile time. Codes of at most [`FAST_BITS`] bits, which are all that text
//! usually has, are found by one lookup; longer ones by comparing with the first code of each length.

use alloc::vec::Vec;

use super::Error;

/// Bits of each symbol's code; the last is of EOS, which never occurs.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const SYMBOLS: usize = LENGTHS.len();
const EOS: u16 = 256;
const LENGTH_MAX: usize = 30;
/// Index bits of the table for short codes: 2 KiB of it.
const FAST_BITS: u32 = 10;

/// The code, computed from its lengths.
struct Code {
    codes: [u32; SYMBOLS],
    /// By code: its symbols, shortest first.
    sorted: [u16; SYMBOLS],
    /// For each length: its first code, and where its symbols begin in `sorted`.
    first: [u32; LENGTH_MAX + 1],
    begin: [u16; LENGTH_MAX + 1],
    /// For each length: all codes up to it, moved to the high end of 32 bits, are below this.
    limit: [u64; LENGTH_MAX + 1],
    /// By the first bits of the input: symbol, and above it the length; 0 for longer codes.
    fast: [u16; 1 << FAST_BITS],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut made = Code {
        codes: [0; SYMBOLS],
        sorted: [0; SYMBOLS],
        first: [0; LENGTH_MAX + 1],
        begin: [0; LENGTH_MAX + 1],
        limit: [0; LENGTH_MAX + 1],
        fast: [0; 1 << FAST_BITS],
    };
    let (mut next, mut place, mut length) = (0_u32, 0, 1);
    while length <= LENGTH_MAX {
        next <<= 1;
        made.first[length] = next;
        made.begin[length] = place as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                made.codes[symbol] = next;
                made.sorted[place] = symbol as u16;
                if length as u32 <= FAST_BITS {
                    let spare = FAST_BITS - length as u32;
                    let mut low = 0;
                    while low < 1 << spare {
                        made.fast[(next << spare | low) as usize] =
                            symbol as u16 | (length as u16) << 8;
                        low += 1;
                    }
                }
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        made.limit[length] = (next as u64) << (32 - length);
        length += 1;
    }
    made
}

/// How many bytes `text` takes when encoded.
#[inline]
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Adds the code of `text` to `out`, padded with the first bits of EOS.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(byte)]);
        count += length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    if count > 0 {
        let left = ((bits << (64 - count)) | u64::MAX >> count).to_be_bytes();
        out.extend_from_slice(&left[..count.div_ceil(8) as usize]);
    }
}

/// Adds the text that `input` encodes to `out`: at most 8/5 of its length.
///
/// # Errors
/// EOS in it, or padding that is longer than seven bits or not the first bits of EOS (RFC 7541 §5.2).
pub(super) fn decode(mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    // The bits not yet decoded are the highest `count` of `bits`; all lower ones are 0.
    let (mut bits, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 56
            && let Some((byte, rest)) = input.split_first()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
            input = rest;
        }
        let (symbol, length) = first_symbol((bits >> 32) as u32);
        if length > count {
            // What is left is shorter than any code that it can be the beginning of.
            let is_padding = count < 8 && bits == !(u64::MAX.checked_shr(count).unwrap_or(0));
            return if is_padding { Ok(()) } else { Err(Error::Huffman) };
        }
        if symbol == EOS {
            return Err(Error::Huffman);
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// The symbol whose code `window` begins with, and the length of that code.
#[inline]
fn first_symbol(window: u32) -> (u16, u32) {
    let fast = CODE.fast[(window >> (32 - FAST_BITS)) as usize];
    if fast != 0 {
        return (fast & 0xff, u32::from(fast >> 8));
    }
    let mut length = FAST_BITS as usize + 1;
    while length < LENGTH_MAX && u64::from(window) >= CODE.limit[length] {
        length += 1;
    }
    let place = (window >> (32 - length)).wrapping_sub(CODE.first[length]);
    let index = usize::from(CODE.begin[length]) + place as usize;
    (CODE.sorted[index.min(SYMBOLS - 1)], length as u32)
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    /// Purpose: the code is that of Appendix B: codes of each length, written here as the RFC prints them, and a code
    /// without gaps, since every bit string begins with exactly one.
    #[test]
    fn codes() {
        for (symbol, code, length) in [
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b't'), 0x9, 5),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b'u'), 0x2d, 6),
            (usize::from(b':'), 0x5c, 7),
            (usize::from(b'z'), 0x7b, 7),
            (usize::from(b'&'), 0xf8, 8),
            (usize::from(b'!'), 0x3f8, 10),
            (usize::from(b'|'), 0x7fc, 11),
            (usize::from(b'#'), 0xffa, 12),
            (0, 0x1ff8, 13),
            (usize::from(b'{'), 0x7ffe, 15),
            (usize::from(b'\\'), 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (1, 0x7fffd8, 23),
            (9, 0xffffea, 24),
            (199, 0x1ffffec, 25),
            (255, 0x3ffffee, 26),
            (254, 0x7fffff0, 27),
            (249, 0xffffffe, 28),
            (10, 0x3ffffffc, 30),
            (256, 0x3fffffff, 30),
        ] {
            assert_eq!((CODE.codes[symbol], LENGTHS[symbol]), (code, length), "symbol {symbol}");
        }
        let share: u64 = LENGTHS.iter().map(|length| 1 << (LENGTH_MAX as u8 - length)).sum();
        assert_eq!(share, 1 << LENGTH_MAX);
    }

    /// Purpose: padding is at most seven bits, all ones; EOS is an error wherever it stands.
    #[test]
    fn refused() {
        assert_eq!(decoded(b""), Ok(Vec::new()));
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        for input in [
            &[0b0000_0110][..],                     // not ones
            &[0b0000_0000],                         // not ones, and too short for a code
            &[0xff],                                // eight bits
            &[0b0000_0111, 0xff],                   // eleven bits
            &[0xff, 0xff, 0xff, 0xff],              // EOS
            &[0xff, 0xff, 0xff, 0b1111_1100], // symbol 10 takes all 30 bits: padding of two zeros
            &[0b0000_0111, 0xff, 0xff, 0xff, 0xff], // EOS later
        ] {
            assert_eq!(decoded(input), Err(Error::Huffman), "{input:02x?}");
        }
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0b1111_0011]), Ok(vec![10]));
    }

    proptest! {
        /// Purpose: every text comes back, and its length is known before.
        #[test]
        fn round_trip(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut encoded = Vec::new();
            encode(&text, &mut encoded);
            prop_assert_eq!(encoded.len(), encoded_len(&text));
            prop_assert_eq!(decoded(&encoded), Ok(text));
        }

        /// Purpose: what decodes has one encoding, so no two inputs mean the same text.
        #[test]
        fn any_input(input in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&input) {
                let mut encoded = Vec::new();
                encode(&text, &mut encoded);
                prop_assert_eq!(encoded, input);
            }
        }
    }
}
