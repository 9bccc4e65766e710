//! Which blocks the metadata and the data of one store take, come to take, and leave: how a block becomes free.
//!
//! The way of a block: its last reference goes (`refs::unref`), it is listed here, and once the checkpoint without it is durable
//! its bit is cleared (`engine::checkpoint`, `finish_checkpoint` and `release_some`).
//!
//! Space is the device's ([`Space`], shared with the other stores); the lists here are the checkpoints' view of it: what came into use, and what
//! nothing refers to any more.
//!
//! Invariants:
//!  1. A block that nothing refers to any more is in `freed` until a freeze, then in `release` until that checkpoint is durable: only then it
//!     is given out again.
//!  2. `freed_blocks` are those in `freed`, `freed_meta` those of them that held metadata.
//!  3. As many blocks stay free as the running checkpoint and the next one may write (`headroom`).

use super::used::{BlockPtr, INDEXED, SPAN, UsedMap};
use crate::layout::BLOCK;
use crate::space::{Runs, Space, Stream, continues};
use crate::superblock::BlobPtr;
use std::sync::Arc;

/// Free beside what is dirty.
const HEADROOM_BLOCKS: u64 = 64;

/// See the module.
pub(crate) struct Alloc {
    pub(crate) space: Arc<Space>,
    /// Where metadata goes.
    pub(crate) stream: Stream,
    /// Which blocks are in use, as checkpoints store it.
    pub(crate) used: UsedMap,
    /// Data blocks that came into use since the freeze.
    taken: Vec<(u64, u32)>,
    /// Blocks of what the running checkpoint stored.
    stored: Vec<(u64, u32)>,
    /// Freed since the freeze: for the next checkpoint to release.
    freed: Vec<(u64, u32)>,
    freed_blocks: u64,
    freed_meta: i64,
    /// Freed before the freeze: released when the running checkpoint is durable.
    release: Vec<(u64, u32)>,
    /// Blocks that hold metadata. Of one store it may be below zero after shards moved between rings; the sum over all is exact.
    page_blocks: i64,
    /// `page_blocks` as the device's sum has it.
    counted_blocks: i64,
    headroom: u64,
    /// Pages found no room: the headroom was wrong or the device lied about its size.
    out_of_space: bool,
}

impl Alloc {
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self {
            space,
            stream: Stream::reusing(),
            used: UsedMap::default(),
            taken: Vec::new(),
            stored: Vec::new(),
            freed: Vec::new(),
            freed_blocks: 0,
            freed_meta: 0,
            release: Vec::new(),
            page_blocks: 0,
            counted_blocks: 0,
            headroom: 0,
            out_of_space: false,
        }
    }

    /// Blocks that hold metadata.
    pub(crate) fn page_blocks(&self) -> i64 {
        self.page_blocks
    }

    /// The same as the checkpoint of the freeze has it.
    pub(crate) fn page_blocks_frozen(&self) -> i64 {
        self.page_blocks.wrapping_add(self.freed_meta)
    }

    /// Counts blocks of metadata that stored structures name.
    pub(crate) fn count_pages(&mut self, n: i64) {
        self.page_blocks = self.page_blocks.wrapping_add(n);
    }

    /// Blocks that the next checkpoint frees.
    pub(crate) fn freed_blocks(&self) -> u64 {
        self.freed_blocks
    }

    /// What the running checkpoint and the next one will release.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &(u64, u32)> {
        self.freed.iter().chain(&self.release)
    }

    /// True if a checkpoint found no room for something.
    pub(crate) fn out_of_space(&self) -> bool {
        self.out_of_space
    }

    /// Data came into use.
    #[inline]
    pub(super) fn took(&mut self, first: u64, n: u32) {
        if !continues(&mut self.taken, first, n) {
            self.taken.push((first, n));
        }
    }

    /// Nothing refers to a block of data any more.
    pub(super) fn free_data(&mut self, block: u64) {
        self.freed_blocks += 1;
        if !continues(&mut self.freed, block, 1) {
            self.freed.push((block, 1));
        }
    }

    /// Blocks of metadata that nothing refers to any more: free once a checkpoint that knows it is durable.
    pub(crate) fn free_page(&mut self, loc: &BlobPtr) {
        for (b, n) in &loc.runs {
            self.page_blocks -= i64::from(*n);
            self.freed_meta += i64::from(*n);
            self.freed_blocks += u64::from(*n);
            self.freed.push((*b, *n));
        }
    }

    /// Blocks of a map of used blocks that is stored anew elsewhere.
    pub(crate) fn free_map(&mut self, blocks: impl Iterator<Item = u64>) {
        let before = self.freed.len();
        self.freed.extend(blocks.map(|b| (b, 1)));
        let n = (self.freed.len() - before) as u64;
        self.freed_blocks += n;
        self.page_blocks = self.page_blocks.wrapping_sub(n as i64);
    }

    /// The running checkpoint has stored elsewhere what was there.
    pub(super) fn replaced(&mut self, runs: &Runs) {
        for (b, n) in runs {
            self.page_blocks -= i64::from(*n);
            self.release.push((*b, *n));
        }
    }

    fn take(&mut self, blocks: u64) -> Runs {
        let mut runs = Runs::new();
        if !self.space.reserve(blocks) || self.space.take(&mut self.stream, blocks, &mut runs) < blocks {
            self.out_of_space = true;
        }
        runs
    }

    /// Blocks for a page that the running checkpoint stores.
    pub(super) fn place(&mut self, blocks: u64) -> Runs {
        let runs = self.take(blocks);
        self.page_blocks += blocks as i64;
        self.stored.extend(runs.iter().copied());
        runs
    }

    /// What came into use and what was freed up to here is the beginning checkpoint's; the former.
    pub(crate) fn freeze(&mut self) -> Vec<(u64, u32)> {
        self.release = std::mem::take(&mut self.freed);
        self.freed_meta = 0;
        self.freed_blocks = 0;
        std::mem::take(&mut self.taken)
    }

    /// What the running checkpoint frees as of now.
    pub(crate) fn to_release(&self) -> &[(u64, u32)] {
        &self.release
    }

    /// The running checkpoint is durable: what it frees.
    pub(crate) fn take_release(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.release)
    }

    /// Forgets all that is to be told to a checkpoint: metadata is being rebuilt. Free will be `freed`, of so many blocks, and in use what
    /// `used` says.
    pub(crate) fn restart(&mut self, freed: Vec<(u64, u32)>, blocks: u64, used: UsedMap) {
        (self.release, self.taken, self.stored) = Default::default();
        (self.freed, self.freed_blocks, self.freed_meta) = (freed, blocks, 0);
        self.used = used;
    }

    /// As if data of these runs had been freed.
    #[cfg(test)]
    pub(crate) fn add_freed(&mut self, runs: &[(u64, u32)]) {
        self.freed.extend_from_slice(runs);
        self.freed_blocks += runs.iter().map(|r| u64::from(r.1)).sum::<u64>();
    }

    /// As if data of these runs had come into use.
    #[cfg(test)]
    pub(crate) fn add_taken(&mut self, runs: &[(u64, u32)]) {
        self.taken.extend_from_slice(runs);
    }

    /// Forgets how many blocks hold metadata: they are counted anew.
    pub(crate) fn forget_pages(&mut self) {
        self.page_blocks = 0;
    }

    /// Brings the headroom up to date, so many bytes in so many pages being dirty: what the running checkpoint and the next one will write at
    /// most.
    pub(super) fn update_headroom(&mut self, dirty_mem: usize, pages: u64) {
        self.space.change_metadata(self.page_blocks - self.counted_blocks);
        self.counted_blocks = self.page_blocks;
        let dirty = dirty_mem as u64 / BLOCK + pages;
        // Twice: a page may have to be written by both.
        let headroom = 2 * (dirty + self.used.blocks_max()) + HEADROOM_BLOCKS;
        self.space.change_headroom(self.headroom, headroom);
        self.headroom = headroom;
    }

    /// What it would be if everything were stored.
    pub(crate) fn headroom_least(&self) -> u64 {
        2 * self.used.blocks_max() + HEADROOM_BLOCKS
    }

    /// What it is now.
    pub(crate) fn headroom(&self) -> u64 {
        self.headroom
    }

    /// Begins to enter what the running checkpoint changed, all of whose pages are stored. Nothing may allocate or free for this checkpoint
    /// from now on but [`Alloc::place_used`].
    pub(crate) fn begin_used(&mut self, taken: Vec<(u64, u32)>) {
        self.used.enter = taken;
        self.used.enter.append(&mut self.stored);
        self.used.leave = 0..self.release.len();
    }

    /// Goes on for so many steps: enters runs, then gives changed pages of the map and its index new places, which may change further ones. What
    /// is left of the steps when all are placed.
    pub(crate) fn place_used(&mut self, mut budget: u64) -> Option<u64> {
        while budget > 0 {
            let left = self.used.leave.next().and_then(|i| self.release.get(i).copied());
            if let Some((first, n)) = left.or_else(|| self.used.enter.pop()) {
                let some = n.min(SPAN as u32);
                self.used.toggle(first, some);
                if some < n {
                    self.used.enter.push((first + u64::from(some), n - some));
                }
                budget -= 1;
                continue;
            }
            if let Some(n) = self.used.dirty.pop_first() {
                let old = self.used.pages.get(&n).map_or(0, |c| c.at.block);
                let block = self.replace_used(old);
                self.used.todo.insert(n);
                if let Some(c) = self.used.pages.get_mut(&n) {
                    c.at.block = block;
                }
                if !self.used.todo_index.contains(&(n / INDEXED)) {
                    self.used.dirty_index.insert(n / INDEXED);
                }
            } else if let Some(i) = self.used.dirty_index.pop_first() {
                let old = self.used.index.get(&i).map_or(0, |p| p.block);
                let block = self.replace_used(old);
                self.used.todo_index.insert(i);
                self.used.index.insert(i, BlockPtr { block, crc: 0 });
            } else {
                return Some(budget);
            }
            budget -= 1;
        }
        None
    }

    fn replace_used(&mut self, old: u64) -> u64 {
        let block = self.take(1).first().map_or(0, |r| r.0);
        self.page_blocks += 1;
        self.used.toggle(block, 1);
        if old != 0 {
            self.used.toggle(old, 1);
            self.page_blocks -= 1;
            self.release.push((old, 1));
        }
        block
    }
}
