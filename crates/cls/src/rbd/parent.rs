//! Parent of a cloned image: key `parent`.
//!
//! The header names the parent once; the head and each snapshot have their own overlap. Clusters before Nautilus stored
//! a whole parent in every snapshot: such records are read, and converted whenever a record changes.

use super::header::{change_op_features, require};
use super::types::{NOSNAP, Parent, ParentSpec};
use super::{answer, drop_key, feature, get, must_exist, need, op_feature, put, snapshot};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input};
use base::errno::{EEXIST, EINVAL, ENOENT, ENOEXEC, EXDEV};
use bytes::Bytes;

fn attach(c: &mut dyn ObjectCtx, mut parent: Parent, reattach: bool) -> ClsResult<Output> {
    must_exist(c)?;
    require(c, feature::LAYERING)?;
    let overlap = parent.overlap.unwrap_or(0);
    if !parent.exists() || overlap == 0 {
        return fail(EINVAL);
    }
    if let Some(old) = get::<Parent>(c, b"parent")?
        && (old.overlap.is_some() || !old.same(&parent))
        && !reattach
    {
        return fail(EEXIST);
    }
    let size: u64 = need(c, b"size")?;
    parent.overlap = Some(overlap.min(size));
    put(c, b"parent", &parent).map(Output::from)
}

/// Removes the parent. `legacy` callers do not know namespaces, so a parent in a namespace is an error for them.
fn detach(c: &mut dyn ObjectCtx, legacy: bool) -> ClsResult<Output> {
    must_exist(c)?;
    let features = match get::<u64>(c, b"features")? {
        Some(f) if f & feature::LAYERING != 0 => f,
        _ => return fail(ENOEXEC),
    };
    let mut parent: Parent = need(c, b"parent")?;
    if legacy && !parent.nspace.is_empty() {
        return fail(EXDEV);
    }
    if parent.overlap.is_none() {
        return fail(ENOENT);
    }
    let snaps: Vec<_> = snapshot::all(c)?.into_iter().filter(|s| s.has_parent()).collect();
    if features & feature::DEEP_FLATTEN == 0 && !snaps.is_empty() {
        // Snapshots still read from the parent.
        parent.overlap = None;
        put(c, b"parent", &parent)?;
        return Ok(Output::default());
    }
    for mut s in snaps {
        s.parent = Parent::default();
        s.overlap = None;
        snapshot::store(c, s)?;
    }
    drop_key(c, b"parent")?;
    change_op_features(c, 0, op_feature::CLONE_CHILD).map(Output::from)
}

pub(super) fn get_parent(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.u64())?;
    must_exist(c)?;
    let mut parent = Parent::default();
    if has_layering(c)? {
        parent = get(c, b"parent")?.unwrap_or_default();
        if !parent.nspace.is_empty() {
            return fail(EXDEV);
        }
        if id != NOSNAP {
            let snap = snapshot::find(c, id)?;
            parent = match snap {
                Some(s) if s.parent.exists() => s.parent,
                Some(s) if s.overlap.is_some() => {
                    if !parent.exists() {
                        return fail(EINVAL);
                    }
                    Parent { overlap: s.overlap, ..parent }
                }
                _ => Parent::default(),
            };
        }
    }
    Ok(enc(|w| {
        w.i64(parent.pool);
        w.blob(&parent.image);
        w.u64(parent.snap);
        w.u64(parent.overlap.unwrap_or(0));
    })
    .into())
}

fn has_layering(c: &mut dyn ObjectCtx) -> ClsResult<bool> {
    Ok(get::<u64>(c, b"features")?.is_some_and(|f| f & feature::LAYERING != 0))
}

pub(super) fn set_parent(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let parent = input(i, |r| {
        Ok(Parent { pool: r.i64()?, nspace: Bytes::new(), image: r.blob()?, snap: r.u64()?, overlap: Some(r.u64()?) })
    })?;
    attach(c, parent, false)
}

pub(super) fn remove_parent(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    detach(c, true)
}

pub(super) fn parent_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    must_exist(c)?;
    let mut parent = Parent::default();
    if has_layering(c)? {
        parent = match get(c, b"parent")? {
            Some(p) => p,
            // Only snapshots in the old format may still have one.
            None => snapshot::all(c)?.into_iter().map(|s| s.parent).rfind(Parent::exists).unwrap_or_default(),
        };
    }
    answer(&ParentSpec { pool: parent.pool, nspace: parent.nspace, image: parent.image, snap: parent.snap })
}

pub(super) fn parent_overlap_get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.u64())?;
    let mut overlap = None;
    if has_layering(c)? {
        overlap = if id == NOSNAP {
            get::<Parent>(c, b"parent")?.and_then(|p| p.overlap)
        } else {
            let s = snapshot::load(c, id)?;
            let inherited = if s.parent.exists() { s.parent.overlap } else { None };
            s.overlap.or(inherited)
        };
    }
    answer(&overlap)
}

pub(super) fn parent_attach(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (spec, overlap, reattach) =
        input(i, |r| Ok((r.get::<ParentSpec>()?, r.u64()?, if r.is_empty() { false } else { r.bool()? })))?;
    let ParentSpec { pool, nspace, image, snap } = spec;
    attach(c, Parent { pool, nspace, image, snap, overlap: Some(overlap) }, reattach)
}

pub(super) fn parent_detach(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    detach(c, false)
}
