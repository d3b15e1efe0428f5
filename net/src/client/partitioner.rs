//! Which partition a record goes to: the same for a key as from any Java client.

/// The partition of a key: the hash of Java's default partitioner over `partitions`, 1 or more.
pub(super) fn for_key(key: &[u8], partitions: usize) -> usize {
    let hash = (murmur2(key) & 0x7fff_ffff) as usize;
    hash % partitions
}

/// MurmurHash2 with the seed the Java client uses.
fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    // The algorithm takes the length modulo 2^32.
    let mut hash = SEED ^ (key.len() as u32);
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        let mut word = u32::from_le_bytes(chunk.try_into().expect("four bytes"));
        word = word.wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let tail = rest
            .iter()
            .rev()
            .fold(0, |tail, &byte| (tail << 8) | u32::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn every_key_falls_within_the_partitions() {
        for key in 0..1000_u32 {
            assert!(for_key(&key.to_be_bytes(), 7) < 7);
        }
        assert_eq!(for_key(b"", 1), 0);
    }
}
