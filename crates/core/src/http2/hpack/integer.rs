//! HPACK's integers: the low bits of a byte, and further bytes if they do not suffice (RFC 7541 §5.1).

use alloc::vec::Vec;

use super::Error;

/// Bytes after the first, at most: 28 bits are more than any index, length or size here can need.
const MORE_MAX: usize = 4;

/// Takes an integer whose first byte has `prefix` bits of it.
///
/// # Errors
/// The input ends in it, or it has more than four further bytes.
#[inline]
pub(super) fn take(input: &mut &[u8], prefix: u32) -> Result<usize, Error> {
    let Some((first, mut rest)) = input.split_first() else { return Err(Error::Truncated) };
    let mask = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let Some((byte, more)) = rest.split_first() else { return Err(Error::Truncated) };
            if shift == 7 * MORE_MAX {
                return Err(Error::IntegerTooLarge);
            }
            rest = more;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    Ok(value)
}

/// Adds an integer to `out`, beside the bits of `first` above its `prefix`.
#[inline]
pub(super) fn push(value: usize, first: u8, prefix: u32, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Purpose: the RFC's examples (Appendix C.1), and the bounds: the end of the input, and one byte too many.
    #[test]
    fn examples() {
        for (value, prefix, bytes) in [
            (10, 5, &[0x0a][..]),
            (1337, 5, &[0x1f, 0x9a, 0x0a]),
            (42, 8, &[0x2a]),
            (30, 5, &[30]),
            (31, 5, &[31, 0]),
        ] {
            let (mut out, mut input) = (Vec::new(), bytes);
            push(value, 0, prefix, &mut out);
            assert_eq!(out, bytes);
            assert_eq!((take(&mut input, prefix), input), (Ok(value), &[][..]));
            for end in 0..bytes.len() {
                assert_eq!(take(&mut &bytes[..end], prefix), Err(Error::Truncated));
            }
        }
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..], 7), Ok(127 + (1 << 28) - 1));
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0x00][..], 7),
            Err(Error::IntegerTooLarge)
        );
    }

    proptest! {
        /// Purpose: every integer comes back with every prefix, and the bits above it stay as they are.
        #[test]
        fn round_trip(value in 0_usize..1 << 28, prefix in 1_u32..=8) {
            let above = if prefix == 8 { 0 } else { 0xff_u8 << prefix };
            let mut out = Vec::new();
            push(value, above, prefix, &mut out);
            prop_assert_eq!(out[0] & above, above);
            let mut input = &out[..];
            prop_assert_eq!(take(&mut input, prefix), Ok(value));
            prop_assert!(input.is_empty());
        }
    }
}
