//! Allocation of metadata and data blocks of one store, and the way in which a block becomes free.
//!
//! When the last reference to a block goes (`refs::unref`), the block is listed here. Once the checkpoint
//! without it is durable its bit is cleared (`engine::checkpoint`, `finish_checkpoint` and `release_some`).
//!
//! Space belongs to the device ([`Space`], shared with the other stores). The lists here are the checkpoints'
//! view of it: blocks that came into use, and blocks without references.
//!
//! Invariants:
//!  1. A block without references is in `freed` until a freeze, then in `release` until that checkpoint is
//!     durable. Only then is it allocated again.
//!  2. `freed_blocks` and `release_blocks` count the blocks in `freed` and `release`; `freed_meta` counts those of the
//!     former that held metadata.
//!  3. As many blocks stay free as the running checkpoint and the next one may write (`headroom`).
//!
//! Tests: `tests/histories.rs` (1; planted bug `StoreEarlyRelease`), assertions and the check of `tests/crash.rs` (2),
//! `tests/full.rs` (3).

use super::used::{BlockPtr, UsedMap};
use super::writeback::Writeback;
use crate::layout::BLOCK;
use crate::space::{Runs, Space, Stream, continues};
use crate::superblock::BlobPtr;
use std::sync::Arc;

/// Blocks of the headroom besides those for dirty pages.
const HEADROOM_BLOCKS: u64 = 64;

/// Allocation state of one store; see the module.
pub(crate) struct Alloc {
    space: Arc<Space>,
    /// Allocation stream of the metadata.
    stream: Stream,
    /// Map of used blocks, as checkpoints store it.
    used: UsedMap,
    /// Data blocks that came into use since the freeze.
    taken: Vec<(u64, u32)>,
    /// Blocks written by the running checkpoint.
    stored: Vec<(u64, u32)>,
    /// Blocks freed since the freeze, for the next checkpoint to release.
    freed: Vec<(u64, u32)>,
    freed_blocks: u64,
    freed_meta: i64,
    /// Blocks freed before the freeze, to be released when the running checkpoint is durable.
    release: Vec<(u64, u32)>,
    release_blocks: u64,
    /// Number of metadata blocks. In one store it may be negative after shards moved between rings; the sum
    /// over all rings is exact.
    page_blocks: i64,
    /// The part of `page_blocks` that the device's sum includes.
    counted_blocks: i64,
    headroom: u64,
    /// The part of `headroom` that stays when everything is stored.
    least: u64,
    /// A page found no room: the headroom was wrong, or the device misreported its size.
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
            release_blocks: 0,
            page_blocks: 0,
            counted_blocks: 0,
            headroom: 0,
            least: 0,
            out_of_space: false,
        }
    }

    /// Number of metadata blocks.
    pub(crate) fn page_blocks(&self) -> i64 {
        self.page_blocks
    }

    /// Number of metadata blocks in the checkpoint of the freeze.
    pub(crate) fn page_blocks_frozen(&self) -> i64 {
        self.page_blocks.wrapping_add(self.freed_meta)
    }

    /// Adds metadata blocks that stored structures refer to; `n` may be negative.
    pub(crate) fn count_pages(&mut self, n: i64) {
        self.page_blocks = self.page_blocks.wrapping_add(n);
    }

    /// Number of blocks that the next checkpoint frees.
    pub(crate) fn freed_blocks(&self) -> u64 {
        self.freed_blocks
    }

    /// Number of blocks that the running checkpoint and the next one free.
    pub(crate) fn leaving_blocks(&self) -> u64 {
        self.freed_blocks + self.release_blocks
    }

    /// Runs that the running checkpoint and the next one will release.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &(u64, u32)> {
        self.freed.iter().chain(&self.release)
    }

    /// True if a page of a checkpoint found no room.
    pub(crate) fn out_of_space(&self) -> bool {
        self.out_of_space
    }

    /// Registers data blocks that came into use.
    #[inline]
    pub(super) fn took(&mut self, first: u64, n: u32) {
        if !continues(&mut self.taken, first, n) {
            self.taken.push((first, n));
        }
    }

    /// Frees a data block without references.
    pub(super) fn free_data(&mut self, block: u64) {
        self.freed_blocks += 1;
        if !continues(&mut self.freed, block, 1) {
            self.freed.push((block, 1));
        }
    }

    /// Frees the blocks of a metadata page without references. They are released when a checkpoint that knows
    /// it is durable.
    pub(crate) fn free_page(&mut self, loc: &BlobPtr) {
        for (b, n) in &loc.runs {
            self.page_blocks -= i64::from(*n);
            self.freed_meta += i64::from(*n);
            self.freed_blocks += u64::from(*n);
            self.freed.push((*b, *n));
        }
    }

    /// Frees blocks of the map of used blocks that is stored elsewhere now.
    pub(crate) fn free_map(&mut self, blocks: impl Iterator<Item = u64>) {
        let before = self.freed.len();
        self.freed.extend(blocks.map(|b| (b, 1)));
        let n = (self.freed.len() - before) as u64;
        self.freed_blocks += n;
        self.page_blocks = self.page_blocks.wrapping_sub(n as i64);
    }

    /// Frees old blocks of a page that the running checkpoint has stored elsewhere.
    pub(super) fn replaced(&mut self, runs: &Runs) {
        for (b, n) in runs {
            self.page_blocks -= i64::from(*n);
            self.release_blocks += u64::from(*n);
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

    /// Allocates blocks for a page that the running checkpoint stores.
    pub(super) fn place(&mut self, blocks: u64) -> Runs {
        let runs = self.take(blocks);
        self.page_blocks += blocks as i64;
        self.stored.extend(runs.iter().copied());
        runs
    }

    /// Freezes the lists for a new checkpoint. Returns the data blocks that came into use.
    pub(crate) fn freeze(&mut self) -> Vec<(u64, u32)> {
        debug_assert_eq!(self.freed_blocks, sum(&self.freed), "blocks that the checkpoint frees");
        self.release = std::mem::take(&mut self.freed);
        self.release_blocks = self.freed_blocks;
        self.freed_meta = 0;
        self.freed_blocks = 0;
        std::mem::take(&mut self.taken)
    }

    /// Runs that the running checkpoint frees, as of now.
    pub(crate) fn to_release(&self) -> &[(u64, u32)] {
        &self.release
    }

    /// Takes the runs to be released, when the running checkpoint is durable, and the number of their blocks.
    pub(crate) fn take_release(&mut self) -> (Vec<(u64, u32)>, u64) {
        debug_assert_eq!(self.release_blocks, sum(&self.release), "blocks that the checkpoint releases");
        (std::mem::take(&mut self.release), std::mem::take(&mut self.release_blocks))
    }

    /// Resets the lists for rebuilt metadata. `freed` are the runs to free, `blocks` their sum, and `used` is
    /// the map of used blocks.
    pub(crate) fn restart(&mut self, freed: Vec<(u64, u32)>, blocks: u64, used: UsedMap) {
        (self.release, self.release_blocks, self.taken, self.stored) = Default::default();
        (self.freed, self.freed_blocks, self.freed_meta) = (freed, blocks, 0);
        self.used = used;
    }

    /// Adds data runs to the freed ones, for tests.
    #[cfg(test)]
    pub(crate) fn add_freed(&mut self, runs: &[(u64, u32)]) {
        self.freed.extend_from_slice(runs);
        self.freed_blocks += runs.iter().map(|r| u64::from(r.1)).sum::<u64>();
    }

    /// Adds data runs to those that came into use, for tests.
    #[cfg(test)]
    pub(crate) fn add_taken(&mut self, runs: &[(u64, u32)]) {
        self.taken.extend_from_slice(runs);
    }

    /// Resets the count of metadata blocks, which is computed anew.
    pub(crate) fn forget_pages(&mut self) {
        self.page_blocks = 0;
    }

    /// Updates the headroom for `dirty_mem` bytes in `pages` dirty pages: the most that the running checkpoint
    /// and the next one write.
    pub(super) fn update_headroom(&mut self, dirty_mem: usize, pages: u64) {
        self.space.change_metadata(self.page_blocks - self.counted_blocks);
        self.counted_blocks = self.page_blocks;
        let dirty = dirty_mem as u64 / BLOCK + pages;
        // Doubled, because both checkpoints may have to write a page.
        let least = 2 * self.used.blocks_max() + HEADROOM_BLOCKS;
        let headroom = 2 * dirty + least;
        self.space.change_headroom(self.headroom, headroom);
        self.space.change_least(self.least, least);
        (self.headroom, self.least) = (headroom, least);
    }

    /// The device's free space.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Lets metadata take blocks from the beginning of the free space again.
    pub(crate) fn rewind(&mut self) {
        self.space.rewind(&mut self.stream);
    }

    /// Groups of blocks that the search for metadata blocks has looked at.
    pub(crate) fn looked(&self) -> u64 {
        self.stream.looked
    }

    /// The map of used blocks.
    pub(crate) fn used(&self) -> &UsedMap {
        &self.used
    }

    /// Adds a page of the map of used blocks, read at opening.
    pub(crate) fn load_used(&mut self, number: u32, bits: Vec<u64>, at: BlockPtr) {
        self.used.load(number, bits, at);
    }

    /// Adds a page of the map's index, read at opening.
    pub(crate) fn load_used_index(&mut self, number: u32, at: BlockPtr) {
        self.used.load_index(number, at);
    }

    /// Encodes up to `n` pages of the map, then of its index. Returns false when all are done.
    pub(super) fn store_used(&mut self, n: usize, out: &mut Writeback) -> bool {
        self.used.store(n, out)
    }

    /// Part of the headroom that is for dirty pages, and free again when they are stored.
    pub(crate) fn for_dirty(&self) -> u64 {
        self.headroom - self.least
    }

    /// Present headroom.
    pub(crate) fn headroom(&self) -> u64 {
        self.headroom
    }

    /// Begins to enter the changes of the running checkpoint into the map of used blocks, after all its pages
    /// are stored. From now on only [`Alloc::place_used`] may allocate or free for this checkpoint.
    pub(crate) fn begin_used(&mut self, taken: Vec<(u64, u32)>) {
        let mut enter = taken;
        enter.append(&mut self.stored);
        self.used.begin(enter, self.release.len());
    }

    /// Continues for `budget` steps: enters runs, then gives changed pages of the map and its index new places,
    /// which may change further ones. Returns the steps left when all pages have places.
    pub(crate) fn place_used(&mut self, mut budget: u64) -> Option<u64> {
        while budget > 0 {
            if !self.used.enter_next(&self.release) {
                let Some((page, old)) = self.used.next_unplaced() else { return Some(budget) };
                let block = self.replace_used(old);
                self.used.place(page, block);
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
            self.release_blocks += 1;
            self.release.push((old, 1));
        }
        block
    }
}

/// Number of blocks in some runs.
fn sum(runs: &[(u64, u32)]) -> u64 {
    runs.iter().map(|r| u64::from(r.1)).sum()
}
