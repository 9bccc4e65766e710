//! Mirrored images, by id and by global id.

use super::super::{answer, entries, get as get_key, need, put};
use super::status::remove_all;
use super::types::{IMAGE_DISABLING, Image};
use super::{GLOBAL, IMAGE};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, join, omap_opt, stored_as};
use base::errno::{EBUSY, EEXIST, EINVAL, ENOENT};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(in crate::rbd) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let mut ids = BTreeMap::new();
    for (id, b) in entries(c, IMAGE, &after, max)? {
        ids.insert(id, stored_as::<Image>(&b)?.global_id);
    }
    answer(&ids)
}

pub(in crate::rbd) fn get_image_id(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let global = input(i, |r| r.blob())?;
    answer(&need::<Bytes>(c, &join(GLOBAL, &global))?)
}

pub(in crate::rbd) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    answer(&need::<Image>(c, &join(IMAGE, &id))?)
}

pub(in crate::rbd) fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, image) = input(i, |r| Ok((r.blob()?, r.get::<Image>()?)))?;
    let (key, global) = (join(IMAGE, &id), join(GLOBAL, &image.global_id));
    match get_key::<Image>(c, &key)? {
        Some(old) if old.global_id != image.global_id => return fail(EINVAL),
        Some(_) => {}
        None => {
            if omap_opt(c, &global)?.is_some() {
                return fail(EEXIST);
            }
            if image.state == IMAGE_DISABLING {
                // The image's mirroring was disabled meanwhile.
                return fail(ENOENT);
            }
        }
    }
    put(c, &key, &image)?;
    put(c, &global, &id).map(Output::from)
}

pub(in crate::rbd) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    let key = join(IMAGE, &id);
    let image: Image = need(c, &key)?;
    if image.state != IMAGE_DISABLING {
        return fail(EBUSY);
    }
    c.omap_rm(&key)?;
    c.omap_rm(&join(GLOBAL, &image.global_id))?;
    remove_all(c, &image.global_id).map(Output::from)
}
