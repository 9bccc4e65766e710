//! Block maps of objects: inside the onode while the object is small, else in leaves of one chunk each.

use super::Meta;
use super::key::{self, Key};
use super::map::{CHUNK, Chunk, Delta, PACKED, Ptr};
use super::page::Body;
use super::scan::{Leaves, Span};
use super::tree::{Exact, NONE};
use crate::layout::BLOCK;
use crate::space::Runs;
use base::planted::{Bug, acts};
use base::unreached;

/// An inline map has no block from this number on.
pub(crate) const INLINE_BLOCKS: u64 = 32;

fn span(nid: u64, block: u64, end: u64) -> Span<'static> {
    let hi = key::hi(key::MAP, nid);
    Span { first: Key::plain(hi, block / CHUNK), end: Some(Key::plain(hi, end.div_ceil(CHUNK))) }
}

impl Meta {
    /// Shard of an object.
    pub(crate) fn shard_of(&self, id: u32) -> u8 {
        let coll = self.objects.get(id as usize).map_or(NONE, |o| o.coll);
        self.colls.get(coll as usize).map_or(0, |c| c.shard)
    }

    /// Page of a chunk.
    fn chunk_page(&mut self, id: u32, chunk: u64) -> Exact {
        let Some(o) = self.objects.get(id as usize) else { return Exact::Missing };
        let hi = key::hi(key::MAP, o.nid);
        if let Some(&hint) = o.hints.get(chunk as usize)
            && let Some(p) = self.pages.get_mut(hint as usize)
            && p.hi == hi
            && matches!(p.body, Body::Map { chunk: c, .. } if c == chunk)
        {
            p.used = true;
            return Exact::Leaf(hint);
        }
        let shard = self.shard_of(id);
        let found = self.seek_exact(shard, hi, chunk);
        if let (Exact::Leaf(page), Some(o)) = (&found, self.objects.get_mut(id as usize)) {
            // Only the first chunks have hints; later ones are looked up.
            if chunk < 8 {
                let at = chunk as usize;
                if o.hints.len() <= at {
                    o.hints.resize(at + 1, NONE);
                }
                if let Some(h) = o.hints.get_mut(at) {
                    *h = *page;
                }
            }
        }
        found
    }

    fn chunk(&self, page: u32) -> Option<&Chunk> {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Map { map, .. }) => Some(map),
            _ => None,
        }
    }

    /// Map of a chunk, whose page must be in memory; `None` if nothing is mapped there.
    pub(super) fn chunk_of(&mut self, id: u32, chunk: u64) -> Option<&Chunk> {
        let o = self.objects.get(id as usize)?;
        if o.paged {
            return match self.chunk_page(id, chunk) {
                Exact::Leaf(p) => self.chunk(p),
                Exact::Absent { .. } => None,
                Exact::Missing => {
                    self.missed();
                    None
                }
            };
        }
        (chunk == 0).then(|| self.objects.get(id as usize).map(|o| &o.inline))?
    }

    /// A chunk to change, with the list of its changed blocks.
    fn chunk_mut(&mut self, page: u32) -> Option<(&mut Chunk, &mut Delta)> {
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Map { map, delta, .. }) => Some((map, delta)),
            _ => None,
        }
    }

    /// Brings the map of blocks `[block, end)`, and the other needs of changing it. With `unref`, references to
    /// the mapped blocks will change.
    pub(crate) fn need_map(&mut self, id: u32, block: u64, end: u64, unref: bool) -> bool {
        let Some(o) = self.objects.get(id as usize) else { return true };
        let (nid, paged, shared) = (o.nid, o.paged, o.shared);
        let shard = self.shard_of(id);
        let mut ok = true;
        if paged {
            // The usual case is one chunk, whose page is mostly known.
            ok = if block / CHUNK == (end.max(1) - 1) / CHUNK {
                !matches!(self.chunk_page(id, block / CHUNK), Exact::Missing)
            } else {
                self.need(shard, &span(nid, block, end), Leaves::All)
            };
        } else if end > INLINE_BLOCKS {
            ok = !matches!(self.seek_exact(shard, key::hi(key::MAP, nid), block / CHUNK), Exact::Missing);
        }
        self.asking.will_unref_shared(unref && shared);
        if ok && unref && (shared || self.asking.will_share()) {
            let mut phys = Vec::new();
            let (block, end) = self.around(id, block, end);
            self.map_each(id, block, end, |_, p, _| phys.push(p.phys()));
            ok = self.need_all_refs(shard, phys);
        }
        ok
    }

    /// Map entry of a block; its page must be in memory.
    pub(crate) fn map_get(&mut self, id: u32, block: u64) -> (Ptr, u32) {
        let Some(o) = self.objects.get(id as usize) else { return (Ptr::HOLE, 0) };
        if !o.paged {
            return o.inline.get(block);
        }
        match self.chunk_page(id, block / CHUNK) {
            Exact::Leaf(p) => self.chunk(p).map_or((Ptr::HOLE, 0), |c| c.get(block % CHUNK)),
            Exact::Absent { .. } => (Ptr::HOLE, 0),
            Exact::Missing => {
                self.missed();
                (Ptr::HOLE, 0)
            }
        }
    }

    /// Calls `f` for the mapped blocks of `[block, end)` in order. The pages must be in memory.
    pub(crate) fn map_each(&mut self, id: u32, block: u64, end: u64, mut f: impl FnMut(u64, Ptr, u32)) {
        let Some(o) = self.objects.get(id as usize) else { return };
        if block >= end {
            return;
        }
        if !o.paged {
            o.inline.iter(block.min(CHUNK), end.min(CHUNK)).for_each(|(b, p, k)| f(b, p, k));
            return;
        }
        let mut one = |m: &Self, page: u32| {
            if let Some(Body::Map { chunk, map, .. }) = m.pages.get(page as usize).map(|p| &p.body) {
                let base = chunk * CHUNK;
                let (from, to) = (block.saturating_sub(base).min(CHUNK), end.saturating_sub(base).min(CHUNK));
                map.iter(from, to.max(from)).for_each(|(b, p, k)| f(base + b, p, k));
            }
        };
        if block / CHUNK == (end - 1) / CHUNK {
            match self.chunk_page(id, block / CHUNK) {
                Exact::Leaf(p) => one(self, p),
                Exact::Absent { .. } => {}
                Exact::Missing => self.missed(),
            }
            return;
        }
        let (shard, nid) = (self.shard_of(id), o_nid(self, id));
        let done = self.scan(shard, &span(nid, block, end), |m, page| {
            one(m, page);
            true
        });
        if done.is_none() {
            self.missed();
        }
    }

    /// Moves an inline map into a page.
    fn page_map(&mut self, id: u32) {
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        if o.paged {
            return;
        }
        o.paged = true;
        let map = std::mem::take(&mut o.inline);
        if map.mapped() > 0 {
            self.add_chunk(id, 0, map);
        }
    }

    fn add_chunk(&mut self, id: u32, chunk: u64, map: Chunk) -> u32 {
        let hi = key::hi(key::MAP, o_nid(self, id));
        match self.chunk_page(id, chunk) {
            Exact::Leaf(p) => p,
            Exact::Absent { inner, at } => {
                let mem = map.bytes();
                let body = Body::Map { chunk, map, delta: Delta::default() };
                self.insert_exact(inner, at, &Key::plain(hi, chunk), body, mem)
            }
            Exact::Missing => {
                self.missed();
                NONE
            }
        }
    }

    /// Maps blocks from `block` on. The blocks mapped before lose a reference, unless they are `kept`. The
    /// object's page must have been touched.
    pub(crate) fn map_blocks(&mut self, id: u32, mut block: u64, runs: &Runs, crcs: &[u32], version: u32, kept: bool) {
        let total: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
        if block + total > INLINE_BLOCKS {
            self.page_map(id);
        }
        let Some(o) = self.objects.get(id as usize) else { return };
        let (paged, shared) = (o.paged, o.shared);
        let shard = self.shard_of(id);
        let mut crcs = crcs.iter();
        let (mut at, mut page) = (u64::MAX, NONE);
        let mut fresh = 0;
        for (first, n) in runs {
            for phys in *first..*first + u64::from(*n) {
                let Some(&crc) = crcs.next() else { return };
                let ptr = Ptr::new(phys, version);
                let old = if paged {
                    if at != block / CHUNK {
                        at = block / CHUNK;
                        page = match self.chunk_page(id, at) {
                            Exact::Leaf(p) => p,
                            _ => self.add_chunk(id, at, Chunk::default()),
                        };
                        self.touch(page);
                    }
                    let Some((map, delta)) = self.chunk_mut(page) else { return self.missed() };
                    delta.add(block % CHUNK);
                    let before = map.bytes();
                    let old = map.set(block % CHUNK, ptr, crc);
                    let more = map.bytes() as isize - before as isize;
                    if more != 0 {
                        self.pages.grow(page, more);
                    }
                    old
                } else {
                    let Some(o) = self.objects.get_mut(id as usize) else { return unreached("the object is there") };
                    o.inline.set(block, ptr, crc)
                };
                if old.is_hole() {
                    fresh += 1;
                } else {
                    if old.is_packed() {
                        self.packed.count(old, -1);
                    }
                    if !kept || acts(Bug::StoreFreeKept) {
                        self.unref(shard, shared, old.phys());
                    }
                }
                block += 1;
            }
        }
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.mapped += fresh;
        }
        if version & PACKED != 0 {
            for (first, n) in runs {
                (0..u64::from(*n)).for_each(|i| self.packed.count(Ptr::new(first + i, version), 1));
            }
        }
    }

    /// Unmaps `[block, end)`. The blocks lose a reference, unless they are `kept`. The object's page must have
    /// been touched.
    pub(crate) fn unmap_blocks(&mut self, id: u32, block: u64, end: u64, kept: bool) {
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        if block >= end {
            return;
        }
        let (nid, shared, mut gone) = (o.nid, o.shared, Vec::new());
        if o.paged {
            let shard = self.shard_of(id);
            let mut pages = Vec::new();
            let done = self.scan(shard, &span(nid, block, end), |_, page| {
                pages.push(page);
                true
            });
            if done.is_none() {
                return self.missed();
            }
            for page in pages {
                let Some(Body::Map { chunk, map, .. }) = self.pages.get(page as usize).map(|p| &p.body) else {
                    continue;
                };
                let base = chunk * CHUNK;
                let (from, to) = (block.saturating_sub(base).min(CHUNK), end.saturating_sub(base).min(CHUNK));
                if map.iter(from, to.max(from)).next().is_none() {
                    continue;
                }
                self.touch(page);
                let mut empty = false;
                if let Some((map, delta)) = self.chunk_mut(page) {
                    map.iter(from, to).for_each(|(b, ..)| delta.add(b));
                    map.clear(from, to, |p| gone.push(p));
                    empty = map.mapped() == 0;
                }
                if empty {
                    self.remove_leaf(page);
                }
            }
        } else {
            o.inline.clear(block.min(CHUNK), end.min(CHUNK), |p| gone.push(p));
        }
        let shard = self.shard_of(id);
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.mapped = o.mapped.saturating_sub(gone.len() as u64);
        }
        gone.iter().filter(|p| p.is_packed()).for_each(|p| self.packed.count(*p, -1));
        if kept {
            return;
        }
        for p in gone {
            self.unref(shard, shared, p.phys());
        }
    }

    /// Updates the mark of a mapped last block after a change of `[block, end)`; `old` is the previous size.
    pub(crate) fn update_tail(&mut self, id: u32, old: u64, block: u64, end: u64) {
        let Some(o) = self.objects.get(id as usize) else { return };
        let (size, was) = (o.size, o.tail);
        let last = size / BLOCK;
        let tail = if size.is_multiple_of(BLOCK) {
            false
        } else if last == old / BLOCK && !(block <= last && last < end) {
            // The last block is unchanged. If the object ended at its border, nothing was mapped behind.
            was
        } else if block <= last && last < end {
            !self.map_get(id, last).0.is_hole()
        } else {
            // Nothing is mapped behind the old end. A new end before it comes with a change up to the old one.
            last < old / BLOCK && !self.map_get(id, last).0.is_hole()
        };
        if let Some(o) = self.objects.get_mut(id as usize) {
            o.tail = tail;
        }
    }
}

fn o_nid(m: &Meta, id: u32) -> u64 {
    m.objects.get(id as usize).map_or(0, |o| o.nid)
}
