//! Versioned objects. Object `foo` with version `BAR` has these entries:
//!
//! - the OLH entry (`OlhEntry`): the current version, and the steps that the gateway must still carry out
//! - the entry of the version
//! - the same entry under its listing key, which sorts the newest version first
//! - a plain entry as a placeholder
//!
//! The null version has no id; as a delete marker it has an entry besides that of the data.
//!
//! All reads return the state before the call, so the order of reads and writes here matters only for the writes.

use super::index::{COMPLETE, Index, op};
use super::keys;
use super::types::{DirEntry, Key, LogEntry, Meta, OlhEntry, OlhStep, Ver, Zones, flags};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, stored_as};
use base::Utime;
use base::errno::{ECANCELED, EINVAL, ENOENT};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::Reader;
use wire::codec::Result as Decoded;

/// Types of steps (`OLHLogOp`).
mod step {
    pub(super) const LINK: u8 = 1;
    pub(super) const UNLINK: u8 = 2;
    pub(super) const REMOVE_INSTANCE: u8 = 3;
}
/// Most epochs of steps in one reply.
const STEPS_MAX: usize = 1000;
/// Epoch of an object from before the bucket had versions; epochs of versions are larger.
const PLAIN_EPOCH: u64 = 1;

const VERSIONED_OP: u16 = 1;

/// A version and the key of its entry.
struct Version {
    key: Key,
    idx: Bytes,
    entry: DirEntry,
}

impl Version {
    /// Loads a version; `None` if absent. `marker`: prefer the delete marker of a null version.
    fn load(x: &mut Index<'_>, key: &Key, marker: bool) -> ClsResult<Option<Self>> {
        let (idx, entry) = x.get_object(key, marker && key.instance.is_empty())?;
        Ok(entry.map(|entry| Self { key: key.clone(), idx, entry }))
    }

    /// Turns the version into a delete marker, which is not counted.
    fn into_delete_marker(mut self, meta: &Meta) -> Self {
        self.entry.key = self.key.clone();
        self.entry.flags = flags::DELETE_MARKER;
        self.entry.meta = meta.clone();
        self.entry.tag = "delete-marker".into();
        self.entry.exists = false;
        self
    }

    /// Removes the listing entry of the version.
    fn unlist(&self, x: &mut Index<'_>) -> ClsResult<()> {
        x.remove(&keys::listed(&self.entry), &self.entry.key)
    }

    /// Writes the entry and the listing entry of the version.
    fn put(&mut self, x: &mut Index<'_>) -> ClsResult<()> {
        let null_marker = self.entry.is_delete_marker() && self.entry.key.instance.is_empty();
        self.idx = if null_marker { keys::null_marker(&self.key) } else { keys::instance(&self.key) };
        x.put(&self.idx, &self.entry)?;
        x.put(&keys::listed(&self.entry), &self.entry)
    }

    /// Gives the version an epoch.
    fn link(&mut self, x: &mut Index<'_>, epoch: u64, current: bool) -> ClsResult<()> {
        if self.entry.versioned_epoch > 0 {
            self.unlist(x)?;
        }
        self.entry.versioned_epoch = epoch;
        self.entry.flags |= flags::VER | if current { flags::CURRENT } else { 0 };
        self.put(x)
    }

    /// The next older version of the object.
    fn next(&self, x: &mut Index<'_>) -> ClsResult<Option<Key>> {
        let (rows, _) = x.c.omap_list(&keys::listed(&self.entry), &self.key.name, 1)?;
        let Some((_, value)) = rows.first() else { return Ok(None) };
        let e: DirEntry = stored_as(value)?;
        Ok((e.key.name == self.key.name).then_some(e.key))
    }
}

impl OlhEntry {
    /// Begins a change at an epoch, or at the next one if it is 0. Returns false if a newer change exists.
    fn begin(&mut self, epoch: u64) -> bool {
        if epoch == 0 {
            self.epoch = if self.epoch == 0 { PLAIN_EPOCH + 1 } else { self.epoch.wrapping_add(1) };
        } else if epoch < self.epoch {
            return false;
        } else {
            self.epoch = epoch;
        }
        true
    }

    fn step(&mut self, op: u8, op_tag: &Bytes, key: &Key, delete_marker: bool, epoch: Option<u64>) {
        let (op_tag, key, epoch) = (op_tag.clone(), key.clone(), epoch.filter(|e| *e != 0).unwrap_or(self.epoch));
        self.log.entry(self.epoch).or_default().push(OlhStep { epoch, op, op_tag, key, delete_marker });
    }
}

/// Converts an unversioned object to a versioned one: its data becomes the null version.
fn convert(x: &mut Index<'_>, name: &Bytes, demote: bool, instance_only: bool) -> ClsResult<()> {
    let key = Key::named(name.clone());
    if let (_, Some(mut e)) = x.get_object(&key, false)? {
        e.versioned_epoch = PLAIN_EPOCH;
        e.flags |= flags::VER;
        if demote {
            e.flags &= !flags::CURRENT;
        }
        x.put(&keys::instance(&key), &e)?;
        if !instance_only {
            x.put(&keys::listed(&e), &e)?;
        }
    }
    let placeholder = DirEntry { key, flags: flags::VER_MARKER, ..DirEntry::default() };
    x.put(name, &placeholder)
}

/// `rgw_cls_link_olh_op`.
struct Link {
    key: Key,
    olh_tag: Bytes,
    delete_marker: bool,
    op_tag: Bytes,
    meta: Meta,
    epoch: u64,
    log: bool,
    log_flags: u16,
    /// Link only if the existing version is older than this.
    unmodified_since: Utime,
    precise: bool,
    zones: Zones,
}

impl Link {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_link_olh_op", 5, |r, v| {
            let (key, olh_tag, delete_marker, op_tag) = (r.get()?, r.blob()?, r.bool()?, r.blob()?);
            let (meta, epoch, log, log_flags) = (r.get()?, r.u64()?, r.bool()?, r.u16()?);
            let mut unmodified_since = Utime::ZERO;
            if v >= 2 {
                unmodified_since.sec = r.u64()? as u32;
            }
            if v >= 3 {
                unmodified_since = r.get()?;
            }
            let precise = v >= 4 && r.bool()?;
            let zones = if v >= 5 { r.get()? } else { Zones::default() };
            Ok(Self {
                key,
                olh_tag,
                delete_marker,
                op_tag,
                meta,
                epoch,
                log,
                log_flags,
                unmodified_since,
                precise,
                zones,
            })
        })
    }

    /// The entry of the bucket's log; `meta`: that of the linked version.
    fn log_entry(self, meta: Meta, epoch: u64) -> LogEntry {
        let (owner, owner_name) = if self.delete_marker { (meta.owner, meta.owner_name) } else { Default::default() };
        LogEntry {
            key: self.key,
            time: meta.mtime,
            ver: Ver { epoch, ..Ver::default() },
            op: if self.delete_marker { op::LINK_OLH_DM } else { op::LINK_OLH },
            state: COMPLETE,
            tag: self.op_tag,
            flags: self.log_flags | VERSIONED_OP,
            owner,
            owner_name,
            zones: self.zones,
            ..LogEntry::default()
        }
    }

    fn is_newer(&self, mtime: Utime) -> bool {
        let cut = |t: Utime| if self.precise { t } else { Utime { nsec: 0, ..t } };
        self.unmodified_since != Utime::ZERO && cut(mtime) >= cut(self.unmodified_since)
    }
}

pub(super) fn link(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let q = input(i, Link::decode)?;
    let x = &mut Index::load_writable(c)?;
    let found = Version::load(x, &q.key, q.delete_marker)?;
    if found.is_none() && !q.delete_marker {
        return fail(ENOENT);
    }
    if found.as_ref().is_some_and(|v| q.is_newer(v.entry.meta.mtime)) {
        return Ok(Output::default());
    }
    // A delete marker replaces data: the gateway must remove the data's object.
    let removing = if q.key.instance.is_empty() {
        replace_null(x, &q)?
    } else {
        q.delete_marker && found.as_ref().is_some_and(|v| !v.entry.is_delete_marker())
    };
    let mut obj =
        found.unwrap_or_else(|| Version { key: q.key.clone(), idx: Bytes::new(), entry: DirEntry::default() });
    if q.delete_marker {
        obj = obj.into_delete_marker(&q.meta);
    }
    let olh_idx = keys::olh(&q.key.name);
    let stored: Option<OlhEntry> = x.get(&olh_idx)?;
    let known = stored.is_some();
    let mut olh = stored.unwrap_or_default();
    let before = olh.epoch;
    if !olh.begin(q.epoch) {
        obj.link(x, q.epoch, false)?;
        return x.store_if_logging().map(Output::from);
    }
    let promote = olh.epoch > before || (olh.epoch == before && olh.key.instance >= q.key.instance);
    if known {
        demote(x, &q, &mut olh, promote)?;
    } else {
        let null = q.key.instance.is_empty();
        convert(x, &q.key.name, promote, null && q.delete_marker)?;
        olh.tag = q.olh_tag.clone();
        if null {
            obj.entry.versioned_epoch = PLAIN_EPOCH;
        }
    }
    olh.step(step::LINK, &q.op_tag, &q.key, q.delete_marker, None);
    if removing {
        olh.step(step::REMOVE_INSTANCE, &q.op_tag, &q.key, false, None);
    }
    if promote {
        olh.key = q.key.clone();
        olh.delete_marker = q.delete_marker;
    }
    olh.exists = true;
    x.put(&olh_idx, &olh)?;
    obj.link(x, olh.epoch, promote)?;
    if !q.log || x.header.sync_stopped {
        return x.store_if_logging().map(Output::from);
    }
    let epoch = if q.epoch == 0 { olh.epoch } else { q.epoch };
    x.log(q.log_entry(obj.entry.meta, epoch))?;
    x.store().map(Output::from)
}

/// Unlists the null version that the new one replaces: either data or a delete marker. True if its data must be
/// removed.
fn replace_null(x: &mut Index<'_>, q: &Link) -> ClsResult<bool> {
    let other = Version::load(x, &q.key, !q.delete_marker)?;
    let data = other.as_ref().is_some_and(|o| !o.entry.is_delete_marker());
    if let Some(o) = &other
        && o.entry.is_delete_marker() != q.delete_marker
    {
        o.unlist(x)?;
    }
    let removing = data && q.delete_marker;
    if !removing {
        let idx = match &other {
            Some(o) => o.idx.clone(),
            None => x.get_object(&q.key, !q.delete_marker)?.0,
        };
        x.remove(&idx, &q.key)?;
    }
    Ok(removing)
}

/// Checks the tag of an existing object. If the new version becomes current, the present one ceases to be.
fn demote(x: &mut Index<'_>, q: &Link, olh: &mut OlhEntry, promote: bool) -> ClsResult<()> {
    if q.olh_tag != olh.tag {
        if !olh.pending_removal {
            return fail(ECANCELED);
        }
        olh.tag = q.olh_tag.clone();
    }
    if promote && olh.exists && olh.key != q.key {
        let Some(mut old) = Version::load(x, &olh.key, true)? else { return fail(ENOENT) };
        old.entry.flags &= !flags::CURRENT;
        old.put(x)?;
    }
    olh.pending_removal = false;
    Ok(())
}

/// `rgw_cls_unlink_instance_op`.
struct Unlink {
    key: Key,
    op_tag: Bytes,
    epoch: u64,
    log: bool,
    log_flags: u16,
    olh_tag: Bytes,
    zones: Zones,
}

impl Unlink {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_unlink_instance_op", 3, |r, v| {
            let (key, op_tag, epoch, log, log_flags) = (r.get()?, r.blob()?, r.u64()?, r.bool()?, r.u16()?);
            let olh_tag = if v >= 2 { r.blob()? } else { Bytes::new() };
            let zones = if v >= 3 { r.get()? } else { Zones::default() };
            Ok(Self { key, op_tag, epoch, log, log_flags, olh_tag, zones })
        })
    }
}

pub(super) fn unlink_instance(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let q = input(i, Unlink::decode)?;
    let x = &mut Index::load_writable(c)?;
    let Some(mut obj) = Version::load(x, &q.key, true)? else { return fail(ENOENT) };
    let olh_idx = keys::olh(&q.key.name);
    let stored: Option<OlhEntry> = x.get(&olh_idx)?;
    let known = stored.is_some();
    let mut olh = stored.unwrap_or_default();
    if !known {
        convert(x, &q.key.name, true, false)?;
        olh.key = q.key.clone();
        olh.tag = q.olh_tag.clone();
        obj.entry.versioned_epoch = PLAIN_EPOCH;
    }
    if !olh.begin(q.epoch) {
        obj.unlist(x)?;
        if !obj.entry.is_delete_marker() {
            olh.step(step::REMOVE_INSTANCE, &q.op_tag, &q.key, false, Some(q.epoch));
            x.put(&olh_idx, &olh)?;
        }
        return x.store_if_logging().map(Output::from);
    }
    if olh.key == q.key {
        // The current version is removed: the next older one becomes current.
        if let Some(next) = obj.next(x)? {
            let Some(mut v) = Version::load(x, &next, true)? else { return fail(ENOENT) };
            v.entry.flags |= flags::VER | flags::CURRENT;
            v.put(x)?;
            olh.delete_marker = v.entry.is_delete_marker();
            olh.step(step::LINK, &q.op_tag, &next, olh.delete_marker, None);
            olh.key = next;
        } else {
            // Keep the name: resharding determines the shard by it.
            olh.key = Key::named(q.key.name.clone());
            olh.delete_marker = false;
            let key = olh.key.clone();
            olh.step(step::UNLINK, &q.op_tag, &key, false, None);
            olh.exists = false;
            olh.pending_removal = true;
        }
    }
    if obj.entry.is_delete_marker() {
        x.remove(&obj.idx, &q.key)?;
    } else {
        olh.step(step::REMOVE_INSTANCE, &q.op_tag, &q.key, false, None);
    }
    obj.unlist(x)?;
    x.put(&olh_idx, &olh)?;
    if !q.log || x.header.sync_stopped {
        return x.store_if_logging().map(Output::from);
    }
    x.log(LogEntry {
        key: q.key,
        time: obj.entry.meta.mtime,
        ver: Ver { epoch: if q.epoch == 0 { olh.epoch } else { q.epoch }, ..Ver::default() },
        op: op::UNLINK_INSTANCE,
        state: COMPLETE,
        tag: q.op_tag,
        flags: q.log_flags | VERSIONED_OP,
        zones: q.zones,
        ..LogEntry::default()
    })?;
    x.store().map(Output::from)
}

/// The OLH entry of an object, if its tag is the one that the caller knows.
fn load_tagged(x: &mut Index<'_>, key: &Key, tag: &Bytes) -> ClsResult<(Bytes, OlhEntry)> {
    if !key.instance.is_empty() {
        return fail(EINVAL);
    }
    let idx = keys::olh(&key.name);
    let olh: OlhEntry = x.get(&idx)?.unwrap_or_default();
    if olh.tag == *tag { Ok((idx, olh)) } else { fail(ECANCELED) }
}

/// Decodes name, epoch and tag.
fn log_input(what: &'static str, i: &Bytes) -> ClsResult<(Key, u64, Bytes)> {
    input(i, |r| r.versioned(what, 1, |r, _| Ok((r.get()?, r.u64()?, r.blob()?))))
}

pub(super) fn read_log(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, marker, tag) = log_input("rgw_cls_read_olh_log_op", i)?;
    let (_, olh) = load_tagged(&mut Index::load(c)?, &key, &tag)?;
    let all = olh.log.first_key_value().is_some_and(|(e, _)| *e > marker) && olh.log.len() <= STEPS_MAX;
    let mut rest = olh.log.into_iter().filter(|(e, _)| *e > marker);
    let steps: BTreeMap<u64, Vec<OlhStep>> = rest.by_ref().take(STEPS_MAX).collect();
    let truncated = !all && rest.next().is_some();
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&steps);
            w.bool(truncated);
        });
    })
    .into())
}

pub(super) fn trim_log(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, upto, tag) = log_input("rgw_cls_trim_olh_log_op", i)?;
    let mut x = Index::load_writable(c)?;
    let (idx, mut olh) = load_tagged(&mut x, &key, &tag)?;
    olh.log.retain(|e, _| *e > upto);
    x.put(&idx, &olh)?;
    x.store_if_logging().map(Output::from)
}

pub(super) fn clear(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (key, tag) =
        input(i, |r| r.versioned("rgw_cls_bucket_clear_olh_op", 1, |r, _| Ok((r.get::<Key>()?, r.blob()?))))?;
    let mut x = Index::load_writable(c)?;
    let (idx, olh) = load_tagged(&mut x, &key, &tag)?;
    x.remove(&idx, &olh.key)?;
    let plain: Option<DirEntry> = x.get(&key.name)?;
    if let Some(e) = plain.filter(|e| e.flags & flags::VER_MARKER != 0) {
        x.remove(&key.name, &e.key)?;
    }
    x.store_if_logging().map(Output::from)
}
