//! Directories: `rbd_directory` (image names and ids, both ways), `rbd_id.<name>` (an id as data), `rbd_namespace`.
//!
//! Keys: `name_<name>` → id, `id_<id>` → name, `state` u8; of namespaces `name_<name>` → empty.

use super::{answer, entries, get, must_exist, need, put, valid_id};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, join, omap_opt, omap_put, optional, stored_as};
use base::errno::{EBADF, EBUSY, EEXIST, EINVAL, EIO, ENOENT, ESTALE};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::Decode;

pub(super) const NAME: &[u8] = b"name_";
pub(super) const ID: &[u8] = b"id_";

/// State of a directory that accepts new images.
const READY: u8 = 0;
/// State of a directory that is being removed.
const ADD_DISABLED: u8 = 1;

/// Adds a name with its id; also used for groups.
pub(super) fn add_pair(c: &mut dyn ObjectCtx, name: &Bytes, id: &Bytes) -> ClsResult<Output> {
    if name.is_empty() || !valid_id(id) {
        return fail(EINVAL);
    }
    if get::<Bytes>(c, &join(NAME, name))?.is_some() {
        return fail(EEXIST);
    }
    if get::<Bytes>(c, &join(ID, id))?.is_some() {
        return fail(EBADF);
    }
    set_pair(c, name, id)
}

fn set_pair(c: &mut dyn ObjectCtx, name: &Bytes, id: &Bytes) -> ClsResult<Output> {
    c.omap_set(&[(join(NAME, name), enc(|w| w.blob(id))), (join(ID, id), enc(|w| w.blob(name)))]).map(Output::from)
}

/// Fails with `ESTALE` unless the name has this id.
fn check_pair(c: &mut dyn ObjectCtx, name: &Bytes, id: &Bytes) -> ClsResult<()> {
    let stored_id: Bytes = need(c, &join(NAME, name))?;
    let stored_name: Bytes = need(c, &join(ID, id))?;
    if stored_id == *id && stored_name == *name { Ok(()) } else { fail(ESTALE) }
}

/// Removes a name with its id; also used for groups.
pub(super) fn remove_pair(c: &mut dyn ObjectCtx, name: &Bytes, id: &Bytes) -> ClsResult<Output> {
    check_pair(c, name, id)?;
    c.omap_rm(&join(NAME, name))?;
    c.omap_rm(&join(ID, id)).map(Output::from)
}

/// Changes the name of an id; also used for groups.
pub(super) fn rename_pair(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (src, dest, id) = input(i, |r| Ok((r.blob()?, r.blob()?, r.blob()?)))?;
    check_pair(c, &src, &id)?;
    if dest.is_empty() || !valid_id(&id) {
        return fail(EINVAL);
    }
    if get::<Bytes>(c, &join(NAME, &dest))?.is_some() {
        return fail(EEXIST);
    }
    c.omap_rm(&join(NAME, &src))?;
    set_pair(c, &dest, &id)
}

/// Lists names with their ids after a given name; also used for groups.
pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let mut names = BTreeMap::new();
    for (name, b) in entries(c, NAME, &after, max)? {
        names.insert(name, stored_as::<Bytes>(&b)?);
    }
    answer(&names)
}

fn pair_input(i: &Bytes) -> ClsResult<(Bytes, Bytes)> {
    input(i, |r| Ok((r.blob()?, r.blob()?)))
}

pub(super) fn add_image(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, id) = pair_input(i)?;
    c.create(false)?;
    add_pair(c, &name, &id)
}

pub(super) fn remove_image(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (name, id) = pair_input(i)?;
    remove_pair(c, &name, &id)
}

pub(super) fn rename_image(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    rename_pair(c, i)
}

pub(super) fn get_id_of_name(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let name = input(i, |r| r.blob())?;
    answer(&need::<Bytes>(c, &join(NAME, &name))?)
}

pub(super) fn get_name_of_id(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.blob())?;
    answer(&need::<Bytes>(c, &join(ID, &id))?)
}

pub(super) fn state_assert(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let state = input(i, |r| r.u8())?;
    if need::<u8>(c, b"state")? == state { Ok(Output::default()) } else { fail(ENOENT) }
}

pub(super) fn state_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let state = input(i, |r| r.u8())?;
    let exists = optional(c.stat())?.is_some();
    match state {
        READY => {}
        ADD_DISABLED if !exists => return fail(ENOENT),
        ADD_DISABLED => {
            if !entries(c, NAME, b"", 1)?.is_empty() {
                return fail(EBUSY);
            }
        }
        _ => return fail(EINVAL),
    }
    put(c, b"state", &state).map(Output::from)
}

/// Reads the id in `rbd_id.<name>`.
pub(super) fn get_id(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let (size, _) = c.stat()?;
    if size == 0 {
        return fail(ENOENT);
    }
    let b = c.read(0, size)?;
    match Bytes::from_bytes(&b) {
        Ok(id) => answer(&id),
        Err(_) => fail(EIO),
    }
}

pub(super) fn set_id(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    must_exist(c)?;
    let id = input(i, |r| r.blob())?;
    if !valid_id(&id) {
        return fail(EINVAL);
    }
    if c.stat()?.0 != 0 {
        return fail(EEXIST);
    }
    c.write(0, &enc(|w| w.blob(&id))).map(Output::from)
}

pub(super) fn namespace_add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = join(NAME, &input(i, |r| r.blob())?);
    if omap_opt(c, &key)?.is_some() {
        return fail(EEXIST);
    }
    omap_put(c, key, Bytes::new()).map(Output::from)
}

pub(super) fn namespace_remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = join(NAME, &input(i, |r| r.blob())?);
    c.omap_get(&key)?;
    c.omap_rm(&key).map(Output::from)
}

pub(super) fn namespace_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let names: Vec<Bytes> = entries(c, NAME, &after, max)?.into_iter().map(|(n, _)| n).collect();
    answer(&names)
}
