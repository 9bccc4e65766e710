//! Where the pages of a server's places lie on its device: each write of a page goes to a free one, so that the pages of
//! a commit lie side by side, whichever objects they belong to.
//!
//! Invariants:
//!  1. No page on the device is used twice, and page 0 by nobody: it holds zeros, for pages that were never written.
//!  2. A page set free is taken again only after all others that were free, so a read under way does not meet a later
//!     write.
//!
//! Tests: below.

use base::buf::PAGE;

/// Pages in a row below which a run is passed over, as long as there are longer ones.
const RUN_MIN: u64 = 16;
/// Most pages of one run, so that a write of single pages has fewer buffers than the kernel takes (`IOV_MAX`).
const RUN_MAX: u64 = 512;
/// Part of the device that no place uses, so that a commit finds pages in a row.
const SPARE_PART: u64 = 8;

/// A run of pages on the device: the first one, and their number.
pub(super) type PageRun = (u64, u64);

/// The pages of a device; see the module.
#[derive(Debug)]
pub(super) struct Pages {
    /// Page on the device of each page of the places; 0 for one that was never written.
    at: Vec<u32>,
    /// One bit for each page of the device that is in use.
    used: Vec<u64>,
    /// Where the search for free pages goes on.
    next: u64,
    all: u64,
}

impl Pages {
    /// Pages of a device of `bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        let all = (bytes / PAGE as u64).min(u64::from(u32::MAX));
        let mut pages = Self { at: Vec::new(), used: vec![0; all.div_ceil(64) as usize], next: 1, all };
        pages.at = vec![0; (pages.for_places() / PAGE as u64) as usize];
        pages.set(0, true);
        pages
    }

    /// Bytes that places may use.
    pub(super) fn for_places(&self) -> u64 {
        (self.all - self.all / SPARE_PART) * PAGE as u64
    }

    fn is_used(&self, page: u64) -> bool {
        self.used.get((page / 64) as usize).is_none_or(|w| w & (1 << (page % 64)) != 0)
    }

    fn set(&mut self, page: u64, used: bool) {
        if let Some(w) = self.used.get_mut((page / 64) as usize) {
            if used { *w |= 1 << (page % 64) } else { *w &= !(1 << (page % 64)) }
        }
    }

    /// The next free pages, at most `want`, before `end`: passes over used ones.
    fn run(&mut self, want: u64, end: u64) -> PageRun {
        while self.next < end && self.is_used(self.next) {
            self.next += 1;
        }
        let first = self.next;
        while self.next < end && self.next - first < want && !self.is_used(self.next) {
            self.next += 1;
        }
        (first, self.next - first)
    }

    /// Takes `n` free pages; `None` if there are not as many.
    pub(super) fn take(&mut self, n: u64) -> Option<Vec<PageRun>> {
        let mut runs = Vec::new();
        let mut need = n;
        for least in [RUN_MIN, 1] {
            let (begin, mut left) = (self.next, self.all);
            while need > 0 && left > 0 {
                let from = self.next;
                let (first, len) = self.run(need.min(RUN_MAX), self.all);
                left = left.saturating_sub(self.next - from);
                if len >= least.min(need) && len > 0 {
                    (first..first + len).for_each(|p| self.set(p, true));
                    runs.push((first, len));
                    need -= len;
                }
                if self.next >= self.all {
                    self.next = 1;
                    // The last pages count as passed, so that the search ends.
                    left = left.saturating_sub(1);
                }
            }
            if need == 0 {
                return Some(runs);
            }
            self.next = begin;
        }
        runs.into_iter().for_each(|r| self.free(r));
        None
    }

    /// Frees pages.
    pub(super) fn free(&mut self, (first, n): PageRun) {
        (first..first + n).for_each(|p| self.set(p, false));
    }

    /// Names the page `to` of the device as the one of the places' byte `place`. Returns the one it replaces.
    pub(super) fn put(&mut self, place: u64, to: u64) -> Option<u64> {
        let at = self.at.get_mut((place / PAGE as u64) as usize)?;
        let old = std::mem::replace(at, to as u32);
        (old > 0).then_some(u64::from(old))
    }

    /// Where `length` bytes of the places lie, in order.
    pub(super) fn find(&self, place: u64, length: u64) -> Vec<PageRun> {
        let mut runs: Vec<PageRun> = Vec::with_capacity(1);
        for page in place / PAGE as u64..(place + length) / PAGE as u64 {
            let at = self.at.get(page as usize).map_or(0, |p| u64::from(*p));
            match runs.last_mut() {
                Some((first, n)) if *first > 0 && *first + *n == at => *n += 1,
                _ => runs.push((at, 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn random_writes_equal_a_map() {
        let mut p = Pages::new(4000 * PAGE as u64 + 5);
        let places = p.for_places() / PAGE as u64;
        assert_eq!(places, 3500);
        let mut rng = Rng::new(11);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..5000 {
            let n = 1 + rng.below(60);
            let first = rng.below(places - n);
            let runs = p.take(n).unwrap();
            assert_eq!(runs.iter().map(|r| r.1).sum::<u64>(), n);
            let mut freed = Vec::new();
            for (place, to) in (first..).zip(runs.iter().flat_map(|r| r.0..r.0 + r.1)) {
                assert!((1..4000).contains(&to) && !model.values().any(|x| *x == to), "page {to}");
                let old = p.put(place * PAGE as u64, to);
                assert_eq!(old, model.insert(place, to));
                freed.extend(old);
            }
            freed.into_iter().for_each(|f| p.free((f, 1)));
            let from = rng.below(places - 40);
            let found: Vec<u64> =
                p.find(from * PAGE as u64, 40 * PAGE as u64).iter().flat_map(|r| r.0..r.0 + r.1).collect();
            let want: Vec<u64> = (from..from + 40).map(|b| model.get(&b).copied().unwrap_or(0)).collect();
            assert_eq!(found, want);
        }
        assert_eq!(model.values().collect::<BTreeSet<_>>().len(), model.len());
    }

    #[test]
    fn a_full_device_has_no_pages_and_an_empty_one_has_them_in_a_row() {
        let mut p = Pages::new(1000 * PAGE as u64);
        let runs = p.take(999).unwrap();
        assert_eq!(runs, [(1, 512), (513, 487)]);
        assert_eq!(p.take(1), None);
        p.free((500, 3));
        assert_eq!(p.take(4), None);
        assert_eq!(p.take(3), Some(vec![(500, 3)]));
        p.free((700, 20));
        p.free((10, 5));
        assert_eq!(p.take(16), Some(vec![(700, 16)]), "in a row, where there is such a run");
    }
}
