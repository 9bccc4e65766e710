//! Changes of objects in the index: prepared before the object is written, completed afterwards. An operation that a
//! failed gateway left prepared is resolved by `dir_suggest_changes`, in which another gateway reports the object's
//! state.

use super::index::{COMPLETE, Index, PENDING_MODIFY, op};
use super::keys;
use super::types::{DirEntry, Header, Key, LogEntry, Meta, Pending, Stats, Ver, Zones, flags};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, stored_as};
use base::errno::{EINVAL, EIO};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::codec::Result as Decoded;
use wire::{Decode, Reader};

/// Seconds for which a pending operation blocks suggestions, unless the header has another value.
const TAG_TIMEOUT: u64 = 120;

pub(super) fn init_index(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    if !c.omap_header()?.is_empty() {
        return fail(EINVAL);
    }
    let h = Header { ver: 1, ..Header::default() };
    c.omap_set_header(&enc(|w| w.put(&h))).map(Output::from)
}

pub(super) fn set_tag_timeout(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let timeout = input(i, |r| r.versioned("rgw_cls_tag_timeout_op", 1, |r, _| r.u64()))?;
    let mut index = Index::load(c)?;
    index.header.tag_timeout = timeout;
    index.store().map(Output::from)
}

pub(super) fn update_stats(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    type All = BTreeMap<u8, Stats>;
    let (absolute, add, sub) = input(i, |r| {
        r.versioned("rgw_cls_bucket_update_stats_op", 2, |r, v| {
            Ok((r.bool()?, r.get::<All>()?, if v >= 2 { r.get::<All>()? } else { All::new() }))
        })
    })?;
    if absolute && !sub.is_empty() {
        return fail(EINVAL);
    }
    let mut index = Index::load(c)?;
    for (category, s) in &add {
        let sums = index.header.of(*category);
        if absolute { *sums = *s } else { sums.add(s) }
    }
    for (category, s) in &sub {
        index.header.of(*category).sub(s);
    }
    index.store().map(Output::from)
}

/// `rgw_cls_obj_prepare_op`.
struct Prepare {
    op: u8,
    key: Key,
    tag: Bytes,
    locator: Bytes,
}

impl Prepare {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_obj_prepare_op", 7, |r, v| {
            let op = r.u8()?;
            let mut key = Key::default();
            if v < 5 {
                key.name = r.blob()?;
            }
            let (tag, locator) = (r.blob()?, r.blob()?);
            if v >= 4 {
                r.bool()?;
            }
            if v >= 5 {
                key = r.get()?;
            }
            Ok(Self { op, key, tag, locator })
        })
    }
}

pub(super) fn prepare(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let p = input(i, Prepare::decode)?;
    if p.tag.is_empty() {
        return fail(EINVAL);
    }
    let mut index = Index::load_writable(c)?;
    let (idx, entry) = index.get_object(&p.key, false)?;
    let mut entry = entry.unwrap_or_else(|| DirEntry { key: p.key, locator: p.locator, ..DirEntry::default() });
    let time = index.c.now();
    entry.add_pending(p.tag, Pending { state: PENDING_MODIFY, time, op: p.op });
    index.put(&idx, &entry).map(Output::from)
}

/// `rgw_cls_obj_complete_op`.
struct Complete {
    op: u8,
    key: Key,
    locator: Bytes,
    ver: Ver,
    meta: Meta,
    tag: Bytes,
    log: bool,
    log_flags: u16,
    /// Entries to remove with it: the parts of a completed upload.
    remove: Vec<Key>,
    zones: Zones,
}

impl Complete {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_obj_complete_op", 9, |r, v| {
            let op = r.u8()?;
            let mut key = Key::default();
            if v < 7 {
                key.name = r.blob()?;
            }
            let mut ver = Ver { epoch: r.u64()?, ..Ver::default() };
            let (meta, tag, locator) = (r.get()?, r.blob()?, r.blob()?);
            let remove = if (4..7).contains(&v) {
                r.get::<Vec<Bytes>>()?.into_iter().map(Key::named).collect()
            } else {
                r.get()?
            };
            if v >= 5 {
                ver = r.get()?;
            }
            let log = v >= 6 && r.bool()?;
            if v >= 7 {
                key = r.get()?;
            }
            let log_flags = if v >= 8 { r.u16()? } else { 0 };
            let zones = if v >= 9 { r.get()? } else { Zones::default() };
            Ok(Self { op, key, locator, ver, meta, tag, log, log_flags, remove, zones })
        })
    }

    /// The entry of an object that the index does not have.
    fn new_entry(&self) -> DirEntry {
        DirEntry {
            key: self.key.clone(),
            ver: self.ver,
            meta: self.meta.clone(),
            locator: self.locator.clone(),
            ..DirEntry::default()
        }
    }
}

pub(super) fn complete(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut q = input(i, Complete::decode)?;
    let mut index = match Index::load_writable(c) {
        Err(e) if e.is(EIO) => return fail(EINVAL),
        r => r?,
    };
    let (idx, found) = index.get_object(&q.key, false)?;
    let on_disk = found.is_some();
    let mut entry = found.unwrap_or_else(|| q.new_entry());
    entry.index_ver = index.header.ver;
    entry.flags &= flags::VER;
    if !q.tag.is_empty() && !entry.end_pending(&q.tag) {
        return fail(EINVAL);
    }
    let late = q.ver.pool == entry.ver.pool && q.ver.epoch != 0 && q.ver.epoch <= entry.ver.epoch;
    if late {
        q.op = op::CANCEL;
    }
    let mut log = q.log && !index.header.sync_stopped;
    entry.ver = q.ver;
    match q.op {
        op::CANCEL => {
            log = false;
            if !q.tag.is_empty() {
                keep_or_remove(&mut index, &idx, &entry)?;
            }
        }
        op::DEL => {
            index.uncount(&entry);
            entry.meta = q.meta;
            if !on_disk {
                log = false;
            } else if entry.pending.is_empty() {
                index.remove(&idx, &entry.key)?;
            } else {
                entry.exists = false;
                index.put(&idx, &entry)?;
            }
        }
        op::ADD => {
            index.uncount(&entry);
            entry.meta = q.meta;
            entry.key = q.key.clone();
            entry.exists = true;
            entry.tag = q.tag.clone();
            index.count(&entry);
            index.put(&idx, &entry)?;
        }
        _ => {}
    }
    if log {
        index.log(LogEntry {
            key: q.key,
            time: entry.meta.mtime,
            ver: entry.ver,
            op: q.op,
            state: COMPLETE,
            tag: q.tag,
            flags: q.log_flags,
            zones: q.zones,
            ..LogEntry::default()
        })?;
    }
    for key in &q.remove {
        remove_with(&mut index, key)?;
    }
    index.store().map(Output::from)
}

/// Stores the entry after a cancelled operation, or removes it if the object is absent and no operation is pending.
fn keep_or_remove(index: &mut Index<'_>, idx: &Bytes, entry: &DirEntry) -> ClsResult<()> {
    if !entry.exists && entry.pending.is_empty() { index.remove(idx, &entry.key) } else { index.put(idx, entry) }
}

/// Removes an entry with a completed operation. An entry that is absent or undecodable is ignored.
fn remove_with(index: &mut Index<'_>, key: &Key) -> ClsResult<()> {
    let found = match index.get_object(key, false) {
        Err(e) if e.is(EIO) => return Ok(()),
        r => r?,
    };
    let (idx, Some(_)) = found else { return Ok(()) };
    // Use the state after the call's changes so far: an entry is subtracted once, however often it is named.
    let Some(now) = index.get_now(&idx)? else { return Ok(()) };
    let entry: DirEntry = stored_as(&now)?;
    index.uncount(&entry);
    index.remove(&idx, key)
}

/// Actions of a suggestion.
mod suggestion {
    pub(super) const REMOVE: u8 = b'r';
    pub(super) const UPDATE: u8 = b'u';
    /// Flag: the change goes to the change log.
    pub(super) const LOG: u8 = 0x80;
}

pub(super) fn suggest(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let mut index = Index::load_writable(c)?;
    let timeout = if index.header.tag_timeout == 0 { TAG_TIMEOUT } else { index.header.tag_timeout };
    let mut changes = Vec::new();
    input(i, |r| {
        while !r.is_empty() {
            changes.push((r.u8()?, DirEntry::decode(r)?));
        }
        Ok(())
    })?;
    let mut changed = false;
    for (what, change) in changes {
        changed |= one_suggestion(&mut index, timeout, what, change)?;
    }
    if changed { index.store().map(Output::from) } else { Ok(Output::default()) }
}

/// Applies one suggestion; true if the statistics changed.
fn one_suggestion(index: &mut Index<'_>, timeout: u64, what: u8, mut change: DirEntry) -> ClsResult<bool> {
    let (what, log) = (what & !suggestion::LOG, what & suggestion::LOG != 0 && !index.header.sync_stopped);
    if !matches!(what, suggestion::REMOVE | suggestion::UPDATE) {
        return Ok(false);
    }
    let idx = keys::object(&change.key);
    let Some(stored) = index.get_now(&idx)? else { return Ok(false) };
    let disk = if stored.is_empty() { DirEntry::default() } else { input(&stored, DirEntry::decode)? };
    let now = index.c.now();
    let alive = |p: &Pending| now.to_unix() <= p.time.to_unix().saturating_add(Duration::from_secs(timeout));
    // The suggestion is older than the entry, or an operation is in progress: a later suggestion resolves it.
    if change.index_ver < disk.index_ver || disk.pending.iter().any(|(_, p)| alive(p)) {
        return Ok(false);
    }
    index.uncount(&disk);
    let mut entry = LogEntry { state: COMPLETE, ..LogEntry::default() };
    if what == suggestion::REMOVE {
        index.remove(&idx, &change.key)?;
        if log && disk.exists {
            entry =
                LogEntry { key: disk.key, op: op::DEL, tag: disk.tag, time: disk.meta.mtime, ver: disk.ver, ..entry };
            index.log(entry)?;
        }
        return Ok(disk.exists);
    }
    change.index_ver = index.header.ver;
    index.count(&change);
    index.put(&idx, &change)?;
    if log {
        entry = LogEntry {
            key: change.key,
            op: op::ADD,
            tag: change.tag,
            time: change.meta.mtime,
            ver: change.ver,
            ..entry
        };
        index.log(entry)?;
    }
    Ok(true)
}
