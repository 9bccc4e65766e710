//! The block map of one object: for each block of 4 KiB where it is, its version, and its checksum.
//!
//! Dense arrays in memory (an overwrite is two stores), run-length pointers and plain checksums on the device.
//!
//! Invariant: a block's checksum is seeded with the object's birth id, the block's number and its version. Birth ids
//! travel with clones and renames, so shared blocks stay valid; a range that moves to another block number is copied.

use crate::codec::{Get, Malformed, Put};
use crate::layout::Layout;
use base::crc::crc32c;

/// Blocks of a chunk, the unit in which sparse maps take memory.
const CHUNK: usize = 1024;
/// Most blocks of an object.
pub(crate) const BLOCKS_MAX: u64 = crate::api::MAX_OBJECT_SIZE / crate::api::BLOCK;
const PHYS_BITS: u32 = 40;
/// Versions count modulo this.
pub(crate) const VERSION_MASK: u32 = 0xff_ffff;

/// Block number and version in one word; zero is a hole (block 0 is a superblock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ptr(u64);

impl Ptr {
    pub(crate) const HOLE: Self = Self(0);

    pub(crate) fn new(phys: u64, version: u32) -> Self {
        Self(phys | u64::from(version & VERSION_MASK) << PHYS_BITS)
    }
    pub(crate) fn phys(self) -> u64 {
        self.0 & ((1 << PHYS_BITS) - 1)
    }
    pub(crate) fn version(self) -> u32 {
        (self.0 >> PHYS_BITS) as u32
    }
    pub(crate) fn is_hole(self) -> bool {
        self.0 == 0
    }
}

/// Checksum of a block of an object with this birth id.
pub(crate) fn block_crc(birth: u64, block: u64, version: u32, data: &[u8]) -> u32 {
    let mut x = birth.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (block << 24 | u64::from(version & VERSION_MASK));
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    crc32c((x >> 32) as u32, data)
}

/// Pointer and checksum of a block in 12 bytes: one cache line for both.
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

/// Entries of up to `CHUNK` blocks; what is beyond its end is a hole.
type Chunk = Vec<Entry>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockMap {
    // Most objects have one chunk.
    chunks: smallvec::SmallVec<[Chunk; 1]>,
    mapped: u64,
}

impl BlockMap {
    /// Blocks mapped.
    pub(crate) fn mapped(&self) -> u64 {
        self.mapped
    }

    pub(crate) fn get(&self, block: u64) -> (Ptr, u32) {
        let (c, i) = (block as usize / CHUNK, block as usize % CHUNK);
        match self.chunks.get(c).and_then(|c| c.get(i)) {
            Some(e) => (e.ptr(), e.crc()),
            None => (Ptr::HOLE, 0),
        }
    }

    /// Maps a block; what it was before.
    pub(crate) fn set(&mut self, block: u64, ptr: Ptr, crc: u32) -> Ptr {
        let (c, i) = (block as usize / CHUNK, block as usize % CHUNK);
        if self.chunks.len() <= c {
            self.chunks.resize_with(c + 1, Chunk::default);
        }
        let Some(chunk) = self.chunks.get_mut(c) else { return Ptr::HOLE };
        let new = Entry::new(ptr, crc);
        if chunk.len() <= i {
            if i == chunk.len() {
                chunk.push(new);
                self.mapped += 1;
                return Ptr::HOLE;
            }
            chunk.resize(i + 1, Entry::HOLE);
        }
        let old = std::mem::replace(&mut chunk[i], new).ptr();
        self.mapped += u64::from(old.is_hole());
        old
    }

    /// Unmaps `[block, block + n)`, telling what goes.
    pub(crate) fn clear(&mut self, block: u64, n: u64, mut gone: impl FnMut(u64)) {
        let end = block.saturating_add(n);
        let first = block as usize / CHUNK;
        for (c, chunk) in self.chunks.iter_mut().enumerate().skip(first) {
            let base = (c * CHUNK) as u64;
            if base >= end {
                break;
            }
            let from = block.saturating_sub(base) as usize;
            let to = ((end - base) as usize).min(chunk.len());
            if from >= to {
                continue;
            }
            for e in &mut chunk[from..to] {
                if !e.ptr().is_hole() {
                    gone(e.ptr().phys());
                    self.mapped -= 1;
                    *e = Entry::HOLE;
                }
            }
            if to == chunk.len() {
                let keep = chunk.iter().rposition(|e| !e.ptr().is_hole()).map_or(0, |i| i + 1);
                chunk.truncate(keep);
                if keep == 0 {
                    *chunk = Chunk::default();
                }
            }
        }
        while self.chunks.last().is_some_and(Vec::is_empty) {
            self.chunks.pop();
        }
    }

    /// Mapped blocks of `[block, block + n)` in order.
    pub(crate) fn iter(&self, block: u64, n: u64) -> impl Iterator<Item = (u64, Ptr, u32)> + '_ {
        let end = block.saturating_add(n);
        let first = block as usize / CHUNK;
        self.chunks.iter().enumerate().skip(first).take_while(move |(c, _)| ((c * CHUNK) as u64) < end).flat_map(
            move |(c, chunk)| {
                let base = (c * CHUNK) as u64;
                let from = (block.saturating_sub(base) as usize).min(chunk.len());
                let to = ((end - base).min(CHUNK as u64) as usize).min(chunk.len()).max(from);
                chunk[from..to]
                    .iter()
                    .enumerate()
                    .filter(|(_, e)| !e.ptr().is_hole())
                    .map(move |(i, e)| (base + (from + i) as u64, e.ptr(), e.crc()))
            },
        )
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.mapped);
        let mut next = 0;
        let mut it = self.iter(0, BLOCKS_MAX).peekable();
        let mut crcs: Vec<u32> = Vec::new();
        while let Some((block, ptr, crc)) = it.next() {
            crcs.clear();
            crcs.push(crc);
            while let Some((b, p, k)) = it.peek() {
                let n = crcs.len() as u64;
                if *b != block + n || p.phys() != ptr.phys() + n || p.version() != ptr.version() {
                    break;
                }
                crcs.push(*k);
                it.next();
            }
            w.var(block - next);
            w.var(crcs.len() as u64);
            w.var(ptr.phys());
            w.var(u64::from(ptr.version()));
            for k in &crcs {
                w.u32(*k);
            }
            next = block + crcs.len() as u64;
        }
    }

    pub(crate) fn decode(r: &mut Get<'_>, layout: &Layout) -> Result<Self, Malformed> {
        let total = r.count(4)? as u64;
        let mut m = Self::default();
        let mut next = 0u64;
        while m.mapped < total {
            let skip = r.var()?;
            let n = r.count(4)? as u64;
            let (phys, version) = (r.var()?, r.var()?);
            let block = next.saturating_add(skip);
            let fits = block.saturating_add(n) <= BLOCKS_MAX && n <= total - m.mapped;
            let inside = phys >= layout.space_start && phys.saturating_add(n) <= layout.space_end;
            if n == 0 || !fits || !inside || version > u64::from(VERSION_MASK) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn equals_a_plain_map_and_survives_encoding() {
        let layout = Layout::of(1 << 40).unwrap();
        let mut rng = Rng::new(11);
        let mut m = BlockMap::default();
        let mut model: BTreeMap<u64, (Ptr, u32)> = BTreeMap::new();
        for round in 0..2000 {
            let at = rng.below(5000);
            if rng.chance(3, 4) {
                for i in 0..rng.below(6) {
                    let p = Ptr::new(layout.space_start + rng.below(3) * 1000 + at + i, round / 50);
                    let old = m.set(at + i, p, round);
                    assert_eq!(old, model.insert(at + i, (p, round)).map_or(Ptr::HOLE, |o| o.0));
                }
            } else {
                let n = rng.below(800);
                let mut gone = Vec::new();
                m.clear(at, n, |p| gone.push(p));
                let want: Vec<_> = model.range(at..at + n).map(|(b, p)| (*b, p.0.phys())).collect();
                for (b, _) in &want {
                    model.remove(b);
                }
                assert_eq!(gone, want.iter().map(|w| w.1).collect::<Vec<_>>());
            }
            assert_eq!(m.mapped(), model.len() as u64);
        }
        let all: Vec<_> = m.iter(0, BLOCKS_MAX).collect();
        assert_eq!(all, model.iter().map(|(b, (p, k))| (*b, *p, *k)).collect::<Vec<_>>());
        let mid: Vec<_> = m.iter(1000, 1500).collect();
        assert_eq!(mid, model.range(1000..2500).map(|(b, (p, k))| (*b, *p, *k)).collect::<Vec<_>>());
        let mut w = Vec::new();
        m.encode(&mut w);
        let back = BlockMap::decode(&mut Get::new(&w), &layout).unwrap();
        assert_eq!(back.iter(0, BLOCKS_MAX).collect::<Vec<_>>(), all);
        for cut in 0..w.len().min(200) {
            assert!(BlockMap::decode(&mut Get::new(&w[..cut]), &layout).is_err());
        }
    }
}
