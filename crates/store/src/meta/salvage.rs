//! What a store that has lost pages of metadata goes without, while it is rebuilt (`engine::rebuild`).
//!
//! Units of loss are those that a PG can replace: an object, which stays under its name and gives an error instead of what it
//! holds, and a collection, which goes as a whole. Records of the log that need a collection that went are passed over.
//!
//! Invariant: no object is ever missing from a collection that stays.

use super::Meta;
use super::change::{Change, What};
use super::key::{self, Bounds, Key, inside};
use super::object::Object;
use super::omap::KeyVal;
use super::page::{Body, Sum};
use super::tree::{NONE, Seek, Shard, Span};
use crate::key::Cid;
use crate::layout::BLOCK;
use crate::space::blocks_of;
use std::collections::BTreeSet;
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Collections that went, as far as their names are known.
    pub(crate) lost: BTreeSet<Cid>,
    /// A leaf that was read held objects of no collection, which were left out.
    pub(crate) skipped: bool,
}

/// All of one kind and group.
pub(crate) fn whole_group(hi: u64) -> Span<'static> {
    Span { first: Key::plain(hi, 0), end: None }
}

impl Meta {
    /// What gets data of an object whose map has lost something has lost it, too.
    pub(super) fn spread_damage(&mut self, src: u32, dst: u32) {
        if self.objects.get(src as usize).is_some_and(|o| o.lost.map) {
            self.touch_object(dst);
            if let Some(o) = self.objects.get_mut(dst as usize) {
                o.lost.map = true;
            }
        }
    }

    /// A record of the log puts back what is kept nowhere; the object has `size` bytes then.
    pub(super) fn lost_what_was_kept(&mut self, id: u32, size: u64) -> Result<(), &'static str> {
        if self.salvage.is_none() {
            return Err("what is not kept is to be put back");
        }
        self.edit(id, |m| {
            let Some(o) = m.objects.get_mut(id as usize) else { return };
            // What it maps is not what it mapped then.
            o.lost.map = true;
            let old = std::mem::replace(&mut o.size, size);
            m.update_tail(id, old, 0, 0);
        });
        Ok(())
    }

    /// Blocks `[block, block + n)` of an object that has now `size` bytes were given or taken away: if that is all of it, its map is known again.
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

    /// Takes objects out of a leaf, with nothing of what they have elsewhere.
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

    /// Forgets a collection: its record, and its objects as far as they are in memory. Others are left out when they are read.
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

    /// True if a record's change is passed over since a collection it needs is lost; what it would have made is lost then, too.
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
                // Half of the objects are not enough.
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
            // Numbers are never given twice.
            Change::Create { nid, .. } | Change::Clone { nid, .. } => {
                self.numbers.saw(*nid);
                true
            }
            Change::OfObject { what: What::Map { runs, .. }, .. } => {
                // Whether this frame was whole is told by its data, also the next time: it must stay until the log is done with.
                for b in blocks_of(runs) {
                    self.alloc.space.mark(b);
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

    /// Entries of a leaf of an omap that are looked for in it.
    fn settled(&self, page: u32, bounds: Bounds<'_>) -> Option<(u64, Range<usize>, usize)> {
        let nid = key::group_of(self.pages.get(page as usize)?.hi);
        let l = self.omap_leaf(page)?;
        let from = l.upto(|k| !inside(&Key::omap(nid, k), (bounds.0, None)));
        let to = l.upto(|k| inside(&Key::omap(nid, k), (None, bounds.1))).max(from);
        Some((nid, from..to, l.len()))
    }

    /// True if a leaf of an omap has keys that are looked for elsewhere.
    pub(crate) fn has_strays(&self, page: u32, bounds: Bounds<'_>) -> bool {
        self.settled(page, bounds).is_some_and(|(_, stay, n)| stay != (0..n))
    }

    /// Takes such keys out of a leaf; the object's number with each. Its counts stay as they are.
    pub(crate) fn take_strays(&mut self, page: u32, bounds: Bounds<'_>, out: &mut Vec<(u64, KeyVal)>) {
        let Some((nid, stay, n)) = self.settled(page, bounds) else { return };
        for r in [stay.end..n, 0..stay.start].into_iter().filter(|r| !r.is_empty()) {
            let Some(l) = self.omap_leaf(page) else { return };
            out.extend(r.clone().map(|i| l.get(i)).map(|(k, v)| (nid, KeyVal::new(k, v))));
            self.cut_leaf(page, r);
        }
    }

    /// Puts a key where it is looked for, unless it has been set there since. Then it was counted twice: that is given back.
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

    /// Brings where a key is looked for.
    pub(crate) fn need_settling(&mut self, shard: u8, nid: u64, kv: &KeyVal) -> bool {
        !matches!(self.seek(shard, &Key::omap(nid, kv.pair().0)), Seek::Missing)
    }

    /// Takes keys that an omap had twice out of its object's counts.
    pub(crate) fn discount(&mut self, id: u32, twice: Sum) {
        self.touch_object(id);
        self.count_omap(id, Sum::default(), twice);
    }

    /// Makes a shard's tree an empty one.
    pub(crate) fn forget_tree(&mut self, shard: u8) {
        let Some(s) = self.shards.get_mut(usize::from(shard)) else { return };
        let root = std::mem::take(s).page;
        if root != NONE {
            self.drop_page(root);
        }
        debug_assert!(self.shards.get(usize::from(shard)).is_some_and(|s: &Shard| s.page == NONE));
    }

    /// True if it is a log, or what a log keeps, whose collection is gone.
    pub(crate) fn is_log_of_none(&self, hi: u64) -> bool {
        matches!(key::kind_of(hi), key::LOG | key::UNDO) && !self.colls.iter().any(|(_, c)| c.num == key::group_of(hi))
    }
}
