//! Resharding: the list of buckets to be resharded, and the state of a shard during resharding.
//!
//! Stored in a list: omap `<tenant>:<bucket>` → `cls_rgw_reshard_entry`. A shard's state is in its header.

use super::index::Index;
use super::list::page;
use super::types::Resharding;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_opt, omap_put, stored_as};
use base::Utime;
use base::errno::{EEXIST, EINVAL, ENOENT};
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// Most entries of one reply.
const LIST_MAX: usize = 1000;

/// `cls_rgw_reshard_entry`.
#[derive(Clone, Debug, Default)]
struct Entry {
    time: Utime,
    tenant: Bytes,
    bucket: Bytes,
    id: Bytes,
    old_shards: u32,
    new_shards: u32,
    initiator: u8,
}

fn key(tenant: &[u8], bucket: &[u8]) -> Bytes {
    [tenant, b":", bucket].concat().into()
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(3, 1, |w| {
            w.put(&self.time);
            w.blob(&self.tenant);
            w.blob(&self.bucket);
            w.blob(&self.id);
            w.u32(self.old_shards);
            w.u32(self.new_shards);
            w.u8(self.initiator);
        });
    }
}
impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_reshard_entry", 3, |r, v| {
            let (time, tenant, bucket, id) = (r.get()?, r.blob()?, r.blob()?, r.blob()?);
            if v < 2 {
                r.blob()?;
            }
            let (old_shards, new_shards) = (r.u32()?, r.u32()?);
            let initiator = if v >= 3 { r.u8()? } else { 0 };
            Ok(Self { time, tenant, bucket, id, old_shards, new_shards, initiator })
        })
    }
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (e, create): (Entry, bool) =
        input(i, |r| r.versioned("cls_rgw_reshard_add_op", 2, |r, v| Ok((r.get()?, v >= 2 && r.bool()?))))?;
    let key = key(&e.tenant, &e.bucket);
    if create && omap_opt(c, &key)?.is_some() {
        return fail(EEXIST);
    }
    omap_put(c, key, enc(|w| w.put(&e))).map(Output::from)
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (max, marker) =
        input(i, |r| r.versioned("cls_rgw_reshard_list_op", 1, |r, _| Ok((r.u32()? as usize, r.blob()?))))?;
    let (rows, more) = page(c, &marker, b"", if (1..LIST_MAX).contains(&max) { max } else { LIST_MAX })?;
    let found = rows.iter().take(max).map(|(_, data)| stored_as(data)).collect::<ClsResult<Vec<Entry>>>()?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&found);
            w.bool(more);
        });
    })
    .into())
}

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let e: Entry = input(i, |r| r.versioned("cls_rgw_reshard_get_op", 1, |r, _| r.get()))?;
    let data = c.omap_get(&key(&e.tenant, &e.bucket))?;
    let e: Entry = stored_as(&data)?;
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&e))).into())
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (tenant, bucket, id) =
        input(i, |r| r.versioned("cls_rgw_reshard_remove_op", 1, |r, _| Ok((r.blob()?, r.blob()?, r.blob()?))))?;
    let key = key(&tenant, &bucket);
    let Some(data) = omap_opt(c, &key)? else { return fail(ENOENT) };
    let e: Entry = stored_as(&data)?;
    // The entry may belong to another bucket that was created with the same name.
    if id.is_empty() || e.id == id { c.omap_rm(&key).map(Output::from) } else { Ok(Output::default()) }
}

pub(super) fn set_state(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let state = input(i, |r| r.versioned("cls_rgw_set_bucket_resharding_op", 1, |r, _| r.get()))?;
    let mut x = Index::load(c)?;
    x.header.resharding = state;
    x.store().map(Output::from)
}

pub(super) fn clear_state(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.versioned("cls_rgw_clear_bucket_resharding_op", 1, |_, _| Ok(())))?;
    let mut x = Index::load(c)?;
    x.header.resharding = Resharding::default();
    x.store().map(Output::from)
}

pub(super) fn guard(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let errno = input(i, |r| r.versioned("cls_rgw_guard_bucket_resharding_op", 1, |r, _| r.i32()))?;
    match (Index::load(c)?.is_busy(), errno) {
        (false, _) => Ok(Output::default()),
        // The caller chooses the errno; values outside the range of errnos are refused.
        (true, ..-4095) => fail(EINVAL),
        (true, ..0) => fail(errno),
        (true, ret) => Ok(Output { ret, out: Bytes::new() }),
    }
}

pub(super) fn get_state(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.versioned("cls_rgw_get_bucket_resharding_op", 1, |_, _| Ok(())))?;
    let state = Index::load(c)?.header.resharding;
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&state))).into())
}
