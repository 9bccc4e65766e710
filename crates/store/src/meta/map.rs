//! A chunk of an object's block map: for each 4 KiB block its device block, version and checksum.
//!
//! In memory a chunk is a dense array, so an overwrite is two stores. On the device it has run-length pointers
//! and plain checksums. Small objects have one chunk inside the onode, others one for each MiB in pages of
//! their own (`blocks`).
//!
//! The blocks of a *compressed extent* (`engine::pack`) have versions with the bit [`PACKED`]. The first of them have the
//! device blocks with the compressed bytes, as many as there are, checksums included. Each of the others has, instead of
//! a device block, its number in the extent, which is below every device block of space. An extent lies in one chunk and
//! is mapped as a whole or not at all.
//!
//! Invariant: a block's checksum is seeded with the object's birth id, the block's number and its version. Birth ids
//! travel with clones and renames, so shared blocks stay valid; a range that moves to another block number is copied.
//!
//! Tests: `tests/faults.rs` (`caches_of_any_size_give_right_data_beside_writes_and_misplaced_blocks`), `tests/undo.rs`
//! (`undo_works_after_clones_and_renames`).

use crate::codec::{Get, Malformed, Put};
use crate::layout::{BLOCK_LEN, Layout};
use base::crc::{SEED, append, crc32c};
use base::prefetch;

/// Blocks of a chunk. Its stored form almost always fits one device block, however scattered its blocks are.
pub(crate) const CHUNK: u64 = 256;
/// Most blocks of an object.
pub(crate) const BLOCKS_MAX: u64 = crate::api::MAX_OBJECT_SIZE / crate::api::BLOCK;
const PHYS_BITS: u32 = 39;
/// Versions count modulo this mask plus one.
pub(crate) const VERSION_MASK: u32 = 0xff_ffff;
/// Bit beside the version: the block is part of a compressed extent.
pub(crate) const PACKED: u32 = VERSION_MASK + 1;
const STAMP_MASK: u32 = VERSION_MASK | PACKED;
/// Bit beside the version in a record: what the change replaces is not kept for undoing the transaction.
pub(crate) const UNKEPT: u32 = PACKED << 1;
/// Most blocks of a compressed extent (512 KiB).
pub(crate) const EXTENT_MAX: u64 = CHUNK / 2;

/// True if this is a device block, and not a place within a compressed extent.
pub(crate) fn is_stored(phys: u64) -> bool {
    phys > EXTENT_MAX
}

/// True if a run of map entries from a device may exist.
pub(crate) fn valid_run(layout: &Layout, phys: u64, n: u64, version: u64) -> bool {
    let end = phys.saturating_add(n);
    let inside = phys >= layout.space_start && end <= layout.space_end;
    let within = version & u64::from(PACKED) != 0 && phys > 0 && end <= EXTENT_MAX;
    version <= u64::from(STAMP_MASK) && (inside || within)
}

/// Block number and version in one word; zero is a hole (block 0 is a superblock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ptr(u64);

impl Ptr {
    pub(crate) const HOLE: Self = Self(0);

    pub(crate) fn new(phys: u64, version: u32) -> Self {
        Self(phys | u64::from(version & STAMP_MASK) << PHYS_BITS)
    }
    pub(crate) fn phys(self) -> u64 {
        self.0 & ((1 << PHYS_BITS) - 1)
    }
    /// Version, with the bit [`PACKED`].
    pub(crate) fn version(self) -> u32 {
        (self.0 >> PHYS_BITS) as u32
    }
    pub(crate) fn is_hole(self) -> bool {
        self.0 == 0
    }
    /// True if the block is part of a compressed extent.
    pub(crate) fn is_packed(self) -> bool {
        self.0 >> (PHYS_BITS + VERSION_MASK.count_ones()) != 0
    }
    /// Device block and the bit [`PACKED`] alone, so that runs of equal kind are found with one comparison.
    pub(crate) fn place(self) -> u64 {
        self.0 & !(u64::from(VERSION_MASK) << PHYS_BITS)
    }
}

/// Seed of the checksum of a block of the object with this birth id.
pub(crate) fn block_seed(birth: u64, block: u64, version: u32) -> u32 {
    let mut x = birth.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (block << 24 | u64::from(version & VERSION_MASK));
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x >> 32) as u32
}

/// Checksum of a block of the object with this birth id.
pub(crate) fn block_crc(birth: u64, block: u64, version: u32, data: &[u8]) -> u32 {
    crc32c(block_seed(birth, block, version), data)
}

const _: () = assert!(BLOCK_LEN == base::crc::BLOCK, "blocks of the store are those of known checksums");

/// The same from `crc`, the crc32c of the block from [`SEED`].
pub(crate) fn block_crc_from(birth: u64, block: u64, version: u32, crc: u32) -> u32 {
    append(block_seed(birth, block, version), SEED, crc, BLOCK_LEN)
}

/// Pointer and checksum of a block in 12 bytes, so that both are in one cache line.
#[derive(Clone, Copy, Debug, Default)]
struct Entry([u32; 3]);

impl Entry {
    const HOLE: Self = Self([0; 3]);

    fn new(p: Ptr, crc: u32) -> Self {
        Self([p.0 as u32, (p.0 >> 32) as u32, crc])
    }
    fn ptr(self) -> Ptr {
        Ptr(u64::from(self.0[0]) | u64::from(self.0[1]) << 32)
    }
    fn crc(self) -> u32 {
        self.0[2]
    }
}

/// Part of a map: the entries of up to [`CHUNK`] consecutive blocks, numbered within the chunk. Blocks beyond
/// its end are holes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    entries: Vec<Entry>,
    mapped: u32,
}

impl Chunk {
    /// Number of mapped blocks.
    pub(crate) fn mapped(&self) -> u64 {
        u64::from(self.mapped)
    }

    /// Bytes of allocated memory.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    pub(crate) fn get(&self, i: u64) -> (Ptr, u32) {
        match self.entries.get(i as usize) {
            Some(e) => (e.ptr(), e.crc()),
            None => (Ptr::HOLE, 0),
        }
    }

    /// Prefetches a block's entry into the CPU caches.
    pub(crate) fn prefetch(&self, i: u64) {
        if let Some(e) = self.entries.get(i as usize) {
            prefetch(e);
        }
    }

    /// Maps a block and returns its previous pointer. Does nothing beyond the chunk's end.
    pub(crate) fn set(&mut self, i: u64, ptr: Ptr, crc: u32) -> Ptr {
        let i = i as usize;
        let new = Entry::new(ptr, crc);
        if self.entries.len() <= i {
            if i >= CHUNK as usize {
                return Ptr::HOLE;
            }
            self.entries.resize(i + 1, Entry::HOLE);
        }
        let old = std::mem::replace(&mut self.entries[i], new).ptr();
        self.mapped += u32::from(old.is_hole());
        old
    }

    /// Unmaps `[from, to)`. Calls `gone` for each block that was mapped.
    pub(crate) fn clear(&mut self, from: u64, to: u64, mut gone: impl FnMut(Ptr)) {
        let to = (to as usize).min(self.entries.len());
        let from = (from as usize).min(to);
        for e in &mut self.entries[from..to] {
            if !e.ptr().is_hole() {
                gone(e.ptr());
                self.mapped -= 1;
                *e = Entry::HOLE;
            }
        }
        if to == self.entries.len() {
            let keep = self.entries.iter().rposition(|e| !e.ptr().is_hole()).map_or(0, |i| i + 1);
            self.entries.truncate(keep);
        }
    }

    /// Mapped blocks of `[from, to)` in order.
    pub(crate) fn iter(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Ptr, u32)> + '_ {
        let to = (to as usize).min(self.entries.len());
        let from = (from as usize).min(to);
        self.entries[from..to]
            .iter()
            .enumerate()
            .filter(|(_, e)| !e.ptr().is_hole())
            .map(move |(i, e)| ((from + i) as u64, e.ptr(), e.crc()))
    }

    /// Appends the stored form:
    ///
    /// | map | form |
    /// | --- | --- |
    /// | mapped blocks | var |
    /// | + skipped blocks | var |
    /// | + blocks | var |
    /// | + first device block | var |
    /// | + version | var |
    /// | + crc | u32 × blocks |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        // What blocks that were written one by one need, each in a run of its own.
        w.reserve(8 + 16 * self.mapped as usize);
        w.var(self.mapped());
        let (mut rest, mut skipped) = (&self.entries[..], 0);
        while let Some((first, after)) = rest.split_first() {
            let ptr = first.ptr();
            if ptr.is_hole() {
                (rest, skipped) = (after, skipped + 1);
                continue;
            }
            // The next block of the device with the same version.
            let more = (1..).zip(after).take_while(|(n, e)| e.ptr().0 == ptr.0 + n).count();
            let (run, others) = rest.split_at(1 + more);
            w.var(skipped);
            w.var(run.len() as u64);
            w.var(ptr.phys());
            w.var(u64::from(ptr.version()));
            run.iter().for_each(|e| w.u32(e.crc()));
            (rest, skipped) = (others, 0);
        }
    }

    pub(crate) fn decode(r: &mut Get<'_>, layout: &Layout) -> Result<Self, Malformed> {
        let total = r.count(4)? as u64;
        let mut m = Self::default();
        let mut next = 0u64;
        while m.mapped() < total {
            let skip = r.var()?;
            let n = r.count(4)? as u64;
            let (phys, version) = (r.var()?, r.var()?);
            let block = next.saturating_add(skip);
            let fits = block.saturating_add(n) <= CHUNK && n <= total - m.mapped();
            if n == 0 || !fits || !valid_run(layout, phys, n, version) {
                return r.bad();
            }
            for i in 0..n {
                let crc = r.u32()?;
                m.set(block + i, Ptr::new(phys + i, version as u32), crc);
            }
            next = block + n;
        }
        Ok(m)
    }
}

/// Set of a chunk's blocks whose entries differ, or may differ, from its stored page. While they are few, they
/// are stored beside the pointer to that page (`page`). Each is encoded as its number u8 and `var` device
/// block, 0 for a hole; else `var` version and crc u32 follow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta([u64; CHUNK as usize / 64]);

/// Most blocks that are stored this way.
pub(crate) const DELTA_MAX: u32 = 48;
/// Most bytes of one such block.
const DELTA_ENTRY_MAX: usize = 1 + 6 + 4 + 4;
/// Most bytes of a chunk's changes beside the pointer to its page.
pub(crate) const DELTA_LEN_MAX: usize = DELTA_MAX as usize * DELTA_ENTRY_MAX;

impl Delta {
    #[inline]
    pub(crate) fn add(&mut self, i: u64) {
        if let Some(w) = self.0.get_mut(i as usize / 64) {
            *w |= 1 << (i % 64);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..CHUNK).filter(|i| self.0.get(*i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 != 0))
    }

    /// Encodes the entries of these blocks; `None` if there are too many.
    pub(crate) fn encode(&self, map: &Chunk) -> Option<Box<[u8]>> {
        if self.0.iter().map(|w| w.count_ones()).sum::<u32>() > DELTA_MAX {
            return None;
        }
        let mut w = Vec::with_capacity(DELTA_LEN_MAX);
        for i in self.iter() {
            let (ptr, crc) = map.get(i);
            w.u8(i as u8);
            w.var(ptr.phys());
            if !ptr.is_hole() {
                w.var(u64::from(ptr.version()));
                w.u32(crc);
            }
        }
        Some(w.into_boxed_slice())
    }

    /// Applies encoded entries to a chunk as it was stored. Returns the set of their blocks.
    pub(crate) fn apply(delta: &[u8], map: &mut Chunk, layout: &Layout) -> Result<Self, Malformed> {
        let mut r = Get::new(delta);
        let mut all = Self::default();
        let mut next = 0;
        while r.rest() > 0 {
            let (i, phys) = (u64::from(r.u8()?), r.var()?);
            if i < next {
                return r.bad();
            }
            next = i + 1;
            all.add(i);
            if phys == 0 {
                map.clear(i, i + 1, |_| {});
                continue;
            }
            let (version, crc) = (r.var()?, r.u32()?);
            if !valid_run(layout, phys, 1, version) {
                return r.bad();
            }
            map.set(i, Ptr::new(phys, version as u32), crc);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn a_chunk_equals_a_plain_map_and_survives_encoding() {
        let layout = Layout::of(1 << 40).unwrap();
        let mut rng = Rng::new(11);
        let mut m = Chunk::default();
        let mut model: BTreeMap<u64, (Ptr, u32)> = BTreeMap::new();
        for round in 0..2000 {
            let at = rng.below(CHUNK);
            if rng.chance(3, 4) {
                for i in at..(at + rng.below(6)).min(CHUNK) {
                    let p = Ptr::new(layout.space_start + rng.below(3) * 1000 + i, round / 50);
                    let old = m.set(i, p, round);
                    assert_eq!(old, model.insert(i, (p, round)).map_or(Ptr::HOLE, |o| o.0));
                }
            } else {
                let n = rng.below(50);
                let mut gone = Vec::new();
                m.clear(at, at + n, |p| gone.push(p.phys()));
                let want: Vec<_> = model.range(at..at + n).map(|(b, p)| (*b, p.0.phys())).collect();
                for (b, _) in &want {
                    model.remove(b);
                }
                assert_eq!(gone, want.iter().map(|w| w.1).collect::<Vec<_>>());
            }
            assert_eq!(m.mapped(), model.len() as u64);
        }
        let all: Vec<_> = m.iter(0, CHUNK).collect();
        assert_eq!(all, model.iter().map(|(b, (p, k))| (*b, *p, *k)).collect::<Vec<_>>());
        let mid: Vec<_> = m.iter(100, 200).collect();
        assert_eq!(mid, model.range(100..200).map(|(b, (p, k))| (*b, *p, *k)).collect::<Vec<_>>());
        let mut w = Vec::new();
        m.encode(&mut w);
        assert_eq!(w, plainly(&all));
        let back = Chunk::decode(&mut Get::new(&w), &layout).unwrap();
        assert_eq!(back.iter(0, CHUNK).collect::<Vec<_>>(), all);
        for cut in 0..w.len().min(200) {
            assert!(Chunk::decode(&mut Get::new(&w[..cut]), &layout).is_err());
        }
    }

    /// The stored form of mapped blocks, run by run.
    fn plainly(all: &[(u64, Ptr, u32)]) -> Vec<u8> {
        let follows = |a: &(u64, Ptr, u32), b: &(u64, Ptr, u32)| {
            (b.0, b.1.phys(), b.1.version()) == (a.0 + 1, a.1.phys() + 1, a.1.version())
        };
        let (mut w, mut next) = (Vec::new(), 0);
        w.var(all.len() as u64);
        for run in all.chunk_by(follows) {
            let (block, ptr, _) = run[0];
            for v in [block - next, run.len() as u64, ptr.phys(), u64::from(ptr.version())] {
                w.var(v);
            }
            run.iter().for_each(|(_, _, crc)| w.u32(*crc));
            next = block + run.len() as u64;
        }
        w
    }

    #[test]
    fn stored_changes_restore_the_chunk() {
        let layout = Layout::of(1 << 40).unwrap();
        let mut rng = Rng::new(12);
        for round in 0..500 {
            let mut stored = Chunk::default();
            for i in 0..rng.below(CHUNK + 1) {
                stored.set(i, Ptr::new(layout.space_start + i, 1), i as u32);
            }
            let (mut map, mut delta) = (stored.clone(), Delta::default());
            let changes = 1 + rng.below(60);
            for n in 0..changes {
                let i = rng.below(CHUNK);
                delta.add(i);
                if rng.chance(3, 4) {
                    map.set(i, Ptr::new(layout.space_end - 1 - n, VERSION_MASK), u32::MAX - n as u32);
                } else {
                    map.clear(i, i + 1, |_| {});
                }
            }
            let Some(w) = delta.encode(&map) else {
                assert!(delta.iter().count() > DELTA_MAX as usize);
                continue;
            };
            assert!(w.len() <= DELTA_LEN_MAX && delta.iter().count() <= DELTA_MAX as usize, "round {round}");
            for cut in 0..w.len() {
                let _ = Delta::apply(&w[..cut], &mut stored.clone(), &layout);
            }
            let again = Delta::apply(&w, &mut stored, &layout).unwrap();
            assert_eq!(again.0, delta.0);
            assert_eq!(stored.mapped(), map.mapped());
            assert_eq!(stored.iter(0, CHUNK).collect::<Vec<_>>(), map.iter(0, CHUNK).collect::<Vec<_>>());
        }
    }
}
