//! Data in memory, for sub-block writes and repeated reads. The budget is hard.
//!
//! Single blocks are copies, keyed by place and version. Users verify the checksum, so a stale entry is a miss, never
//! wrong data. Longer reads leave their buffers here, as runs of verified blocks, wherever these lie.
//!
//! The entry that leaves first is the oldest that was not used since it came, or since it was passed over (FIFO with a second
//! chance). While the cache is full, data that was read gets in only when it is read a second time, so that scans and
//! large working sets neither displace what is used nor pay for copies. Blocks and runs displace each other down to a
//! quarter of the budget.

use super::runs::{Runs, charge, without_holes};
use crate::layout::BLOCK_LEN;
use crate::meta::map::Ptr;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Longest read, in blocks, of which single blocks are kept.
pub(crate) const READ_BLOCKS_MAX: u64 = 16;
/// Fewest neighbouring blocks of a longer read with holes that are kept.
const RUN_MIN: usize = 4;
/// Part of the budget that blocks keep from runs, and runs from blocks. No run is larger.
const LEAST_SHARE: usize = 4;
/// Most used entries that are passed over to find one that leaves.
pub(super) const PASSES_MAX: usize = 64;
/// Most blocks that leave beside those whose room is needed, after the budget has shrunk: with each that comes, and in a
/// step of [`BlockCache::shrink`].
const SHRINK_STEPS: (usize, usize) = (64, 8192);

/// A block in memory.
#[derive(Debug)]
struct Entry {
    version: u32,
    /// Asked for since it came or was passed over.
    used: bool,
    data: Bytes,
}

/// Copies of single blocks.
#[derive(Debug, Default)]
struct Blocks {
    blocks: FxHashMap<u64, Entry>,
    order: VecDeque<u64>,
}

impl Blocks {
    /// Removes the oldest block that was not used since it came or was passed over, or the one after [`PASSES_MAX`] used
    /// ones. False if there is none.
    fn evict(&mut self) -> bool {
        let mut passes = 0;
        while let Some(old) = self.order.pop_front() {
            match self.blocks.get_mut(&old) {
                Some(e) if e.used && passes < PASSES_MAX => {
                    passes += 1;
                    e.used = false;
                    self.order.push_back(old);
                }
                _ => {
                    self.blocks.remove(&old);
                    return true;
                }
            }
        }
        false
    }
}

/// Cache of recently used data; see the module.
#[derive(Debug, Default)]
pub struct BlockCache {
    blocks: Blocks,
    runs: Runs,
    /// Budget in blocks.
    max: usize,
    /// Marks of blocks that were read and not taken, by hash of the place. Newer ones replace older ones.
    refused: Box<[u32]>,
}

impl BlockCache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { max: bytes / BLOCK_LEN, ..Self::default() }
    }

    /// Changes the budget. What exceeds a smaller one leaves in steps, with what comes and with [`BlockCache::shrink`].
    pub(crate) fn set_max(&mut self, bytes: usize) {
        if self.max != bytes / BLOCK_LEN {
            (self.max, self.refused) = (bytes / BLOCK_LEN, Box::default());
        }
    }

    /// Blocks of memory in use.
    fn used(&self) -> usize {
        self.blocks.order.len() + self.runs.charged()
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.used() * BLOCK_LEN) as u64
    }

    /// Lets some of what exceeds the budget leave.
    pub(crate) fn shrink(&mut self) {
        self.evict(0, SHRINK_STEPS.1, false);
    }

    pub(crate) fn get(&mut self, p: Ptr) -> Option<Bytes> {
        let e = self.blocks.blocks.get_mut(&p.phys()).filter(|e| e.version == p.version())?;
        e.used = true;
        Some(e.data.clone())
    }

    /// Verified data of neighbouring blocks of an object, from `block` on.
    pub(crate) fn run(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)]) -> Option<Bytes> {
        self.runs.get(birth, block, map)
    }

    /// Adds a block. The data is copied, so that the cache does not hold its buffer.
    pub(crate) fn put(&mut self, p: Ptr, data: &[u8]) {
        if self.max == 0 {
            return;
        }
        let entry = Entry { version: p.version(), used: false, data: Bytes::copy_from_slice(data) };
        if let Some(e) = self.blocks.blocks.get_mut(&p.phys()) {
            *e = entry;
            return;
        }
        self.make_room(1, false);
        self.blocks.blocks.insert(p.phys(), entry);
        self.blocks.order.push_back(p.phys());
    }

    /// Keeps what a long read has brought, if it is worth it. `map`: the verified blocks from `block` on, whose data
    /// `data` is; holes are zeros.
    pub(crate) fn keep_read(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)], data: &Bytes) {
        if let Some(others) = self.runs.lacks_few(birth, block, map) {
            return others.into_iter().for_each(|i| self.keep_block(map, data, i));
        }
        let holes = map.iter().filter(|(p, _)| p.is_hole()).count();
        if holes * 2 < map.len() {
            return self.keep_run(birth, block, map, data.clone(), charge(map.len()));
        }
        // The buffer is mostly zeros: the cache does not hold it.
        for (at, n) in without_holes(map).filter(|(_, n)| *n >= RUN_MIN) {
            let Some(part) = map.get(at..at + n) else { break };
            let data = Bytes::copy_from_slice(&data[at * BLOCK_LEN..(at + n) * BLOCK_LEN]);
            self.keep_run(birth, block + at as u64, part, data, n);
        }
    }

    fn keep_run(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)], data: Bytes, charged: usize) {
        let first = map.iter().find(|(p, _)| !p.is_hole());
        if let Some((ptr, _)) = first
            && charged <= self.max / LEAST_SHARE
            && self.wants(*ptr)
        {
            self.make_room(charged, true);
            self.runs.put(birth, block, map, data, charged);
        }
    }

    /// Keeps one block of a read, if it is worth it.
    pub(crate) fn keep_block(&mut self, map: &[(Ptr, u32)], data: &[u8], i: usize) {
        if let (Some((ptr, _)), Some(block)) = (map.get(i), data.chunks_exact(BLOCK_LEN).nth(i))
            && !ptr.is_hole()
            && self.wants(*ptr)
        {
            self.put(*ptr, block);
        }
    }

    /// Makes room for `need` blocks, of runs or of single ones.
    fn make_room(&mut self, need: usize, for_runs: bool) {
        self.evict(need, need + SHRINK_STEPS.0, for_runs);
    }

    /// Lets about `left` blocks leave at most, until there is room for `need` more.
    fn evict(&mut self, need: usize, mut left: usize, for_runs: bool) {
        while self.used() + need > self.max && left > 0 {
            let least = self.max / LEAST_SHARE;
            let of_runs = if for_runs { self.blocks.order.len() <= least } else { self.runs.charged() > least };
            let before = self.used();
            let gone = of_runs && self.runs.evict() || self.blocks.evict() || self.runs.evict();
            if !gone {
                break;
            }
            left = left.saturating_sub(before - self.used());
        }
    }

    /// True if data that was read from the device is worth being kept: there is room, or its first block was asked about
    /// a short time ago.
    pub(crate) fn wants(&mut self, p: Ptr) -> bool {
        if self.used() < self.max {
            return true;
        }
        if self.refused.is_empty() {
            self.refused = vec![0; self.max.next_power_of_two()].into();
        }
        // Neighbouring places are used together, so their marks may lie side by side.
        let at = p.phys() as usize & self.refused.len().wrapping_sub(1);
        let mark = ((p.phys() / self.refused.len().max(1) as u64) as u32).rotate_left(16) ^ p.version();
        self.refused.get_mut(at).is_some_and(|m| std::mem::replace(m, mark) == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(c: &mut BlockCache, n: u64) {
        c.put(Ptr::new(n, 1), &[n as u8; BLOCK_LEN]);
    }

    #[test]
    fn the_budget_holds() {
        let mut c = BlockCache::new(8192);
        (1..=3).for_each(|i| put(&mut c, i));
        assert!(c.get(Ptr::new(1, 1)).is_none());
        assert!(c.get(Ptr::new(2, 2)).is_none());
        assert_eq!(c.get(Ptr::new(3, 1)).unwrap()[0], 3);
        assert_eq!((c.blocks.blocks.len(), c.blocks.order.len()), (2, 2));
        // All in use: the one that was passed over first leaves.
        c.get(Ptr::new(2, 1)).unwrap();
        put(&mut c, 4);
        assert_eq!((c.blocks.blocks.len(), c.blocks.order.len()), (2, 2));
        assert!(c.get(Ptr::new(4, 1)).is_some());
        let mut none = BlockCache::new(0);
        put(&mut none, 1);
        assert!(none.get(Ptr::new(1, 1)).is_none() && !none.wants(Ptr::new(1, 1)));
        none.keep_read(1, 0, &run(1, 8), &Bytes::from(vec![0; 8 * BLOCK_LEN]));
        assert_eq!(none.used(), 0);
    }

    fn run(first: u64, n: u64) -> Vec<(Ptr, u32)> {
        (first..first + n).map(|p| (Ptr::new(p, 1), p as u32)).collect()
    }

    fn keep(c: &mut BlockCache, first: u64, n: u64) {
        c.keep_read(1, first, &run(first, n), &Bytes::from(vec![first as u8; n as usize * BLOCK_LEN]));
    }

    /// Blocks and runs take the whole budget where the other is not asked for, and leave each other a quarter.
    #[test]
    fn blocks_and_runs_share_the_budget() {
        let mut c = BlockCache::new(256 * BLOCK_LEN);
        for i in 0..32 {
            keep(&mut c, 1000 + i * 8, 8);
        }
        assert_eq!((c.runs.charged(), c.blocks.order.len()), (256, 0));
        (0..1000).for_each(|i| put(&mut c, i));
        assert_eq!((c.runs.charged(), c.blocks.order.len()), (64, 192));
        for i in 0..100 {
            keep(&mut c, 5000 + i * 8, 8);
            keep(&mut c, 5000 + i * 8, 8);
            assert!(c.used() <= 256);
        }
        assert_eq!((c.runs.charged(), c.blocks.order.len()), (192, 64));
    }

    /// Larger than a quarter of the budget, in pieces, or scattered: what is kept can be found, and counts.
    #[test]
    fn parts_of_a_long_read_are_kept() {
        let mut c = BlockCache::new(256 * BLOCK_LEN);
        keep(&mut c, 0, 65);
        assert_eq!(c.used(), 0);
        let mut map = run(100, 20);
        map.extend([(Ptr::HOLE, 0), (Ptr::HOLE, 0)]);
        map.extend(run(300, 3));
        map.extend(run(400, 5));
        let data: Vec<u8> = (0..30 * BLOCK_LEN).map(|i| (i / BLOCK_LEN) as u8).collect();
        c.keep_read(1, 0, &map, &Bytes::from(data));
        // One run, in a buffer for 32 blocks.
        assert_eq!(c.used(), 32);
        let found = |c: &mut BlockCache, at: usize| c.run(1, at as u64, &map[at..=at]).map(|b| b[0]);
        assert_eq!((found(&mut c, 3), found(&mut c, 23), found(&mut c, 26)), (Some(3), Some(23), Some(26)));
        assert_eq!(c.run(1, 0, &map).unwrap().len(), 30 * BLOCK_LEN);
    }

    /// Few blocks among many holes: those with neighbours are kept, as copies.
    #[test]
    fn a_read_of_holes_keeps_its_blocks_only() {
        let mut c = BlockCache::new(256 * BLOCK_LEN);
        let mut map = vec![(Ptr::HOLE, 0); 40];
        map[10..15].copy_from_slice(&run(100, 5));
        map[20..23].copy_from_slice(&run(200, 3));
        c.keep_read(1, 0, &map, &Bytes::from(vec![4; 40 * BLOCK_LEN]));
        assert_eq!(c.used(), 5);
        assert!(c.run(1, 10, &map[10..15]).is_some() && c.run(1, 20, &map[20..23]).is_none());
    }

    /// A block of a long run is overwritten, and read in a short range: the run stays, and the block is beside it.
    #[test]
    fn a_changed_block_does_not_displace_the_run() {
        let mut c = BlockCache::new(256 * BLOCK_LEN);
        let mut map = run(100, 40);
        c.keep_read(1, 0, &map, &Bytes::from(vec![4; 40 * BLOCK_LEN]));
        map[20] = (Ptr::new(900, 2), 7);
        c.keep_read(1, 10, &map[10..30], &Bytes::from(vec![4; 20 * BLOCK_LEN]));
        assert_eq!(c.used(), 64 + 1);
        assert!(c.get(Ptr::new(900, 2)).is_some() && c.run(1, 21, &map[21..]).is_some());
        // The whole range is read: its new run takes the place of the old one.
        c.keep_read(1, 0, &map, &Bytes::from(vec![4; 40 * BLOCK_LEN]));
        assert_eq!(c.used(), 64 + 1);
        assert!(c.run(1, 0, &map).is_some());
    }

    /// A hundred thousand blocks, all of them in use: one leaves after a bounded number of looks.
    #[test]
    fn a_block_in_use_leaves_after_so_many_others() {
        let mut c = BlockCache::new(100_000 * BLOCK_LEN);
        (0..100_000).for_each(|i| put(&mut c, i));
        (0..100_000).for_each(|i| assert!(c.get(Ptr::new(i, 1)).is_some()));
        put(&mut c, 200_000);
        assert!(c.get(Ptr::new(PASSES_MAX as u64, 1)).is_none());
        assert!(c.get(Ptr::new(0, 1)).is_some() && c.get(Ptr::new(PASSES_MAX as u64 + 1, 1)).is_some());
    }

    /// A smaller budget is reached in steps of bounded work.
    #[test]
    fn a_smaller_budget_is_reached_in_steps() {
        let mut c = BlockCache::new(40_960 * BLOCK_LEN);
        (0..20_000).for_each(|i| put(&mut c, i));
        for i in 0..32 {
            c.runs.put(1, i * 512, &run(100_000 + i * 512, 512), Bytes::from_static(&[0; 512 * BLOCK_LEN]), 512);
        }
        c.set_max(64 * BLOCK_LEN);
        let mut steps = 0;
        while c.used() > 64 {
            let before = c.used();
            c.shrink();
            steps += 1;
            assert!(before - c.used() <= SHRINK_STEPS.1 + 512, "{before} {}", c.used());
            assert!(steps < 100);
        }
        assert!(steps >= 4);
        c.set_max(0);
        c.shrink();
        assert_eq!((c.used(), c.bytes()), (0, 0));
    }

    #[test]
    fn used_blocks_outlive_a_scan() {
        let mut c = BlockCache::new(64 * BLOCK_LEN);
        for i in 1..=64 {
            assert!(c.wants(Ptr::new(i, 1)));
            put(&mut c, i);
        }
        for i in 1000..10_000 {
            assert!(!c.wants(Ptr::new(i, 1)), "{i} was read once");
        }
        assert!(!c.wants(Ptr::new(20_000, 1)));
        assert!(!c.wants(Ptr::new(20_000, 2)), "other contents");
        assert!(c.wants(Ptr::new(20_000, 2)));
        // A block that is asked for stays while others come and go.
        for i in 100..1000 {
            put(&mut c, i);
            assert!(c.get(Ptr::new(64, 1)).is_some(), "{i}");
        }
        assert!(c.get(Ptr::new(63, 1)).is_none());
    }

    #[test]
    fn new_contents_of_a_place_replace_the_old() {
        let mut c = BlockCache::new(2 * BLOCK_LEN);
        put(&mut c, 7);
        c.put(Ptr::new(7, 2), &[9; BLOCK_LEN]);
        assert!(c.get(Ptr::new(7, 1)).is_none());
        assert_eq!(c.get(Ptr::new(7, 2)).unwrap()[0], 9);
        assert_eq!((c.blocks.blocks.len(), c.blocks.order.len()), (1, 1));
    }
}
