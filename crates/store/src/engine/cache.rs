//! A small FIFO cache of blocks, for sub-block writes and repeated small reads. Its budget is hard.
//!
//! Keyed by place and version. Users verify the checksum, so a stale entry is a miss, never wrong data.

use crate::meta::map::Ptr;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Cache of recently used blocks; see the module.
#[derive(Debug, Default)]
pub struct BlockCache {
    blocks: FxHashMap<u64, (u32, Bytes)>,
    order: VecDeque<u64>,
    max: usize,
}

impl BlockCache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { max: bytes / crate::layout::BLOCK_LEN, ..Self::default() }
    }

    pub(crate) fn get(&self, p: Ptr) -> Option<Bytes> {
        self.blocks.get(&p.phys()).filter(|b| b.0 == p.version()).map(|b| b.1.clone())
    }

    /// Adds a block. The data is copied, so that the cache does not hold its buffer.
    pub(crate) fn put(&mut self, p: Ptr, data: &[u8]) {
        if self.max == 0 {
            return;
        }
        let copy = Bytes::copy_from_slice(data);
        if self.blocks.insert(p.phys(), (p.version(), copy)).is_none() {
            self.order.push_back(p.phys());
            if self.order.len() > self.max
                && let Some(old) = self.order.pop_front()
            {
                self.blocks.remove(&old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds() {
        let mut c = BlockCache::new(8192);
        for i in 1..=3 {
            c.put(Ptr::new(i, 1), &[i as u8; 4096]);
        }
        assert!(c.get(Ptr::new(1, 1)).is_none());
        assert!(c.get(Ptr::new(2, 2)).is_none());
        assert_eq!(c.get(Ptr::new(3, 1)).unwrap()[0], 3);
        assert_eq!((c.blocks.len(), c.order.len()), (2, 2));
    }
}
