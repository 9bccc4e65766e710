//! Consistency check: compares space, references and sums with the trees they are derived from.
//!
//! A check needs three bits of memory for each block of the device, and the objects of one shard at a time.

use super::{Device, Store};
use crate::layout::BLOCK;
use crate::meta::key::{Bounds, Key, inside};
use crate::meta::map::{CHUNK, Chunk, Ptr, block_crc, is_stored};
use crate::meta::packed::{Packed, PoolShard, pool_and_shard};
use crate::meta::page::{Body, Sum};
use crate::meta::tree::NONE;
use crate::meta::undo::Undo;
use crate::meta::{Coll, Usage, key, refs};
use crate::space::blocks_of;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Description of each contradiction; empty for a consistent store.
    pub errors: Vec<String>,
    /// Number of errors beyond those listed.
    pub more: u64,
    /// Number of checked metadata pages.
    pub pages: u64,
    /// Number of collections.
    pub collections: u64,
    /// Number of objects.
    pub objects: u64,
    /// Number of distinct data blocks.
    pub data_blocks: u64,
    /// Number of data blocks that were read and verified.
    pub verified: u64,
    /// Data blocks that can't be read or have a wrong checksum: collection, object, block.
    pub bad_data: Vec<(crate::Cid, crate::Oid, u64)>,
    /// Undo records, by collection and version, with a block that can't be read or has a wrong checksum.
    pub bad_kept: Vec<(crate::Cid, base::Eversion)>,
    /// Objects that lost part of their map or omap with a metadata page and were marked so by
    /// [`rebuild()`](super::rebuild()).
    pub damaged: Vec<(crate::Cid, crate::Oid)>,
}

/// Most listed errors.
const ERRORS_MAX: usize = 200;

impl Report {
    fn add(&mut self, e: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(e);
        } else {
            self.more += 1;
        }
    }

    /// True if the check found no error.
    #[must_use]
    pub fn clean(&self) -> bool {
        let data = self.bad_data.is_empty() && self.bad_kept.is_empty();
        self.errors.is_empty() && data && self.damaged.is_empty()
    }
}

/// A bitmap of the blocks of a device.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(blocks: u64) -> Self {
        Self(vec![0; blocks.div_ceil(64) as usize])
    }

    /// Sets the bit of a block. Returns false if it was set before, or the block is outside the device.
    fn insert(&mut self, b: u64) -> bool {
        let Some(w) = self.0.get_mut((b / 64) as usize) else { return false };
        let (before, bit) = (*w, 1 << (b % 64));
        *w |= bit;
        before & bit == 0
    }

    fn contains(&self, b: u64) -> bool {
        self.0.get((b / 64) as usize).is_some_and(|w| w >> (b % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        let ones = |(i, w): (usize, &u64)| {
            let (i, w) = (i as u64, *w);
            (0..64).filter(move |b| w >> b & 1 == 1).map(move |b| i * 64 + b)
        };
        self.0.iter().enumerate().filter(|w| *w.1 != 0).flat_map(ones)
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|w| u64::from(w.count_ones())).sum()
    }
}

#[derive(Default)]
struct Walk {
    report: Report,
    deep: bool,
    /// Data blocks in use; `pages` has the blocks of metadata pages.
    used: Bits,
    pages: Bits,
    /// Data blocks of objects that are not marked as shared.
    plain: Bits,
    page_blocks: u64,
    usage: FxHashMap<u32, Usage>,
    /// Sums of the undo records found, by collection number.
    undo: FxHashMap<u64, Undo>,
    /// Sums of the compressed extents found, by pool and shard.
    packed: FxHashMap<PoolShard, Packed>,
    shard: OfShard,
}

/// State for the tree of one shard. Objects of different shards never share blocks.
#[derive(Default)]
struct OfShard {
    /// By data block: references found beyond the first.
    more: FxHashMap<u64, u64>,
    /// By data block: references beyond the first that the tree's reference counts state.
    counted: FxHashMap<u64, u64>,
    /// Sums of maps and omaps by object number: the value in the onode minus the sum over the leaves.
    maps: FxHashMap<u64, i64>,
    omaps: FxHashMap<u64, (i64, i64)>,
    /// Numbers of objects with omap keys in a leaf where lookups do not find them.
    strays: BTreeSet<u64>,
    /// Birth id, collection, and whether blocks are shared, by object number.
    objects: FxHashMap<u64, (u64, u32, bool)>,
    /// Collection number and version of each undo item. `objects` and `blocks` have the item under [`KEPT`]
    /// plus its index here.
    kept: Vec<(u64, base::Eversion)>,
    /// Data blocks to be verified.
    blocks: Vec<Verify>,
}

/// Bit that marks an undo item instead of an object; object numbers never have it.
const KEPT: u64 = 1 << 63;

/// Device block, object number, block in the object, version and checksum.
type Verify = (u64, u64, u64, u32, u32);

/// Number of blocks that are collected to be verified in device order.
const VERIFY: usize = 1 << 20;

impl Walk {
    /// Registers the blocks of an object's map, from block `first` of the object on.
    fn data(&mut self, nid: u64, shared: bool, first: u64, blocks: impl Iterator<Item = (u64, Ptr, u32)>) {
        for (b, ptr, crc) in blocks {
            if !is_stored(ptr.phys()) {
                continue;
            }
            if self.used.insert(ptr.phys()) {
                self.report.data_blocks += 1;
            } else {
                *self.shard.more.entry(ptr.phys()).or_default() += 1;
            }
            if !shared {
                self.plain.insert(ptr.phys());
            }
            if self.deep {
                self.shard.blocks.push((ptr.phys(), nid, first + b, ptr.version(), crc));
            }
        }
    }

    /// Counts and examines the compressed extents of a map.
    fn extents(&mut self, coll: Option<&Coll>, nid: u64, map: &Chunk) {
        let mut sum = Packed::default();
        sum.add_map(map);
        if sum == Packed::default() {
            return;
        }
        if let Some(c) = coll {
            self.packed.entry(pool_and_shard(c)).or_default().add(sum);
        }
        let torn = map.torn();
        if torn > 0 {
            self.report
                .add(format!("{torn} blocks of object number {nid:#x} are of compressed extents that are not whole"));
        }
    }

    fn page(&mut self, block: u64) {
        self.page_blocks += 1;
        if !self.pages.insert(block) {
            self.report.add(format!("metadata block {block} belongs to two pages"));
        }
    }

    /// Compares the redundant sums of one shard's tree.
    fn compare_shard(&mut self) {
        let (s, r) = (&mut self.shard, &mut self.report);
        for (nid, n) in s.maps.iter().filter(|x| *x.1 != 0) {
            r.add(format!("map of object number {nid:#x}: {n} blocks more in its onode than in its pages"));
        }
        for (nid, n) in s.omaps.iter().filter(|x| *x.1 != (0, 0)) {
            r.add(format!("omap of object number {nid:#x}: {n:?} keys and bytes more in its onode than in its pages"));
        }
        for (b, n) in &s.more {
            let kept = s.counted.remove(b).unwrap_or(0);
            if *n != kept {
                r.add(format!("data block {b}: {n} references beyond the first, {kept} counted"));
            }
            if self.plain.contains(*b) {
                r.add(format!("data block {b} is shared, but an object of it is not marked so"));
            }
        }
        for (b, n) in &s.counted {
            r.add(format!("data block {b}: no references beyond the first, {n} counted"));
        }
    }
}

impl Store {
    /// Compares every derived count with its source, in all pages. Pages that are not in memory are read from `dev`, on
    /// which no request may be in flight. Exact for a device that only this store uses. Error: the first difference or
    /// unreadable page, as text.
    pub fn check(&mut self, dev: &mut dyn Device) -> Result<(), String> {
        let r = self.fsck(dev, false);
        match r.errors.first() {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// Like [`Store::check`], with a full report; `deep` also reads and verifies all data.
    pub fn fsck(&mut self, dev: &mut dyn Device, deep: bool) -> Report {
        let blocks = self.meta.layout().space_end;
        let mut w = Walk {
            deep,
            used: Bits::new(blocks),
            pages: Bits::new(blocks),
            plain: Bits::new(blocks),
            ..Walk::default()
        };
        for shard in 0..self.meta.roots().len() as u8 {
            let Some(s) = self.meta.roots().get(usize::from(shard)) else { continue };
            if s.page == NONE && s.loc.runs.is_empty() {
                continue;
            }
            match super::open::with_pages(dev, &mut self.meta, |m| m.root(shard)) {
                Ok(root) => drop(self.walk(dev, &mut w, root, (None, None))),
                Err(e) => w.report.add(format!("tree of shard {shard}: {e}")),
            }
            w.compare_shard();
            for nid in std::mem::take(&mut w.shard.strays) {
                let name = self
                    .named(dev, nid, &w)
                    .map_or(format!("object number {nid:#x}"), |(c, o)| format!("{c:?} {}", o.hobj));
                w.report.add(format!("omap keys of {name} are in a page where lookups do not find them"));
            }
            self.verify(dev, &mut w);
            w.shard = OfShard::default();
        }
        self.compare(&mut w);
        w.report.collections = self.meta.colls().iter().count() as u64;
        w.report
    }

    /// Visits a page with keys in these bounds and the pages below it. Returns their sums.
    fn walk(&mut self, dev: &mut dyn Device, w: &mut Walk, page: u32, bounds: Bounds<'_>) -> Sum {
        w.report.pages += 1;
        let Some(p) = self.meta.page_mut(page) else { return Sum::default() };
        p.pins += 1;
        blocks_of(&p.loc.runs).for_each(|b| w.page(b));
        let kids = match &p.body {
            Body::Inner(n) => Some(n.kids.len()),
            _ => None,
        };
        let sum = match kids {
            Some(n) => {
                let mut sum = Sum::default();
                for at in 0..n {
                    sum.add(self.walk_kid(dev, w, page, at, bounds));
                }
                sum
            }
            None => {
                self.check_bounds(w, page, bounds);
                self.visit_leaf(w, page);
                self.meta.page_sum(page)
            }
        };
        if let Some(p) = self.meta.page_mut(page) {
            p.pins -= 1;
        }
        sum
    }

    fn walk_kid(&mut self, dev: &mut dyn Device, w: &mut Walk, page: u32, at: usize, (start, end): Bounds<'_>) -> Sum {
        let seps = self.meta.inner(page).map(|n| (n.seps.get(at), n.seps.get(at + 1)));
        let (own, next) = seps.unwrap_or_default();
        // Above leaves, the first kid also holds keys below its separator.
        let leaf = self.meta.level(page) == Some(1);
        let first = if at > 0 || leaf { own.as_ref() } else { start };
        if leaf && own.as_ref() < start || own.as_ref().is_some_and(|s| end.is_some_and(|e| s >= e)) {
            w.report.add(format!(
                "a page of shard {} begins outside its parent: {own:?}",
                self.meta.pages().get(page as usize).map_or(0, |p| p.shard)
            ));
        }
        let bounds = (first, next.as_ref().or(end));
        let stored = self.meta.inner(page).and_then(|n| n.kids.get(at)).map(|k| (k.page, k.sum, k.loc.clone()));
        let Some((was, sum, loc)) = stored else { return Sum::default() };
        match super::open::with_pages(dev, &mut self.meta, |m| m.kid(page, at)) {
            Ok(kid) => {
                let found = self.walk(dev, w, kid, bounds);
                if was == NONE && found != sum {
                    w.report.add(format!("page at block {:?}: sums {found:?}, above {sum:?}", loc.runs.first()));
                }
                if w.shard.blocks.len() >= VERIFY {
                    self.verify(dev, w);
                }
                // The memory budget applies to a check as well.
                self.meta.evict(self.cfg.meta_bytes);
                found
            }
            Err(e) => {
                w.report.add(e.to_string());
                // The blocks of an unreadable page count as used, too.
                blocks_of(&loc.runs).for_each(|b| w.page(b));
                sum
            }
        }
    }

    /// Compares the first and the last key of a leaf with the bounds of its place.
    fn check_bounds(&self, w: &mut Walk, page: u32, bounds: Bounds<'_>) {
        let Some(p) = self.meta.pages().get(page as usize) else { return };
        let group = key::group_of(p.hi);
        let (mut first, mut last) = (None, None);
        match &p.body {
            Body::Objects { ids } => {
                let at =
                    |e: Option<&(u64, u32)>| self.meta.objects().get(e?.1 as usize).map(|o| Key::object(group, &o.oid));
                (first, last) = (at(ids.first()), at(ids.last()));
            }
            Body::Omap { leaf } if !leaf.is_empty() => {
                first = Some(Key::omap(group, leaf.key(0)));
                last = Some(Key::omap(group, leaf.key(leaf.len() - 1)));
            }
            _ => {}
        }
        if first.iter().chain(&last).all(|k| inside(k, bounds)) {
            return;
        }
        match p.body {
            Body::Omap { .. } => drop(w.shard.strays.insert(group)),
            _ => w.report.add(format!("objects of family {group:#x} are in a page where lookups do not find them")),
        }
    }

    fn visit_leaf(&mut self, w: &mut Walk, page: u32) {
        let Some(p) = self.meta.pages().get(page as usize) else { return };
        let group = key::group_of(p.hi);
        match &p.body {
            Body::Inner(_) | Body::Coll { .. } => {}
            Body::Log { .. } => {
                for (version, items) in self.meta.records_of(page) {
                    w.undo.entry(group).or_default().add(&items);
                    for i in items {
                        // An undo item does not depend on its object, which may be removed.
                        let number = KEPT | w.shard.kept.len() as u64;
                        w.shard.kept.push((group, version));
                        w.shard.objects.insert(number, (i.birth, u32::MAX, i.shared));
                        i.runs.iter().for_each(|r| w.data(number, i.shared, 0, r.entries()));
                    }
                }
            }
            Body::Objects { ids } => {
                for (_, id) in ids {
                    let Some(o) = self.meta.objects().get(*id as usize) else {
                        w.report.add(format!("slot {id} of an object page is empty"));
                        continue;
                    };
                    if o.page != page {
                        w.report.add(format!("object {} is not in its page", o.oid.hobj));
                    }
                    w.report.objects += 1;
                    if o.lost.any() {
                        w.report.damaged.push((self.meta.cid_of(o.coll), o.oid.clone().into()));
                    }
                    let u = w.usage.entry(o.coll).or_default();
                    u.objects += 1;
                    u.stored += o.stored();
                    u.omap += o.omap.bytes();
                    w.shard.objects.insert(o.nid, (o.birth, o.coll, o.shared));
                    if o.paged {
                        *w.shard.maps.entry(o.nid).or_default() += o.mapped as i64;
                    }
                    if let crate::meta::omap::Omap::Paged { keys, bytes } = &o.omap {
                        let e = w.shard.omaps.entry(o.nid).or_default();
                        (e.0, e.1) = (e.0 + *keys as i64, e.1 + *bytes as i64);
                    }
                    w.extents(self.meta.colls().get(o.coll as usize), o.nid, &o.inline);
                    w.data(o.nid, o.shared, 0, o.inline.iter(0, CHUNK));
                }
            }
            Body::Omap { leaf } => {
                let e = w.shard.omaps.entry(group).or_default();
                e.0 -= leaf.len() as i64;
                e.1 -= leaf.iter_from(0).map(|(k, v)| (k.len() + v.len()) as i64).sum::<i64>();
            }
            Body::Map { chunk, map, .. } => {
                *w.shard.maps.entry(group).or_default() -= map.mapped() as i64;
                // Objects precede maps in a tree.
                let (coll, shared) = w.shard.objects.get(&group).map_or((NONE, false), |o| (o.1, o.2));
                w.extents(self.meta.colls().get(coll as usize), group, map);
                w.data(group, shared, chunk * CHUNK, map.iter(0, CHUNK));
            }
            Body::Refs { range, counts } => {
                for (b, c) in (range * refs::RANGE..).zip(counts.iter()).filter(|(_, c)| **c > 0) {
                    *w.shard.counted.entry(b).or_default() += u64::from(*c);
                }
            }
        }
    }

    fn compare(&self, w: &mut Walk) {
        let m = &self.meta;
        let (r, pages) = (&mut w.report, w.page_blocks);
        for (id, c) in m.colls().iter() {
            let u = w.usage.remove(&(id as u32)).unwrap_or_default();
            if u != c.usage {
                r.add(format!("usage of {:?}: counted {u:?}, recorded {:?}", c.cid, c.usage));
            }
        }
        for (_, c) in m.colls().iter() {
            let u = w.undo.remove(&c.num).unwrap_or_default();
            if u != c.undo {
                r.add(format!("undo records of {:?}: counted {u:?}, recorded {:?}", c.cid, c.undo));
            }
        }
        for c in m.colls().iter().map(|c| c.1).filter(|c| c.packed != Packed::default()) {
            w.packed.entry(pool_and_shard(c)).or_default().subtract(c.packed);
        }
        for (of, left) in w.packed.drain().filter(|(_, left)| *left != Packed::default()) {
            r.add(format!("compressed extents of pool and shard {of:?}: counted less recorded {left:?}"));
        }
        if !w.undo.is_empty() {
            r.add(format!("undo records of {} absent collections", w.undo.len()));
        }
        if !w.usage.is_empty() {
            r.add(format!("objects of {} absent collections", w.usage.len()));
        }
        let map: Vec<u64> = m.alloc().used().blocks().collect();
        if (pages + map.len() as u64) as i64 != m.alloc().page_blocks() {
            r.add(format!("metadata blocks: counted {pages} + {}, recorded {}", map.len(), m.alloc().page_blocks()));
        }
        let leaving = m.alloc().leaving().chain(self.checkpoint.releasing()).copied();
        let pools = self.tags.values().flat_map(|p| p.pool.iter().copied());
        let leaving = leaving.chain(pools);
        let of_pages = w.pages.iter().map(|b| (b, 1, "metadata"));
        let runs = of_pages.chain(map.iter().map(|b| (*b, 1, "the map of used blocks")));
        let used = &mut w.used;
        for (first, len, what) in runs.chain(leaving.map(|r| (r.0, r.1, "freed"))) {
            for b in first..first + u64::from(len) {
                if !used.insert(b) {
                    r.add(format!("block {b} is used twice, once as {what}"));
                }
            }
        }
        for b in m.layout().space_start..m.layout().space_end {
            if self.space.used(b) != used.contains(b) {
                r.add(format!("block {b}: in use {}, referred to {}", self.space.used(b), used.contains(b)));
            }
        }
        let n = used.count();
        let reserved: u64 = self.tags.values().map(|p| p.reserved + p.for_meta).sum::<u64>() + self.room.for_dirty();
        if self.space.unreserved() + n + reserved != self.space.total() {
            r.add(format!("{} free, {n} used, {reserved} reserved", self.space.unreserved()));
        }
        self.compare_pages(r);
    }

    /// Compares what is counted of the pages in memory with the pages.
    fn compare_pages(&self, r: &mut Report) {
        let m = &self.meta;
        let mut loaded: FxHashMap<u32, u32> = FxHashMap::default();
        m.pages().iter().for_each(|(_, p)| *loaded.entry(p.parent).or_default() += 1);
        for (id, p) in m.pages().iter() {
            let n = loaded.get(&(id as u32)).copied().unwrap_or(0);
            if n != p.loaded {
                r.add(format!("page in slot {id}: {n} pages below it in memory, recorded {}", p.loaded));
            }
        }
        let (mem, dirty) =
            m.pages().iter().fold((0, 0), |(a, d), (_, p)| (a + p.mem, d + if p.dirty != 0 { p.mem } else { 0 }));
        if mem != m.pages().mem() || dirty != m.pages().dirty_mem() {
            r.add(format!(
                "memory of pages: counted {mem} ({dirty} dirty), recorded {} ({})",
                m.pages().mem(),
                m.pages().dirty_mem()
            ));
        }
    }

    /// Reads and verifies the collected blocks, in device order.
    fn verify(&mut self, dev: &mut dyn Device, w: &mut Walk) {
        const BATCH: usize = 256;
        let mut blocks = std::mem::take(&mut w.shard.blocks);
        blocks.sort_unstable();
        for batch in blocks.chunks(BATCH) {
            let ranges: Vec<(u64, u64)> = batch.iter().map(|b| (b.0 * BLOCK, BLOCK)).collect();
            for ((phys, nid, block, version, crc), got) in batch.iter().zip(dev.read_many(&ranges)) {
                w.report.verified += 1;
                let birth = w.shard.objects.get(nid).map_or(0, |o| o.0);
                let good = got.is_ok_and(|d| block_crc(birth, *block, *version, &d) == *crc);
                if good || self.log.in_flight(*phys).is_some() {
                    continue;
                }
                if let Some((num, version)) = w.shard.kept.get((*nid ^ KEPT) as usize) {
                    let coll = self.meta.colls().iter().find(|(_, c)| c.num == *num);
                    w.report.bad_kept.push((coll.map_or(crate::Cid::Meta, |(_, c)| c.cid), *version));
                } else if let Some((cid, oid)) = self.named(dev, *nid, w) {
                    w.report.bad_data.push((cid, oid, *block));
                } else {
                    w.report.add(format!("block {block} of object number {nid:#x} is not what was written"));
                }
            }
        }
    }

    /// Collection and name of the object with a number, for reports. Searches its collection.
    fn named(&mut self, dev: &mut dyn Device, nid: u64, w: &Walk) -> Option<(crate::Cid, crate::Oid)> {
        let coll = w.shard.objects.get(&nid)?.1;
        let cid = self.meta.cid_of(coll);
        let mut from = Some(crate::Oid::new(base::HObject::min()));
        while let Some(f) = from {
            let (part, next) = super::open::with_pages(dev, &mut self.meta, |m| m.list(coll, &f, None, 256)).ok()?;
            for oid in part {
                let id = super::open::with_pages(dev, &mut self.meta, |m| m.look(coll, &oid)).ok()??;
                if self.meta.objects().get(id as usize).is_some_and(|o| o.nid == nid) {
                    return Some((cid, oid));
                }
            }
            from = next;
        }
        None
    }
}
