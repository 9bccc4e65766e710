//! Completion of a planned vector: a clone if a snapshot needs it, new metadata, log records.

use super::OpCtx;
use super::snap::index_key;
use crate::log::{LogEntry, LogKind, OpReturn};
use crate::object::{CloneEntry, Intervals, OI_ATTR, ObjectContext, ObjectInfo, SS_ATTR, SnapSet, own_objects};
use crate::stats::StatSum;
use base::{Eversion, HObject, SnapId, Utime};
use bytes::Bytes;
use store::{Cid, Oid, Op};

/// The outcome of a vector.
pub(crate) struct Finished {
    /// Changes to the object, in order, without log and info.
    pub ops: Vec<Op>,
    /// Log records, oldest first; the last one is that of the vector.
    pub entries: Vec<LogEntry>,
    /// The object's metadata after the vector.
    pub after: ObjectContext,
    pub delta: StatSum,
    /// User version in the reply.
    pub user_version: u64,
}

/// Completes a vector that changes the object. `returns`: results per operation, kept for resends.
pub(crate) fn finish(mut c: OpCtx<'_>, result: i32, returns: Vec<OpReturn>) -> Finished {
    let (_, _, cid) = c.view.store();
    let head_oid = c.view.target().clone();
    let before = c.before;
    let mut ss = before.ss.clone();
    let mut version = c.env.next_version;
    let mut entries = Vec::with_capacity(1);
    let mut ops = Vec::new();

    count_flags(&mut c);
    if let (true, Some(&newest)) = (before.exists, c.snapc.snaps.first())
        && newest > ss.seq
        && !base::planted::acts(base::planted::Bug::ForgetClone)
    {
        entries.push(clone_for_snap(&mut c, &mut ss, &mut ops));
        version.version += 1;
    }
    if let Some(newest) = ss.clones.last_mut() {
        // Changed ranges leave the overlap, so their bytes count for the clone alone.
        let lost = std::mem::take(&mut c.modified).into_set().intersection(&newest.overlap);
        c.delta.num_bytes += lost.bytes() as i64;
        newest.overlap.subtract(&lost);
    }
    ss.seq = ss.seq.max(c.snapc.seq);

    let user_version = next_user_version(&mut c, version);
    if ops.is_empty() {
        ops = std::mem::take(&mut c.view.ops);
    } else {
        ops.append(&mut c.view.ops);
    }
    let had_dir = !before.exists && !before.ss.clones.is_empty();
    let after = if c.exists {
        stamp(&mut c, version);
        let mut attrs = Vec::with_capacity(2);
        attrs.push((Bytes::from_static(OI_ATTR), c.oi.to_attr()));
        // A write without any snapshot in its context needs no snapset, and there is none to replace.
        if !ss.is_blank() {
            attrs.push((Bytes::from_static(SS_ATTR), ss.to_attr()));
        }
        match ops.last_mut() {
            Some(Op::SetAttrs { oid, attrs: a, .. }) if *oid == head_oid => a.append(&mut attrs),
            _ => ops.push(Op::SetAttrs { cid, oid: head_oid, attrs }),
        }
        if had_dir {
            ops.push(Op::Remove { cid, oid: snapdir(c.head) });
        }
        ObjectContext { exists: true, oi: c.oi, ss, last_write: 0 }
    } else {
        without_head(c.head, cid, ss, had_dir, version, &mut ops)
    };
    entries.push(LogEntry {
        kind: if c.exists { LogKind::Modify } else { LogKind::Delete },
        soid: c.head.clone(),
        version,
        prior_version: before.oi.version,
        user_version,
        reqid: c.env.reqid,
        mtime: c.env.mtime,
        result,
        returns,
        snaps: Vec::new(),
        delta: c.delta,
        undo: Bytes::new(),
        touch: None,
    });
    Finished { ops, entries, after, delta: c.delta, user_version }
}

/// Sets the flag of a dirty object, and counts dirty objects and those with omap.
#[inline]
fn count_flags(c: &mut OpCtx<'_>) {
    let before = c.before;
    let was_dirty = before.oi.flags & ObjectInfo::DIRTY != 0;
    if c.exists {
        if c.change.undirty && was_dirty {
            c.oi.flags &= !ObjectInfo::DIRTY;
            c.delta.num_objects_dirty -= 1;
        } else if !c.change.undirty {
            c.oi.flags |= ObjectInfo::DIRTY;
            c.delta.num_objects_dirty += i64::from(!was_dirty);
        }
    } else if was_dirty {
        c.delta.num_objects_dirty -= 1;
    }
    let had_omap = before.exists && before.oi.has_omap();
    c.delta.num_objects_omap += i64::from(c.exists && c.oi.has_omap()) - i64::from(had_omap);
}

/// Keeps the object as it was before the vector as a clone, for the snapshots taken since. Returns the clone's log
/// record.
#[inline]
fn clone_for_snap(c: &mut OpCtx<'_>, ss: &mut SnapSet, ops: &mut Vec<Op>) -> LogEntry {
    let (_, _, cid) = c.view.store();
    let head_oid = c.view.target().clone();
    let (before, version) = (c.before, c.env.next_version);
    let id = c.snapc.seq;
    let clone = Oid::new(c.head.at_snap(SnapId(id)));
    let snaps: Vec<u64> = c.snapc.snaps.iter().copied().take_while(|s| *s > ss.seq).collect();
    let oi = ObjectInfo { version, watchers: Default::default(), ..before.oi.clone() };
    ops.push(Op::Clone { cid, src: head_oid, dst: clone.clone() });
    ops.push(Op::RmAttr { cid, oid: clone.clone(), name: Bytes::from_static(SS_ATTR) });
    ops.push(Op::SetAttrs { cid, oid: clone.clone(), attrs: vec![(Bytes::from_static(OI_ATTR), oi.to_attr())] });
    let keys = snaps.iter().map(|s| (index_key(*s, &clone.hobj), Bytes::new())).collect();
    ops.push(Op::OmapSet { cid, oid: own_objects(c.env.spg).0, entries: keys });
    c.delta.num_objects += 1;
    c.delta.num_object_clones += 1;
    c.delta.num_objects_dirty += i64::from(before.oi.flags & ObjectInfo::DIRTY != 0);
    c.delta.num_objects_omap += i64::from(before.oi.has_omap());
    ss.clones.push(CloneEntry {
        id,
        snaps: snaps.clone(),
        size: before.oi.size,
        overlap: Intervals::one(0, before.oi.size),
    });
    LogEntry {
        kind: LogKind::Clone,
        soid: clone.hobj.clone(),
        version,
        prior_version: before.oi.version,
        user_version: before.oi.user_version,
        reqid: base::ReqId::default(),
        mtime: c.oi.mtime,
        result: 0,
        returns: Vec::new(),
        snaps,
        delta: StatSum::default(),
        undo: Bytes::new(),
        touch: None,
    }
}

/// The user version after the vector, also in the object info.
#[inline]
fn next_user_version(c: &mut OpCtx<'_>, version: Eversion) -> u64 {
    let mut user_version = c.oi.user_version;
    if let Some(v) = c.copy.version {
        user_version = v;
        c.oi.user_version = v;
    }
    if c.change.by_user && (c.copy.version.is_none() || user_version == 0) {
        user_version = c.env.last_user_version.max(c.oi.user_version).saturating_add(1).max(version.version);
        c.oi.user_version = user_version;
    }
    user_version
}

/// Notes version, request and times of the vector in the object info.
#[inline]
fn stamp(c: &mut OpCtx<'_>, version: Eversion) {
    c.oi.version = version;
    c.oi.last_reqid = c.env.reqid;
    if let Some(t) = c.copy.mtime {
        c.oi.mtime = t;
    } else if c.env.mtime != Utime::ZERO {
        c.oi.mtime = c.env.mtime;
        c.oi.local_mtime = c.env.now.wall;
    }
}

/// The object that has the snapset of clones without a head.
fn snapdir(head: &HObject) -> Oid {
    Oid::new(head.at_snap(SnapId::SNAPDIR))
}

/// The attributes of that object: the snapset, and an info with the version of the last change.
pub(crate) fn snapdir_attrs(ss: &SnapSet, version: Eversion) -> Vec<(Bytes, Bytes)> {
    let oi = ObjectInfo { version, ..ObjectInfo::default() };
    vec![(Bytes::from_static(SS_ATTR), ss.to_attr()), (Bytes::from_static(OI_ATTR), oi.to_attr())]
}

/// Metadata of an object without head. `had_dir`: there was none before the vector either, but there were clones.
fn without_head(
    head: &HObject,
    cid: Cid,
    ss: SnapSet,
    had_dir: bool,
    version: Eversion,
    ops: &mut Vec<Op>,
) -> ObjectContext {
    if ss.clones.is_empty() {
        if had_dir {
            ops.push(Op::Remove { cid, oid: snapdir(head) });
        }
        return ObjectContext::default();
    }
    ops.push(Op::SetAttrs { cid, oid: snapdir(head), attrs: snapdir_attrs(&ss, version) });
    ObjectContext { ss, ..ObjectContext::default() }
}
