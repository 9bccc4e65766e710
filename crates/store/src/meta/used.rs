//! Map of used blocks, as a ring's checkpoints store it: a bitmap in pages of one block, with an index above.
//!
//! A block's bit is toggled when the block comes into use and when it becomes free. A block is in use if an odd
//! number of rings have its bit set. So rings need not know which of them allocated a block, and shards may
//! move between rings.
//!
//! Invariant: together with the log, the stored maps name exactly the blocks that the trees refer to, and the
//! maps' own blocks.
//!
//! Tests: the check of `tests/model.rs`.

use super::writeback::Writeback;
use crate::codec::{Get, Malformed, Put};
use crate::layout::BLOCK_LEN;
use base::buf::AlignedBuf;
use base::crc::{SEED, crc32c};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Words of a page of the map.
pub(crate) const WORDS: usize = 512;
/// Blocks covered by one page of the map.
pub(crate) const SPAN: u64 = WORDS as u64 * 64;
/// Pages of the map that one page of the index covers.
pub(crate) const INDEXED: u32 = 340;
const ENTRY: usize = 12;
/// Blocks covered by one page of the index.
#[cfg(test)]
pub(crate) const INDEX_SPAN: u64 = SPAN * INDEXED as u64;
/// Most pages of the index.
pub(crate) const INDEX_MAX: usize = 1000;

/// Place and checksum of a page of the map or its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockPtr {
    /// Device block; 0 for no place.
    pub(crate) block: u64,
    pub(crate) crc: u32,
}

#[derive(Debug)]
struct BitPage {
    bits: Box<[u64]>,
    at: BlockPtr,
    dirty: bool,
}

/// Pages of the map by number, found without a search: each freed block asks for one.
#[derive(Debug, Default)]
struct Pages {
    all: Vec<Option<BitPage>>,
    /// Number of pages there are.
    len: usize,
}

impl Pages {
    fn get(&self, number: u32) -> Option<&BitPage> {
        self.all.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut BitPage> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// The page, which `make` makes if there is none.
    fn get_or_insert(&mut self, number: u32, make: impl FnOnce() -> BitPage) -> &mut BitPage {
        let at = number as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        let slot = &mut self.all[at];
        self.len += usize::from(slot.is_none());
        slot.get_or_insert_with(make)
    }

    /// The pages there are, in order.
    fn iter(&self) -> impl Iterator<Item = (u32, &BitPage)> {
        (0..).zip(&self.all).filter_map(|(n, p)| Some((n, p.as_ref()?)))
    }
}

/// Map of used blocks of one ring; see the module.
#[derive(Debug, Default)]
pub(crate) struct UsedMap {
    pages: Pages,
    index: BTreeMap<u32, BlockPtr>,
    /// Runs that the running checkpoint has yet to enter: those that came into use, and a range of those it
    /// releases.
    enter: Vec<(u64, u32)>,
    leave: Range<usize>,
    /// Changed pages without a new place.
    dirty: BTreeSet<u32>,
    dirty_index: BTreeSet<u32>,
    /// Pages with a place from the running checkpoint, not yet encoded.
    todo: BTreeSet<u32>,
    todo_index: BTreeSet<u32>,
}

/// A page of the map, or of its index, by number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbered {
    Page(u32),
    Index(u32),
}

impl UsedMap {
    /// Bytes of memory.
    pub(crate) fn mem(&self) -> usize {
        const NODE: usize = 96;
        (self.pages.len + self.index.len() / 8) * (crate::layout::BLOCK_LEN + NODE)
            + self.pages.all.capacity() * size_of::<Option<BitPage>>()
    }

    /// Toggles the bits of `[first, first + n)`.
    pub(crate) fn toggle(&mut self, first: u64, n: u32) {
        let end = first + u64::from(n);
        let mut b = first;
        while b < end {
            let make = || BitPage { bits: vec![0; WORDS].into(), at: BlockPtr::default(), dirty: false };
            let c = self.pages.get_or_insert((b / SPAN) as u32, make);
            if !std::mem::replace(&mut c.dirty, true) {
                self.dirty.insert((b / SPAN) as u32);
            }
            let upto = ((b / SPAN + 1) * SPAN).min(end);
            while b < upto {
                let k = (64 - b % 64).min(upto - b);
                let mask = if k == 64 { u64::MAX } else { ((1 << k) - 1) << (b % 64) };
                if let Some(w) = c.bits.get_mut((b % SPAN / 64) as usize) {
                    *w ^= mask;
                }
                b += k;
            }
        }
    }

    /// Begins to enter the changes of a checkpoint: the runs that came into use, and those it releases, by number.
    pub(super) fn begin(&mut self, enter: Vec<(u64, u32)>, releases: usize) {
        self.enter = enter;
        self.leave = 0..releases;
    }

    /// Enters the next run, or a part of a long one. `release` has the runs that the checkpoint releases. False if all
    /// are entered.
    pub(super) fn enter_next(&mut self, release: &[(u64, u32)]) -> bool {
        let leaves = self.leave.next().and_then(|i| release.get(i).copied());
        let Some((first, n)) = leaves.or_else(|| self.enter.pop()) else { return false };
        let some = n.min(SPAN as u32);
        self.toggle(first, some);
        if some < n {
            self.enter.push((first + u64::from(some), n - some));
        }
        true
    }

    /// The next changed page without a new place, with its old one (0 for none).
    pub(super) fn next_unplaced(&mut self) -> Option<(Numbered, u64)> {
        if let Some(n) = self.dirty.pop_first() {
            return Some((Numbered::Page(n), self.pages.get(n).map_or(0, |c| c.at.block)));
        }
        let i = self.dirty_index.pop_first()?;
        Some((Numbered::Index(i), self.index.get(&i).map_or(0, |p| p.block)))
    }

    /// Gives a page of [`UsedMap::next_unplaced`] its new place.
    pub(super) fn place(&mut self, page: Numbered, block: u64) {
        match page {
            Numbered::Page(n) => {
                self.todo.insert(n);
                if let Some(c) = self.pages.get_mut(n) {
                    c.at.block = block;
                }
                if !self.todo_index.contains(&(n / INDEXED)) {
                    self.dirty_index.insert(n / INDEXED);
                }
            }
            Numbered::Index(i) => {
                self.todo_index.insert(i);
                self.index.insert(i, BlockPtr { block, crc: 0 });
            }
        }
    }

    /// Most blocks of the stored form after the next checkpoint.
    pub(crate) fn blocks_max(&self) -> u64 {
        (self.pages.len + self.index.len() + 8) as u64
    }

    /// Blocks of the stored form.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let all = self.pages.iter().map(|(_, c)| c.at.block).chain(self.index.values().map(|p| p.block));
        all.filter(|b| *b != 0)
    }

    /// Pages of the index, for the root.
    pub(crate) fn roots(&self) -> Vec<(u32, BlockPtr)> {
        self.index.iter().map(|(i, p)| (*i, *p)).collect()
    }

    /// Adds a page read at opening. If the number exists already, the page is another ring's and its bits are
    /// toggled. A page without a place will be stored.
    pub(crate) fn load(&mut self, number: u32, bits: Vec<u64>, at: BlockPtr) {
        match self.pages.get_mut(number) {
            Some(c) => {
                if !std::mem::replace(&mut c.dirty, true) {
                    self.dirty.insert(number);
                }
                c.bits.iter_mut().zip(bits).for_each(|(a, b)| *a ^= b);
            }
            None => {
                let dirty = at.block == 0;
                if dirty {
                    self.dirty.insert(number);
                }
                self.pages.get_or_insert(number, || BitPage { bits: bits.into(), at, dirty });
            }
        }
    }

    pub(crate) fn load_index(&mut self, number: u32, at: BlockPtr) {
        self.index.insert(number, at);
    }

    /// Encodes up to `n` pages of the map, then of its index. Returns false when all are done.
    pub(super) fn store(&mut self, n: usize, out: &mut Writeback) -> bool {
        for _ in 0..n {
            if let Some(number) = self.todo.pop_first() {
                let Some(c) = self.pages.get_mut(number) else { continue };
                let mut w = Vec::with_capacity(BLOCK_LEN);
                c.bits.iter().for_each(|b| w.u64(*b));
                c.at.crc = crc32c(SEED, &w);
                c.dirty = false;
                let block = c.at.block;
                put_block(out, block, &w);
                continue;
            }
            let Some(i) = self.todo_index.pop_first() else { return false };
            let mut w = Vec::with_capacity(BLOCK_LEN);
            for number in i * INDEXED..(i + 1) * INDEXED {
                let at = self.pages.get(number).map_or(BlockPtr::default(), |c| c.at);
                w.u64(at.block);
                w.u32(at.crc);
            }
            debug_assert_eq!(w.len(), INDEXED as usize * ENTRY);
            let crc = crc32c(SEED, &w);
            let Some(p) = self.index.get_mut(&i) else { continue };
            p.crc = crc;
            let block = p.block;
            put_block(out, block, &w);
        }
        !self.todo.is_empty() || !self.todo_index.is_empty()
    }
}

fn put_block(out: &mut Writeback, block: u64, data: &[u8]) {
    let mut buf = AlignedBuf::zeroed(BLOCK_LEN);
    if let Some(b) = buf.get_mut(..data.len()) {
        b.copy_from_slice(data);
    }
    out.put(smallvec::smallvec![(block, 1)], buf.freeze());
}

/// Entries of an index page: numbers and places of map pages.
pub(crate) fn decode_index(number: u32, buf: &[u8]) -> Result<Vec<(u32, BlockPtr)>, Malformed> {
    let mut r = Get::new(buf);
    let mut out = Vec::new();
    for i in 0..INDEXED {
        let at = BlockPtr { block: r.u64()?, crc: r.u32()? };
        if at.block != 0 {
            out.push((number * INDEXED + i, at));
        }
    }
    Ok(out)
}

/// Bits of a map page.
pub(crate) fn decode_bits(buf: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut r = Get::new(buf);
    (0..WORDS).map(|_| r.u64()).collect()
}

/// Checksum of a stored page of the map or index, without its padding.
pub(crate) fn crc_of(buf: &[u8], index: bool) -> u32 {
    let n = if index { INDEXED as usize * ENTRY } else { WORDS * 8 };
    crc32c(SEED, buf.get(..n).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn toggling_equals_a_set() {
        let mut rng = Rng::new(4);
        let mut u = UsedMap::default();
        let mut set = BTreeSet::new();
        for _ in 0..300 {
            let (first, n) = (rng.below(3 * SPAN), rng.below(200) as u32);
            u.toggle(first, n);
            for b in first..first + u64::from(n) {
                if !set.remove(&b) {
                    set.insert(b);
                }
            }
        }
        let mut got = BTreeSet::new();
        for (number, c) in u.pages.iter() {
            for (i, w) in (0u64..).zip(c.bits.iter()) {
                got.extend((0..64).filter(|k| w >> k & 1 != 0).map(|k| u64::from(number) * SPAN + i * 64 + k));
            }
        }
        assert_eq!(got, set);
    }
}
