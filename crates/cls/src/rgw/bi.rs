//! Raw index entries: for `radosgw-admin bi`, resharding, and checks of a shard's statistics.

use super::index::Index;
use super::keys::{self, INSTANCES, Kind, LAST, OLHS, RESHARD_LOG, SPECIAL};
use super::list::{PAGE_MAX, Rows, page, page_from};
use super::types::{BiEntry, DirEntry, Header, Key, OlhEntry, Stats, bi};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::parts::{Fold, omap_fold};
use crate::registry::Output;
use crate::util::{enc, fail, input, omap_put, stored_as};
use base::errno::{E2BIG, EINVAL, EIO, ENODATA};
use bytes::Bytes;
use std::collections::BTreeSet;
use wire::{Decode, Reader};

/// Most entries of one `bi_list`.
const LIST_MAX: usize = 1000;

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, kind) = input(i, |r| r.versioned("rgw_cls_bi_get_op", 1, |r, _| Ok((r.get::<Key>()?, r.u8()?))))?;
    let idx = match kind {
        bi::PLAIN => key.name,
        bi::INSTANCE => keys::object(&key),
        bi::OLH => keys::olh(&key.name),
        _ => return fail(EINVAL),
    };
    let data = c.omap_get(&idx)?;
    let e = BiEntry { kind, idx, data };
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&e))).into())
}

/// Sets a raw entry; the caller is responsible for the statistics.
pub(super) fn put(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let e: BiEntry = input(i, |r| r.versioned("rgw_cls_bi_put_op", 1, |r, _| r.get()))?;
    if e.kind == bi::RESHARD_DELETED {
        if c.exists()? {
            c.omap_rm(&e.idx)?;
        }
        Ok(Output::default())
    } else {
        omap_put(c, e.idx, e.data).map(Output::from)
    }
}

/// Category and statistics that an entry contributes.
fn counted(kind: u8, data: &Bytes) -> wire::codec::Result<Option<(u8, Stats)>> {
    let r = &mut Reader::shared(data);
    match kind {
        bi::OLH => OlhEntry::decode(r).map(|_| None),
        bi::RESHARD_DELETED => r.versioned("rgw_bucket_deleted_entry", 1, |r, _| Key::decode(r)).map(|_| None),
        _ => {
            let e = DirEntry::decode(r)?;
            let counts = e.exists && (kind == bi::INSTANCE || (kind == bi::PLAIN && e.flags == 0));
            Ok(counts.then(|| (e.meta.category, Stats::of(&e.meta))))
        }
    }
}

fn bi_kind(idx: &[u8]) -> u8 {
    match keys::kind(idx) {
        Kind::Plain => bi::PLAIN,
        Kind::Instance => bi::INSTANCE,
        Kind::Olh => bi::OLH,
        _ => bi::INVALID,
    }
}

/// Sets and removes entries, and updates the statistics.
pub(super) fn put_entries(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (entries, check) =
        input(i, |r| r.versioned("rgw_cls_bi_put_entries_op", 1, |r, _| Ok((r.get::<Vec<BiEntry>>()?, r.bool()?))))?;
    if entries.len() > PAGE_MAX {
        return fail(E2BIG);
    }
    let mut x = Index::load_writable(c)?;
    if check {
        for idx in entries.iter().map(|e| &e.idx).collect::<BTreeSet<_>>() {
            let Some(data) = x.get_now(idx)? else { continue };
            let kind = bi_kind(idx);
            if kind == bi::INVALID {
                continue;
            }
            if let Some((category, s)) = counted(kind, &data).map_err(|_| EIO)? {
                x.header.of(category).sub(&s);
            }
        }
    }
    let (mut set, mut named) = (Vec::new(), BTreeSet::new());
    for e in entries {
        // Of entries with the same key only the first is stored and counted.
        let first = named.insert(e.idx.clone());
        if e.kind == bi::RESHARD_DELETED {
            if x.c.exists()? {
                x.c.omap_rm(&e.idx)?;
            }
        } else if first {
            if let Some((category, s)) = counted(e.kind, &e.data)? {
                x.header.of(category).add(&s);
            }
            set.push((e.idx, e.data));
        }
    }
    x.c.omap_set(&set)?;
    x.store().map(Output::from)
}

/// `rgw_cls_bi_list_op`.
struct List {
    max: usize,
    /// List only this object and its versions.
    name: Bytes,
    marker: Bytes,
}

/// Entries found, and whether more follow.
type Found = (Vec<BiEntry>, bool);

impl List {
    /// Lists plain entries, below or above the special ones. As in all parts of the listing, `more` may refer to the
    /// next part: the page is then full, and the next call finds the end.
    fn plain(&self, c: &mut dyn ObjectCtx, high: bool, max: usize) -> ClsResult<Found> {
        if !high && self.marker.first().is_some_and(|b| *b >= SPECIAL) {
            return Ok((Vec::new(), false));
        }
        let after: &[u8] = if high { LAST.max(&self.marker) } else { &self.marker };
        let (rows, mut more) = page(c, after, &self.name, max)?;
        let mut found = Vec::new();
        for (idx, data) in rows {
            if !high && idx.first().is_some_and(|b| *b >= SPECIAL) {
                more = false;
                break;
            }
            let e: DirEntry = stored_as(&data)?;
            if !self.name.is_empty() && e.key.name > self.name {
                more = false;
                break;
            }
            found.push(BiEntry { kind: bi::PLAIN, idx, data });
        }
        Ok((found, more))
    }

    /// Lists version entries or OLH entries.
    fn special(&self, c: &mut dyn ObjectCtx, prefix: &[u8], max: usize) -> ClsResult<Found> {
        let (first, kind) = if prefix == OLHS {
            (keys::olh(&self.name), bi::OLH)
        } else {
            (keys::instance(&Key::named(self.name.clone())), bi::INSTANCE)
        };
        let start = if self.name.is_empty() { Bytes::copy_from_slice(prefix) } else { first };
        let moved_on = {
            let (a, b) = (keys::kind(&self.marker), keys::kind(&start));
            a > b || (a == b && self.marker > start)
        };
        let (exact, after) = if moved_on { (None, &self.marker) } else { (Some(&start), &start) };
        let (rows, more) = page_from(c, exact, after, b"", max)?;
        let mut found = Vec::new();
        for (idx, data) in rows {
            if !idx.starts_with(&start) {
                return Ok((found, false));
            }
            let name = if kind == bi::OLH {
                stored_as::<OlhEntry>(&data)?.key.name
            } else {
                stored_as::<DirEntry>(&data)?.key.name
            };
            if !self.name.is_empty() && name != self.name {
                return Ok((found, false));
            }
            found.push(BiEntry { kind, idx, data });
        }
        Ok((found, more))
    }

    fn all(&self, c: &mut dyn ObjectCtx) -> ClsResult<Found> {
        let (mut found, mut more) = self.plain(c, false, self.max)?;
        for prefix in [INSTANCES, OLHS] {
            if !more {
                let (rows, m) = self.special(c, prefix, self.max - found.len())?;
                found.extend(rows);
                more = m;
            }
        }
        if !more {
            let (rows, m) = self.plain(c, true, self.max - found.len())?;
            found.extend(rows);
            more = m;
        }
        Ok((found, more))
    }
}

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (max, name, marker, reshard_log) = input(i, |r| {
        r.versioned("rgw_cls_bi_list_op", 2, |r, v| Ok((r.u32()? as usize, r.blob()?, r.blob()?, v >= 2 && r.bool()?)))
    })?;
    let (found, more) = if reshard_log {
        list_reshard_log(c, &marker, max)?
    } else {
        List { max: max.min(LIST_MAX), name, marker }.all(c)?
    };
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&found);
            w.bool(more);
        });
    })
    .into())
}

fn list_reshard_log(c: &mut dyn ObjectCtx, marker: &[u8], max: usize) -> ClsResult<Found> {
    let (rows, mut more) = page(c, &keys::reshard_log(marker), b"", max)?;
    let mut found = Vec::new();
    for (key, data) in rows {
        if &key[..] >= LAST {
            more = false;
            break;
        }
        let mut e: BiEntry = stored_as(&data)?;
        if e.kind != bi::RESHARD_DELETED {
            e.kind = bi_kind(key.get(RESHARD_LOG.len()..).unwrap_or_default());
        }
        found.push(e);
    }
    Ok((found, more))
}

pub(super) fn trim_reshard_log(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut x = Index::load(c)?;
    let (rows, _): (Rows, _) = page(x.c, RESHARD_LOG, b"", 1)?;
    match rows.first() {
        Some((first, _)) if &first[..] <= LAST => x.c.omap_rm_range(first, LAST)?,
        _ => return fail(ENODATA),
    }
    x.header.reshard_log_entries = 0;
    x.store().map(Output::from)
}

impl Fold for Header {}

/// Header statistics recomputed from the entries.
fn recount(x: &mut Index<'_>) -> ClsResult<Header> {
    let old = &x.header;
    let mut h =
        Header { tag_timeout: old.tag_timeout, ver: old.ver, sync_stopped: old.sync_stopped, ..Header::default() };
    // Names below the special entries, versions, names above.
    let parts = [(&b""[..], &[SPECIAL][..], bi::PLAIN), (INSTANCES, OLHS, bi::INSTANCE), (LAST, b"", bi::PLAIN)];
    for (after, end, kind) in parts {
        h = omap_fold(x.c, after, b"", h, |_, h, idx, data| {
            if !end.is_empty() && &idx[..] >= end {
                return Ok(false);
            }
            if let Some((category, s)) = counted(kind, data).map_err(|_| EIO)? {
                h.of(category).add(&s);
            }
            Ok(true)
        })?;
    }
    Ok(h)
}

pub(super) fn check(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut x = Index::load(c)?;
    let counted = recount(&mut x)?;
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&x.header);
            w.put(&counted);
        });
    })
    .into())
}

pub(super) fn rebuild(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let mut x = Index::load_writable(c)?;
    x.header = recount(&mut x)?;
    x.store().map(Output::from)
}
