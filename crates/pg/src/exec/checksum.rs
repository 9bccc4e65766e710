//! Checksums of the CHECKSUM operation: crc32c, xxHash32, xxHash64.

use wire::{Reader, Writer};

/// A checksum with its initial value.
pub(super) enum Kind {
    Xx32(u32),
    Xx64(u64),
    Crc32c(u32),
}

impl Kind {
    /// `None` for an unknown type or a missing initial value.
    pub(super) fn new(kind: u8, init: &[u8]) -> Option<Self> {
        let mut r = Reader::new(init);
        Some(match kind {
            0 => Self::Xx32(r.u32().ok()?),
            1 => Self::Xx64(r.u64().ok()?),
            2 => Self::Crc32c(r.u32().ok()?),
            _ => return None,
        })
    }

    /// Appends the checksum of `data`.
    pub(super) fn append(&self, data: &[u8], w: &mut Writer) {
        match *self {
            Self::Xx32(seed) => w.u32(xxh32(data, seed)),
            Self::Xx64(seed) => w.u64(xxh64(data, seed)),
            Self::Crc32c(seed) => w.u32(base::crc::crc32c(seed, data)),
        }
    }
}

const P32: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
const P64: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];

fn le32(b: &[u8]) -> u32 {
    b.try_into().map_or(0, u32::from_le_bytes)
}

fn le64(b: &[u8]) -> u64 {
    b.try_into().map_or(0, u64::from_le_bytes)
}

/// xxHash, 32 bits.
fn xxh32(data: &[u8], seed: u32) -> u32 {
    let round = |acc: u32, v: u32| acc.wrapping_add(v.wrapping_mul(P32[1])).rotate_left(13).wrapping_mul(P32[0]);
    let mut stripes = data.chunks_exact(16);
    let mut h = if data.len() >= 16 {
        let mut a = [
            seed.wrapping_add(P32[0]).wrapping_add(P32[1]),
            seed.wrapping_add(P32[1]),
            seed,
            seed.wrapping_sub(P32[0]),
        ];
        for s in stripes.by_ref() {
            for (acc, v) in a.iter_mut().zip(s.chunks_exact(4)) {
                *acc = round(*acc, le32(v));
            }
        }
        a[0].rotate_left(1)
            .wrapping_add(a[1].rotate_left(7))
            .wrapping_add(a[2].rotate_left(12))
            .wrapping_add(a[3].rotate_left(18))
    } else {
        seed.wrapping_add(P32[4])
    };
    h = h.wrapping_add(data.len() as u32);
    let mut words = stripes.remainder().chunks_exact(4);
    for v in words.by_ref() {
        h = h.wrapping_add(le32(v).wrapping_mul(P32[2])).rotate_left(17).wrapping_mul(P32[3]);
    }
    for b in words.remainder() {
        h = h.wrapping_add(u32::from(*b).wrapping_mul(P32[4])).rotate_left(11).wrapping_mul(P32[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P32[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P32[2]);
    h ^ (h >> 16)
}

/// xxHash, 64 bits.
fn xxh64(data: &[u8], seed: u64) -> u64 {
    let round = |acc: u64, v: u64| acc.wrapping_add(v.wrapping_mul(P64[1])).rotate_left(31).wrapping_mul(P64[0]);
    let mut stripes = data.chunks_exact(32);
    let mut h = if data.len() >= 32 {
        let mut a = [
            seed.wrapping_add(P64[0]).wrapping_add(P64[1]),
            seed.wrapping_add(P64[1]),
            seed,
            seed.wrapping_sub(P64[0]),
        ];
        for s in stripes.by_ref() {
            for (acc, v) in a.iter_mut().zip(s.chunks_exact(8)) {
                *acc = round(*acc, le64(v));
            }
        }
        let mut h = a[0]
            .rotate_left(1)
            .wrapping_add(a[1].rotate_left(7))
            .wrapping_add(a[2].rotate_left(12))
            .wrapping_add(a[3].rotate_left(18));
        for acc in a {
            h = (h ^ round(0, acc)).wrapping_mul(P64[0]).wrapping_add(P64[3]);
        }
        h
    } else {
        seed.wrapping_add(P64[4])
    };
    h = h.wrapping_add(data.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for v in words.by_ref() {
        h = (h ^ round(0, le64(v))).rotate_left(27).wrapping_mul(P64[0]).wrapping_add(P64[3]);
    }
    let mut rest = words.remainder();
    if let Some((v, r)) = rest.split_at_checked(4) {
        h = (h ^ u64::from(le32(v)).wrapping_mul(P64[0])).rotate_left(23).wrapping_mul(P64[1]).wrapping_add(P64[2]);
        rest = r;
    }
    for b in rest {
        h = (h ^ u64::from(*b).wrapping_mul(P64[4])).rotate_left(11).wrapping_mul(P64[0]);
    }
    h = (h ^ (h >> 33)).wrapping_mul(P64[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P64[2]);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        assert_eq!(xxh32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxh32(b"abc", 0), 0x32d1_53ff);
        assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"abc", 0), 0x44bc_2cf5_ad77_0999);
        let spam = b"Nobody inspects the spammish repetition";
        assert_eq!(xxh32(spam, 0), 0xe229_3b2f);
        assert_eq!(xxh64(spam, 0), 0xfbce_a83c_8a37_8bf1);
    }
}
