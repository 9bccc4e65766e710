//! Compressed extents in block maps, and their sums by collection.
//!
//! Invariant: after each transaction an extent is mapped as a whole in every map that refers to it. So its device blocks
//! have references like all others, and no count of its own decides when it is free.
//!
//! Sums are kept beside those of [`Usage`](super::Usage). They are not split with a collection, which would need sums in
//! every inner page: the extents of objects that a split gave away stay counted where they were, and their removal is
//! counted where they are. So a collection's sums may be negative, and those of a pool's collections in one shard are
//! exact together. A collection that is removed leaves its sums to another one of its pool and shard.
//!
//! Tests: the check of `tests/compression.rs` and `tests/model.rs`.

use super::map::{CHUNK, Chunk, EXTENT_MAX, Ptr, is_stored};
use super::{Coll, Meta};
use crate::codec::{Get, Malformed, Put};
use crate::key::Cid;
use crate::layout::BLOCK;
use base::PoolId;

/// Largest plausible sum, in blocks.
const BLOCKS_PLAUSIBLE: u64 = 1 << 48;

/// Blocks of compressed extents: before compression, and on the device. A shared extent counts once per object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) original: i64,
    pub(crate) stored: i64,
}

impl Packed {
    /// Counts a map entry of an extent.
    pub(crate) fn count(&mut self, ptr: Ptr, sign: i64) {
        self.original += sign;
        self.stored += if is_stored(ptr.phys()) { sign } else { 0 };
    }

    /// Counts all extents of a map.
    pub(crate) fn add_map(&mut self, map: &Chunk) {
        map.iter(0, CHUNK).filter(|(_, p, _)| p.is_packed()).for_each(|(_, p, _)| self.count(p, 1));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.original = self.original.saturating_add(other.original);
        self.stored = self.stored.saturating_add(other.stored);
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.add(Self { original: -other.original, stored: -other.stored });
    }

    /// Appends the stored form: both numbers, each twice its amount, plus one if negative.
    pub(crate) fn encode(self, w: &mut Vec<u8>) {
        for n in [self.original, self.stored] {
            w.var(n.unsigned_abs() << 1 | u64::from(n < 0));
        }
    }

    pub(crate) fn decode(r: &mut Get<'_>) -> Result<Self, Malformed> {
        let mut one = || {
            let v = r.var()?;
            if v >> 1 > BLOCKS_PLAUSIBLE {
                return r.bad();
            }
            let n = (v >> 1) as i64;
            Ok(if v & 1 != 0 { -n } else { n })
        };
        Ok(Self { original: one()?, stored: one()? })
    }
}

/// A compressed extent in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block, and one past the last.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Number of device blocks, which the first blocks have.
    pub(crate) stored: u64,
}

impl Chunk {
    /// The extent that has a block. `None` if it has none, or if the entries around it make no whole extent.
    pub(crate) fn extent(&self, i: u64) -> Option<Extent> {
        let at = |b: u64| Some(self.get(b).0).filter(|p| p.is_packed());
        // The first block without a device block, which tells where the extent begins.
        let mut inner = i;
        while is_stored(at(inner)?.phys()) {
            inner += 1;
            if inner >= CHUNK || inner - i > EXTENT_MAX {
                return None;
            }
        }
        let first = inner.checked_sub(at(inner)?.phys())?;
        let mut stored = inner - first;
        while stored > 0 && !is_stored(at(first + stored - 1)?.phys()) {
            stored -= 1;
        }
        let numbered = |b: u64| at(b).is_some_and(|p| p.phys() == b - first);
        let mut end = first + stored;
        while end < CHUNK && end - first < EXTENT_MAX && numbered(end) {
            end += 1;
        }
        let whole = stored > 0
            && first <= i
            && i < end
            && (first..first + stored).all(|b| at(b).is_some_and(|p| is_stored(p.phys())));
        whole.then_some(Extent { first, end, stored })
    }

    /// Number of blocks that claim to be part of an extent and are not part of a whole one.
    pub(crate) fn torn(&self) -> u64 {
        let (mut i, mut torn) = (0, 0);
        while i < CHUNK {
            match self.extent(i) {
                Some(e) if e.first == i => i = e.end,
                _ => {
                    torn += u64::from(self.get(i).0.is_packed());
                    i += 1;
                }
            }
        }
        torn
    }
}

impl Meta {
    /// The extent that has a block, whose page must be in memory.
    pub(crate) fn extent(&mut self, id: u32, block: u64) -> Option<Extent> {
        if !self.packs {
            return None;
        }
        let base = block / CHUNK * CHUNK;
        let e = self.chunk_of(id, block / CHUNK)?.extent(block - base)?;
        Some(Extent { first: base + e.first, end: base + e.end, stored: e.stored })
    }

    /// The extent that a change of the blocks from `block` on, or up to it, would cut.
    pub(crate) fn cut(&mut self, id: u32, block: u64) -> Option<Extent> {
        // No extent is in two chunks, and the page of the next one need not be in memory.
        if block.is_multiple_of(CHUNK) {
            return None;
        }
        self.extent(id, block).filter(|e| e.first < block)
    }

    /// A range of blocks with the rest of the extents at its ends.
    pub(crate) fn around(&mut self, id: u32, block: u64, end: u64) -> (u64, u64) {
        // Extents end within the object, and pages behind it need not be in memory.
        let last = self.objects.get(id as usize).map_or(0, |o| o.size.div_ceil(BLOCK)).min(end);
        if !self.packs || block >= last {
            return (block, end);
        }
        let first = self.extent(id, block).map_or(block, |e| e.first);
        (first, self.extent(id, last - 1).map_or(end, |e| e.end.max(end)))
    }

    /// Adds what the running change has counted to a collection.
    pub(super) fn count_packed(&mut self, coll: u32) {
        let more = std::mem::take(&mut self.packed);
        let Some(page) = self.colls.get(coll as usize).map(|c| c.page) else { return };
        self.touch(page);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.packed.add(more);
        }
    }

    /// Sets the sums of a collection.
    pub(crate) fn set_packed(&mut self, coll: u32, to: Packed) {
        let Some((page, now)) = self.colls.get(coll as usize).map(|c| (c.page, c.packed)) else { return };
        if now != to {
            self.touch(page);
        }
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.packed = to;
        }
    }

    /// Gives the sums of a collection that is removed to another one of its pool and shard.
    pub(super) fn leave_packed(&mut self, coll: u32) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (packed, of) = (c.packed, pool_and_shard(c));
        let heir = self.colls.iter().find(|(id, c)| *id as u32 != coll && pool_and_shard(c) == of);
        if packed != Packed::default()
            && let Some((id, _)) = heir
        {
            self.packed = packed;
            self.count_packed(id as u32);
        }
    }

    /// Sums over the collections of each pool.
    pub(crate) fn packed_pools(&self) -> Vec<(Option<PoolId>, Packed)> {
        let mut all: Vec<(Option<PoolId>, Packed)> = Vec::new();
        for (_, c) in self.colls.iter().filter(|(_, c)| c.packed != Packed::default()) {
            let pool = pool_and_shard(c).0;
            match all.iter_mut().find(|(p, _)| *p == pool) {
                Some((_, sum)) => sum.add(c.packed),
                None => all.push((pool, c.packed)),
            }
        }
        all
    }
}

/// Pool and shard of a collection.
pub(crate) type PoolShard = (Option<PoolId>, u8);

/// Collections with the same answer share their sums.
pub(crate) fn pool_and_shard(c: &Coll) -> PoolShard {
    let pool = match c.cid {
        Cid::Meta => None,
        Cid::Pg(p) => Some(p.pg.pool),
    };
    (pool, c.shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::map::PACKED;

    /// Maps an extent of `n` blocks, `stored` of them on the device from `phys` on.
    fn put(c: &mut Chunk, first: u64, n: u64, stored: u64, phys: u64) {
        for i in 0..n {
            let place = if i < stored { phys + i } else { i };
            c.set(first + i, Ptr::new(place, 7 | PACKED), 0);
        }
    }

    #[test]
    fn extents_are_found_from_each_of_their_blocks() {
        let mut c = Chunk::default();
        put(&mut c, 0, 16, 3, 5000);
        put(&mut c, 16, 16, 15, 5003);
        c.set(32, Ptr::new(5018, 7), 0);
        put(&mut c, 128, 128, 1, 9000);
        for (first, end, stored) in [(0, 16, 3), (16, 32, 15), (128, 256, 1)] {
            for b in first..end {
                assert_eq!(c.extent(b), Some(Extent { first, end, stored }), "{b}");
            }
        }
        assert_eq!((c.extent(32), c.extent(100), c.torn()), (None, None, 0));
        // Without one of its blocks an extent is none.
        c.clear(17, 18, |_| {});
        assert!((16..32).all(|b| c.extent(b).is_none()) && c.extent(15).is_some());
        assert_eq!(c.torn(), 15);
        put(&mut c, 16, 16, 15, 5003);
        c.clear(40, 256, |_| {});
        c.set(31, Ptr::new(5018, 7), 0);
        assert!((16..32).all(|b| c.extent(b).is_none()));
    }

    #[test]
    fn sums_round_trip() {
        for p in [Packed::default(), Packed { original: -3, stored: 1 << 40 }, Packed { original: 9, stored: -1 }] {
            let mut w = Vec::new();
            p.encode(&mut w);
            assert_eq!(Packed::decode(&mut Get::new(&w)).unwrap(), p);
        }
        let mut w = Vec::new();
        w.var(u64::MAX);
        w.var(1);
        assert!(Packed::decode(&mut Get::new(&w)).is_err());
    }
}
