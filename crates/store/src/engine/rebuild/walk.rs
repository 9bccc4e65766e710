//! Walks over a damaged tree: every page that can be read, and the ranges of keys of those that can't.

use super::{At, Gap, Tree, Unread, Visit};
use crate::engine::open::{OpenError, with_pages};
use crate::meta::Meta;
use crate::meta::key::{self, Bounds, Sep};
use crate::meta::page::Body;
use crate::meta::tree::NONE;
use base::errno::EIO;
impl Gap {
    /// True if the page may have held keys of this kind and group.
    pub(super) fn touches(&self, hi: u64) -> bool {
        if self.leaf {
            return self.first.hi == hi;
        }
        // A group begins at position 0 or later.
        self.first.hi <= hi
            && self.end.as_ref().is_none_or(|e| hi < e.hi || (hi == e.hi && (e.lo > 0 || !e.rest.is_empty())))
    }

    /// True if the page may have held keys of this kind.
    pub(super) fn touches_kind(&self, kind: u64) -> bool {
        let last = self.end.as_ref().map_or(u64::MAX, |e| key::kind_of(e.hi));
        if self.leaf {
            key::kind_of(self.first.hi) == kind
        } else {
            (key::kind_of(self.first.hi)..=last).contains(&kind)
        }
    }
}

impl Unread {
    pub(super) fn add(&mut self, e: OpenError, gap: Gap) -> Result<(), OpenError> {
        // Only unreadable sectors and corrupt pages count as lost; other errors end the repair.
        if matches!(e, OpenError::Io(errno, _) if errno != EIO) {
            return Err(e);
        }
        self.words.push(e.to_string());
        self.gaps.push(gap);
        Ok(())
    }
}

impl Tree<'_> {
    pub(super) fn with_pages<T>(&mut self, f: impl FnMut(&mut Meta) -> Option<T>) -> Result<T, OpenError> {
        with_pages(self.dev, self.m, f)
    }

    /// Reads a page, and tries a second time after an error.
    fn page(&mut self, f: impl Fn(&mut Meta) -> Option<u32>) -> Result<u32, OpenError> {
        self.with_pages(&f).or_else(|_| self.with_pages(&f))
    }

    /// Walks the tree in key order, reading leaves of these kinds. Removes unreadable pages from the tree.
    pub(super) fn walk(&mut self, kinds: &[u64], visit: &mut Visit<'_>) -> Result<Unread, OpenError> {
        let mut unread = Unread::default();
        let Some(s) = self.m.roots().get(usize::from(self.shard)) else { return Ok(unread) };
        if s.page == NONE && s.loc.runs.is_empty() {
            return Ok(unread);
        }
        let (loc, shard) = (s.loc.clone(), self.shard);
        visit(self, At::Place(&loc))?;
        match self.page(|m| m.root(shard)) {
            Ok(root) => {
                if self.inner(kinds, visit, &mut unread, root, (None, None))? {
                    self.m.forget_tree(shard);
                }
            }
            Err(e) => {
                unread.add(e, Gap { first: Sep::default(), end: None, leaf: false })?;
                self.m.forget_tree(shard);
            }
        }
        self.m.prune();
        Ok(unread)
    }

    /// Like [`Tree::walk`] for a tree that was cleaned: an unreadable page is an error.
    pub(super) fn walk_whole(&mut self, kinds: &[u64], visit: &mut Visit<'_>) -> Result<(), OpenError> {
        match self.walk(kinds, visit)?.words.into_iter().next() {
            Some(w) => Err(OpenError::Damaged(w)),
            None => Ok(()),
        }
    }

    /// Walks a page with keys in these bounds. Returns true if the page has become empty and must be removed.
    pub(super) fn inner(
        &mut self,
        kinds: &[u64],
        visit: &mut Visit<'_>,
        unread: &mut Unread,
        page: u32,
        (start, end): Bounds<'_>,
    ) -> Result<bool, OpenError> {
        if let Some(p) = self.m.page_mut(page) {
            p.pins += 1;
        }
        let mut at = 0;
        while let Some((sep, loc)) =
            self.m.inner(page).and_then(|n| Some((n.seps.get(at)?, n.kids.get(at)?.loc.clone())))
        {
            let next = self.m.inner(page).and_then(|n| n.seps.get(at + 1));
            let leaf = self.m.level(page) == Some(1);
            // Above leaves, the first kid also holds keys below its separator.
            let first = if at > 0 || leaf { sep.clone() } else { start.cloned().unwrap_or_default() };
            let bounds = (Some(&first), next.as_ref().or(end));
            visit(self, At::Place(&loc))?;
            if leaf && !kinds.contains(&key::kind_of(sep.hi)) {
                visit(self, At::Leaf(sep.hi, None, bounds))?;
                at += 1;
                continue;
            }
            match self.page(|m| m.kid(page, at)) {
                Ok(kid) if leaf => {
                    visit(self, At::Leaf(sep.hi, Some(kid), bounds))?;
                    at += 1;
                }
                Ok(kid) => {
                    if self.inner(kinds, visit, unread, kid, bounds)? {
                        self.m.remove_kid(page, at);
                    } else {
                        at += 1;
                    }
                }
                Err(e) => {
                    self.m.remove_kid(page, at);
                    unread.add(e, Gap { first, end: next.or_else(|| end.cloned()), leaf })?;
                }
            }
            self.m.evict(self.budget);
        }
        let mut hollow = false;
        if let Some(p) = self.m.page_mut(page) {
            p.pins -= 1;
            hollow = p.level > 1 && matches!(&p.body, Body::Inner(n) if n.kids.is_empty());
        }
        Ok(hollow)
    }
}
