//! Places of a collection's objects, and splits and merges of collections by reference.
//!
//! A split makes a record and cuts the parts in two. The sums at pointers give the usage of the new collection,
//! so only the leaf at the cut is read. Objects in memory get their new collection.
//!
//! Invariants:
//!  1. Parts of one family never overlap, whatever their collections. So an object's position determines its
//!     collection.
//!  2. A collection has at least one part. Its parts ascend and don't overlap, and all are in the collection's
//!     shard.
//!  3. Adjacent parts of a collection in the same family are merged.
//!
//! Tests: `tests/collections.rs` (1), below (2, 3).

use super::key::{self, Key, object_lo};
use super::page::Sum;
use super::scan::{Leaves, Span};
use super::tree::NONE;
use super::{Coll, Meta, Part, Parts, Usage};
use crate::codec::{Get, Malformed, Put};
use crate::key::{Cid, ObjectName, Oid};

impl Part {
    pub(super) fn encode(&self, w: &mut Vec<u8>) {
        w.u64(self.family);
        w.u32(*self.range.start());
        w.u32(*self.range.end());
    }

    pub(super) fn decode(r: &mut Get<'_>) -> Result<Self, Malformed> {
        Ok(Self { family: r.u64()?, range: r.u32()?..=r.u32()? })
    }

    /// Position of the first possible object of this part, in its family's part of the tree.
    pub(super) fn first_position(&self, cid: Cid) -> u64 {
        match *self.range.start() {
            0 => 0,
            from => (object_lo(&of_pool(cid)) & !u64::from(u32::MAX)) + u64::from(from),
        }
    }

    /// The parts of this part below a hash, and from it on.
    fn cut(&self, first: u32) -> (Option<Self>, Option<Self>) {
        let (from, to) = (*self.range.start(), *self.range.end());
        let family = self.family;
        let below = (from < first).then(|| Self { family, range: from..=to.min(first.saturating_sub(1)) });
        let above = (to >= first).then(|| Self { family, range: from.max(first)..=to });
        (below, above)
    }
}

/// Parts below a hash, and from it on.
fn cut(parts: &Parts, first: u32) -> (Parts, Parts) {
    let (mut below, mut above) = (Parts::new(), Parts::new());
    for p in parts {
        let (b, a) = p.cut(first);
        below.extend(b);
        above.extend(a);
    }
    (below, above)
}

/// Parts in order, with adjacent ones merged.
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

/// Bit-reversed hash that determines an object's place.
pub(super) fn reversed_hash(oid: &ObjectName) -> u32 {
    object_lo(oid) as u32
}

/// Objects of a part from hash `first` on. All objects of a PG are of its pool, so their positions are one
/// range.
fn span(part: &Part, pool: &Oid, first: u32) -> Span<'static> {
    let base = object_lo(pool) & !u64::from(u32::MAX);
    let hi = key::hi(key::OBJECTS, part.family);
    let from = u64::from((*part.range.start()).max(first));
    let end = base + u64::from(*part.range.end()) + 1;
    Span { first: Key::plain(hi, base + from), end: Some(Key::plain(hi, end)) }
}

/// An object name in a PG's pool, for positions.
fn of_pool(cid: Cid) -> Oid {
    let pool = match cid {
        Cid::Pg(p) => p.pg.pool,
        Cid::Meta => base::PoolId(-1),
    };
    Oid::new(base::HObject { pool, max: false, ..base::HObject::min() })
}

impl Coll {
    /// Family of an object of this collection; `None` if the object can't be in this collection.
    pub(crate) fn family_of(&self, oid: &ObjectName) -> Option<u64> {
        let at = reversed_hash(oid);
        self.parts.iter().find(|p| p.range.contains(&at)).map(|p| p.family)
    }

    /// True if the position `hash` of the family belongs to this collection.
    pub(crate) fn holds(&self, family: u64, hash: u32) -> bool {
        self.parts.iter().any(|p| p.family == family && p.range.contains(&hash))
    }
}

impl Meta {
    /// True if `parts` are valid for a new collection besides the known ones.
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

    /// Brings the needs of splitting a collection at `first`.
    pub(super) fn need_split(&mut self, coll: u32, first: u32, num: u64) -> bool {
        let Some(shard) = self.colls.get(coll as usize).map(|c| c.shard) else { return true };
        self.need_record(shard, num) & self.need_cut(coll, first) & self.need_split_records(coll, num)
    }

    /// Brings the ends of a collection's parts from a hash on.
    fn need_cut(&mut self, coll: u32, first: u32) -> bool {
        let Some(c) = self.colls.get(coll as usize) else { return true };
        let (shard, parts, pool) = (c.shard, c.parts.clone(), of_pool(c.cid));
        let mut ok = true;
        for p in parts.iter().filter(|p| *p.range.end() >= first) {
            ok &= self.need(shard, &span(p, &pool, first), Leaves::Ends);
        }
        ok
    }

    /// Sums over the objects of a collection from hash `first` on; `None` if a leaf is missing.
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

    /// Brings the needs of merging two collections.
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

    /// Checks that two collections can be merged at `first`, after `need_merge` has brought the pages. Fails
    /// with the errno of the refusal.
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

    /// Merges a collection into another one.
    pub(super) fn merge_coll(&mut self, coll: u32, dst: u32, first: u32, bits: u32) -> Result<(), &'static str> {
        if self.may_merge(coll, dst, first).is_err() {
            return Err("two collections to be merged are not on either side of a hash");
        }
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        let (page, usage, packed) = (c.page, c.usage, c.packed);
        let (_, from) = cut(&c.parts, first);
        let below = self.colls.get(dst as usize).map(|d| cut(&d.parts, first).0).unwrap_or_default();
        if below.is_empty() && from.is_empty() {
            return Err("two collections to be merged have no part");
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
            d.packed.add(packed);
        }
        self.colls.join_families(dst);
        for (_, o) in self.objects.iter_mut().filter(|(_, o)| o.coll == coll) {
            o.coll = dst;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn parts_that_were_cut_are_joined_to_the_former_ones() {
        let mut rng = Rng::new(5);
        for _ in 0..1000 {
            // Ascending parts of two families, which differ where one part begins behind the end of another.
            let (mut parts, mut from, mut family) = (Parts::new(), 0, 1);
            for _ in 0..=rng.below(5) {
                let to = from + rng.below(20) as u32;
                parts.push(Part { family, range: from..=to });
                let gap = rng.below(3) as u32;
                from = to + 1 + gap;
                family = if gap == 0 || rng.chance(1, 2) { 3 - family } else { family };
            }
            let first = rng.below(u64::from(from) + 5) as u32;
            let (below, above) = cut(&parts, first);
            assert!(below.iter().all(|p| p.range.start() <= p.range.end() && *p.range.end() < first));
            assert!(above.iter().all(|p| p.range.start() <= p.range.end() && *p.range.start() >= first));
            let joined = join(below.into_iter().chain(above));
            assert!(joined.windows(2).all(|w| w[0].range.end() < w[1].range.start()));
            assert!(joined.iter().map(|p| (p.family, &p.range)).eq(parts.iter().map(|p| (p.family, &p.range))));
        }
    }
}
