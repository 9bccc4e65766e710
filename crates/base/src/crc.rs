//! crc32c (Castagnoli) as Ceph uses it: the seed is the raw register, with no inversion at either end.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// crc32c of `data`, continued from the raw register `seed`.
///
/// `crc32c(crc32c(s, a), b) == crc32c(s, a ++ b)`.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    #[cfg(debug_assertions)]
    counted::add(data.len());
    raw(seed, data)
}

/// True if `crc` is the crc32c of `data` from `seed`. For assertions: it does not count as a pass over the data.
#[must_use]
pub fn is_crc32c(crc: u32, seed: u32, data: &[u8]) -> bool {
    raw(seed, data) == crc
}

fn raw(seed: u32, data: &[u8]) -> u32 {
    // The direct function has the usual seed: the parameter table of the general one costs more than the checksum of a
    // few bytes. Another seed changes the checksum by what becomes of the difference over as many zero bytes.
    if seed == SEED {
        return !crc32_iscsi(data);
    }
    if data.len() == BLOCK {
        return !crc32_iscsi(data) ^ after_block_of_zeros(seed ^ SEED);
    }
    if let (0, Some(difference)) = (seed, SEED_OF_ZERO.get(data.len())) {
        return !crc32_iscsi(data) ^ difference;
    }
    let mut d = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    d.update(data);
    !(d.finalize() as u32)
}

/// Number of bytes that the thread has summed, by which tests count passes over data.
#[cfg(debug_assertions)]
pub mod counted {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn add(n: usize) {
        BYTES.set(BYTES.get() + n as u64);
    }

    /// Bytes that [`super::crc32c`] has summed in this thread so far.
    #[must_use]
    pub fn bytes() -> u64 {
        BYTES.get()
    }
}

/// Seed of the segments of a frame, of maps and of most stored structures.
pub const SEED: u32 = 0xffff_ffff;

/// A linear map of registers: its images of the 32 bits.
type Matrix = [u32; 32];

const fn apply(m: &Matrix, mut x: u32) -> u32 {
    let mut y = 0;
    let mut i = 0;
    while x != 0 {
        if x & 1 == 1 {
            y ^= m[i];
        }
        x >>= 1;
        i += 1;
    }
    y
}

/// The maps of a register over `1 << n` zero bytes.
const ZEROS: [Matrix; 32] = {
    let mut one = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut x = 1u32 << bit;
        let mut i = 0;
        while i < 8 {
            x = if x & 1 == 1 { (x >> 1) ^ 0x82f6_3b78 } else { x >> 1 };
            i += 1;
        }
        one[bit] = x;
        bit += 1;
    }
    let mut all = [one; 32];
    let mut n = 1;
    while n < 32 {
        let mut bit = 0;
        while bit < 32 {
            all[n][bit] = apply(&all[n - 1], all[n - 1][bit]);
            bit += 1;
        }
        n += 1;
    }
    all
};

/// The register [`SEED`] after up to 64 zero bytes: beginnings of frames have the seed 0.
static SEED_OF_ZERO: [u32; 65] = {
    let mut all = [SEED; 65];
    let mut n = 1;
    while n < all.len() {
        all[n] = apply(&ZEROS[0], all[n - 1]);
        n += 1;
    }
    all
};

/// The map over the zero bytes of a block, by bytes of the register.
static BLOCK_ZEROS: [[u32; 256]; 4] = {
    let mut all = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut x = 0;
        while x < 256 {
            all[byte][x] = apply(&ZEROS[12], (x as u32) << (8 * byte));
            x += 1;
        }
        byte += 1;
    }
    all
};

/// The register `x` after [`BLOCK`] zero bytes.
#[must_use]
pub fn after_block_of_zeros(x: u32) -> u32 {
    let [a, b, c, d] = x.to_le_bytes().map(usize::from);
    BLOCK_ZEROS[0][a] ^ BLOCK_ZEROS[1][b] ^ BLOCK_ZEROS[2][c] ^ BLOCK_ZEROS[3][d]
}

/// Bytes of a block, for which registers are moved quickly.
pub const BLOCK: usize = 4096;

/// crc32c of `a ++ b` with the seed of `crc_a`, from that of `a` and that of `b`, whose seed was `seed_b`.
///
/// A checksum is linear: another seed changes it by what becomes of the difference over as many zero bytes.
#[must_use]
pub fn append(crc_a: u32, seed_b: u32, crc_b: u32, len_b: usize) -> u32 {
    let mut x = crc_a ^ seed_b;
    if len_b == BLOCK {
        return crc_b ^ after_block_of_zeros(x);
    }
    let mut left = len_b as u64;
    for m in &ZEROS {
        if left & 1 == 1 {
            x = apply(m, x);
        }
        left >>= 1;
    }
    crc_b ^ x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_give_that_of_the_whole() {
        let data: Vec<u8> = (0..3 * BLOCK as u32 + 100).map(|i| (i * 13 + i / 7) as u8).collect();
        for at in [0, 1, 24, 4095, BLOCK, BLOCK + 24, 2 * BLOCK + 100, data.len()] {
            for seed in [0, SEED, 0x1234_5678] {
                let (a, b) = data.split_at(at);
                let whole = append(crc32c(SEED, a), seed, crc32c(seed, b), b.len());
                assert_eq!(whole, crc32c(SEED, &data), "cut at {at}, seed {seed:x}");
            }
        }
    }

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
        for len in [0, 1, 3, 15, 16, 28, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 5000] {
            for seed in [0, SEED, 0x1234_5678] {
                assert_eq!(crc32c(seed, &data[..len]), slow(seed, &data[..len]), "len {len} seed {seed:x}");
            }
        }
        assert_eq!(crc32c(crc32c(SEED, &data[..100]), &data[100..]), crc32c(SEED, &data));
    }
}
