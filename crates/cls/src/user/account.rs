//! Named resources of an account (users, roles, groups, topics), up to a limit that the caller gives.
//!
//! Stored: omap `<name in lower case>` → `cls_user_account_resource`; omap header with the number of resources. Names
//! are case-insensitive.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_first, omap_opt, omap_put, stored};
use base::errno::{EEXIST, ENOENT, EUSERS};
use bytes::Bytes;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// Most entries of one reply.
const LIST_MAX: usize = 1000;

/// `cls_user_account_resource`.
#[derive(Clone, Debug)]
struct Resource {
    name: Bytes,
    path: Bytes,
    metadata: Bytes,
}

impl Resource {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.name);
            w.blob(&self.path);
            w.blob(&self.metadata);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_user_account_resource", 1, |r, _| {
            Ok(Self { name: r.blob()?, path: r.blob()?, metadata: r.blob()? })
        })
    }
}

fn key(name: &Bytes) -> Bytes {
    name.to_ascii_lowercase().into()
}

fn load_count(c: &mut dyn ObjectCtx) -> ClsResult<u32> {
    let b = c.omap_header()?;
    if b.is_empty() {
        return Ok(0);
    }
    stored(&b, |r| r.versioned("cls_user_account_header", 1, |r, _| r.u32()))
}

fn save_count(c: &mut dyn ObjectCtx, count: u32) -> ClsResult<()> {
    c.omap_set_header(&enc(|w| w.versioned(1, 1, |w| w.u32(count))))
}

fn name_input(i: &Bytes) -> ClsResult<Bytes> {
    input(i, |r| r.versioned("cls_user_account_resource_op", 1, |r, _| r.blob()))
}

pub(super) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (entry, exclusive, limit) = input(i, |r| {
        r.versioned("cls_user_account_resource_add_op", 1, |r, _| Ok((Resource::decode(r)?, r.bool()?, r.u32()?)))
    })?;
    let count = load_count(c)?;
    let key = key(&entry.name);
    if omap_opt(c, &key)?.is_some() {
        if exclusive {
            return fail(EEXIST);
        }
    } else {
        if count >= limit {
            return fail(EUSERS);
        }
        save_count(c, count + 1)?;
    }
    omap_put(c, key, enc(|w| entry.encode(w)))?;
    Ok(Output::default())
}

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let name = name_input(i)?;
    let entry = stored(&c.omap_get(&key(&name))?, Resource::decode)?;
    Ok(enc(|w| w.versioned(1, 1, |w| entry.encode(w))).into())
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = key(&name_input(i)?);
    let count = load_count(c)?;
    if omap_opt(c, &key)?.is_none() {
        return fail(ENOENT);
    }
    c.omap_rm(&key)?;
    save_count(c, count.saturating_sub(1)).map(Output::from)
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (marker, path_prefix, max) =
        input(i, |r| r.versioned("cls_user_account_resource_list_op", 1, |r, _| Ok((r.blob()?, r.blob()?, r.u32()?))))?;
    let (page, truncated) = omap_first(c, &marker, b"", (max as usize).min(LIST_MAX))?;
    let mut entries = Vec::new();
    let mut last = Bytes::new();
    for (k, v) in page {
        last = k;
        let e = stored(&v, Resource::decode)?;
        if e.path.starts_with(&path_prefix) {
            entries.push(e);
        }
    }
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.seq(entries.iter(), |w, e| e.encode(w));
            w.bool(truncated);
            w.blob(&last);
        });
    })
    .into())
}
