//! Pages: the unit in which metadata is stored, dirtied, cached and checkpointed.
//!
//! Every piece of metadata is in a leaf of its shard's tree. A page is written whole, to a new place, at most
//! once per checkpoint. Its parent keeps its place and checksum, so a clean page can leave memory at any time.
//!
//! If few overwrites have changed a chunk of a block map since it was stored, only these changes are stored,
//! beside the pointer to its page. So random overwrites cost shares of the few pages above, and not a page
//! each.
//!
//! Invariants:
//!  1. Content changes only after [`Meta::touch`]. A page that the running checkpoint has yet to write is encoded
//!     first, as it was at the freeze. This is copy on write of one page, so no turn pays for more than it changes.
//!  2. A stored page is never overwritten; its blocks are released when a checkpoint without it is durable.
//!  3. Above a page that changed since the freeze, every page is dirty since then, marked to be so again (`redirty`), or
//!     both; above one the checkpoint has yet to write, every page has yet to be written.
//!  4. The memory of all pages, and of those that are dirty, are the sums over pages.
//!
//! Tests: `tests/histories.rs` (1; planted bug `StoreLatePage`), `tests/crash.rs` (2, 3), the check of `tests/model.rs`
//! (4).

use super::change::Change;
use super::entries::LogEntries;
use super::inner::Inner;
use super::key::{self, Sep};
use super::leaf::Leaf;
use super::map::{Chunk, Delta};
use super::tree::NONE;
use super::{Meta, refs, undo_record};
use crate::codec::{Get, Malformed, Put};
use crate::key::Cid;
use crate::layout::BLOCK;
use crate::superblock::BlobPtr;
use base::buf::AlignedBuf;
use base::crc::{SEED, crc32c};
use base::planted::{Bug, acts};

const KIND_INNER: u8 = 7;
/// An inner page of level 1 with changes beside the pointers.
const KIND_INNER_DELTA: u8 = 8;
/// Steps ([`Meta::steps`]) of a page that a replay has to bring.
pub(crate) const PAGE_STEPS: u64 = 16;
/// Bytes of memory of a page besides its content.
pub(crate) const PAGE_OVERHEAD: usize = 256;

/// Content of a page.
#[derive(Debug)]
pub(crate) enum Body {
    /// Pointers to pages one level below.
    Inner(Inner),
    /// A collection's own record.
    Coll { coll: u32 },
    /// Objects of a family of collections, in order: position and slot.
    Objects { ids: Vec<(u64, u32)> },
    /// Part of the omap of one object.
    Omap { leaf: Leaf },
    /// A chunk of one object's block map, and the set of its blocks that differ from its stored page.
    Map { chunk: u64, map: Chunk, delta: Delta },
    /// Log entries or undo records of one collection.
    Log { entries: LogEntries },
    /// References beyond the first, for one range of blocks.
    Refs { range: u64, counts: Box<[u32]> },
}

/// Sums over everything below a pointer, so that a page can be dropped unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Number of objects, keys, blocks or entries.
    pub(crate) n: u64,
    /// Stored bytes of objects, or bytes of keys and values, or of entries.
    pub(crate) bytes: u64,
    /// Omap bytes of objects.
    pub(crate) omap: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, o: Self) {
        self.n = self.n.saturating_add(o.n);
        self.bytes = self.bytes.saturating_add(o.bytes);
        self.omap = self.omap.saturating_add(o.omap);
    }
}

/// A metadata page in memory; see the module. Epochs count freezes.
#[derive(Debug)]
pub(crate) struct Page {
    /// Unique number of the page; unlike slots it is never reused.
    pub(crate) uniq: u64,
    /// Slot of the page above, or `NONE`: the shard's root.
    pub(crate) parent: u32,
    /// Index among the kids of the page above, as of the last look.
    pub(crate) slot: u32,
    pub(crate) shard: u8,
    /// Levels above the leaves; 0 for a leaf.
    pub(crate) level: u8,
    /// The page was used since the cache's hand passed.
    pub(crate) used: bool,
    /// The page becomes dirty again once the running checkpoint has written it.
    pub(crate) redirty: bool,
    /// Number of plans that pin the page.
    pub(crate) pins: u32,
    /// Number of pages below it in memory.
    pub(crate) loaded: u32,
    /// Epoch of the oldest change that is not stored; 0 for a clean page.
    pub(crate) dirty: u32,
    /// Number of its newest stored form, counted over all pages that checkpoints store.
    pub(crate) stored: u64,
    /// Estimate of its memory in bytes; at most one block less than its stored form.
    pub(crate) mem: usize,
    /// Kind and group of a leaf.
    pub(crate) hi: u64,
    /// Place of its stored form; without runs if never stored.
    pub(crate) loc: BlobPtr,
    pub(crate) body: Body,
}

impl Meta {
    fn set_dirty(&mut self, id: u32) {
        if let Some(level) = self.pages.set_dirty(id, self.writeback.epoch()) {
            self.steps += PAGE_STEPS;
            self.writeback.push(level, id);
        }
    }

    /// Announces a change of a page's content. Cheap if the page is dirty already.
    #[inline]
    pub(crate) fn touch(&mut self, id: u32) {
        let Some(p) = self.pages.get(id as usize) else { return };
        if p.dirty != self.writeback.epoch() {
            self.touch_slow(id);
        }
    }

    #[cold]
    fn touch_slow(&mut self, id: u32) {
        if acts(Bug::StoreLatePage) && self.pending(id) {
            return;
        }
        self.settle(id);
        self.set_dirty(id);
        let mut up = self.pages.get(id as usize).map_or(NONE, |p| p.parent);
        while let Some(p) = self.pages.get_mut(up as usize) {
            let next = p.parent;
            if p.dirty == self.writeback.epoch() || p.redirty {
                return;
            }
            if p.dirty == 0 {
                self.set_dirty(up);
            } else {
                p.redirty = true;
                let level = p.level;
                self.writeback.push(level, up);
            }
            up = next;
        }
    }

    /// Level of a page above the leaves.
    pub(crate) fn level(&self, id: u32) -> Option<usize> {
        self.pages.get(id as usize).map(|p| p.level.into())
    }

    /// True if the running checkpoint has yet to write the page.
    pub(crate) fn pending(&self, id: u32) -> bool {
        self.pages.get(id as usize).is_some_and(|p| p.dirty != 0 && p.dirty < self.writeback.epoch())
    }

    /// Stores a page and the pages below it now, if the running checkpoint has yet to write it.
    pub(crate) fn settle(&mut self, id: u32) {
        if !self.pending(id) {
            return;
        }
        if let Some(Body::Inner(n)) = self.pages.get(id as usize).map(|p| &p.body) {
            let kids: Vec<u32> = n.kids.iter().map(|k| k.page).filter(|k| *k != NONE).collect();
            for k in kids {
                self.settle(k);
            }
        }
        self.store_page(id);
    }

    fn encode_page(&self, p: &Page, w: &mut Vec<u8>) {
        w.clear();
        if let Body::Inner(n) = &p.body {
            w.u8(if n.delta > 0 { KIND_INNER_DELTA } else { KIND_INNER });
            w.u8(p.level);
            n.encode(w);
            return;
        }
        w.u8(key::kind_of(p.hi) as u8);
        w.u64(p.hi);
        match &p.body {
            Body::Inner(_) => {}
            Body::Coll { coll } => {
                if let Some(c) = self.colls.get(*coll as usize) {
                    c.encode(w);
                }
            }
            Body::Objects { ids } => {
                w.var(ids.len() as u64);
                for (_, o) in ids {
                    if let Some(o) = self.objects.get(*o as usize) {
                        o.encode(w);
                    }
                }
            }
            Body::Omap { leaf } => leaf.encode(w),
            Body::Map { chunk, map, .. } => {
                w.var(*chunk);
                map.encode(w);
            }
            Body::Log { entries } => entries.encode(w),
            Body::Refs { range, counts } => refs::encode(*range, counts, w),
        }
    }

    /// Sums over the content of a page in memory.
    pub(crate) fn page_sum(&self, id: u32) -> Sum {
        let mut s = Sum::default();
        let Some(p) = self.pages.get(id as usize) else { return s };
        match &p.body {
            Body::Inner(n) => {
                for k in &n.kids {
                    s.add(if k.page == NONE { k.sum } else { self.page_sum(k.page) });
                }
            }
            Body::Coll { .. } => s.n = 1,
            Body::Objects { ids } => {
                for o in ids.iter().filter_map(|i| self.objects.get(i.1 as usize)) {
                    s.add(Sum { n: 1, bytes: o.stored(), omap: o.omap.bytes() });
                }
            }
            Body::Omap { leaf } => s = leaf.sum(),
            Body::Map { map, .. } => s.n = map.mapped(),
            Body::Log { entries } => {
                s = Sum { n: entries.len() as u64, bytes: entries.bytes() as u64, omap: 0 };
            }
            Body::Refs { counts, .. } => s.n = counts.iter().map(|c| u64::from(*c)).sum(),
        }
        s
    }

    /// Stores a page in its present state: as changes beside the pointer to its stored form if these are few,
    /// else at a new place. The old place is released when the running checkpoint is durable.
    pub(crate) fn store_page(&mut self, id: u32) {
        if self.store_delta(id) {
            return;
        }
        let mut w = std::mem::take(&mut self.scratch);
        let Some(p) = self.pages.get(id as usize) else { return };
        self.encode_page(p, &mut w);
        // Above leaves the sums come from the pointers, because kids may have changed since they were stored.
        let sum = match &p.body {
            Body::Inner(n) => n.kids.iter().fold(Sum::default(), |mut s, k| {
                s.add(k.sum);
                s
            }),
            _ => self.page_sum(id),
        };
        let loc = self.store_blob(&w);
        self.scratch = w;
        let number = self.writeback.put_so_far();
        self.pages.set_stored(id, self.writeback.epoch());
        let Some(p) = self.pages.get_mut(id as usize) else { return };
        p.stored = number;
        if let Body::Map { delta, .. } = &mut p.body {
            *delta = Delta::default();
        }
        let old = std::mem::replace(&mut p.loc, loc.clone());
        let (parent, shard, level, slot) = (p.parent, p.shard, p.level, p.slot);
        self.alloc.replaced(&old.runs);
        match self.inner_mut(parent) {
            Some(n) => {
                let at = n.index(id, slot);
                if let Some((at, k)) = at.and_then(|at| Some((at, n.kids.get_mut(at)?))) {
                    (k.loc, k.sum) = (loc, sum);
                    let less = std::mem::take(&mut k.delta).len();
                    n.delta -= less;
                    self.pages.grow(parent, -(less as isize));
                    if let Some(p) = self.pages.get_mut(id as usize) {
                        p.slot = at as u32;
                    }
                }
            }
            None => {
                if let Some(s) = self.shards.get_mut(usize::from(shard)) {
                    s.stored = (loc.clone(), level);
                    s.loc = loc;
                }
            }
        }
    }

    /// Stores the changes of a chunk beside the pointer to its page, in the page above, which is still to be
    /// stored. Returns false if there are too many, or the chunk has no stored page.
    fn store_delta(&mut self, id: u32) -> bool {
        let Some(p) = self.pages.get(id as usize) else { return false };
        let Body::Map { map, delta, .. } = &p.body else { return false };
        if p.loc.runs.is_empty() {
            return false;
        }
        let Some(new) = delta.encode(map) else { return false };
        let (parent, slot, sum) = (p.parent, p.slot, Sum { n: map.mapped(), ..Sum::default() });
        let epoch = self.writeback.epoch();
        let Some(n) = self.inner_mut(parent) else { return false };
        let room = n.pace.note(epoch);
        let Some(k) = n.index(id, slot).and_then(|at| n.kids.get_mut(at)) else { return false };
        let (more, less) = (new.len(), k.delta.len());
        if n.delta - less + more > room {
            return false;
        }
        (k.delta, k.sum) = (new, sum);
        n.delta = n.delta - less + more;
        self.pages.grow(parent, more as isize - less as isize);
        self.pages.set_stored(id, self.writeback.epoch());
        self.writeback.count_delta_chunk();
        true
    }

    /// Allocates a place for bytes and queues them for writing.
    pub(crate) fn store_blob(&mut self, data: &[u8]) -> BlobPtr {
        let blocks = (data.len() as u64).div_ceil(BLOCK);
        let runs = self.alloc.place(blocks);
        let mut buf = AlignedBuf::dirty((blocks * BLOCK) as usize);
        if let Some((b, padding)) = buf.split_at_mut_checked(data.len()) {
            b.copy_from_slice(data);
            padding.fill(0);
        }
        self.writeback.put(runs.clone(), buf.freeze());
        BlobPtr { runs, len: data.len() as u32, crc: crc32c(SEED, data) }
    }

    /// Decodes a page from its stored form and the changes beside its pointer, and makes it a kid of `parent`
    /// (none for a root). `sep` is the separator of the pointer.
    pub(super) fn decode_page(
        &mut self,
        buf: &[u8],
        parent: u32,
        shard: u8,
        level: u8,
        sep: Option<&Sep>,
        delta: &[u8],
    ) -> Result<u32, Malformed> {
        let mut r = Get::new(buf);
        let kind = r.u8()?;
        if level > 0 {
            let delta = kind == KIND_INNER_DELTA && level == 1;
            if !delta && kind != KIND_INNER || r.u8()? != level {
                return r.bad();
            }
            let n = Inner::decode(&mut r, &self.layout, delta)?;
            if r.rest() != 0 || (level > 1 && n.kids.is_empty()) {
                return r.bad();
            }
            let mem = n.mem();
            return Ok(self.pages.add(parent, shard, level, 0, Body::Inner(n), mem));
        }
        let hi = r.u64()?;
        if key::kind_of(hi) != u64::from(kind) || sep.is_some_and(|s| s.hi != hi) {
            return r.bad();
        }
        let (body, mem) = match u64::from(kind) {
            key::COLL => {
                let coll = self.load_coll(&mut r, hi, shard)?;
                let info = self.colls.get(coll as usize).and_then(|c| c.info.as_ref()).map_or(0, Vec::len);
                (Body::Coll { coll }, info)
            }
            key::OBJECTS => self.load_objects(&mut r, hi)?,
            key::OMAP => {
                let leaf = Leaf::decode(&mut r)?;
                let mem = leaf.mem();
                (Body::Omap { leaf }, mem)
            }
            key::MAP => {
                let chunk = r.var()?;
                let mut map = Chunk::decode(&mut r, &self.layout)?;
                let delta = Delta::apply(delta, &mut map, &self.layout)?;
                if sep.is_some_and(|s| s.lo > chunk) {
                    return r.bad();
                }
                let mem = map.bytes();
                (Body::Map { chunk, map, delta }, mem)
            }
            key::LOG => {
                let entries = LogEntries::decode(&mut r)?;
                let mem = entries.mem();
                (Body::Log { entries }, mem)
            }
            key::UNDO => {
                let entries = LogEntries::decode(&mut r)?;
                for (_, e) in entries.iter() {
                    if undo_record::decode(e, &self.layout)?.is_empty() {
                        return r.bad();
                    }
                }
                let mem = entries.mem();
                (Body::Log { entries }, mem)
            }
            key::REFS => {
                let (range, counts) = refs::decode(&mut r, &self.layout)?;
                (Body::Refs { range, counts }, refs::RANGE as usize * 4)
            }
            _ => return r.bad(),
        };
        if r.rest() != 0 {
            self.forget_body(&body);
            return r.bad();
        }
        let id = self.pages.add(parent, shard, 0, hi, body, mem);
        if let Some(Body::Coll { coll }) = self.pages.get(id as usize).map(|p| &p.body)
            && let Some(c) = self.colls.get_mut(*coll as usize)
        {
            c.page = id;
        }
        if let Some(Body::Objects { ids }) = self.pages.get(id as usize).map(|p| &p.body) {
            for (_, o) in ids {
                if let Some(o) = self.objects.get_mut(*o as usize) {
                    o.page = id;
                }
            }
        }
        Ok(id)
    }

    /// Decodes a page alone and encodes the result.
    pub(crate) fn recode_page(&mut self, buf: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
        let level = match buf {
            [KIND_INNER | KIND_INNER_DELTA, level, ..] => *level,
            _ => 0,
        };
        if let Some(hi) = buf.get(1..9).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
            && key::kind_of(hi) == key::OBJECTS
        {
            // Objects need a collection.
            let num = key::group_of(hi);
            self.apply(Change::MakeCollection { cid: Cid::Meta, bits: 0, num, shard: 0 }).ok()?;
        }
        let id = self.decode_page(buf, NONE, 0, level, None, delta).ok()?;
        self.page_sum(id);
        let mut w = Vec::new();
        self.encode_page(self.pages.get(id as usize)?, &mut w);
        Some(w)
    }

    /// Drops the onodes and collection records of a page, which are kept outside its body.
    pub(super) fn forget_body(&mut self, body: &Body) {
        match body {
            Body::Objects { ids } => {
                for (_, o) in ids {
                    self.objects.try_remove(*o as usize);
                }
            }
            Body::Coll { coll } => {
                self.colls.remove(*coll);
            }
            _ => {}
        }
    }
}
