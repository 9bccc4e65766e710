//! Layout of a device: superblock copies, root slots, log rings, and space, which is everything else.
//!
//! ```text
//! block 0     superblock slots 0,1 | root slots of all rings | log area | space ... | root slots | superblock slots 2,3
//! ```
//! The layout follows from the size of the device at creation and its present size, so finding a superblock is
//! enough.

use crate::key::Cid;

pub(crate) use crate::api::BLOCK;
/// Size of a block in bytes, as a length in memory.
pub(crate) const BLOCK_LEN: usize = BLOCK as usize;
/// Newest version of the format that this code reads and writes: the superblock has feature words.
pub const FORMAT_VERSION: u32 = 3;
/// Version of a store without any feature that has a bit in the words. It is what this code writes as long as possible,
/// because programs that know no feature words read it.
pub const FORMAT_VERSION_PLAIN: u32 = 2;
/// Incompat feature of a store that has, or had, compressed extents.
pub const COMPRESSION: u64 = 1;
/// Features of a store that this code knows. Bits are never reused. What version 2 has got since its first use without
/// one (see docs/design/store-format.md, Versions) is part of it.
pub const FEATURES: base::FeatureWords = base::FeatureWords { compat: 0, ro_compat: 0, incompat: COMPRESSION };
/// Number of store shards of a device. It exceeds the number of cores by far, so that the number of reactors
/// may change.
pub const SHARDS: u16 = 32;
/// Most reactors that a device can be divided among.
pub const RINGS_MAX: u16 = SHARDS;
/// Blocks of one superblock slot.
pub(crate) const SUPER_BLOCKS: u64 = 4;
/// Blocks of one root slot.
pub(crate) const ROOT_BLOCKS: u64 = 4;
/// Smallest size of a device in bytes.
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;
/// Largest size of a device in bytes: a root's index of the map of used blocks can't name more, with room for
/// its trees.
pub const DEVICE_BYTES_MAX: u64 = 40 << 40;
/// Share of the log in a device, as a divisor.
const LOG_SHARE: u64 = 16;
/// Most bytes of the log area.
const LOG_BYTES_MAX: u64 = 8 << 30;

/// The store shard of a collection. This is part of the format: a collection stays in its shard.
#[must_use]
pub fn shard_for(cid: Cid, shards: u16) -> u16 {
    match cid {
        Cid::Meta => 0,
        // Consecutive PGs of a pool go to consecutive shards, so that few PGs spread evenly too.
        Cid::Pg(p) => {
            let x = (p.pg.pool.0 as u64).wrapping_mul(7).wrapping_add(u64::from(p.pg.seed));
            (x % u64::from(shards.max(1))) as u16
        }
    }
}

/// Reactor that serves a shard.
#[must_use]
pub fn reactor_for(shard: u16, reactors: u16) -> u16 {
    shard % reactors.max(1)
}

/// Block ranges of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Blocks of the device.
    pub blocks: u64,
    /// First block of the log area.
    pub log_start: u64,
    /// Blocks of the log area.
    pub log_blocks: u64,
    /// First block of space.
    pub space_start: u64,
    /// One past the last block of space.
    pub space_end: u64,
}

impl Layout {
    /// Layout of a device of `bytes`; `None` if it is too small.
    #[must_use]
    pub fn of(bytes: u64) -> Option<Self> {
        if bytes < DEVICE_BYTES_MIN {
            return None;
        }
        let blocks = bytes / BLOCK;
        let fixed = 2 * SUPER_BLOCKS + 2 * ROOT_BLOCKS * u64::from(RINGS_MAX);
        let log_blocks = (bytes / LOG_SHARE).min(LOG_BYTES_MAX) / BLOCK;
        Some(Self { blocks, log_start: fixed, log_blocks, space_start: fixed + log_blocks, space_end: blocks - fixed })
    }

    /// Layout of the device after it was enlarged to `bytes`. The second copies move to the new end, and their
    /// old place becomes space.
    #[must_use]
    pub fn grown_to(self, bytes: u64) -> Self {
        let blocks = (bytes / BLOCK).max(self.blocks);
        Self { blocks, space_end: self.space_end + (blocks - self.blocks), ..self }
    }

    /// First block of superblock slot `i` of 4.
    #[must_use]
    pub fn super_slot(&self, i: u64) -> u64 {
        let end = self.blocks - 2 * SUPER_BLOCKS;
        if i < 2 { i * SUPER_BLOCKS } else { end + (i - 2) * SUPER_BLOCKS }
    }

    /// First block of a root slot. `copy` is 0 at the start of the device and 1 at its end; `parity` is that of
    /// the root's sequence number.
    #[must_use]
    pub fn root_slot(&self, ring: u16, parity: u64, copy: u64) -> u64 {
        let base = if copy == 0 { 2 * SUPER_BLOCKS } else { self.space_end };
        base + (u64::from(ring) * 2 + (parity & 1)) * ROOT_BLOCKS
    }

    /// First block and length of a ring, when the log area is divided among `rings`.
    #[must_use]
    pub fn ring(&self, ring: u16, rings: u16) -> (u64, u64) {
        let each = self.log_blocks / u64::from(rings.max(1));
        (self.log_start + u64::from(ring) * each, each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PgId;

    #[test]
    fn nothing_overlaps() {
        for bytes in [DEVICE_BYTES_MIN, 1 << 30, (1 << 34) + 4096, 15 << 40] {
            let l = Layout::of(bytes).unwrap();
            assert!(l.space_start < l.space_end);
            for ring in 0..RINGS_MAX {
                for p in 0..2 {
                    assert!(l.root_slot(ring, p, 0) + ROOT_BLOCKS <= l.log_start);
                    assert!(l.root_slot(ring, p, 0) >= 2 * SUPER_BLOCKS);
                    assert!(l.root_slot(ring, p, 1) >= l.space_end);
                    assert!(l.root_slot(ring, p, 1) + ROOT_BLOCKS <= l.super_slot(2));
                }
            }
            let (s, n) = l.ring(6, 7);
            assert!(s + n <= l.space_start);
            assert_eq!(l.super_slot(3) + SUPER_BLOCKS, l.blocks);
        }
        assert!(Layout::of(DEVICE_BYTES_MIN - 1).is_none());
    }

    #[test]
    fn pgs_spread_evenly() {
        let mut n = [0; 2];
        for seed in 0..64 {
            let s = shard_for(Cid::Pg(PgId::new(3, seed).into()), SHARDS);
            n[usize::from(reactor_for(s, 2))] += 1;
        }
        assert_eq!(n, [32, 32]);
    }
}
