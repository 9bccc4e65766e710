//! State for working on damaged metadata while a store is rebuilt (`engine::rebuild`).
//!
//! Units of loss are those that a PG can replace: an object, which stays under its name and gives an error
//! instead of data, or a collection, which is dropped as a whole. Log records that need a dropped collection
//! are skipped.
//!
//! Invariant: no object is ever missing from a collection that stays.
//!
//! Tests: `tests/rebuild.rs`.

use super::Meta;
use super::change::{Change, What};
use super::key::{self, Bounds, Key, inside};
use super::map::is_stored;
use super::object::Object;
use super::omap::KeyVal;
use super::page::{Body, Sum};
use super::scan::Span;
use super::tree::{NONE, Seek, Shard};
use crate::key::Cid;
use crate::layout::BLOCK;
use crate::space::blocks_of;
use std::collections::BTreeSet;
use std::ops::Range;

/// State of a rebuild; see the module.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Dropped collections, as far as their names are known.
    pub(crate) lost: BTreeSet<Cid>,
    /// A leaf held objects without a collection, which were left out.
    pub(crate) skipped: bool,
}

/// All keys of one kind and group.
pub(crate) fn whole_group(hi: u64) -> Span<'static> {
    Span { first: Key::plain(hi, 0), end: None }
}

impl Meta {
    /// Marks `dst` as damaged if it gets data of `src`, whose map has lost a part.
    pub(super) fn spread_damage(&mut self, src: u32, dst: u32) {
        if self.objects.get(src as usize).is_some_and(|o| o.lost.map) {
            self.touch_object(dst);
            if let Some(o) = self.objects.get_mut(dst as usize) {
                o.lost.map = true;
            }
        }
    }

    /// Handles a log record that restores a missing undo record: the object then has `size` bytes and a damaged
    /// map.
    pub(super) fn lost_what_was_kept(&mut self, id: u32, size: u64) -> Result<(), &'static str> {
        if self.salvage.is_none() {
            return Err("undo without an undo record");
        }
        self.edit(id, |m| {
            let Some(o) = m.objects.get_mut(id as usize) else { return };
            // The present blocks are not the ones to restore.
            o.lost.map = true;
            let old = std::mem::replace(&mut o.size, size);
            m.update_tail(id, old, 0, 0);
        });
        Ok(())
    }

    /// Clears the damage of an object's map if `[block, block + n)`, just written or unmapped, covers the whole
    /// object of `size` bytes.
    #[inline]
    pub(super) fn map_found(&mut self, id: u32, block: u64, n: u64, size: u64) {
        if let Some(o) = self.objects.get_mut(id as usize)
            && o.lost.map
            && block == 0
            && n.saturating_mul(BLOCK) >= size
        {
            o.lost.map = false;
        }
    }

    /// Removes objects from a leaf, but not what they have in other pages.
    pub(crate) fn retain_objects(&mut self, page: u32, keep: impl Fn(&Object) -> bool) {
        let Some(Body::Objects { ids }) = self.pages.get(page as usize).map(|p| &p.body) else { return };
        let goes = |id: u32| self.objects.get(id as usize).is_none_or(|o| !keep(o));
        let gone: Vec<u32> = ids.iter().map(|e| e.1).filter(|id| goes(*id)).collect();
        if gone.is_empty() {
            return;
        }
        self.touch(page);
        let mut empty = false;
        if let Some(Body::Objects { ids }) = self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            ids.retain(|e| !gone.contains(&e.1));
            empty = ids.is_empty();
        }
        let weight: usize =
            gone.iter().filter_map(|id| self.objects.try_remove(*id as usize)).map(|o| o.weight()).sum();
        self.pages.grow(page, -(weight as isize));
        if empty {
            self.note_empty(page);
        }
    }

    /// Drops a collection: its record, and its objects in memory. Other objects are left out when their leaf is
    /// read.
    pub(crate) fn forget_coll(&mut self, coll: u32) {
        let Some((cid, page)) = self.colls.get(coll as usize).map(|c| (c.cid, c.page)) else { return };
        let leaves = self.pages.iter().filter(|(_, p)| matches!(p.body, Body::Objects { .. }));
        let leaves: Vec<u32> = leaves.map(|(id, _)| id as u32).collect();
        for l in leaves {
            self.retain_objects(l, |o| o.coll != coll);
        }
        self.remove_leaf(page);
        self.colls.leave_families(coll);
        self.colls.remove(coll);
        if let Some(s) = &mut self.salvage {
            s.lost.insert(cid);
        }
    }

    /// True if a record's change is skipped because a collection it needs is lost. Collections that the change
    /// would make are lost then too.
    pub(crate) fn goes_without(&mut self, c: &Change) -> bool {
        let absent = |m: &Self, cid: Cid| m.coll(cid).is_none();
        let cid = c.cid();
        let lose = |m: &mut Self, cid: Cid| match m.coll(cid) {
            Some(c) => m.forget_coll(c),
            None => m.salvage.iter_mut().for_each(|s| s.lost.extend([cid])),
        };
        let found = |m: &mut Self, cid: Cid| m.salvage.iter_mut().for_each(|s| s.lost.retain(|c| *c != cid));
        match c {
            Change::MakeCollection { .. } => {
                found(self, cid);
                false
            }
            Change::MakeBeside { beside, num, .. } if absent(self, *beside) => {
                self.numbers.saw(*num);
                lose(self, cid);
                true
            }
            Change::MakeBeside { .. } => {
                found(self, cid);
                false
            }
            Change::Merge { dst, .. } if absent(self, cid) || absent(self, *dst) => {
                // A collection with half of its objects missing is useless.
                lose(self, *dst);
                lose(self, cid);
                found(self, cid);
                true
            }
            Change::RemoveCollection { .. } if absent(self, cid) => {
                found(self, cid);
                true
            }
            _ if !absent(self, cid) => false,
            Change::Split { dst, num, .. } => {
                self.numbers.saw(*num);
                lose(self, *dst);
                true
            }
            // Numbers must not be reused.
            Change::Create { nid, .. } | Change::Clone { nid, .. } => {
                self.numbers.saw(*nid);
                true
            }
            Change::OfObject { what: What::Map { runs, .. }, .. } => {
                // The data proves that this frame was complete, also at the next opening, so it must stay until
                // the log is no longer needed.
                for b in blocks_of(runs).filter(|b| is_stored(*b)) {
                    self.alloc.space().mark(b);
                }
                lose(self, cid);
                true
            }
            _ => {
                lose(self, cid);
                true
            }
        }
    }

    /// Entries of an omap leaf that a search with these bounds finds: object number, range, and the number of
    /// all entries.
    fn settled(&self, page: u32, bounds: Bounds<'_>) -> Option<(u64, Range<usize>, usize)> {
        let nid = key::group_of(self.pages.get(page as usize)?.hi);
        let l = self.omap_leaf(page)?;
        let from = l.upto(|k| !inside(&Key::omap(nid, k), (bounds.0, None)));
        let to = l.upto(|k| inside(&Key::omap(nid, k), (None, bounds.1))).max(from);
        Some((nid, from..to, l.len()))
    }

    /// True if an omap leaf has keys that searches do not find there.
    pub(crate) fn has_strays(&self, page: u32, bounds: Bounds<'_>) -> bool {
        self.settled(page, bounds).is_some_and(|(_, stay, n)| stay != (0..n))
    }

    /// Moves such keys from a leaf to `out`, with their object numbers. The object's counts stay unchanged.
    pub(crate) fn take_strays(&mut self, page: u32, bounds: Bounds<'_>, out: &mut Vec<(u64, KeyVal)>) {
        let Some((nid, stay, n)) = self.settled(page, bounds) else { return };
        for r in [stay.end..n, 0..stay.start].into_iter().filter(|r| !r.is_empty()) {
            let Some(l) = self.omap_leaf(page) else { return };
            out.extend(r.clone().map(|i| l.get(i)).map(|(k, v)| (nid, KeyVal::new(k, v))));
            self.cut_leaf(page, r);
        }
    }

    /// Puts a key in its place, unless it has been set there again. In that case it was counted twice, and the
    /// surplus is returned.
    pub(crate) fn settle_key(&mut self, shard: u8, nid: u64, kv: &KeyVal) -> Option<Sum> {
        let (k, v) = kv.pair();
        if let Seek::Leaf(p) = self.seek(shard, &Key::omap(nid, k))
            && self.omap_leaf(p).is_some_and(|l| l.find(k).is_ok())
        {
            return Some(Sum { n: 1, bytes: (k.len() + v.len()) as u64, omap: 0 });
        }
        self.put_key(shard, nid, k, v);
        None
    }

    /// Brings the leaf where a key belongs.
    pub(crate) fn need_settling(&mut self, shard: u8, nid: u64, kv: &KeyVal) -> bool {
        !matches!(self.seek(shard, &Key::omap(nid, kv.pair().0)), Seek::Missing)
    }

    /// Subtracts omap keys that were counted twice from their object.
    pub(crate) fn discount(&mut self, id: u32, twice: Sum) {
        self.touch_object(id);
        self.count_omap(id, Sum::default(), twice);
    }

    /// Makes a shard's tree empty.
    pub(crate) fn forget_tree(&mut self, shard: u8) {
        let Some(s) = self.shards.get_mut(usize::from(shard)) else { return };
        let root = std::mem::take(s).page;
        if root != NONE {
            self.drop_page(root);
        }
        debug_assert!(self.shards.get(usize::from(shard)).is_some_and(|s: &Shard| s.page == NONE));
    }

    /// True for a log, or the undo records of a log, whose collection is gone.
    pub(crate) fn is_log_of_none(&self, hi: u64) -> bool {
        matches!(key::kind_of(hi), key::LOG | key::UNDO) && !self.colls.iter().any(|(_, c)| c.num == key::group_of(hi))
    }
}
