//! Snapshots of an image: keys `snapshot_<16 hex digits of the id>`, `snap_seq`, `snap_limit`.

use super::header::{change_op_features, require};
use super::types::{MAXSNAP, NOSNAP, Parent, Snap, SnapKind};
use super::{answer, drop_key, feature, get as get_key, must_exist, need, op_feature, put};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_walk, stored_as};
use base::errno::{EBUSY, EDQUOT, EEXIST, EINVAL, EIO, ERANGE, ESTALE};
use base::id::Uuid;
use bytes::Bytes;

const PREFIX: &[u8] = b"snapshot_";
/// End of the range of protection states.
const PROTECTION_LAST: u8 = 3;
const UNPROTECTED: u8 = 0;
/// Length of a format 1 header in bytes.
const V1_HEADER_LEN: u64 = 112;

fn key(id: u64) -> Vec<u8> {
    format!("snapshot_{id:016x}").into_bytes()
}

/// Record of a snapshot; `None` if absent.
pub(super) fn find(c: &mut dyn ObjectCtx, id: u64) -> ClsResult<Option<Snap>> {
    get_key(c, &key(id))
}

/// Record of a snapshot; `ENOENT` if absent.
pub(super) fn load(c: &mut dyn ObjectCtx, id: u64) -> ClsResult<Snap> {
    need(c, &key(id))
}

/// Stores a record. A whole parent in it is moved to the header; the record keeps the overlap.
pub(super) fn store(c: &mut dyn ObjectCtx, mut s: Snap) -> ClsResult<()> {
    if s.parent.exists() {
        let header = get_key::<Parent>(c, b"parent")?.unwrap_or_default();
        if !header.exists() {
            put(c, b"parent", &Parent { overlap: None, ..s.parent.clone() })?;
        }
        s.overlap = s.parent.overlap;
        s.parent = Parent::default();
    }
    put(c, &key(s.id), &s)
}

/// All records in order of their ids.
pub(super) fn all(c: &mut dyn ObjectCtx) -> ClsResult<Vec<Snap>> {
    let mut v = Vec::new();
    omap_walk(c, PREFIX, PREFIX, |_, b| {
        v.push(stored_as(&b)?);
        Ok(true)
    })?;
    Ok(v)
}

/// Snapshot ids in ascending order, from the keys.
fn ids(c: &mut dyn ObjectCtx) -> ClsResult<Vec<u64>> {
    let mut v = Vec::new();
    omap_walk(c, PREFIX, PREFIX, |k, _| {
        let digits = std::str::from_utf8(&k[PREFIX.len()..]).ok();
        match digits.and_then(|d| u64::from_str_radix(d, 16).ok()) {
            Some(id) => v.push(id),
            None => return fail(EIO),
        }
        Ok(true)
    })?;
    Ok(v)
}

fn snap_input(i: &Bytes) -> ClsResult<u64> {
    input(i, |r| r.u64())
}

/// The record of the snapshot named in the input, which must not be the head.
fn load_input(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Snap> {
    let id = snap_input(i)?;
    if id == NOSNAP {
        return fail(EINVAL);
    }
    load(c, id)
}

pub(super) fn get_snapcontext(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut v = ids(c)?;
    v.reverse();
    let seq: u64 = need(c, b"snap_seq")?;
    answer(&(seq, v))
}

pub(super) fn get_snapshot_name(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    answer(&load_input(c, i)?.name)
}

pub(super) fn get_snapshot_timestamp(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    answer(&load_input(c, i)?.time)
}

/// Returns a `cls::rbd::SnapshotInfo`.
pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let s = load_input(c, i)?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.u64(s.id);
            w.put(&s.kind);
            w.blob(&s.name);
            w.u64(s.size);
            w.put(&s.time);
            w.u32(s.children);
        });
    })
    .into())
}

pub(super) fn get_protection_status(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    must_exist(c)?;
    let s = load_input(c, i)?;
    if s.protection >= PROTECTION_LAST { fail(EIO) } else { answer(&s.protection) }
}

pub(super) fn set_protection_status(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, status) = input(i, |r| Ok((r.u64()?, r.u8()?)))?;
    must_exist(c)?;
    require(c, feature::LAYERING)?;
    if id == NOSNAP || status >= PROTECTION_LAST {
        return fail(EINVAL);
    }
    let mut s = load(c, id)?;
    s.protection = status;
    store(c, s).map(Output::from)
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, id, kind) =
        input(i, |r| Ok((r.blob()?, r.u64()?, if r.is_empty() { SnapKind::User } else { r.get::<SnapKind>()? })))?;
    if kind == SnapKind::Unknown || id > MAXSNAP {
        return fail(EINVAL);
    }
    // A smaller id means that another client made a snapshot first.
    if id < need(c, b"snap_seq")? {
        return fail(ESTALE);
    }
    let size: u64 = need(c, b"size")?;
    let flags = get_key::<u64>(c, b"flags")?.unwrap_or(0);
    let limit = get_key::<u64>(c, b"snap_limit")?.unwrap_or(u64::MAX);
    for (n, old) in all(c)?.into_iter().enumerate() {
        if n as u64 + 1 >= limit {
            return fail(EDQUOT);
        }
        if old.id == id || (old.name == name && old.kind == kind) {
            return fail(EEXIST);
        }
    }
    let parent = get_key::<Parent>(c, b"parent")?.unwrap_or_default();
    if matches!(kind, SnapKind::Trash { .. }) {
        change_op_features(c, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    }
    put(c, b"snap_seq", &id)?;
    let time = c.now();
    let s = Snap { id, name, size, protection: UNPROTECTED, parent, flags, time, kind, children: 0, overlap: None };
    store(c, s).map(Output::from)
}

pub(super) fn rename(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, name) = input(i, |r| Ok((r.u64()?, r.blob()?)))?;
    if all(c)?.iter().any(|s| s.kind == SnapKind::User && s.name == name) {
        return fail(EEXIST);
    }
    let mut s = load(c, id)?;
    if s.kind != SnapKind::User {
        return fail(EINVAL);
    }
    s.name = name;
    store(c, s).map(Output::from)
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = snap_input(i)?;
    let s = load(c, id)?;
    if s.protection != UNPROTECTED || s.children > 0 {
        return fail(EBUSY);
    }
    let others: Vec<_> = all(c)?.into_iter().filter(|o| o.id != id).collect();
    drop_key(c, &key(id))?;
    let some_show_parent = others.iter().any(Snap::has_parent);
    let parent = get_key::<Parent>(c, b"parent")?.filter(Parent::exists);
    let head_shows_parent = parent.as_ref().is_some_and(|p| p.overlap.is_some());
    if parent.is_some() && !head_shows_parent && !some_show_parent {
        drop_key(c, b"parent")?;
    }
    let mut off = 0;
    if !some_show_parent && !head_shows_parent {
        off |= op_feature::CLONE_CHILD;
    }
    if !others.iter().any(|o| matches!(o.kind, SnapKind::Trash { .. })) {
        off |= op_feature::SNAP_TRASH;
    }
    if off != 0 {
        change_op_features(c, 0, off)?;
    }
    Ok(Output::default())
}

/// Moves a snapshot that still has clones to the trash, under a random name.
pub(super) fn trash_add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut s = load(c, snap_input(i)?)?;
    if s.protection != UNPROTECTED {
        return fail(EBUSY);
    }
    if matches!(s.kind, SnapKind::Trash { .. }) {
        return fail(EEXIST);
    }
    change_op_features(c, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    s.kind = SnapKind::Trash { kind: s.kind.code(), name: s.name };
    s.name = random_uuid(c);
    store(c, s).map(Output::from)
}

/// A random UUID as text.
pub(super) fn random_uuid(c: &mut dyn ObjectCtx) -> Bytes {
    let bits = (u128::from(c.random()) << 64) | u128::from(c.random());
    Uuid::from_random(bits.to_be_bytes()).to_string().into()
}

pub(super) fn get_limit(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&get_key::<u64>(c, b"snap_limit")?.unwrap_or(u64::MAX))
}

pub(super) fn set_limit(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let limit = input(i, |r| r.u64())?;
    if limit == u64::MAX {
        return c.omap_rm(b"snap_limit").map(Output::from);
    }
    // A format 1 header is object data with its own snapshot count.
    let v1 = c.read(0, V1_HEADER_LEN)?;
    let count = match super::old::snap_count(&v1) {
        Some(n) => u64::from(n),
        None => ids(c)?.len() as u64,
    };
    if limit < count {
        return fail(ERANGE);
    }
    put(c, b"snap_limit", &limit).map(Output::from)
}
