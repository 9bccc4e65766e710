//! Snapshots: resolving the version of an object, listing clones, rollback, trimming.

use super::{OpCtx, Step, View};
use crate::object::snapset::AtSnap;
use crate::object::{Intervals, OI_ATTR, ObjectContext, ObjectInfo, SS_ATTR, SnapSet};
use crate::stats::StatSum;
use base::errno::{EBUSY, EIO, ENOENT};
use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use cluster::IntervalSet;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};
use wire::msg::OsdOp;
use wire::types::{CloneInfo, ListSnapsReply};
use wire::{Encode, Features};

fn decoded<T>(what: &str, oid: &Oid, r: Result<T, wire::DecodeError>) -> Step<T> {
    r.map_err(|e| {
        tracing::error!(object = %oid.hobj, what, error = %e, "object metadata does not decode");
        EIO.into()
    })
}

/// Reads the metadata of an object: head and clones. The pool's map does not decide whether there can be clones: a
/// client whose map is newer may write under a snapshot that this OSD does not know yet.
pub(crate) fn load_context(store: &mut dyn ObjectStore, tag: Tag, cid: Cid, head: &HObject) -> Step<ObjectContext> {
    let oid = Oid::new(head.clone());
    match store.attr(tag, cid, &oid, OI_ATTR) {
        Ok(Some(a)) => {
            let oi = decoded("object info", &oid, ObjectInfo::from_attr(&a))?;
            let mut ctx = ObjectContext { exists: true, oi, ..ObjectContext::default() };
            if let Some(a) = store.attr(tag, cid, &oid, SS_ATTR)? {
                ctx.ss = decoded("snapset", &oid, SnapSet::from_attr(&a))?;
            }
            Ok(ctx)
        }
        Ok(None) => {
            tracing::error!(object = %head, "object without object info");
            Err(EIO.into())
        }
        Err(ReadError::NoObject) => {
            let mut ctx = ObjectContext::default();
            let dir = Oid::new(head.at_snap(SnapId::SNAPDIR));
            match store.attr(tag, cid, &dir, SS_ATTR) {
                Ok(Some(a)) => ctx.ss = decoded("snapset", &dir, SnapSet::from_attr(&a))?,
                Ok(None) | Err(ReadError::NoObject) => {}
                Err(e) => return Err(e.into()),
            }
            Ok(ctx)
        }
        Err(e) => Err(e.into()),
    }
}

/// Info of a clone.
pub(crate) fn load_clone_info(store: &mut dyn ObjectStore, tag: Tag, cid: Cid, oid: &Oid) -> Step<ObjectInfo> {
    match store.attr(tag, cid, oid, OI_ATTR)? {
        Some(a) => decoded("clone info", oid, ObjectInfo::from_attr(&a)),
        None => Err(EIO.into()),
    }
}

impl OpCtx<'_> {
    pub(super) fn op_list_snaps(&mut self, op: &mut OsdOp) -> Step<i32> {
        self.delta.num_rd += 1;
        let ss = &self.before.ss;
        let mut clones: Vec<CloneInfo> = ss
            .clones
            .iter()
            .map(|c| CloneInfo {
                cloneid: SnapId(c.id),
                snaps: c.snaps.iter().rev().map(|s| SnapId(*s)).collect(),
                overlap: c.overlap.as_slice().to_vec(),
                size: c.size,
            })
            .collect();
        if self.before.exists {
            clones.push(CloneInfo { cloneid: SnapId::HEAD, size: self.before.oi.size, ..CloneInfo::default() });
        }
        op.outdata = ListSnapsReply { clones, seq: ss.seq }.to_bytes(Features::PACIFIC);
        Ok(0)
    }

    pub(super) fn op_rollback(&mut self, op: &OsdOp) -> Step<i32> {
        let snap = op.snap();
        let ss = &self.before.ss;
        let removed = self.env.removed_snaps.contains(snap.0);
        let at = if removed && snap != SnapId::HEAD { AtSnap::Absent } else { ss.resolve(snap) };
        match at {
            AtSnap::Head if self.exists => {
                self.change.any = true;
                Ok(0)
            }
            AtSnap::Head | AtSnap::Absent => {
                if !self.oi.watchers.is_empty() {
                    return Err(EBUSY.into());
                }
                if self.exists {
                    self.delete()?;
                }
                Ok(0)
            }
            AtSnap::Clone(id) => {
                let oid = Oid::new(self.head.at_snap(SnapId(id)));
                let (store, tag, cid) = self.view.store();
                let clone = load_clone_info(store, tag, cid, &oid)?;
                // Head and clone share the ranges that every clone from that one on shares with its successor.
                let from = ss.position(id).unwrap_or(0);
                let ranges = ss.clones.iter().skip(from).map(|c| c.overlap.as_slice().len() as u64 + 4);
                self.long.work += ranges.sum::<u64>() * 32;
                let mut shared: Option<Intervals> = None;
                for c in ss.clones.iter().skip(from) {
                    shared = Some(shared.map_or_else(|| c.overlap.clone(), |s| s.intersection(&c.overlap)));
                }
                let mut changed = self.whole();
                changed.subtract(&shared.unwrap_or_default());
                self.modified.note(changed.as_slice());
                if !self.exists {
                    self.exists = true;
                    self.oi.reset();
                    self.delta.num_objects += 1;
                }
                self.view.clone_from(oid);
                self.delta.num_bytes += clone.size as i64 - self.oi.size as i64;
                self.delta.num_wr += 1;
                self.oi.size = clone.size;
                self.oi.flags = self.oi.flags & !ObjectInfo::OMAP | clone.flags & ObjectInfo::OMAP;
                self.omap = clone.has_omap();
                Ok(0)
            }
        }
    }
}

/// Key of the snapshot index for a clone: snapshot, then the clone.
#[must_use]
pub fn index_key(snap: u64, clone: &HObject) -> Bytes {
    let mut w = wire::Writer::with_capacity(Features::PACIFIC, 64 + clone.oid.len());
    w.raw(&snap.to_be_bytes());
    w.put(clone);
    w.into_bytes()
}

/// The clone that an index key names.
pub(crate) fn index_clone(key: &Bytes) -> Option<HObject> {
    if key.len() < 8 {
        return None;
    }
    <HObject as wire::Decode>::from_bytes(&key.slice(8..)).ok()
}

/// Changes of trimming one clone.
#[derive(Debug, Default)]
pub(crate) struct Trimmed {
    pub ops: Vec<Op>,
    pub delta: StatSum,
    /// The object's metadata afterwards.
    pub after: ObjectContext,
    /// The clone is removed, so its log record is a deletion.
    pub removed: bool,
    /// Snapshots that the clone still represents.
    pub snaps: Vec<u64>,
}

/// Plans the trimming of `clone` after `snap` and the snapshots of `gone` were removed; `None` if the clone does not
/// exist or does not stand for `snap`. `version`: that of the trimming's log entry.
pub(crate) fn trim_clone(
    view: &mut View<'_>,
    meta: &Oid,
    before: &ObjectContext,
    clone: &HObject,
    snap: u64,
    gone: &IntervalSet,
    version: Eversion,
) -> Step<Option<Trimmed>> {
    let Some(at) = before.ss.position(clone.snap.0) else { return Ok(None) };
    if before.ss.clones.get(at).is_none_or(|c| !c.snaps.contains(&snap)) {
        return Ok(None);
    }
    let (store, tag, cid) = view.store();
    let clone_oid = Oid::new(clone.clone());
    let mut t = Trimmed { after: before.clone(), ..Trimmed::default() };
    let Some(entry) = t.after.ss.clones.get_mut(at) else { return Ok(None) };
    let (dropped, kept): (Vec<u64>, Vec<u64>) =
        entry.snaps.iter().copied().partition(|s| *s == snap || gone.contains(*s));
    entry.snaps.clone_from(&kept);
    let keys = dropped.iter().map(|s| index_key(*s, clone)).collect();
    t.ops.push(Op::OmapRmKeys { cid, oid: meta.clone(), keys });
    if kept.is_empty() {
        let oi = match load_clone_info(store, tag, cid, &clone_oid) {
            Ok(oi) => oi,
            // The store lacks the clone: only its entry in the snapset is removed.
            Err(super::Stop::Errno(ENOENT)) => ObjectInfo::default(),
            Err(e) => return Err(e),
        };
        t.removed = true;
        t.delta.num_objects -= 1;
        t.delta.num_object_clones -= 1;
        if oi.has_omap() {
            t.delta.num_objects_omap -= 1;
        }
        if oi.flags & ObjectInfo::DIRTY != 0 {
            t.delta.num_objects_dirty -= 1;
        }
        let ss = &mut t.after.ss;
        t.delta.num_bytes -= ss.clone_bytes(at) as i64;
        let gone_clone = ss.clones.remove(at);
        if let Some(older) = at.checked_sub(1) {
            // The next older clone now shares ranges with the successor of the removed one.
            t.delta.num_bytes -= ss.clone_bytes(older) as i64;
            if let Some(c) = ss.clones.get_mut(older) {
                c.overlap = c.overlap.intersection(&gone_clone.overlap);
            }
            t.delta.num_bytes += ss.clone_bytes(older) as i64;
        }
        t.ops.push(Op::Remove { cid, oid: clone_oid });
    }
    t.snaps = kept;
    let head = clone.head();
    if t.after.exists {
        t.after.oi.version = version;
        let (ss, oi) = (t.after.ss.to_attr(), t.after.oi.to_attr());
        let attrs = vec![(Bytes::from_static(SS_ATTR), ss), (Bytes::from_static(OI_ATTR), oi)];
        t.ops.push(Op::SetAttrs { cid, oid: Oid::new(head), attrs });
    } else {
        let dir = Oid::new(head.at_snap(SnapId::SNAPDIR));
        if t.after.ss.clones.is_empty() {
            t.after.ss = SnapSet::default();
            t.ops.push(Op::Remove { cid, oid: dir });
        } else {
            let attrs = super::finish::snapdir_attrs(&t.after.ss, version);
            t.ops.push(Op::SetAttrs { cid, oid: dir, attrs });
        }
    }
    Ok(Some(t))
}
