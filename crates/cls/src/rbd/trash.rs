//! `rbd_trash`: removed images that can be restored. Keys: `id_<id>` → `TrashImageSpec`.

use super::directory::ID;
use super::types::TrashSpec;
use super::{answer, entries, need, put, valid_id};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, join, omap_opt, stored_as};
use base::errno::{EEXIST, EINVAL, ESTALE};
use bytes::Bytes;
use std::collections::BTreeMap;

fn key_input(i: &Bytes) -> ClsResult<Bytes> {
    Ok(join(ID, &input(i, |r| r.blob())?))
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, spec) = input(i, |r| Ok((r.blob()?, r.get::<TrashSpec>()?)))?;
    if !valid_id(&id) {
        return fail(EINVAL);
    }
    c.create(false)?;
    let key = join(ID, &id);
    if omap_opt(c, &key)?.is_some() {
        return fail(EEXIST);
    }
    put(c, &key, &spec).map(Output::from)
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = key_input(i)?;
    c.omap_get(&key)?;
    c.omap_rm(&key).map(Output::from)
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let mut specs = BTreeMap::new();
    for (id, b) in entries(c, ID, &after, max)? {
        specs.insert(id, stored_as::<TrashSpec>(&b)?);
    }
    answer(&specs)
}

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    c.omap_get(&key_input(i)?).map(Output::from)
}

/// Changes the state of an entry; a repetition succeeds.
pub(super) fn state_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (id, state, expected) = input(i, |r| Ok((r.blob()?, r.u8()?, r.u8()?)))?;
    let key = join(ID, &id);
    let mut spec: TrashSpec = need(c, &key)?;
    if spec.state == expected {
        spec.state = state;
        put(c, &key, &spec).map(Output::from)
    } else if spec.state == state {
        Ok(Output::default())
    } else {
        fail(ESTALE)
    }
}
