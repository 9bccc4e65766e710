//! A collection of the in-memory store: its objects, its log, and the undo records of the log.

use super::object::{Block, Object};
use crate::key::Oid;
use crate::shape::{Ranges, cut, within};
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
}
