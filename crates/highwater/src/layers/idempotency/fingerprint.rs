//! Are two requests the same? Compared by a number of 128 bits.
//!
//! It is FNV-1a with 128 bits, which is the same in every version of the program, since it is kept on disks. It distinguishes
//! requests that differ by accident. A client that deliberately makes two requests with the same number only gets its own first
//! answer again.

const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The number of these parts; which bytes belong to which part makes a difference.
pub(super) fn of(parts: &[&[u8]]) -> u128 {
    let lengths = parts.iter().map(|part| (part.len() as u64).to_le_bytes());
    let hash = lengths.fold(OFFSET_BASIS, |hash, length| update(hash, &length));
    parts.iter().fold(hash, |hash, part| update(hash, part))
}

fn update(hash: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: it is the function that its specification defines, by values that others publish.
    #[test]
    fn published_values() {
        let cases = [
            ("", 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d),
            ("a", 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964),
            ("foobar", 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18),
        ];
        for (text, expected) in cases {
            assert_eq!(update(OFFSET_BASIS, text.as_bytes()), expected, "{text}");
        }
    }

    /// Purpose: a byte that moves from one part into another makes another request.
    #[test]
    fn parts_are_told_apart() {
        let of = |first: &str, second: &str| of(&[first.as_bytes(), second.as_bytes()]);
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_ne!(of("", "a"), of("a", ""));
    }
}
