//! The tree of one shard: inner pages with separators and pointers, leaves of every kind below, in the order of [`key`].
//!
//! A leaf holds keys of one group only, so its range is known without reading it. Missing pages are noted in
//! the question, and the caller repeats it when they have been read.
//!
//! Invariants:
//!  1. Separators of an inner page ascend. A kid holds only keys from its own separator on and below the next
//!     one. Above level 1, the first separator is at or below every key of the page.
//!  2. The set of kids of a page that the running checkpoint has yet to write does not change: such a page, and
//!     all below it, is stored first. Splits above the lowest inner level are delayed until that is cheap;
//!     pages may be too long meanwhile.
//!  3. Inner pages above level 1 are never empty.
//!
//! Tests: the check of `tests/deep.rs` (1), `tests/crash.rs` (2), an assertion (3).

use super::Meta;
use super::inner::{Inner, Kid, kid_bytes};
use super::key::{Key, Sep};
use super::page::Body;
use super::seps::Seps;
use crate::superblock::BlobPtr;
use base::unreached;

/// Slot number that stands for no page.
pub(crate) const NONE: u32 = u32::MAX;
/// Most kids of an inner page, unless a smaller limit is configured.
pub(crate) const KIDS_MAX: usize = 128;
/// Highest plausible level of a stored page.
pub(crate) const LEVEL_MAX: u8 = 16;
/// Root of a shard's tree.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    /// Slot of the root page if it is in memory, else [`NONE`].
    pub(crate) page: u32,
    /// Place of the stored root page; without runs for an empty tree.
    pub(crate) loc: BlobPtr,
    pub(crate) level: u8,
    /// Root page and level in the running checkpoint, or else in the newest one.
    pub(crate) stored: (BlobPtr, u8),
}

impl Shard {
    /// Root of a stored tree.
    pub(crate) fn stored(loc: BlobPtr, level: u8) -> Self {
        Self { page: NONE, loc: loc.clone(), level, stored: (loc, level) }
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self::stored(BlobPtr::default(), 1)
    }
}

/// Result of a search for a key.
#[derive(Debug)]
pub(crate) enum Seek {
    /// A page on the way is not in memory; the question has noted it.
    Missing,
    /// No leaf holds keys of the group at this position. A new one would become kid `at` of `inner`, whose
    /// lower bound is `bound`.
    Absent {
        inner: u32,
        at: usize,
        bound: Option<Sep>,
    },
    Leaf(u32),
}

/// Result of a search for the leaf with exactly this key.
#[derive(Debug)]
pub(crate) enum Exact {
    Missing,
    Absent { inner: u32, at: usize },
    Leaf(u32),
}

impl Meta {
    pub(crate) fn inner(&self, id: u32) -> Option<&Inner> {
        match self.pages.get(id as usize).map(|p| &p.body) {
            Some(Body::Inner(n)) => Some(n),
            _ => None,
        }
    }

    pub(crate) fn inner_mut(&mut self, id: u32) -> Option<&mut Inner> {
        match self.pages.get_mut(id as usize).map(|p| &mut p.body) {
            Some(Body::Inner(n)) => Some(n),
            _ => None,
        }
    }

    /// Takes a page that was read, or notes it as missing.
    fn bring(
        &mut self,
        loc: &BlobPtr,
        parent: u32,
        shard: u8,
        level: u8,
        sep: Option<&Sep>,
        delta: &[u8],
    ) -> Option<u32> {
        let Some(first) = loc.runs.first().map(|r| r.0) else {
            self.damage(format!("a page of shard {shard} was never stored and is not in memory"));
            return None;
        };
        match self.staging.take(first) {
            Some(s) if s.loc == *loc => match s.data {
                Ok(data) => match self.decode_page(&data, parent, shard, level, sep, delta) {
                    Ok(id) => {
                        if let Some(p) = self.pages.get_mut(id as usize) {
                            p.loc = loc.clone();
                        }
                        let uniq = self.pages.get(id as usize).map_or(0, |p| p.uniq);
                        self.asking.note_placed(id, uniq);
                        return Some(id);
                    }
                    Err(e) => self.damage(format!("metadata page at block {first}: {e}")),
                },
                Err(why) => self.damage(format!("metadata page at block {first}: {why}")),
            },
            _ => self.asking.note_missing(loc.clone()),
        }
        None
    }

    /// Root page of a shard.
    pub(crate) fn root(&mut self, shard: u8) -> Option<u32> {
        let s = self.shards.get(usize::from(shard))?;
        if s.page != NONE {
            return Some(s.page);
        }
        let (loc, level) = (s.loc.clone(), s.level);
        let id = if loc.runs.is_empty() {
            self.pages.add(NONE, shard, 1, 0, Body::Inner(Inner::default()), 0)
        } else {
            self.bring(&loc, NONE, shard, level, None, &[])?
        };
        if let Some(s) = self.shards.get_mut(usize::from(shard)) {
            s.page = id;
        }
        Some(id)
    }

    /// Kid `at` of an inner page.
    pub(crate) fn kid(&mut self, inner: u32, at: usize) -> Option<u32> {
        let p = self.pages.get(inner as usize)?;
        let Body::Inner(n) = &p.body else { return None };
        let k = n.kids.get(at)?;
        if k.page != NONE {
            let id = k.page;
            if let Some(p) = self.pages.get_mut(id as usize) {
                p.used = true;
            }
            return Some(id);
        }
        let (loc, delta, sep) = (k.loc.clone(), k.delta.clone(), n.seps.get(at));
        let (shard, level) = (p.shard, p.level - 1);
        let id = self.bring(&loc, inner, shard, level, sep.as_ref(), &delta)?;
        if let Some(p) = self.pages.get_mut(id as usize) {
            p.slot = at as u32;
        }
        if let Some(k) = self.inner_mut(inner).and_then(|n| n.kids.get_mut(at)) {
            k.page = id;
        }
        if self.salvage.as_mut().is_some_and(|s| std::mem::take(&mut s.skipped)) {
            // The leaf is to be stored without the skipped objects.
            self.touch(id);
            if matches!(self.pages.get(id as usize).map(|p| &p.body), Some(Body::Objects { ids }) if ids.is_empty()) {
                self.note_empty(id);
            }
        }
        Some(id)
    }

    pub(crate) fn seek(&mut self, shard: u8, key: &Key<'_>) -> Seek {
        let Some(mut page) = self.root(shard) else { return Seek::Missing };
        let mut bound = None;
        loop {
            let Some(p) = self.pages.get(page as usize) else { return Seek::Missing };
            let Body::Inner(n) = &p.body else { return Seek::Missing };
            let i = n.upto(key);
            if p.level == 1 {
                let same = i > 0 && n.seps.hi(i - 1) == Some(key.hi);
                if !same {
                    return Seek::Absent { inner: page, at: i, bound };
                }
                return self.kid(page, i - 1).map_or(Seek::Missing, Seek::Leaf);
            }
            if i > 0 {
                bound = n.seps.get(i - 1);
            }
            match self.kid(page, i.saturating_sub(1)) {
                Some(k) => page = k,
                None => return Seek::Missing,
            }
        }
    }

    /// Leaf whose separator is exactly this key, for kinds whose leaves each have their own position.
    pub(crate) fn seek_exact(&mut self, shard: u8, hi: u64, lo: u64) -> Exact {
        let key = Key::plain(hi, lo);
        let Some(mut page) = self.root(shard) else { return Exact::Missing };
        loop {
            let Some(p) = self.pages.get(page as usize) else { return Exact::Missing };
            let Body::Inner(n) = &p.body else { return Exact::Missing };
            let i = n.upto(&key);
            if p.level == 1 {
                if i == 0 || n.seps.hi_lo(i - 1) != Some((hi, lo)) {
                    return Exact::Absent { inner: page, at: i };
                }
                return self.kid(page, i - 1).map_or(Exact::Missing, Exact::Leaf);
            }
            match self.kid(page, i.saturating_sub(1)) {
                Some(k) => page = k,
                None => return Exact::Missing,
            }
        }
    }

    /// Like [`Meta::seek`], but without noting missing pages.
    pub(crate) fn seek_quietly(&mut self, shard: u8, key: &Key<'_>) -> Seek {
        let n = self.asking.missing();
        let found = self.seek(shard, key);
        self.asking.forget_missing(n);
        found
    }

    /// Adds a leaf that [`Meta::seek_exact`] did not find.
    pub(crate) fn insert_exact(&mut self, inner: u32, at: usize, key: &Key<'_>, body: Body, mem: usize) -> u32 {
        self.insert_kid(inner, at, key.sep(), key.hi, body, mem)
    }

    /// Index of a page among its parent's kids.
    pub(super) fn index(&self, parent: u32, id: u32) -> Option<usize> {
        self.inner(parent)?.index(id, self.pages.get(id as usize)?.slot)
    }

    /// Adds a leaf for keys from `key` on, where [`Meta::seek`] found none.
    pub(crate) fn insert_first_leaf(
        &mut self,
        inner: u32,
        at: usize,
        bound: Option<Sep>,
        key: &Key<'_>,
        body: Body,
        mem: usize,
    ) -> u32 {
        let group = Sep::new(key.hi, 0);
        let sep = bound.filter(|b| *b > group).unwrap_or(group);
        self.insert_kid(inner, at, sep, key.hi, body, mem)
    }

    /// Adds a leaf behind another one.
    pub(crate) fn insert_leaf_after(&mut self, leaf: u32, sep: Sep, body: Body, mem: usize) -> u32 {
        let parent = self.pages.get(leaf as usize).map_or(NONE, |p| p.parent);
        let at = self.index(parent, leaf).map_or(0, |i| i + 1);
        let hi = sep.hi;
        self.insert_kid(parent, at, sep, hi, body, mem)
    }

    fn insert_kid(&mut self, inner: u32, at: usize, sep: Sep, hi: u64, body: Body, mem: usize) -> u32 {
        self.touch(inner);
        let shard = self.pages.get(inner as usize).map_or(0, |p| p.shard);
        let id = self.pages.add(inner, shard, 0, hi, body, mem);
        let more = kid_bytes(&sep) as isize;
        if let Some(n) = self.inner_mut(inner) {
            let at = at.min(n.kids.len());
            n.kids.insert(at, Kid::fresh(id));
            n.seps.insert(at, sep);
        }
        self.pages.grow(inner, more);
        self.touch(id);
        self.split_inner(inner);
        id
    }

    /// Splits an inner page that is too long, and pages above it that become too long.
    fn split_inner(&mut self, id: u32) {
        let Some(n) = self.inner(id) else { return };
        let len = n.kids.len();
        if len <= self.kids_max {
            return;
        }
        let Some(p) = self.pages.get(id as usize) else { return unreached("the page is in memory") };
        let (mut parent, shard, level) = (p.parent, p.shard, p.level);
        if level > 1 && self.pending(id) || parent != NONE && self.pending(parent) {
            return;
        }
        self.touch(id);
        if parent == NONE {
            parent = self.add_root(id, shard, level + 1);
        }
        self.touch(parent);
        let Some(index) = self.index(parent, id) else { return };
        // Keys usually arrive in order, so a split of the last page leaves a full part behind.
        let last = self.inner(parent).is_some_and(|n| n.kids.len() == index + 1);
        let at = if last { len * 7 / 8 } else { len / 2 };
        let begins = self.inner(id).and_then(|n| n.seps.get(0));
        let Some(n) = self.inner_mut(id) else { return unreached("the page is in memory") };
        let kids = n.kids.split_off(at);
        let delta = kids.iter().map(|k| k.delta.len()).sum();
        n.delta -= delta;
        let right = Inner { seps: n.seps.split_off(at), kids, delta, pace: n.pace };
        let Some(sep) = right.seps.get(0) else { return };
        let mem = right.mem();
        let moved: Vec<u32> = right.kids.iter().map(|k| k.page).filter(|k| *k != NONE).collect();
        self.pages.grow(id, -(mem as isize));
        let new = self.pages.add(parent, shard, level, 0, Body::Inner(right), mem);
        for k in &moved {
            if let Some(p) = self.pages.get_mut(*k as usize) {
                p.parent = new;
            }
        }
        if let Some(p) = self.pages.get_mut(id as usize) {
            p.loaded -= moved.len() as u32;
        }
        if let Some(p) = self.pages.get_mut(new as usize) {
            p.loaded = moved.len() as u32;
        }
        let more = kid_bytes(&sep) as isize;
        if let Some(n) = self.inner_mut(parent) {
            // Stores of earlier versions may have a first separator above keys of its kid.
            if let Some(b) = begins.filter(|_| index == 0 && n.seps.get(0).is_some_and(|s| s >= sep)) {
                n.seps.remove(0);
                n.seps.insert(0, b);
            }
            n.kids.insert(index + 1, Kid::fresh(new));
            n.seps.insert(index + 1, sep);
        }
        self.pages.grow(parent, more);
        self.touch(new);
        self.split_inner(parent);
    }

    /// Puts a new root above the page `id`, which was the root.
    fn add_root(&mut self, id: u32, shard: u8, level: u8) -> u32 {
        let loc = self.pages.get(id as usize).map(|p| p.loc.clone()).unwrap_or_default();
        let kid = Kid { loc, ..Kid::fresh(id) };
        let mut seps = Seps::default();
        seps.push(Sep::default());
        let root = Inner { seps, kids: vec![kid], ..Inner::default() };
        let mem = root.mem();
        let parent = self.pages.add(NONE, shard, level, 0, Body::Inner(root), mem);
        if let Some(p) = self.pages.get_mut(parent as usize) {
            p.loaded = 1;
        }
        if let Some(p) = self.pages.get_mut(id as usize) {
            p.parent = parent;
        }
        if let Some(s) = self.shards.get_mut(usize::from(shard)) {
            (s.page, s.level) = (parent, level);
            s.loc = BlobPtr::default();
        }
        self.levels = self.levels.max(level);
        parent
    }

    /// True if no leaf of its group follows a leaf in its inner page.
    pub(crate) fn last_of_group(&self, leaf: u32) -> bool {
        let Some(p) = self.pages.get(leaf as usize) else { return true };
        let Some(at) = self.index(p.parent, leaf) else { return true };
        self.inner(p.parent).is_none_or(|n| n.seps.hi(at + 1) != Some(p.hi))
    }

    /// Drops a leaf that is in memory.
    pub(crate) fn remove_leaf(&mut self, id: u32) {
        let parent = self.pages.get(id as usize).map_or(NONE, |p| p.parent);
        if let Some(at) = self.index(parent, id) {
            self.remove_kid(parent, at);
        }
    }

    /// Removes a kid and frees its stored form.
    pub(crate) fn remove_kid(&mut self, inner: u32, at: usize) {
        self.touch(inner);
        let above = self.level(inner).is_some_and(|l| l > 1);
        self.steps += 1;
        let Some(n) = self.inner_mut(inner) else { return };
        if at >= n.kids.len() {
            return;
        }
        let kid = n.kids.remove(at);
        // Keys below the first separator belong to the first kid. Above leaves, the next kid takes over the
        // removed one's lower bound.
        let gap = usize::from(at == 0 && above && !n.kids.is_empty());
        let less = n.seps.remove(at + gap).map_or(0, |s| kid_bytes(&s)) + kid.delta.len();
        n.delta -= kid.delta.len();
        let empty = n.kids.is_empty();
        self.pages.grow(inner, -(less as isize));
        self.alloc.free_page(&kid.loc);
        if kid.page != NONE {
            self.drop_page(kid.page);
        }
        if empty {
            self.note_empty(inner);
        }
    }

    /// Remembers a page that has become empty. It is removed at the end of the transaction. Until then searches
    /// find it, as they did when the transaction's pages were brought.
    pub(crate) fn note_empty(&mut self, id: u32) {
        if let Some(p) = self.pages.get(id as usize) {
            self.empty.push((id, p.uniq));
        }
    }

    /// Removes the remembered pages that are still empty.
    pub(crate) fn prune(&mut self) {
        while let Some((id, uniq)) = self.empty.pop() {
            let Some(p) = self.pages.get(id as usize).filter(|p| p.uniq == uniq) else { continue };
            let parent = p.parent;
            let empty = match &p.body {
                Body::Inner(n) => n.kids.is_empty(),
                Body::Objects { ids } => ids.is_empty(),
                Body::Omap { leaf } => leaf.is_empty(),
                Body::Log { entries } => entries.is_empty(),
                Body::Map { .. } | Body::Refs { .. } | Body::Coll { .. } => false,
            };
            if !empty || parent == NONE {
                continue;
            }
            debug_assert!(p.level < 2, "an inner page of level {} has lost all kids", p.level);
            // An empty inner page stays if its removal is not cheap now. It is used again when keys of its
            // range arrive.
            let inner = matches!(p.body, Body::Inner(_));
            if inner && (self.pending(parent) || self.inner(parent).is_none_or(|n| n.kids.len() < 2)) {
                continue;
            }
            if let Some(at) = self.index(parent, id) {
                self.remove_kid(parent, at);
            }
        }
    }

    /// Removes a page from memory and from its parent's count. The caller handles its pointer.
    pub(super) fn drop_page(&mut self, id: u32) {
        let Some(p) = self.pages.remove(id) else { return };
        if let Body::Objects { .. } = p.body {
            self.forget_body(&p.body);
        }
        if let Some(c) = self.tails.get(&p.hi)
            && *c == id
        {
            self.tails.remove(&p.hi);
        }
    }

    /// Evicts clean pages until memory is within `budget`, roughly the least recently used first.
    pub(crate) fn evict(&mut self, budget: usize) {
        if self.pages.mem() <= budget || self.pages.is_empty() {
            return;
        }
        // Evicts slightly more, so that the next page finds room.
        let aim = budget - budget / 64;
        let mut looks = self.pages.looks();
        while self.pages.mem() > aim {
            // The write of the page may be in flight.
            let Some(id) = self.pages.next_to_leave(self.writeback.written_upto(), &mut looks) else { return };
            let Some(p) = self.pages.get(id as usize) else { return unreached("the page is in memory") };
            let (parent, shard) = (p.parent, p.shard);
            if parent == NONE {
                let loc = p.loc.clone();
                if let Some(s) = self.shards.get_mut(usize::from(shard)) {
                    (s.page, s.loc) = (NONE, loc);
                }
            } else if let Some(k) = self.inner_mut(parent).and_then(|n| n.kids.iter_mut().find(|k| k.page == id)) {
                k.page = NONE;
            }
            self.drop_page(id);
        }
    }

    /// Reports that a page which `need` should have brought is missing. This is a bug, found before it does
    /// harm.
    pub(crate) fn missed(&mut self) {
        self.damage("a page that a change needs is not in memory".to_owned());
    }

    pub(crate) fn damage(&mut self, what: String) {
        if self.bad.is_none() {
            self.bad = Some(what);
        }
    }
}
