//! Garbage in the omap, as queued by gateways before Nautilus and still checked by current ones: chains of objects to
//! remove, by tag and by the earliest time of removal.
//!
//! Stored: `0_<tag>` and `1_<sec>.<nsec>`, each with the whole `cls_rgw_gc_obj_info`.

use super::list::page;
use super::types::Key;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_opt, omap_put, stored_as};
use base::Utime;
use base::errno::ENOENT;
use bytes::Bytes;
use std::time::Duration;
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

const BY_TAG: &[u8] = b"0_";
const BY_TIME: &[u8] = b"1_";
/// Entries of one reply if the caller gives no number.
pub(crate) const LIST_DEFAULT: u32 = 128;

/// `cls_rgw_obj`.
#[derive(Clone, Debug)]
struct Obj {
    pool: Bytes,
    name: Bytes,
    locator: Bytes,
    key: Key,
}

impl Encode for Obj {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.blob(&self.pool);
            w.blob(&self.name);
            w.blob(&self.locator);
            w.put(&self.key);
        });
    }
}
impl Decode for Obj {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_obj", 2, |r, v| {
            let (pool, name, locator) = (r.blob()?, r.blob()?, r.blob()?);
            let key = if v >= 2 { r.get()? } else { Key::named(name) };
            Ok(Self { pool, name: key.name.clone(), locator, key })
        })
    }
}

/// `cls_rgw_gc_obj_info`: a chain of objects to remove at `time` or later.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) tag: Bytes,
    chain: Vec<Obj>,
    pub(crate) time: Utime,
}

impl Info {
    /// Sets the time of removal to `seconds` from now.
    pub(crate) fn due_in(&mut self, c: &mut dyn ObjectCtx, seconds: u32) {
        self.time = c.now().plus(Duration::from_secs(u64::from(seconds)));
    }
}

impl Encode for Info {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.tag);
            w.versioned(1, 1, |w| w.put(&self.chain));
            w.put(&self.time);
        });
    }
}
impl Decode for Info {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_gc_obj_info", 1, |r, _| {
            Ok(Self { tag: r.blob()?, chain: r.versioned("cls_rgw_obj_chain", 1, |r, _| r.get())?, time: r.get()? })
        })
    }
}

/// Decodes a `cls_rgw_gc_set_entry_op` (also of class `rgw_gc`): seconds and chain.
pub(crate) fn set_input(i: &Bytes) -> ClsResult<(u32, Info)> {
    input(i, |r| r.versioned("cls_rgw_gc_set_entry_op", 1, |r, _| Ok((r.u32()?, r.get()?))))
}

/// Decodes a `cls_rgw_gc_list_op`: marker, most entries, expired entries only.
pub(crate) fn list_input(i: &Bytes) -> ClsResult<(Bytes, u32, bool)> {
    input(i, |r| {
        r.versioned("cls_rgw_gc_list_op", 2, |r, v| {
            let (marker, max) = (r.blob()?, r.u32()?);
            Ok((marker, if max == 0 { LIST_DEFAULT } else { max }, v < 2 || r.bool()?))
        })
    })
}

/// Encodes a `cls_rgw_gc_list_ret`.
pub(crate) fn list_output(found: &[Info], next: &[u8], more: bool) -> Output {
    enc(|w| {
        w.versioned(2, 1, |w| {
            w.put(found);
            w.blob(next);
            w.bool(more);
        });
    })
    .into()
}

fn time_text(t: Utime) -> String {
    format!("{:011}.{:09}", t.sec, t.nsec)
}

fn by_time(t: Utime) -> Bytes {
    [BY_TIME, time_text(t).as_bytes()].concat().into()
}

fn by_tag(tag: &[u8]) -> Bytes {
    [BY_TAG, tag].concat().into()
}

fn load(c: &mut dyn ObjectCtx, tag: &[u8]) -> ClsResult<Option<Info>> {
    omap_opt(c, &by_tag(tag))?.map(|b| stored_as(&b)).transpose()
}

fn update(c: &mut dyn ObjectCtx, seconds: u32, mut info: Info) -> ClsResult<()> {
    if let Some(old) = load(c, &info.tag)? {
        c.omap_rm(&by_time(old.time))?;
    }
    info.due_in(c, seconds);
    let data = enc(|w| w.put(&info));
    c.omap_set(&[(by_tag(&info.tag), data.clone())])?;
    omap_put(c, by_time(info.time), data)
}

pub(super) fn set_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (seconds, info) = set_input(i)?;
    update(c, seconds, info).map(Output::from)
}

pub(super) fn defer_entry(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (seconds, tag) = input(i, |r| r.versioned("cls_rgw_gc_defer_entry_op", 1, |r, _| Ok((r.u32()?, r.blob()?))))?;
    match load(c, &tag)? {
        Some(info) => update(c, seconds, info).map(Output::from),
        None => fail(ENOENT),
    }
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, max, expired) = list_input(i)?;
    let from = if marker.is_empty() { Bytes::from_static(BY_TIME) } else { marker };
    let end = expired.then(|| by_time(c.now()));
    let (rows, mut more) = page(c, &from, b"", max as usize)?;
    let (mut found, mut last): (Vec<Info>, _) = (Vec::new(), Bytes::new());
    for (key, data) in rows {
        if end.as_ref().is_some_and(|e| key >= *e) || !key.starts_with(BY_TIME) {
            more = false;
            break;
        }
        found.push(stored_as(&data)?);
        last = key;
    }
    Ok(list_output(&found, if more { &last } else { b"" }, more))
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let tags: Vec<Bytes> = input(i, |r| r.versioned("cls_rgw_gc_remove_op", 1, |r, _| r.get()))?;
    for tag in tags {
        let Some(info) = load(c, &tag)? else { continue };
        c.omap_rm(&by_time(info.time))?;
        c.omap_rm(&by_tag(&tag))?;
    }
    Ok(Output::default())
}
