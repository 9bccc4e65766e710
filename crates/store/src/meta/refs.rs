//! Reference counts of shared blocks, counted beyond the first reference, in leaves of 512 blocks each.
//! Unshared blocks cost nothing; only blocks of objects marked as shared are looked up.

use super::Meta;
use super::key::{self, Key};
use super::map::is_stored;
use super::page::Body;
use super::tree::Exact;
use crate::codec::{Get, Malformed, Put};
use crate::layout::Layout;
use base::planted::{Bug, acts};

/// Blocks of one leaf.
pub(crate) const RANGE: u64 = 512;

pub(super) fn encode(range: u64, counts: &[u32], w: &mut Vec<u8>) {
    w.var(range);
    w.var(counts.iter().filter(|c| **c > 0).count() as u64);
    let mut next = 0;
    for (i, c) in (0u64..).zip(counts).filter(|(_, c)| **c > 0) {
        w.var(i - next);
        w.var(u64::from(*c));
        next = i + 1;
    }
}

pub(super) fn decode(r: &mut Get<'_>, layout: &Layout) -> Result<(u64, Box<[u32]>), Malformed> {
    let range = r.var()?;
    if range > layout.space_end / RANGE {
        return r.bad();
    }
    let mut counts = vec![0; RANGE as usize].into_boxed_slice();
    let mut next = 0u64;
    for _ in 0..r.count(2)? {
        let (skip, n) = (r.var()?, r.var()?);
        let at = next.saturating_add(skip);
        match counts.get_mut(at as usize) {
            Some(c) if n > 0 && n <= u64::from(u32::MAX) && at < RANGE => *c = n as u32,
            _ => return r.bad(),
        }
        next = at + 1;
    }
    Ok((range, counts))
}

fn hi() -> u64 {
    key::hi(key::REFS, 0)
}

impl Meta {
    fn refs_leaf(&mut self, shard: u8, block: u64) -> Exact {
        self.seek_exact(shard, hi(), block / RANGE)
    }

    /// Brings the page for counting a block's references.
    pub(crate) fn need_refs(&mut self, shard: u8, block: u64) -> bool {
        !matches!(self.refs_leaf(shard, block), Exact::Missing)
    }

    /// Brings the pages for counting the references of many blocks of one shard.
    pub(crate) fn need_all_refs(&mut self, shard: u8, mut blocks: Vec<u64>) -> bool {
        blocks.retain(|b| is_stored(*b));
        blocks.sort_unstable();
        blocks.dedup_by_key(|b| *b / RANGE);
        self.asking.will_touch(2 * blocks.len() as u64);
        blocks.into_iter().fold(true, |ok, b| ok & self.need_refs(shard, b))
    }

    /// Adds a reference to a block.
    pub(crate) fn ref_inc(&mut self, shard: u8, block: u64) {
        if !is_stored(block) {
            return;
        }
        if acts(Bug::StoreForgetReference) && block.is_multiple_of(7) {
            return;
        }
        self.steps += 1;
        let range = block / RANGE;
        let leaf = match self.refs_leaf(shard, block) {
            Exact::Missing => return self.missed(),
            Exact::Leaf(l) => l,
            Exact::Absent { inner, at } => {
                let body = Body::Refs { range, counts: vec![0; RANGE as usize].into() };
                self.insert_exact(inner, at, &Key::plain(hi(), range), body, RANGE as usize * 4)
            }
        };
        self.touch(leaf);
        if let Some(Body::Refs { counts, .. }) = self.pages.get_mut(leaf as usize).map(|p| &mut p.body)
            && let Some(c) = counts.get_mut((block % RANGE) as usize)
        {
            *c = c.saturating_add(1);
        }
    }

    /// Removes a reference from a block. Returns false if it was the last one.
    pub(crate) fn ref_dec(&mut self, shard: u8, block: u64) -> bool {
        self.steps += 1;
        let leaf = match self.refs_leaf(shard, block) {
            Exact::Missing => {
                self.missed();
                return true;
            }
            Exact::Absent { .. } => return false,
            Exact::Leaf(l) => l,
        };
        if self.ref_count(leaf, block) == 0 {
            return false;
        }
        self.touch(leaf);
        let mut empty = false;
        if let Some(Body::Refs { counts, .. }) = self.pages.get_mut(leaf as usize).map(|p| &mut p.body) {
            if let Some(c) = counts.get_mut((block % RANGE) as usize) {
                *c -= 1;
            }
            empty = counts.iter().all(|c| *c == 0);
        }
        if empty {
            self.remove_leaf(leaf);
        }
        true
    }

    fn ref_count(&self, leaf: u32, block: u64) -> u32 {
        match self.pages.get(leaf as usize).map(|p| &p.body) {
            Some(Body::Refs { counts, .. }) => counts.get((block % RANGE) as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Removes one reference from a block of an object, and frees the block after the last one.
    pub(crate) fn unref(&mut self, shard: u8, shared: bool, phys: u64) {
        if !is_stored(phys) {
            return;
        }
        if shared && self.ref_dec(shard, phys) {
            return;
        }
        self.alloc.free_data(phys);
    }
}
