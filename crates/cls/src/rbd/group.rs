//! Groups of images: `rbd_group_directory` (as [`super::directory`]), `rbd_group_header.<id>`, and an image's group
//! reference.
//!
//! Keys of a group header: `image_<16 hex pool>_<image>` → u8 link state, `snapshot_<id>` → `GroupSnapshot`,
//! `snap_order_<id>` → u64 creation order, `snap_max_order` → u64 highest order assigned. Key of an image header:
//! `rbd_group_ref` → `GroupSpec`.

use super::directory::{add_pair, remove_pair, rename_pair};
use super::header::change_op_features;
use super::types::{GroupImage, GroupImageStatus, GroupSnap, GroupSpec};
use super::{answer, drop_key, entries, need, op_feature, put};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, join, omap_opt, omap_put, omap_walk, stored_as};
use base::errno::{EBADF, EEXIST, EINVAL, EIO};
use bytes::Bytes;
use std::collections::BTreeMap;

const IMAGE: &[u8] = b"image_";
const SNAP: &[u8] = b"snapshot_";
const ORDER: &[u8] = b"snap_order_";
const LAST_ORDER: &[u8] = b"snap_max_order";
const REF: &[u8] = b"rbd_group_ref";

pub(super) fn dir_add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, id) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    c.create(false)?;
    add_pair(c, &name, &id)
}

pub(super) fn dir_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, id) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    remove_pair(c, &name, &id)
}

pub(super) fn dir_rename(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    rename_pair(c, i)
}

/// Key of an image; empty for the empty image, with which a listing begins.
fn image_key(g: &GroupImage) -> Bytes {
    if g.pool == -1 {
        return Bytes::new();
    }
    join(format!("image_{:016x}_", g.pool).as_bytes(), &g.image)
}

fn image_of_key(key: &Bytes) -> Option<GroupImage> {
    let rest = key.strip_prefix(IMAGE)?;
    let bar = rest.iter().position(|b| *b == b'_')?;
    let pool = u64::from_str_radix(std::str::from_utf8(&rest[..bar]).ok()?, 16).ok()?;
    Some(GroupImage { image: key.slice(IMAGE.len() + bar + 1..), pool: pool.cast_signed() })
}

pub(super) fn image_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let s: GroupImageStatus = input(i, |r| r.get())?;
    omap_put(c, image_key(&s.image), enc(|w| w.u8(s.state))).map(Output::from)
}

pub(super) fn image_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let g: GroupImage = input(i, |r| r.get())?;
    c.omap_rm(&image_key(&g)).map(Output::from)
}

pub(super) fn image_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.get::<GroupImage>()?, r.u64()?)))?;
    let mut found: Vec<GroupImageStatus> = Vec::new();
    if max > 0 {
        omap_walk(c, &image_key(&after), IMAGE, |k, b| {
            let state = stored_as(&b)?;
            let Some(image) = image_of_key(&k) else { return fail(EIO) };
            found.push(GroupImageStatus { image, state });
            Ok((found.len() as u64) < max)
        })?;
    }
    answer(&found)
}

pub(super) fn image_group_add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let group: GroupSpec = input(i, |r| r.get())?;
    match membership(c)? {
        Some(old) if old == group => return Ok(Output::default()),
        Some(_) => return fail(EEXIST),
        None => {}
    }
    change_op_features(c, op_feature::GROUP, op_feature::GROUP)?;
    put(c, REF, &group).map(Output::from)
}

fn membership(c: &mut dyn ObjectCtx) -> ClsResult<Option<GroupSpec>> {
    let Some(b) = omap_opt(c, REF)? else { return Ok(None) };
    // Ceph answers EINVAL here if the stored value cannot be decoded.
    stored_as(&b).map(Some).or(fail(EINVAL))
}

pub(super) fn image_group_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let group: GroupSpec = input(i, |r| r.get())?;
    match membership(c)? {
        None => return fail(base::errno::ENOENT),
        Some(old) if old != group => return fail(EBADF),
        Some(_) => {}
    }
    c.omap_rm(REF)?;
    change_op_features(c, 0, op_feature::GROUP).map(Output::from)
}

pub(super) fn image_group_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&membership(c)?.unwrap_or_default())
}

/// Stores a snapshot's record. An incomplete record must be new and gets the next creation order.
pub(super) fn snap_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    const INCOMPLETE: u8 = 0;
    let s: GroupSnap = input(i, |r| r.get())?;
    if s.name.is_empty() || s.id.is_empty() {
        return fail(EINVAL);
    }
    omap_walk(c, SNAP, SNAP, |_, b| {
        let o: GroupSnap = stored_as(&b)?;
        if o.name == s.name && o.id != s.id { fail(EEXIST) } else { Ok(true) }
    })?;
    let key = join(SNAP, &s.id);
    if s.state == INCOMPLETE {
        if omap_opt(c, &key)?.is_some() {
            return fail(EEXIST);
        }
        let place = join(ORDER, &s.id);
        if omap_opt(c, &place)?.is_some() {
            return fail(EEXIST);
        }
        let last: u64 = omap_opt(c, LAST_ORDER)?.map_or(Ok(0), |b| stored_as(&b))?;
        let next = last.wrapping_add(1);
        put(c, LAST_ORDER, &next)?;
        put(c, &place, &next)?;
    }
    put(c, &key, &s).map(Output::from)
}

pub(super) fn snap_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    c.omap_rm(&join(SNAP, &id))?;
    drop_key(c, &join(ORDER, &id)).map(Output::from)
}

pub(super) fn snap_get_by_id(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    answer(&need::<GroupSnap>(c, &join(SNAP, &id))?)
}

pub(super) fn snap_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.get::<GroupSnap>()?, r.u64()?)))?;
    let mut snaps = Vec::new();
    for (_, b) in entries(c, SNAP, &after.id, max)? {
        snaps.push(stored_as::<GroupSnap>(&b)?);
    }
    answer(&snaps)
}

/// Creation orders by snapshot id.
pub(super) fn snap_list_order(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let mut orders = BTreeMap::new();
    for (id, b) in entries(c, ORDER, &after, max)? {
        orders.insert(id, stored_as::<u64>(&b)?);
    }
    answer(&orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_keys_read_back() {
        let g = GroupImage { image: Bytes::from_static(b"10ab_x"), pool: 3 };
        let key = image_key(&g);
        assert_eq!(&key[..], b"image_0000000000000003_10ab_x");
        let back = image_of_key(&key).expect("own key");
        assert_eq!((back.image, back.pool), (g.image, g.pool));
        assert!(image_of_key(&Bytes::from_static(b"image_zz_x")).is_none());
        assert!(image_of_key(&Bytes::from_static(b"image_3")).is_none());
    }
}
