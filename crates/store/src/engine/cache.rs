//! Data blocks in memory, for sub-block writes and repeated reads. The budget is hard.
//!
//! Keyed by place and version. Users verify the checksum, so a stale entry is a miss, never wrong data.
//!
//! Blocks that leave first are the oldest that were not used since they came, or since they were passed over
//! (FIFO with a second chance). While the cache is full, a block that was read gets in only when it is read a second
//! time, so that scans and large working sets neither displace what is used nor pay for copies.

use crate::layout::BLOCK_LEN;
use crate::meta::map::Ptr;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Longest read, in blocks, of which the blocks are kept.
pub(crate) const READ_BLOCKS_MAX: u64 = 16;

/// A block in memory.
#[derive(Debug)]
struct Entry {
    version: u32,
    /// Asked for since it came or was passed over.
    used: bool,
    data: Bytes,
}

/// Cache of recently used blocks; see the module.
#[derive(Debug, Default)]
pub struct BlockCache {
    blocks: FxHashMap<u64, Entry>,
    order: VecDeque<u64>,
    max: usize,
    /// Marks of blocks that were read and not taken, by hash of the place. Newer ones replace older ones.
    refused: Box<[u32]>,
}

impl BlockCache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { max: bytes / BLOCK_LEN, ..Self::default() }
    }

    pub(crate) fn get(&mut self, p: Ptr) -> Option<Bytes> {
        let e = self.blocks.get_mut(&p.phys()).filter(|e| e.version == p.version())?;
        e.used = true;
        Some(e.data.clone())
    }

    /// Adds a block. The data is copied, so that the cache does not hold its buffer.
    pub(crate) fn put(&mut self, p: Ptr, data: &[u8]) {
        if self.max == 0 {
            return;
        }
        let entry = Entry { version: p.version(), used: false, data: Bytes::copy_from_slice(data) };
        if let Some(e) = self.blocks.get_mut(&p.phys()) {
            *e = entry;
            return;
        }
        while self.order.len() >= self.max {
            let Some(old) = self.order.pop_front() else { break };
            match self.blocks.get_mut(&old) {
                Some(e) if e.used => {
                    e.used = false;
                    self.order.push_back(old);
                }
                _ => {
                    self.blocks.remove(&old);
                }
            }
        }
        self.blocks.insert(p.phys(), entry);
        self.order.push_back(p.phys());
    }

    /// True if a block that was read from the device is worth [`BlockCache::put`]: there is room, or it was asked about
    /// a short time ago.
    pub(crate) fn wants(&mut self, p: Ptr) -> bool {
        if self.order.len() < self.max {
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
        assert_eq!((c.blocks.len(), c.order.len()), (2, 2));
        // All in use: the one that was passed over first leaves.
        c.get(Ptr::new(2, 1)).unwrap();
        put(&mut c, 4);
        assert_eq!((c.blocks.len(), c.order.len()), (2, 2));
        assert!(c.get(Ptr::new(4, 1)).is_some());
        let mut none = BlockCache::new(0);
        put(&mut none, 1);
        assert!(none.get(Ptr::new(1, 1)).is_none() && !none.wants(Ptr::new(1, 1)));
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
        assert_eq!((c.blocks.len(), c.order.len()), (1, 1));
    }
}
