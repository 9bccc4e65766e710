//! Findings of a scrub, kept until the next scrub or interval. They are encoded as `rados list-inconsistent-obj` and
//! `list-inconsistent-snapset` read them (`SCRUBLS`).
//!
//! Invariant: no more than [`KEPT_MAX`] findings are kept; further ones are only counted.
//!
//! Facts: `inconsistent_obj_t`, `inconsistent_snapset_t`, `scrub_ls_arg_t`, `scrub_ls_result_t`, `object_info_t` and
//! `SnapSet` as Ceph encodes them.
//!
//! Tests: `tests/compare.rs` (`findings_are_listed_in_pages_and_bounded`).

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
/// Most findings in one answer.
pub const LIST_MAX: usize = 1024;

/// Errors of one copy (`err_t`).
pub mod shard_err {
    /// The copy lacks the object.
    pub const MISSING: u64 = 1 << 1;
    /// The size of the object can't be read.
    pub const STAT_ERROR: u64 = 1 << 2;
    /// The object can't be read.
    pub const READ_ERROR: u64 = 1 << 3;
    /// The size differs from that of the authoritative object info.
    pub const SIZE_MISMATCH_INFO: u64 = 1 << 11;
    /// The shard does not fit the others of an erasure-coded object.
    pub const EC_HASH_MISMATCH: u64 = 1 << 12;
    /// The object info is missing.
    pub const INFO_MISSING: u64 = 1 << 14;
    /// The object info does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    /// The snapset is missing.
    pub const SNAPSET_MISSING: u64 = 1 << 16;
    /// The snapset does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
    /// The size differs from that of the copy's own object info.
    pub const OBJ_SIZE_INFO_MISMATCH: u64 = 1 << 18;
    /// Errors that only a deep scrub finds.
    pub const DEEP: u64 = READ_ERROR | EC_HASH_MISMATCH;
}

/// Differences between copies that are valid by themselves (`obj_err_t`).
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
    /// A copy has an attribute that another one lacks.
    pub const ATTR_NAME_MISMATCH: u64 = 1 << 8;
    /// Snapsets differ.
    pub const SNAPSET_INCONSISTENCY: u64 = 1 << 9;
    /// Errors that only a deep scrub finds.
    pub const DEEP: u64 = DATA_DIGEST_MISMATCH | OMAP_DIGEST_MISMATCH;
}

/// Errors of an object's clones (`inconsistent_snapset_t`).
pub mod snapset_err {
    /// The snapset is missing.
    pub const SNAPSET_MISSING: u64 = 1 << 0;
    /// The snapset does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    /// A clone of the snapset does not exist.
    pub const CLONE_MISSING: u64 = 1 << 2;
    /// A clone exists without a head or snapdir.
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    /// The size of a clone differs from that in the snapset.
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    /// An object info is missing.
    pub const INFO_MISSING: u64 = 1 << 7;
    /// An object info does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 8;
    /// Clones exist that the snapset does not list.
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// One copy of an inconsistent object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard {
    /// Bits of [`shard_err`].
    pub errors: u64,
    /// True for the primary's copy.
    pub primary: bool,
    /// True if its object info is the authoritative one.
    pub selected: bool,
    /// The copy's report; `None` if the copy lacks the object.
    pub object: Option<ScrubObject>,
}

/// An object with copies that differ or are wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BadObject {
    /// Bits of [`object_err`].
    pub errors: u64,
    /// User version of the authoritative copy.
    pub version: u64,
    /// The reports of all copies.
    pub shards: BTreeMap<PeerId, Shard>,
}

/// An object whose clones do not match its snapset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BadSnapset {
    /// Bits of [`snapset_err`].
    pub errors: u64,
    /// Clones that the snapset does not list.
    pub clones: Vec<u64>,
    /// Clones of the snapset that do not exist.
    pub missing: Vec<u64>,
    /// The snapset, if there is one.
    pub snapset: Option<SnapSet>,
}

/// Order of listing: namespace, name and snapshot, then the rest of the object's identity.
type Key = (Bytes, Bytes, u64, Bytes, u32);

/// The findings of the last scrub.
#[derive(Debug, Default)]
pub struct Findings {
    objects: BTreeMap<Key, (HObject, BadObject)>,
    snapsets: BTreeMap<Key, (HObject, BadSnapset)>,
}

fn key(h: &HObject) -> Key {
    (h.nspace.clone(), h.oid.clone(), h.snap.0, h.key.clone(), h.hash)
}

impl Findings {
    /// Keeps an inconsistent object, unless there are [`KEPT_MAX`].
    pub fn add_object(&mut self, h: HObject, b: BadObject) {
        if self.objects.len() < KEPT_MAX {
            self.objects.insert(key(&h), (h, b));
        }
    }

    /// Keeps an inconsistent snapset, unless there are [`KEPT_MAX`].
    pub fn add_snapset(&mut self, h: HObject, b: BadSnapset) {
        if self.snapsets.len() < KEPT_MAX {
            self.snapsets.insert(key(&h), (h, b));
        }
    }

    /// The inconsistent objects.
    pub fn objects(&self) -> impl Iterator<Item = (&HObject, &BadObject)> {
        self.objects.values().map(|(h, b)| (h, b))
    }

    /// Answers `SCRUBLS` with the interval and the findings; `None` if the request does not decode. If the request
    /// names another interval, the list is empty and the second value is true.
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
            // The caller has all findings of this name and snapshot.
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

/// Encodes a `librados::object_id_t`.
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

/// Encodes a `librados::shard_info_t`.
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

/// An attribute in Ceph's encoding, since the PG's own attributes are stored in other formats.
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

/// Encodes an `object_info_t`.
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
        // Not lost; no watchers in the form without cookies; no tmap.
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

/// Encodes a `SnapSet`.
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
