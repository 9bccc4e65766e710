//! Objects of collections in hash order.
//!
//! A collection is a range of hashes in its family: the first collection and all that were split off it. So a
//! split moves no object, it only changes the collection that an object belongs to. After a merge a collection
//! has several such ranges (parts).

use super::Meta;
use super::blocks::INLINE_BLOCKS;
use super::key::{self, Key, object_lo};
use super::map::CHUNK;
use super::object::Object;
use super::page::{Body, Sum};
use super::scan::Span;
use super::table::FORESEEN;
use super::tree::{NONE, Seek};
use crate::codec::{Get, Malformed};
use crate::key::{Cid, ObjectName, Oid};
use base::{Eversion, prefetch, prefetch_all, unreached};
use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// Most objects of a leaf before it is split.
pub(crate) const OBJECTS_MAX: usize = 32;
/// Most bytes of memory of a leaf before it is split.
const LEAF_BYTES_MAX: usize = 32 << 10;

/// Bits of a position that differ within a collection; the bits above are equal.
const HASH_MASK: u64 = u32::MAX as u64;

impl Meta {
    /// Prefetches what an operation on an object with this hash needs: the onode at once, the memory behind it
    /// when further operations are announced. A wrong guess only costs time.
    pub(crate) fn prefetch(&mut self, hash: u32, block: u64) {
        let id = self.objects.recall(hash);
        self.announce(id, block);
    }

    /// Prefetches the rest of what the operations announced so far need.
    pub(crate) fn prefetch_rest(&mut self) {
        (0..FORESEEN).for_each(|_| self.announce(NONE, 0));
    }

    fn announce(&mut self, id: u32, block: u64) {
        let [b, d] = self.objects.prefetch(id, block);
        if let Some(o) = self.objects.get(id as usize) {
            prefetch_all(o);
        }
        let chunk_page = |o: &Object, block: u64| {
            let page = o.hints.get((block / CHUNK) as usize).copied().unwrap_or(NONE);
            self.pages.get(page as usize)
        };
        if let Some(o) = self.objects.get(b.0 as usize) {
            if let Some(a) = o.attrs.first() {
                prefetch_all(a);
            }
            if let Some(p) = self.pages.get(o.page as usize) {
                prefetch_all(p);
            }
            if let Some(p) = chunk_page(o, b.1) {
                prefetch_all(p);
            }
        }
        if let Some(o) = self.objects.get(d.0 as usize) {
            // Usually this is the object info, which is replaced in place.
            if let Some(a) = o.attrs.first() {
                a.1.chunks(64).take(4).for_each(prefetch);
            }
            if let Some(Body::Map { map, .. }) = chunk_page(o, d.1).map(|p| &p.body) {
                map.prefetch(d.1 % CHUNK);
            }
        }
    }

    fn ids(&self, page: u32) -> &[(u64, u32)] {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Objects { ids, .. }) => ids,
            _ => &[],
        }
    }

    fn ids_mut(&mut self, page: u32) -> Option<&mut Vec<(u64, u32)>> {
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Objects { ids, .. }) => Some(ids),
            _ => None,
        }
    }

    fn cmp(&self, entry: &(u64, u32), lo: u64, oid: &ObjectName) -> Ordering {
        entry.0.cmp(&lo).then_with(|| match self.objects.get(entry.1 as usize) {
            Some(o) if o.is(oid) => Ordering::Equal,
            Some(o) => o.oid.cmp(oid),
            None => Ordering::Less,
        })
    }

    /// True if the slot holds this object.
    pub(crate) fn is_object(&self, id: u32, coll: u32, oid: &ObjectName) -> bool {
        self.objects.get(id as usize).is_some_and(|o| o.coll == coll && o.is(oid))
    }

    /// Slot of the object, if it exists. `None` if its leaf is missing.
    pub(crate) fn look(&mut self, coll: u32, oid: &ObjectName) -> Option<Option<u32>> {
        // The changes of a transaction usually concern one object, and a prepared transaction is soon
        // submitted.
        let id = self.objects.recall(oid.hobj.hash);
        if let Some(o) = self.objects.get(id as usize).filter(|o| o.coll == coll && o.is(oid)) {
            if let Some(p) = self.pages.get_mut(o.page as usize) {
                p.used = true;
            }
            return Some(Some(id));
        }
        let Some(c) = self.colls.get(coll as usize) else { return Some(None) };
        let shard = c.shard;
        let Some(family) = c.family_of(oid) else { return Some(None) };
        let key = Key::object(family, oid);
        match self.seek(shard, &key) {
            Seek::Missing => None,
            Seek::Absent { .. } => Some(None),
            Seek::Leaf(page) => {
                let ids = self.ids(page);
                let found = ids.binary_search_by(|e| self.cmp(e, key.lo, oid)).ok().and_then(|i| ids.get(i));
                let Some(id) = found.map(|e| e.1) else { return Some(None) };
                self.objects.remember(oid.hobj.hash, id);
                Some(Some(id))
            }
        }
    }

    /// Slot of an object of which blocks `[block, end)` and attributes can be changed, and to whose log an entry of that
    /// version can be appended, with no other pages than those known to be in memory. `None` may only mean that a search is
    /// needed.
    pub(crate) fn ready_for_overwrite(
        &mut self,
        cid: Cid,
        oid: &ObjectName,
        block: u64,
        end: u64,
        version: Eversion,
    ) -> Option<u32> {
        let coll = self.coll(cid)?;
        let id = self.objects.recall(oid.hobj.hash);
        let o = self.objects.get(id as usize).filter(|o| o.coll == coll && o.is(oid))?;
        if o.shared || o.lost.any() {
            return None;
        }
        let (leaf, chunk) = (o.page, block / CHUNK);
        let map = match o.paged {
            true if (end - 1) / CHUNK == chunk => Some((*o.hints.get(chunk as usize)?, key::hi(key::MAP, o.nid))),
            false if end <= INLINE_BLOCKS => None,
            _ => return None,
        };
        if !self.may_append(coll, version) {
            return None;
        }
        if let Some((page, hi)) = map {
            let p = self.pages.get_mut(page as usize).filter(|p| p.hi == hi)?;
            if !matches!(p.body, Body::Map { chunk: c, .. } if c == chunk) {
                return None;
            }
            p.used = true;
        }
        self.pages.get_mut(leaf as usize)?.used = true;
        Some(id)
    }

    /// Slot of the object; its leaf must be in memory.
    pub(crate) fn find(&mut self, coll: u32, oid: &ObjectName) -> Option<u32> {
        match self.look(coll, oid) {
            Some(found) => found,
            None => {
                self.missed();
                None
            }
        }
    }

    /// True if the object exists in a leaf in memory.
    pub(crate) fn has(&self, coll: u32, oid: &ObjectName) -> bool {
        let Some(c) = self.colls.get(coll as usize) else { return false };
        let Some(family) = c.family_of(oid) else { return false };
        let key = Key::object(family, oid);
        let Some(mut page) = self.shards.get(usize::from(c.shard)).map(|s| s.page) else { return false };
        while let Some(n) = self.inner(page) {
            let i = n.upto(&key);
            match n.kids.get(i.saturating_sub(1)) {
                Some(k) => page = k.page,
                None => return false,
            }
        }
        let here = self.pages.get(page as usize).is_some_and(|p| p.hi == key.hi);
        here && self.ids(page).binary_search_by(|e| self.cmp(e, key.lo, oid)).is_ok()
    }

    /// Adds an absent object; its leaf must be in memory.
    pub(crate) fn insert_object(&mut self, object: Object) -> u32 {
        let coll = object.coll;
        let (stored, omap) = (object.stored(), object.omap.bytes());
        let id = self.objects.insert(object);
        self.place_object(id);
        self.count_usage(coll, |u| {
            u.objects += 1;
            u.stored += stored;
            u.omap += omap;
        });
        id
    }

    fn place_object(&mut self, id: u32) {
        let Some(o) = self.objects.get(id as usize) else { return };
        let (oid, weight, coll) = (o.oid.clone(), o.weight(), o.coll);
        let Some(c) = self.colls.get(coll as usize) else { return };
        let shard = c.shard;
        let Some(family) = c.family_of(&oid) else {
            return self.damage(format!("{} is of no part of its collection", oid.hobj));
        };
        let key = Key::object(family, &oid);
        let page = match self.seek(shard, &key) {
            Seek::Missing => return self.missed(),
            Seek::Absent { inner, at, bound } => {
                let body = Body::Objects { ids: vec![(key.lo, id)] };
                self.insert_first_leaf(inner, at, bound, &key, body, weight)
            }
            Seek::Leaf(p) => {
                self.touch(p);
                let at = self.ids(p).binary_search_by(|e| self.cmp(e, key.lo, &oid)).unwrap_or_else(|i| i);
                if let Some(ids) = self.ids_mut(p) {
                    ids.insert(at, (key.lo, id));
                }
                self.pages.grow(p, weight as isize);
                p
            }
        };
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.page = page;
        }
        self.split_objects(page);
    }

    /// Removes an object from its leaf; it stays in its slot.
    fn unplace_object(&mut self, id: u32) {
        self.touch_object(id);
        let Some(o) = self.objects.get(id as usize) else { return };
        let (page, weight) = (o.page, o.weight());
        let Some(ids) = self.ids_mut(page) else { return };
        let Some(at) = ids.iter().position(|e| e.1 == id) else { return };
        ids.remove(at);
        let empty = ids.is_empty();
        self.pages.grow(page, -(weight as isize));
        if empty {
            self.note_empty(page);
        }
    }

    /// Removes an object with its map and omap. Its blocks lose one reference each.
    pub(crate) fn remove_object(&mut self, id: u32) {
        self.edit(id, |m| {
            m.omap_rm_range(id, &[], None);
            m.unmap_blocks(id, 0, super::map::BLOCKS_MAX, false);
        });
        let Some(coll) = self.objects.get(id as usize).map(|o| o.coll) else { return };
        self.unplace_object(id);
        self.objects.try_remove(id as usize);
        self.count_usage(coll, |u| u.objects = u.objects.saturating_sub(1));
    }

    /// Announces a change of an object.
    #[inline]
    pub(crate) fn touch_object(&mut self, id: u32) {
        if let Some(p) = self.objects.get(id as usize).map(|o| o.page) {
            self.touch(p);
        }
    }

    /// Renames an object.
    pub(crate) fn rename_object(&mut self, id: u32, to: ObjectName) {
        self.unplace_object(id);
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        o.rename(to);
        self.place_object(id);
    }

    /// Splits a leaf until its parts are small enough.
    pub(crate) fn split_objects(&mut self, page: u32) {
        let Some(p) = self.pages.get(page as usize) else { return };
        let (mem, hi) = (p.mem, p.hi);
        let ids = self.ids(page);
        if ids.len() < 2 || (ids.len() <= OBJECTS_MAX && mem <= LEAF_BYTES_MAX) {
            return;
        }
        let weight = |i: &(u64, u32)| self.objects.get(i.1 as usize).map_or(0, Object::weight);
        let all: usize = ids.iter().map(weight).sum();
        let mut sum = 0;
        let half = ids.iter().position(|i| {
            sum += weight(i);
            sum * 2 >= all
        });
        let at = half.unwrap_or(0).clamp(1, ids.len() - 1);
        self.touch(page);
        let Some(ids) = self.ids_mut(page) else { return unreached("the page has objects") };
        let upper = ids.split_off(at);
        let left = ids.last().map_or(0, |e| e.0);
        let Some(first) = upper.first().and_then(|e| self.objects.get(e.1 as usize)) else { return };
        let sep = Key::object(key::group_of(hi), &first.oid).sep_after(left);
        let moved: usize = upper.iter().map(|i| self.objects.get(i.1 as usize).map_or(0, Object::weight)).sum();
        let ids: Vec<u32> = upper.iter().map(|e| e.1).collect();
        self.pages.grow(page, -(moved as isize));
        let new = self.insert_leaf_after(page, sep, Body::Objects { ids: upper }, moved);
        for id in ids {
            if let Some(o) = self.objects.get_mut(id as usize) {
                o.page = new;
            }
        }
        self.split_objects(new);
        self.split_objects(page);
    }

    /// Objects with `start <= oid < end`, at most `max`, and the one after them. `None` if a leaf is missing.
    pub(crate) fn list(
        &mut self,
        coll: u32,
        start: &ObjectName,
        end: Option<&ObjectName>,
        max: usize,
    ) -> Option<(Vec<Oid>, Option<Oid>)> {
        let mut out = Vec::new();
        let mut more = None;
        let Some(c) = self.colls.get(coll as usize) else { return Some((out, None)) };
        let (shard, cid, parts) = (c.shard, c.cid, c.parts.clone());
        for part in &parts {
            let mut span =
                Span { first: Key::object(part.family, start), end: end.map(|e| Key::object(part.family, e)) };
            let own = part.first_position(cid);
            if own > span.first.lo {
                span.first = Key::plain(span.first.hi, own);
            }
            self.scan(shard, &span, |m, page| {
                for e in m.ids(page) {
                    let Some(o) = m.objects.get(e.1 as usize) else { continue };
                    let hash = (e.0 & HASH_MASK) as u32;
                    if o.oid < *start || hash < *part.range.start() {
                        continue;
                    }
                    if hash > *part.range.end() || end.is_some_and(|end| o.oid >= *end) {
                        return false;
                    }
                    if out.len() >= max {
                        more = Some(o.oid.clone().into());
                        return false;
                    }
                    out.push(o.oid.clone().into());
                }
                true
            })?;
            if more.is_some() {
                break;
            }
        }
        Some((out, more))
    }

    /// Sums over the objects of a leaf in a range of bit-reversed hashes.
    pub(super) fn leaf_sum(&self, page: u32, range: RangeInclusive<u32>) -> Sum {
        let mut s = Sum::default();
        for (_, id) in self.ids(page).iter().filter(|e| range.contains(&((e.0 & HASH_MASK) as u32))) {
            if let Some(o) = self.objects.get(*id as usize) {
                s.add(Sum { n: 1, bytes: o.stored(), omap: o.omap.bytes() });
            }
        }
        s
    }

    /// Decodes a leaf of objects.
    pub(super) fn load_objects(&mut self, r: &mut Get<'_>, hi: u64) -> Result<(Body, usize), Malformed> {
        let n = r.count(32)?;
        let family = key::group_of(hi);
        let mut ids: Vec<(u64, u32)> = Vec::with_capacity(n);
        let mut mem = 0;
        let mut bad = false;
        for _ in 0..n {
            let mut o = match Object::decode(r, 0, &self.layout) {
                Ok(o) => o,
                Err(_) => {
                    bad = true;
                    break;
                }
            };
            let lo = object_lo(&o.oid);
            let hash = (lo & HASH_MASK) as u32;
            let colls = self.colls.of_family(family);
            let coll = colls.iter().find(|c| self.colls.get(**c as usize).is_some_and(|c| c.holds(family, hash)));
            let sorted = ids.last().is_none_or(|l| self.cmp(l, lo, &o.oid) == Ordering::Less);
            if coll.is_none() && sorted && self.salvage.is_some() {
                // The record of its collection is lost.
                self.salvage.iter_mut().for_each(|s| s.skipped = true);
                continue;
            }
            let Some(coll) = coll.filter(|_| sorted) else {
                bad = true;
                break;
            };
            o.coll = *coll;
            mem += o.weight();
            ids.push((lo, self.objects.insert(o)));
        }
        let body = Body::Objects { ids };
        if bad {
            self.forget_body(&body);
            return r.bad();
        }
        Ok((body, mem))
    }
}
