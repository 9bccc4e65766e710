//! Cache of metadata pages by slot: their memory, and the choice of pages to evict.
//!
//! The cache knows neither a page's place in its tree nor its content.
//!
//! Invariants:
//!  1. `mem` is the sum over all pages, `dirty_mem` the sum over pages that differ from their stored form.
//!  2. A page's `loaded` counts the pages below it that are in memory.
//!
//! Tests: the check of `tests/model.rs`.

use super::page::{Body, PAGE_OVERHEAD, Page};
use crate::superblock::BlobPtr;
use slab::Slab;

/// Most pages examined for eviction in one turn.
const EVICT_LOOKS_MAX: usize = 8192;

/// Pages in memory; see the module.
#[derive(Default)]
pub(crate) struct Cache {
    slots: Slab<Page>,
    uniq: u64,
    mem: usize,
    dirty_mem: usize,
    /// Position of the clock's hand.
    hand: usize,
    evictions: u64,
}

impl Cache {
    #[inline]
    pub(crate) fn get(&self, id: usize) -> Option<&Page> {
        self.slots.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Page> {
        self.slots.get_mut(id)
    }

    /// Page of a slot, if the slot still has the page with this `uniq`.
    pub(crate) fn same(&mut self, (id, uniq): (u32, u64)) -> Option<&mut Page> {
        self.slots.get_mut(id as usize).filter(|p| p.uniq == uniq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Page)> {
        self.slots.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of memory of all pages.
    pub(crate) fn mem(&self) -> usize {
        self.mem
    }

    /// Bytes of memory of pages that differ from their stored form.
    pub(crate) fn dirty_mem(&self) -> usize {
        self.dirty_mem
    }

    /// Number of pages evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Adds a page below `parent`; the caller enters it there.
    pub(crate) fn add(&mut self, parent: u32, shard: u8, level: u8, hi: u64, body: Body, mem: usize) -> u32 {
        self.uniq += 1;
        let mem = mem + PAGE_OVERHEAD;
        self.mem += mem;
        let page = Page {
            uniq: self.uniq,
            parent,
            slot: 0,
            shard,
            level,
            used: true,
            redirty: false,
            pins: 0,
            loaded: 0,
            dirty: 0,
            stored: 0,
            mem,
            hi,
            loc: BlobPtr::default(),
            body,
        };
        let id = self.slots.insert(page) as u32;
        if let Some(p) = self.slots.get_mut(parent as usize) {
            p.loaded += 1;
        }
        id
    }

    /// Changes the memory size of a page.
    #[inline]
    pub(crate) fn grow(&mut self, id: u32, by: isize) {
        let Some(p) = self.slots.get_mut(id as usize) else { return };
        p.mem = p.mem.saturating_add_signed(by);
        self.mem = self.mem.saturating_add_signed(by);
        if p.dirty != 0 {
            self.dirty_mem = self.dirty_mem.saturating_add_signed(by);
        }
    }

    /// Marks a page as changed in an epoch. Returns its level.
    pub(crate) fn set_dirty(&mut self, id: u32, epoch: u32) -> Option<u8> {
        let p = self.slots.get_mut(id as usize)?;
        if p.dirty == 0 {
            self.dirty_mem += p.mem;
        }
        p.dirty = epoch;
        Some(p.level)
    }

    /// Marks a page as stored in its present state, or in the state before its changes of this epoch.
    pub(crate) fn set_stored(&mut self, id: u32, epoch: u32) {
        let Some(p) = self.slots.get_mut(id as usize) else { return };
        if p.redirty {
            (p.redirty, p.dirty) = (false, epoch);
        } else {
            p.dirty = 0;
            self.dirty_mem = self.dirty_mem.saturating_sub(p.mem);
        }
    }

    /// Removes a page, and its count in the parent.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Page> {
        let p = self.slots.try_remove(id as usize)?;
        self.mem -= p.mem;
        if p.dirty != 0 {
            self.dirty_mem = self.dirty_mem.saturating_sub(p.mem);
        }
        if let Some(up) = self.slots.get_mut(p.parent as usize) {
            up.loaded -= 1;
        }
        Some(p)
    }

    /// Most pages to examine for eviction in one turn.
    pub(crate) fn looks(&self) -> usize {
        (self.slots.capacity() * 2).min(EVICT_LOOKS_MAX)
    }

    /// Next page to evict, given that the metadata up to number `written` is on the device. The caller removes
    /// it.
    pub(crate) fn next_to_leave(&mut self, written: u64, looks: &mut usize) -> Option<u32> {
        while *looks > 0 {
            *looks -= 1;
            self.hand = if self.hand + 1 >= self.slots.capacity() { 0 } else { self.hand + 1 };
            let Some(p) = self.slots.get_mut(self.hand) else { continue };
            if std::mem::take(&mut p.used) || p.pins > 0 || p.loaded > 0 || p.dirty != 0 || p.loc.runs.is_empty() {
                continue;
            }
            if p.stored > written || matches!(p.body, Body::Coll { .. }) {
                continue;
            }
            self.evictions += 1;
            return Some(self.hand as u32);
        }
        None
    }
}
