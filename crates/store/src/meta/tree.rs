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

use super::Meta;
use super::key::{self, Key, Sep};
use super::map::LATE_LEN_MAX;
use super::page::{Body, Sum};
use super::seps::Seps;
use crate::codec::{Get, Malformed, Put};
use crate::layout::Layout;
use crate::superblock::BlobPtr;
use std::cmp::Ordering;

/// Slot number that stands for no page.
pub(crate) const NONE: u32 = u32::MAX;
/// Most kids of an inner page, unless a smaller limit is configured.
pub(crate) const KIDS_MAX: usize = 128;
/// Highest plausible level of a stored page.
pub(crate) const LEVEL_MAX: u8 = 16;
/// Number of leaves, the missing one included, that a scan of unknown length requests together.
const READ_AHEAD: usize = 8;
/// The same for a scan with a known number of entries.
const READ_AHEAD_MAX: usize = 16;
/// Most leaves that a change requests at once.
const NEED_AHEAD: usize = 256;
/// Bytes of memory of one kid.
const KID_BYTES: usize = 152;

/// Bytes of memory of one kid; at least the length of its stored form.
fn kid_bytes(sep: &Sep) -> usize {
    KID_BYTES + sep.rest.len()
}

/// Pointer to a page below.
#[derive(Clone, Debug)]
pub(crate) struct Kid {
    /// Slot of the page if it is in memory, else [`NONE`].
    pub(crate) page: u32,
    /// Place of its stored form, if it has one.
    pub(crate) loc: BlobPtr,
    /// Sums over its stored form, including the changes in `late`.
    pub(crate) sum: Sum,
    /// For a leaf of a block map: its changes since it was stored (`map::Late`).
    pub(crate) late: Box<[u8]>,
}

impl Kid {
    /// Pointer to a page in memory that was never stored.
    fn fresh(page: u32) -> Self {
        Self { page, loc: BlobPtr::default(), sum: Sum::default(), late: Box::default() }
    }
}

/// Content of an inner page.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) seps: Seps,
    pub(crate) kids: Vec<Kid>,
    /// Bytes of `late` of all kids.
    pub(crate) late: usize,
    pub(crate) pace: Pace,
}

/// Rate of changed chunks below a page between two checkpoints. It determines how many bytes of changes are
/// worth keeping in the page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    epoch: u32,
    now: u32,
    before: u32,
}

impl Pace {
    /// Counts a stored chunk. Returns the most bytes of changes that the page may keep beside its pointers.
    ///
    /// With `c` chunks per checkpoint and `b` bytes of changes, storing a chunk has two costs. Its share of
    /// this page includes `b / (4096 c)` blocks of changes. With 12.5 bytes a change and 128 chunks, it also
    /// costs `1600 / b` blocks of its own on average. The sum is least at `2560 sqrt(c)`, and flat around it.
    pub(crate) fn note(&mut self, epoch: u32) -> usize {
        if self.epoch != epoch {
            (self.before, self.now, self.epoch) = (self.now, 0, epoch);
        }
        self.now += 1;
        let c = self.now.max(self.before) as usize;
        (2560 * 2560 * c).isqrt().min(LATE_BYTES_MAX)
    }
}

/// Most bytes of changes beside the pointers of one page.
const LATE_BYTES_MAX: usize = 16 << 10;

impl Inner {
    pub(crate) fn mem(&self) -> usize {
        self.seps.iter().map(|s| kid_bytes(&s)).sum::<usize>() + self.late
    }

    /// Index of a page among the kids; `slot` is where it was last.
    pub(crate) fn index(&self, page: u32, slot: u32) -> Option<usize> {
        let is = |k: &Kid| k.page == page;
        match self.kids.get(slot as usize).filter(|k| is(k)) {
            Some(_) => Some(slot as usize),
            None => self.kids.iter().position(is),
        }
    }

    /// Number of kids whose separator is not above the key.
    pub(crate) fn upto(&self, key: &Key<'_>) -> usize {
        self.seps.upto(key)
    }

    /// Appends the stored form after kind and level:
    ///
    /// | inner page | form |
    /// | --- | --- |
    /// | kind | u8 |
    /// | level | u8 |
    /// | kids | var |
    /// | · hi | u64 |
    /// | · lo | u64 |
    /// | · rest | bytes |
    /// | · page | pointer |
    /// | · entries | var |
    /// | · bytes | var |
    /// | · omap bytes | var |
    /// | · changes | bytes if changes |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.kids.len() as u64);
        for (s, k) in self.seps.iter().zip(&self.kids) {
            w.u64(s.hi);
            w.u64(s.lo);
            w.bytes(&s.rest);
            k.loc.encode(w);
            w.var(k.sum.n);
            w.var(k.sum.bytes);
            w.var(k.sum.omap);
            if self.late > 0 {
                w.bytes(&k.late);
            }
        }
    }

    /// Decodes the page; `late` tells whether it has changes beside its pointers.
    pub(crate) fn decode(r: &mut Get<'_>, layout: &Layout, late: bool) -> Result<Self, Malformed> {
        let n = r.count(26)?;
        let mut out = Self { seps: Seps::with_capacity(n), kids: Vec::with_capacity(n), ..Self::default() };
        let mut last = None;
        for _ in 0..n {
            let sep = Sep { hi: r.u64()?, lo: r.u64()?, rest: r.bytes()? };
            if last.as_ref().is_some_and(|l| *l >= sep) {
                return r.bad();
            }
            let loc = BlobPtr::decode(r, layout)?;
            if loc.len == 0 {
                return r.bad();
            }
            let sum = Sum { n: r.var()?, bytes: r.var()?, omap: r.var()? };
            let late: Box<[u8]> = if late { r.bytes()?.as_ref().into() } else { Box::default() };
            if late.len() > LATE_LEN_MAX || !late.is_empty() && key::kind_of(sep.hi) != key::MAP {
                return r.bad();
            }
            out.late += late.len();
            out.seps.push(sep.clone());
            last = Some(sep);
            out.kids.push(Kid { page: NONE, loc, sum, late });
        }
        Ok(out)
    }
}

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

/// Position of a leaf: kid `at` of `inner`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafAt {
    pub(crate) inner: u32,
    pub(crate) at: usize,
}

/// Leaves of a span that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    All,
    /// Leaves that the span may cover in part.
    Ends,
    None,
}

/// A range of keys inside one kind and group: from `lo` on and below `end` (`None`: to the group's end).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) first: Key<'a>,
    pub(crate) end: Option<Key<'a>>,
}

/// Length of a scan, as far as it is known, and its read-ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// Entries after which it ends.
    pub(crate) entries: u64,
    /// Leaves to request at once although it may end before: others will follow it.
    pub(crate) leaves: usize,
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
        late: &[u8],
    ) -> Option<u32> {
        let Some(first) = loc.runs.first().map(|r| r.0) else {
            self.damage(format!("a page of shard {shard} was never stored and is not in memory"));
            return None;
        };
        match self.staging.take(first) {
            Some(s) if s.loc == *loc => match s.data {
                Ok(data) => match self.decode_page(&data, parent, shard, level, sep, late) {
                    Ok(id) => {
                        if let Some(p) = self.pages.get_mut(id as usize) {
                            p.loc = loc.clone();
                        }
                        let uniq = self.pages.get(id as usize).map_or(0, |p| p.uniq);
                        self.asking.placed.push((id, uniq));
                        return Some(id);
                    }
                    Err(e) => self.damage(format!("metadata page at block {first}: {e}")),
                },
                Err(why) => self.damage(format!("metadata page at block {first}: {why}")),
            },
            _ => self.asking.want.push(loc.clone()),
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
        let (loc, late, sep) = (k.loc.clone(), k.late.clone(), n.seps.get(at));
        let (shard, level) = (p.shard, p.level - 1);
        let id = self.bring(&loc, inner, shard, level, sep.as_ref(), &late)?;
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
        let n = self.asking.want.len();
        let found = self.seek(shard, key);
        self.asking.want.truncate(n);
        found
    }

    /// Adds a leaf that [`Meta::seek_exact`] did not find.
    pub(crate) fn insert_exact(&mut self, inner: u32, at: usize, key: &Key<'_>, body: Body, mem: usize) -> u32 {
        self.insert_kid(inner, at, key.sep(), key.hi, body, mem)
    }

    /// Index of a page among its parent's kids.
    fn index(&self, parent: u32, id: u32) -> Option<usize> {
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
        let Some(p) = self.pages.get(id as usize) else { return };
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
        let Some(n) = self.inner_mut(id) else { return };
        let kids = n.kids.split_off(at);
        let late = kids.iter().map(|k| k.late.len()).sum();
        n.late -= late;
        let right = Inner { seps: n.seps.split_off(at), kids, late, pace: n.pace };
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
        let less = n.seps.remove(at + gap).map_or(0, |s| kid_bytes(&s)) + kid.late.len();
        n.late -= kid.late.len();
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
            let Some(id) = self.pages.next_to_leave(self.writeback.written, &mut looks) else { return };
            let Some(p) = self.pages.get(id as usize) else { return };
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

    /// Position of the first leaf that may hold keys from `key` on. `None` if a page is missing, `Some(None)`
    /// if there is no such leaf.
    pub(crate) fn first_leaf(&mut self, shard: u8, key: &Key<'_>) -> Option<Option<LeafAt>> {
        let mut page = self.root(shard)?;
        loop {
            let p = self.pages.get(page as usize)?;
            let Body::Inner(n) = &p.body else { return None };
            let i = n.upto(key);
            if p.level > 1 {
                page = self.kid(page, i.saturating_sub(1))?;
                continue;
            }
            if i > 0 && n.seps.hi(i - 1) == Some(key.hi) {
                return Some(Some(LeafAt { inner: page, at: i - 1 }));
            }
            let place = LeafAt { inner: page, at: i };
            if i < n.kids.len() {
                let same = n.seps.hi(i) == Some(key.hi);
                return Some(same.then_some(place));
            }
            return self.next_inner(page, key.hi);
        }
    }

    /// First leaf behind all kids of an inner page of level 1, if it has kind and group `hi`.
    fn next_inner(&mut self, mut page: u32, hi: u64) -> Option<Option<LeafAt>> {
        loop {
            // Goes up until there is a kid to the right.
            let mut at;
            loop {
                let parent = self.pages.get(page as usize)?.parent;
                if parent == NONE {
                    return Some(None);
                }
                at = self.index(parent, page)? + 1;
                page = parent;
                let n = self.inner(page)?;
                if at < n.kids.len() {
                    if n.seps.hi(at).is_some_and(|s| s > hi) {
                        return Some(None);
                    }
                    break;
                }
            }
            // Goes down again on its left side.
            page = self.kid(page, at)?;
            while self.pages.get(page as usize)?.level > 1 {
                page = self.kid(page, 0)?;
            }
            let n = self.inner(page)?;
            match n.seps.hi(0) {
                Some(first) => return Some((first == hi).then_some(LeafAt { inner: page, at: 0 })),
                None => continue,
            }
        }
    }

    /// Position of the next leaf in the same group.
    pub(crate) fn next_leaf(&mut self, p: LeafAt) -> Option<Option<LeafAt>> {
        let n = self.inner(p.inner)?;
        let hi = n.seps.hi(p.at)?;
        match n.seps.hi(p.at + 1) {
            Some(next) => Some((next == hi).then_some(LeafAt { inner: p.inner, at: p.at + 1 })),
            None => self.next_inner(p.inner, hi),
        }
    }

    fn sep_at(&self, p: LeafAt) -> Option<Sep> {
        self.inner(p.inner)?.seps.get(p.at)
    }

    pub(super) fn ends_before(&self, span: &Span<'_>, p: LeafAt) -> bool {
        match (&span.end, self.sep_at(p)) {
            (Some(end), Some(s)) => end.cmp_sep(&s) != Ordering::Less,
            _ => false,
        }
    }

    /// Brings the pages that point to the leaves of a span, and the leaves selected by `leaves`. Returns true
    /// if all are in memory.
    pub(crate) fn need(&mut self, shard: u8, span: &Span<'_>, leaves: Leaves) -> bool {
        // Many at a time, because the walk along the leaves begins anew after each missing page.
        if let Leaves::None = leaves {
            let Some(root) = self.root(shard) else { return false };
            if !self.need_inner(root, span, &mut 0) {
                return false;
            }
        }
        let Some(mut place) = self.first_leaf(shard, &span.first) else { return false };
        let mut ok = true;
        let mut ahead = 0;
        while let Some(p) = place {
            if self.ends_before(span, p) {
                break;
            }
            self.visits += 1;
            let Some(next) = self.next_leaf(p) else { return false };
            let wanted = match leaves {
                Leaves::All => true,
                Leaves::Ends => !self.covered(span, p, next),
                Leaves::None => false,
            };
            if wanted && self.kid(p.inner, p.at).is_none() {
                ok = false;
                ahead += 1;
                if ahead >= NEED_AHEAD {
                    return false;
                }
            }
            place = next;
        }
        ok
    }

    /// Brings the inner pages below `page` that point to leaves of a span; `ahead` counts those requested.
    fn need_inner(&mut self, page: u32, span: &Span<'_>, ahead: &mut usize) -> bool {
        let Some(p) = self.pages.get(page as usize) else { return false };
        let (level, Body::Inner(n)) = (p.level, &p.body) else { return false };
        if level < 2 {
            return true;
        }
        let from = n.upto(&span.first).saturating_sub(1);
        let mut to = from + 1;
        while n.seps.hi(to).is_some_and(|hi| hi <= span.first.hi)
            && span.end.as_ref().is_none_or(|end| n.seps.get(to).is_some_and(|s| end.cmp_sep(&s) == Ordering::Less))
        {
            to += 1;
        }
        let mut ok = true;
        for at in from..to {
            self.visits += 1;
            match self.kid(page, at) {
                Some(kid) => ok &= self.need_inner(kid, span, ahead),
                None => {
                    ok = false;
                    *ahead += 1;
                }
            }
            if *ahead >= NEED_AHEAD {
                return false;
            }
        }
        ok
    }

    /// True if the span covers all keys that kid `p` can hold.
    pub(super) fn covered(&self, span: &Span<'_>, p: LeafAt, next: Option<LeafAt>) -> bool {
        let first = match span.first.rest {
            super::key::Rest::None if span.first.lo == 0 => true,
            _ => self.sep_at(p).is_some_and(|s| span.first.cmp_sep(&s) != Ordering::Less),
        };
        let last = match &span.end {
            None => true,
            Some(end) => next.and_then(|n| self.sep_at(n)).is_some_and(|s| end.cmp_sep(&s) != Ordering::Greater),
        };
        first && last
    }

    /// Calls `f` for every leaf of a span in order until it returns false. `None` if a leaf is missing; some
    /// leaves behind it are then requested too.
    pub(crate) fn scan(&mut self, shard: u8, span: &Span<'_>, f: impl FnMut(&mut Self, u32) -> bool) -> Option<()> {
        self.scan_some(shard, span, None, f)
    }

    /// As [`Meta::scan`], but requests only leaves that it reaches, and those of [`Ahead::leaves`].
    pub(crate) fn scan_some(
        &mut self,
        shard: u8,
        span: &Span<'_>,
        ahead: Option<Ahead>,
        mut f: impl FnMut(&mut Self, u32) -> bool,
    ) -> Option<()> {
        let mut ahead = ahead;
        let mut place = self.first_leaf(shard, &span.first)?;
        while let Some(p) = place {
            if self.ends_before(span, p) {
                break;
            }
            match self.kid(p.inner, p.at) {
                Some(leaf) => {
                    if !f(self, leaf) {
                        break;
                    }
                    if let Some(a) = &mut ahead {
                        a.entries = a.entries.saturating_sub(self.page_sum(leaf).n);
                    }
                }
                None => {
                    self.request_behind(span, p, ahead);
                    return None;
                }
            }
            place = self.next_leaf(p)?;
        }
        Some(())
    }

    /// Requests leaves after a missing one: as many as hold the next entries, or a fixed number. Entries of the missing
    /// leaf do not count, because a scan may begin at its end.
    fn request_behind(&mut self, span: &Span<'_>, missing: LeafAt, ahead: Option<Ahead>) {
        let most = ahead.map_or(READ_AHEAD, |a| a.leaves.max(READ_AHEAD_MAX));
        let sure = ahead.map_or(READ_AHEAD, |a| a.leaves);
        let mut left = ahead.map_or(0, |a| a.entries);
        let mut place = missing;
        for n in 1..most {
            if n >= sure && left == 0 {
                return;
            }
            let Some(Some(next)) = self.next_leaf(place) else { return };
            if self.ends_before(span, next) {
                return;
            }
            let Some(kid) = self.inner(next.inner).and_then(|i| i.kids.get(next.at)) else { return };
            let entries = if kid.page == NONE { kid.sum.n } else { self.page_sum(kid.page).n };
            left = left.saturating_sub(entries);
            self.kid(next.inner, next.at);
            place = next;
        }
    }

    /// Drops every leaf that a span covers completely, without reading it. Returns their sums; partly covered
    /// leaves are left to the caller. `stand_in` makes an empty leaf in place of the first one, until the end
    /// of the transaction.
    pub(crate) fn drop_covered(&mut self, shard: u8, span: &Span<'_>, stand_in: Option<fn() -> Body>) -> Sum {
        let mut gone = Sum::default();
        let mut stand_in = stand_in;
        // Each pass starts at the first leaf, because dropping may remove inner pages too.
        let mut skip: Option<Sep> = None;
        loop {
            let mut place = match self.first_leaf(shard, &span.first) {
                Some(p) => p,
                None => {
                    self.missed();
                    return gone;
                }
            };
            let mut found = None;
            while let Some(p) = place {
                if self.ends_before(span, p) {
                    break;
                }
                let Some(next) = self.next_leaf(p) else {
                    self.missed();
                    return gone;
                };
                let passed = skip.as_ref().is_some_and(|k| self.sep_at(p).is_some_and(|s| s <= *k));
                if !passed {
                    if self.covered(span, p, next) {
                        found = Some(p);
                        break;
                    }
                    skip = self.sep_at(p);
                }
                place = next;
            }
            let Some(p) = found else { return gone };
            let end = if stand_in.is_some() { p.at + 1 } else { self.covered_to(span, p) };
            for at in p.at..end {
                if let Some(k) = self.inner(p.inner).and_then(|n| n.kids.get(at)) {
                    gone.add(if k.page == NONE { k.sum } else { self.page_sum(k.page) });
                }
            }
            if let (Some(make), Some(sep)) = (stand_in.take(), self.sep_at(p)) {
                self.touch(p.inner);
                self.replace_kid(p, sep.hi, make());
                skip = Some(sep);
                continue;
            }
            self.remove_kids(p.inner, p.at..end);
        }
    }

    /// End of the run of kids of one inner page, from leaf `p` on, that a span covers completely.
    fn covered_to(&mut self, span: &Span<'_>, p: LeafAt) -> usize {
        let mut end = p.at + 1;
        loop {
            self.visits += 1;
            let q = LeafAt { inner: p.inner, at: end };
            let group = |i: usize| self.inner(p.inner).and_then(|n| n.seps.hi(i));
            let (here, next) = (group(end), group(end + 1));
            // The last kid of the page is left to the next pass: what follows it is in another page.
            if here.is_none() || here != group(p.at) || next.is_none() || self.ends_before(span, q) {
                return end;
            }
            let next = (next == here).then_some(LeafAt { inner: p.inner, at: end + 1 });
            if !self.covered(span, q, next) {
                return end;
            }
            end += 1;
        }
    }

    /// Removes neighbouring leaves of a page of level 1 and frees their stored forms.
    fn remove_kids(&mut self, inner: u32, run: std::ops::Range<usize>) {
        self.touch(inner);
        self.steps += run.len() as u64;
        let Some(n) = self.inner_mut(inner).filter(|n| run.end <= n.kids.len()) else { return };
        let kids: Vec<Kid> = n.kids.drain(run.clone()).collect();
        let mut less = 0;
        for (at, kid) in run.zip(&kids).rev() {
            n.late -= kid.late.len();
            less += n.seps.remove(at).map_or(0, |s| kid_bytes(&s)) + kid.late.len();
        }
        let empty = n.kids.is_empty();
        self.pages.grow(inner, -(less as isize));
        for kid in kids {
            self.alloc.free_page(&kid.loc);
            if kid.page != NONE {
                self.drop_page(kid.page);
            }
        }
        if empty {
            self.note_empty(inner);
        }
    }

    /// Replaces a leaf by an empty one.
    fn replace_kid(&mut self, p: LeafAt, hi: u64, body: Body) {
        let Some(kid) = self.inner(p.inner).and_then(|n| n.kids.get(p.at)).cloned() else { return };
        self.alloc.free_page(&kid.loc);
        if kid.page != NONE {
            self.drop_page(kid.page);
        }
        let shard = self.pages.get(p.inner as usize).map_or(0, |p| p.shard);
        let id = self.pages.add(p.inner, shard, 0, hi, body, 0);
        if let Some(k) = self.inner_mut(p.inner).and_then(|n| n.kids.get_mut(p.at)) {
            *k = Kid::fresh(id);
        }
        if let Some(n) = self.inner_mut(p.inner) {
            n.late -= kid.late.len();
        }
        self.pages.grow(p.inner, -(kid.late.len() as isize));
        self.touch(id);
        self.note_empty(id);
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
