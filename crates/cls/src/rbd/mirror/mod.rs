//! Mirroring of a pool: `rbd_mirroring` (mode, peers, images and their status) and `rbd_mirror_leader` (instances).
//!
//! Keys: `mirror_uuid` text, `mirror_mode` u32, `mirror_remote_namespace` str, `mirror_peer_<uuid>` → peer,
//! `image_<id>` → image, `global_<global id>` → id, `status_global_<global id>` and
//! `remote_status_global_<global id>_<mirror uuid>` → status, `instance_<id>` → empty, `image_map_<global id>` → map.
//!
//! | module | contents |
//! | --- | --- |
//! | `image` | mirrored images, by id and by global id |
//! | `peer` | peers of a mirrored pool |
//! | `status` | status of a mirrored image as reported by each site |
//! | `types` | encodings of mirroring: `cls_rbd_types.h`, `Mirror*` |

pub(super) mod image;
pub(super) mod peer;
pub(super) mod status;
mod types;

use super::{answer, drop_key, entries, get, need, put, snapshot};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, join, omap_opt, omap_put, omap_walk, stored_as};
use base::errno::{EBUSY, EINVAL, ENOENT};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::ImageMap;

const UUID: &[u8] = b"mirror_uuid";
const MODE: &[u8] = b"mirror_mode";
const REMOTE_NAMESPACE: &[u8] = b"mirror_remote_namespace";
const PEER: &[u8] = b"mirror_peer_";
const IMAGE: &[u8] = b"image_";
const GLOBAL: &[u8] = b"global_";
const STATUS: &[u8] = b"status_global_";
const REMOTE_STATUS: &[u8] = b"remote_status_global_";
const INSTANCE: &[u8] = b"instance_";
const IMAGE_MAP: &[u8] = b"image_map_";

const DISABLED: u32 = 0;
/// Mode in which peers are known and nothing is mirrored yet.
const INIT_ONLY: u32 = 3;
/// Highest mode: image 1, pool 2.
const MODE_LAST: u32 = INIT_ONLY;

/// Mode of the pool; `None` if mirroring is disabled.
fn mode(c: &mut dyn ObjectCtx) -> ClsResult<Option<u32>> {
    Ok(get::<u32>(c, MODE)?.filter(|m| *m != DISABLED))
}

pub(in crate::rbd) fn uuid_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&c.omap_get(UUID)?)
}

pub(in crate::rbd) fn uuid_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let uuid = input(i, |r| r.blob())?;
    if uuid.is_empty() || mode(c)?.is_some() {
        return fail(EINVAL);
    }
    omap_put(c, UUID, uuid).map(Output::from)
}

pub(in crate::rbd) fn mode_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&need::<u32>(c, MODE)?)
}

pub(in crate::rbd) fn mode_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let new = input(i, |r| r.u32())?;
    if new > MODE_LAST {
        return fail(EINVAL);
    }
    if new != DISABLED {
        if omap_opt(c, UUID)?.is_none() {
            return fail(EINVAL);
        }
        put(c, MODE, &new)?;
    } else {
        if !peer::all(c)?.is_empty() {
            return fail(EBUSY);
        }
        for key in [MODE, REMOTE_NAMESPACE, UUID] {
            drop_key(c, key)?;
        }
    }
    Ok(Output::default())
}

pub(in crate::rbd) fn remote_namespace_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&need::<Bytes>(c, REMOTE_NAMESPACE)?)
}

pub(in crate::rbd) fn remote_namespace_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let name = input(i, |r| r.blob())?;
    // The namespace of mirrored images is fixed.
    if mode(c)?.is_some_and(|m| m != INIT_ONLY) {
        return fail(EINVAL);
    }
    put(c, REMOTE_NAMESPACE, &name).map(Output::from)
}

pub(in crate::rbd) fn instances_list(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut ids: Vec<Bytes> = Vec::new();
    omap_walk(c, INSTANCE, INSTANCE, |k, _| {
        ids.push(k.slice(INSTANCE.len()..));
        Ok(true)
    })?;
    answer(&ids)
}

pub(in crate::rbd) fn instances_add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    omap_put(c, join(INSTANCE, &id), Bytes::new()).map(Output::from)
}

pub(in crate::rbd) fn instances_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    c.omap_rm(&join(INSTANCE, &id)).map(Output::from)
}

pub(in crate::rbd) fn image_map_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let mut maps = BTreeMap::new();
    for (id, b) in entries(c, IMAGE_MAP, &after, max)? {
        maps.insert(id, stored_as::<ImageMap>(&b).or(fail(EINVAL))?);
    }
    answer(&maps)
}

pub(in crate::rbd) fn image_map_update(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, map) = input(i, |r| Ok((r.blob()?, r.get::<ImageMap>()?)))?;
    put(c, &join(IMAGE_MAP, &id), &map).map(Output::from)
}

pub(in crate::rbd) fn image_map_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    drop_key(c, &join(IMAGE_MAP, &id)).map(Output::from)
}

/// Removes a peer from a mirror snapshot that it has copied. Works on an image header.
pub(in crate::rbd) fn snapshot_unlink_peer(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, uuid) = input(i, |r| Ok((r.u64()?, r.blob()?)))?;
    let mut s = snapshot::load(c, id)?;
    let super::types::SnapKind::Mirror(m) = &mut s.kind else { return fail(EINVAL) };
    if !m.peers.remove(&uuid) {
        return fail(ENOENT);
    }
    snapshot::store(c, s).map(Output::from)
}

/// Sets the copy progress of a mirror snapshot. Works on an image header.
pub(in crate::rbd) fn snapshot_set_copy_progress(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, complete, last) = input(i, |r| Ok((r.u64()?, r.bool()?, r.u64()?)))?;
    let mut s = snapshot::load(c, id)?;
    let super::types::SnapKind::Mirror(m) = &mut s.kind else { return fail(EINVAL) };
    m.complete = complete;
    if m.is_non_primary() {
        m.last_copied = last;
    }
    snapshot::store(c, s).map(Output::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemCtx;
    use crate::util::enc;

    /// The remote namespace may change only while nothing is mirrored: disabled, or init-only.
    #[test]
    fn the_remote_namespace_is_fixed_while_images_are_mirrored() {
        let mut c = MemCtx::new();
        let text = |s: &str| enc(|w| w.put(&Bytes::copy_from_slice(s.as_bytes())));
        let mode = |m: u32| enc(|w| w.put(&m));
        c.exec("rbd", "mirror_uuid_set", text("uuid")).unwrap();
        for (m, allowed) in [(1, false), (2, false), (INIT_ONLY, true), (DISABLED, true)] {
            c.exec("rbd", "mirror_mode_set", mode(m)).unwrap();
            let r = c.exec("rbd", "mirror_remote_namespace_set", text("ns")).map(|_| ());
            assert_eq!(r, if allowed { Ok(()) } else { Err(EINVAL) }, "mode {m}");
        }
    }
}
