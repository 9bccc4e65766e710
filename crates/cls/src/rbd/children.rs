//! Clones of a snapshot: the pool's `rbd_children` object (clone v1) and the parent's own header (clone v2).
//!
//! Keys: v1 `{u64 pool, str image, u64 snap}` encoded → set of child ids; v2 `snap_children_<16 hex>` → set of specs.

use super::header::change_op_features;
use super::types::{ChildSpec, SnapKind};
use super::{answer, drop_key, get, need, op_feature, put, snapshot};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input};
use base::errno::{EEXIST, EINVAL, ENOENT};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Decodes the key of a parent in `rbd_children`, and the child if the input has one.
fn v1_input(i: &Bytes, with_child: bool) -> ClsResult<(Bytes, Bytes)> {
    let (pool, image, snap, child) =
        input(i, |r| Ok((r.u64()?, r.blob()?, r.u64()?, if with_child { r.blob()? } else { Bytes::new() })))?;
    let key = enc(|w| {
        w.u64(pool);
        w.blob(&image);
        w.u64(snap);
    });
    Ok((key, child))
}

pub(super) fn add_child(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, child) = v1_input(i, true)?;
    let mut children: BTreeSet<Bytes> = get(c, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return fail(EEXIST);
    }
    put(c, &key, &children).map(Output::from)
}

pub(super) fn remove_child(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, child) = v1_input(i, true)?;
    let mut children: BTreeSet<Bytes> = need(c, &key)?;
    if !children.remove(&child) {
        return fail(ENOENT);
    }
    if children.is_empty() { c.omap_rm(&key) } else { put(c, &key, &children) }.map(Output::from)
}

pub(super) fn get_children(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, _) = v1_input(i, false)?;
    answer(&need::<BTreeSet<Bytes>>(c, &key)?)
}

fn v2_key(snap: u64) -> Vec<u8> {
    format!("snap_children_{snap:016x}").into_bytes()
}

pub(super) fn child_attach(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, child) = input(i, |r| Ok((r.u64()?, r.get::<ChildSpec>()?)))?;
    let mut snap = snapshot::load(c, id)?;
    if matches!(snap.kind, SnapKind::Trash { .. }) {
        return fail(ENOENT);
    }
    let key = v2_key(id);
    let mut children: BTreeSet<ChildSpec> = get(c, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return fail(EEXIST);
    }
    put(c, &key, &children)?;
    snap.children = snap.children.saturating_add(1);
    snapshot::store(c, snap)?;
    change_op_features(c, op_feature::CLONE_PARENT, op_feature::CLONE_PARENT).map(Output::from)
}

pub(super) fn child_detach(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, child) = input(i, |r| Ok((r.u64()?, r.get::<ChildSpec>()?)))?;
    let mut snap = snapshot::load(c, id)?;
    let key = v2_key(id);
    let mut children: BTreeSet<ChildSpec> = get(c, &key)?.unwrap_or_default();
    if snap.children as usize != children.len() {
        return fail(EINVAL);
    }
    if !children.remove(&child) {
        return fail(ENOENT);
    }
    if children.is_empty() {
        drop_key(c, &key)?;
    } else {
        put(c, &key, &children)?;
    }
    snap.children -= 1;
    let last = snap.children == 0;
    snapshot::store(c, snap)?;
    if last && !snapshot::all(c)?.iter().any(|s| s.id != id && s.children > 0) {
        change_op_features(c, 0, op_feature::CLONE_PARENT)?;
    }
    Ok(Output::default())
}

pub(super) fn children_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.u64())?;
    snapshot::load(c, id)?;
    answer(&need::<BTreeSet<ChildSpec>>(c, &v2_key(id))?)
}
