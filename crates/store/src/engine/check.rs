//! Is what is stored and what is in memory consistent: space, references and sums against the trees they are derived from?

use super::{Device, Store};
use crate::layout::BLK;
use crate::meta::key::{Bounds, Key, inside};
use crate::meta::map::{CHUNK, block_crc};
use crate::meta::page::{Body, Sum};
use crate::meta::tree::NONE;
use crate::meta::{Usage, key, refs};
use crate::space::blocks_of;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each contradiction, in words. Empty if all is well.
    pub errors: Vec<String>,
    /// Errors beyond those listed.
    pub more: u64,
    /// Pages of metadata looked at.
    pub pages: u64,
    /// Collections.
    pub collections: u64,
    /// Objects.
    pub objects: u64,
    /// Distinct blocks of data.
    pub data_blocks: u64,
    /// Blocks of data read and compared with their checksums.
    pub verified: u64,
    /// Blocks of data that could not be read or are not what was written: collection, object and block.
    pub bad_data: Vec<(crate::Cid, crate::Oid, u64)>,
    /// Objects that lost part of their map or omap with a page of metadata, as [`rebuild()`](super::rebuild()) left them.
    pub damaged: Vec<(crate::Cid, crate::Oid)>,
}

/// Errors that are listed at most.
const ERRORS_MAX: usize = 200;

impl Report {
    fn add(&mut self, e: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(e);
        } else {
            self.more += 1;
        }
    }

    /// True if nothing was found.
    #[must_use]
    pub fn clean(&self) -> bool {
        self.errors.is_empty() && self.bad_data.is_empty() && self.damaged.is_empty()
    }
}

#[derive(Default)]
struct Walk {
    report: Report,
    /// References to each data block, and whether an object of one is not marked as shared.
    data: FxHashMap<u64, (u64, bool)>,
    /// References beyond the first, as counted in the tree, by shard.
    counted: FxHashMap<u64, u64>,
    pages: FxHashMap<u64, ()>,
    page_blocks: u64,
    usage: FxHashMap<u32, Usage>,
    /// Sums of maps and omaps by object number: what onodes say, less what leaves hold.
    maps: FxHashMap<u64, i64>,
    omaps: FxHashMap<u64, (i64, i64)>,
    /// Objects, by number, with keys where they are not looked for.
    strays: BTreeSet<u64>,
    /// Objects by number, for verifying data.
    objects: FxHashMap<u64, (u64, u32, u32)>,
    blocks: Vec<(u64, u64, u64, u32, u32)>,
}

impl Store {
    /// Compares every derived count with its source, in all pages, reading those that are not in memory from `dev`, which must
    /// have completed all that was asked of it. Exact for a device that only this store uses.
    pub fn check(&mut self, dev: &mut dyn Device) -> Result<(), String> {
        let r = self.fsck(dev, false);
        match r.errors.first() {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// As [`Store::check`], with all that is found; `deep` also reads all data.
    pub fn fsck(&mut self, dev: &mut dyn Device, deep: bool) -> Report {
        let mut w = Walk::default();
        for shard in 0..self.meta.shards.len() as u8 {
            let Some(s) = self.meta.shards.get(usize::from(shard)) else { continue };
            if s.page == NONE && s.loc.runs.is_empty() {
                continue;
            }
            self.walk_root(dev, &mut w, shard, deep);
        }
        self.compare(&mut w);
        for nid in std::mem::take(&mut w.strays) {
            let name = self
                .named(dev, nid, &w)
                .map_or(format!("object number {nid:#x}"), |(c, o)| format!("{c:?} {}", o.hobj));
            w.report.add(format!("keys of the omap of {name} are where they are not looked for"));
        }
        if deep {
            self.verify(dev, &mut w);
        }
        w.report.collections = self.meta.colls.len() as u64;
        w.report
    }

    fn walk_root(&mut self, dev: &mut dyn Device, w: &mut Walk, shard: u8, deep: bool) {
        match super::open::with_pages(dev, &mut self.meta, |m| m.root(shard)) {
            Ok(root) => {
                self.walk(dev, w, root, (None, None), deep);
            }
            Err(e) => w.report.add(format!("tree of shard {shard}: {e}")),
        }
    }

    /// Visits a page with keys in these bounds and what is below it; sums over it.
    fn walk(&mut self, dev: &mut dyn Device, w: &mut Walk, page: u32, bounds: Bounds<'_>, deep: bool) -> Sum {
        w.report.pages += 1;
        let Some(p) = self.meta.pages.get_mut(page as usize) else { return Sum::default() };
        p.pins += 1;
        for b in blocks_of(&p.loc.runs) {
            w.page_blocks += 1;
            if w.pages.insert(b, ()).is_some() {
                w.report.add(format!("metadata block {b} belongs to two pages"));
            }
        }
        let kids = match &p.body {
            Body::Inner(n) => Some(n.kids.len()),
            _ => None,
        };
        let sum = match kids {
            Some(n) => {
                let mut sum = Sum::default();
                for at in 0..n {
                    sum.add(self.walk_kid(dev, w, page, at, bounds, deep));
                }
                sum
            }
            None => {
                self.check_bounds(w, page, bounds);
                self.visit_leaf(w, page, deep);
                self.meta.page_sum(page)
            }
        };
        if let Some(p) = self.meta.pages.get_mut(page as usize) {
            p.pins -= 1;
        }
        sum
    }

    fn walk_kid(
        &mut self,
        dev: &mut dyn Device,
        w: &mut Walk,
        page: u32,
        at: usize,
        (start, end): Bounds<'_>,
        deep: bool,
    ) -> Sum {
        let seps = self.meta.inner(page).map(|n| (n.seps.get(at), n.seps.get(at + 1)));
        let (own, next) = seps.unwrap_or_default();
        // Above leaves the first kid has what is below its separator, too.
        let leaf = self.meta.level(page) == Some(1);
        let first = if at > 0 || leaf { own.as_ref() } else { start };
        if leaf && own.as_ref() < start || own.as_ref().is_some_and(|s| end.is_some_and(|e| s >= e)) {
            w.report.add(format!(
                "a page of shard {} begins outside its parent: {own:?}",
                self.meta.pages.get(page as usize).map_or(0, |p| p.shard)
            ));
        }
        let bounds = (first, next.as_ref().or(end));
        let stored = self.meta.inner(page).and_then(|n| n.kids.get(at)).map(|k| (k.page, k.sum, k.loc.clone()));
        let Some((was, sum, loc)) = stored else { return Sum::default() };
        match super::open::with_pages(dev, &mut self.meta, |m| m.kid(page, at)) {
            Ok(kid) => {
                let found = self.walk(dev, w, kid, bounds, deep);
                if was == NONE && found != sum {
                    w.report.add(format!("page at block {:?}: sums {found:?}, above {sum:?}", loc.runs.first()));
                }
                // The budget holds here, too.
                self.meta.evict(self.cfg.meta_bytes);
                found
            }
            Err(e) => {
                w.report.add(e.to_string());
                // Its blocks are in use all the same.
                w.page_blocks += loc.blocks();
                w.pages.extend(blocks_of(&loc.runs).map(|b| (b, ())));
                sum
            }
        }
    }

    /// Compares the first and the last key of a leaf with where it is.
    fn check_bounds(&self, w: &mut Walk, page: u32, bounds: Bounds<'_>) {
        let Some(p) = self.meta.pages.get(page as usize) else { return };
        let group = key::group_of(p.hi);
        let (mut first, mut last) = (None, None);
        match &p.body {
            Body::Objects { ids } => {
                let at =
                    |e: Option<&(u64, u32)>| self.meta.objects.get(e?.1 as usize).map(|o| Key::object(group, &o.oid));
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
            Body::Omap { .. } => drop(w.strays.insert(group)),
            _ => w.report.add(format!("objects of group {group:#x} are where they are not looked for")),
        }
    }

    fn visit_leaf(&mut self, w: &mut Walk, page: u32, deep: bool) {
        let Some(p) = self.meta.pages.get(page as usize) else { return };
        let group = key::group_of(p.hi);
        match &p.body {
            Body::Inner(_) | Body::Coll { .. } | Body::Log { .. } => {}
            Body::Objects { ids } => {
                for (_, id) in ids {
                    let Some(o) = self.meta.objects.get(*id as usize) else {
                        w.report.add(format!("slot {id} of an object page is empty"));
                        continue;
                    };
                    if o.page != page {
                        w.report.add(format!("object {} is not in its page", o.oid.hobj));
                    }
                    w.report.objects += 1;
                    if o.lost.any() {
                        w.report.damaged.push((self.meta.cid_of(o.coll), o.oid.clone()));
                    }
                    let u = w.usage.entry(o.coll).or_default();
                    u.objects += 1;
                    u.stored += o.stored();
                    u.omap += o.omap.bytes();
                    w.objects.insert(o.nid, (o.birth, o.coll, u32::from(o.shared)));
                    if o.paged {
                        *w.maps.entry(o.nid).or_default() += o.mapped as i64;
                    }
                    if let crate::meta::omap::Omap::Paged { keys, bytes } = &o.omap {
                        let e = w.omaps.entry(o.nid).or_default();
                        (e.0, e.1) = (e.0 + *keys as i64, e.1 + *bytes as i64);
                    }
                    for (b, ptr, crc) in o.inline.iter(0, CHUNK) {
                        let d = w.data.entry(ptr.phys()).or_default();
                        (d.0, d.1) = (d.0 + 1, d.1 | !o.shared);
                        if deep {
                            w.blocks.push((ptr.phys(), o.nid, b, ptr.version(), crc));
                        }
                    }
                }
            }
            Body::Omap { leaf } => {
                let e = w.omaps.entry(group).or_default();
                e.0 -= leaf.len() as i64;
                e.1 -= leaf.iter_from(0).map(|(k, v)| (k.len() + v.len()) as i64).sum::<i64>();
            }
            Body::Map { chunk, map, .. } => {
                *w.maps.entry(group).or_default() -= map.mapped() as i64;
                // Objects come before maps in a tree.
                let shared = w.objects.get(&group).is_some_and(|o| o.2 != 0);
                for (b, ptr, crc) in map.iter(0, CHUNK) {
                    let d = w.data.entry(ptr.phys()).or_default();
                    (d.0, d.1) = (d.0 + 1, d.1 | !shared);
                    if deep {
                        w.blocks.push((ptr.phys(), group, chunk * CHUNK + b, ptr.version(), crc));
                    }
                }
            }
            Body::Refs { range, counts } => {
                for (b, c) in (range * refs::RANGE..).zip(counts.iter()).filter(|(_, c)| **c > 0) {
                    *w.counted.entry(b).or_default() += u64::from(*c);
                }
            }
        }
    }

    fn compare(&self, w: &mut Walk) {
        let m = &self.meta;
        let r = &mut w.report;
        for (id, c) in &m.colls {
            let u = w.usage.remove(&(id as u32)).unwrap_or_default();
            if u != c.usage {
                r.add(format!("usage of {:?}: counted {u:?}, kept {:?}", c.cid, c.usage));
            }
        }
        if !w.usage.is_empty() {
            r.add(format!("objects of {} absent collections", w.usage.len()));
        }
        for (nid, n) in w.maps.iter().filter(|x| *x.1 != 0) {
            r.add(format!("map of object number {nid:#x}: {n} blocks more in its onode than in its pages"));
        }
        for (nid, n) in w.omaps.iter().filter(|x| *x.1 != (0, 0)) {
            r.add(format!("omap of object number {nid:#x}: {n:?} keys and bytes more in its onode than in its pages"));
        }
        for (b, (n, plain)) in &w.data {
            let kept = w.counted.remove(b).unwrap_or(0);
            if n - 1 != kept {
                r.add(format!("data block {b}: {} references beyond the first, {kept} counted", n - 1));
            }
            if *n > 1 && *plain {
                r.add(format!("data block {b} is shared, but an object of it is not marked so"));
            }
        }
        for b in w.counted.keys() {
            r.add(format!("references to block {b} are counted, but there are none"));
        }
        r.data_blocks = w.data.len() as u64;
        let map: Vec<u64> = m.used.blocks().collect();
        if (w.page_blocks + map.len() as u64) as i64 != m.page_blocks {
            r.add(format!("metadata blocks: counted {} + {}, kept {}", w.page_blocks, map.len(), m.page_blocks));
        }
        let leaving = m.freed.iter().chain(&m.release).chain(self.checkpoint.releasing()).copied();
        let mut used: FxHashSet<u64> = w.data.keys().copied().collect();
        let pools = self.plans.values().flat_map(|p| p.pool.iter().copied());
        let leaving = leaving.chain(pools);
        let runs = w.pages.keys().chain(&map).map(|b| (*b, 1, "metadata"));
        for (first, n, what) in runs.chain(leaving.map(|r| (r.0, r.1, "freed"))) {
            for b in first..first + u64::from(n) {
                if !used.insert(b) {
                    r.add(format!("block {b} is used twice, once as {what}"));
                }
            }
        }
        for b in m.layout.space_start..m.layout.space_end {
            if self.space.used(b) != used.contains(&b) {
                r.add(format!("block {b}: in use {}, referred to {}", self.space.used(b), used.contains(&b)));
            }
        }
        let reserved: u64 = self.plans.values().map(|p| p.reserved + p.for_meta).sum::<u64>() + self.meta_held;
        if self.space.unreserved() + used.len() as u64 + reserved != self.space.total() {
            r.add(format!("{} free, {} used, {reserved} reserved", self.space.unreserved(), used.len()));
        }
        let (mem, dirty) =
            m.pages.iter().fold((0, 0), |(a, d), (_, p)| (a + p.mem, d + if p.dirty != 0 { p.mem } else { 0 }));
        if mem != m.mem || dirty != m.dirty_bytes {
            r.add(format!("memory of pages: counted {mem} ({dirty} dirty), kept {} ({})", m.mem, m.dirty_bytes));
        }
    }

    /// Reads all data in the order of the device.
    fn verify(&mut self, dev: &mut dyn Device, w: &mut Walk) {
        const BATCH: usize = 256;
        let mut blocks = std::mem::take(&mut w.blocks);
        blocks.sort_unstable();
        for batch in blocks.chunks(BATCH) {
            let ranges: Vec<(u64, u64)> = batch.iter().map(|b| (b.0 * BLK, BLK)).collect();
            for ((phys, nid, block, version, crc), got) in batch.iter().zip(dev.read_many(&ranges)) {
                w.report.verified += 1;
                let birth = w.objects.get(nid).map_or(0, |o| o.0);
                let good = got.is_ok_and(|d| block_crc(birth, *block, *version, &d) == *crc);
                if good || self.in_flight(*phys).is_some() {
                    continue;
                }
                if let Some((cid, oid)) = self.named(dev, *nid, w) {
                    w.report.bad_data.push((cid, oid, *block));
                } else {
                    w.report.add(format!("block {block} of object number {nid:#x} is not what was written"));
                }
            }
        }
    }

    /// The name of an object by its number: a search of its collection, for reports.
    fn named(&mut self, dev: &mut dyn Device, nid: u64, w: &Walk) -> Option<(crate::Cid, crate::Oid)> {
        let coll = w.objects.get(&nid)?.1;
        let cid = self.meta.cid_of(coll);
        let mut from = Some(crate::Oid::new(base::HObject::min()));
        while let Some(f) = from {
            let (part, next) = super::open::with_pages(dev, &mut self.meta, |m| m.list(coll, &f, None, 256)).ok()?;
            for oid in part {
                let id = super::open::with_pages(dev, &mut self.meta, |m| m.look(coll, &oid)).ok()??;
                if self.meta.objects.get(id as usize).is_some_and(|o| o.nid == nid) {
                    return Some((cid, oid));
                }
            }
            from = next;
        }
        None
    }
}
