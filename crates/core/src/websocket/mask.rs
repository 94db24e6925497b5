//! The mask of what clients send (RFC 6455 §5.3), sixteen bytes at a time: the compiler makes vector instructions of it.

use alloc::vec::Vec;

const WIDTH: usize = 16;

/// The key from byte `at` of a payload on, repeated.
#[inline]
fn repeated(key: [u8; 4], at: usize) -> [u8; WIDTH] {
    core::array::from_fn(|index| key[(at + index) % 4])
}

/// Masks bytes, or unmasks them: it is the same. `at` is where in the payload they begin.
///
/// ```
/// let mut bytes = *b"Hello";
/// highwater_core::websocket::mask([0x37, 0xfa, 0x21, 0x3d], 0, &mut bytes);
/// assert_eq!(bytes, [0x7f, 0x9f, 0x4d, 0x51, 0x58]);
/// ```
#[inline]
pub fn apply(key: [u8; 4], at: usize, bytes: &mut [u8]) {
    let key = repeated(key, at);
    let (blocks, rest) = bytes.as_chunks_mut::<WIDTH>();
    for block in blocks {
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
    for (byte, key) in rest.iter_mut().zip(key) {
        *byte ^= key;
    }
}

/// Adds `bytes` to `out`, masked.
#[inline]
pub(super) fn append(key: [u8; 4], at: usize, bytes: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(bytes);
    apply(key, at, &mut out[from..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Purpose: byte n is masked with byte n mod 4 of the key, wherever a piece begins and however long it is; twice
        /// is not at all.
        #[test]
        fn as_the_rfc_says(key in any::<[u8; 4]>(), bytes in proptest::collection::vec(any::<u8>(), 0..100), at in 0_usize..20) {
            let expected: Vec<u8> =
                bytes.iter().enumerate().map(|(index, byte)| byte ^ key[(index + at) % 4]).collect();
            let mut masked = Vec::new();
            append(key, at, &bytes, &mut masked);
            prop_assert_eq!(&masked, &expected);
            apply(key, at, &mut masked);
            prop_assert_eq!(masked, bytes);
        }
    }
}
