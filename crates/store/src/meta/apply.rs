//! Application of changes, live or from the log. Metadata changes in no other way.
//!
//! A change finds every page it needs in memory, because the caller has asked [`Meta::need_change`], or its
//! counterpart for transactions. If a page is missing all the same, the store stops before it writes anything
//! wrong.

use super::change::{Change, What};
use super::map::{self, Ptr, UNKEPT, is_stored};
use super::object::Object;
use super::packed::Packed;
use super::undo::Side;
use super::{Meta, Part};
use crate::key::{Cid, Oid};
use base::Eversion;
use bytes::Bytes;
use smallvec::SmallVec;

impl Meta {
    /// Applies one change. An error means that the record is invalid despite its checksum; the caller stops.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), &'static str> {
        // Changes of objects are counted in [`Meta::apply_object`].
        self.steps += u64::from(!matches!(change, Change::OfObject { .. }));
        let cid = change.cid();
        if let Change::MakeCollection { bits, num, shard, .. } = change {
            if self.colls.find(cid).is_some() {
                return Err("collection made twice");
            }
            self.numbers.saw(num);
            let parts = smallvec::smallvec![Part { family: num, range: 0..=u32::MAX }];
            return self.make_coll_at(cid, bits, num, shard, parts).map(|_| ());
        }
        if let Change::MakeBeside { beside, bits, num, .. } = change {
            if self.colls.find(cid).is_some() {
                return Err("collection made twice");
            }
            self.numbers.saw(num);
            let beside = self.coll(beside).and_then(|c| self.colls.get(c as usize));
            let shard = beside.ok_or("a collection made beside an absent one")?.shard;
            let parts = smallvec::smallvec![Part { family: num, range: 0..=u32::MAX }];
            return self.make_coll_at(cid, bits, num, shard, parts).map(|_| ());
        }
        let coll = self.coll(cid).ok_or("change in an absent collection")?;
        match change {
            Change::MakeCollection { .. } | Change::MakeBeside { .. } => {}
            Change::RemoveCollection { .. } => self.remove_coll(coll)?,
            Change::Split { dst, first, bits, num, .. } => {
                if self.colls.find(dst).is_some() {
                    return Err("collection split off twice");
                }
                self.numbers.saw(num);
                self.split_coll(coll, dst, first, bits, num)?;
            }
            Change::Merge { dst, first, bits, .. } => {
                let dst = self.coll(dst).ok_or("merge into an absent collection")?;
                self.merge_coll(coll, dst, first, bits)?;
            }
            Change::LogAppend { version, entry, .. } => self.log_append(coll, version, &entry),
            Change::LogTrim { to, .. } => {
                self.log_trim(coll, to);
                self.drop_records(coll, Side::UpTo(to));
            }
            Change::LogRewind { to, .. } => {
                self.log_rewind(coll, to);
                self.drop_records(coll, Side::After(to));
            }
            Change::DropKept { to, .. } => self.drop_records(coll, Side::UpTo(to)),
            Change::Keep { version, .. } => self.start_keeping(coll, version),
            Change::Undo { oid, version, size, .. } => {
                let id = self.find(coll, &oid).ok_or("undo of an absent object")?;
                if !self.undo(id, version) {
                    self.lost_what_was_kept(id, size)?;
                }
            }
            Change::Info { info, .. } => {
                let Some(page) = self.colls.get(coll as usize).map(|c| c.page) else { return Ok(()) };
                self.touch(page);
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    // Reuses the allocation: nearly every transaction writes the info.
                    let old = c.info.get_or_insert_default();
                    let more = info.len() as isize - old.len() as isize;
                    old.clear();
                    old.extend_from_slice(&info);
                    self.pages.grow(page, more);
                }
            }
            Change::Create { oid, nid, .. } => {
                if self.find(coll, &oid).is_some() {
                    return Err("object created twice");
                }
                self.numbers.saw(nid);
                self.insert_object(Object::new(oid.owned(), coll, nid));
            }
            Change::Clone { src, dst, nid, .. } => self.clone_object(coll, &src, dst, nid)?,
            Change::Rename { src, dst, .. } => {
                if let Some(old) = self.find(coll, &dst) {
                    self.remove_object(old);
                }
                let id = self.find(coll, &src).ok_or("rename of an absent object")?;
                self.rename_object(id, dst.owned());
            }
            Change::Remove { oid, .. } => {
                if let Some(id) = self.find(coll, &oid) {
                    self.remove_object(id);
                }
            }
            Change::Share { src, dst, block, n, size, .. } => {
                let s = self.find(coll, &src).ok_or("share from an absent object")?;
                let d = self.find(coll, &dst).ok_or("share to an absent object")?;
                self.share(s, d, block, n, size);
            }
            Change::OfObject { oid, what, .. } => {
                let id = self.find(coll, &oid).ok_or("change of an absent object")?;
                self.apply_object(id, what);
            }
        }
        Ok(())
    }

    fn clone_object(&mut self, coll: u32, src: &Oid, dst: Oid, nid: u64) -> Result<(), &'static str> {
        if let Some(old) = self.find(coll, &dst) {
            self.remove_object(old);
        }
        let s = self.find(coll, src).ok_or("clone of an absent object")?;
        self.mark_shared(s);
        let Some(o) = self.objects.get(s as usize) else { return Ok(()) };
        let mut new = Object::new(dst.owned(), coll, nid);
        new.birth = o.birth;
        new.attrs = o.attrs.clone();
        new.omap_header = o.omap_header.clone();
        new.hint = o.hint;
        new.shared = true;
        new.lost = o.lost;
        self.numbers.saw(nid);
        let d = self.insert_object(new);
        self.edit(d, |m| {
            m.omap_copy(s, d);
            m.map_copy(s, d, 0, map::BLOCKS_MAX);
            let Some((size, tail)) = m.objects.get(s as usize).map(|o| (o.size, o.tail)) else { return };
            if let Some(o) = m.objects.get_mut(d as usize) {
                (o.size, o.tail) = (size, tail);
            }
        });
        Ok(())
    }

    fn mark_shared(&mut self, id: u32) {
        if self.objects.get(id as usize).is_some_and(|o| !o.shared) {
            self.touch_object(id);
            if let Some(o) = self.objects.get_mut(id as usize) {
                o.shared = true;
            }
        }
    }

    /// Maps the blocks that `s` has in `[block, end)` also in `d`, by reference. `d` must map none there.
    fn map_copy(&mut self, s: u32, d: u32, block: u64, end: u64) {
        let mut blocks: Vec<(u64, Ptr, u32)> = Vec::new();
        self.map_each(s, block, end, |b, p, k| blocks.push((b, p, k)));
        let shard = self.shard_of(s);
        let mut rest = &blocks[..];
        while let Some((first, p, _)) = rest.first().copied() {
            let follows = |i: usize, b: &(u64, Ptr, u32)| {
                b.0 == first + i as u64 && b.1.phys() == p.phys() + i as u64 && b.1.version() == p.version()
            };
            let n = rest.iter().enumerate().take_while(|(i, b)| follows(*i, b)).count().max(1);
            let (run, later) = rest.split_at(n);
            rest = later;
            for b in run {
                self.ref_inc(shard, b.1.phys());
            }
            let crcs: SmallVec<[u32; 64]> = run.iter().map(|b| b.2).collect();
            self.map_blocks(d, first, &smallvec::smallvec![(p.phys(), n as u32)], &crcs, p.version(), false);
        }
    }

    /// Makes a block range of `d` equal to that of `s`, by reference.
    fn share(&mut self, s: u32, d: u32, block: u64, n: u64, size: u64) {
        self.mark_shared(s);
        self.mark_shared(d);
        self.apply_object(d, What::Unmap { block, n, size });
        self.spread_damage(s, d);
        self.edit(d, |m| {
            m.map_copy(s, d, block, block.saturating_add(n));
            m.update_tail(d, size, block, block.saturating_add(n));
        });
    }

    /// Applies a [`Change::LogAppend`], like [`Meta::apply`].
    pub(crate) fn apply_log(&mut self, cid: Cid, version: Eversion, entry: &[u8]) -> Result<(), &'static str> {
        self.steps += 1;
        let coll = self.coll(cid).ok_or("change in an absent collection")?;
        self.log_append(coll, version, entry);
        Ok(())
    }

    /// Runs `f`, which changes only the map in pages of an object, and updates the collection's sums. The object's weight
    /// stays.
    fn edit_map(&mut self, id: u32, f: impl FnOnce(&mut Self)) {
        let Some(o) = self.objects.get(id as usize) else { return };
        if !o.paged {
            return self.edit(id, f);
        }
        let (stored, coll, page) = (o.stored(), o.coll, o.page);
        self.touch(page);
        let weight = |m: &Self| m.objects.get(id as usize).map(Object::weight);
        let before = if cfg!(debug_assertions) { weight(self) } else { None };
        f(self);
        debug_assert_eq!(before, weight(self), "a map in pages is not part of the object's weight");
        if self.packed != Packed::default() {
            self.count_packed(coll);
        }
        let now = self.objects.get(id as usize).map_or(0, Object::stored);
        if now != stored {
            self.count_usage(coll, |u| u.stored = (u.stored + now).saturating_sub(stored));
        }
    }

    /// Sets attributes of an object.
    fn set_attrs(&mut self, id: u32, attrs: &[(Bytes, Bytes)]) {
        self.touch_object(id);
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        let before = if cfg!(debug_assertions) { o.weight() } else { 0 };
        let (page, more) = (o.page, attrs.iter().map(|(k, v)| o.set_attr(k, v)).sum::<isize>());
        debug_assert_eq!(before as isize + more, o.weight() as isize, "attributes add up to the object's weight");
        if more != 0 {
            self.pages.grow(page, more);
        }
        if more > 0 {
            self.split_objects(page);
        }
    }

    /// Runs `f` on an object and updates the collection's sums.
    pub(crate) fn edit(&mut self, id: u32, f: impl FnOnce(&mut Self)) {
        self.touch_object(id);
        let Some(o) = self.objects.get(id as usize) else { return };
        let (stored, weight, page, coll) = (o.stored(), o.weight(), o.page, o.coll);
        f(self);
        if self.packed != Packed::default() {
            self.count_packed(coll);
        }
        let Some(o) = self.objects.get(id as usize) else { return };
        let (now, heavy) = (o.stored(), o.weight());
        if heavy != weight {
            self.pages.grow(page, heavy as isize - weight as isize);
            if heavy > weight {
                self.split_objects(page);
            }
        }
        if now != stored {
            self.count_usage(coll, |u| u.stored = (u.stored + now).saturating_sub(stored));
        }
    }

    /// Applies a change to a known object, like [`Meta::apply`].
    pub(crate) fn apply_object(&mut self, id: u32, what: What) {
        self.steps += 1;
        match what {
            What::Map { block, runs, crcs, version, size } => {
                for (first, n) in runs.iter().filter(|r| is_stored(r.0)) {
                    if self.replay {
                        for b in *first..*first + u64::from(*n) {
                            // During salvage the map of used blocks may be incomplete.
                            if !self.alloc.space().mark(b) && self.salvage.is_none() {
                                self.damage(format!("a log record writes to block {b}, which is in use"));
                            }
                        }
                    }
                    self.alloc.took(*first, *n);
                }
                self.edit_map(id, |m| {
                    let n: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
                    let Some(old) = m.set_size(id, size) else { return };
                    let kept = version & UNKEPT == 0 && m.keep(id, block, block + n, old);
                    m.map_found(id, block, n, size);
                    m.map_blocks(id, block, &runs, &crcs, version, kept);
                    m.update_tail(id, old, block, block + n);
                });
            }
            What::Unmap { block, n, size } => self.edit(id, |m| {
                let end = block.saturating_add(n);
                let before = m.objects.get(id as usize).map_or(0, |o| o.size);
                let kept = m.keep(id, block, end, before);
                m.unmap_blocks(id, block, end, kept);
                let Some(old) = m.set_size(id, size) else { return };
                m.map_found(id, block, n, size);
                m.update_tail(id, old, block, end);
            }),
            What::SetAttrs { attrs } => self.set_attrs(id, &attrs),
            What::RmAttr { name } => self.edit_plain(id, |o| o.attrs.retain(|a| a.0 != name)),
            What::RmAttrs => self.edit_plain(id, |o| o.attrs.clear()),
            What::OmapSet { entries } => self.edit(id, |m| {
                for (k, v) in &entries {
                    m.omap_set(id, k, v);
                }
            }),
            What::OmapRmKeys { keys } => self.edit(id, |m| {
                for k in &keys {
                    m.omap_rm(id, k);
                }
            }),
            What::OmapRmRange { first, last } => self.edit(id, |m| m.omap_rm_range(id, &first, Some(&last))),
            What::OmapClear => self.edit(id, |m| {
                m.omap_rm_range(id, &[], None);
                if let Some(o) = m.objects.get_mut(id as usize) {
                    o.omap_header = Bytes::new();
                    o.lost.omap = false;
                }
            }),
            What::OmapHeader { header } => self.edit_plain(id, |o| o.omap_header = Bytes::copy_from_slice(&header)),
            What::Hint { size, write, flags } => self.edit_plain(id, |o| o.hint = Some((size, write, flags))),
        }
    }

    fn edit_plain(&mut self, id: u32, f: impl FnOnce(&mut Object)) {
        self.edit(id, |m| {
            if let Some(o) = m.objects.get_mut(id as usize) {
                f(o);
            }
        });
    }

    /// Sets an object's size. Returns the old one.
    fn set_size(&mut self, id: u32, size: u64) -> Option<u64> {
        let o = self.objects.get_mut(id as usize)?;
        Some(std::mem::replace(&mut o.size, size))
    }
}
