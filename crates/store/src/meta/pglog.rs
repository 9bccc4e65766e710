//! PG log entries of a collection: leaves appended behind, dropped in front by their pointers, unread.
//!
//! Entries up to the collection's `trimmed` are void wherever they are still stored.

use super::Meta;
use super::key::{self, Key};
use super::page::{Body, PAGE_OVERHEAD};
use super::tree::{Leaves, Seek, Span};
use crate::codec::{Get, Malformed, Put};
use base::Eversion;
use bytes::Bytes;
use std::collections::VecDeque;

/// A leaf that entries are appended to ends with so many...
const PAGE_ENTRIES_MAX: usize = 64;
/// ...or so many bytes.
const PAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of memory an entry takes beside its own.
pub(super) const ENTRY_BYTES: usize = 64;

pub(crate) type LogEntries = VecDeque<(Eversion, Bytes)>;

pub(crate) fn encode_entries(e: &LogEntries, w: &mut Vec<u8>) {
    w.var(e.len() as u64);
    for (v, b) in e {
        w.version(*v);
        w.bytes(b);
    }
}

pub(crate) fn decode_entries(r: &mut Get<'_>) -> Result<LogEntries, Malformed> {
    let n = r.count(13)?;
    let mut out = LogEntries::with_capacity(n);
    for _ in 0..n {
        out.push_back((r.version()?, r.bytes()?));
    }
    if !out.iter().is_sorted_by(|a, b| a.0 < b.0) {
        return r.bad();
    }
    Ok(out)
}

fn span(coll: u64, from: Option<Eversion>, end: Option<Eversion>) -> Span<'static> {
    let first = from.map_or_else(|| Key::plain(key::hi(key::LOG, coll), 0), |v| Key::log(coll, v));
    Span { first, end: end.map(|v| Key::log(coll, v)) }
}

/// The version right behind one.
fn behind(v: Eversion) -> Eversion {
    Eversion { epoch: v.epoch, version: v.version.saturating_add(1) }
}

impl Meta {
    fn log_page(&self, page: u32) -> Option<&LogEntries> {
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

    /// About the stored bytes of a log page of `n` entries, from what is known of its memory: looking at each entry at each
    /// append would cost more than the append.
    fn log_bytes(&self, page: u32, n: usize) -> usize {
        let mem = self.pages.get(page as usize).map_or(0, |p| p.mem);
        mem.saturating_sub(PAGE_OVERHEAD + n * (ENTRY_BYTES - 20))
    }

    fn log_of(&self, coll: u32) -> Option<(u64, u8)> {
        self.colls.get(coll as usize).map(|c| (c.num, c.shard))
    }

    /// The last leaf of a collection's log, if appending `version` to it is right and it is in memory.
    fn tail_page(&self, num: u64, version: Eversion) -> Option<u32> {
        let page = *self.tails.get(&key::hi(key::LOG, num))?;
        let e = self.log_page(page)?;
        e.back().is_some_and(|l| l.0 < version).then_some(page)
    }

    pub(crate) fn need_log_append(&mut self, coll: u32, version: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        self.tail_page(num, version).is_some() || !matches!(self.seek(shard, &Key::log(num, version)), Seek::Missing)
    }

    pub(crate) fn need_log_trim(&mut self, coll: u32, to: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        // Only pointers; entries of a leaf that stays in part become void.
        self.need(shard, &span(num, None, Some(behind(to))), Leaves::None)
    }

    pub(crate) fn need_log_rewind(&mut self, coll: u32, to: Eversion) -> bool {
        let Some((num, shard)) = self.log_of(coll) else { return true };
        self.need(shard, &span(num, Some(behind(to)), None), Leaves::Ends)
    }

    pub(crate) fn log_append(&mut self, coll: u32, version: Eversion, entry: &[u8]) {
        let entry = Bytes::copy_from_slice(entry);
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (num, shard, page) = (c.num, c.shard, c.page);
        if c.trimmed.is_some_and(|t| version <= t) {
            // Stored entries that are void may be older than what comes now: they have to go for good.
            self.drop_void(coll);
            self.touch(page);
            if let Some(c) = self.colls.get_mut(coll as usize) {
                c.trimmed = None;
            }
        }
        let key = Key::log(num, version);
        let leaf = match self.tail_page(num, version) {
            Some(p) => p,
            None => match self.seek(shard, &key) {
                Seek::Missing => return self.missed(),
                Seek::Leaf(p) => p,
                Seek::Absent { inner, at, bound } => {
                    let mem = entry.len() + ENTRY_BYTES;
                    let entries = [(version, entry)].into();
                    let p = self.insert_first_leaf(inner, at, bound, &key, Body::Log { entries }, mem);
                    self.note_tail(p);
                    return;
                }
            },
        };
        let Some(e) = self.log_page(leaf) else { return };
        let newest = e.back().is_none_or(|l| l.0 < version);
        let full = e.len() >= PAGE_ENTRIES_MAX || self.log_bytes(leaf, e.len()) >= PAGE_BYTES_MAX;
        if newest && full && self.last_of_group(leaf) {
            let mem = entry.len() + ENTRY_BYTES;
            let entries = [(version, entry)].into();
            let p = self.insert_leaf_after(leaf, key.sep(), Body::Log { entries }, mem);
            self.note_tail(p);
            return;
        }
        self.touch(leaf);
        let mut more = (entry.len() + ENTRY_BYTES) as isize;
        if let Some(e) = self.log_page_mut(leaf) {
            // Else it is a log rebuilt out of order; an entry of equal version is replaced.
            let at = if newest { e.len() } else { e.partition_point(|x| x.0 < version) };
            match e.get_mut(at) {
                Some(x) if x.0 == version => {
                    more -= (std::mem::replace(&mut x.1, entry).len() + ENTRY_BYTES) as isize;
                }
                _ => e.insert(at, (version, entry)),
            }
        }
        self.grow(leaf, more);
        if newest {
            self.note_tail(leaf);
        }
    }

    /// Remembers a leaf if none follows it.
    fn note_tail(&mut self, leaf: u32) {
        let Some(hi) = self.pages.get(leaf as usize).map(|p| p.hi) else { return };
        if self.tails.get(&hi) != Some(&leaf) {
            // Only the separator behind it tells; at the end of an inner page that is one level up, so look the last one up.
            let num = key::group_of(hi);
            let far = Eversion { epoch: base::Epoch(u32::MAX), version: u64::MAX };
            let shard = self.pages.get(leaf as usize).map_or(0, |p| p.shard);
            if let Seek::Leaf(p) = self.seek_quietly(shard, &Key::log(num, far))
                && p == leaf
            {
                self.tails.insert(hi, leaf);
            }
        }
    }

    /// Removes the void entries of leaves in memory; the leaves are in memory if `need_log_append` was asked.
    fn drop_void(&mut self, coll: u32) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (num, shard, trimmed) = (c.num, c.shard, c.trimmed);
        let Some(t) = trimmed else { return };
        let mut part = Vec::new();
        let done = self.scan(shard, &span(num, None, Some(behind(t))), |m, p| {
            if m.log_page(p).is_some_and(|e| e.front().is_some_and(|e| e.0 <= t)) {
                part.push(p);
            }
            true
        });
        if done.is_none() {
            return self.missed();
        }
        for p in part {
            self.touch(p);
            let mut less = 0;
            let mut empty = false;
            if let Some(e) = self.log_page_mut(p) {
                while e.front().is_some_and(|e| e.0 <= t) {
                    less += e.pop_front().map_or(0, |e| e.1.len() + ENTRY_BYTES);
                }
                empty = e.is_empty();
            }
            self.grow(p, -(less as isize));
            if empty {
                self.note_empty(p);
            }
        }
    }

    /// Brings the leaves of which `log_append` of a version that was trimmed before has to remove entries.
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
        let Some(c) = self.colls.get(coll as usize) else { return };
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
        self.drop_covered(shard, &span, Some(|| Body::Log { entries: LogEntries::new() }));
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
            if self.log_page(p).and_then(|e| e.back()).is_none_or(|e| e.0 <= to) {
                continue;
            }
            self.touch(p);
            let (mut less, mut empty) = (0, false);
            if let Some(e) = self.log_page_mut(p) {
                while e.back().is_some_and(|e| e.0 > to) {
                    less += e.pop_back().map_or(0, |e| e.1.len() + ENTRY_BYTES);
                }
                empty = e.is_empty();
            }
            self.grow(p, -(less as isize));
            if empty {
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
            out.extend(m.log_page(p).into_iter().flatten().filter(|e| e.0 > after).cloned());
            true
        })?;
        Some(out)
    }
}
