//! Ranges of the tree: what a question needs of them, walks over them, and their removal at once.
//!
//! Invariant: a range is answered for only if all pages that it may concern are in memory; else they are requested, some
//! of those behind the missing one together with it.
//!
//! Tests: `tests/memory.rs`, `tests/model.rs`.

use super::Meta;
use super::inner::{Kid, kid_bytes};
use super::key::{Key, Sep};
use super::page::{Body, Sum};
use super::tree::NONE;
use std::cmp::Ordering;

/// Number of leaves, the missing one included, that a scan of unknown length requests together.
const READ_AHEAD: usize = 8;
/// The same for a scan with a known number of entries.
const READ_AHEAD_MAX: usize = 16;
/// Most leaves that a change requests at once.
const NEED_AHEAD: usize = 256;
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
            n.delta -= kid.delta.len();
            less += n.seps.remove(at).map_or(0, |s| kid_bytes(&s)) + kid.delta.len();
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
            n.delta -= kid.delta.len();
        }
        self.pages.grow(p.inner, -(kid.delta.len() as isize));
        self.touch(id);
        self.note_empty(id);
    }
}
