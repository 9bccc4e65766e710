//! Repair of a store that has lost metadata pages, using the pages that can be read.
//!
//! Derived data is recomputed: the map of used blocks, reference counts, sums. Other losses become units that a
//! PG replaces from another copy. An object whose map or omap has lost a page stays and gives an error when it
//! is read. A collection whose record, onodes or log have lost a page is dropped as a whole.
//! docs/design/fault-model.md has the table.
//!
//! The store must be closed. First the trees of the newest checkpoint lose what can't be read and what has lost
//! its owner. Then the log is replayed, and space and counts are computed from the result. The checkpoint that
//! otherwise divides the log among another number of reactors stores all of it.
//!
//! `walk` has the walks over a damaged tree: every page that can be read, and the key ranges of the others.
//!
//! Invariants:
//!  1. Until the superblock makes the new roots valid, no block is written that a readable page refers to or
//!     that the stored map has as used. So a repair may be interrupted anywhere and repeated.
//!  2. Sums tell which objects have lost data: those of onodes against those of the leaves found, and those of
//!     a collection's record against its onodes.
//!
//! Tests: `tests/rebuild.rs`.

mod walk;

use super::format::probe_to_change;
use super::open::{OpenError, newest_root, relayout, stores_of};
use super::replay::{LogEnd, replay};
use super::{Config, Device};
use crate::key::{Cid, ObjectName, Oid};
use crate::layout::{BLOCK, COMPRESSION, Layout};
use crate::meta::key::{self, Bounds, Sep};
use crate::meta::map::{CHUNK, Ptr, is_stored};
use crate::meta::object::Object;
use crate::meta::omap::Omap;
use crate::meta::packed::Packed;
use crate::meta::page::{Body, Sum};
use crate::meta::salvage::whole_group;
use crate::meta::scan::Leaves;
use crate::meta::tree::{NONE, Shard};
use crate::meta::undo::Undo;
use crate::meta::{Meta, Usage, used};
use crate::space::{Space, blocks_of, continues};
use crate::superblock::{BlobPtr, Root, Superblock};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Losses of a rebuilt store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Description of each unreadable page.
    pub pages: Vec<String>,
    /// Number of unreadable pages of the map of used blocks.
    pub map_pages: u64,
    /// Dropped collections, as far as their names are known.
    pub collections: Vec<Cid>,
    /// Number of unreadable collection records. At least so many collections were dropped; their names are
    /// unknown unless the log has them.
    pub nameless: u64,
    /// Objects that exist, but whose data or omap gives an error when it is read.
    pub objects: Vec<(Cid, Oid)>,
    /// Number of unreadable undo records of collections that stay. So many log entries can't be undone in
    /// place. If the store's log had undone part of one, its objects are damaged.
    pub undo_records: u64,
    /// Number of omap keys that were in pages where lookups do not find them, and that the repair has moved. An
    /// early version of the store left such keys.
    pub moved: u64,
}

/// Range of keys that an unreadable page may have held.
struct Gap {
    first: Sep,
    end: Option<Sep>,
    /// The page was a leaf, so it held keys of one kind and group.
    leaf: bool,
}

/// Item that a walk visits.
enum At<'a> {
    /// Location of a page, readable or not.
    Place(&'a BlobPtr),
    /// A leaf: its kind and group, its page (`None` for kinds that are not read), and the bounds of its keys.
    Leaf(u64, Option<u32>, Bounds<'a>),
}

type Visit<'a> = dyn FnMut(&mut Tree<'_>, At<'_>) -> Result<(), OpenError> + 'a;

/// Unreadable pages: the key ranges they may have held, and a description of each.
#[derive(Default)]
struct Unread {
    gaps: Vec<Gap>,
    words: Vec<String>,
}

/// Tree of a shard, with the device it is on.
struct Tree<'a> {
    dev: &'a mut dyn Device,
    m: &'a mut Meta,
    shard: u8,
    budget: usize,
}

/// Most bytes of memory for omap keys that are taken out of leaves at once.
const STRAYS_BYTES_MAX: usize = 4 << 20;

/// Sums whose mismatch shows a loss.
#[derive(Default)]
struct Sums {
    /// By number of an object with a paged map: blocks in its onode minus blocks found.
    maps: FxHashMap<u64, i64>,
    /// By number of an object with a paged omap: keys and bytes in its onode minus those found.
    omaps: FxHashMap<u64, (i64, i64)>,
    usage: FxHashMap<u32, Usage>,
    /// Objects that belong to this copy of a collection alone: object number and collection.
    own: Vec<(u64, u32)>,
}

const ALL: &[u64] = &[key::COLL, key::OBJECTS, key::OMAP, key::MAP, key::LOG, key::REFS, key::UNDO];
/// Kinds of leaves that refer to data blocks.
const DATA: &[u64] = &[key::OBJECTS, key::MAP, key::UNDO];

fn ids_of(m: &Meta, page: u32) -> Vec<u32> {
    match m.pages().get(page as usize).map(|p| &p.body) {
        Some(Body::Objects { ids }) => ids.iter().map(|e| e.1).collect(),
        _ => Vec::new(),
    }
}

fn objects_of(m: &Meta, page: u32) -> impl Iterator<Item = &Object> {
    ids_of(m, page).into_iter().filter_map(|id| m.objects().get(id as usize))
}

/// Calls `f` with each data block that a leaf refers to and the object's number; `None` for blocks of an undo
/// record.
fn each_block(m: &Meta, leaf: u32, mut f: impl FnMut(u64, Option<u64>)) {
    let mut entry = |p: Ptr, nid| {
        if is_stored(p.phys()) {
            f(p.phys(), Some(nid));
        }
    };
    objects_of(m, leaf).for_each(|o| o.inline.iter(0, CHUNK).for_each(|(_, p, _)| entry(p, o.nid)));
    if let Some((hi, Body::Map { map, .. })) = m.pages().get(leaf as usize).map(|p| (p.hi, &p.body)) {
        map.iter(0, CHUNK).for_each(|(_, p, _)| entry(p, key::group_of(hi)));
    }
    for i in m.records_of(leaf).flat_map(|(_, items)| items) {
        i.phys().for_each(|p| f(p, None));
    }
}

/// Rebuilds the metadata of a closed store; see the module, and [`Rebuilt`] for the losses.
///
/// An object for which `own` holds belongs to this copy alone, so no other copy can replace it. If it has lost
/// data, its whole collection is dropped.
///
/// After an error the store is unchanged. Errors are: a store of a newer program, no readable superblock or root, an unreadable frame of
/// the log that was durable, a failed device, or no room for the new metadata.
pub fn rebuild(dev: &mut dyn Device, cfg: &Config, own: fn(&ObjectName) -> bool) -> Result<Rebuilt, OpenError> {
    let sb = probe_to_change(dev)?;
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
        out.map_pages += mark_used(dev, &layout, root, &space, &mut places);
    }
    space.recount();
    mark(&space, places);
    let words = roots.iter().map(|r| r.features).fold(sb.features, base::FeatureWords::with);
    let sb = Superblock { features: words, ..sb };
    let mut metas: Vec<Meta> = roots.iter().map(|r| meta_of(layout, &space, &cfg, r)).collect();
    metas.iter_mut().for_each(|m| m.set_packs(words.incompat & COMPRESSION != 0));
    each_tree(dev, &cfg, &mut metas, |t| clean(t, own, &mut out))?;
    let mut ends = Vec::new();
    for (m, root) in metas.iter_mut().zip(&roots) {
        ends.push(replay(dev, &cfg, &sb, &layout, root, m)?);
        m.end_replay();
    }
    each_tree(dev, &cfg, &mut metas, |t| {
        sweep(t, None)?;
        recount(t)
    })?;
    metas.iter_mut().for_each(|m| m.alloc_mut().forget_pages());
    let mut now = vec![0; layout.space_end.div_ceil(64) as usize];
    each_tree(dev, &cfg, &mut metas, |t| take_stock(t, &mut now, &mut out))?;
    account(&mut metas, &space, &layout, &now);
    let lost = metas.iter_mut().filter_map(|m| m.take_salvage()).flat_map(|s| s.lost);
    let mut lost: BTreeSet<Cid> = lost.collect();
    // The collection may have been removed in one ring and created in another.
    lost.retain(|c| metas.iter().all(|m| m.coll(*c).is_none()));
    out.collections = lost.into_iter().collect();
    // The new division of the log equals the old one.
    let end = LogEnd::fresh(ends.iter().map(|e| e.lsn).max().unwrap_or(1));
    let ends = vec![end; metas.len()];
    let mut stores = stores_of(&cfg, &sb, &layout, &space, &roots, metas, ends);
    relayout(dev, sb, &roots, &mut stores)?;
    Ok(out)
}

/// Marks blocks as used; they may be marked already.
fn mark(space: &Space, blocks: impl IntoIterator<Item = u64>) {
    for b in blocks {
        space.mark(b);
    }
}

/// Calls `f` for the tree of every shard.
fn each_tree(
    dev: &mut dyn Device,
    cfg: &Config,
    metas: &mut [Meta],
    mut f: impl FnMut(&mut Tree<'_>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for m in metas {
        for shard in 0..m.roots().len() as u8 {
            f(&mut Tree { dev, m, shard, budget: cfg.meta_bytes })?;
        }
    }
    Ok(())
}

/// Applies the stored map of used blocks of a ring, as far as it can be read, and adds the places of all its
/// pages to `places`. Returns the number of unreadable pages.
fn mark_used(dev: &mut dyn Device, layout: &Layout, root: &Root, space: &Space, places: &mut Vec<u64>) -> u64 {
    let inside = |b: u64| b >= layout.space_start && b < layout.space_end;
    let mut read = |at: used::BlockPtr, index: bool| {
        let got = dev.read_many(&[(at.block * BLOCK, BLOCK)]).pop()?.ok()?;
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

fn meta_of(layout: Layout, space: &Arc<Space>, cfg: &Config, root: &Root) -> Meta {
    let mut m = Meta::new(layout, space.clone(), root.ring, cfg.reactors);
    m.continue_numbers(root.next_nid);
    m.begin_salvage();
    m.set_kids_max(cfg.kids_max.max(2));
    for (shard, level, loc) in &root.trees {
        m.set_root(*shard, Shard::stored(loc.clone(), *level));
    }
    m
}

/// Removes unreadable pages from a tree, and everything that depends on them.
fn clean(t: &mut Tree<'_>, own: fn(&ObjectName) -> bool, out: &mut Rebuilt) -> Result<(), OpenError> {
    let (mut sums, mut strays) = (Sums::default(), false);
    let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
        match at {
            At::Place(p) => mark(t.m.alloc().space(), blocks_of(&p.runs)),
            At::Leaf(hi, leaf, bounds) => {
                let leaf = leaf.unwrap_or(NONE);
                strays |= t.m.has_strays(leaf, bounds);
                add_up(t.m, hi, leaf, own, &mut sums);
            }
        }
        Ok(())
    };
    let Unread { gaps, words } = t.walk(ALL, &mut visit)?;
    out.pages.extend(words.into_iter().map(|w| format!("shard {}: {w}", t.shard)));
    out.nameless += gaps.iter().filter(|g| g.touches_kind(key::COLL)).count() as u64;
    sums.maps.retain(|_, n| *n != 0);
    sums.omaps.retain(|_, n| *n != (0, 0));
    let gone =
        |c: &crate::meta::Coll, u: Usage| c.usage != u || gaps.iter().any(|g| g.touches(key::hi(key::LOG, c.num)));
    let colls = t.m.colls().iter().filter(|(_, c)| c.shard == t.shard);
    let gone: Vec<u32> = colls
        .map(|(id, c)| (id as u32, gone(c, sums.usage.get(&(id as u32)).copied().unwrap_or_default())))
        .filter_map(|(id, gone)| gone.then_some(id))
        .collect();
    let own = sums.own.iter().filter(|(nid, _)| sums.maps.contains_key(nid) || sums.omaps.contains_key(nid));
    for id in gone.into_iter().chain(own.map(|o| o.1)) {
        t.m.forget_coll(id);
    }
    t.m.prune();
    out.undo_records += sweep(t, Some(&sums))?;
    if strays {
        out.moved += settle(t)?;
    }
    Ok(())
}

/// Moves misplaced omap keys to their place, unless they have been set there again. Returns the number of moved
/// keys.
fn settle(t: &mut Tree<'_>) -> Result<u64, OpenError> {
    let (mut n, shard) = (0, t.shard);
    let mut twice: FxHashMap<u64, Sum> = FxHashMap::default();
    loop {
        let (mut strays, mut bytes) = (Vec::new(), 0);
        let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
            if let At::Leaf(_, Some(leaf), bounds) = at
                && bytes < STRAYS_BYTES_MAX
            {
                let before = strays.len();
                t.m.take_strays(leaf, bounds, &mut strays);
                bytes += strays.iter().skip(before).map(|s| s.1.mem()).sum::<usize>();
            }
            Ok(())
        };
        t.walk_whole(&[key::OMAP], &mut visit)?;
        if strays.is_empty() {
            break;
        }
        n += strays.len() as u64;
        for (nid, kv) in &strays {
            t.with_pages(|m| m.need_settling(shard, *nid, kv).then_some(()))?;
            if let Some(s) = t.m.settle_key(shard, *nid, kv) {
                twice.entry(*nid).or_default().add(s);
            }
        }
    }
    if twice.is_empty() {
        return Ok(n);
    }
    let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
        for id in if let At::Leaf(_, Some(leaf), _) = at { ids_of(t.m, leaf) } else { Vec::new() } {
            let nid = t.m.objects().get(id as usize).map_or(0, |o| o.nid);
            if let Some(s) = twice.get(&nid) {
                t.m.discount(id, *s);
            }
        }
        Ok(())
    };
    t.walk_whole(&[key::OBJECTS], &mut visit)?;
    Ok(n)
}

/// Adds an object to the sums. The values of its onode are not trusted.
fn count(u: &mut Usage, o: &Object) {
    u.objects += 1;
    u.stored = u.stored.saturating_add(o.stored());
    u.omap = u.omap.saturating_add(o.omap.bytes());
}

/// Adds a leaf's content to the sums and marks the data blocks it refers to.
fn add_up(m: &Meta, hi: u64, leaf: u32, own: fn(&ObjectName) -> bool, sums: &mut Sums) {
    let group = key::group_of(hi);
    for o in objects_of(m, leaf) {
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
    }
    match m.pages().get(leaf as usize).map(|p| &p.body) {
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
        }
        _ => {}
    }
    each_block(m, leaf, |b, _| mark(m.alloc().space(), [b]));
}

/// Removes data without an owner, and updates the sums of collections. With `lost`, objects with a mismatch are
/// marked as damaged and their sums corrected. Returns the number of undo records that collections are missing.
fn sweep(t: &mut Tree<'_>, lost: Option<&Sums>) -> Result<u64, OpenError> {
    let mut usage: FxHashMap<u32, Usage> = FxHashMap::default();
    let mut undo: FxHashMap<u64, Undo> = FxHashMap::default();
    let (mut maps, mut omaps) = (FxHashSet::default(), FxHashSet::default());
    let mut orphans = BTreeSet::new();
    let mut extents = Extents::default();
    let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
        let At::Leaf(hi, leaf, _) = at else { return Ok(()) };
        extents.add(t.m, hi, leaf);
        let group = key::group_of(hi);
        for (_, items) in leaf.into_iter().flat_map(|l| t.m.records_of(l)) {
            undo.entry(group).or_default().add(&items);
        }
        for id in leaf.map(|l| ids_of(t.m, l)).unwrap_or_default() {
            if let Some(lost) = lost {
                take_off(t, id, lost)?;
            }
            let Some(o) = t.m.objects().get(id as usize) else { continue };
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
            key::LOG | key::UNDO => t.m.is_log_of_none(hi),
            _ => false,
        };
        if orphan {
            orphans.insert(hi);
        }
        Ok(())
    };
    let maps_too: &[u64] = &[key::COLL, key::OBJECTS, key::MAP, key::UNDO];
    t.walk_whole(if t.m.packs() { maps_too } else { &[key::COLL, key::OBJECTS, key::UNDO] }, &mut visit)?;
    for hi in orphans {
        drop_group(t, hi)?;
    }
    let mut missing = 0;
    let colls: Vec<u32> = t.m.colls().iter().filter(|(_, c)| c.shard == t.shard).map(|(id, _)| id as u32).collect();
    for id in colls {
        t.m.count_usage(id, |u| *u = usage.remove(&id).unwrap_or_default());
        let num = t.m.colls().get(id as usize).map_or(0, |c| c.num);
        let found = undo.remove(&num).unwrap_or_default();
        missing += t.m.undo_of(id).records.saturating_sub(found.records);
        t.m.count_undo(id, |u| *u = found);
        t.m.set_packed(id, extents.by_coll.remove(&id).unwrap_or_default());
    }
    Ok(missing)
}

/// Sums of compressed extents, and the collections of objects whose maps are in leaves.
#[derive(Default)]
struct Extents {
    by_coll: FxHashMap<u32, Packed>,
    owners: FxHashMap<u64, u32>,
}

impl Extents {
    fn add(&mut self, m: &Meta, hi: u64, leaf: Option<u32>) {
        let Some(leaf) = leaf.filter(|_| m.packs()) else { return };
        for o in objects_of(m, leaf) {
            self.owners.insert(o.nid, o.coll);
            let sum = self.by_coll.entry(o.coll).or_default();
            sum.add_map(&o.inline);
        }
        // Objects precede maps in a tree.
        if let (Some(Body::Map { map, .. }), Some(coll)) =
            (m.pages().get(leaf as usize).map(|p| &p.body), self.owners.get(&key::group_of(hi)))
        {
            self.by_coll.entry(*coll).or_default().add_map(map);
        }
    }
}

/// Marks an object as damaged if its sums differ from those found, and corrects them.
fn take_off(t: &mut Tree<'_>, id: u32, lost: &Sums) -> Result<(), OpenError> {
    let Some((nid, size)) = t.m.objects().get(id as usize).map(|o| (o.nid, o.size)) else { return Ok(()) };
    let (blocks, keys) = (lost.maps.get(&nid), lost.omaps.get(&nid));
    if blocks.is_none() && keys.is_none() {
        return Ok(());
    }
    t.m.touch_object(id);
    let last = size / BLOCK;
    let mapped = match size % BLOCK {
        0 => false,
        _ => t.with_pages(|m| m.need_map(id, last, last + 1, false).then(|| !m.map_get(id, last).0.is_hole()))?,
    };
    let Some(o) = t.m.object_mut(id) else { return Ok(()) };
    o.lost.map |= blocks.is_some();
    o.lost.omap |= keys.is_some();
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

/// The part of a count that was found, given the missing part.
fn less(of: u64, missing: i64) -> u64 {
    of.saturating_add_signed(missing.saturating_neg())
}

fn drop_group(t: &mut Tree<'_>, hi: u64) -> Result<(), OpenError> {
    let (span, shard) = (whole_group(hi), t.shard);
    t.with_pages(|m| m.need(shard, &span, Leaves::None).then_some(()))?;
    t.m.drop_covered(shard, &span, None);
    t.m.prune();
    Ok(())
}

/// Recomputes the reference counts of a shard's blocks.
fn recount(t: &mut Tree<'_>) -> Result<(), OpenError> {
    drop_group(t, key::hi(key::REFS, 0))?;
    let mut counts: FxHashMap<u64, u32> = FxHashMap::default();
    let mut shared = FxHashSet::default();
    let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
        if let At::Leaf(_, Some(leaf), _) = at {
            // Objects precede maps in a tree.
            shared.extend(objects_of(t.m, leaf).filter(|o| o.shared).map(|o| o.nid));
            each_block(t.m, leaf, |b, nid| {
                // An undo record always counts as a reference.
                if nid.is_none_or(|nid| shared.contains(&nid)) {
                    *counts.entry(b).or_default() += 1;
                }
            });
        }
        Ok(())
    };
    t.walk_whole(DATA, &mut visit)?;
    let mut counts: Vec<(u64, u32)> = counts.into_iter().filter(|c| c.1 > 1).collect();
    counts.sort_unstable();
    let shard = t.shard;
    for (b, n) in counts {
        t.with_pages(|m| m.need_refs(shard, b).then_some(()))?;
        for _ in 1..n {
            t.m.ref_inc(shard, b);
        }
    }
    Ok(())
}

/// Registers every block that a tree refers to, and the damaged objects.
fn take_stock(t: &mut Tree<'_>, now: &mut [u64], out: &mut Rebuilt) -> Result<(), OpenError> {
    let mut note = |b: u64| {
        if let Some(w) = now.get_mut((b / 64) as usize) {
            *w |= 1 << (b % 64);
        }
    };
    let mut visit = |t: &mut Tree<'_>, at: At<'_>| {
        match at {
            At::Place(p) => {
                t.m.alloc_mut().count_pages(p.blocks() as i64);
                blocks_of(&p.runs).for_each(&mut note);
            }
            At::Leaf(_, leaf, _) => {
                let leaf = leaf.unwrap_or(NONE);
                each_block(t.m, leaf, |b, _| note(b));
                let damaged = objects_of(t.m, leaf).filter(|o| o.lost.any());
                out.objects.extend(damaged.map(|o| (t.m.cid_of(o.coll), o.oid.clone().into())));
            }
        }
        Ok(())
    };
    t.walk_whole(DATA, &mut visit)
}

/// Makes used blocks without a reference free with the new roots. The first ring's map covers the whole device.
fn account(metas: &mut [Meta], space: &Space, layout: &Layout, now: &[u64]) {
    let mut freed: Vec<(u64, u32)> = Vec::new();
    let mut map = used::UsedMap::default();
    let mut n = 0;
    let refers = |b: u64| now.get((b / 64) as usize).is_some_and(|w| w >> (b % 64) & 1 != 0);
    for b in layout.space_start..layout.space_end {
        if refers(b) {
            // Normally the block is marked already. Without the mark it would be overwritten.
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
        if !continues(&mut freed, b, 1) {
            freed.push((b, 1));
        }
    }
    let mut all = Some((freed, n, map));
    for m in metas.iter_mut() {
        let (freed, n, map) = all.take().unwrap_or_default();
        m.alloc_mut().restart(freed, n, map);
    }
}
