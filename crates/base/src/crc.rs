//! crc32c (Castagnoli) as Ceph uses it: the seed is the raw register, with no inversion at either end.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// crc32c of `data`, continued from the raw register `seed`.
///
/// `crc32c(crc32c(s, a), b) == crc32c(s, a ++ b)`.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    // The usual seed takes the direct function: the parameter table of the general one costs more than the
    // checksum of a few bytes.
    if seed == SEED {
        return !crc32_iscsi(data);
    }
    let mut d = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    d.update(data);
    !(d.finalize() as u32)
}

/// Seed of the segments of a frame, of maps and of most stored structures.
pub const SEED: u32 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(mut c: u32, data: &[u8]) -> u32 {
        for b in data {
            c ^= u32::from(*b);
            for _ in 0..8 {
                c = if c & 1 == 1 { (c >> 1) ^ 0x82f6_3b78 } else { c >> 1 };
            }
        }
        c
    }

    #[test]
    fn equals_the_bitwise_definition() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 13) as u8).collect();
        for len in [0, 1, 3, 15, 16, 28, 64, 255, 256, 257, 4096, 5000] {
            for seed in [0, SEED, 0x1234_5678] {
                assert_eq!(crc32c(seed, &data[..len]), slow(seed, &data[..len]), "len {len} seed {seed:x}");
            }
        }
        assert_eq!(crc32c(crc32c(SEED, &data[..100]), &data[100..]), crc32c(SEED, &data));
    }
}
