//! Undo records: the map entries that an entry of a PG log replaced, kept so that the entry can be undone in
//! place.
//!
//! While a record is being made ([`Meta::start_keeping`]), replaced map entries move from the map into the
//! record, under a version of the PG's log. Their references move with them, so no count changes and no data is
//! copied. [`Meta::undo`] moves the entries of one object back. Records are a row of the tree beside the log's.
//! They survive checkpoints, restarts, renames, clones and splits, until the log is trimmed or rewound past
//! their version.
//!
//! Invariants:
//!  1. A reference to a block belongs to a map or to a record, and both count alike.
//!  2. A block returns to the same object, identified by its number, and to the same place in it, so that its
//!     checksum stays valid.
//!  3. A collection's `undo` counts its records and the blocks in them.
//!
//! Tests: the check of `tests/undo.rs` (1, 3), its contents (2).

use super::Meta;
use super::entries::LogEntries;
use super::key::{self, Key};
use super::map::{CHUNK, EXTENT_MAX};
use super::object::Object;
use super::page::Body;
use super::parts::reversed_hash;
use super::pglog::{behind, row};
use super::scan::{Leaves, Span};
use super::tree::{NONE, Seek};
use super::undo_record::{Item, Items, decode, encode};
use crate::codec::Malformed;
use crate::key::Cid;
use crate::layout::BLOCK;
use base::Eversion;
use smallvec::{SmallVec, smallvec};

/// Most record bytes of a block, in a run of its own.
const BLOCK_BYTES: u64 = 24;

/// Blocks that are dropped or restored in the time of one replay step.
const KEPT_A_STEP: u64 = 8;

/// Number of undo records of a collection, and of blocks in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) records: u64,
    pub(crate) blocks: u64,
}

impl Undo {
    /// Adds a record to the counts.
    pub(crate) fn add(&mut self, items: &[Item]) {
        self.records += 1;
        self.blocks += items.iter().map(Item::blocks).sum::<u64>();
    }
}

/// The undo record that is being made, if any.
#[derive(Debug)]
pub(crate) struct Keeping {
    on: bool,
    cid: Cid,
    version: Eversion,
    /// Slot and `uniq` of its leaf, which is pinned.
    leaf: (u32, u64),
    /// Items of the record; the next record reuses the allocation.
    items: Vec<Item>,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { on: false, cid: Cid::Meta, version: Eversion::default(), leaf: (NONE, 0), items: Vec::new() }
    }
}

/// Item of an object of `size` bytes, added if absent.
fn item_of<'a>(items: &'a mut Vec<Item>, o: &Object, size: u64) -> Option<&'a mut Item> {
    let Some(at) = items.iter().position(|i| i.nid == o.nid) else {
        let (nid, birth, hash, shared, lost) = (o.nid, o.birth, reversed_hash(&o.oid), o.shared, o.lost.map);
        items.push(Item { nid, birth, hash, shared, lost, size, runs: SmallVec::new() });
        return items.last_mut();
    };
    let item = items.get_mut(at)?;
    // The object may have been cloned since.
    item.shared |= o.shared;
    item.lost |= o.lost.map;
    Some(item)
}

/// Kind and group of a collection's undo records.
fn hi(num: u64) -> u64 {
    key::hi(key::UNDO, num)
}

impl Meta {
    fn row_of(&self, coll: u32) -> Option<(u64, u8)> {
        self.colls.get(coll as usize).map(|c| (hi(c.num), c.shard))
    }

    /// Counts of a collection's undo records.
    pub(crate) fn undo_of(&self, coll: u32) -> Undo {
        self.colls.get(coll as usize).map_or(Undo::default(), |c| c.undo)
    }

    /// Changes the counts of a collection's undo records.
    pub(crate) fn count_undo(&mut self, coll: u32, f: impl FnOnce(&mut Undo)) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (mut u, page) = (c.undo, c.page);
        f(&mut u);
        if u == c.undo {
            return;
        }
        self.touch(page);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.undo = u;
        }
    }

    /// Brings the leaf where a record belongs.
    pub(crate) fn need_keep(&mut self, coll: u32, version: Eversion) -> bool {
        let Some((hi, shard)) = self.row_of(coll) else { return true };
        !matches!(self.seek_row(shard, hi, version), Seek::Missing)
    }

    /// Counts the pages that a record of `blocks` blocks of an object needs.
    pub(crate) fn need_kept(&mut self, id: u32, blocks: u64) {
        let mapped = self.objects.get(id as usize).map_or(0, |o| o.mapped);
        // With them go the rests of the extents at the ends.
        let blocks = blocks.saturating_add(if self.packs { 2 * EXTENT_MAX } else { 0 });
        self.asking.will_touch(2 * (blocks.min(mapped) * BLOCK_BYTES).div_ceil(BLOCK));
    }

    /// Counts a leaf of records that is rewritten: one record may be larger than a leaf.
    fn need_rewrite(&mut self, leaf: u32) {
        let stored = self.log_page(leaf).map_or(0, LogEntries::stored) as u64;
        self.asking.will_touch(2 * stored.div_ceil(BLOCK));
    }

    /// Starts a record: until [`Meta::stop_keeping`], map entries replaced in the collection's objects move
    /// into it.
    pub(crate) fn start_keeping(&mut self, coll: u32, version: Eversion) {
        self.stop_keeping();
        let Some((hi, shard)) = self.row_of(coll) else { return };
        let leaf = match self.seek_row(shard, hi, version) {
            Seek::Missing => return self.missed(),
            Seek::Leaf(p) => p,
            Seek::Absent { inner, at, bound } => {
                let body = Body::Log { entries: LogEntries::default() };
                self.insert_first_leaf(inner, at, bound, &Key::version(hi, version), body, 0)
            }
        };
        let Some(p) = self.pages.get_mut(leaf as usize) else { return };
        // Pinned, because other transactions' pages may have to be read before this one ends.
        p.pins += 1;
        let leaf = (leaf, p.uniq);
        let cid = self.cid_of(coll);
        let k = &mut self.keeping;
        (k.on, k.cid, k.version, k.leaf) = (true, cid, version, leaf);
    }

    /// True while a record is being made for a collection.
    pub(crate) fn keeps(&self, cid: Cid) -> bool {
        self.keeping.on && self.keeping.cid == cid
    }

    /// Stores the record being made, if it has items.
    pub(crate) fn stop_keeping(&mut self) {
        let k = &mut self.keeping;
        if !std::mem::take(&mut k.on) {
            return;
        }
        let (cid, version, (leaf, uniq), mut items) = (k.cid, k.version, k.leaf, std::mem::take(&mut k.items));
        if let Some(p) = self.pages.same((leaf, uniq)) {
            p.pins -= 1;
        }
        items.retain(|i| !i.runs.is_empty());
        // During a rebuild the collection may be gone; space is counted anew then.
        if let Some(coll) = self.coll(cid) {
            if items.is_empty() {
                self.note_empty(leaf);
            } else {
                self.add_record(coll, version, &items);
            }
        }
        items.clear();
        self.keeping.items = items;
    }

    /// Adds items to the record of a version. Its leaf is in memory.
    fn add_record(&mut self, coll: u32, version: Eversion, items: &[Item]) {
        let Some((hi, shard)) = self.row_of(coll) else { return };
        let mut w = std::mem::take(&mut self.scratch);
        w.clear();
        if let Seek::Leaf(p) = self.seek_row(shard, hi, version)
            && let Some(e) = self.log_page(p).filter(|e| e.last() >= Some(version)).and_then(|e| e.get(version))
        {
            w.extend_from_slice(e);
        }
        let new = u64::from(w.is_empty());
        items.iter().for_each(|i| i.encode(&mut w));
        self.put_entry(shard, hi, version, &w);
        self.scratch = w;
        let blocks: u64 = items.iter().map(Item::blocks).sum();
        self.count_undo(coll, |u| {
            u.records += new;
            u.blocks += blocks;
        });
    }

    /// Moves blocks and holes of `[block, end)` of an object of `size` bytes into the record being made, if
    /// there is one. Returns true then; the caller must leave their references alone.
    #[inline]
    pub(super) fn keep(&mut self, id: u32, block: u64, end: u64, size: u64) -> bool {
        self.keeping.on && self.keep_slowly(id, block, end, size)
    }

    fn keep_slowly(&mut self, id: u32, block: u64, end: u64, size: u64) -> bool {
        let Some(o) = self.objects.get(id as usize) else { return false };
        if self.cid_of(o.coll) != self.keeping.cid {
            return false;
        }
        // The items are taken out while the map is read.
        let mut items = std::mem::take(&mut self.keeping.items);
        if let Some(item) = item_of(&mut items, o, size) {
            let mut next = block;
            self.map_each(id, block, end, |b, ptr, crc| {
                item.push_holes(next, b);
                item.push(b, ptr, crc);
                next = b + 1;
            });
            item.push_holes(next, end);
        }
        self.keeping.items = items;
        true
    }

    /// Leaf and items of a version's record. `None` if the leaf is missing.
    fn record(&mut self, coll: u32, version: Eversion) -> Option<Option<(u32, Items)>> {
        if self.undo_of(coll).records == 0 {
            return Some(None);
        }
        let Some((hi, shard)) = self.row_of(coll) else { return Some(None) };
        let leaf = match self.seek(shard, &Key::version(hi, version)) {
            Seek::Missing => return None,
            Seek::Absent { .. } => return Some(None),
            Seek::Leaf(p) => p,
        };
        let Some(e) = self.log_page(leaf).and_then(|e| e.get(version)) else { return Some(None) };
        match decode(e, &self.layout) {
            Ok(items) => Some(Some((leaf, items))),
            Err(e) => {
                self.damage(format!("undo record {version} of {:?}: {e}", self.cid_of(coll)));
                None
            }
        }
    }

    /// Size that undoing a version gives an object, if the version has undo data of it. `None` if a leaf is
    /// missing.
    pub(crate) fn size_kept(&mut self, id: u32, version: Eversion) -> Option<Option<u64>> {
        let Some(o) = self.objects.get(id as usize) else { return Some(None) };
        let (coll, nid, size) = (o.coll, o.nid, o.size);
        let Some((_, items)) = self.record(coll, version)? else { return Some(None) };
        Some(items.iter().filter(|i| i.nid == nid).map(|i| i.size.max(size)).max())
    }

    /// Ranges of blocks that undoing a version changes in an object. `None` if the leaf is missing.
    pub(crate) fn kept_ranges(&mut self, id: u32, version: Eversion) -> Option<Vec<(u64, u64)>> {
        let Some((coll, nid)) = self.objects.get(id as usize).map(|o| (o.coll, o.nid)) else { return Some(Vec::new()) };
        let Some((_, items)) = self.record(coll, version)? else { return Some(Vec::new()) };
        let runs = items.iter().filter(|i| i.nid == nid).flat_map(|i| &i.runs);
        Some(runs.map(|r| (r.block, r.block + r.n)).collect())
    }

    /// Brings the pages that [`Meta::undo`] reads and changes.
    pub(crate) fn need_undo(&mut self, id: u32, version: Eversion) -> bool {
        let Some(o) = self.objects.get(id as usize) else { return true };
        let (coll, nid, size, mapped, shared) = (o.coll, o.nid, o.size, o.mapped, o.shared);
        let (leaf, items) = match self.record(coll, version) {
            None => return false,
            Some(None) => return true,
            Some(Some(r)) => r,
        };
        self.need_rewrite(leaf);
        let mut ok = true;
        for i in items.iter().filter(|i| i.nid == nid) {
            let mut last = None;
            for r in &i.runs {
                // Runs usually ascend, many in a chunk; there are never more chunks than blocks.
                let (from, to) = (r.block / CHUNK, (r.block + r.n - 1) / CHUNK);
                let again = u64::from(last == Some(from));
                self.asking.will_touch(2 * (to - from + 1 - again).min(mapped.max(r.used()) + 1));
                last = Some(to);
                ok &= self.need_map(id, r.block, r.block + r.n, true);
            }
            // Block in which the object will end.
            let last = size.max(i.size) / BLOCK;
            ok &= self.need_map(id, last, last + 1, false);
            if shared {
                // A block that was replaced twice passes through the map.
                let shard = self.shard_of(id);
                ok &= self.need_all_refs(shard, i.phys().collect());
            }
        }
        ok
    }

    /// Restores an object from the record of a version and removes its item. The object becomes at least as
    /// large as it was. Returns false if the record has nothing of it.
    pub(crate) fn undo(&mut self, id: u32, version: Eversion) -> bool {
        let Some((coll, nid)) = self.objects.get(id as usize).map(|o| (o.coll, o.nid)) else { return false };
        let (leaf, items) = match self.record(coll, version) {
            None => {
                self.missed();
                return true;
            }
            Some(None) => return false,
            Some(Some(r)) => r,
        };
        let (mine, rest): (Items, Items) = items.into_iter().partition(|i| i.nid == nid);
        if mine.is_empty() {
            return false;
        }
        self.edit(id, |m| mine.iter().rev().for_each(|i| m.put_back(id, i)));
        let blocks: u64 = mine.iter().map(Item::blocks).sum();
        self.replace_record(coll, leaf, version, &rest);
        self.count_undo(coll, |u| u.blocks = u.blocks.saturating_sub(blocks));
        true
    }

    fn put_back(&mut self, id: u32, item: &Item) {
        let Some(old) = self.objects.get(id as usize).map(|o| o.size) else { return };
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.size = old.max(item.size);
            o.lost.map |= item.lost;
        }
        self.steps += item.blocks() / KEPT_A_STEP;
        let (mut first, mut end) = (u64::MAX, 0);
        for r in item.runs.iter().rev() {
            (first, end) = (first.min(r.block), end.max(r.block + r.n));
            if r.phys == 0 {
                self.unmap_blocks(id, r.block, r.block + r.n, false);
            } else {
                self.map_blocks(id, r.block, &smallvec![(r.phys, r.n as u32)], &r.crcs, r.version, false);
            }
        }
        self.update_tail(id, old, first, end);
    }

    /// Shrinks a record to these items. A record without items is removed.
    fn replace_record(&mut self, coll: u32, leaf: u32, version: Eversion, items: &[Item]) {
        if !items.is_empty() {
            let new = encode(items);
            self.edit_log(leaf, |e| e.insert(version, &new));
            return;
        }
        if self.edit_log(leaf, |e| e.remove(version)) {
            self.note_empty(leaf);
        }
        self.count_undo(coll, |u| u.records = u.records.saturating_sub(1));
    }

    /// Leaves of a collection's records in a span; `None` if one is missing.
    fn record_leaves(&mut self, shard: u8, span: &Span<'_>) -> Option<Vec<u32>> {
        let mut leaves = Vec::new();
        self.scan(shard, span, |_, p| {
            leaves.push(p);
            true
        })?;
        Some(leaves)
    }

    /// Records of a leaf on one side of a version.
    fn records(&self, leaf: u32, side: Side) -> Result<Vec<(Eversion, Items)>, Malformed> {
        let all = self.log_page(leaf).into_iter().flat_map(LogEntries::iter);
        let some = all.skip_while(|e| !side.has(e.0)).take_while(|e| side.has(e.0));
        some.map(|(v, e)| Ok((v, decode(e, &self.layout)?))).collect()
    }

    /// All records of a leaf, which was verified when it was read. Empty for other kinds of leaves.
    pub(crate) fn records_of(&self, leaf: u32) -> impl Iterator<Item = (Eversion, Items)> + use<> {
        let ours = self.pages.get(leaf as usize).is_some_and(|p| key::kind_of(p.hi) == key::UNDO);
        if ours { self.records(leaf, Side::ALL).unwrap_or_default() } else { Vec::new() }.into_iter()
    }

    /// Brings the pages that dropping the records on one side of a version reads and changes.
    pub(crate) fn need_drop_records(&mut self, coll: u32, side: Side) -> bool {
        if self.undo_of(coll).records == 0 {
            return true;
        }
        let Some((hi, shard)) = self.row_of(coll) else { return true };
        let span = side.span(hi);
        if !self.need(shard, &span, Leaves::All) {
            return false;
        }
        let Some(leaves) = self.record_leaves(shard, &span) else { return false };
        let mut phys = Vec::new();
        // Of all these leaves, one stays in part.
        let ends = [leaves.first(), leaves.last()];
        ends.into_iter().flatten().for_each(|l| self.need_rewrite(*l));
        for (_, items) in leaves.into_iter().flat_map(|l| self.records(l, side).unwrap_or_default()) {
            phys.extend(items.iter().filter(|i| i.shared).flat_map(Item::phys));
        }
        self.need_all_refs(shard, phys)
    }

    /// Drops the records on one side of a version. Their blocks lose a reference.
    pub(crate) fn drop_records(&mut self, coll: u32, side: Side) {
        if self.undo_of(coll).records == 0 {
            return;
        }
        let Some((hi, shard)) = self.row_of(coll) else { return };
        let Some(leaves) = self.record_leaves(shard, &side.span(hi)) else { return self.missed() };
        let mut gone = Undo::default();
        for leaf in leaves {
            let records = match self.records(leaf, side) {
                Ok(r) if r.is_empty() => continue,
                Ok(r) => r,
                Err(e) => return self.damage(format!("undo records of {:?}: {e}", self.cid_of(coll))),
            };
            for (_, items) in &records {
                gone.add(items);
                self.steps += items.iter().map(Item::blocks).sum::<u64>() / KEPT_A_STEP;
                for i in items {
                    i.phys().for_each(|p| self.unref(shard, i.shared, p));
                }
            }
            let empty = self.edit_log(leaf, |e| match side {
                Side::UpTo(v) => e.remove_upto(v),
                Side::After(v) => e.remove_after(v),
            });
            if empty {
                self.note_empty(leaf);
            }
        }
        if let Side::After(_) = side {
            self.tails.remove(&hi);
        }
        self.count_undo(coll, |u| {
            u.records = u.records.saturating_sub(gone.records);
            u.blocks = u.blocks.saturating_sub(gone.blocks);
        });
    }

    /// Brings the pages that [`Meta::split_records`] reads and changes; `num` is the number of the new
    /// collection.
    pub(super) fn need_split_records(&mut self, coll: u32, num: u64) -> bool {
        if self.undo_of(coll).records == 0 {
            return true;
        }
        let Some((row, shard)) = self.row_of(coll) else { return true };
        let place = self.seek(shard, &Key::plain(hi(num), 0));
        let span = Side::ALL.span(row);
        if !self.need(shard, &span, Leaves::All) {
            return false;
        }
        // All leaves are rewritten, in both collections.
        for l in self.record_leaves(shard, &span).unwrap_or_default() {
            self.asking.will_touch(4);
            self.need_rewrite(l);
            self.need_rewrite(l);
        }
        !matches!(place, Seek::Missing)
    }

    /// Moves the undo data of objects that go to the split-off collection `dst` along with them.
    pub(super) fn split_records(&mut self, coll: u32, dst: u32, first: u32) {
        if self.undo_of(coll).records == 0 {
            return;
        }
        let Some((hi, shard)) = self.row_of(coll) else { return };
        let Some(leaves) = self.record_leaves(shard, &Side::ALL.span(hi)) else { return self.missed() };
        for leaf in leaves {
            let records = match self.records(leaf, Side::ALL) {
                Ok(r) => r,
                Err(e) => return self.damage(format!("undo records of {:?}: {e}", self.cid_of(coll))),
            };
            for (version, items) in records {
                let (go, stay): (Items, Items) = items.into_iter().partition(|i| i.hash >= first);
                if go.is_empty() {
                    continue;
                }
                let blocks: u64 = go.iter().map(Item::blocks).sum();
                self.replace_record(coll, leaf, version, &stay);
                self.count_undo(coll, |u| u.blocks = u.blocks.saturating_sub(blocks));
                self.add_record(dst, version, &go);
            }
        }
    }
}

/// Versions on one side of a given one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    UpTo(Eversion),
    After(Eversion),
}

impl Side {
    const ALL: Self = Self::UpTo(super::entries::FAR);

    fn has(self, v: Eversion) -> bool {
        match self {
            Self::UpTo(to) => v <= to,
            Self::After(to) => v > to,
        }
    }

    fn span(self, hi: u64) -> Span<'static> {
        match self {
            Self::UpTo(to) => row(hi, None, Some(behind(to))),
            Self::After(to) => row(hi, Some(behind(to)), None),
        }
    }
}
