//! Are these the bytes that were written? CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4).
//!
//! Eight tables take eight bytes per step ("slicing by 8", M. E. Kounavis and F. L. Berry, ISCC
//! 2005). The processor's own instruction would be faster still, but needs `unsafe`, which this
//! crate forbids.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
///
/// ```
/// assert_eq!(highwater_core::frame::crc32c(b"123456789"), 0xe306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of earlier bytes, whose checksum is `crc`, followed by `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = !crc;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let [a, b, c, d, e, f, g, h] = *word;
        let low = crc ^ u32::from_le_bytes([a, b, c, d]);
        let at = |table: usize, byte: u32| TABLES[table][(byte & 0xff) as usize];
        crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
        crc ^= at(3, e.into()) ^ at(2, f.into()) ^ at(1, g.into()) ^ at(0, h.into());
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The definition: bit by bit.
    fn by_definition(bytes: &[u8]) -> u32 {
        let mut crc = !0;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            }
        }
        !crc
    }

    /// Purpose: any other implementation of CRC-32C must be able to read a file; RFC 3720, B.4.
    #[test]
    fn the_vectors_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (bytes, crc) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    proptest! {
        /// Purpose: eight bytes per step give the same result as one bit per step, wherever they
        /// are split.
        #[test]
        fn it_is_the_definition(bytes: Vec<u8>, cut: prop::sample::Index) {
            prop_assert_eq!(crc32c(&bytes), by_definition(&bytes));
            let (front, back) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c_append(crc32c(front), back), by_definition(&bytes));
        }
    }
}
