//! Collections: their records, by slot and by name. All records are in memory.
//!
//! `parts` has the places of their objects.

use super::key::{self, Key};
use super::packed::Packed;
use super::page::Body;
use super::tree::{NONE, Seek};
use super::{Meta, undo};
use crate::codec::{Get, Malformed, Put};
use crate::key::Cid;
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::ops::RangeInclusive;

/// Largest plausible sum of a collection; a larger one is corrupt.
const USAGE_MAX: u64 = 1 << 60;

/// Sums over the objects of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) objects: u64,
    pub(crate) stored: u64,
    pub(crate) omap: u64,
}

/// A range of bit-reversed hashes in a family's part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Part of the tree that holds the objects. Collections that are split off another one share it.
    pub(crate) family: u64,
    pub(crate) range: RangeInclusive<u32>,
}

pub(crate) type Parts = SmallVec<[Part; 1]>;

/// A collection in memory.
#[derive(Debug)]
pub(crate) struct Coll {
    pub(crate) cid: Cid,
    pub(crate) bits: u32,
    /// Number of its record and its log.
    pub(crate) num: u64,
    /// Places of its objects, in the order of hashes. There are several parts only after a merge.
    pub(crate) parts: Parts,
    pub(crate) shard: u8,
    /// Page of its record.
    pub(crate) page: u32,
    pub(crate) info: Option<Vec<u8>>,
    /// Stored log entries up to this version are void.
    pub(crate) trimmed: Option<base::Eversion>,
    pub(crate) usage: Usage,
    pub(crate) undo: undo::Undo,
    pub(crate) packed: Packed,
}

impl Coll {
    /// Appends the collection's record:
    ///
    /// | collection | form |
    /// | --- | --- |
    /// | name | cid |
    /// | hash bits | u32 |
    /// | family | u64 |
    /// | first hash | u32 |
    /// | last hash | u32 |
    /// | objects | var |
    /// | stored bytes | var |
    /// | omap bytes | var |
    /// | flags | u8 |
    /// | further parts | var if 4 |
    /// | · family | u64 |
    /// | · first hash | u32 |
    /// | · last hash | u32 |
    /// | info | bytes if 1 |
    /// | void up to | version if 2 |
    /// | undo records | var if 8 |
    /// | undo blocks | var if 8 |
    /// | blocks before compression | var if 16 |
    /// | blocks of extents | var if 16 |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.cid(self.cid);
        w.u32(self.bits);
        let mut parts = self.parts.iter();
        if let Some(p) = parts.next() {
            p.encode(w);
        }
        w.var(self.usage.objects);
        w.var(self.usage.stored);
        w.var(self.usage.omap);
        let more = self.parts.len() > 1;
        let keeps = self.undo != undo::Undo::default();
        w.u8(u8::from(self.info.is_some())
            | u8::from(self.trimmed.is_some()) << 1
            | u8::from(more) << 2
            | u8::from(keeps) << 3
            | u8::from(self.packed != Packed::default()) << 4);
        if more {
            w.var(self.parts.len() as u64 - 1);
            parts.for_each(|p| p.encode(w));
        }
        if let Some(i) = &self.info {
            w.bytes(i);
        }
        if let Some(t) = self.trimmed {
            w.version(t);
        }
        if keeps {
            w.var(self.undo.records);
            w.var(self.undo.blocks);
        }
        if self.packed != Packed::default() {
            self.packed.encode(w);
        }
    }
}

/// Slots of collections, by name.
#[derive(Default)]
struct Cids {
    pgs: base::PgTable<rustc_hash::FxBuildHasher>,
    /// `Meta`, and shards of erasure-coded PGs.
    others: FxHashMap<Cid, u32>,
    /// Collection looked up last: a transaction asks some twenty times, mostly for the same one.
    last: std::cell::Cell<Option<(Cid, u32)>>,
}

/// The PG of a collection that is a whole PG.
fn whole_pg(cid: Cid) -> Option<base::PgId> {
    match cid {
        Cid::Pg(p) if p.shard == base::ShardId::NONE => Some(p.pg),
        _ => None,
    }
}

impl Cids {
    #[inline]
    fn get(&self, cid: Cid) -> Option<u32> {
        match self.last.get() {
            Some((last, id)) if last == cid => Some(id),
            _ => self.get_other(cid),
        }
    }

    fn get_other(&self, cid: Cid) -> Option<u32> {
        let id = whole_pg(cid).map_or_else(|| self.others.get(&cid).copied(), |pg| self.pgs.get(pg))?;
        self.last.set(Some((cid, id)));
        Some(id)
    }

    fn insert(&mut self, cid: Cid, id: u32) {
        self.last.set(None);
        match whole_pg(cid) {
            Some(pg) => self.pgs.insert(pg, id),
            None => drop(self.others.insert(cid, id)),
        }
    }

    fn remove(&mut self, cid: Cid) {
        self.last.set(None);
        match whole_pg(cid) {
            Some(pg) => self.pgs.remove(pg),
            None => self.others.remove(&cid),
        };
    }
}

/// All collections of a store; see the module.
#[derive(Default)]
pub(crate) struct Colls {
    slots: Slab<Coll>,
    by_cid: Cids,
    /// Collections of each family.
    families: FxHashMap<u64, Vec<u32>>,
}

impl Colls {
    #[inline]
    pub(crate) fn get(&self, id: usize) -> Option<&Coll> {
        self.slots.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Coll> {
        self.slots.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Coll)> {
        self.slots.iter()
    }

    /// Slot of a collection.
    #[inline]
    pub(crate) fn find(&self, cid: Cid) -> Option<u32> {
        self.by_cid.get(cid)
    }

    fn insert(&mut self, c: Coll) -> u32 {
        let cid = c.cid;
        let id = self.slots.insert(c) as u32;
        self.by_cid.insert(cid, id);
        id
    }

    /// Slots of the collections with parts of a family.
    pub(super) fn of_family(&self, family: u64) -> &[u32] {
        self.families.get(&family).map(Vec::as_slice).unwrap_or_default()
    }

    /// Registers a collection in the families of its parts.
    pub(super) fn join_families(&mut self, id: u32) {
        let Some(c) = self.slots.get(id as usize) else { return };
        for p in &c.parts {
            let f = self.families.entry(p.family).or_default();
            if !f.contains(&id) {
                f.push(id);
            }
        }
    }

    pub(super) fn leave_families(&mut self, id: u32) {
        self.families.retain(|_, f| {
            f.retain(|c| *c != id);
            !f.is_empty()
        });
    }

    /// Removes a collection that has left its families.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some(c) = self.slots.try_remove(id as usize) {
            self.by_cid.remove(c.cid);
        }
    }
}

impl Meta {
    pub(crate) fn coll(&self, cid: Cid) -> Option<u32> {
        self.colls.find(cid)
    }

    pub(crate) fn cid_of(&self, coll: u32) -> Cid {
        self.colls.get(coll as usize).map_or(Cid::Meta, |c| c.cid)
    }

    /// Sums over all collections.
    pub(crate) fn usage(&self) -> Usage {
        self.colls.iter().fold(Usage::default(), |s, (_, c)| Usage {
            objects: s.objects.saturating_add(c.usage.objects),
            stored: s.stored.saturating_add(c.usage.stored),
            omap: s.omap.saturating_add(c.usage.omap),
        })
    }

    /// Changes a collection's sums.
    pub(crate) fn count_usage(&mut self, coll: u32, f: impl FnOnce(&mut Usage)) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (mut u, page) = (c.usage, c.page);
        f(&mut u);
        if u == c.usage {
            return;
        }
        self.touch(page);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.usage = u;
        }
    }

    fn add_coll(&mut self, c: Coll) -> u32 {
        let id = self.colls.insert(c);
        self.colls.join_families(id);
        id
    }

    /// Creates a collection's record.
    pub(super) fn make_coll_at(
        &mut self,
        cid: Cid,
        bits: u32,
        num: u64,
        shard: u8,
        parts: Parts,
    ) -> Result<u32, &'static str> {
        let key = Key::plain(key::hi(key::COLL, num), 0);
        let Seek::Absent { inner, at, .. } = self.seek(shard, &key) else {
            self.missed();
            return Err("no leaf for the record of a new collection");
        };
        let coll = self.add_coll(Coll {
            cid,
            bits,
            num,
            parts,
            shard,
            page: NONE,
            info: None,
            trimmed: None,
            usage: Usage::default(),
            undo: undo::Undo::default(),
            packed: Packed::default(),
        });
        let page = self.insert_exact(inner, at, &key, Body::Coll { coll }, 0);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.page = page;
        }
        Ok(coll)
    }

    /// Decodes a collection's record.
    pub(super) fn load_coll(&mut self, r: &mut Get<'_>, hi: u64, shard: u8) -> Result<u32, Malformed> {
        let cid = r.cid()?;
        let bits = r.u32()?;
        let mut parts: Parts = smallvec::smallvec![Part::decode(r)?];
        let usage = Usage { objects: r.var()?, stored: r.var()?, omap: r.var()? };
        let flags = r.u8()?;
        if flags & 4 != 0 {
            for _ in 0..r.count(16)? {
                parts.push(Part::decode(r)?);
            }
        }
        let info = if flags & 1 != 0 { Some(Vec::from(r.bytes()?)) } else { None };
        let trimmed = if flags & 2 != 0 { Some(r.version()?) } else { None };
        if self.colls.find(cid).is_some() || !self.may_add_parts(&parts) {
            return r.bad();
        }
        let num = key::group_of(hi);
        let undo = if flags & 8 != 0 { undo::Undo { records: r.var()?, blocks: r.var()? } } else { Default::default() };
        let packed = if flags & 16 != 0 { Packed::decode(r)? } else { Packed::default() };
        // Later changes add to these sums, so implausible ones are refused.
        let counts = [usage.objects, usage.stored, usage.omap, undo.records, undo.blocks];
        if counts.iter().any(|n| *n > USAGE_MAX) {
            return r.bad();
        }
        Ok(self.add_coll(Coll { cid, bits, num, parts, shard, page: NONE, info, trimmed, usage, undo, packed }))
    }

    /// Brings the records of all collections of a shard.
    pub(crate) fn need_colls(&mut self, shard: u8) -> bool {
        // Each collection is a group with one record; these leaves are the first of the tree.
        let Some(root) = self.root(shard) else { return false };
        self.need_coll_leaves(root)
    }

    fn need_coll_leaves(&mut self, page: u32) -> bool {
        let Some(p) = self.pages.get(page as usize) else { return false };
        let level = p.level;
        let Body::Inner(n) = &p.body else { return true };
        let is_coll = |hi: u64| key::kind_of(hi) <= key::COLL;
        let upto = n.seps.while_hi(is_coll).max(usize::from(level > 1 && !n.kids.is_empty()));
        let mut ok = true;
        for at in 0..upto {
            match self.kid(page, at) {
                Some(k) if level > 1 => ok &= self.need_coll_leaves(k),
                Some(_) => {}
                None => ok = false,
            }
        }
        ok
    }

    pub(super) fn remove_coll(&mut self, coll: u32) -> Result<(), &'static str> {
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        if c.usage.objects > 0 || c.undo.records > 0 {
            return Err("removal of a collection with objects or undo records");
        }
        let page = c.page;
        self.leave_packed(coll);
        self.log_drop(coll);
        self.remove_leaf(page);
        self.colls.leave_families(coll);
        self.colls.remove(coll);
        Ok(())
    }
}
