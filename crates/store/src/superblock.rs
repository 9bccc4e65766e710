//! The superblock (identity and layout of the device) and roots (place of a ring's newest checkpoint).
//!
//! Invariants:
//!  1. A new version is written only to the slots of its sequence number's parity, so a torn write leaves the
//!     previous version.
//!  2. Each copy names its own slot; a misdirected copy does not count.
//!  3. The newest valid copy wins; a version counts once one copy of it is whole.
//!
//! Tests: `tests/crash.rs` (1, `a_device_grows_whole_or_not_at_all`), below (2), `tests/faults.rs` (3,
//! `one_copy_of_the_superblock_is_enough_wherever_it_is`).

use crate::codec::{Get, Malformed, Put};
use crate::layout::{
    BLOCK, FEATURES, FORMAT_VERSION, FORMAT_VERSION_PLAIN, Layout, RINGS_MAX, ROOT_BLOCKS, SHARDS, SUPER_BLOCKS,
};
use crate::meta::tree::LEVEL_MAX;
use crate::meta::used::{BlockPtr, INDEX_MAX};
use base::buf::AlignedBuf;
use base::crc::{SEED, crc32c};
use base::{FeatureWords, Newer, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(crate) const SUPER_MAGIC: &[u8; 16] = b"belemnite store\n";
pub(crate) const ROOT_MAGIC: u32 = 0x5254_4c42;
/// Most bytes of labels, keys and values together.
pub const LABEL_BYTES_MAX: usize = 8 << 10;
/// Largest plausible stored count that is continued.
const COUNT_MAX: u64 = 1 << 62;
const EPOCH_MAX: u32 = 1 << 31;

/// Small values kept with the device: cluster fsid, OSD id, keys. The host chooses their bytes.
pub type Labels = BTreeMap<String, Bytes>;

/// Identity and layout of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Format version of the device.
    pub version: u32,
    /// Features that the store may use.
    pub features: FeatureWords,
    /// Number of writes of the superblock.
    pub seq: u64,
    /// Identity of this store.
    pub uuid: Uuid,
    /// Bytes of the device when it was formatted.
    pub bytes: u64,
    /// Size in bytes to which the device was grown; 0 if never.
    pub grown: u64,
    /// Number of store shards.
    pub shards: u16,
    /// Number of rings into which the log area is divided.
    pub rings: u16,
    /// Number of divisions of the log area so far. Frames and roots of other epochs are void.
    pub layout_epoch: u32,
    /// Labels of the host.
    pub labels: Labels,
}

/// Reason why superblock bytes can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotSuper {
    /// No superblock, or one that fails its checksum.
    None,
    /// A valid superblock of an unknown format.
    Version(u32),
    /// A valid superblock with incompat features that this program does not know.
    Newer(Newer),
}

impl Superblock {
    /// Encodes the copy for a slot:
    ///
    /// | superblock | form |
    /// | --- | --- |
    /// | magic | 16 |
    /// | version | u32 |
    /// | length | u32 |
    /// | compat | u64 if features |
    /// | read-only compat | u64 if features |
    /// | incompat | u64 if features |
    /// | slot | u64 |
    /// | seq | u64 |
    /// | uuid | 16 |
    /// | size | u64 |
    /// | shards | u16 |
    /// | rings | u16 |
    /// | layout epoch | u32 |
    /// | labels | var |
    /// | · key | bytes |
    /// | · value | bytes |
    /// | grown to | u64 if grown |
    /// | crc | u32 |
    pub(crate) fn encode(&self, slot: u64) -> Bytes {
        let mut w = Vec::with_capacity((SUPER_BLOCKS * BLOCK) as usize);
        w.extend_from_slice(SUPER_MAGIC);
        w.u32(if self.features.any() { self.version.max(FORMAT_VERSION) } else { self.version });
        w.u32(0); // length, filled in below
        if self.features.any() {
            w.extend_from_slice(&self.features.to_bytes());
        }
        w.u64(slot);
        w.u64(self.seq);
        w.extend_from_slice(&self.uuid.0);
        w.u64(self.bytes);
        w.u16(self.shards);
        w.u16(self.rings);
        w.u32(self.layout_epoch);
        w.var(self.labels.len() as u64);
        for (k, v) in &self.labels {
            w.bytes(k.as_bytes());
            w.bytes(v);
        }
        if self.grown > 0 {
            w.u64(self.grown);
        }
        seal(w, 20, SUPER_BLOCKS)
    }

    pub(crate) fn decode(buf: &[u8], slot: u64) -> Result<Self, NotSuper> {
        let head = buf.get(..24).ok_or(NotSuper::None)?;
        if &head[..16] != SUPER_MAGIC {
            return Err(NotSuper::None);
        }
        let body = unseal(buf, 20).ok_or(NotSuper::None)?;
        let mut r = Get::new(&body[16..]);
        let mut go = || -> Result<Result<Self, NotSuper>, Malformed> {
            let version = r.u32()?;
            if version != FORMAT_VERSION && version != FORMAT_VERSION_PLAIN {
                return Ok(Err(NotSuper::Version(version)));
            }
            r.u32()?;
            let mut features = FeatureWords::default();
            if version == FORMAT_VERSION {
                // An incompat feature may change everything behind the words.
                features = FeatureWords { compat: r.u64()?, ro_compat: r.u64()?, incompat: r.u64()? };
                if let Err(newer) = features.check(&FEATURES, false) {
                    return Ok(Err(NotSuper::Newer(newer)));
                }
            }
            if r.u64()? != slot {
                return r.bad();
            }
            let (seq, uuid, bytes) = (r.u64()?, Uuid(r.array()?), r.u64()?);
            let (shards, rings, layout_epoch) = (r.u16()?, r.u16()?, r.u32()?);
            if shards != SHARDS || rings == 0 || rings > RINGS_MAX || seq > COUNT_MAX || layout_epoch > EPOCH_MAX {
                return r.bad();
            }
            let n = r.count(2)?;
            let mut labels = Labels::new();
            for _ in 0..n {
                let k = String::from_utf8_lossy(&r.bytes()?).into_owned();
                labels.insert(k, r.bytes()?);
            }
            let grown = if r.rest() > 0 { r.u64()? } else { 0 };
            if grown != 0 && grown < bytes {
                return r.bad();
            }
            Ok(Ok(Self { version, features, seq, uuid, bytes, grown, shards, rings, layout_epoch, labels }))
        };
        match go() {
            Ok(Ok(s)) => Ok(s),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(NotSuper::None),
        }
    }

    /// Slots of this version.
    pub(crate) fn slots(&self) -> [u64; 2] {
        let p = self.seq & 1;
        [p, 2 + p]
    }

    /// Layout of the device; `None` if its size is invalid.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        Some(Layout::of(self.bytes)?.grown_to(self.size()))
    }

    /// Size of the device in bytes, as the store uses it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.max(self.grown)
    }
}

/// Pads to whole blocks, writes the length at `len_at`, and the checksum in the last four bytes of the covered
/// part.
fn seal(mut w: Vec<u8>, len_at: usize, blocks: u64) -> Bytes {
    let len = (w.len() + 4) as u32;
    w[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(SEED, &w);
    w.u32(crc);
    assert!(w.len() as u64 <= blocks * BLOCK, "labels and runs are bounded before");
    let mut b = AlignedBuf::zeroed((blocks * BLOCK) as usize);
    b[..w.len()].copy_from_slice(&w);
    b.freeze()
}

fn unseal(buf: &[u8], len_at: usize) -> Option<&[u8]> {
    let len = u32::from_le_bytes(buf.get(len_at..len_at + 4)?.try_into().ok()?) as usize;
    let body = buf.get(..len.checked_sub(4)?)?;
    let crc = u32::from_le_bytes(buf.get(len - 4..len)?.try_into().ok()?);
    (crc32c(SEED, body) == crc && body.len() >= len_at + 4).then_some(body)
}

/// Pointer to a stored byte string: its blocks, length and checksum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlobPtr {
    /// `(first block, blocks)` in order.
    pub(crate) runs: smallvec::SmallVec<[(u64, u32); 1]>,
    /// Length in bytes.
    pub(crate) len: u32,
    /// crc32c of the bytes.
    pub(crate) crc: u32,
}

impl BlobPtr {
    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.1)).sum()
    }

    /// Appends the stored form, as trees and roots hold it:
    ///
    /// | pointer | form |
    /// | --- | --- |
    /// | length | var |
    /// | crc | u32 |
    /// | runs | var |
    /// | · first block | var |
    /// | · blocks | var |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(u64::from(self.len));
        w.u32(self.crc);
        w.var(self.runs.len() as u64);
        for (start, n) in &self.runs {
            w.var(*start);
            w.var(u64::from(*n));
        }
    }

    /// Decodes a pointer. Verifies that it lies in space and that its blocks fit its length.
    pub(crate) fn decode(r: &mut Get<'_>, layout: &Layout) -> Result<Self, Malformed> {
        let len = r.var()?;
        let crc = r.u32()?;
        let n = r.count(2)?;
        let mut p = Self { runs: smallvec::SmallVec::new(), len: len as u32, crc };
        for _ in 0..n {
            let (start, n) = (r.var()?, r.var()?);
            let end = start.checked_add(n);
            if n == 0
                || n > u64::from(u32::MAX)
                || start < layout.space_start
                || end.is_none_or(|e| e > layout.space_end)
            {
                return r.bad();
            }
            p.runs.push((start, n as u32));
        }
        if len > u64::from(u32::MAX) || p.blocks() != len.div_ceil(BLOCK) {
            return r.bad();
        }
        Ok(p)
    }
}

/// Root of a ring: its newest checkpoint, and the position from which the log continues it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Number of the checkpoint.
    pub(crate) seq: u64,
    pub(crate) layout_epoch: u32,
    pub(crate) ring: u16,
    /// Next number for objects and collections.
    pub(crate) next_nid: u64,
    /// Sequence number of the next record.
    pub(crate) next_lsn: u64,
    /// Position of the first frame after the checkpoint, written or not, in blocks from the ring's start.
    pub(crate) log_pos: u64,
    /// Sequence number of that frame.
    pub(crate) log_seq: u64,
    /// Chain value of the frame before it.
    pub(crate) log_chain: u32,
    /// Number of metadata blocks; only the sum over rings is exact.
    pub(crate) page_blocks: i64,
    /// Non-empty trees of the ring's shards: shard, level of the root page, and its place.
    pub(crate) trees: Vec<(u8, u8, BlobPtr)>,
    /// Pages of the index of the map of used blocks.
    pub(crate) used: Vec<(u32, BlockPtr)>,
    /// Features that this checkpoint and the log after it may use.
    pub(crate) features: FeatureWords,
}

impl Root {
    /// Encodes the copy `copy` of a root; `None` if it does not fit its slot.
    ///
    /// | root | form |
    /// | --- | --- |
    /// | magic | u32 |
    /// | length | u32 |
    /// | uuid | 16 |
    /// | ring | u16 |
    /// | copy | u8 |
    /// | zero | u8 |
    /// | layout epoch | u32 |
    /// | seq | u64 |
    /// | next object number | u64 |
    /// | next record number | u64 |
    /// | log position | u64 |
    /// | frame number | u64 |
    /// | metadata blocks | u64 |
    /// | chain | u32 |
    /// | trees | var |
    /// | · shard | u8 |
    /// | · level | u8 |
    /// | · root page | pointer |
    /// | index pages | var |
    /// | · number | var |
    /// | · block | u64 |
    /// | · crc | u32 |
    /// | compat | u64 if features |
    /// | read-only compat | u64 if features |
    /// | incompat | u64 if features |
    /// | crc | u32 |
    pub(crate) fn encode(&self, uuid: &Uuid, copy: u64) -> Option<Bytes> {
        let mut w = Vec::with_capacity(512);
        w.u32(ROOT_MAGIC);
        w.u32(0);
        w.extend_from_slice(&uuid.0);
        w.u16(self.ring);
        w.u8(copy as u8);
        w.u8(0);
        w.u32(self.layout_epoch);
        for v in [self.seq, self.next_nid, self.next_lsn, self.log_pos, self.log_seq, self.page_blocks as u64] {
            w.u64(v);
        }
        w.u32(self.log_chain);
        w.var(self.trees.len() as u64);
        for (shard, level, loc) in &self.trees {
            w.u8(*shard);
            w.u8(*level);
            loc.encode(&mut w);
        }
        w.var(self.used.len() as u64);
        for (i, at) in &self.used {
            w.var(u64::from(*i));
            w.u64(at.block);
            w.u32(at.crc);
        }
        if self.features.any() {
            w.extend_from_slice(&self.features.to_bytes());
        }
        (w.len() + 4 <= (ROOT_BLOCKS * BLOCK) as usize).then(|| seal(w, 4, ROOT_BLOCKS))
    }

    /// Decodes the root in a slot, if it is valid and belongs there.
    pub(crate) fn decode(buf: &[u8], uuid: &Uuid, ring: u16, copy: u64, layout: &Layout) -> Option<Self> {
        let mut r = Get::new(unseal(buf, 4)?);
        if r.u32().ok()? != ROOT_MAGIC {
            return None;
        }
        r.u32().ok()?;
        if r.array::<16>().ok()? != uuid.0 || r.u16().ok()? != ring || u64::from(r.u8().ok()?) != copy {
            return None;
        }
        r.u8().ok()?;
        let layout_epoch = r.u32().ok()?;
        let (seq, next_nid, next_lsn) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
        let (log_pos, log_seq, page_blocks) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()? as i64);
        let counts = [seq, next_lsn, log_seq, next_nid, page_blocks.unsigned_abs()];
        if counts.iter().any(|n| *n > COUNT_MAX) || layout_epoch > EPOCH_MAX {
            return None;
        }
        let log_chain = r.u32().ok()?;
        let mut trees: Vec<(u8, u8, BlobPtr)> = Vec::new();
        for _ in 0..r.count(8).ok()? {
            let (shard, level) = (r.u8().ok()?, r.u8().ok()?);
            let loc = BlobPtr::decode(&mut r, layout).ok()?;
            let fits = u16::from(shard) < SHARDS && (1..=LEVEL_MAX).contains(&level) && loc.len > 0;
            if !fits || trees.iter().any(|t| t.0 == shard) {
                return None;
            }
            trees.push((shard, level, loc));
        }
        let mut used = Vec::new();
        for _ in 0..r.count(13).ok()? {
            let i = u32::try_from(r.var().ok()?).ok()?;
            let at = BlockPtr { block: r.u64().ok()?, crc: r.u32().ok()? };
            let fits = (i as usize) < INDEX_MAX && at.block >= layout.space_start && at.block < layout.space_end;
            if !fits {
                return None;
            }
            used.push((i, at));
        }
        let mut features = FeatureWords::default();
        if r.rest() > 0 {
            features = FeatureWords { compat: r.u64().ok()?, ro_compat: r.u64().ok()?, incompat: r.u64().ok()? };
        }
        Some(Self {
            features,
            seq,
            layout_epoch,
            ring,
            next_nid,
            next_lsn,
            log_pos,
            log_seq,
            log_chain,
            page_blocks,
            trees,
            used,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_decodes_only_in_its_slot() {
        let mut s = Superblock {
            version: FORMAT_VERSION_PLAIN,
            features: FeatureWords::default(),
            seq: 5,
            uuid: Uuid([7; 16]),
            bytes: 1 << 30,
            grown: 0,
            shards: SHARDS,
            rings: 2,
            layout_epoch: 1,
            labels: Labels::new(),
        };
        s.labels.insert("whoami".into(), Bytes::from_static(b"3"));
        let b = s.encode(1);
        assert_eq!(Superblock::decode(&b, 1), Ok(s.clone()));
        assert_eq!(Superblock::decode(&b, 3), Err(NotSuper::None));
        for i in [0, 17, 30, 60, 80] {
            let mut x = b.to_vec();
            x[i] ^= 1;
            assert_eq!(Superblock::decode(&x, 1), Err(NotSuper::None), "byte {i}");
        }
        let last = Superblock { layout_epoch: u32::MAX, ..s.clone() };
        assert_eq!(Superblock::decode(&last.encode(1), 1), Err(NotSuper::None));
        s.grown = 3 << 30;
        assert_eq!(Superblock::decode(&s.encode(1), 1), Ok(s.clone()));
        s.features = FeatureWords { compat: 1 << 40, ro_compat: 1 << 41, incompat: 0 };
        s.version = FORMAT_VERSION;
        assert_eq!(Superblock::decode(&s.encode(1), 1), Ok(s.clone()), "reading is possible");
        s.features.incompat = 1 << 63;
        let newer = Newer { bits: 1 << 63, readable: false };
        assert_eq!(Superblock::decode(&s.encode(1), 1), Err(NotSuper::Newer(newer)));
        s.features = FeatureWords::default();
        for version in [1, FORMAT_VERSION + 1] {
            s.version = version;
            assert_eq!(Superblock::decode(&s.encode(1), 1), Err(NotSuper::Version(version)));
        }
    }

    #[test]
    fn the_root_of_the_largest_device_fits_its_slot() {
        let layout = Layout::of(crate::layout::DEVICE_BYTES_MAX).unwrap();
        let index = layout.space_end.div_ceil(crate::meta::used::INDEX_SPAN) as u32;
        assert!(index as usize <= INDEX_MAX);
        // Each tree's root has two pieces.
        let far = layout.space_end - 8;
        let tree =
            |shard| (shard, 4, BlobPtr { runs: smallvec::smallvec![(far, 2), (far + 4, 2)], len: 16384, crc: 1 });
        let r = Root {
            seq: COUNT_MAX,
            layout_epoch: EPOCH_MAX,
            ring: 0,
            next_nid: COUNT_MAX,
            next_lsn: COUNT_MAX,
            log_pos: 6,
            log_seq: COUNT_MAX,
            log_chain: 8,
            page_blocks: 10,
            trees: (0..SHARDS as u8).map(tree).collect(),
            features: FeatureWords::default(),
            used: (0..index).map(|i| (i, BlockPtr { block: far, crc: 3 })).collect(),
        };
        let u = Uuid([1; 16]);
        assert_eq!(Root::decode(&r.encode(&u, 0).unwrap(), &u, 0, 0, &layout), Some(r));
    }

    #[test]
    fn a_root_decodes_only_in_its_slot() {
        let layout = Layout::of(1 << 30).unwrap();
        let table = BlobPtr { runs: smallvec::smallvec![(layout.space_start, 2)], len: 5000, crc: 1 };
        let r = Root {
            seq: 9,
            layout_epoch: 1,
            ring: 3,
            next_nid: 4,
            next_lsn: 5,
            log_pos: 6,
            log_seq: 7,
            log_chain: 8,
            page_blocks: 10,
            trees: vec![(3, 1, table)],
            features: FeatureWords::default(),
            used: vec![(0, BlockPtr { block: layout.space_start, crc: 3 })],
        };
        let u = Uuid([1; 16]);
        let b = r.encode(&u, 1).unwrap();
        assert_eq!(Root::decode(&b, &u, 3, 1, &layout), Some(r.clone()));
        let runs = (0..5000).map(|i| (layout.space_start + 2 * i, 1)).collect();
        let table = BlobPtr { runs, len: 5000 << 12, crc: 1 };
        assert!(Root { trees: vec![(3, 1, table)], ..r.clone() }.encode(&u, 1).is_none(), "longer than a slot");
        for last in [Root { seq: u64::MAX, ..r.clone() }, Root { page_blocks: i64::MIN, ..r }] {
            assert_eq!(Root::decode(&last.encode(&u, 1).unwrap(), &u, 3, 1, &layout), None);
        }
        assert_eq!(Root::decode(&b, &u, 3, 0, &layout), None);
        assert_eq!(Root::decode(&b, &u, 2, 1, &layout), None);
        assert_eq!(Root::decode(&b, &Uuid([2; 16]), 3, 1, &layout), None);
    }
}
