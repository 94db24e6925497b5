//! Chooses the partition of a key.
//!
//! Records with the same key go to the same partition, and so stay in order. The hash is that of Kafka's own clients,
//! so records that they produce with the same key go there too.

/// The partition for records with `key`, of `partitions` partitions: 0 to `partitions` - 1. Kafka's own clients choose
/// the same one.
///
/// # Panics
///
/// If `partitions` is 0.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    // Kafka clears the sign bit.
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// MurmurHash2 with 32 bits, as Kafka's `Utils.murmur2` computes it.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mix = |word: u32| {
        let word = word.wrapping_mul(M);
        (word ^ word >> 24).wrapping_mul(M)
    };
    let (words, rest) = key.as_chunks::<4>();
    let begin = SEED ^ key.len() as u32;
    let step = |hash: u32, word: &[u8; 4]| hash.wrapping_mul(M) ^ mix(u32::from_le_bytes(*word));
    let mut hash = words.iter().fold(begin, step);
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    let hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: keys meet those of Kafka's own clients in the same partitions. The numbers are those of the test of
    /// `Utils.murmur2` in Apache Kafka (`UtilsTest.testMurmur2`).
    #[test]
    fn hashes_as_kafka_does() {
        let cases: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key:?}");
        }
    }

    /// Purpose: a key has one partition, below the number of them, and keys spread over all.
    #[test]
    fn keys_spread() {
        let mut seen = [0; 7];
        for key in 0..700 {
            let key = format!("key {key}");
            let partition = partition_of_key(key.as_bytes(), 7);
            assert_eq!(partition, partition_of_key(key.as_bytes(), 7));
            seen[partition as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
