//! Where a collection's objects are: splitting one off another and joining two, by reference.
//!
//! A split makes a record and cuts the parts in two; what belongs to the new collection is counted by the sums that pointers
//! carry, so only the leaf at the cut is read. Objects in memory are told which collection is theirs.
//!
//! Invariants:
//!  1. The parts of one family never overlap, in whichever collections they are; so an object's position tells its collection.
//!  2. A collection has a part at least. Parts of one collection ascend and don't overlap. All are in the collection's shard.
//!  3. A part that borders on the next one in the same family is one with it.

use super::key::{self, Key, object_lo};
use super::page::Sum;
use super::tree::{Leaves, NONE, Span};
use super::{Coll, Meta, Part, Parts, Usage};
use crate::codec::{Get, Malformed, Put};
use crate::key::{Cid, Oid};

impl Part {
    pub(super) fn encode(&self, w: &mut Vec<u8>) {
        w.u64(self.family);
        w.u32(*self.range.start());
        w.u32(*self.range.end());
    }

    pub(super) fn decode(r: &mut Get<'_>) -> Result<Self, Malformed> {
        Ok(Self { family: r.u64()?, range: r.u32()?..=r.u32()? })
    }

    /// Where the first object of this part may be in its family's part of the tree.
    pub(super) fn first_position(&self, cid: Cid) -> u64 {
        match *self.range.start() {
            0 => 0,
            from => (object_lo(&of_pool(cid)) & !u64::from(u32::MAX)) + u64::from(from),
        }
    }

    /// Of this part, what is below and what is not below a hash.
    fn cut(&self, first: u32) -> (Option<Self>, Option<Self>) {
        let (from, to) = (*self.range.start(), *self.range.end());
        let family = self.family;
        let below = (from < first).then(|| Self { family, range: from..=to.min(first.saturating_sub(1)) });
        let above = (to >= first).then(|| Self { family, range: from.max(first)..=to });
        (below, above)
    }
}

/// Parts below a hash, and the others.
fn cut(parts: &Parts, first: u32) -> (Parts, Parts) {
    let (mut below, mut above) = (Parts::new(), Parts::new());
    for p in parts {
        let (b, a) = p.cut(first);
        below.extend(b);
        above.extend(a);
    }
    (below, above)
}

/// Parts in order, those that border on each other made one.
fn join(parts: impl IntoIterator<Item = Part>) -> Parts {
    let mut out = Parts::new();
    for p in parts {
        match out.last_mut() {
            Some(l) if l.family == p.family && l.range.end().checked_add(1) == Some(*p.range.start()) => {
                l.range = *l.range.start()..=*p.range.end();
            }
            _ => out.push(p),
        }
    }
    out
}

/// The bit-reversed hash by which an object has its place.
pub(super) fn reversed_hash(oid: &Oid) -> u32 {
    object_lo(oid) as u32
}

/// Objects of a part that are not below `first`. Objects of a PG are of its pool, so their positions are one range.
fn span(part: &Part, pool: &Oid, first: u32) -> Span<'static> {
    let base = object_lo(pool) & !u64::from(u32::MAX);
    let hi = key::hi(key::OBJECTS, part.family);
    let from = u64::from((*part.range.start()).max(first));
    let end = base + u64::from(*part.range.end()) + 1;
    Span { first: Key::plain(hi, base + from), end: Some(Key::plain(hi, end)) }
}

/// Any object of a PG's pool.
fn of_pool(cid: Cid) -> Oid {
    let pool = match cid {
        Cid::Pg(p) => p.pg.pool,
        Cid::Meta => base::PoolId(-1),
    };
    Oid::new(base::HObject { pool, max: false, ..base::HObject::min() })
}

impl Coll {
    /// The family that an object of this collection is in; `None` if it can be none of this collection's.
    pub(crate) fn family_of(&self, oid: &Oid) -> Option<u64> {
        let at = reversed_hash(oid);
        self.parts.iter().find(|p| p.range.contains(&at)).map(|p| p.family)
    }

    /// True if what is at `hash` in that family is this collection's.
    pub(crate) fn holds(&self, family: u64, hash: u32) -> bool {
        self.parts.iter().any(|p| p.family == family && p.range.contains(&hash))
    }
}

impl Meta {
    /// True if these can be the parts of a collection beside those that are known.
    pub(super) fn may_add_parts(&self, parts: &Parts) -> bool {
        let ordered = parts.windows(2).all(|w| matches!(w, [a, b] if a.range.end() < b.range.start()));
        let free = |p: &Part| {
            let known = self.colls.of_family(p.family).iter();
            let known = known.filter_map(|c| self.colls.get(*c as usize)).flat_map(|c| &c.parts);
            let mut same = known.filter(|q| q.family == p.family);
            !same.any(|q| q.range.start() <= p.range.end() && p.range.start() <= q.range.end())
        };
        ordered && parts.iter().all(|p| p.range.start() <= p.range.end() && p.family <= key::GROUP_MASK && free(p))
    }

    /// Brings what splitting a collection at `first` looks at.
    pub(super) fn need_split(&mut self, coll: u32, first: u32, num: u64) -> bool {
        let Some(shard) = self.colls.get(coll as usize).map(|c| c.shard) else { return true };
        self.need_record(shard, num) & self.need_cut(coll, first) & self.need_split_records(coll, num)
    }

    /// Brings the ends of what a collection has from a hash on.
    fn need_cut(&mut self, coll: u32, first: u32) -> bool {
        let Some(c) = self.colls.get(coll as usize) else { return true };
        let (shard, parts, pool) = (c.shard, c.parts.clone(), of_pool(c.cid));
        let mut ok = true;
        for p in parts.iter().filter(|p| *p.range.end() >= first) {
            ok &= self.need(shard, &span(p, &pool, first), Leaves::Ends);
        }
        ok
    }

    /// Sums over the objects of a collection that are not below a hash; `None` if a leaf is missing.
    fn sum_from(&mut self, coll: u32, first: u32) -> Option<Usage> {
        let c = self.colls.get(coll as usize)?;
        let (shard, parts, pool) = (c.shard, c.parts.clone(), of_pool(c.cid));
        let mut sum = Sum::default();
        for p in parts.iter().filter(|p| *p.range.end() >= first) {
            let span = span(p, &pool, first);
            let (from, to) = ((*p.range.start()).max(first), *p.range.end());
            let mut at = self.first_leaf(shard, &span.first)?;
            while let Some(here) = at {
                if self.ends_before(&span, here) {
                    break;
                }
                let next = self.next_leaf(here)?;
                let (page, stored) = self.inner(here.inner)?.kids.get(here.at).map(|k| (k.page, k.sum))?;
                if page == NONE && self.covered(&span, here, next) {
                    sum.add(stored);
                } else {
                    let leaf = self.kid(here.inner, here.at)?;
                    sum.add(self.leaf_sum(leaf, from..=to));
                }
                at = next;
            }
        }
        Some(Usage { objects: sum.n, stored: sum.bytes, omap: sum.omap })
    }

    /// Splits a collection in two.
    pub(super) fn split_coll(
        &mut self,
        coll: u32,
        dst: Cid,
        first: u32,
        bits: u32,
        num: u64,
    ) -> Result<(), &'static str> {
        let Some(moved) = self.sum_from(coll, first) else {
            self.missed();
            return Err("a leaf at a split is not in memory");
        };
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        let (shard, page) = (c.shard, c.page);
        let (stay, go) = cut(&c.parts, first);
        if stay.is_empty() || go.is_empty() {
            return Err("a split leaves nothing on one side");
        }
        self.touch(page);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.bits = bits;
            c.parts = stay;
            c.usage.objects = c.usage.objects.saturating_sub(moved.objects);
            c.usage.stored = c.usage.stored.saturating_sub(moved.stored);
            c.usage.omap = c.usage.omap.saturating_sub(moved.omap);
        }
        self.colls.leave_families(coll);
        self.colls.join_families(coll);
        let new = self.make_coll_at(dst, bits, num, shard, go)?;
        if let Some(c) = self.colls.get_mut(new as usize) {
            c.usage = moved;
        }
        for (_, o) in self.objects.iter_mut().filter(|(_, o)| o.coll == coll) {
            if reversed_hash(&o.oid) >= first {
                o.coll = new;
            }
        }
        self.split_records(coll, new, first);
        Ok(())
    }

    /// Brings what joining two collections looks at.
    pub(super) fn need_merge(&mut self, coll: u32, dst: Cid, first: u32) -> bool {
        let mut ok = self.need_log_drop(coll);
        if let Some(d) = self.coll(dst) {
            ok &= self.need_cut(d, first);
        }
        if let Some(c) = self.colls.get(coll as usize) {
            let (shard, parts, pool) = (c.shard, c.parts.clone(), of_pool(c.cid));
            for p in &parts {
                ok &= self.need(shard, &span(p, &pool, first), Leaves::Ends);
            }
        }
        ok
    }

    /// Why two collections can't be joined at `first`, if they can't; asked when `need_merge` has brought what it takes.
    pub(crate) fn may_merge(&mut self, coll: u32, dst: u32, first: u32) -> Result<(), base::errno::Errno> {
        let shard = |m: &Self, c: u32| m.colls.get(c as usize).map(|c| c.shard);
        if shard(self, coll) != shard(self, dst) {
            return Err(base::errno::EXDEV);
        }
        if self.undo_of(coll).records > 0 {
            return Err(base::errno::EBUSY);
        }
        let all = self.colls.get(coll as usize).map(|c| c.usage);
        if self.sum_from(coll, first) != all || self.sum_from(dst, first) != Some(Usage::default()) {
            return Err(base::errno::EINVAL);
        }
        Ok(())
    }

    /// Joins a collection to another one.
    pub(super) fn merge_coll(&mut self, coll: u32, dst: u32, first: u32, bits: u32) -> Result<(), &'static str> {
        if self.may_merge(coll, dst, first).is_err() {
            return Err("two collections that are joined are not on either side of a hash");
        }
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        let (page, usage) = (c.page, c.usage);
        let (_, from) = cut(&c.parts, first);
        let below = self.colls.get(dst as usize).map(|d| cut(&d.parts, first).0).unwrap_or_default();
        if below.is_empty() && from.is_empty() {
            return Err("two collections that are joined leave nothing");
        }
        self.log_drop(coll);
        self.remove_leaf(page);
        self.colls.leave_families(coll);
        self.colls.leave_families(dst);
        self.colls.remove(coll);
        let Some(page) = self.colls.get(dst as usize).map(|d| d.page) else { return Ok(()) };
        self.touch(page);
        if let Some(d) = self.colls.get_mut(dst as usize) {
            d.bits = bits;
            d.parts = join(below.into_iter().chain(from));
            d.usage.objects += usage.objects;
            d.usage.stored += usage.stored;
            d.usage.omap += usage.omap;
        }
        self.colls.join_families(dst);
        for (_, o) in self.objects.iter_mut().filter(|(_, o)| o.coll == coll) {
            o.coll = dst;
        }
        Ok(())
    }
}
