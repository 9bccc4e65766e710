//! Undo records in their stored form: the map entries that one entry of a log replaced, by object.

use super::map::{BLOCKS_MAX, Ptr, is_stored, valid_run};
use crate::codec::{Get, Malformed, Put};
use crate::layout::{BLOCK, Layout};
use smallvec::{SmallVec, smallvec};

/// A run of blocks of an object: either holes, or blocks that are adjacent on the device and were written
/// together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) block: u64,
    pub(crate) n: u64,
    /// First device block; 0 for holes.
    pub(crate) phys: u64,
    pub(crate) version: u32,
    /// Checksum of each block; empty for holes.
    pub(crate) crcs: SmallVec<[u32; 2]>,
}

impl Run {
    /// Number of device blocks.
    pub(crate) fn used(&self) -> u64 {
        if is_stored(self.phys) { self.n } else { 0 }
    }

    /// Blocks of the object with their map entries, without holes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Ptr, u32)> + '_ {
        let at = |(i, crc): (u64, &u32)| (self.block + i, Ptr::new(self.phys + i, self.version), *crc);
        (0..).zip(&self.crcs).map(at)
    }
}

/// Undo data of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Number and birth id of the object.
    pub(crate) nid: u64,
    pub(crate) birth: u64,
    /// Bit-reversed hash of the object.
    pub(crate) hash: u32,
    /// True if the object was source or target of a clone, so that its blocks may have further references.
    pub(crate) shared: bool,
    /// True if a part of its map was lost, so that recorded holes may have been data.
    pub(crate) lost: bool,
    /// Size of the object before the changes.
    pub(crate) size: u64,
    pub(crate) runs: SmallVec<[Run; 2]>,
}

impl Item {
    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(Run::used).sum()
    }

    /// All device blocks of the item.
    pub(crate) fn phys(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|r| r.phys..r.phys + r.used())
    }

    /// Appends the stored form of one object of a record:
    ///
    /// | undo record | form |
    /// | --- | --- |
    /// | number | var |
    /// | birth id xor number | var |
    /// | hash | u32 |
    /// | flags | u8 |
    /// | size | var |
    /// | runs | var |
    /// | · first block | var |
    /// | · blocks | var |
    /// | · device block | var |
    /// | · version | var if device block |
    /// | · crc | u32 × blocks if device block |
    pub(super) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.nid);
        w.var(self.birth ^ self.nid);
        w.u32(self.hash);
        w.u8(u8::from(self.shared) | u8::from(self.lost) << 1);
        w.var(self.size);
        w.var(self.runs.len() as u64);
        for r in &self.runs {
            w.var(r.block);
            w.var(r.n);
            w.var(r.phys);
            if r.phys > 0 {
                w.var(r.version.into());
                r.crcs.iter().for_each(|c| w.u32(*c));
            }
        }
    }

    fn decode(r: &mut Get<'_>, layout: &Layout) -> Result<Self, Malformed> {
        let nid = r.var()?;
        let birth = r.var()? ^ nid;
        let (hash, flags, size) = (r.u32()?, r.u8()?, r.var()?);
        if flags > 3 || size > BLOCKS_MAX * BLOCK {
            return r.bad();
        }
        let mut runs = SmallVec::new();
        for _ in 0..r.count(3)? {
            let (block, n, phys) = (r.var()?, r.var()?, r.var()?);
            if n == 0 || block.saturating_add(n) > BLOCKS_MAX {
                return r.bad();
            }
            let mut run = Run { block, n, phys, version: 0, crcs: SmallVec::new() };
            if phys > 0 {
                let version = r.var()?;
                if !valid_run(layout, phys, n, version) || n.saturating_mul(4) > r.rest() as u64 {
                    return r.bad();
                }
                run.version = version as u32;
                for _ in 0..n {
                    run.crcs.push(r.u32()?);
                }
            }
            runs.push(run);
        }
        let (shared, lost) = (flags & 1 != 0, flags & 2 != 0);
        if runs.is_empty() { r.bad() } else { Ok(Self { nid, birth, hash, shared, lost, size, runs }) }
    }
}

/// Objects of a record: usually one.
pub(crate) type Items = SmallVec<[Item; 1]>;

/// Decodes a record.
pub(crate) fn decode(buf: &[u8], layout: &Layout) -> Result<Items, Malformed> {
    let mut r = Get::new(buf);
    let mut out = Items::new();
    while r.rest() > 0 {
        out.push(Item::decode(&mut r, layout)?);
    }
    Ok(out)
}

pub(crate) fn encode(items: &[Item]) -> Vec<u8> {
    let mut w = Vec::new();
    items.iter().for_each(|i| i.encode(&mut w));
    w
}

impl Item {
    /// Adds a block after all earlier ones.
    pub(super) fn push(&mut self, block: u64, ptr: Ptr, crc: u32) {
        match self.runs.last_mut() {
            Some(r)
                if r.phys > 0 && r.block + r.n == block && r.phys + r.n == ptr.phys() && r.version == ptr.version() =>
            {
                r.n += 1;
                r.crcs.push(crc);
            }
            _ => self.runs.push(Run { block, n: 1, phys: ptr.phys(), version: ptr.version(), crcs: smallvec![crc] }),
        }
    }

    pub(super) fn push_holes(&mut self, block: u64, end: u64) {
        if block < end {
            self.runs.push(Run { block, n: end - block, phys: 0, version: 0, crcs: SmallVec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_nothing_else_decodes() {
        let layout = Layout::of(1 << 30).unwrap();
        let s = layout.space_start;
        let run = |block, n: u64, phys| Run {
            block,
            n,
            phys,
            version: if phys > 0 { 77 } else { 0 },
            crcs: (0..if phys > 0 { n as u32 } else { 0 }).collect(),
        };
        let item = |nid, birth, runs| Item {
            nid,
            birth,
            hash: 5,
            shared: birth != nid,
            lost: birth == nid,
            size: 9000,
            runs: SmallVec::from_vec(runs),
        };
        let items = vec![
            item(7, 7, vec![run(0, 2, s), run(2, 1, 0), run(300, 3, s + 9)]),
            item(1 << 50, 7, vec![run(BLOCKS_MAX - 1, 1, layout.space_end - 1)]),
        ];
        let w = encode(&items);
        assert_eq!(decode(&w, &layout).unwrap()[..], items);
        assert_eq!(items[0].blocks(), 5);
        let cuts: Vec<usize> = (0..w.len()).filter(|n| decode(&w[..*n], &layout).is_ok()).collect();
        let first = encode(&items[..1]).len();
        assert_eq!(cuts, [0, first], "between two objects only");
        for bad in [run(BLOCKS_MAX, 1, s), run(0, 1, layout.space_end), run(0, 1, s - 1), run(3, 0, 0)] {
            assert!(decode(&encode(&[item(7, 7, vec![bad])]), &layout).is_err());
        }
        assert!(decode(&encode(&[item(7, 7, Vec::new())]), &layout).is_err());
    }
}
