//! Changes of metadata in the form of the log: the physical form of a transaction's operations.
//!
//! A record is a sequence of changes. A change omits collection and object if they equal those of the change
//! before.

use super::map::{BLOCKS_MAX, UNKEPT, valid_run};
use crate::codec::{Get, Malformed, Put};
use crate::key::{Cid, Oid};
use crate::layout::{BLOCK, Layout, SHARDS, shard_for};
use crate::space::Runs;
use base::Eversion;
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;

/// A change of metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Creates a collection with record number `num`, in the shard of its name or in another shard of the same
    /// reactor.
    MakeCollection {
        cid: Cid,
        bits: u32,
        num: u64,
        shard: u8,
    },
    /// Creates a collection with record number `num` in the shard of `beside`.
    MakeBeside {
        cid: Cid,
        beside: Cid,
        bits: u32,
        num: u64,
    },
    RemoveCollection {
        cid: Cid,
    },
    /// Splits a collection; `num` is the record number of `dst`.
    Split {
        cid: Cid,
        dst: Cid,
        first: u32,
        bits: u32,
        num: u64,
    },
    Merge {
        cid: Cid,
        dst: Cid,
        first: u32,
        bits: u32,
    },
    LogAppend {
        cid: Cid,
        version: Eversion,
        entry: Bytes,
    },
    LogTrim {
        cid: Cid,
        to: Eversion,
    },
    LogRewind {
        cid: Cid,
        to: Eversion,
    },
    Info {
        cid: Cid,
        info: Bytes,
    },
    /// Keeps the blocks that the rest of the record replaces in the collection, in the undo record of this
    /// version.
    Keep {
        cid: Cid,
        version: Eversion,
    },
    /// Drops the undo records up to a version.
    DropKept {
        cid: Cid,
        to: Eversion,
    },
    /// Restores the object from the existing undo record of a version. `size` is its size afterwards.
    Undo {
        cid: Cid,
        oid: Oid,
        version: Eversion,
        size: u64,
    },
    /// Creates an object with number `nid`, which also seeds its checksums.
    Create {
        cid: Cid,
        oid: Oid,
        nid: u64,
    },
    /// Replaces `dst` by a clone of `src`; `nid` is the number of the clone.
    Clone {
        cid: Cid,
        src: Oid,
        dst: Oid,
        nid: u64,
    },
    Rename {
        cid: Cid,
        src: Oid,
        dst: Oid,
    },
    Remove {
        cid: Cid,
        oid: Oid,
    },
    /// Maps blocks `[block, block + n)` of `dst` to those of `src`; `size` is the new size of `dst`.
    Share {
        cid: Cid,
        src: Oid,
        dst: Oid,
        block: u64,
        n: u64,
        size: u64,
    },
    /// A change of an existing object.
    OfObject {
        cid: Cid,
        oid: Oid,
        what: What,
    },
}

/// Change of an object itself. Sizes are those after the change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Maps the object's blocks, from `block` on, to the device blocks of `runs`.
    Map {
        block: u64,
        runs: Runs,
        crcs: SmallVec<[u32; 2]>,
        version: u32,
        size: u64,
    },
    /// Unmaps blocks.
    Unmap {
        block: u64,
        n: u64,
        size: u64,
    },
    SetAttrs {
        attrs: Vec<(Bytes, Bytes)>,
    },
    RmAttr {
        name: Bytes,
    },
    RmAttrs,
    OmapSet {
        entries: Vec<(Bytes, Bytes)>,
    },
    OmapRmKeys {
        keys: Vec<Bytes>,
    },
    OmapRmRange {
        first: Bytes,
        last: Bytes,
    },
    OmapClear,
    OmapHeader {
        header: Bytes,
    },
    Hint {
        size: u64,
        write: u64,
        flags: u32,
    },
}

/// Tags of the changes, and the fields after tag, collection and object. The tags named here are of collections alone
/// and were assigned after those of objects.
///
/// | change | tag | object | fields |
/// | --- | --- | --- | --- |
/// | MakeCollection | 1 | | bits u32, number u64 |
/// | RemoveCollection | 2 | | |
/// | LogAppend | 3 | | version version, entry bytes |
/// | LogTrim | 4 | | to version |
/// | LogRewind | 5 | | to version |
/// | Info | 6 | | info bytes |
/// | Create | 7 | yes | number u64 |
/// | Clone | 8 | source | target name, number u64 |
/// | Rename | 9 | source | target name |
/// | Remove | 10 | yes | |
/// | Share | 11 | source | target name, block var, blocks var, size var |
/// | Undo | 12 | yes | version version, size var |
/// | Map | 16 | yes | block var, size var, version u32, runs var, · device block var, · blocks var, + crc u32 |
/// | Unmap | 17 | yes | block var, blocks var, size var |
/// | SetAttrs | 18 | yes | attributes var, · name bytes, · value bytes |
/// | RmAttr | 19 | yes | name bytes |
/// | RmAttrs | 20 | yes | |
/// | OmapSet | 21 | yes | entries var, · key bytes, · value bytes |
/// | OmapRmKeys | 22 | yes | keys var, · key bytes |
/// | OmapRmRange | 23 | yes | first bytes, last bytes |
/// | OmapClear | 24 | yes | |
/// | OmapHeader | 25 | yes | header bytes |
/// | Hint | 26 | yes | object size u64, write size u64, flags u32 |
/// | Split | 32 | | target cid, first hash u32, bits u32, number u64 |
/// | Merge | 33 | | target cid, first hash u32, bits u32 |
/// | MakeBeside | 34 | | beside cid, bits u32, number u64 |
/// | MakeElsewhere | 35 | | bits u32, number u64, shard u8 |
/// | Keep | 36 | | version version |
/// | DropKept | 37 | | to version |
const TAG_LOG_APPEND: u8 = 3;
const TAG_SPLIT: u8 = 32;
const TAG_MERGE: u8 = 33;
const TAG_BESIDE: u8 = 34;
/// Tag of a collection that is created in another shard than its name says.
const TAG_ELSEWHERE: u8 = 35;
const TAG_KEEP: u8 = 36;
const TAG_DROP_KEPT: u8 = 37;
const SAME_CID: u8 = 0x80;
const SAME_OID: u8 = 0x40;

impl Change {
    pub(crate) fn cid(&self) -> Cid {
        match self {
            Self::MakeCollection { cid, .. }
            | Self::MakeBeside { cid, .. }
            | Self::RemoveCollection { cid }
            | Self::Split { cid, .. }
            | Self::Merge { cid, .. }
            | Self::LogAppend { cid, .. }
            | Self::LogTrim { cid, .. }
            | Self::LogRewind { cid, .. }
            | Self::Info { cid, .. }
            | Self::Create { cid, .. }
            | Self::Clone { cid, .. }
            | Self::Rename { cid, .. }
            | Self::Remove { cid, .. }
            | Self::Share { cid, .. }
            | Self::Keep { cid, .. }
            | Self::DropKept { cid, .. }
            | Self::Undo { cid, .. }
            | Self::OfObject { cid, .. } => *cid,
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::MakeCollection { cid, shard, .. } if u16::from(*shard) == shard_for(*cid, SHARDS) => 1,
            Self::MakeCollection { .. } => TAG_ELSEWHERE,
            Self::RemoveCollection { .. } => 2,
            Self::LogAppend { .. } => TAG_LOG_APPEND,
            Self::LogTrim { .. } => 4,
            Self::LogRewind { .. } => 5,
            Self::Info { .. } => 6,
            Self::Create { .. } => 7,
            Self::Clone { .. } => 8,
            Self::Rename { .. } => 9,
            Self::Remove { .. } => 10,
            Self::Share { .. } => 11,
            Self::Undo { .. } => 12,
            Self::Keep { .. } => TAG_KEEP,
            Self::DropKept { .. } => TAG_DROP_KEPT,
            Self::OfObject { what, .. } => what.tag(),
            Self::Split { .. } => TAG_SPLIT,
            Self::Merge { .. } => TAG_MERGE,
            Self::MakeBeside { .. } => TAG_BESIDE,
        }
    }

    /// The object that the encoding omits if it equals that of the change before.
    fn oid(&self) -> Option<&Oid> {
        match self {
            Self::Create { oid, .. }
            | Self::Remove { oid, .. }
            | Self::Undo { oid, .. }
            | Self::OfObject { oid, .. } => Some(oid),
            Self::Clone { src, .. } | Self::Rename { src, .. } | Self::Share { src, .. } => Some(src),
            _ => None,
        }
    }
}

/// Positions of the last collection and object in a record.
pub(crate) type Marks = (Range<usize>, Range<usize>);

/// Encoder of one record.
pub(crate) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    cid: Range<usize>,
    oid: Range<usize>,
    /// The collection at `cid` and the name at `oid`, unless the record was continued since.
    last: Option<Cid>,
    shared: Option<Oid>,
}

fn pairs(w: &mut Vec<u8>, p: &[(Bytes, Bytes)]) {
    w.var(p.len() as u64);
    for (k, v) in p {
        w.bytes(k);
        w.bytes(v);
    }
}

impl<'a> Encoder<'a> {
    /// Continues a record for which [`Encoder::marks`] were taken.
    pub(crate) fn go_on(out: &'a mut Vec<u8>, marks: Marks) -> Self {
        Self { out, cid: marks.0, oid: marks.1, last: None, shared: None }
    }

    pub(crate) fn marks(self) -> Marks {
        (self.cid, self.oid)
    }

    /// Drops the bytes just written at `from..` if they repeat `last`; else makes them the new `last`.
    fn elide(w: &mut Vec<u8>, tag_at: usize, from: usize, last: &mut Range<usize>, bit: u8) {
        if last.start < last.end && w.get(last.clone()) == w.get(from..) {
            w.truncate(from);
            w[tag_at] |= bit;
        } else {
            *last = from..w.len();
        }
    }

    fn head(&mut self, tag: u8, cid: Cid, oid: Option<&Oid>) {
        let w = &mut *self.out;
        let tag_at = w.len();
        // Nearly all changes of a transaction share the collection, and most the name.
        if self.last == Some(cid) {
            w.u8(tag | SAME_CID);
        } else {
            w.u8(tag);
            let at = w.len();
            w.cid(cid);
            Self::elide(w, tag_at, at, &mut self.cid, SAME_CID);
            self.last = Some(cid);
        }
        if let Some(oid) = oid {
            if self.shared.as_ref().is_some_and(|last| last.is_same(oid)) {
                w[tag_at] |= SAME_OID;
                return;
            }
            let at = w.len();
            w.oid(oid);
            Self::elide(w, tag_at, at, &mut self.oid, SAME_OID);
            self.shared = Some(oid.clone());
        }
    }

    /// Like [`Encoder::put`] of a [`Change::OfObject`].
    pub(crate) fn put_object(&mut self, cid: Cid, oid: &Oid, what: &What) {
        self.head(what.tag(), cid, Some(oid));
        what.encode(self.out);
    }

    /// Like [`Encoder::put`] of a [`Change::LogAppend`].
    pub(crate) fn put_log(&mut self, cid: Cid, version: Eversion, entry: &[u8]) {
        self.head(TAG_LOG_APPEND, cid, None);
        self.out.version(version);
        self.out.bytes(entry);
    }

    pub(crate) fn put(&mut self, c: &Change) {
        self.head(c.tag(), c.cid(), c.oid());
        let w = &mut *self.out;
        match c {
            Change::MakeCollection { bits, num, shard, .. } => {
                w.u32(*bits);
                w.u64(*num);
                if c.tag() == TAG_ELSEWHERE {
                    w.u8(*shard);
                }
            }
            Change::MakeBeside { beside, bits, num, .. } => {
                w.cid(*beside);
                w.u32(*bits);
                w.u64(*num);
            }
            Change::RemoveCollection { .. } | Change::Remove { .. } => {}
            Change::Split { dst, first, bits, num, .. } => {
                w.cid(*dst);
                w.u32(*first);
                w.u32(*bits);
                w.u64(*num);
            }
            Change::Merge { dst, first, bits, .. } => {
                w.cid(*dst);
                w.u32(*first);
                w.u32(*bits);
            }
            Change::LogAppend { version, entry, .. } => {
                w.version(*version);
                w.bytes(entry);
            }
            Change::LogTrim { to: version, .. }
            | Change::LogRewind { to: version, .. }
            | Change::DropKept { to: version, .. }
            | Change::Keep { version, .. } => w.version(*version),
            Change::Undo { version, size, .. } => {
                w.version(*version);
                w.var(*size);
            }
            Change::Info { info, .. } => w.bytes(info),
            Change::Create { nid, .. } => w.u64(*nid),
            Change::Clone { dst, nid, .. } => {
                w.oid(dst);
                w.u64(*nid);
            }
            Change::Rename { dst, .. } => w.oid(dst),
            Change::Share { dst, block, n, size, .. } => {
                w.oid(dst);
                w.var(*block);
                w.var(*n);
                w.var(*size);
            }
            Change::OfObject { what, .. } => what.encode(w),
        }
    }
}

impl What {
    fn tag(&self) -> u8 {
        match self {
            Self::Map { .. } => 16,
            Self::Unmap { .. } => 17,
            Self::SetAttrs { .. } => 18,
            Self::RmAttr { .. } => 19,
            Self::RmAttrs => 20,
            Self::OmapSet { .. } => 21,
            Self::OmapRmKeys { .. } => 22,
            Self::OmapRmRange { .. } => 23,
            Self::OmapClear => 24,
            Self::OmapHeader { .. } => 25,
            Self::Hint { .. } => 26,
        }
    }

    fn encode(&self, w: &mut Vec<u8>) {
        match self {
            Self::Map { block, runs, crcs, version, size } => {
                w.var(*block);
                w.var(*size);
                w.u32(*version);
                w.var(runs.len() as u64);
                for (p, n) in runs {
                    w.var(*p);
                    w.var(u64::from(*n));
                }
                for c in crcs {
                    w.u32(*c);
                }
            }
            Self::Unmap { block, n, size } => {
                w.var(*block);
                w.var(*n);
                w.var(*size);
            }
            Self::SetAttrs { attrs: p } | Self::OmapSet { entries: p } => pairs(w, p),
            Self::RmAttr { name } => w.bytes(name),
            Self::RmAttrs | Self::OmapClear => {}
            Self::OmapRmKeys { keys } => {
                w.var(keys.len() as u64);
                for k in keys {
                    w.bytes(k);
                }
            }
            Self::OmapRmRange { first, last } => {
                w.bytes(first);
                w.bytes(last);
            }
            Self::OmapHeader { header } => w.bytes(header),
            Self::Hint { size, write, flags } => {
                w.u64(*size);
                w.u64(*write);
                w.u32(*flags);
            }
        }
    }
}

fn get_pairs(r: &mut Get<'_>) -> Result<Vec<(Bytes, Bytes)>, Malformed> {
    let n = r.count(2)?;
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        out.push((r.bytes()?, r.bytes()?));
    }
    Ok(out)
}

/// Decodes the changes of one record.
pub(crate) fn decode(buf: &[u8], layout: &Layout) -> Result<Vec<Change>, Malformed> {
    let mut r = Get::new(buf);
    let mut out = Vec::new();
    let (mut last_cid, mut last_oid): (Option<Cid>, Option<Oid>) = (None, None);
    while r.rest() > 0 {
        let tag = r.u8()?;
        let cid = match last_cid {
            Some(c) if tag & SAME_CID != 0 => c,
            None if tag & SAME_CID != 0 => return r.bad(),
            _ => r.cid()?,
        };
        last_cid = Some(cid);
        let kind = tag & !(SAME_CID | SAME_OID);
        let oid = if (7..TAG_SPLIT).contains(&kind) {
            let o = match &last_oid {
                Some(o) if tag & SAME_OID != 0 => o.clone(),
                None if tag & SAME_OID != 0 => return r.bad(),
                _ => r.oid()?,
            };
            last_oid = Some(o.clone());
            Some(o)
        } else {
            None
        };
        let change = match (kind, oid) {
            (1, _) => {
                let shard = shard_for(cid, SHARDS) as u8;
                Change::MakeCollection { cid, bits: r.u32()?, num: r.u64()?, shard }
            }
            (TAG_ELSEWHERE, _) => {
                let (bits, num, shard) = (r.u32()?, r.u64()?, r.u8()?);
                if u16::from(shard) >= SHARDS {
                    return r.bad();
                }
                Change::MakeCollection { cid, bits, num, shard }
            }
            (2, _) => Change::RemoveCollection { cid },
            (3, _) => Change::LogAppend { cid, version: r.version()?, entry: r.bytes()? },
            (4, _) => Change::LogTrim { cid, to: r.version()? },
            (5, _) => Change::LogRewind { cid, to: r.version()? },
            (6, _) => Change::Info { cid, info: r.bytes()? },
            (TAG_SPLIT, _) => Change::Split { cid, dst: r.cid()?, first: r.u32()?, bits: r.u32()?, num: r.u64()? },
            (TAG_MERGE, _) => Change::Merge { cid, dst: r.cid()?, first: r.u32()?, bits: r.u32()? },
            (TAG_DROP_KEPT, _) => Change::DropKept { cid, to: r.version()? },
            (TAG_KEEP, _) => Change::Keep { cid, version: r.version()? },
            (12, Some(oid)) => Change::Undo { cid, oid, version: r.version()?, size: size(&mut r)? },
            (TAG_BESIDE, _) => Change::MakeBeside { cid, beside: r.cid()?, bits: r.u32()?, num: r.u64()? },
            (7, Some(oid)) => Change::Create { cid, oid, nid: r.u64()? },
            (8, Some(src)) => Change::Clone { cid, src, dst: r.oid()?, nid: r.u64()? },
            (9, Some(src)) => Change::Rename { cid, src, dst: r.oid()? },
            (10, Some(oid)) => Change::Remove { cid, oid },
            (11, Some(src)) => {
                let dst = r.oid()?;
                let (block, n) = blocks(&mut r)?;
                Change::Share { cid, src, dst, block, n, size: size(&mut r)? }
            }
            (_, Some(oid)) => Change::OfObject { cid, oid, what: What::decode(kind, &mut r, layout)? },
            _ => return r.bad(),
        };
        out.push(change);
    }
    Ok(out)
}

fn size(r: &mut Get<'_>) -> Result<u64, Malformed> {
    let s = r.var()?;
    if s > BLOCKS_MAX * BLOCK { r.bad() } else { Ok(s) }
}

fn blocks(r: &mut Get<'_>) -> Result<(u64, u64), Malformed> {
    let (b, n) = (r.var()?, r.var()?);
    if b.saturating_add(n) > BLOCKS_MAX { r.bad() } else { Ok((b, n)) }
}

impl What {
    fn decode(kind: u8, r: &mut Get<'_>, layout: &Layout) -> Result<Self, Malformed> {
        Ok(match kind {
            16 => {
                let block = r.var()?;
                let size = size(r)?;
                let version = r.u32()?;
                let mut runs = Runs::new();
                let mut total = 0u64;
                for _ in 0..r.count(2)? {
                    let (p, n) = (r.var()?, r.var()?);
                    total = total.saturating_add(n);
                    if !valid_run(layout, p, n, u64::from(version & !UNKEPT))
                        || n == 0
                        || n > u64::from(u32::MAX)
                        || total * 4 > r.rest() as u64
                    {
                        return r.bad();
                    }
                    runs.push((p, n as u32));
                }
                if block.saturating_add(total) > BLOCKS_MAX {
                    return r.bad();
                }
                let mut crcs = SmallVec::with_capacity(total as usize);
                for _ in 0..total {
                    crcs.push(r.u32()?);
                }
                Self::Map { block, runs, crcs, version, size }
            }
            17 => {
                let (block, n) = blocks(r)?;
                Self::Unmap { block, n, size: size(r)? }
            }
            18 => Self::SetAttrs { attrs: get_pairs(r)? },
            19 => Self::RmAttr { name: r.bytes()? },
            20 => Self::RmAttrs,
            21 => Self::OmapSet { entries: get_pairs(r)? },
            22 => {
                let n = r.count(1)?;
                Self::OmapRmKeys { keys: (0..n).map(|_| r.bytes()).collect::<Result<_, _>>()? }
            }
            23 => Self::OmapRmRange { first: r.bytes()?, last: r.bytes()? },
            24 => Self::OmapClear,
            25 => Self::OmapHeader { header: r.bytes()? },
            26 => Self::Hint { size: r.u64()?, write: r.u64()?, flags: r.u32()? },
            _ => return r.bad(),
        })
    }
}

/// A sample of each kind of change, all of one object in one collection.
#[cfg(test)]
pub(crate) fn samples(layout: &Layout) -> Vec<Change> {
    use base::{HObject, PgId};
    let cid = Cid::Pg(PgId::new(2, 3).into());
    let oid = Oid::new(HObject { oid: Bytes::from_static(b"a-rather-long-object-name"), ..HObject::min() });
    let of = |what| Change::OfObject { cid, oid: oid.clone(), what };
    let b = Bytes::from_static;
    let s = layout.space_start;
    vec![
        Change::MakeCollection { cid, bits: 4, num: 9, shard: shard_for(cid, SHARDS) as u8 },
        Change::MakeCollection { cid, bits: 4, num: 9, shard: 31 },
        Change::MakeBeside { cid, beside: Cid::Pg(PgId::new(2, 7).into()), bits: 2, num: 10 },
        Change::Create { cid, oid: oid.clone(), nid: 77 },
        of(What::Map {
            block: 5,
            runs: smallvec::smallvec![(s, 2), (s + 9, 1)],
            crcs: smallvec::smallvec![1, 2, 3],
            version: 8,
            size: 40000,
        }),
        of(What::Map {
            block: 5,
            runs: smallvec::smallvec![(s, 1), (1, 2)],
            crcs: smallvec::smallvec![1, 0, 0],
            version: 8 | super::map::PACKED,
            size: 40000,
        }),
        of(What::Unmap { block: 1, n: 2, size: 3 }),
        of(What::SetAttrs { attrs: vec![(b(b"k"), b(b"v"))] }),
        of(What::RmAttr { name: b(b"k") }),
        of(What::RmAttrs),
        of(What::OmapSet { entries: vec![(b(b"k"), b(b""))] }),
        of(What::OmapRmKeys { keys: vec![b(b"k"), b(b"l")] }),
        of(What::OmapRmRange { first: b(b"a"), last: b(b"b") }),
        of(What::OmapClear),
        of(What::OmapHeader { header: b(b"h") }),
        of(What::Hint { size: 1, write: 2, flags: 3 }),
        Change::Clone { cid, src: oid.clone(), dst: Oid::new(HObject::max()), nid: 78 },
        Change::Share { cid, src: oid.clone(), dst: Oid::new(HObject::max()), block: 1, n: 2, size: 3 },
        Change::Rename { cid, src: oid.clone(), dst: Oid::new(HObject::max()) },
        Change::Remove { cid, oid: oid.clone() },
        Change::LogAppend { cid, version: Eversion::new(1, 2), entry: b(b"e") },
        Change::LogTrim { cid, to: Eversion::new(1, 1) },
        Change::LogRewind { cid, to: Eversion::new(1, 1) },
        Change::Keep { cid, version: Eversion::new(1, 3) },
        Change::DropKept { cid, to: Eversion::new(1, 2) },
        Change::Undo { cid, oid: oid.clone(), version: Eversion::new(1, 3), size: 5 },
        Change::Info { cid, info: b(b"i") },
        Change::Split { cid, dst: Cid::Pg(PgId::new(2, 7).into()), first: 1 << 31, bits: 3, num: 79 },
        Change::Merge { cid, dst: Cid::Pg(PgId::new(2, 7).into()), first: 1 << 31, bits: 2 },
        Change::RemoveCollection { cid },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_without_repeating_names() {
        let layout = Layout::of(1 << 30).unwrap();
        let all = samples(&layout);
        let mut w = Vec::new();
        let mut e = Encoder::go_on(&mut w, Marks::default());
        for c in &all {
            e.put(c);
        }
        assert_eq!(decode(&w, &layout).unwrap(), all);
        let name = b"a-rather-long-object-name";
        assert_eq!(w.windows(name.len()).filter(|x| x == name).count(), 1);
        let ok = (0..w.len()).filter(|cut| decode(&w[..*cut], &layout).is_ok()).count();
        assert!(ok < all.len() + 1, "only cuts between changes decode");
    }
}
