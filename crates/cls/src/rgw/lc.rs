//! Lifecycle: the buckets in a shard of the lifecycle list, and the progress of the day's run.
//!
//! Stored: omap `<bucket>` → `cls_rgw_lc_entry` (in old releases a pair of name and status), omap header
//! `cls_rgw_lc_obj_head`.

use super::list::page;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, input, omap_put, stored, stored_as};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// `cls_rgw_lc_entry`.
#[derive(Clone, Debug, Default)]
struct Entry {
    bucket: Bytes,
    start: u64,
    status: u32,
}

impl Entry {
    fn old(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { bucket: r.blob()?, start: 0, status: r.u32()? })
    }
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.bucket);
            w.u64(self.start);
            w.u32(self.status);
        });
    }
}
impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_lc_entry", 1, |r, _| Ok(Self { bucket: r.blob()?, start: r.u64()?, status: r.u32()? }))
    }
}

/// `cls_rgw_lc_obj_head`.
#[derive(Clone, Debug, Default)]
struct Head {
    start: u64,
    marker: Bytes,
    rollover: u64,
}

impl Encode for Head {
    fn encode(&self, w: &mut Writer) {
        // Ceph writes compat version 2. Version 1 is sufficient, as gateways of Pacific can ignore the last field.
        w.versioned(2, 1, |w| {
            w.u64(self.start);
            w.blob(&self.marker);
            w.u64(self.rollover);
        });
    }
}
impl Decode for Head {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_lc_obj_head", 2, |r, v| {
            Ok(Self { start: r.u64()?, marker: r.blob()?, rollover: if v >= 2 { r.u64()? } else { 0 } })
        })
    }
}

/// Decodes the marker of `lc_get_entry` and `lc_get_next_entry`.
fn marker(i: &Bytes) -> ClsResult<Bytes> {
    input(i, |r| r.versioned("cls_rgw_lc_get_entry_op", 1, |r, _| r.blob()))
}

/// Decodes the entry of `lc_set_entry` and `lc_rm_entry`.
fn entry(i: &Bytes) -> ClsResult<Entry> {
    input(i, |r| r.versioned("cls_rgw_lc_set_entry_op", 2, |r, v| if v < 2 { Entry::old(r) } else { r.get() }))
}

fn one(e: &Entry) -> Output {
    enc(|w| w.versioned(2, 2, |w| w.put(e))).into()
}

pub(super) fn get_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let data = c.omap_get(&marker(i)?)?;
    Ok(one(&stored_as(&data)?))
}

pub(super) fn get_next_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (rows, _) = page(c, &marker(i)?, b"", 1)?;
    let e = rows.first().map(|(_, data)| stored_as(data)).transpose()?.unwrap_or_default();
    Ok(one(&e))
}

pub(super) fn set_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let e = entry(i)?;
    omap_put(c, e.bucket.clone(), enc(|w| w.put(&e))).map(Output::from)
}

pub(super) fn rm_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let e = entry(i)?;
    c.omap_rm(&e.bucket).map(Output::from)
}

pub(super) fn list_entries(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, max, version) =
        input(i, |r| r.versioned("cls_rgw_lc_list_entries_op", 3, |r, v| Ok((r.blob()?, r.u32()? as usize, v))))?;
    let (rows, more) = page(c, &marker, b"", max)?;
    let found = rows
        .iter()
        .map(|(_, data)| stored_as(data).or_else(|_| stored(data, Entry::old)))
        .collect::<ClsResult<Vec<Entry>>>()?;
    Ok(enc(|w| {
        w.versioned(version, 1, |w| {
            if version <= 2 {
                let old: BTreeMap<Bytes, u32> = found.iter().map(|e| (e.bucket.clone(), e.status)).collect();
                w.put(&old);
            } else {
                w.put(&found);
            }
            w.bool(more);
        });
    })
    .into())
}

pub(super) fn put_head(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let head: Head = input(i, |r| r.versioned("cls_rgw_lc_put_head_op", 1, |r, _| r.get()))?;
    c.omap_set_header(&enc(|w| w.put(&head))).map(Output::from)
}

pub(super) fn get_head(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let b = c.omap_header()?;
    let head = if b.is_empty() { Head::default() } else { input(&b, Head::decode)? };
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&head))).into())
}
