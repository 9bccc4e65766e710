//! What a scrub found, kept until the next scrub or interval, and told as `rados list-inconsistent-obj` and
//! `list-inconsistent-snapset` read it (`SCRUBLS`).
//!
//! Invariant: no more than [`KEPT_MAX`] findings are kept; the rest is counted only.
//!
//! Facts: `inconsistent_obj_t`, `inconsistent_snapset_t`, `scrub_ls_arg_t`, `scrub_ls_result_t`, `object_info_t` and
//! `SnapSet` as Ceph encodes them.

use super::map::ScrubObject;
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use crate::shards::PeerId;
use base::{Epoch, Eversion, HObject, ReqId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use wire::types::ObjectLocator;
use wire::{Features, Reader, Writer};

/// Findings kept per PG and kind.
pub const KEPT_MAX: usize = 10_000;
/// Most findings of one answer.
pub const LIST_MAX: usize = 1024;

/// Errors of one copy (`err_t`).
pub mod shard_err {
    /// The copy has no such object.
    pub const MISSING: u64 = 1 << 1;
    /// Not even its size can be found out.
    pub const STAT_ERROR: u64 = 1 << 2;
    /// It does not read.
    pub const READ_ERROR: u64 = 1 << 3;
    /// Its size is not what the object info that counts says.
    pub const SIZE_MISMATCH_INFO: u64 = 1 << 11;
    /// It does not fit the other shards of an erasure-coded pool.
    pub const EC_HASH_MISMATCH: u64 = 1 << 12;
    /// It has no object info.
    pub const INFO_MISSING: u64 = 1 << 14;
    /// Its object info does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    /// It should have a snapset and has none.
    pub const SNAPSET_MISSING: u64 = 1 << 16;
    /// Its snapset does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
    /// Its size is not what its own object info says.
    pub const OBJ_SIZE_INFO_MISMATCH: u64 = 1 << 18;
    /// Those only a deep scrub finds.
    pub const DEEP: u64 = READ_ERROR | EC_HASH_MISMATCH;
}

/// Differences between copies of which neither is wrong in itself (`obj_err_t`).
pub mod object_err {
    /// Object infos differ.
    pub const OBJECT_INFO_INCONSISTENCY: u64 = 1 << 1;
    /// Data differs.
    pub const DATA_DIGEST_MISMATCH: u64 = 1 << 4;
    /// Omap differs.
    pub const OMAP_DIGEST_MISMATCH: u64 = 1 << 5;
    /// Sizes differ.
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    /// An attribute differs.
    pub const ATTR_VALUE_MISMATCH: u64 = 1 << 7;
    /// One has an attribute that another lacks.
    pub const ATTR_NAME_MISMATCH: u64 = 1 << 8;
    /// Snapsets differ.
    pub const SNAPSET_INCONSISTENCY: u64 = 1 << 9;
    /// Those only a deep scrub finds.
    pub const DEEP: u64 = DATA_DIGEST_MISMATCH | OMAP_DIGEST_MISMATCH;
}

/// Errors of an object's clones (`inconsistent_snapset_t`).
pub mod snapset_err {
    /// There is no snapset.
    pub const SNAPSET_MISSING: u64 = 1 << 0;
    /// It does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    /// A clone it names is not there.
    pub const CLONE_MISSING: u64 = 1 << 2;
    /// A clone without a head or snapdir.
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    /// A clone is not as large as it says.
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    /// An object without object info.
    pub const INFO_MISSING: u64 = 1 << 7;
    /// One whose object info does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 8;
    /// Clones it does not name.
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// One copy of an object that differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard {
    /// [`shard_err`].
    pub errors: u64,
    /// It is the primary's.
    pub primary: bool,
    /// Its object info is the one that counts.
    pub selected: bool,
    /// What it said.
    pub object: Option<ScrubObject>,
}

/// An object whose copies differ, or of which a copy is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BadObject {
    /// [`object_err`].
    pub errors: u64,
    /// User version of the copy that counts.
    pub version: u64,
    /// All copies.
    pub shards: BTreeMap<PeerId, Shard>,
}

/// An object whose clones are not what its snapset says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BadSnapset {
    /// [`snapset_err`].
    pub errors: u64,
    /// Clones it does not name.
    pub clones: Vec<u64>,
    /// Clones it names that are not there.
    pub missing: Vec<u64>,
    /// The snapset.
    pub snapset: Option<SnapSet>,
}

/// Order of listing: namespace, name, snapshot, then what else names an object.
type Key = (Bytes, Bytes, u64, Bytes, u32);

/// The findings.
#[derive(Debug, Default)]
pub struct Findings {
    objects: BTreeMap<Key, (HObject, BadObject)>,
    snapsets: BTreeMap<Key, (HObject, BadSnapset)>,
}

fn key(h: &HObject) -> Key {
    (h.nspace.clone(), h.oid.clone(), h.snap.0, h.key.clone(), h.hash)
}

impl Findings {
    /// Keeps one.
    pub fn add_object(&mut self, h: HObject, b: BadObject) {
        if self.objects.len() < KEPT_MAX {
            self.objects.insert(key(&h), (h, b));
        }
    }

    /// Keeps one.
    pub fn add_snapset(&mut self, h: HObject, b: BadSnapset) {
        if self.snapsets.len() < KEPT_MAX {
            self.snapsets.insert(key(&h), (h, b));
        }
    }

    /// Objects kept.
    pub fn objects(&self) -> impl Iterator<Item = (&HObject, &BadObject)> {
        self.objects.values().map(|(h, b)| (h, b))
    }

    /// Answers `SCRUBLS`: which interval the answer is of and what there is; `None` if the request does not decode. With
    /// another interval than asked for, nothing is listed and the second is true.
    #[must_use]
    pub fn list(&self, request: &Bytes, interval: Epoch) -> Option<(Bytes, bool)> {
        let mut r = Reader::shared(request);
        let arg = r
            .versioned("scrub_ls_arg_t", 1, |r, _| Ok((r.u32()?, r.u32()?, r.blob()?, r.blob()?, r.u64()?, r.u64()?)))
            .ok()?;
        let (asked, snapsets, name, nspace, snap, max) = arg;
        if asked != 0 && asked != interval.0 {
            return Some((Bytes::new(), true));
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX).min(LIST_MAX);
        let from: Bound<Key> = if name.is_empty() && nspace.is_empty() {
            Bound::Unbounded
        } else {
            // Everything that has this name and snapshot was listed.
            Bound::Excluded((nspace, name, snap, Bytes::from_static(&[0xff; 64]), u32::MAX))
        };
        let range = (from, Bound::Unbounded);
        let vals: Vec<Bytes> = if snapsets != 0 {
            self.snapsets.range(range).take(max).map(|(_, (h, b))| encode_snapset(h, b)).collect()
        } else {
            self.objects.range(range).take(max).map(|(_, (h, b))| encode_object(h, b)).collect()
        };
        let mut w = Writer::with_capacity(Features::PACIFIC, 64 + vals.iter().map(Bytes::len).sum::<usize>());
        w.versioned(1, 1, |w| {
            w.put(&interval);
            w.seq(vals.iter(), |w, v| w.blob(v));
        });
        Some((w.into_bytes(), false))
    }
}

/// `librados::object_id_t`.
fn put_id(w: &mut Writer, h: &HObject) {
    w.versioned(1, 1, |w| {
        w.blob(&h.oid);
        w.blob(&h.nspace);
        w.blob(&h.key);
        w.put(&h.snap);
    });
}

fn encode_object(h: &HObject, b: &BadObject) -> Bytes {
    let mut w = Writer::with_capacity(Features::PACIFIC, 512);
    w.versioned(2, 2, |w| {
        w.u64(b.errors);
        put_id(w, h);
        w.u64(b.version);
        w.seq(b.shards.iter(), |w, (o, s)| {
            w.versioned(1, 1, |w| {
                w.put(&o.osd);
                w.put(&o.shard);
            });
            put_shard(w, h, s);
        });
        w.u64(b.shards.values().fold(0, |e, s| e | s.errors));
    });
    w.into_bytes()
}

/// `librados::shard_info_t`.
fn put_shard(w: &mut Writer, h: &HObject, s: &Shard) {
    w.versioned(3, 3, |w| {
        w.u64(s.errors);
        w.bool(s.primary);
        if s.errors & shard_err::MISSING != 0 {
            return;
        }
        let none = ScrubObject::default();
        let o = s.object.as_ref().unwrap_or(&none);
        w.seq(o.attrs.iter(), |w, a| {
            w.blob(&a.name);
            w.blob(&shown(h, &a.name, a.value.as_ref()));
        });
        w.u64(o.size);
        w.bool(o.omap_digest.is_some());
        w.u32(o.omap_digest.unwrap_or(0));
        w.bool(o.data_digest.is_some());
        w.u32(o.data_digest.unwrap_or(0));
        w.bool(s.selected);
    });
}

/// An attribute as Ceph would have stored it: ours are in formats of our own.
fn shown(h: &HObject, name: &[u8], value: Option<&Bytes>) -> Bytes {
    let Some(v) = value else { return Bytes::new() };
    let ours = match name {
        OI_ATTR => ObjectInfo::from_attr(v).ok().map(|oi| object_info(h, &oi)),
        SS_ATTR => SnapSet::from_attr(v).ok().map(|ss| snapset(&ss)),
        _ => None,
    };
    ours.unwrap_or_else(|| v.clone())
}

fn encode_snapset(h: &HObject, b: &BadSnapset) -> Bytes {
    let mut w = Writer::with_capacity(Features::PACIFIC, 256);
    w.versioned(2, 1, |w| {
        w.u64(b.errors);
        put_id(w, h);
        w.seq(b.clones.iter(), |w, c| w.u64(*c));
        w.seq(b.missing.iter(), |w, c| w.u64(*c));
        w.blob(&b.snapset.as_ref().map(snapset).unwrap_or_default());
    });
    w.into_bytes()
}

/// `object_info_t`.
fn object_info(h: &HObject, oi: &ObjectInfo) -> Bytes {
    const NO_DIGEST: u32 = u32::MAX;
    let mut w = Writer::with_capacity(Features::PACIFIC, 384);
    w.versioned(17, 8, |w| {
        w.put(h);
        w.put(&ObjectLocator {
            pool: h.pool,
            key: h.key.clone(),
            nspace: h.nspace.clone(),
            ..ObjectLocator::default()
        });
        w.u32(0);
        w.put(&oi.version);
        w.put(&Eversion::default());
        w.put(&oi.last_reqid);
        w.u64(oi.size);
        w.put(&oi.mtime);
        if h.snap == SnapId::HEAD {
            w.put(&ReqId::default());
        } else {
            w.u32(0);
        }
        w.u64(oi.truncate_seq.into());
        w.u64(oi.truncate_size);
        // Not lost; watchers as they were told before they had cookies; no tmap.
        w.bool(false);
        w.u32(0);
        w.put(&Eversion { epoch: Epoch(0), version: oi.user_version });
        w.bool(false);
        w.seq(oi.watchers.iter(), |w, ((cookie, who), x)| {
            w.u64(*cookie);
            w.put(who);
            w.versioned(4, 3, |w| {
                w.u64(*cookie);
                w.u32(x.timeout_seconds);
                w.put(&x.addr);
            });
        });
        w.u32(oi.flags);
        w.put(&oi.local_mtime);
        w.u32(NO_DIGEST);
        w.u32(NO_DIGEST);
        w.u64(oi.expected_object_size);
        w.u64(oi.expected_write_size);
        w.u32(oi.alloc_hint_flags);
    });
    w.into_bytes()
}

/// `SnapSet`.
fn snapset(ss: &SnapSet) -> Bytes {
    let mut w = Writer::with_capacity(Features::PACIFIC, 64 + ss.clones.len() * 96);
    w.versioned(3, 2, |w| {
        w.u64(ss.seq);
        w.bool(true);
        let mut snaps: Vec<u64> = ss.clones.iter().flat_map(|c| c.snaps.iter().copied()).collect();
        snaps.sort_unstable_by(|a, b| b.cmp(a));
        w.put(&snaps);
        w.seq(ss.clones.iter(), |w, c| w.u64(c.id));
        w.seq(ss.clones.iter(), |w, c| {
            w.u64(c.id);
            w.seq(c.overlap.as_slice().iter(), |w, (off, len)| {
                w.u64(*off);
                w.u64(*len);
            });
        });
        w.seq(ss.clones.iter(), |w, c| {
            w.u64(c.id);
            w.u64(c.size);
        });
        w.seq(ss.clones.iter(), |w, c| {
            w.u64(c.id);
            w.put(&c.snaps);
        });
    });
    w.into_bytes()
}
