//! Repair of metadata: a store that has lost pages is made sound again out of those that can be read.
//!
//! What can be derived is derived anew: the map of used blocks, counts of references, sums. What can't be goes in units that a PG
//! replaces by another copy: an object whose map or omap has lost a page stays and gives an error when it is read; a collection
//! whose record, onodes or log have lost one goes as a whole. docs/design/fault-model.md has the table.
//!
//! The store must not be open. First the trees as the newest checkpoint has them are freed of what can't be read and of what
//! belongs to nothing any more, then the log is replayed, then space and counts are made from what is there, and all of it is
//! stored by the checkpoint that otherwise divides the log among another number of reactors.
//!
//! Invariants:
//!  1. Nothing that a page which can be read points to, and nothing that the stored map has as used, is written to before the
//!     superblock makes the new roots valid. So this can be cut off anywhere and begun again.
//!  2. Which objects have lost something is told by sums: those of onodes against those of the leaves that were found; those of
//!     a collection's record against its onodes.

use super::format::probe;
use super::open::{LogEnd, OpenError, newest_root, relayout, replay, with_pages};
use super::{Config, Device, Store};
use crate::key::{Cid, Oid};
use crate::layout::{BLK, Layout, reactor_for};
use crate::meta::key::{self, Sep};
use crate::meta::map::CHUNK;
use crate::meta::object::Object;
use crate::meta::omap::Omap;
use crate::meta::page::Body;
use crate::meta::salvage::{Salvage, whole_group};
use crate::meta::tree::{Leaves, NONE, Shard};
use crate::meta::{Meta, NID_RING_SHIFT, Usage, used};
use crate::space::Space;
use crate::superblock::{BlobPtr, Root, Superblock};
use base::errno::EIO;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a rebuilt store lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Pages that could not be read, in words.
    pub pages: Vec<String>,
    /// Pages of the map of used blocks that could not be read.
    pub map_pages: u64,
    /// Collections that went, as far as their names are known.
    pub collections: Vec<Cid>,
    /// Records of collections that could not be read: that many collections went, or more. Their names are not known, unless the log
    /// told them.
    pub nameless: u64,
    /// Objects that are there, but whose data or omap is an error when it is read.
    pub objects: Vec<(Cid, Oid)>,
}

/// Keys that a page which could not be read may have held.
struct Gap {
    first: Sep,
    end: Option<Sep>,
    /// It was a leaf: of one kind and group.
    leaf: bool,
}

impl Gap {
    /// True if it may have held keys of that kind and group.
    fn touches(&self, hi: u64) -> bool {
        if self.leaf {
            return self.first.hi == hi;
        }
        // A group begins at position 0 or behind.
        self.first.hi <= hi
            && self.end.as_ref().is_none_or(|e| hi < e.hi || (hi == e.hi && (e.lo > 0 || !e.rest.is_empty())))
    }

    /// True if it may have held keys of that kind.
    fn touches_kind(&self, kind: u64) -> bool {
        let last = self.end.as_ref().map_or(u64::MAX, |e| key::kind_of(e.hi));
        if self.leaf {
            key::kind_of(self.first.hi) == kind
        } else {
            (key::kind_of(self.first.hi)..=last).contains(&kind)
        }
    }
}

/// What a walk does at each leaf: kind and group, and the page unless it was not asked for.
type Visit<'a> = dyn FnMut(&mut dyn Device, &mut Meta, u64, Option<u32>) -> Result<(), OpenError> + 'a;

/// A page is given up when it could not be read twice.
fn twice(mut f: impl FnMut() -> Result<u32, OpenError>) -> Result<u32, OpenError> {
    f().or_else(|_| f())
}

/// A walk over a tree in the order of keys.
struct Walk<'a> {
    dev: &'a mut dyn Device,
    m: &'a mut Meta,
    budget: usize,
    /// Kinds of leaves that are read.
    kinds: &'a [u64],
    /// Pages that could not be read; they are taken out of the tree.
    gaps: Vec<Gap>,
    words: Vec<String>,
    /// Places of all pages.
    places: &'a mut dyn FnMut(&Meta, &BlobPtr),
    visit: &'a mut Visit<'a>,
}

impl Walk<'_> {
    fn tree(&mut self, shard: u8) -> Result<(), OpenError> {
        let Some(s) = self.m.shards.get(usize::from(shard)) else { return Ok(()) };
        if s.page == NONE && s.loc.runs.is_empty() {
            return Ok(());
        }
        (self.places)(self.m, &s.loc);
        match twice(|| with_pages(self.dev, self.m, |m| m.root(shard))) {
            Ok(root) => {
                if self.inner(root, None, None)? {
                    self.m.forget_tree(shard);
                }
            }
            Err(e) => {
                self.lost(e, Gap { first: Sep::default(), end: None, leaf: false })?;
                self.m.forget_tree(shard);
            }
        }
        self.m.prune();
        Ok(())
    }

    fn lost(&mut self, e: OpenError, gap: Gap) -> Result<(), OpenError> {
        // Only what the device says it can't read is lost, or what is not what was written.
        if matches!(e, OpenError::Io(errno, _) if errno != EIO) {
            return Err(e);
        }
        self.words.push(e.to_string());
        self.gaps.push(gap);
        Ok(())
    }

    /// True if nothing is left of a page that must not be empty.
    fn inner(&mut self, page: u32, start: Option<&Sep>, end: Option<&Sep>) -> Result<bool, OpenError> {
        if let Some(p) = self.m.pages.get_mut(page as usize) {
            p.pins += 1;
        }
        let mut at = 0;
        while let Some((sep, loc)) =
            self.m.inner(page).and_then(|n| Some((n.seps.get(at)?, n.kids.get(at)?.loc.clone())))
        {
            let next = self.m.inner(page).and_then(|n| n.seps.get(at + 1));
            let leaf = self.m.level(page) == Some(1);
            // Above leaves the first kid has what is below its separator, too.
            let first = if at > 0 || leaf { sep.clone() } else { start.cloned().unwrap_or_default() };
            (self.places)(self.m, &loc);
            if leaf && !self.kinds.contains(&key::kind_of(sep.hi)) {
                (self.visit)(self.dev, self.m, sep.hi, None)?;
                at += 1;
                continue;
            }
            match twice(|| with_pages(self.dev, self.m, |m| m.kid(page, at))) {
                Ok(kid) if leaf => {
                    (self.visit)(self.dev, self.m, sep.hi, Some(kid))?;
                    at += 1;
                }
                Ok(kid) => {
                    if self.inner(kid, Some(&first), next.as_ref().or(end))? {
                        self.m.remove_kid(page, at);
                    } else {
                        at += 1;
                    }
                }
                Err(e) => {
                    self.m.remove_kid(page, at);
                    self.lost(e, Gap { first, end: next.or_else(|| end.cloned()), leaf })?;
                }
            }
            self.m.evict(self.budget);
        }
        let mut hollow = false;
        if let Some(p) = self.m.pages.get_mut(page as usize) {
            p.pins -= 1;
            hollow = p.level > 1 && matches!(&p.body, Body::Inner(n) if n.kids.is_empty());
        }
        Ok(hollow)
    }
}

/// Sums that don't match where something was lost.
#[derive(Default)]
struct Sums {
    /// By object with a map in pages: blocks in its onode, less those found.
    maps: FxHashMap<u64, i64>,
    /// By object with an omap in pages: keys and bytes.
    omaps: FxHashMap<u64, (i64, i64)>,
    usage: FxHashMap<u32, Usage>,
    /// Objects that are about their collection, by number, and it.
    own: Vec<(u64, u32)>,
}

const ALL: &[u64] = &[key::COLL, key::OBJECTS, key::OMAP, key::MAP, key::LOG, key::REFS];

fn ids_of(m: &Meta, page: u32) -> Vec<u32> {
    match m.pages.get(page as usize).map(|p| &p.body) {
        Some(Body::Objects { ids }) => ids.iter().map(|e| e.1).collect(),
        _ => Vec::new(),
    }
}

/// What is used may be marked as such already.
fn mark(space: &Space, b: u64) {
    space.mark(b);
}

fn mark_all(space: &Space, at: &BlobPtr) {
    at.runs.iter().flat_map(|(first, n)| *first..*first + u64::from(*n)).for_each(|b| mark(space, b));
}

/// Rebuilds the metadata of a store that is not open; see the module. A collection goes as a whole if an object of it for which
/// `own` holds has lost something: one that no other copy replaces, since it is about this copy. What it lacks then is in the answer. An error means that
/// the store is as it was: no superblock or root can be read, a frame of the log that was durable can't, the device fails, or there
/// is no room for what has to be written.
pub fn rebuild(dev: &mut dyn Device, cfg: &Config, own: fn(&Oid) -> bool) -> Result<Rebuilt, OpenError> {
    let sb = probe(dev)?;
    let cfg = Config { reactors: sb.rings, ..cfg.clone() };
    let Some(layout) = sb.layout() else {
        return Err(OpenError::Damaged("the superblock names an impossible size".into()));
    };
    let mut roots = Vec::new();
    for ring in 0..sb.rings {
        roots.push(newest_root(dev, &sb, &layout, ring)?);
    }
    let space = Arc::new(Space::new(layout.space_start, layout.space_end));
    let mut out = Rebuilt::default();
    let mut places = Vec::new();
    for root in &roots {
        out.map_pages += what_is_used(dev, &layout, root, &space, &mut places);
    }
    space.recount();
    places.into_iter().for_each(|b| mark(&space, b));
    let mut metas = Vec::new();
    for root in &roots {
        metas.push(meta_of(&cfg, &layout, &space, root));
    }
    for m in &mut metas {
        for shard in 0..m.shards.len() as u8 {
            clean(dev, m, &cfg, shard, own, &mut out)?;
        }
    }
    let mut ends = Vec::new();
    for (m, root) in metas.iter_mut().zip(&roots) {
        ends.push(replay(dev, &cfg, &sb, &layout, root, m)?);
        m.replay = false;
    }
    let mut now = vec![0; layout.space_end.div_ceil(64) as usize];
    for m in &mut metas {
        for shard in 0..m.shards.len() as u8 {
            sweep(dev, m, &cfg, shard, None)?;
            recount(dev, m, &cfg, shard)?;
        }
        m.page_blocks = 0;
        for shard in 0..m.shards.len() as u8 {
            take_stock(dev, m, &cfg, shard, &mut now, &mut out)?;
        }
    }
    account(&mut metas, &space, &layout, &now);
    let lost = metas.iter().filter_map(|m| m.salvage.as_ref()).flat_map(|s| s.lost.iter().copied());
    let mut lost: BTreeSet<Cid> = lost.collect();
    // It may have gone in one ring and come in another one.
    lost.retain(|c| metas.iter().all(|m| m.coll(*c).is_none()));
    out.collections = lost.into_iter().collect();
    store_all(dev, &cfg, sb, &layout, &space, &roots, metas, &ends)?;
    Ok(out)
}

/// Turns over what the stored map of a ring says, as far as it can be read; how many of its pages can't. Adds the places of
/// them all.
fn what_is_used(dev: &mut dyn Device, layout: &Layout, root: &Root, space: &Space, places: &mut Vec<u64>) -> u64 {
    let inside = |b: u64| b >= layout.space_start && b < layout.space_end;
    let mut read = |at: used::Place, index: bool| {
        let got = dev.read_many(&[(at.block * BLK, BLK)]).pop()?.ok()?;
        (used::crc_of(&got, index) == at.crc).then_some(got)
    };
    let mut bad = 0;
    for (i, at) in &root.used {
        let list = if inside(at.block) { read(*at, true).and_then(|b| used::decode_index(*i, &b).ok()) } else { None };
        bad += u64::from(list.is_none());
        places.extend(Some(at.block).filter(|b| inside(*b)));
        for (number, at) in list.unwrap_or_default() {
            places.extend(Some(at.block).filter(|b| inside(*b)));
            let here = inside(at.block) && u64::from(number) * used::SPAN < layout.space_end;
            match if here { read(at, false).and_then(|b| used::decode_bits(&b).ok()) } else { None } {
                Some(bits) => space.turn_over(number, &bits),
                None => bad += 1,
            }
        }
    }
    bad
}

fn meta_of(cfg: &Config, layout: &Layout, space: &Arc<Space>, root: &Root) -> Meta {
    let mut m = Meta::new(*layout, space.clone());
    m.nid_base = u64::from(root.ring) << NID_RING_SHIFT;
    (m.reactor, m.reactors) = (root.ring, cfg.reactors);
    m.next_nid = root.next_nid;
    m.salvage = Some(Salvage::default());
    for (shard, level, loc) in &root.trees {
        let own = reactor_for(u16::from(*shard), cfg.reactors) == root.ring;
        if let Some(s) = m.shards.get_mut(usize::from(*shard)).filter(|_| own) {
            *s = Shard { page: NONE, loc: loc.clone(), level: *level, stored: (loc.clone(), *level) };
        }
    }
    m
}

/// Takes what can't be read out of a tree, and with it what needs it.
fn clean(
    dev: &mut dyn Device,
    m: &mut Meta,
    cfg: &Config,
    shard: u8,
    own: fn(&Oid) -> bool,
    out: &mut Rebuilt,
) -> Result<(), OpenError> {
    let mut sums = Sums::default();
    let mut visit = |_: &mut dyn Device, m: &mut Meta, hi: u64, leaf: Option<u32>| {
        add_up(m, hi, leaf.unwrap_or(NONE), own, &mut sums);
        Ok(())
    };
    let mut places = |m: &Meta, at: &BlobPtr| mark_all(&m.space, at);
    let (gaps, words) = walk(dev, m, cfg, shard, ALL, &mut places, &mut visit)?;
    out.pages.extend(words.into_iter().map(|w| format!("shard {shard}: {w}")));
    out.nameless += gaps.iter().filter(|g| g.touches_kind(key::COLL)).count() as u64;
    sums.maps.retain(|_, n| *n != 0);
    sums.omaps.retain(|_, n| *n != (0, 0));
    let gone =
        |c: &crate::meta::Coll, u: Usage| c.usage != u || gaps.iter().any(|g| g.touches(key::hi(key::LOG, c.num)));
    let colls = m.colls.iter().filter(|(_, c)| c.shard == shard);
    let gone: Vec<u32> = colls
        .map(|(id, c)| (id as u32, gone(c, sums.usage.get(&(id as u32)).copied().unwrap_or_default())))
        .filter_map(|(id, gone)| gone.then_some(id))
        .collect();
    let own = sums.own.iter().filter(|(nid, _)| sums.maps.contains_key(nid) || sums.omaps.contains_key(nid));
    for id in gone.into_iter().chain(own.map(|o| o.1)) {
        m.forget_coll(id);
    }
    m.prune();
    sweep(dev, m, cfg, shard, Some(&sums))
}

fn walk(
    dev: &mut dyn Device,
    m: &mut Meta,
    cfg: &Config,
    shard: u8,
    kinds: &[u64],
    places: &mut dyn FnMut(&Meta, &BlobPtr),
    visit: &mut Visit<'_>,
) -> Result<(Vec<Gap>, Vec<String>), OpenError> {
    let mut w = Walk { dev, m, budget: cfg.meta_bytes, kinds, gaps: Vec::new(), words: Vec::new(), places, visit };
    w.tree(shard)?;
    Ok((w.gaps, w.words))
}

/// As [`walk`], over a tree that has been cleaned: a page that can't be read now is an error.
fn walk_whole(
    dev: &mut dyn Device,
    m: &mut Meta,
    cfg: &Config,
    shard: u8,
    kinds: &[u64],
    places: &mut dyn FnMut(&Meta, &BlobPtr),
    visit: &mut Visit<'_>,
) -> Result<(), OpenError> {
    let (_, words) = walk(dev, m, cfg, shard, kinds, places, visit)?;
    match words.into_iter().next() {
        Some(w) => Err(OpenError::Damaged(w)),
        None => Ok(()),
    }
}

/// Counts an object. What its onode says may be anything.
fn count(u: &mut Usage, o: &Object) {
    u.objects += 1;
    u.stored = u.stored.saturating_add(o.stored());
    u.omap = u.omap.saturating_add(o.omap.bytes());
}

/// Adds a leaf's content to the sums and marks the blocks of data it names.
fn add_up(m: &Meta, hi: u64, leaf: u32, own: fn(&Oid) -> bool, sums: &mut Sums) {
    let group = key::group_of(hi);
    match m.pages.get(leaf as usize).map(|p| &p.body) {
        Some(Body::Objects { ids }) => {
            for o in ids.iter().filter_map(|e| m.objects.get(e.1 as usize)) {
                count(sums.usage.entry(o.coll).or_default(), o);
                if own(&o.oid) {
                    sums.own.push((o.nid, o.coll));
                }
                if o.paged {
                    let n = sums.maps.entry(o.nid).or_default();
                    *n = n.wrapping_add(o.mapped as i64);
                }
                if let Omap::Paged { keys, bytes } = &o.omap {
                    let e = sums.omaps.entry(o.nid).or_default();
                    *e = (e.0.wrapping_add(*keys as i64), e.1.wrapping_add(*bytes as i64));
                }
                o.inline.iter(0, CHUNK).for_each(|(_, p, _)| mark(&m.space, p.phys()));
            }
        }
        Some(Body::Omap { leaf }) => {
            if let Some(e) = sums.omaps.get_mut(&group) {
                let s = leaf.sum();
                *e = (e.0.wrapping_sub(s.n as i64), e.1.wrapping_sub(s.bytes as i64));
            }
        }
        Some(Body::Map { map, .. }) => {
            if let Some(n) = sums.maps.get_mut(&group) {
                *n = n.wrapping_sub(map.mapped() as i64);
            }
            map.iter(0, CHUNK).for_each(|(_, p, _)| mark(&m.space, p.phys()));
        }
        _ => {}
    }
}

/// Takes out what belongs to no object or collection, and brings sums of collections up to date. With `lost`, objects whose sums
/// differ by that are marked as damaged and get the right ones.
fn sweep(dev: &mut dyn Device, m: &mut Meta, cfg: &Config, shard: u8, lost: Option<&Sums>) -> Result<(), OpenError> {
    let mut usage: FxHashMap<u32, Usage> = FxHashMap::default();
    let (mut maps, mut omaps) = (FxHashSet::default(), FxHashSet::default());
    let mut orphans = BTreeSet::new();
    let mut visit = |dev: &mut dyn Device, m: &mut Meta, hi: u64, leaf: Option<u32>| {
        let group = key::group_of(hi);
        for id in leaf.map(|l| ids_of(m, l)).unwrap_or_default() {
            if let Some(lost) = lost {
                take_off(dev, m, id, lost)?;
            }
            let Some(o) = m.objects.get(id as usize) else { continue };
            count(usage.entry(o.coll).or_default(), o);
            if o.paged {
                maps.insert(o.nid);
            }
            if o.omap.paged() {
                omaps.insert(o.nid);
            }
        }
        let orphan = match key::kind_of(hi) {
            key::OMAP => !omaps.contains(&group),
            key::MAP => !maps.contains(&group),
            key::LOG => m.is_log_of_none(hi),
            _ => false,
        };
        if orphan {
            orphans.insert(hi);
        }
        Ok(())
    };
    walk_whole(dev, m, cfg, shard, &[key::COLL, key::OBJECTS], &mut |_, _| {}, &mut visit)?;
    for hi in orphans {
        drop_group(dev, m, shard, hi)?;
    }
    let colls: Vec<u32> = m.colls.iter().filter(|(_, c)| c.shard == shard).map(|(id, _)| id as u32).collect();
    for id in colls {
        m.count_usage(id, |u| *u = usage.remove(&id).unwrap_or_default());
    }
    Ok(())
}

/// Marks an object as damaged if its sums are not those of what was found, and makes them so.
fn take_off(dev: &mut dyn Device, m: &mut Meta, id: u32, lost: &Sums) -> Result<(), OpenError> {
    let Some((nid, size)) = m.objects.get(id as usize).map(|o| (o.nid, o.size)) else { return Ok(()) };
    let (blocks, keys) = (lost.maps.get(&nid), lost.omaps.get(&nid));
    if blocks.is_none() && keys.is_none() {
        return Ok(());
    }
    m.touch_object(id);
    let last = size / BLK;
    let mapped = match size % BLK {
        0 => false,
        _ => with_pages(dev, m, |m| m.need_map(id, last, last + 1, false).then(|| !m.map_get(id, last).0.is_hole()))?,
    };
    let Some(o) = m.objects.get_mut(id as usize) else { return Ok(()) };
    o.damaged = true;
    o.mapped = less(o.mapped, blocks.copied().unwrap_or(0));
    o.tail = mapped;
    if let (Omap::Paged { keys, bytes }, Some((k, b))) = (&mut o.omap, keys) {
        (*keys, *bytes) = (less(*keys, *k), less(*bytes, *b));
        if *keys == 0 {
            o.omap = Omap::default();
        }
    }
    Ok(())
}

/// What was found of so many if that is missing.
fn less(of: u64, missing: i64) -> u64 {
    of.saturating_add_signed(missing.saturating_neg())
}

fn drop_group(dev: &mut dyn Device, m: &mut Meta, shard: u8, hi: u64) -> Result<(), OpenError> {
    let span = whole_group(hi);
    with_pages(dev, m, |m| m.need(shard, &span, Leaves::None).then_some(()))?;
    m.drop_covered(shard, &span, None);
    m.prune();
    Ok(())
}

/// Counts the references of a shard's blocks anew.
fn recount(dev: &mut dyn Device, m: &mut Meta, cfg: &Config, shard: u8) -> Result<(), OpenError> {
    drop_group(dev, m, shard, key::hi(key::REFS, 0))?;
    let mut counts: FxHashMap<u64, u32> = FxHashMap::default();
    let mut shared = FxHashSet::default();
    let mut visit = |_: &mut dyn Device, m: &mut Meta, hi: u64, leaf: Option<u32>| {
        let mut count = |b: u64| *counts.entry(b).or_default() += 1;
        match leaf.and_then(|l| m.pages.get(l as usize)).map(|p| &p.body) {
            Some(Body::Objects { ids }) => {
                for o in ids.iter().filter_map(|e| m.objects.get(e.1 as usize)).filter(|o| o.shared) {
                    shared.insert(o.nid);
                    o.inline.iter(0, CHUNK).for_each(|(_, p, _)| count(p.phys()));
                }
            }
            Some(Body::Map { map, .. }) if shared.contains(&key::group_of(hi)) => {
                map.iter(0, CHUNK).for_each(|(_, p, _)| count(p.phys()));
            }
            _ => {}
        }
        Ok(())
    };
    walk_whole(dev, m, cfg, shard, &[key::OBJECTS, key::MAP], &mut |_, _| {}, &mut visit)?;
    let mut counts: Vec<(u64, u32)> = counts.into_iter().filter(|c| c.1 > 1).collect();
    counts.sort_unstable();
    for (b, n) in counts {
        with_pages(dev, m, |m| m.need_refs(shard, b).then_some(()))?;
        for _ in 1..n {
            m.ref_inc(shard, b);
        }
    }
    Ok(())
}

/// Notes every block that a tree refers to, and the objects that have lost something.
fn take_stock(
    dev: &mut dyn Device,
    m: &mut Meta,
    cfg: &Config,
    shard: u8,
    now: &mut [u64],
    out: &mut Rebuilt,
) -> Result<(), OpenError> {
    let now = std::cell::RefCell::new(now);
    let note = |b: u64| {
        if let Some(w) = now.borrow_mut().get_mut((b / 64) as usize) {
            *w |= 1 << (b % 64);
        }
    };
    let mut blocks = 0;
    let mut places = |_: &Meta, at: &BlobPtr| {
        for b in at.runs.iter().flat_map(|(first, n)| *first..*first + u64::from(*n)) {
            blocks += 1;
            note(b);
        }
    };
    let mut visit = |_: &mut dyn Device, m: &mut Meta, _: u64, leaf: Option<u32>| {
        match leaf.and_then(|l| m.pages.get(l as usize)).map(|p| &p.body) {
            Some(Body::Objects { ids }) => {
                for o in ids.iter().filter_map(|e| m.objects.get(e.1 as usize)) {
                    o.inline.iter(0, CHUNK).for_each(|(_, p, _)| note(p.phys()));
                    if o.damaged {
                        out.objects.push((m.cid_of(o.coll), o.oid.clone()));
                    }
                }
            }
            Some(Body::Map { map, .. }) => map.iter(0, CHUNK).for_each(|(_, p, _)| note(p.phys())),
            _ => {}
        }
        Ok(())
    };
    walk_whole(dev, m, cfg, shard, &[key::OBJECTS, key::MAP], &mut places, &mut visit)?;
    m.page_blocks += blocks;
    Ok(())
}

/// What is used and nothing refers to becomes free with the new roots. The first ring's map tells of all.
fn account(metas: &mut [Meta], space: &Space, layout: &Layout, now: &[u64]) {
    let mut freed: Vec<(u64, u32)> = Vec::new();
    let mut map = used::UsedMap::default();
    let mut n = 0;
    let refers = |b: u64| now.get((b / 64) as usize).is_some_and(|w| w >> (b % 64) & 1 != 0);
    for b in layout.space_start..layout.space_end {
        if refers(b) {
            // It is marked already. If it were not it would be written over.
            space.mark(b);
        }
        if !space.used(b) {
            continue;
        }
        map.toggle(b, 1);
        if refers(b) {
            continue;
        }
        n += 1;
        match freed.last_mut() {
            Some(l) if l.0 + u64::from(l.1) == b && l.1 < u32::MAX => l.1 += 1,
            _ => freed.push((b, 1)),
        }
    }
    for m in metas.iter_mut() {
        (m.freed, m.release, m.taken, m.stored_runs) = Default::default();
        (m.freed_blocks, m.freed_meta) = (0, 0);
        m.used = used::UsedMap::default();
    }
    if let Some(m) = metas.first_mut() {
        (m.freed, m.freed_blocks, m.used) = (freed, n, map);
    }
}

/// Stores everything in a new division of the log, which is as the old one.
#[allow(clippy::too_many_arguments, reason = "all that a store is made of")]
fn store_all(
    dev: &mut dyn Device,
    cfg: &Config,
    sb: Superblock,
    layout: &Layout,
    space: &Arc<Space>,
    roots: &[Root],
    mut metas: Vec<Meta>,
    ends: &[LogEnd],
) -> Result<(), OpenError> {
    let next_nid = metas.iter().map(|m| m.next_nid).max().unwrap_or(1);
    let end = LogEnd::fresh(ends.iter().map(|e| e.lsn).max().unwrap_or(1));
    let mut stores = Vec::new();
    for (i, mut m) in metas.drain(..).enumerate() {
        m.next_nid = next_nid;
        m.salvage = None;
        m.update_keep();
        stores.push(Store::assemble(cfg, &sb, layout, space.clone(), m, i as u16, end));
    }
    relayout(dev, sb, roots, &mut stores)
}
