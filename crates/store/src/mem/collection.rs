//! A collection of the in-memory store: its objects, its log, and the undo records of the log.

use super::object::{Block, Object};
use crate::key::Oid;
use crate::shape::{Ranges, cut, within};
use crate::txn::Op;
use base::Eversion;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Undo data of an object under one version.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: Arc<()>,
    /// Bit-reversed hash and size of the object at that version.
    pub(super) hash: u32,
    pub(super) size: u64,
    /// Replaced blocks, the oldest change first.
    pub(super) blocks: Vec<(u64, Option<Block>)>,
}

#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) bits: u32,
    /// Shard of the collection, as in the engine: only collections of one shard can be merged.
    pub(super) shard: u16,
    /// Ranges of bit-reversed hashes of the objects that the collection may hold.
    pub(super) ranges: Ranges,
    pub(super) objects: BTreeMap<Oid, Arc<Object>>,
    pub(super) log: BTreeMap<Eversion, Bytes>,
    pub(super) info: Option<Bytes>,
    pub(super) kept: BTreeMap<Eversion, Vec<Kept>>,
}

impl Collection {
    pub(super) fn new(bits: u32, shard: u16, ranges: Ranges) -> Self {
        Self { bits, shard, ranges, objects: BTreeMap::new(), log: BTreeMap::new(), info: None, kept: BTreeMap::new() }
    }

    /// Adds undo data to a version.
    pub(super) fn keep(&mut self, version: Eversion, kept: Vec<Kept>) {
        if !kept.is_empty() {
            self.kept.entry(version).or_default().extend(kept);
        }
    }

    pub(super) fn undo(&mut self, oid: &Oid, version: Eversion) {
        let Some(o) = self.objects.get_mut(oid).map(Arc::make_mut) else { return };
        let Some(kept) = self.kept.remove(&version) else { return };
        let (mine, rest): (Vec<Kept>, Vec<Kept>) = kept.into_iter().partition(|k| Arc::ptr_eq(&k.id, &o.id));
        for k in mine.into_iter().rev() {
            o.size = o.size.max(k.size);
            for (b, was) in k.blocks.into_iter().rev() {
                match was {
                    Some(was) => drop(o.blocks.insert(b, was)),
                    None => drop(o.blocks.remove(&b)),
                }
            }
        }
        self.keep(version, rest);
    }

    pub(super) fn fits(&self, oid: &Oid) -> bool {
        within(&self.ranges, oid)
    }

    /// Hash ranges below `first`, and from `first` on.
    pub(super) fn cut(&self, first: u32) -> (Ranges, Ranges) {
        cut(&self.ranges, first)
    }

    /// The object, which is created if absent.
    fn object(&mut self, oid: Oid) -> &mut Object {
        Arc::make_mut(self.objects.entry(oid).or_default())
    }

    /// Applies an operation within the collection.
    pub(super) fn apply(&mut self, op: Op) {
        match op {
            Op::MakeCollection { .. }
            | Op::MakeBeside { .. }
            | Op::RemoveCollection { .. }
            | Op::Split { .. }
            | Op::Merge { .. }
            | Op::Keep { .. } => {}
            Op::Touch { oid, .. } | Op::SetAllocHint { oid, .. } => {
                self.object(oid);
            }
            Op::Write { oid, off, data, .. } => self.object(oid).write(off, &data),
            Op::Zero { oid, off, len, .. } => {
                let o = self.object(oid);
                o.clear(off, off + len);
                if len > 0 {
                    o.size = o.size.max(off + len);
                }
            }
            Op::Truncate { oid, size, .. } => self.object(oid).truncate(size),
            Op::Remove { oid, .. } => {
                self.objects.remove(&oid);
            }
            Op::SetAttrs { oid, attrs, .. } => self.object(oid).attrs.extend(attrs),
            Op::RmAttr { oid, name, .. } => {
                if let Some(o) = self.objects.get_mut(&oid).map(Arc::make_mut) {
                    o.attrs.remove(&name);
                }
            }
            Op::RmAttrs { oid, .. } => {
                if let Some(o) = self.objects.get_mut(&oid).map(Arc::make_mut) {
                    o.attrs.clear();
                }
            }
            Op::Clone { src, dst, .. } => {
                if let Some(mut o) = self.objects.get(&src).filter(|_| src != dst).cloned() {
                    Arc::make_mut(&mut o).id = Arc::default();
                    self.objects.insert(dst, o);
                }
            }
            Op::CloneRange { src, dst, src_off, len, dst_off, .. } => {
                if let Some(s) = self.objects.get(&src).cloned() {
                    self.object(dst).clone_range(&s, src_off, len, dst_off);
                }
            }
            Op::Rename { src, dst, .. } => {
                if let Some(o) = self.objects.remove(&src) {
                    self.objects.insert(dst, o);
                }
            }
            Op::OmapSet { .. }
            | Op::OmapRmKeys { .. }
            | Op::OmapRmRange { .. }
            | Op::OmapClear { .. }
            | Op::OmapSetHeader { .. } => self.apply_omap(op),
            Op::LogAppend { .. }
            | Op::LogTrim { .. }
            | Op::LogRewind { .. }
            | Op::PgInfo { .. }
            | Op::DropKept { .. } => self.apply_log(op),
            Op::Undo { oid, version, .. } => self.undo(&oid, version),
        }
    }

    fn apply_omap(&mut self, op: Op) {
        match op {
            Op::OmapSet { oid, entries, .. } => self.object(oid).omap.extend(entries),
            Op::OmapRmKeys { oid, keys, .. } => {
                if let Some(o) = self.objects.get_mut(&oid).map(Arc::make_mut) {
                    for k in keys {
                        o.omap.remove(&k);
                    }
                }
            }
            Op::OmapRmRange { oid, first, last, .. } => {
                if let Some(o) = self.objects.get_mut(&oid).map(Arc::make_mut) {
                    o.omap.retain(|k, _| *k < first || *k >= last);
                }
            }
            Op::OmapClear { oid, .. } => {
                if let Some(o) = self.objects.get_mut(&oid).map(Arc::make_mut) {
                    o.omap.clear();
                    o.omap_header = Bytes::new();
                }
            }
            Op::OmapSetHeader { oid, header, .. } => self.object(oid).omap_header = header,
            _ => {}
        }
    }

    fn apply_log(&mut self, op: Op) {
        match op {
            Op::LogAppend { version, entry, .. } => {
                self.log.insert(version, entry);
            }
            Op::LogTrim { to, .. } => {
                self.log.retain(|v, _| *v > to);
                self.kept.retain(|v, _| *v > to);
            }
            Op::LogRewind { to, .. } => {
                self.log.retain(|v, _| *v <= to);
                self.kept.retain(|v, _| *v <= to);
            }
            Op::PgInfo { info, .. } => self.info = Some(info),
            Op::DropKept { to, .. } => self.kept.retain(|v, _| *v > to),
            _ => {}
        }
    }
}
