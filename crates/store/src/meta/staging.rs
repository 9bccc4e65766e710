//! Pages that were read and wait until a question puts them in place in a tree.

use crate::superblock::BlobPtr;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Bytes read for a page, or the error of the read.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) loc: BlobPtr,
    pub(crate) data: Result<Bytes, String>,
}

/// Staged pages; see the module.
#[derive(Default)]
pub(crate) struct Staging {
    /// Pages by first block, with their arrival numbers.
    pages: FxHashMap<u64, (u64, Staged)>,
    /// Arrival numbers and first blocks, oldest first; some pages may be taken already.
    order: VecDeque<(u64, u64)>,
    came: u64,
    bytes: usize,
}

impl Staging {
    /// Bytes of all staged pages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn put(&mut self, s: Staged) {
        let Some(first) = s.loc.runs.first().map(|r| r.0) else { return };
        self.take(first);
        self.bytes += s.loc.len as usize;
        self.came += 1;
        self.order.push_back((self.came, first));
        self.pages.insert(first, (self.came, s));
        if self.order.len() > 2 * self.pages.len() + 64 {
            let pages = &self.pages;
            self.order.retain(|(n, first)| pages.get(first).is_some_and(|p| p.0 == *n));
        }
    }

    /// Drops the oldest staged pages until at most `pages` and `bytes` are left.
    pub(crate) fn shrink(&mut self, pages: usize, bytes: usize) {
        while self.pages.len() > pages || self.bytes > bytes {
            let Some((n, first)) = self.order.pop_front() else { return };
            if self.pages.get(&first).is_some_and(|p| p.0 == n) {
                self.take(first);
            }
        }
    }

    pub(crate) fn take(&mut self, first: u64) -> Option<Staged> {
        let (_, s) = self.pages.remove(&first)?;
        self.bytes -= s.loc.len as usize;
        Some(s)
    }

    /// Drops all staged pages.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(first: u64, len: u32) -> Staged {
        let loc = BlobPtr { runs: [(first, 1)].into_iter().collect(), len, ..BlobPtr::default() };
        Staged { loc, data: Ok(Bytes::new()) }
    }

    #[test]
    fn the_oldest_go_first_and_order_does_not_grow() {
        let mut s = Staging::default();
        for n in 0..1000 {
            s.put(staged(n, 10));
            if n % 2 == 1 {
                s.take(n);
            }
        }
        // Read once more, so it counts as the newest.
        s.put(staged(0, 20));
        assert_eq!(s.bytes(), 499 * 10 + 20);
        s.shrink(400, 3000);
        assert_eq!((s.pages.len(), s.bytes()), (299, 3000));
        assert!(s.take(402).is_none() && s.take(404).is_some() && s.take(998).is_some() && s.take(0).is_some());
        for n in 0..100_000 {
            s.put(staged(n, 10));
            s.take(n);
        }
        assert!(s.order.len() <= 2 * s.pages.len() + 64);
        s.shrink(0, 0);
        assert_eq!((s.pages.len(), s.bytes()), (0, 0));
    }
}
