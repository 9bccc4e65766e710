//! Rows: entries by version, in leaves that grow by appends. The PG log of a collection is a row, whose oldest
//! part is dropped by its pointers, unread. The undo records of the log are another row (`undo`).
//!
//! Log entries up to the collection's `trimmed` are void even if they are still stored.

use super::Meta;
use super::entries::{FAR, LogEntries};
use super::key::{self, Key};
use super::page::Body;
use super::scan::{Leaves, Span};
use super::tree::Seek;
use base::{Eversion, unreached};
use bytes::Bytes;

/// Most entries of a leaf that grows by appends.
const PAGE_ENTRIES_MAX: usize = 64;
/// Most bytes of such a leaf.
const PAGE_BYTES_MAX: usize = 16 << 10;

/// Range of a row: versions from `from` on and below `end`.
pub(super) fn row(hi: u64, from: Option<Eversion>, end: Option<Eversion>) -> Span<'static> {
    let first = from.map_or_else(|| Key::plain(hi, 0), |v| Key::version(hi, v));
    Span { first, end: end.map(|v| Key::version(hi, v)) }
}

fn span(coll: u64, from: Option<Eversion>, end: Option<Eversion>) -> Span<'static> {
    row(key::hi(key::LOG, coll), from, end)
}

/// The version directly after `v`.
pub(super) fn behind(v: Eversion) -> Eversion {
    Eversion { epoch: v.epoch, version: v.version.saturating_add(1) }
}

impl Meta {
    pub(super) fn log_page(&self, page: u32) -> Option<&LogEntries> {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Log { entries, .. }) => Some(entries),
            _ => None,
        }
    }

    fn log_page_mut(&mut self, page: u32) -> Option<&mut LogEntries> {
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Log { entries, .. }) => Some(entries),
            _ => None,
        }
    }

    fn log_of(&self, coll: u32) -> Option<(u64, u8)> {
        self.colls.get(coll as usize).map(|c| (c.num, c.shard))
    }

    /// Last leaf of a row, if it is in memory and `version` can be appended to it.
    fn tail_page(&self, hi: u64, version: Eversion) -> Option<u32> {
        let page = *self.tails.get(&hi)?;
        let e = self.log_page(page)?;
        e.last().is_some_and(|l| l < version).then_some(page)
    }

    /// Place of an entry of a row, present or not.
    pub(super) fn seek_row(&mut self, shard: u8, hi: u64, version: Eversion) -> Seek {
        match self.tail_page(hi, version) {
            Some(p) => Seek::Leaf(p),
            None => self.seek(shard, &Key::version(hi, version)),
        }
    }

    /// True if an entry of that version can be appended to the last leaf of a collection's log, which is in memory.
    pub(super) fn may_append(&self, coll: u32, version: Eversion) -> bool {
        let Some(c) = self.colls.get(coll as usize) else { return false };
        c.trimmed.is_none_or(|t| t < version) && self.tail_page(key::hi(key::LOG, c.num), version).is_some()
    }

    pub(crate) fn need_log_append(&mut self, coll: u32, version: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        !matches!(self.seek_row(shard, key::hi(key::LOG, num), version), Seek::Missing)
    }

    pub(crate) fn need_log_trim(&mut self, coll: u32, to: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        // Dropping uses pointers only; entries of a leaf that stays in part become void.
        self.need(shard, &span(num, None, Some(behind(to))), Leaves::None)
    }

    pub(crate) fn need_log_rewind(&mut self, coll: u32, to: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        self.need(shard, &span(num, Some(behind(to)), None), Leaves::Ends)
    }

    pub(crate) fn log_append(&mut self, coll: u32, version: Eversion, entry: &[u8]) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (num, shard, page) = (c.num, c.shard, c.page);
        if c.trimmed.is_some_and(|t| version <= t) {
            // Void entries still stored may have versions older than the new one, so they are removed for good.
            self.drop_void(coll);
            self.touch(page);
            if let Some(c) = self.colls.get_mut(coll as usize) {
                c.trimmed = None;
            }
        }
        self.put_entry(shard, key::hi(key::LOG, num), version, entry);
    }

    /// Adds an entry to a row; one of the same version is replaced. Its leaf is in memory.
    pub(super) fn put_entry(&mut self, shard: u8, hi: u64, version: Eversion, entry: &[u8]) {
        let key = Key::version(hi, version);
        let tail = self.tail_page(hi, version);
        let found = tail.map_or_else(|| self.seek(shard, &key), Seek::Leaf);
        let leaf = match found {
            Seek::Missing => return self.missed(),
            Seek::Leaf(p) => p,
            Seek::Absent { inner, at, bound } => {
                let entries = LogEntries::of(version, entry);
                let mem = entries.mem();
                let p = self.insert_first_leaf(inner, at, bound, &key, Body::Log { entries }, mem);
                self.note_tail(p);
                return;
            }
        };
        let Some(e) = self.log_page(leaf) else { return };
        let newest = e.last().is_none_or(|l| l < version);
        let full = e.len() >= PAGE_ENTRIES_MAX || e.stored() >= PAGE_BYTES_MAX;
        if newest && full && self.last_of_group(leaf) {
            let entries = LogEntries::of(version, entry);
            let mem = entries.mem();
            let p = self.insert_leaf_after(leaf, key.sep(), Body::Log { entries }, mem);
            self.note_tail(p);
            return;
        }
        // The log is being rebuilt out of order; an entry of equal version is replaced.
        self.edit_log(leaf, |e| e.insert(version, entry));
        if newest && tail.is_none() {
            self.note_tail(leaf);
        }
    }

    /// Changes a leaf's entries. Returns true if none is left.
    pub(super) fn edit_log(&mut self, leaf: u32, f: impl FnOnce(&mut LogEntries)) -> bool {
        self.touch(leaf);
        let Some(e) = self.log_page_mut(leaf) else { return false };
        let before = e.mem();
        f(e);
        let (more, empty) = (e.mem() as isize - before as isize, e.is_empty());
        if more != 0 {
            self.pages.grow(leaf, more);
        }
        empty
    }

    /// Remembers a leaf as the last of its row if no leaf follows.
    fn note_tail(&mut self, leaf: u32) {
        let Some(hi) = self.pages.get(leaf as usize).map(|p| p.hi) else { return };
        if self.tails.get(&hi) != Some(&leaf) {
            // Only the next separator tells. At the end of an inner page it is one level up, so the last leaf
            // is searched.
            let shard = self.pages.get(leaf as usize).map_or(0, |p| p.shard);
            if let Seek::Leaf(p) = self.seek_quietly(shard, &Key::version(hi, FAR))
                && p == leaf
            {
                self.tails.insert(hi, leaf);
            }
        }
    }

    /// Removes the void entries of leaves in memory. They are in memory after `need_log_append`.
    fn drop_void(&mut self, coll: u32) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (num, shard, trimmed) = (c.num, c.shard, c.trimmed);
        let Some(t) = trimmed else { return };
        let mut part = Vec::new();
        let done = self.scan(shard, &span(num, None, Some(behind(t))), |m, p| {
            if m.log_page(p).and_then(LogEntries::first).is_some_and(|first| first <= t) {
                part.push(p);
            }
            true
        });
        if done.is_none() {
            return self.missed();
        }
        for p in part {
            if self.edit_log(p, |e| e.remove_upto(t)) {
                self.note_empty(p);
            }
        }
    }

    /// Brings the leaves from which `log_append` of an already trimmed version has to remove void entries.
    pub(crate) fn need_void(&mut self, coll: u32, version: Eversion) -> bool {
        let Some(c) = self.colls.get(coll as usize) else { return true };
        let (num, shard) = (c.num, c.shard);
        match c.trimmed {
            Some(t) if version <= t => self.need(shard, &span(num, None, Some(behind(t))), Leaves::All),
            _ => true,
        }
    }

    pub(crate) fn log_trim(&mut self, coll: u32, to: Eversion) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (num, shard, page) = (c.num, c.shard, c.page);
        self.drop_covered(shard, &span(num, None, Some(behind(to))), None);
        let Some(c) = self.colls.get(coll as usize) else { return unreached("a trim removes no collection") };
        if c.trimmed.is_none_or(|t| t < to) {
            self.touch(page);
            if let Some(c) = self.colls.get_mut(coll as usize) {
                c.trimmed = Some(to);
            }
        }
    }

    /// Drops the whole log.
    pub(crate) fn log_drop(&mut self, coll: u32) {
        let Some((num, shard)) = self.log_of(coll) else { return };
        self.drop_covered(shard, &span(num, None, None), None);
    }

    pub(crate) fn need_log_drop(&mut self, coll: u32) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        self.need(shard, &span(num, None, None), Leaves::None)
    }

    pub(crate) fn log_rewind(&mut self, coll: u32, to: Eversion) {
        let Some((num, shard)) = self.log_of(coll) else { return };
        let span = span(num, Some(behind(to)), None);
        self.drop_covered(shard, &span, Some(|| Body::Log { entries: LogEntries::default() }));
        let mut part = Vec::new();
        if self
            .scan(shard, &span, |_, p| {
                part.push(p);
                true
            })
            .is_none()
        {
            return self.missed();
        }
        for p in part {
            if self.log_page(p).and_then(LogEntries::last).is_none_or(|last| last <= to) {
                continue;
            }
            if self.edit_log(p, |e| e.remove_after(to)) {
                self.note_empty(p);
            }
        }
        self.tails.remove(&key::hi(key::LOG, num));
    }

    /// Entries newer than `after`; `None` if a leaf is missing.
    pub(crate) fn log_after(&mut self, coll: u32, after: Eversion) -> Option<Vec<(Eversion, Bytes)>> {
        let Some(c) = self.colls.get(coll as usize) else { return Some(Vec::new()) };
        let (num, shard) = (c.num, c.shard);
        let after = c.trimmed.map_or(after, |t| t.max(after));
        let mut out = Vec::new();
        self.scan(shard, &span(num, Some(after), None), |m, p| {
            out.extend(m.log_page(p).into_iter().flat_map(|e| e.after(after)));
            true
        })?;
        Some(out)
    }
}
